"""The one folder that holds everything of a run, and disappears with it.

The process that owns a folder holds a lock in it, which the kernel drops however that process ends. So a folder whose
lock is free belongs to a run that was killed, and the next run removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["RunFolder"]

_PREFIX = "steersman-run-"


class RunFolder:
    """A temporary folder with a lock in it."""

    def __init__(self, parent: Path | None = None) -> None:
        parent = parent or Path(tempfile.gettempdir())
        _remove_abandoned(parent)
        made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=parent))
        self._lock = (made / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = made.rename(parent / made.name.removeprefix("."))  # never seen under this name without its lock

    def folder(self, name: str) -> Path:
        """A folder inside, made if it is not there."""
        path = self.path / name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def write(self, name: str, content: bytes | str) -> Path:
        """Write a file inside that only this user can read."""
        return write_private(self.folder(str(Path(name).parent)) / Path(name).name, content)

    def remove(self) -> None:
        """Delete everything."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def write_private(path: Path, content: bytes | str) -> Path:
    """Write a file that only this user can read, in one step: readers see the old content or the new one."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123 (a mode)
        file.write(content if isinstance(content, bytes) else content.encode())
    return scratch.replace(path)


def _remove_abandoned(parent: Path) -> None:
    for path in parent.glob(f"{_PREFIX}*/lock"):
        try:
            with path.open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
        except OSError:  # in use, gone in the meantime, or owned by another user
            continue
