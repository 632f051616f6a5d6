"""How a server that fails is treated: the circuit breaker and rate limit of its requests, and the log of outages.

While a breaker is open only probes reach the server (`Driver.probe`); the first that is answered closes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from steersman.errors import DriverError
from steersman.runtime.workqueue.rate_limiters import TokenBucket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from steersman.clock import Clock
    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.dns.bind.servers import Server

FAILURES: Final = 5
PAUSE: Final = 30.0  # seconds
QUICK: Final = 1.0  # seconds within which a failure costs those who wait little
PER_SECOND: Final = 2000.0
BURST: Final = 4000


class ServerUnavailable(DriverError):  # noqa: N818  a state
    """The circuit breaker of this server is open: no request is sent."""


class Breaker:
    """closed ──5 failures──► open ──an answered probe, or one attempt after 30 s──► closed, or open again"""

    def __init__(self, clock: Clock, pause: float = PAUSE) -> None:
        self._clock, self._pause = clock, pause
        self._failures = 0
        self._counted = self._until = float("-inf")

    @property
    def open(self) -> bool:
        """Whether requests are held back now. Once the pause is over, reading this takes the one attempt there is."""
        if self._failures < FAILURES:
            return False
        now = self._clock.monotonic()
        if now < self._until:
            return True
        self._until = now + self._pause  # this caller makes the attempt, the others wait for its result
        return False

    def succeeded(self) -> None:
        """A request was answered."""
        self._failures = 0

    def failed(self, *, quickly: bool = False) -> None:
        """A request was not answered. Failures that come `quickly` cost little and are many: one a second counts.

        Otherwise the zones that change while a server restarts would open its breaker for the whole pause.
        """
        now = self._clock.monotonic()
        if quickly and now - self._counted < QUICK:
            return
        self._counted = now
        self._failures += 1
        if self._failures >= FAILURES:
            self._until = self._clock.monotonic() + self._pause


class Gate:
    """The breaker and rate limit that every request to one server passes."""

    def __init__(self, server: str, clock: Clock, pause: float = PAUSE) -> None:
        self._server = server
        self._clock, self._pause = clock, pause
        self.breaker = Breaker(clock, pause)
        self.why = ""  # the last failure
        self._bucket = TokenBucket(per_second=PER_SECOND, burst=BURST, clock=clock)

    async def enter(self) -> None:
        """Wait until a request may be sent; ServerUnavailable while the breaker is open."""
        if self.breaker.open:
            again = f"failed {FAILURES} times in a row; the next attempt follows when it answers a probe"
            raise ServerUnavailable(f"{self.why} ({again})" if self.why else again, server=self._server)
        delay = self._bucket.when(self._server)
        if delay > 0:
            await self._clock.sleep(delay)


log = structlog.get_logger(__name__)


class Outages:
    """The servers that do not answer: logged and reported once when an outage begins, and logged when it ends.

    A server is away while a channel to it (DNS, control, sidecar) failed at the last attempt. A hundred zones of one
    server are one outage. A pod that has never answered is starting, and its kubelet reports that.
    """

    def __init__(self, requeue: Callable[[NamespacedName], object]) -> None:
        """`requeue` has an instance reconciled."""
        self._requeue = requeue
        self._away: dict[str, dict[str, str]] = {}  # server -> channel -> problem
        self._instances: dict[str, NamespacedName] = {}  # of all known servers
        self._answered: set[str] = set()
        self._reported: set[str] = set()

    def record(self, server: Server, channel: str, problem: str) -> None:
        """The result of an attempt: `problem` is empty when the server answered, be it with a rejection."""
        problems = self._away.get(server.id)
        if not problem:
            self._answered.add(server.id)
            if problems is not None and problems.pop(channel, None) is not None and not problems:
                del self._away[server.id]
                self._reported.discard(server.id)
                log.info("server answers again", server=server.title, address=server.address)
                self._requeue(server.instance)
        elif problems is not None:
            problems[channel] = problem
        elif not server.managed or server.id in self._answered:
            self._away[server.id] = {channel: problem}
            log.warning(
                "server does not answer", server=server.title, address=server.address, channel=channel, problem=problem
            )
            self._requeue(server.instance)
        self._instances[server.id] = server.instance

    def unreported(self, instance: NamespacedName, servers: Iterable[Server]) -> list[tuple[str, str]]:
        """The servers of an instance whose outage is new, and the problem; servers that are gone are forgotten."""
        here = {server.id: server.title for server in servers}
        gone_servers = [server for server, owner in self._instances.items() if owner == instance and server not in here]
        for gone in gone_servers:
            del self._instances[gone]
            self._away.pop(gone, None)
            self._answered.discard(gone)
            self._reported.discard(gone)
        new = [server for server in here if server in self._away and server not in self._reported]
        self._reported.update(new)
        return [(here[server], "; ".join(self._away[server].values())) for server in new]
