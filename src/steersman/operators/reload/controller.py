"""The controllers: one per kind of workload, each for the workloads of that kind.

A look reads one snapshot and makes a plan; the plan is carried out; people are told. What waits is looked at again when
it is due. Nothing is read from the server to decide: a change costs one patch per workload it restarts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from steersman.cache.identity import ref_of
from steersman.clock import SYSTEM_CLOCK
from steersman.kube.errors import BadRequest, Conflict, Forbidden, Invalid, KubeError, NotFound
from steersman.operators import Operator
from steersman.operators.reload.apply import carry_out, describe
from steersman.operators.reload.dialect import Marks
from steersman.operators.reload.dialects import dialects_for
from steersman.operators.reload.digest import ConfigMapSource, SecretSource, source_transform
from steersman.operators.reload.flapping import diagnose
from steersman.operators.reload.fleet import Fleet
from steersman.operators.reload.following import Follower
from steersman.operators.reload.gates import Moment
from steersman.operators.reload.kinds import BUILT_IN, RECREATE, KindRule, kind_rules, kind_words
from steersman.operators.reload.ledger import Ledger
from steersman.operators.reload.look import DEPLOYMENT, NamespaceSettings, interests_in, look_at
from steersman.operators.reload.metrics import ReloadMetrics
from steersman.operators.reload.neighbours import beside_others
from steersman.operators.reload.oversight import Oversight
from steersman.operators.reload.plan import APPLYING, Action
from steersman.operators.reload.podkeeper import CALL_AGAIN_SECONDS, PodKeeper
from steersman.operators.reload.policies import ClusterReloadPolicy, ReloadPolicy
from steersman.operators.reload.policybook import PolicyBook
from steersman.operators.reload.policystatus import policy_controllers
from steersman.operators.reload.providers import BY_CLASS, ProviderStatus, by_class, kept_status
from steersman.operators.reload.reach import Reach
from steersman.operators.reload.recreate import begin, carry_on, intent_of
from steersman.operators.reload.rights import rules as least_rights
from steersman.operators.reload.state import write_state
from steersman.operators.reload.tables import tables_of
from steersman.operators.reload.telling import REASONS, note_on, refusal_delay
from steersman.operators.reload.totals import read_totals
from steersman.operators.reload.types import (
    APPLIED,
    NATIVE_ANNOTATIONS,
    Options,
    ReloadConfig,
    SourceKind,
    WorkloadId,
)
from steersman.operators.reload.viewing import view_of
from steersman.operators.reload.workloads import Workload, workload_class, workload_id, workload_transform
from steersman.runtime.controller import Controller
from steersman.runtime.parts import Parts
from steersman.runtime.predicates import Predicate, annotation, generation, labels
from steersman.runtime.result import Result, done, requeue
from steersman.runtime.sources import Trigger

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client import CollectorRegistry

    from steersman.kube.resources import Kind, ObjectRef
    from steersman.operators.reload.dialect import Dialect
    from steersman.operators.reload.digest import Source
    from steersman.operators.reload.ledger import Observed
    from steersman.operators.reload.look import Look
    from steersman.runtime.context import Context
    from steersman.runtime.parts import Surroundings

__all__ = ["OPERATOR", "WorkloadKeeper", "controllers", "operator"]

NO_HELM_RELEASES: Final = "type!=helm.sh/release.v1"  # the largest Secrets of a cluster, and no pod reads them
CONCURRENCY: Final = 64  # patches in flight: a source that hundreds of workloads use should not take minutes
REFUSED: Final = (Invalid, Forbidden, BadRequest)  # trying again soon is of no use
UNREAD_SECONDS: Final = 30.0  # until a look that could not see its sources comes again by itself
HELD_SECONDS: Final = 5.0  # between two looks at what we would do if nobody else did


def operator(
    config: ReloadConfig | None = None,
    *,
    served: Iterable[Kind] | None = None,
    dialects: Sequence[Dialect] | None = None,
    registry: CollectorRegistry | None = None,
    oversight: Oversight | None = None,
    fleet: Fleet | None = None,
) -> list[Controller]:
    """The controllers that the section `reload:` asks for; `served` are the kinds the cluster has.

    `dialects` stand in the place of those that the section names.
    """
    options = (config or ReloadConfig()).options()
    spoken = dialects_for(options) if dialects is None else dialects
    return controllers(options, served=served, dialects=spoken, registry=registry, oversight=oversight, fleet=fleet)


def controllers(
    options: Options,
    *,
    served: Iterable[Kind] | None = None,
    dialects: Sequence[Dialect] = (),
    registry: CollectorRegistry | None = None,
    oversight: Oversight | None = None,
    fleet: Fleet | None = None,
) -> list[Controller]:
    """One controller per kind of workload. Where `served` is known, kinds that it lacks are taken up when they come."""
    rules = kind_rules(options.kinds, served, later=True)
    metrics = ReloadMetrics((rule.kind.kind for rule in rules), registry)
    fleet = fleet or Fleet()
    metrics.under_way.set_function(lambda: sum(1 for _ in fleet.rollouts.open()))
    policies = served if options.policies else None
    book = PolicyBook(
        policies,
        namespaced_only=options.namespaces is not None,
        later=True,
        words=kind_words(options.kinds),
    )
    mounted = options.watch_secrets and served is not None
    keepers = [
        WorkloadKeeper(rule, options, dialects, metrics, oversight, fleet, book, providers=mounted) for rule in rules
    ]
    return [*map(_controller, keepers), *policy_controllers(book, keepers)]


def kept_annotations(dialects: Iterable[Dialect]) -> frozenset[str]:
    """The annotations that mean something to us or to a dialect; no other is kept in memory."""
    return NATIVE_ANNOTATIONS.union(*(dialect.annotations for dialect in dialects))


def _controller(keeper: WorkloadKeeper) -> Controller:
    rule, options, ledger = keeper.rule, keeper.options, keeper.ledger
    kept = kept_annotations(keeper.dialects)
    hashes = tuple(one for dialect in keeper.dialects for one in dialect.hashes)
    where: dict[str, Any] = {"namespaces": options.namespaces}
    sources = where | {
        "transform": source_transform(kept, hashes, options.features.compare),
        "when": Predicate("data", ledger.source_changed),
    }
    sources |= {"label_selector": options.source_selector}

    made = (
        Controller(workload_class(rule.kind), keeper.reconcile, f"reload-{rule.kind.plural}")
        .select(**where, transform=keeper.transform, optional=not rule.installed)
        .when(Predicate("what it uses", keeper.workload_changed))
        .triggered_by(keeper.trigger)
        .gone(keeper.gone)
        .configured(concurrency=CONCURRENCY)
    )
    if options.watch_configmaps:
        by_name = options.configmaps_by_name
        made = made.watches(ConfigMapSource, to=keeper.users_of, by_name=by_name, **sources)
    if options.watch_secrets:
        sources |= {"field_selector": NO_HELM_RELEASES, "by_name": options.secrets_by_name}
        made = made.watches(SecretSource, to=keeper.users_of, **sources)
    if SourceKind.PROVIDER_CLASS in keeper.source_kinds:
        data = Predicate("versions", ledger.source_changed)
        rows: dict[str, Any] = {**where, "when": data, "transform": kept_status, "optional": True}
        made = made.watches(ProviderStatus, to=keeper.users_of, **rows)
        made = made.index(ProviderStatus, BY_CLASS, by_class)
    if options.namespaces is None and options.watch_namespaces:
        asked = annotation(*NATIVE_ANNOTATIONS)
        made = made.watches(
            NamespaceSettings,
            to=keeper.members_of,
            when=asked if options.namespace_selector is None else asked | labels,
        )
    for kind in keeper.policies.kinds:
        made = made.watches(
            kind,
            to=keeper.members_of if kind.KIND.namespaced else keeper.everyone,
            when=generation,
            namespaces=options.namespaces if kind.KIND.namespaced else None,
            optional=True,
        )
    if rule.kind.kind == "Rollout":
        followed = workload_transform(BUILT_IN[0], kept, kind_words(options.kinds))
        made = made.watches(DEPLOYMENT, to=keeper.users_of, **where, transform=followed)
    return made


def parts(
    config: ReloadConfig | None,
    around: Surroundings,
    *,
    dialects: Sequence[Dialect] | None = None,
    oversight: Oversight | None = None,
    registry: CollectorRegistry | None = None,
) -> Parts:
    """Everything that runs for the section `reload:`; profiles bring dialects and an oversight of their own."""
    config, fleet = config or ReloadConfig(), Fleet()
    oversight = oversight or Oversight(pretends=around.shadow)
    made = operator(
        config, served=around.served, dialects=dialects, registry=registry, oversight=oversight, fleet=fleet
    )
    company = beside_others(config, around, oversight, registry=registry)
    from steersman.operators.reload.attendants import attend  # they use what is made here

    attendants = attend(config.options(), around, oversight, fleet, registry=registry)
    return Parts(
        controllers=made,
        tasks=(*company.tasks, *attendants),
        checks=company.checks,
        routes=company.routes,
        tables=lambda _cluster: tables_of(view_of(fleet, SYSTEM_CLOCK.time())),
    )


OPERATOR: Final = Operator(
    name="reload",
    summary="restarts workloads when the ConfigMaps and Secrets they use change",
    config=ReloadConfig,
    check=ReloadConfig.options,
    parts=parts,
    rules=least_rights,
    kinds=(ReloadPolicy, ClusterReloadPolicy),
)


class WorkloadKeeper:
    """Keeps the workloads of one kind at what their sources say."""

    def __init__(
        self,
        rule: KindRule,
        options: Options,
        dialects: Sequence[Dialect] = (),
        metrics: ReloadMetrics | None = None,
        oversight: Oversight | None = None,
        fleet: Fleet | None = None,
        policies: PolicyBook | None = None,
        *,
        providers: bool = False,
    ) -> None:
        self.rule = rule
        self.options = options
        self.dialects = tuple(dialects)
        self.reach = Reach(rule.kind.plural, options.names)
        self.ledger = Ledger(sees=self.reach.sees)
        self.metrics = metrics
        self.fleet = fleet or Fleet()
        self.follower = Follower(self.fleet, metrics, ask_pods=options.ask_pods)
        self.policies = policies or PolicyBook()
        self.pods = PodKeeper()
        self.trigger = Trigger()
        self.fleet.wakers[rule.kind.kind] = self.trigger.fire
        self.transform = workload_transform(rule, kept_annotations(dialects), kind_words(options.kinds))
        self._target = workload_class(rule.kind)
        self.oversight = oversight or Oversight()
        self.oversight.ledgers[f"reload-{rule.kind.plural}"] = self.ledger
        watched = {
            SourceKind.CONFIGMAP: options.watch_configmaps,
            SourceKind.SECRET: options.watch_secrets,
            SourceKind.PROVIDER_CLASS: providers,
        }
        self.source_kinds = frozenset(kind for kind, wanted in watched.items() if wanted)
        if metrics is not None:
            metrics.watch(rule.kind.kind, self.ledger)

    # -- whose keys a change touches ---------------------------------------------------------------------------------

    def workload_changed(self, old: Workload | None, new: Workload | None) -> bool:
        """Whether a change of a workload matters: to its own look, or because its rollout ended."""
        matters = self.ledger.workload_changed(old, new)
        if new is None:
            return matters
        fresh = old is None or old.metadata.uid != new.metadata.uid
        return self.fleet.saw(workload_id(new), new, fresh=fresh) or matters

    def users_of(self, obj: Source | Workload) -> Iterable[ObjectRef]:
        """The workloads whose last look asked for this object."""
        users = self.ledger.interested_in(interests_in(obj))
        self.fleet.touched(WorkloadId(self.rule.kind.kind, user.namespace, user.name) for user in users)
        return users

    def members_of(self, obj: NamespaceSettings | ReloadPolicy, cache: Any) -> Iterable[ObjectRef]:
        """All workloads of a namespace, given itself or a policy in it."""
        return [ref_of(workload) for workload in cache[self._target].list(namespace=obj.namespace or obj.name)]

    def everyone(self, _policy: ClusterReloadPolicy, cache: Any) -> Iterable[ObjectRef]:
        """All workloads."""
        return [ref_of(workload) for workload in cache[self._target].list()]

    # -- a look, and what follows from it ------------------------------------------------------------------------------

    async def reconcile(self, ctx: Context, workload: Workload) -> Result:
        """Look, plan, carry out, tell."""
        await self.oversight.opened()
        held = self.oversight.held(workload.namespace)
        if self.rule.restart == RECREATE:
            intent = intent_of(workload)
            if intent is not None:
                return requeue(after=HELD_SECONDS) if held else await carry_on(ctx, workload, intent)
            if workload.controller is not None:
                return done  # a CronJob's own, which ends with what it began with
        self.reach.connect(ctx.cache, self.source_kinds, self._wake)
        self.ledger.live = True
        now = Moment(wall=ctx.clock.time(), tick=ctx.clock.monotonic())
        look = self.look(workload, ctx.cache, now)
        self.ledger.set_interests(workload.ref, look.interests)
        unread = self.reach.read(workload.ref, look.interests)  # before anything is waited for: it is about now
        if unread:
            return await self._blind(ctx, look, () if held else unread.problems)
        if APPLIED not in workload.annotations:
            whole = await read_totals(ctx.client, workload, self.dialects)
            if whole is not workload:
                workload, look = whole, self.look(whole, ctx.cache, now)
        if self.oversight.judge is not None:
            look = await self.oversight.judge.judged(look, now.wall)
        self.follower.looked(look, now, acts=not held)
        return self._only_watch(ctx, look) if held else await self._act(ctx, look, workload)

    async def _act(self, ctx: Context, look: Look, workload: Workload) -> Result:
        """Carry out what the look found, and tell."""
        self._remember(look)
        try:
            written = await self._write(ctx, look, workload)
        except NotFound:
            await self.gone(ctx, workload.ref)
            return done
        except Conflict:
            self._count("conflicts")
            return requeue()
        except KubeError as error:
            self.oversight.failed(look, error)
            if not isinstance(error, REFUSED):
                raise
            return self._refused(ctx, look, error)
        if written is None:
            return requeue(after=CALL_AGAIN_SECONDS)
        await self._carried_out(ctx, look, written)
        soon = await self.pods.carry_on(ctx, look)
        return _again(look.plan.due, soon, await self.follower.follow(ctx, look), now=ctx.clock.time())

    def look(self, workload: Workload, cache: Any, now: Moment) -> Look:
        """What the snapshots in `cache` say about `workload`."""
        return look_at(
            workload,
            cache,
            options=self.oversight.hurried(self.options),
            ledger=self.ledger,
            now=now,
            kinds=self.source_kinds,
            dialects=self.dialects,
            company=self.fleet,
            policies=self.policies,
            namespaces=self.options.namespaces is None and self.options.watch_namespaces,
        )

    def marks(self, look: Look, now: float) -> Marks:
        """What the originals of the dialects would have written; nothing on a workload that takes no part."""
        if not look.edges.tracked:
            return Marks()
        restart_at = now if look.plan.action is Action.RESTART else None
        waits = look.plan.action in (Action.RESTART, Action.WAIT)
        changed = {change.source for change in look.plan.changes} if waits else set()
        all_of_them = [
            dialect.marks(look.workload, look.edges.tracked, look.sources, changed=changed, restart_at=restart_at)
            for dialect in self.dialects
        ]
        return Marks(
            metadata={name: value for marks in all_of_them for name, value in marks.metadata.items()},
            template={name: value for marks in all_of_them for name, value in marks.template.items()},
            by_time=any(marks.by_time for marks in all_of_them),
            variables=tuple(variable for marks in all_of_them for variable in marks.variables),
        )

    async def gone(self, _ctx: Context, key: ObjectRef) -> None:
        """The workload no longer exists."""
        self.ledger.forget(key)
        self.reach.gone(key)
        self.fleet.gone(WorkloadId(self.rule.kind.kind, key.namespace, key.name))

    # -- the machinery -------------------------------------------------------------------------------------------------

    async def _write(self, ctx: Context, look: Look, workload: Workload) -> bool | None:
        """Carry the plan out; returns whether there was anything to write, None when pods did not take a call."""
        restarts = look.plan.action is Action.RESTART
        if look.plan.action is Action.CALL and not await self.pods.call(ctx, look):
            return None
        try:
            seen = None
            if self.rule.restart == RECREATE and restarts:
                await begin(ctx, workload, look.plan)
            else:
                if restarts:
                    look = replace(look, workload=await read_totals(ctx.client, look.workload, self.dialects))
                marks = self.marks(look, ctx.clock.time())
                seen = await carry_out(ctx, self.rule, workload, look.plan, marks=marks)
        except BaseException:
            self.follower.not_made(look)
            raise
        if restarts:  # the cache shows the answer as it keeps it
            self.follower.made(look, None if seen is None else ctx.cache[self._target].get(workload.ref))
        return restarts or seen is not None

    def _wake(self, names: Iterable[str]) -> None:
        for user in self.ledger.interested_in(names):
            self.trigger.fire(user)

    def _remember(self, look: Look) -> None:
        if look.plan.state is not None:  # before it is written: the watch may be faster than the answer
            self.ledger.wrote(look.workload.ref, write_state(look.plan.state))
        if look.edges.tracked:
            self.ledger.keep(look.workload.ref, look.plan.observed)
        else:
            self.ledger.leave(look.workload.ref)

    async def _blind(self, ctx: Context, look: Look, problems: Sequence[str]) -> Result:
        """Not everything could be seen that matters: conclude nothing, and come again when it can."""
        workload = look.workload
        self.fleet.looked(workload_id(workload), workload.ref, None)
        if problems:
            news = [("SourceUnreadable", problem) for problem in problems]
            self.ledger.keep(workload.ref, await self._tell(ctx, look, news, self.ledger.observed(workload)))
        return requeue(after=UNREAD_SECONDS)

    def _only_watch(self, ctx: Context, look: Look) -> Result:
        """Somebody else acts: decide, write nothing, and ask again whether that is still so."""
        plan, ref = look.plan, look.workload.ref
        if not look.edges.tracked:
            self.ledger.leave(ref)
        else:
            self.ledger.keep(ref, self.oversight.pretended(plan))
        self.oversight.looked(look, written=False)
        writes = plan.action in (Action.SEED, Action.FORGET, *APPLYING)
        return requeue(after=HELD_SECONDS) if writes else _again(plan.due, now=ctx.clock.time())

    async def _carried_out(self, ctx: Context, look: Look, written: bool) -> None:
        plan, observed = look.plan, look.plan.observed
        self.oversight.looked(look, written=written)
        if self.metrics is not None:
            self.metrics.looked(self.rule.kind.kind, plan, written=written)
        if plan.action is Action.RESTART:
            told = describe(plan.changes, look.workload.namespace)
            note = note_on(look.workload)
            ctx.log.info("workload restarted", workload=look.workload.title, sources=told)
            ctx.event(look.workload, "Restarted", f"restarted for {told}{note}")
        if plan.action in APPLYING:
            observed = replace(observed, pending={}, refusals=0)
        if plan.action is Action.TRACK:
            told = describe(plan.changes, look.workload.namespace)
            ctx.event(look.workload, "SourcesChanged", f"{told} changed; nothing is done ({plan.reason})")
        elif plan.action is Action.EVICT:
            told = describe(plan.changes, look.workload.namespace)
            ctx.event(look.workload, "Evicting", f"pods are replaced one by one for {told}")
        if written and plan.state is not None:
            observed = replace(observed, applied=plan.state, seen={})
        news = [("ReloadMisconfigured", problem) for problem in plan.problems]
        if plan.action is Action.WAIT and plan.gate in REASONS:
            told = describe(plan.changes, look.workload.namespace)
            news.append((REASONS[plan.gate], f"the restart for {told} waits: {plan.reason}"))
        if look.edges.tracked or news:
            observed = await self._tell(ctx, look, news, observed)
        if look.edges.tracked:
            self.ledger.keep(look.workload.ref, observed)

    async def _tell(self, ctx: Context, look: Look, news: Sequence[tuple[str, str]], observed: Observed) -> Observed:
        """Tell people what is wrong or held back, once for as long as it stays the same."""
        plan = look.plan
        for reason, message in news:
            if message in observed.reported:
                continue
            if reason == "ReloadMisconfigured":
                self._count("problems")
            cause = ""
            if plan.gate == "budget" and reason == REASONS["budget"]:
                cause = await diagnose(ctx.client, plan.changes, look.workload.namespace)
            ctx.event(look.workload, reason, f"{message}; {cause}" if cause else message, warning=True)
            ctx.log.warning("told", workload=look.workload.title, reason=reason, message=message, cause=cause)
        return replace(observed, reported=tuple(message for _, message in news))

    def _refused(self, ctx: Context, look: Look, error: KubeError) -> Result:
        """The server will not have it: tell people, and try again after a long while or when something changes."""
        self._count("refusals")
        observed = look.plan.observed
        wait = refusal_delay(observed.refusals)
        fields = ", ".join(cause.field for cause in error.causes if cause.field)
        message = f"the server refused to restart it{f' ({fields})' if fields else ''}: {error.message}"
        if message not in observed.reported:
            ctx.event(look.workload, "RestartRefused", message, warning=True)
        ctx.log.warning("patch refused", workload=look.workload.title, error=str(error), retry_seconds=wait)
        told = (*observed.reported, message) if message not in observed.reported else observed.reported
        self.ledger.keep(look.workload.ref, replace(observed, refusals=observed.refusals + 1, reported=told))
        return requeue(after=wait)

    def _count(self, series: str) -> None:
        if self.metrics is not None:
            getattr(self.metrics, series).labels(self.rule.kind.kind).inc()


def _again(*times: float | None, now: float) -> Result:
    """When to look again: at the earliest of these; what has no time comes by a change, which brings its own look."""
    due = min((time for time in times if time is not None), default=None)
    return done if due is None else requeue(after=max(0.001, due - now))
