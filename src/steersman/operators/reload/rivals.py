"""Rivals: other controllers of the same kind, known by the Leases they hold. While one leads, nothing is written there.

A Lease is alive while its holder renews it: it has changed, as seen from here, within its own duration. Nobody compares
clocks of different machines, except once: a Lease that was renewed long before it was first seen is a dead one.

    looking ──► free            nobody holds any of them, or who did has stopped renewing
            └─► held by …       plans are made, nothing is written, and log, readiness and metric say so

How far a Lease reaches depends on whose it is, because whoever may write Leases in a namespace can make one with any
name. In a namespace where rivals rightly are, or named in full by the configuration, it holds all writes. In any other
it does when its holder is a pod whose service account may change workloads everywhere (`holders` asks the server). Else
it holds the writes in that namespace, as far as its author's rights go; the log says what would make it hold all.

Where Leases may not be read in the whole cluster, those of the namespaces at hand are asked for from time to time;
where not even that is allowed nothing can be known, which is said once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
from prometheus_client import REGISTRY, Gauge

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import FormatError
from steersman.kube.errors import Forbidden, KubeError, NotFound
from steersman.kube.times import parse_time
from steersman.kube.types.coordination import Lease
from steersman.kube.types.rbac import PolicyRule
from steersman.operators.reload.holders import Verdict, reach_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client import CollectorRegistry

    from steersman.clock import Clock
    from steersman.kube.client import Client

__all__ = ["LEASES", "RULES", "RivalWatch", "Sighting"]

LEASES: Final[Mapping[str, str]] = {
    "helloworld-controller-leader": "shipshape",
    "stakater-reloader-lock": "Reloader",
    "reloader-leader-election": "Reloader 2",
    "wave": "wave",
}
# Where their documentation puts those that act in all namespaces. Shipshape's Lease is where it acts, and nowhere else.
HOMES: Final[Mapping[str, frozenset[str]]] = {
    "helloworld-controller-leader": frozenset(),
    "stakater-reloader-lock": frozenset({"default", "reloader"}),
    "reloader-leader-election": frozenset({"default", "reloader"}),
    "wave": frozenset({"default", "wave", "wave-system"}),
}
RULES: Final = (PolicyRule(api_groups=["coordination.k8s.io"], resources=["leases"], verbs=["list", "watch"]),)
WATCH_SECONDS: Final = 300
SHORT_SECONDS: Final = 1.0  # a watch that ends sooner is a server in trouble: let it breathe
ASK_SECONDS: Final = 15.0  # between two questions where nothing may be watched
SKEW_SECONDS: Final = 60.0  # by which the clocks of two machines may differ
FRESH_SECONDS: Final = 60.0  # for which an answer about a holder counts: rights come and go
BARRED_SECONDS: Final = 40 * ASK_SECONDS  # until a question that was refused is asked again
TOLD: Final = 100  # Leases of other namespaces that the log names: anybody can make one

log = structlog.get_logger(__name__)


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """A Lease as last seen, and when it was first seen that way."""

    holder: str
    renewed: str
    seconds: float
    changed_at: float  # on the monotonic clock

    def alive(self, now: float) -> bool:
        """Whether somebody holds and renews it."""
        return bool(self.holder) and now - self.changed_at < self.seconds


def sight(lease: Lease, before: Sighting | None, *, now: float, wall: float) -> Sighting:
    """What is known of a Lease after seeing it once more."""
    spec = lease.spec
    holder, renewed = spec.holder_identity or "", spec.renew_time or ""
    if before is not None and (before.holder, before.renewed) == (holder, renewed):
        return before
    seconds = float(spec.lease_duration_seconds or 15)
    long_ago = before is None and _age(renewed, wall) > seconds + SKEW_SECONDS
    return Sighting(holder=holder, renewed=renewed, seconds=seconds, changed_at=now - seconds if long_ago else now)


def _age(stamp: str, wall: float) -> float:
    try:
        return wall - parse_time(stamp).timestamp()
    except FormatError:
        return float("inf")


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a holder."""

    holder: str
    at: float  # on the monotonic clock: when it was asked
    verdict: Verdict | None = None  # None: the server did not say


class RivalWatch:
    """Follows the Leases of rivals; `problem` says who leads, and where."""

    def __init__(
        self,
        names: Iterable[str] = LEASES,
        *,
        own: str | None = None,
        within: Iterable[str] = (),
        home: Iterable[str] = (),
        trusted: Iterable[str] | None = None,
        asks: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """`names`: NAME, in any namespace, or NS/NAME. `own`: our own Lease, which is no rival's.

        `within`: only in these namespaces; none: in all. `home`: our own, where to ask when those may not be watched.
        `trusted`: the namespaces, besides our own, where a Lease holds all writes; None: where the originals live.
        `asks`: ask the server about the holders of those elsewhere.
        """
        self._wanted = [name for name in dict.fromkeys(names) if name]
        self._own = own
        self._within = tuple(dict.fromkeys(within))
        self._trusted = None if trusted is None else frozenset(trusted)
        self._own_namespaces = frozenset(filter(None, home))
        self._home = tuple(dict.fromkeys(filter(None, (*home, *self._within))))
        self._clock = clock
        self._seen: dict[str, Sighting] = {}
        self._asks = asks and trusted is None
        self._asked: dict[str, _Asked] = {}
        self._barred = float("-inf")  # until when questions are of no use
        self._all_listed = asyncio.Event()
        self._blind: dict[tuple[str, tuple[str, ...]], float] = {}  # places that cannot be read for now, since when
        self._told: str | None = None
        self._told_of: dict[str, str] = {}  # Leases that hold one namespace, and their holders
        self._unseen = len(self._places())
        self.looked = asyncio.Event()  # every Lease has been asked for once
        if not self._wanted:
            self.looked.set()
        where = REGISTRY if registry is None else registry
        gauge = Gauge(
            "steersman_reload_rival", "1 while another controller leads and nothing is written.", registry=where
        )
        gauge.set_function(lambda: float(self.problem() is not None))
        local = Gauge(
            "steersman_reload_rival_namespaces",
            "Namespaces in which nothing is written because a Lease there says that another controller leads.",
            registry=where,
        )
        local.set_function(lambda: float(len(self._local())))

    def problem(self, namespace: str | None = None) -> str | None:
        """Who leads in our place, everywhere or in `namespace`; None when nobody does."""
        for name, sighting in sorted(self._seen.items()):
            where = name.partition("/")[0]
            if not sighting.alive(self._as_of(name)) or name == self._own:
                continue
            program = LEASES.get(name.partition("/")[2], "another controller")
            if self._reaches_all(name):
                return f"{sighting.holder} leads as {program} (lease {name}{self._whose(name)}), so nothing is written"
            if where == namespace:
                return f"{sighting.holder} leads as {program} (lease {name}), so nothing is written in {namespace}"
        return None

    def _reaches_all(self, name: str) -> bool:
        """Whether a Lease, NS/NAME, is somebody's whom all others have to trust."""
        verdict = self._verdict(name)
        return self._well_placed(name) or (verdict is not None and verdict.everywhere)

    def _verdict(self, name: str) -> Verdict | None:
        """What is known of who holds a Lease now."""
        asked, seen = self._asked.get(name), self._seen.get(name)
        return asked.verdict if asked is not None and seen is not None and asked.holder == seen.holder else None

    def _whose(self, name: str) -> str:
        verdict = self._verdict(name)
        return f"; {verdict.why}" if verdict is not None and not self._well_placed(name) else ""

    def _well_placed(self, name: str) -> bool:
        """Whether a Lease, NS/NAME, is where only those may write whom all others trust."""
        namespace, _, short = name.partition("/")
        if name in self._wanted or namespace in self._own_namespaces or namespace == "kube-system":
            return True
        return namespace in (HOMES.get(short, frozenset()) if self._trusted is None else self._trusted)

    def _local(self) -> dict[str, Sighting]:
        """The living Leases that hold one namespace only."""
        return {
            name: sighting
            for name, sighting in self._seen.items()
            if name != self._own and sighting.alive(self._as_of(name)) and not self._reaches_all(name)
        }

    def _as_of(self, name: str) -> float:
        """Until when a Lease, NS/NAME, would have been seen to change: who cannot look sees nobody renew."""
        where, _, short = name.partition("/")
        blind = [at for (place, names), at in self._blind.items() if short in names and place in ("", where)]
        return min([self._clock.monotonic(), *blind])

    def saw(self, lease: Lease) -> None:
        """A Lease is like this."""
        name = f"{lease.namespace}/{lease.name}"
        now, wall = self._clock.monotonic(), self._clock.time()
        self._seen[name] = sight(lease, self._seen.get(name), now=now, wall=wall)
        self.tell()

    def lost(self, name: str) -> None:
        """A Lease, NS/NAME, is gone."""
        self._seen.pop(name, None)
        self.tell()

    def tell(self) -> None:
        """Say it in the log, when it is news."""
        problem = self.problem()
        if (problem is None) != (self._told is None):
            if problem is not None:
                log.warning("only watching", reason=problem)
            else:
                log.info("no other controller leads; acting")
        self._told = problem
        local, doubtful = self._local(), set(self._doubtful())
        for name, sighting in local.items():
            if name in doubtful:
                continue  # whose it is will be known in a moment
            if self._told_of.get(name) != sighting.holder and len(self._told_of) < TOLD:
                verdict = self._verdict(name)
                log.warning(
                    "only watching in one namespace",
                    lease=name,
                    holder=sighting.holder,
                    why=verdict.why if verdict is not None else "whoever may write Leases there could have made it",
                    advice=f"if it acts in all namespaces, add {name} to reload.rivals",
                )
                self._told_of[name] = sighting.holder
        for name in [one for one in self._told_of if one not in local]:
            del self._told_of[name]

    async def run(self, client: Client) -> None:
        """Follow all of them for ever."""
        async with asyncio.TaskGroup() as tasks:
            for namespace, names in self._places():
                tasks.create_task(self._follow(client, namespace, names))
            if self._asks:
                tasks.create_task(self._ask_about_holders(client))

    def _places(self) -> list[tuple[str, tuple[str, ...]]]:
        """Where to look for which names: each name in the whole cluster, or all of them in each namespace."""
        anywhere = tuple(name for name in self._wanted if "/" not in name)
        places: list[tuple[str, tuple[str, ...]]] = [("", (name,)) for name in anywhere]
        if self._within:
            places = [(namespace, anywhere) for namespace in self._within if anywhere]
        for name in self._wanted:
            if "/" in name:
                namespace, _, short = name.partition("/")
                places.append((namespace, (short,)))
        return places

    async def _follow(self, client: Client, namespace: str, names: tuple[str, ...]) -> None:
        first, refused = True, False
        while True:
            wait, began, answered = ASK_SECONDS, self._clock.monotonic(), refused
            try:
                if refused:
                    await self._ask(client, namespace, names)
                else:
                    await self._watch(client, namespace, names, first)
                    wait = max(0.0, began + SHORT_SECONDS - self._clock.monotonic())
                    first = False
            except Forbidden as error:
                if refused:
                    self._blind.pop((namespace, names), None)  # nothing can be known
                    log.warning(
                        "leases may not be read: other controllers go unnoticed", leases=names, error=str(error)
                    )
                    wait = 40 * ASK_SECONDS
                else:
                    refused, wait = True, 0.0
            except KubeError as error:
                answered = False
                self._blind.setdefault((namespace, names), self._clock.monotonic())
                log.debug("leases of other controllers not read", leases=names, error=str(error))
            if first and answered:
                first = False
                self._once()
            self.tell()
            if wait:
                await self._clock.sleep(wait)

    async def _watch(self, client: Client, namespace: str, names: tuple[str, ...], first: bool) -> None:
        where, selector = namespace or None, f"metadata.name={names[0]}" if len(names) == 1 else None
        listing = await client.list(Lease, namespace=where, field_selector=selector)
        self._blind.pop((namespace, names), None)
        found = {f"{lease.namespace}/{lease.name}": lease for lease in listing.items if lease.name in names}
        for known in [one for one in self._seen if one.partition("/")[2] in names]:
            if known not in found and namespace in ("", known.partition("/")[0]):
                self.lost(known)
        for lease in found.values():
            self.saw(lease)
        if first:
            self._once()
        async with client.watch(
            Lease,
            namespace=where,
            field_selector=selector,
            resource_version=listing.resource_version,
            timeout_seconds=WATCH_SECONDS,
        ) as events:
            async for event in events:
                if not isinstance(event.object, Lease) or event.object.name not in names:
                    continue
                if event.type in ("ADDED", "MODIFIED"):
                    self.saw(event.object)
                elif event.type == "DELETED":
                    self.lost(f"{event.object.namespace}/{event.object.name}")

    async def _ask(self, client: Client, namespace: str, names: tuple[str, ...]) -> None:
        for where in (namespace,) if namespace else self._home:
            for name in names:
                try:
                    self.saw(await client.get(Lease, name, namespace=where))
                except NotFound:
                    self.lost(f"{where}/{name}")
        self._blind.pop((namespace, names), None)

    async def _ask_about_holders(self, client: Client) -> None:
        """Find out whose the Leases are that anybody could have made."""
        await self._all_listed.wait()
        while True:
            for name in self._doubtful():
                await self._ask_about(client, name)
            for name in [one for one in self._asked if one not in self._seen]:
                del self._asked[name]
            self.looked.set()
            self.tell()
            await self._clock.sleep(SHORT_SECONDS)

    def _doubtful(self) -> list[str]:
        """The living Leases whose holders are to be asked about now: each seldom, however often its holder changes."""
        now = self._clock.monotonic()
        if not self._asks or now < self._barred:
            return []
        return [
            name
            for name, sighting in self._seen.items()
            if name != self._own
            and sighting.alive(self._as_of(name))
            and not self._well_placed(name)
            and HOMES.get(name.partition("/")[2]) != frozenset()  # one that acts where its Lease is
            and self._is_due(name, sighting.holder, now)
        ]

    def _is_due(self, name: str, holder: str, now: float) -> bool:
        asked = self._asked.get(name)
        if asked is None:
            return True
        same = asked.holder == holder and asked.verdict is not None
        return now - asked.at >= (FRESH_SECONDS if same else ASK_SECONDS)

    async def _ask_about(self, client: Client, name: str) -> None:
        known, holder = self._asked.get(name), self._seen[name].holder
        verdict = known.verdict if known is not None and known.holder == holder else None
        try:
            verdict = await reach_of(client, name.partition("/")[0], holder)
        except Forbidden as error:
            self._barred = self._clock.monotonic() + BARRED_SECONDS
            log.warning("it cannot be asked how far other controllers reach", lease=name, error=str(error))
        except KubeError as error:
            log.debug("it is not known how far another controller reaches", lease=name, error=str(error))
        self._asked[name] = _Asked(holder=holder, at=self._clock.monotonic(), verdict=verdict)

    def _once(self) -> None:
        self._unseen -= 1
        if self._unseen <= 0:
            self._all_listed.set()
            if not self._asks:
                self.looked.set()
