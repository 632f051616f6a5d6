"""Credential material that changes under us: certificates, keys and tokens, inline or in a file.

Kubelets and certificate managers replace files while we run. `read` gives what the file holds now: it checks the
file's identity at most once a second, and reads it again when that changed, or every minute in case the change could
not be seen. A file that cannot be read for a moment (it is being replaced) keeps its last content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.clock import Clock

__all__ = ["Material", "ReloadingFile"]

_CHECK_EVERY = 1.0
_READ_EVERY = 60.0


class ReloadingFile:
    """The content of a file, as fresh as a second."""

    def __init__(self, path: Path, clock: Clock, *, field: str, where: str | None = None) -> None:
        self.path = path
        self._clock = clock
        self._field = field
        self._where = where
        self._content: bytes | None = None
        self._identity: tuple[int, int, int] | None = None
        self._checked_at = self._read_at = float("-inf")

    def invalidate(self) -> None:
        """Read the file again at the next `read`, whatever its timestamps say."""
        self._identity = None
        self._checked_at = self._read_at = float("-inf")

    def read(self) -> bytes:
        """The content; ConfigError when the file never could be read."""
        now = self._clock.monotonic()
        if self._content is not None and now - self._checked_at < _CHECK_EVERY:
            return self._content
        try:
            status = self.path.stat()
            identity = (status.st_mtime_ns, status.st_size, status.st_ino)
            if self._content is None or identity != self._identity or now - self._read_at >= _READ_EVERY:
                self._content = self.path.read_bytes()
                self._identity, self._read_at = identity, now
            self._checked_at = now
        except OSError as error:
            if self._content is None:
                raise ConfigError(
                    f"cannot read {self.path}: {error.strerror} (check the path and its permissions)",
                    where=self._where,
                    field=self._field,
                ) from None
            self._checked_at = now
        return self._content


class Material:
    """Bytes that are either given or kept in a file that may rotate."""

    def __init__(self, source: bytes | ReloadingFile) -> None:
        self._source = source

    @classmethod
    def of(cls, source: bytes | Path, clock: Clock, *, field: str, where: str | None = None) -> Material:
        """`source` as a cluster configuration holds it; `field` and `where` name it when it cannot be read."""
        if isinstance(source, bytes):
            return cls(source)
        return cls(ReloadingFile(source, clock, field=field, where=where))

    @property
    def path(self) -> Path | None:
        """The file it comes from, None when given inline."""
        return self._source.path if isinstance(self._source, ReloadingFile) else None

    def read(self) -> bytes:
        """What it is now."""
        return self._source.read() if isinstance(self._source, ReloadingFile) else self._source

    def invalidate(self) -> None:
        """Forget what was read."""
        if isinstance(self._source, ReloadingFile):
            self._source.invalidate()
