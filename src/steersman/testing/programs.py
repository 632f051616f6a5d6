"""Other people's programs, pointed at a server under test: the real kubectl, the real Helm."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Output", "Program"]


class Output(Struct, frozen=True, kw_only=True):
    """What a program said and how it ended."""

    code: int
    out: str
    err: str


class Program:
    """A program that reads a kubeconfig: `await kubectl("get", "pods")`."""

    def __init__(self, path: Path, kubeconfig: Path, *, home: Path) -> None:
        self.path = path
        self.kubeconfig = kubeconfig
        self._home = home  # of its caches, so that runs do not see each other's

    @property
    def environment(self) -> dict[str, str]:
        """What a process started by hand needs to reach the same server."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self._home)}

    async def __call__(self, *arguments: str, stdin: str = "", check: bool = True) -> Output:
        """Run it; unless `check` is off, a failure raises and shows what the program said."""
        process = await self.start(*arguments)
        out, err = await process.communicate(stdin.encode())
        output = Output(code=process.returncode or 0, out=out.decode(), err=err.decode())
        if check and output.code:
            command = " ".join([self.path.name, *arguments])
            raise AssertionError(f"{command}: exit {output.code}\n{output.err}{output.out}")
        return output

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start it and return the process, for commands that follow something."""
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            str(self.path), *arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=self.environment
        )
