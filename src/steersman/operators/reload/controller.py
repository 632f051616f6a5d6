"""The controllers: one per kind of workload, each for the workloads of that kind.

A look reads one snapshot and makes a plan; the plan is carried out; people are told. What waits is looked at again when
it is due. Nothing is read from the server to decide: a change costs one patch per workload it restarts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from steersman.cache.identity import ref_of
from steersman.kube.errors import BadRequest, Conflict, Forbidden, Invalid, KubeError, NotFound
from steersman.operators import Operator
from steersman.operators.reload.apply import carry_out, describe
from steersman.operators.reload.dialect import Marks
from steersman.operators.reload.dialects import dialects_for
from steersman.operators.reload.digest import ConfigMapSource, SecretSource, source_transform
from steersman.operators.reload.flapping import diagnose
from steersman.operators.reload.kinds import BUILT_IN, RECREATE, KindRule, kind_rules
from steersman.operators.reload.ledger import Ledger
from steersman.operators.reload.look import DEPLOYMENT, NamespaceSettings, interests_in, look_at
from steersman.operators.reload.metrics import ReloadMetrics
from steersman.operators.reload.plan import Action, Moment, Plan
from steersman.operators.reload.recreate import begin, carry_on, intent_of
from steersman.operators.reload.state import write_state
from steersman.operators.reload.totals import read_totals
from steersman.operators.reload.types import (
    APPLIED,
    FREEZE,
    MAX_DELAY,
    NATIVE_ANNOTATIONS,
    QUIET_PERIOD,
    RELOAD,
    Options,
    ReloadConfig,
    SourceKind,
)
from steersman.operators.reload.workloads import Workload, workload_class, workload_transform
from steersman.runtime.controller import Controller
from steersman.runtime.predicates import Predicate, annotation
from steersman.runtime.result import Result, done, requeue

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client import CollectorRegistry

    from steersman.kube.resources import Kind, ObjectRef
    from steersman.operators.reload.dialect import Dialect
    from steersman.operators.reload.digest import Source
    from steersman.operators.reload.ledger import Observed
    from steersman.operators.reload.look import Look
    from steersman.runtime.context import Context

__all__ = ["OPERATOR", "WorkloadKeeper", "controllers", "operator"]

NO_HELM_RELEASES: Final = "type!=helm.sh/release.v1"  # the largest Secrets of a cluster, and no pod reads them
CONCURRENCY: Final = 64  # patches in flight: a source that hundreds of workloads use should not take minutes
REFUSED: Final = (Invalid, Forbidden, BadRequest)  # trying again soon is of no use
REFUSED_SECONDS: Final = (15.0, 900.0)  # at first, and at most


def operator(
    config: ReloadConfig | None = None,
    *,
    served: Iterable[Kind] | None = None,
    dialects: Sequence[Dialect] | None = None,
    registry: CollectorRegistry | None = None,
) -> list[Controller]:
    """The controllers that the section `reload:` asks for; `served` are the kinds the cluster has.

    `dialects` stand in the place of those that the section names.
    """
    options = (config or ReloadConfig()).options()
    spoken = dialects_for(options) if dialects is None else dialects
    return controllers(options, served=served, dialects=spoken, registry=registry)


def controllers(
    options: Options,
    *,
    served: Iterable[Kind] | None = None,
    dialects: Sequence[Dialect] = (),
    registry: CollectorRegistry | None = None,
) -> list[Controller]:
    """One controller per kind of workload."""
    rules = kind_rules(options.kinds, served)
    metrics = ReloadMetrics((rule.kind.kind for rule in rules), registry)
    return [_controller(WorkloadKeeper(rule, options, dialects, metrics)) for rule in rules]


def _controller(keeper: WorkloadKeeper) -> Controller:
    rule, options, ledger = keeper.rule, keeper.options, keeper.ledger
    kept = NATIVE_ANNOTATIONS.union(*(dialect.annotations for dialect in keeper.dialects))
    hashes = tuple(one for dialect in keeper.dialects for one in dialect.hashes)
    where: dict[str, Any] = {"namespaces": options.namespaces}
    sources = where | {"transform": source_transform(kept, hashes), "when": Predicate("data", ledger.source_changed)}

    made = (
        Controller(workload_class(rule.kind), keeper.reconcile, f"reload-{rule.kind.plural}")
        .select(**where, transform=workload_transform(rule, kept))
        .when(Predicate("what it uses", ledger.workload_changed))
        .watches(ConfigMapSource, to=keeper.users_of, **sources)
        .gone(keeper.gone)
        .configured(concurrency=CONCURRENCY)
    )
    if options.watch_secrets:
        made = made.watches(SecretSource, to=keeper.users_of, field_selector=NO_HELM_RELEASES, **sources)
    if options.namespaces is None:
        asked = annotation(RELOAD, FREEZE, QUIET_PERIOD, MAX_DELAY)
        made = made.watches(NamespaceSettings, to=keeper.members_of, when=asked)
    if rule.kind.kind == "Rollout":
        transform = workload_transform(BUILT_IN[0], kept)
        made = made.watches(DEPLOYMENT, to=keeper.users_of, **where, transform=transform)
    return made


OPERATOR: Final = Operator(
    name="reload",
    summary="restarts workloads when the ConfigMaps and Secrets they use change",
    config=ReloadConfig,
    controllers=operator,
)


class WorkloadKeeper:
    """Keeps the workloads of one kind at what their sources say."""

    def __init__(
        self, rule: KindRule, options: Options, dialects: Sequence[Dialect] = (), metrics: ReloadMetrics | None = None
    ) -> None:
        self.rule = rule
        self.options = options
        self.dialects = tuple(dialects)
        self.ledger = Ledger()
        self.metrics = metrics
        self._target = workload_class(rule.kind)
        self._kinds = frozenset({SourceKind.CONFIGMAP, *([SourceKind.SECRET] if options.watch_secrets else [])})
        if metrics is not None:
            metrics.watch(rule.kind.kind, self.ledger)

    # -- whose keys a change touches ---------------------------------------------------------------------------------

    def users_of(self, obj: Source | Workload) -> Iterable[ObjectRef]:
        """The workloads whose last look asked for this object."""
        return self.ledger.interested_in(interests_in(obj))

    def members_of(self, namespace: NamespaceSettings, cache: Any) -> Iterable[ObjectRef]:
        """All workloads of a namespace."""
        return [ref_of(workload) for workload in cache[self._target].list(namespace=namespace.name)]

    # -- a look, and what follows from it ------------------------------------------------------------------------------

    async def reconcile(self, ctx: Context, workload: Workload) -> Result:
        """Look, plan, carry out, tell."""
        if self.rule.restart == RECREATE:
            intent = intent_of(workload)
            if intent is not None:
                return await carry_on(ctx, workload, intent)
            if workload.controller is not None:
                return done  # a CronJob's own, which ends with what it began with
        self.ledger.live = True
        if APPLIED not in workload.annotations:
            workload = await read_totals(ctx.client, workload, self.dialects)
        look = self.look(workload, ctx.cache, Moment(wall=ctx.clock.time(), tick=ctx.clock.monotonic()))
        self.ledger.set_interests(workload.ref, look.interests)
        self._remember(look)
        try:
            if self.rule.restart == RECREATE and look.plan.action is Action.RESTART:
                await begin(ctx, workload, look.plan)
                written = True
            else:
                if look.plan.action is Action.RESTART:
                    look = replace(look, workload=await read_totals(ctx.client, look.workload, self.dialects))
                marks = self.marks(look, ctx.clock.time())
                written = await carry_out(ctx, self.rule, workload, look.plan, marks=marks)
        except NotFound:
            self.ledger.forget(workload.ref)
            return done
        except Conflict:
            self._count("conflicts")
            return requeue()
        except REFUSED as error:
            return self._refused(ctx, look, error)
        await self._carried_out(ctx, look, written)
        return _again(look.plan, ctx.clock.time())

    def look(self, workload: Workload, cache: Any, now: Moment) -> Look:
        """What the snapshots in `cache` say about `workload`."""
        return look_at(
            workload,
            cache,
            options=self.options,
            ledger=self.ledger,
            now=now,
            kinds=self._kinds,
            dialects=self.dialects,
            namespaces=self.options.namespaces is None,
        )

    def marks(self, look: Look, now: float) -> Marks:
        """What the originals of the dialects would have written; nothing on a workload that takes no part."""
        if not look.edges.tracked:
            return Marks()
        restart_at = now if look.plan.action is Action.RESTART else None
        changed = {change.source for change in look.plan.changes}
        all_of_them = [
            dialect.marks(look.workload, look.edges.tracked, look.sources, changed=changed, restart_at=restart_at)
            for dialect in self.dialects
        ]
        return Marks(
            metadata={name: value for marks in all_of_them for name, value in marks.metadata.items()},
            template={name: value for marks in all_of_them for name, value in marks.template.items()},
            variables=tuple(variable for marks in all_of_them for variable in marks.variables),
        )

    async def gone(self, _ctx: Context, key: ObjectRef) -> None:
        """The workload no longer exists."""
        self.ledger.forget(key)

    # -- the machinery -------------------------------------------------------------------------------------------------

    def _remember(self, look: Look) -> None:
        if look.plan.state is not None:  # before it is written: the watch may be faster than the answer
            self.ledger.wrote(look.workload.ref, write_state(look.plan.state))
        if look.edges.tracked:
            self.ledger.keep(look.workload.ref, look.plan.observed)
        else:
            self.ledger.leave(look.workload.ref)

    async def _carried_out(self, ctx: Context, look: Look, written: bool) -> None:
        plan, observed = look.plan, look.plan.observed
        if self.metrics is not None:
            self.metrics.looked(self.rule.kind.kind, plan, written=written)
        if plan.action is Action.RESTART:
            told = describe(plan.changes, look.workload.namespace)
            note = _note(look.workload)
            ctx.log.info("workload restarted", workload=look.workload.title, sources=told)
            ctx.event(look.workload, "Restarted", f"restarted for {told}{note}")
            observed = replace(observed, pending={}, refusals=0)
        if written and plan.state is not None:
            observed = replace(observed, applied=plan.state, seen={})
        if look.edges.tracked:
            self.ledger.keep(look.workload.ref, await self._tell(ctx, look, observed))
        elif plan.problems:
            await self._tell(ctx, look, observed)

    async def _tell(self, ctx: Context, look: Look, observed: Observed) -> Observed:
        """Tell people what is wrong or held back, once for as long as it stays the same."""
        plan = look.plan
        news = [("ReloadMisconfigured", problem) for problem in plan.problems]
        if plan.action is Action.WAIT and plan.gate != "window":
            told = describe(plan.changes, look.workload.namespace)
            news.append((_REASONS[plan.gate], f"the restart for {told} waits: {plan.reason}"))
        for reason, message in news:
            if message in observed.reported:
                continue
            if reason == "ReloadMisconfigured":
                self._count("problems")
            cause = ""
            if plan.gate == "budget" and reason == _REASONS["budget"]:
                cause = await diagnose(ctx.client, plan.changes, look.workload.namespace)
            ctx.event(look.workload, reason, f"{message}; {cause}" if cause else message, warning=True)
            ctx.log.warning("told", workload=look.workload.title, reason=reason, message=message, cause=cause)
        return replace(observed, reported=tuple(message for _, message in news))

    def _refused(self, ctx: Context, look: Look, error: KubeError) -> Result:
        """The server will not have it: tell people, and try again after a long while or when something changes."""
        self._count("refusals")
        observed = look.plan.observed
        first, most = REFUSED_SECONDS
        wait = min(most, first * 2**observed.refusals)
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


_REASONS: Final = {"missing": "SourceMissing", "freeze": "RestartFrozen", "budget": "RestartBudgetUsed"}


def _note(workload: Workload) -> str:
    """What a restart may not reach."""
    owner = workload.controller
    owned = f"{owner.kind.lower()}/{owner.name} controls it and may undo this" if owner is not None else None
    return "".join(f"; {text}" for text in (workload.facts.note, owned) if text)


def _again(plan: Plan, now: float) -> Result:
    """When to look again; a gate without a time opens by a change, which brings its own look."""
    return done if plan.due is None else requeue(after=max(0.001, plan.due - now))
