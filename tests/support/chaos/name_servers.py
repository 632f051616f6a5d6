"""Real name servers in virtual time: named answers in real milliseconds, and time stands still until it has.

Everything between an operator and a named passes a `Liar` on the loop. While a request has gone to named and no answer
came back, it holds the virtual time; so a named that is slow because the machine is busy changes nothing. Servers start
and end in threads, for which time stands still too.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from base64 import b64encode
from itertools import count
from typing import TYPE_CHECKING

import dns.exception
import dns.message
import dns.query
import dns.rcode
import dns.rdatatype

from steersman.testing.controlplane.processes import Child
from tests.support.chaos.checkers import SECRET
from tests.support.chaos.virtual_loop import VirtualLoop
from tests.support.dns.liar import Liar
from tests.support.dns.named import Named
from tests.support.programs.loopback_server import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["HoldingLiar", "NameServer", "new_key"]

ANSWER_SECONDS = 5.0  # real ones, for a server that is killed while it is asked
_keys = count(1)


def new_key() -> str:
    """A key that no server had before, and that the checkers know as a secret."""
    return b64encode(f"{SECRET}-{next(_keys)}".ljust(33, ".").encode()).decode()


class NameServer(Named):
    """A named that is started, killed and asked in threads."""

    _program: Child | None = None

    async def _launch(self, *command: str | Path, log: Path, environment: Mapping[str, str] | None = None) -> None:
        def launch() -> None:
            self._program = Child(command, log=log, environment=environment)
            until = time.monotonic() + PATIENCE
            while not all(claim.answers for claim in self._claims):
                if self._program.exit_code is not None or time.monotonic() > until:
                    raise RuntimeError(f"{command[0]} did not start: {log.read_text()[-2000:]}")
                time.sleep(0.005)

        await asyncio.to_thread(launch)

    async def kill(self) -> None:
        if self._program is not None:
            self._program.kill()
            while self._program.exit_code is None:  # a moment, in which no virtual time passes
                await asyncio.to_thread(time.sleep, 0.001)
            self._program = None

    async def ask(self, *questions: tuple[str, str]) -> list[tuple[str, set[str]] | None]:
        """The response code and the values of each answer; None where there is no answer."""
        return await asyncio.to_thread(lambda: [self._ask(name, kind) for name, kind in questions])

    def _ask(self, name: str, kind: str) -> tuple[str, set[str]] | None:
        question, wanted = dns.message.make_query(name, kind), dns.rdatatype.from_text(kind)
        if self._program is None:
            return None
        with contextlib.suppress(OSError, EOFError, dns.exception.DNSException):
            answer = dns.query.udp(question, self.address, port=self.dns_port, timeout=ANSWER_SECONDS)
            rows = {row.to_text() for rrset in answer.answer if rrset.rdtype == wanted for row in rrset}
            return dns.rcode.to_text(answer.rcode()), rows
        return None


class HoldingLiar(Liar):
    """A liar for which time stands still while named answers."""

    async def _answer(self, replies: asyncio.StreamReader, framed: int) -> bytes:
        loop, token = asyncio.get_running_loop(), object()
        if not isinstance(loop, VirtualLoop):
            return await super()._answer(replies, framed)
        loop.hold(token)
        try:
            return await super()._answer(replies, framed)
        finally:
            loop.release(token)
