"""A measured process: started on its own, watched through the kernel's books, ended by its id."""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a process has used: CPU seconds, and memory in MiB."""

    cpu: float
    peak: float
    resident: float


class Child:
    """One process that speaks JSON lines; killed when the block ends."""

    def __init__(self, command: Sequence[str], *, env: dict[str, str] | None = None) -> None:
        self._command = list(command)
        self._env = {**environment(), **(env or {})}

    def __enter__(self) -> Self:
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._command, env=self._env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0
        )
        self._rest = b""
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                pipe.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def tell(self, line: str) -> None:
        """Write a line to its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    def hear(self, patience: float = 300.0) -> dict[str, Any]:
        """The next JSON line it prints; anything else it prints is skipped."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + patience
        while True:
            line, newline, rest = self._rest.partition(b"\n")
            if newline:
                self._rest = rest
                if line.startswith(b"{"):
                    found: dict[str, Any] = msgspec.json.decode(line)
                    return found
                continue
            if not select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"{self._command[0]} said nothing for {patience:.0f} s\n{self._complaints()}")
            data = os.read(self._process.stdout.fileno(), 65536)
            if not data:
                raise RuntimeError(f"{' '.join(self._command)} ended\n{self._complaints()}")
            self._rest += data

    def usage(self) -> Usage:
        """What it has used so far."""
        return usage_of(self.pid)

    def _complaints(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-2000:]


def environment() -> dict[str, str]:
    """For a measured process: as ours, but Python may keep its bytecode, as it does wherever a package is installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def usage_of(pid: int) -> Usage:
    """What a process has used so far, all its threads together."""
    status = (Path("/proc") / str(pid) / "status").read_text().splitlines()
    memory = dict(line.split(":", 1) for line in status if line.startswith(("VmHWM", "VmRSS")))
    return Usage(
        cpu=time.clock_gettime(~pid << 3 | 2),  # the CPU clock of a process, as clock_getcpuclockid(3) makes it
        peak=int(memory["VmHWM"].split()[0]) / 1024,
        resident=int(memory["VmRSS"].split()[0]) / 1024,
    )
