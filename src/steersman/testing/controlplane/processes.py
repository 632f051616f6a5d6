"""Child processes that never outlive the process that started them, and the ports they listen on.

Every child leads a process group of its own, so that Ctrl-C reaches us first and we end things in order. The kernel
kills it the moment we die, also when we die by `kill -9` (`PR_SET_PDEATHSIG`; Linux only). What it prints goes to a
file, and the end of that file is part of every error about it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["LOOPBACK", "Child", "ReservedPort"]

# Runs between fork and the program itself, as a process of its own: code run in a forked copy of a threaded Python may
# hang. The check of the parent closes the gap in which the parent died before the kernel was told.
_LAUNCHER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])
"""


class Child:
    """One running program."""

    def __init__(
        self, command: Sequence[str | Path], *, log: Path, name: str = "", environment: Mapping[str, str] | None = None
    ) -> None:
        program, *arguments = [str(part) for part in command]
        self.name = name or os.path.basename(program)  # noqa: PTH119  (a path that may be relative to PATH)
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                env=dict(environment) if environment is not None else None,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._process.poll()

    async def wait(self) -> int:
        """Return the exit code once the program has ended."""
        if (code := self._process.poll()) is not None:
            return code
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        descriptor = os.pidfd_open(self.pid)
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        return self._process.wait()

    async def stop(self, *, deadline: float) -> int:
        """Ask it to end, and kill it after `deadline` seconds."""
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(deadline):
                return await self.wait()
        except TimeoutError:
            self.kill()
            return await self.wait()

    def kill(self) -> None:
        """End it now."""
        self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program and everything it started."""
        if self._process.poll() is None:
            os.killpg(self.pid, number)

    def tail(self, lines: int = 15) -> str:
        """The last lines it printed, indented."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 64 * 1024))
            text = file.read().decode(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in text[-lines:])


LOOPBACK = "127.0.0.1"


class ReservedPort:
    """A port on the loopback address, held inside the `with` block; `number` 0 takes any that is free.

    Asking the kernel for a free port and closing the socket again leaves a gap in which another test may be given the
    same one. Here the socket stays bound, without listening, while a program that shares ports (`SO_REUSEPORT`: etcd's
    `--socket-reuse-port`, Kubernetes' `--permit-port-sharing`) binds beside it; other programs cannot.
    """

    def __init__(self, number: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind((LOOPBACK, number))
        self.number: int = self._socket.getsockname()[1]

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{LOOPBACK}:{self.number}"

    def release(self) -> None:
        """Let go early, for a program that cannot share."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
