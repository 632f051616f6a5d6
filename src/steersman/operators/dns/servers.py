"""Servers: where they are, which keys they know, and how we treat one that fails. Pure data, and two small machines.

A breaker keeps a dead server from costing everybody time: after five failures in a row nobody asks it for half a
minute, then one may try. A bucket keeps us from flooding a server that works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from steersman.errors import DriverError
from steersman.kube.resources import ObjectRef
from steersman.operators.dns.tsig import Key
from steersman.runtime.ratelimit import Bucket

if TYPE_CHECKING:
    from steersman.clock import Clock

__all__ = ["PAUSE", "QUICK", "Breaker", "Gate", "Keys", "Server", "ServerUnavailable"]

FAILURES: Final = 5
PAUSE: Final = 30.0  # seconds
QUICK: Final = 1.0  # seconds within which a failure costs those who wait little
PER_SECOND: Final = 2000.0
BURST: Final = 4000


class Keys(msgspec.Struct, frozen=True):
    """The keys of a server, never shown. `previous` opens what has not heard of the new one yet."""

    control: Key
    update: Key
    transfer: Key
    previous: Key | None = None
    previous_update: Key | None = None
    token: str = ""  # for its sidecar; empty: the operator's own

    def __repr__(self) -> str:
        return f"Keys({self.control!r}, {self.update!r}, {self.transfer!r})"


class Server(msgspec.Struct, frozen=True):
    """One named: an endpoint that exists, or a pod."""

    instance: ObjectRef
    name: str  # of the pod, or the place among the endpoints
    role: str  # primary or secondary
    address: str
    dns_port: int
    rndc_port: int
    keys: Keys
    directory: str = ""  # for zone files; empty: its own
    records_only: bool = False
    managed: bool = False
    allow_transfer: tuple[str, ...] = ()
    lists: frozenset[str] = frozenset()  # access lists of its configuration, by name
    primaries: tuple[str, ...] = ()  # where it, a secondary, is to fetch its zones instead of at their own primaries
    catalog: str = ""  # the zone that tells it, a secondary, what to serve
    uid: str = ""  # of the pod: another pod at the same address is another server
    since: str = ""  # when its containers were last seen to become ready: how it failed before that says nothing now
    api_port: int = 0  # of the sidecar through which zones come and go; 0: there is none

    @property
    def id(self) -> str:
        """What tells it from any other."""
        return f"{self.instance}/{self.name}/{self.address}:{self.dns_port}/{self.uid}"

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{self.instance.name}/{self.name}"


class ServerUnavailable(DriverError):  # noqa: N818  a state, not a fault
    """Nobody asks this server now."""


class Breaker:
    """closed ──5 failures──► open ──30 s──► one try ──► closed, or open again"""

    def __init__(self, clock: Clock, pause: float = PAUSE) -> None:
        self._clock, self._pause = clock, pause
        self._failures = 0
        self._counted = self._until = float("-inf")

    @property
    def open(self) -> bool:
        """Whether nobody may ask now; asking whether one may is taking the one try there is."""
        if self._failures < FAILURES:
            return False
        now = self._clock.monotonic()
        if now < self._until:
            return True
        self._until = now + self._pause  # this one may try; the others wait for what comes of it
        return False

    def succeeded(self) -> None:
        """It works."""
        self._failures = 0

    def failed(self, *, quickly: bool = False) -> None:
        """It did not answer. What fails at once costs nothing, and many ask at once: that counts once in a second.

        A server that restarts would otherwise be left alone for the whole pause by the zones that change meanwhile.
        """
        now = self._clock.monotonic()
        if quickly and now - self._counted < QUICK:
            return
        self._counted = now
        self._failures += 1
        if self._failures >= FAILURES:
            self._until = self._clock.monotonic() + self._pause


class Gate:
    """What every request to one server passes."""

    def __init__(self, server: str, clock: Clock, pause: float = PAUSE) -> None:
        self._server = server
        self._clock, self._pause = clock, pause
        self.breaker = Breaker(clock, pause)
        self.why = ""  # what was wrong the last time
        self._bucket = Bucket(per_second=PER_SECOND, burst=BURST, clock=clock)

    async def enter(self) -> None:
        """Wait for a turn; ServerUnavailable when there is none."""
        if self.breaker.open:
            again = f"it failed {FAILURES} times; the next try is within {self._pause:g} s"
            raise ServerUnavailable(f"{self.why} ({again})" if self.why else again, server=self._server)
        delay = self._bucket.when(self._server)
        if delay > 0:
            await self._clock.sleep(delay)
