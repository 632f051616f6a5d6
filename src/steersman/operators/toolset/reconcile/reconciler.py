"""The reconciler: one key is one target ConfigMap with its parts, one pass is read → discover → render → plan → apply.

`ToolsetReconciler` maps changes to targets and errors to results; `TargetPass.run` is one pass, top to bottom. Every
decision is made by pure modules. What the process remembers of a target (`TargetMemory`) only saves work and repeated
Events: after a restart the same ConfigMaps follow from what the cluster holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from steersman.bounded_parsing import off_loop
from steersman.kube.api.errors import Forbidden, NotFound
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.times import format_time
from steersman.operators.toolset.api.crd import EndpointSliceSummary, TargetConfigMap, ToolsetConfig
from steersman.operators.toolset.discovery.health import HealthRecord, HealthTable, ProbeKey
from steersman.operators.toolset.reconcile.apply import (
    RETRY_LATER_SECONDS,
    Applier,
    ConflictsExhausted,
    retry_on_conflict,
)
from steersman.operators.toolset.reconcile.current import (
    LABELS,
    MANAGED_BY,
    ConfigMapWatches,
    CurrentState,
    ToolsetProblem,
    is_ours,
    read_current,
)
from steersman.operators.toolset.reconcile.desired import (
    DesiredState,
    DiscoveryResult,
    discover,
    match_services,
    render,
)
from steersman.operators.toolset.reconcile.notify import ConsumerNotifier
from steersman.operators.toolset.reconcile.plan import Operation, TargetPlan, plan_target
from steersman.operators.toolset.reconcile.status import Reporter, TargetView, view_of, write_config_status
from steersman.operators.toolset.reconcile.targets import find_targets
from steersman.operators.toolset.render.overrides import Overrides, read_overrides
from steersman.runtime.controller.channel import Channel
from steersman.runtime.controller.result import Result, done, requeue
from steersman.runtime.reconcile.ownership import NotOwned

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.operators.toolset.api.config import TargetSettings
    from steersman.operators.toolset.discovery.matching import Match
    from steersman.operators.toolset.reconcile.metrics import ToolsetMetrics
    from steersman.runtime.reconcile.context import Context

UNSETTLED_SECONDS: Final = 30.0  # until the next pass when something is wrong
LIST_FAILED_SECONDS: Final = 5.0  # until the next pass while a list fails, and before that is reported
REFUSED_SECONDS: Final = 60.0  # until the next pass when the API server does not allow a write
MISSING_RIGHT: Final = " (name it in toolset.configMaps, and apply what `steersman rbac` then prints)"


class TargetMemory:
    """What the process remembers of one target."""

    def __init__(self, target: NamespacedName, metrics: ToolsetMetrics) -> None:
        self.view = TargetView(name=target.name, namespace=target.namespace)
        self.reporter = Reporter(target, metrics)
        self.notifier = ConsumerNotifier(metrics)
        self.matches: dict[str, tuple[str, TargetSettings, Match]] = {}  # by uid: resourceVersion, settings, match
        self.overrides: tuple[tuple[str | None, str | None], tuple[Overrides, str]] | None = None  # texts, parsed
        self.list_failing_since: float | None = None  # monotonic
        self.parts_searched = False  # whether parts that an earlier process wrote were searched for
        self.conflicts = 0

    def set_phase(self, phase: str, message: str) -> None:
        """Change the phase of the view; the rest stays as the last pass left it."""
        self.view = replace(self.view, phase=phase, message=message)


class ToolsetReconciler:
    """Reconciles the ConfigMaps of all targets."""

    def __init__(self, settings: TargetSettings, metrics: ToolsetMetrics, *, has_crd: bool = False) -> None:
        """`settings` are those of the configuration file; `has_crd`: the cluster serves ToolsetConfigs."""
        self.settings = settings
        self.metrics = metrics
        self.has_crd = has_crd
        self.targets = find_targets(settings, ())
        self.changed = Channel()  # keys: targets to reconcile
        self.probes = Channel()  # keys: ProbeKey, candidates to probe
        self.health = HealthTable()
        self.watches = ConfigMapWatches(self.changed.send)
        self._memory: dict[NamespacedName, TargetMemory] = {}

    def views(self) -> list[TargetView]:
        """The targets after their last pass, by namespace and name."""
        views = [memory.view for memory in self._memory.values() if memory.view.phase]
        return sorted(views, key=lambda view: (view.namespace, view.name))

    def is_named_by_file(self, target: NamespacedName) -> bool:
        """Whether the configuration file names a ConfigMap: then the administrator decides that it is ours."""
        return bool(self.settings.name) and target == NamespacedName(self.settings.name, self.settings.namespace)

    # -- which keys a change enqueues ----------------------------------------------------------------------------------

    def all_targets(self, _obj: object) -> Iterable[NamespacedName]:
        """A Service may matter to any target."""
        return tuple(self.targets.settings)

    def targets_of_slice(self, endpoints: EndpointSliceSummary) -> Iterable[NamespacedName]:
        """The targets for which the Service of an EndpointSlice is a candidate."""
        return self.health.targets_of(NamespacedName(endpoints.service, endpoints.namespace))

    def targets_of_config(self, config: ToolsetConfig) -> Iterable[NamespacedName]:
        """The ConfigMap that a ToolsetConfig names, and all current targets: it may replace one of them."""
        named = find_targets(self.settings, [config])
        return {*named.settings, *(claim.target for claim in named.claims), *self.targets.settings}

    # -- a reconcile ---------------------------------------------------------------------------------------------------

    async def reconcile(self, ctx: Context, key: NamespacedName) -> Result:
        """Reconcile one target; reads and plans again after a conflict."""
        began = ctx.clock.monotonic()
        self.targets = find_targets(self.settings, ctx.cache[ToolsetConfig].list() if self.has_crd else ())
        settings = self.targets.settings.get(key)
        if settings is None:
            self._forget(key)
            await write_config_status(ctx, self.targets, key, None)
            return done
        memory = self._memory.setdefault(key, TargetMemory(key, self.metrics))

        def count_conflict() -> None:
            memory.conflicts += 1
            self.metrics.conflicts.labels("retried").inc()

        try:
            run = TargetPass(self, ctx, key, settings, memory)
            result = await retry_on_conflict(ctx.clock, lambda attempt: run.run(fresh=attempt > 1), met=count_conflict)
        except ConflictsExhausted as error:
            self.metrics.conflicts.labels("exhausted").inc()
            self.metrics.reconciles.labels(Operation.UPDATE, "failure").inc()
            ctx.log.warning("conflicts exhausted", component="reconciliation", configmap=str(key), error=str(error))
            memory.reporter.event(ctx, self.watches.known(key), "ConflictRetriesExhausted", str(error), warning=True)
            return requeue(after=RETRY_LATER_SECONDS)
        except NotOwned as error:
            memory.set_phase("Failing", str(error))
            self.targets = self.targets.refusing(key, error.reason, str(error))
            await write_config_status(ctx, self.targets, key, None)
            return requeue(after=REFUSED_SECONDS)
        except (Forbidden, NotFound) as error:
            self.metrics.reconciles.labels(Operation.UPDATE, "failure").inc()
            ctx.log.warning("write refused", component="reconciliation", configmap=str(key), error=str(error))
            memory.set_phase("Failing", f"{error}{MISSING_RIGHT if 'configmaps' in str(error) else ''}")
            result = requeue(after=REFUSED_SECONDS)
        finally:
            self.metrics.duration.observe(ctx.clock.monotonic() - began)
        await write_config_status(ctx, self.targets, key, memory.view)
        return result

    def _forget(self, key: NamespacedName) -> None:
        self._memory.pop(key, None)
        self.health.forget(key)
        self.metrics.forget(key)


class TargetPass:
    """One pass over one target."""

    def __init__(
        self,
        reconciler: ToolsetReconciler,
        ctx: Context,
        target: NamespacedName,
        settings: TargetSettings,
        memory: TargetMemory,
    ) -> None:
        self._reconciler = reconciler
        self._ctx = ctx
        self._target = target
        self._settings = settings
        self._memory = memory

    async def run(self, *, fresh: bool) -> Result:
        """Read, discover, render, plan, apply, report; `fresh` reads ConfigMaps from the API server."""
        ctx, settings, memory, watches = self._ctx, self._settings, self._memory, self._reconciler.watches
        current = await self._read(fresh=fresh)
        if (wait := self._blocked_for(current)) is not None:
            return requeue(after=wait)
        discovery = self._discover(current)
        overrides = await self._parse_overrides(current)
        desired = await off_loop(render, discovery, settings, current=current, overrides=overrides)
        if desired.is_oversized:
            memory.reporter.problems(ctx, current.base, desired.problems)
            memory.set_phase("Failing", "The keys that are always present and those of other owners exceed maxBytes")
            return requeue(after=UNSETTLED_SECONDS)
        adopt_base = self._reconciler.is_named_by_file(self._target)
        applier = Applier(ctx, self._target, settings, watches, self._reconciler.metrics, adopt_base=adopt_base)
        if (restored := await applier.restore_deleted(current)) is not None:
            current = replace(current, base=restored, existed=True)
            keys = ", ".join(sorted({*current.foreign, *current.foreign_binary}))
            memory.reporter.event(ctx, restored, "OverridesRestored", f"Restored {keys}")
        plan = await self._plan(desired, current)
        memory.view = view_of(self._target, desired, current, plan, now=ctx.clock.time())
        for recreated in await applier.apply(plan, current):
            memory.reporter.event(ctx, recreated, "Recreated", f"{recreated.name} was immutable and is created again")
        subject = watches.known(self._target)
        self._report(subject, current, desired, plan)
        notify_in, annotated = await memory.notifier.run(ctx, settings, subject, digest=plan.digest)
        if annotated is not None:
            watches.record_write(annotated)
        return requeue(after=self._next_pass(current, discovery, plan, notify_in))

    async def _read(self, *, fresh: bool) -> CurrentState:
        """Read the current state; a list that has failed for a moment only is not a problem yet."""
        memory, search_parts = self._memory, not self._memory.parts_searched
        current = await read_current(
            self._ctx, self._reconciler.watches, self._target, self._settings, fresh=fresh, search_parts=search_parts
        )
        memory.parts_searched = True
        if not current.problems:
            memory.list_failing_since = None
            return current
        now = self._ctx.clock.monotonic()
        if memory.list_failing_since is None:
            memory.list_failing_since = now
        lasting = current.unlisted or now - memory.list_failing_since >= LIST_FAILED_SECONDS
        return current if lasting else replace(current, problems=(), list_interrupted=True)

    def _blocked_for(self, current: CurrentState) -> float | None:
        """Seconds until the next pass when this target may not be written now; NotOwned when another owner has it."""
        foreign = current.base is not None and not is_ours(current.base, self._ctx.field_manager)
        if foreign and current.backup_object is None and not self._reconciler.is_named_by_file(self._target):
            why = f"was not made for a toolset (label it {MANAGED_BY}={LABELS[MANAGED_BY]} to hand it over)"
            raise NotOwned(TargetConfigMap.KIND, self._target, why=why)
        if current.is_paused:
            annotation = f"{self._settings.prefix}paused"
            self._memory.set_phase("Paused", f"Annotation {annotation} is true")
            message = f"Nothing is written while the annotation {annotation} is true"
            self._memory.reporter.event(self._ctx, current.base, "Paused", message)
            return self._settings.discovery_interval
        if current.unlisted and current.text and current.backup.known is None:
            # A Service of the unlisted namespace may be among the written ones.
            message = "; ".join(problem.message for problem in current.problems)
            self._memory.set_phase("Failing", message)
            self._ctx.log.warning("waiting for services", component="service_discovery", problem=message)
            return LIST_FAILED_SECONDS
        return None

    def _discover(self, current: CurrentState) -> DiscoveryResult:
        """Match the Services, count their endpoints, and enter the candidates in the health table."""
        ctx, settings, reconciler = self._ctx, self._settings, self._reconciler
        began = ctx.clock.monotonic()
        matches = match_services(current, settings, self._memory.matches)
        self._memory.matches = {
            service.metadata.uid: (service.metadata.resource_version, settings, matches[service.ref])
            for service in current.services
        }
        discovery = discover(matches, settings, current=current, health=self._count_endpoints(matches))
        candidates = [(service.candidate, service.inclusion.included) for service in discovery.services]
        for probe in reconciler.health.set_candidates(self._target, settings, candidates):
            reconciler.probes.send(probe)
        reconciler.metrics.discovery.labels("success").observe(ctx.clock.monotonic() - began)
        return discovery

    def _count_endpoints(self, matches: Mapping[NamespacedName, Match]) -> dict[NamespacedName, HealthRecord]:
        """The health of every candidate, with the endpoints that are ready now."""
        clock, slices = self._ctx.clock, self._ctx.cache[EndpointSliceSummary]
        records = {}
        for ref, match in matches.items():
            if match.candidate is not None:
                found = slices.by_index("service", str(ref))
                records[ref] = self._reconciler.health.record_endpoints(
                    ProbeKey(self._target, ref),
                    match.candidate.probed_urls,
                    sum(endpoints.ready for endpoints in found) if found else None,
                    tick=clock.monotonic(),
                    now=clock.time(),
                    limit=self._settings.health.empty_after,
                )
        return records

    async def _parse_overrides(self, current: CurrentState) -> tuple[Overrides, str]:
        """The overrides and what is wrong with them, parsed once per text."""
        texts = (current.overrides, current.backup.last_valid)
        if self._memory.overrides is None or self._memory.overrides[0] != texts:
            self._memory.overrides = (texts, await off_loop(read_overrides, *texts))
        return self._memory.overrides[1]

    async def _plan(self, desired: DesiredState, current: CurrentState) -> TargetPlan:
        ctx, now = self._ctx, format_time(self._ctx.clock.time())
        manager, conflicts = ctx.field_manager, self._memory.conflicts
        plan = await off_loop(
            plan_target, desired, current, self._settings, manager=manager, now=now, conflicts=conflicts
        )
        if plan.drift:
            drift = list(plan.drift)
            ctx.log.warning("drift", component="reconciliation", configmap=str(self._target), drift_keys=drift)
        return plan

    def _report(
        self, subject: TargetConfigMap | None, current: CurrentState, desired: DesiredState, plan: TargetPlan
    ) -> None:
        ctx, reporter = self._ctx, self._memory.reporter
        reporter.observed(desired, self._settings)
        reporter.applied(ctx, subject, plan, desired, was_split=bool(current.parts))
        taken = [
            ToolsetProblem("NameTaken", "", f"ConfigMap {name} belongs to another owner; it is not changed")
            for name in current.taken
        ]
        reporter.problems(ctx, subject, [*desired.problems, *taken])
        reporter.services(ctx, subject, desired.discovery, current)

    def _next_pass(
        self, current: CurrentState, discovery: DiscoveryResult, plan: TargetPlan, notify_in: float | None
    ) -> float:
        """Seconds until the next pass: the interval, or earlier when something is wrong or changes by time alone."""
        waits = [self._settings.discovery_interval]
        if current.list_interrupted:
            waits.append(LIST_FAILED_SECONDS)
        elif not discovery.is_settled or current.problems or plan.drift:
            waits.append(UNSETTLED_SECONDS)
        if notify_in is not None:
            waits.append(notify_in)
        limit, now = self._settings.health.empty_after, self._ctx.clock.monotonic()
        records = [service.health for service in discovery.services if service.health is not None]
        waits += [
            max(0.1, record.empty_since + limit - now)
            for record in records
            if record.empty_since is not None and not record.empty
        ]
        return min(waits)
