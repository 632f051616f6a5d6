"""A program that serves on the loopback address, on ports of its own, with a life that tests control.

Ports lie below those that the kernel gives away, and stay claimed while the object lives, so a server that was killed
finds its ports free again.
"""

from __future__ import annotations

import asyncio
import random
import socket
from typing import TYPE_CHECKING, Self

from steersman.testing.controlplane.processes import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["PATIENCE", "LoopbackServer", "PortClaim"]

FIRST, LAST = 15_000, 30_000
PATIENCE = 180  # seconds for a server to start, on a machine that has much else to do


class PortClaim:
    """A port that nobody else of these tests takes while it is held."""

    def __init__(self) -> None:
        for _ in range(500):
            self.number = random.randrange(FIRST, LAST)  # any will do
            self._mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                self._mark.bind(f"\0steersman-port-{self.number}")
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    with socket.socket(socket.AF_INET, kind) as probe:
                        probe.bind((LOOPBACK, self.number))
            except OSError:
                self._mark.close()
                continue
            return
        raise OSError("no port is free")

    @property
    def answers(self) -> bool:
        """Whether somebody listens there."""
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.settimeout(1)
            return probe.connect_ex((LOOPBACK, self.number)) == 0

    def release(self) -> None:
        """Let others have it."""
        self._mark.close()


class LoopbackServer:
    """See the module. Subclasses say how it starts."""

    def __init__(self, *claims: PortClaim) -> None:
        self._claims = claims
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start, and return when it listens on all its ports."""
        raise NotImplementedError

    async def _launch(self, *command: str | Path, log: Path, environment: Mapping[str, str] | None = None) -> None:
        with log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdout=output, stderr=output, stdin=asyncio.subprocess.DEVNULL, env=environment
            )
        async with asyncio.timeout(PATIENCE):
            while not all(claim.answers for claim in self._claims):
                if self._process.returncode is not None:
                    raise RuntimeError(f"{command[0]} ended: {_end_of(log)}")
                await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """kill -9; `start` brings it back on the same ports."""
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()
            self._process = None

    def release(self) -> None:
        """Let its ports go; only when it no longer runs."""
        for claim in self._claims:
            claim.release()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.kill()
        finally:
            self.release()


def _end_of(log: Path) -> str:
    return log.read_text()[-2000:]
