"""Conflicting controllers, known by the Leases they hold: while one leads, nothing is written.

A Lease is alive while its holder renews it: it has changed, by our monotonic clock, within its own duration, of which
at most `LONGEST_SECONDS` count. Clocks of different machines are never compared, except once: a Lease that was renewed
long before it was first observed is dead.

    watching ──► free         no other controller holds a Lease, or its holder has stopped renewing it
             └─► held by …    plans are made, nothing is written, and log, readiness and metric report it

How far a Lease reaches depends on its author, because any user who may write Leases in a namespace can create one with
any name. In a namespace where such controllers are installed, or named in full by the configuration, it blocks all
writes. In any other it does when its holder is verified: the holder names a pod there, the pod runs as a service
account, and the API server confirms that this account may change workloads in all namespaces.

    holder ──► running pod of that name ──► its service account ──► may it patch Deployments everywhere?

Writing Leases, or anything else, in one namespace does not grant rights in all of them: a user who could make the
answer a yes could change every workload already. Otherwise the Lease blocks the writes in its own namespace only; the
log says what would make it block all.

Where Leases may not be watched in the whole cluster, those of the known namespaces are read from time to time; where
not even that is allowed nothing can be known, which is logged once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
from prometheus_client import REGISTRY, Gauge

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import FormatError
from steersman.kube.api.errors import Forbidden, KubeError, NotFound
from steersman.kube.api.times import parse_time
from steersman.kube.api.types.authorization import ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec
from steersman.kube.api.types.coordination import Lease
from steersman.kube.api.types.pods import Pod
from steersman.kube.api.types.rbac import PolicyRule
from steersman.operators.reload.compat.shadow import Shadow
from steersman.runtime.manager.operator_bundle import OperatorBundle, Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aiohttp import web
    from prometheus_client import CollectorRegistry

    from steersman.clock import Clock
    from steersman.kube.client.client import Client
    from steersman.operators.reload.api.config import ReloadConfig
    from steersman.operators.reload.controllers.reconciler import SharedContext
    from steersman.runtime.cluster import Cluster
    from steersman.runtime.manager.operator_bundle import RuntimeEnvironment

LEASES: Final[Mapping[str, str]] = {
    "helloworld-controller-leader": "shipshape",
    "stakater-reloader-lock": "Reloader",
    "reloader-leader-election": "Reloader 2",
    "wave": "wave",
}
# The namespaces of their own that their documentation names for those that act everywhere; in `default`, where they may
# be too, any user may work, so the holder is verified there. Shipshape's Lease is where it acts, and nowhere else.
HOMES: Final[Mapping[str, frozenset[str]]] = {
    "helloworld-controller-leader": frozenset(),
    "stakater-reloader-lock": frozenset({"reloader"}),
    "reloader-leader-election": frozenset({"reloader"}),
    "wave": frozenset({"wave", "wave-system"}),
}
RULES: Final = (PolicyRule(api_groups=["coordination.k8s.io"], resources=["leases"], verbs=["list", "watch"]),)
WATCH_SECONDS: Final = 300
SHORT_SECONDS: Final = 1.0  # a watch that ends sooner is a failing server: wait
ASK_SECONDS: Final = 15.0  # between two questions where nothing may be watched
LONGEST_SECONDS: Final = 300.0  # that a Lease is believed without a renewal: usual are 15 to 60
SKEW_SECONDS: Final = 60.0  # by which the clocks of two machines may differ
FRESH_SECONDS: Final = 60.0  # for which an answer about a holder counts: rights come and go
BARRED_SECONDS: Final = 40 * ASK_SECONDS  # until a question that was refused is asked again
MOST_LOGGED: Final = 100  # Leases of other namespaces that the log names: any user can create one

log = structlog.get_logger(__name__)


class LeaseObservation(msgspec.Struct, frozen=True, kw_only=True):
    """A Lease as last seen, and when it was first seen that way."""

    holder: str
    renewed: str
    seconds: float
    changed_at: float  # on the monotonic clock

    def alive(self, now: float) -> bool:
        """Whether a holder renews it."""
        return bool(self.holder) and now - self.changed_at < self.seconds


def observe(lease: Lease, before: LeaseObservation | None, *, now: float, wall: float) -> LeaseObservation:
    """What is known of a Lease after observing it once more."""
    spec = lease.spec
    holder, renewed = spec.holder_identity or "", spec.renew_time or ""
    if before is not None and (before.holder, before.renewed) == (holder, renewed):
        return before
    seconds = min(float(spec.lease_duration_seconds or 15), LONGEST_SECONDS)
    long_ago = before is None and _age(renewed, wall) > seconds + SKEW_SECONDS
    return LeaseObservation(
        holder=holder, renewed=renewed, seconds=seconds, changed_at=now - seconds if long_ago else now
    )


def _age(stamp: str, wall: float) -> float:
    try:
        return wall - parse_time(stamp).timestamp()
    except FormatError:
        return float("inf")


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The verification of a holder."""

    holder: str
    at: float  # on the monotonic clock: when it was asked
    verdict: HolderVerdict | None = None  # None: the server did not say


class LeaseConflictWatch:
    """Follows the Leases of conflicting controllers; `problem` says which one leads, and where."""

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
        """`names`: NAME, in any namespace, or NS/NAME. `own`: our own Lease, which is not a conflict.

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
        self._seen: dict[str, LeaseObservation] = {}
        self._asks = asks and trusted is None
        self._asked: dict[str, _Asked] = {}
        self._barred = float("-inf")  # until when holders cannot be verified
        self._all_listed = asyncio.Event()
        self._blind: dict[tuple[str, tuple[str, ...]], float] = {}  # places that cannot be read for now, since when
        self._logged: str | None = None
        self._logged_local: dict[str, str] = {}  # Leases that hold one namespace, and their holders
        self._unseen = len(self._places())
        self.all_observed = asyncio.Event()  # every Lease has been read once
        if not self._wanted:
            self.all_observed.set()
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
        """Which controller leads in our place, everywhere or in `namespace`; None when none does."""
        for name, observation in sorted(self._seen.items()):
            where = name.partition("/")[0]
            if not observation.alive(self._as_of(name)) or name == self._own:
                continue
            program = LEASES.get(name.partition("/")[2], "another controller")
            if self._reaches_all(name):
                return (
                    f"{observation.holder} leads as {program} (lease {name}{self._whose(name)}), so nothing is written"
                )
            if where == namespace:
                return f"{observation.holder} leads as {program} (lease {name}), so nothing is written in {namespace}"
        return None

    def _reaches_all(self, name: str) -> bool:
        """Whether a Lease, NS/NAME, blocks writes in all namespaces."""
        verdict = self._verdict(name)
        return self._well_placed(name) or (verdict is not None and verdict.everywhere)

    def _verdict(self, name: str) -> HolderVerdict | None:
        """What is known of the present holder of a Lease."""
        asked, seen = self._asked.get(name), self._seen.get(name)
        return asked.verdict if asked is not None and seen is not None and asked.holder == seen.holder else None

    def _whose(self, name: str) -> str:
        verdict = self._verdict(name)
        return f"; {verdict.why}" if verdict is not None and not self._well_placed(name) else ""

    def _well_placed(self, name: str) -> bool:
        """Whether a Lease, NS/NAME, is in a namespace where only trusted users may write."""
        namespace, _, short = name.partition("/")
        if name in self._wanted or namespace in self._own_namespaces or namespace == "kube-system":
            return True
        return namespace in (HOMES.get(short, frozenset()) if self._trusted is None else self._trusted)

    def _local(self) -> dict[str, LeaseObservation]:
        """The living Leases that hold one namespace only."""
        return {
            name: observation
            for name, observation in self._seen.items()
            if name != self._own and observation.alive(self._as_of(name)) and not self._reaches_all(name)
        }

    def _as_of(self, name: str) -> float:
        """Until when a renewal of a Lease, NS/NAME, would have been observed: without reads there are no renewals."""
        where, _, short = name.partition("/")
        blind = [at for (place, names), at in self._blind.items() if short in names and place in ("", where)]
        return min([self._clock.monotonic(), *blind])

    def saw(self, lease: Lease) -> None:
        """A Lease was observed."""
        name = f"{lease.namespace}/{lease.name}"
        now, wall = self._clock.monotonic(), self._clock.time()
        self._seen[name] = observe(lease, self._seen.get(name), now=now, wall=wall)
        self.report()

    def lost(self, name: str) -> None:
        """A Lease, NS/NAME, is gone."""
        self._seen.pop(name, None)
        self.report()

    def report(self) -> None:
        """Log a change of what is known."""
        problem = self.problem()
        if (problem is None) != (self._logged is None):
            if problem is not None:
                log.warning("another controller leads; nothing is written", reason=problem)
            else:
                log.info("no other controller leads; acting")
        self._logged = problem
        local, doubtful = self._local(), set(self._doubtful())
        for name, observation in local.items():
            if name in doubtful:
                continue  # its holder is being verified
            if self._logged_local.get(name) != observation.holder and len(self._logged_local) < MOST_LOGGED:
                verdict = self._verdict(name)
                log.warning(
                    "another controller leads in one namespace; nothing is written there",
                    lease=name,
                    holder=observation.holder,
                    why=verdict.why
                    if verdict is not None
                    else "any user who may write Leases there could have made it",
                    advice=f"if it acts in all namespaces, add {name} to reload.rivals",
                )
                self._logged_local[name] = observation.holder
        for name in [name for name in self._logged_local if name not in local]:
            del self._logged_local[name]

    async def run(self, client: Client) -> None:
        """Follow all Leases until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for namespace, names in self._places():
                tasks.create_task(self._follow(client, namespace, names))
            if self._asks:
                tasks.create_task(self._ask_about_holders(client))

    def _places(self) -> list[tuple[str, tuple[str, ...]]]:
        """Where to watch which names: each name in the whole cluster, or all of them in each namespace."""
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
            self.report()
            if wait:
                await self._clock.sleep(wait)

    async def _watch(self, client: Client, namespace: str, names: tuple[str, ...], first: bool) -> None:
        where, selector = namespace or None, f"metadata.name={names[0]}" if len(names) == 1 else None
        listing = await client.list(Lease, namespace=where, field_selector=selector)
        self._blind.pop((namespace, names), None)
        found = {f"{lease.namespace}/{lease.name}": lease for lease in listing.items if lease.name in names}
        for known in [name for name in self._seen if name.partition("/")[2] in names]:
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
        """Verify the holders of Leases that any user could have created."""
        await self._all_listed.wait()
        while True:
            for name in self._doubtful():
                await self._ask_about(client, name)
            for name in [name for name in self._asked if name not in self._seen]:
                del self._asked[name]
            self.all_observed.set()
            self.report()
            await self._clock.sleep(SHORT_SECONDS)

    def _doubtful(self) -> list[str]:
        """The living Leases whose holders are to be asked about now: each seldom, however often its holder changes."""
        now = self._clock.monotonic()
        if not self._asks or now < self._barred:
            return []
        return [
            name
            for name, observation in self._seen.items()
            if name != self._own
            and observation.alive(self._as_of(name))
            and not self._well_placed(name)
            and HOMES.get(name.partition("/")[2]) != frozenset()  # one that acts where its Lease is
            and self._is_due(name, observation.holder, now)
        ]

    def _is_due(self, name: str, holder: str, now: float) -> bool:
        asked = self._asked.get(name)
        if asked is None:
            return True
        same = asked.holder == holder and asked.verdict is not None
        return now - asked.at >= (FRESH_SECONDS if same else ASK_SECONDS)

    async def _ask_about(self, client: Client, name: str) -> None:
        seen, known = self._seen.get(name), self._asked.get(name)
        if seen is None:
            return  # it vanished while another one was asked about
        holder = seen.holder
        verdict = known.verdict if known is not None and known.holder == holder else None
        try:
            verdict = await verify_holder(client, name.partition("/")[0], holder)
        except Forbidden as error:
            self._barred = self._clock.monotonic() + BARRED_SECONDS
            log.warning("holders of other controllers' leases cannot be verified", lease=name, error=str(error))
        except KubeError as error:
            log.debug("holder of another controller's lease not verified", lease=name, error=str(error))
        self._asked[name] = _Asked(holder=holder, at=self._clock.monotonic(), verdict=verdict)

    def _once(self) -> None:
        self._unseen -= 1
        if self._unseen <= 0:
            self._all_listed.set()
            if not self._asks:
                self.all_observed.set()


HOLDER_RULES: Final = (
    PolicyRule(api_groups=[""], resources=["pods"], verbs=["list"]),
    PolicyRule(api_groups=["authorization.k8s.io"], resources=["subjectaccessreviews"], verbs=["create"]),
)
_RESTART_VERBS: Final = ("patch", "update")  # either is enough to restart
_OVER: Final = ("Succeeded", "Failed")


class HolderVerdict(msgspec.Struct, frozen=True):
    """How far the rights of a holder reach, and why."""

    everywhere: bool
    why: str


async def verify_holder(client: Client, namespace: str, holder: str) -> HolderVerdict:
    """How far the rights of the holder of a Lease in `namespace` reach; KubeError when that is unknown."""
    pod = await _pod(client, namespace, holder)
    if pod is None:
        return HolderVerdict(everywhere=False, why=f"no pod in {namespace} has the name of its holder")
    account = pod.spec.service_account_name or "default"
    for verb in _RESTART_VERBS:
        question = SubjectAccessReviewSpec(
            user=f"system:serviceaccount:{namespace}:{account}",
            groups=["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
            resource_attributes=ResourceAttributes(verb=verb, group="apps", resource="deployments"),
        )
        if (await client.create(SubjectAccessReview(spec=question))).status.allowed:
            return HolderVerdict(
                everywhere=True, why=f"serviceaccount/{account} may {verb} deployments in all namespaces"
            )
    return HolderVerdict(everywhere=False, why=f"serviceaccount/{account} may not change deployments in all namespaces")


async def _pod(client: Client, namespace: str, holder: str) -> Pod | None:
    """The pod that a holder names: by its name, or as controller-runtime does, with a random part behind it."""
    for name in dict.fromkeys((holder, holder.partition("_")[0])):
        if not name or "," in name or "=" in name:
            continue
        listing = await client.list(Pod, namespace=namespace, field_selector=f"metadata.name={name}")
        for pod in listing.items:
            if pod.status.phase not in _OVER and not pod.deleting:
                return pod
    return None


REPORT = "/api/reload/shadow"


def coexistence_bundle(
    config: ReloadConfig,
    around: RuntimeEnvironment,
    shared: SharedContext,
    *,
    registry: CollectorRegistry | None = None,
) -> OperatorBundle:
    """Block writes while another controller leads or, with --shadow, compare with it."""
    if shared.guard.shadow:
        shadow = Shadow(registry=registry)
        shared.listeners.append(shadow)

        async def sweep(_cluster: Cluster) -> None:
            await shadow.run()

        return OperatorBundle(
            controllers=(),
            tasks=(Task(name="shadow", run=sweep, leader_only=False),),
            routes=lambda _cluster: _routes(shadow),
        )
    if config.rivals == ():
        return OperatorBundle(controllers=())
    within = (*(around.namespaces or ()), *config.namespaces)
    conflicts = LeaseConflictWatch(
        LEASES if config.rivals is None else config.rivals,
        own=around.lease,
        within=within,
        asks=config.pods and not within,
        home=(around.own_namespace,),
        trusted=config.rival_namespaces,
        registry=registry,
        clock=around.clock,
    )
    shared.guard.block_while(conflicts.problem, after=conflicts.all_observed)

    async def watch(cluster: Cluster) -> None:
        await conflicts.run(cluster.client)

    return OperatorBundle(
        controllers=(),
        tasks=(Task(name="rivals", run=watch, leader_only=False),),
        checks={"rivals": conflicts.problem},
    )


def _routes(shadow: Shadow) -> Sequence[web.RouteDef]:
    from aiohttp import web  # an HTTP server is a lot to load for those who need none

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(shadow.report()), content_type="application/json")

    return [web.get(REPORT, answer)]
