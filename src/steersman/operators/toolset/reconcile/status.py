"""Reporting one target: Events, metrics, the view for the API and the page, and the status of ToolsetConfigs.

Every fact is reported once, for as long as it stays true. Views are immutable values; `ServiceView` and `ToolsetView`
are also the schemas of the REST API. Nothing here decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.kube.api.times import format_time
from steersman.operators.toolset.api.crd import MAX_STATUS_SERVICES, ServiceStatusEntry, TargetConfigMap
from steersman.operators.toolset.discovery.health import HealthState
from steersman.operators.toolset.reconcile.current import ToolsetProblem, mentions_url
from steersman.operators.toolset.reconcile.metrics import Observation
from steersman.operators.toolset.reconcile.plan import Operation
from steersman.runtime.manager.operator_bundle import Row, RowProblem, RowState, Table
from steersman.runtime.reconcile.conditions import find_condition, is_news, new_condition, set_conditions
from steersman.runtime.reconcile.event_recorder import ReportedIssues
from steersman.text import some_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.toolset.api.config import TargetSettings
    from steersman.operators.toolset.reconcile.current import CurrentState
    from steersman.operators.toolset.reconcile.desired import DesiredState, DiscoveredService, DiscoveryResult
    from steersman.operators.toolset.reconcile.metrics import ToolsetMetrics
    from steersman.operators.toolset.reconcile.plan import PlanStep, TargetPlan
    from steersman.operators.toolset.reconcile.targets import Targets
    from steersman.runtime.reconcile.context import Context

_SHOWN_ROWS: Final = 500  # of one table


# -- views -------------------------------------------------------------------------------------------------------------


class ServiceView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One candidate."""

    name: str
    namespace: str
    type: str
    endpoint: str
    state: str
    included: bool
    healthy: bool
    reason: str
    message: str
    last_check: str | None = None
    discovered_at: str | None = None


class ToolsetView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One toolset."""

    name: str
    type: str
    enabled: bool
    healthy: bool
    config: dict[str, Any]
    service_endpoint: str
    namespace: str = ""
    discovered_at: str | None = None
    last_health_check: str | None = None


class TargetView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One target ConfigMap after its last pass."""

    name: str
    namespace: str
    services: tuple[ServiceView, ...] = ()
    toolsets: tuple[ToolsetView, ...] = ()
    drift: tuple[str, ...] = ()
    plan: tuple[dict[str, Any], ...] = ()  # object by object, without values
    resource_version: str = ""
    last_discovery: str | None = None
    override_error: str = ""
    overrides: int = 0
    parts: int = 0
    phase: str = ""
    message: str = ""


def view_of(
    target: NamespacedName, desired: DesiredState, current: CurrentState, plan: TargetPlan, *, now: float
) -> TargetView:
    """The view of a target after a pass."""
    list_failures = "; ".join(problem.message for problem in current.problems)
    return TargetView(
        name=target.name,
        namespace=target.namespace,
        services=services_of(desired.discovery),
        toolsets=_toolsets_of(desired),
        drift=plan.drift,
        plan=tuple(
            {
                "name": step.desired.name,
                "operation": step.plan.operation.value,
                "drift": list(step.plan.drift),
                "prune": list(step.plan.prune),
            }
            for step in plan.steps
        ),
        resource_version=current.base.metadata.resource_version if current.base is not None else "",
        last_discovery=format_time(now),
        override_error=desired.override_error,
        overrides=len(desired.overrides),
        parts=len(desired.layout.parts),
        phase="Failing" if plan.is_blocked else "Ready",
        message="The ConfigMap is immutable; delete it or set allowRecreate" if plan.is_blocked else list_failures,
    )


def services_of(discovery: DiscoveryResult) -> tuple[ServiceView, ...]:
    """The candidates, best first."""
    return tuple(map(_service_view, discovery.services))


def _service_view(service: DiscoveredService) -> ServiceView:
    candidate, inclusion, record = service.candidate, service.inclusion, service.health
    return ServiceView(
        name=candidate.service,
        namespace=candidate.namespace,
        type=candidate.type,
        endpoint=candidate.url,
        state=inclusion.state.value,
        included=inclusion.included,
        healthy=inclusion.state is HealthState.HEALTHY,
        reason=candidate.confidence.name.title(),
        message=inclusion.message,
        last_check=None if record is None or record.checked_at is None else format_time(record.checked_at),
        discovered_at=None if record is None else format_time(record.found_at),
    )


def _toolsets_of(desired: DesiredState) -> tuple[ToolsetView, ...]:
    """The toolsets, the kubernetes one first."""
    services = {service.candidate.ref: _service_view(service) for service in desired.discovery.services}
    disabled = {
        name for name, entry in desired.overrides.toolsets.items() if entry is None or entry.get("enabled") is False
    }
    kubernetes = ToolsetView(
        name="kubernetes",
        type="kubernetes",
        enabled="kubernetes" not in disabled,
        healthy=True,
        config={"incluster": True, "namespaces": list(desired.model.kubernetes_namespaces)},
        service_endpoint="",
    )
    discovered = [
        ToolsetView(
            name=toolset.instance,
            type=toolset.type,
            enabled=toolset.type not in disabled,
            healthy=services[toolset.ref].healthy,
            config={"url": toolset.url, **({"apiKey": "[redacted]"} if toolset.auth_env else {})},
            service_endpoint=toolset.url,
            namespace=toolset.namespace,
            discovered_at=services[toolset.ref].discovered_at,
            last_health_check=services[toolset.ref].last_check,
        )
        for toolset in desired.model.toolsets
    ]
    return (kubernetes, *discovered)


def find_toolset(views: Sequence[ToolsetView], name: str) -> ToolsetView | None:
    """A toolset by its name, else the first of that type."""
    named = next((view for view in views if view.name == name), None)
    return named or next((view for view in views if view.type == name), None)


# -- Events and metrics ------------------------------------------------------------------------------------------------


class Reporter:
    """The Events and metrics of one target; remembers what was reported."""

    def __init__(self, target: NamespacedName, metrics: ToolsetMetrics) -> None:
        self._target = target
        self._metrics = metrics
        self._reported: ReportedIssues[tuple[str, ToolsetProblem]] = ReportedIssues()  # with the uid of the ConfigMap
        self._services: set[NamespacedName] | None = None

    def event(
        self, ctx: Context, subject: TargetConfigMap | None, reason: str, message: str, *, warning: bool = False
    ) -> None:
        """An Event on the ConfigMap, and a log line; without a ConfigMap only the log line."""
        if subject is not None and subject.metadata.uid:
            ctx.event(subject, reason, message[:1000], warning=warning)
        log = ctx.log.warning if warning else ctx.log.info
        log("event", component="reconciliation", configmap=str(self._target), reason=reason, message=message[:1000])

    def problems(self, ctx: Context, subject: TargetConfigMap | None, problems: Iterable[ToolsetProblem]) -> None:
        """An Event for each problem that is new to this ConfigMap, and the gauge of all."""
        now = sorted(set(problems), key=lambda problem: (problem.reason, problem.message))
        self._metrics.set_problems(self._target, [problem.reason for problem in now])
        uid = subject.metadata.uid if subject is not None else ""
        for _, problem in self._reported.new(self._target, ((uid, problem) for problem in now)):
            if problem.reason == "OverridesInvalid":
                self._metrics.override_errors.inc()
            else:
                self._metrics.failures.labels(problem.kind, problem.reason).inc()
            self.event(ctx, subject, problem.reason, problem.message, warning=True)

    def observed(self, desired: DesiredState, settings: TargetSettings) -> None:
        """The gauges of a pass."""
        discovery = desired.discovery
        services = {
            included: frozenset(
                (service.candidate.type, service.candidate.namespace, service.candidate.service)
                for service in discovery.services
                if service.inclusion.included is included
            )
            for included in (True, False)
        }
        failed = any(match.reason == "DetectorFailed" for match in discovery.matches.values())
        observation = Observation(
            included=services[True],
            excluded=services[False],
            override_conflicts=len(desired.merged.conflicts),
            parts=len(desired.layout.parts),
            detectors=dict.fromkeys((detector.type for detector in settings.detectors), not failed),
        )
        self._metrics.set_observation(self._target, observation)

    def applied(
        self, ctx: Context, subject: TargetConfigMap | None, plan: TargetPlan, desired: DesiredState, *, was_split: bool
    ) -> None:
        """What the plan found and changed."""
        for step in plan.steps:
            self._metrics.count_drift(step.plan.counted)
            self._step(ctx, subject, step)
            if step.plan.write:
                for toolset in desired.model.toolsets:
                    if f"missing:{toolset.key}" in step.plan.drift or f"modified:{toolset.key}" in step.plan.drift:
                        self._metrics.generated.labels(toolset.type).inc()
        if desired.layout.split and not was_split:
            message = f"Too large for one ConfigMap: split into {len(desired.layout.parts)} parts"
            self.event(ctx, subject, "Split", message)

    def _step(self, ctx: Context, subject: TargetConfigMap | None, step: PlanStep) -> None:
        plan, name = step.plan, step.desired.name
        if plan.operation is Operation.CREATE:
            reason = "Recreated" if "deleted" in plan.drift else "Created"
            self.event(ctx, subject, reason, f"{name} with {len(step.desired.data)} keys")
        elif plan.blocked:
            message = f"{name} is immutable and cannot be updated; delete it, or set toolset.allowRecreate"
            self.event(ctx, subject, "Immutable", message, warning=True)
        elif plan.operation is Operation.UPDATE:
            corrected = [item for item in plan.counted if not item.startswith("extra:")]
            if corrected:
                self.event(ctx, subject, "DriftCorrected", f"{name}: {some_of(corrected)}")
            if plan.prune:
                self.event(ctx, subject, "Pruned", f"{name}: {some_of(plan.prune)}")

    def services(
        self, ctx: Context, subject: TargetConfigMap | None, discovery: DiscoveryResult, current: CurrentState
    ) -> None:
        """Which Services were added and removed since the last pass, or since what an earlier process wrote."""
        now = {service.candidate.ref: service.candidate for service in discovery.included}
        known = self._services
        if known is None:
            written = current.text
            known = {ref for ref, candidate in now.items() if mentions_url(written, candidate.url)}
        for ref in sorted(now.keys() - known):
            self.event(ctx, subject, "ServiceAdded", f"{now[ref].type} {ref} at {now[ref].url}")
        for ref in sorted(known - now.keys()):
            self.event(ctx, subject, "ServiceRemoved", str(ref))
        self._services = set(now)


# -- the status of ToolsetConfigs --------------------------------------------------------------------------------------


async def write_config_status(ctx: Context, targets: Targets, key: NamespacedName, view: TargetView | None) -> None:
    """Write the status of the ToolsetConfigs that name a ConfigMap; bounded, and only when it changed."""
    for claim in targets.claims_on(key):
        config, generation = claim.config, claim.config.metadata.generation
        services: list[ServiceStatusEntry] = []
        if claim.refusal or view is None:
            phase, toolsets, total = "Refused", 0, 0
            ready = new_condition("Ready", False, claim.reason or "Refused", claim.refusal, generation=generation)
            if claim.refusal and is_news(find_condition(config.status.conditions, "Ready"), ready):
                ctx.event(config, claim.reason, claim.refusal, warning=True)
        else:
            phase, toolsets, total = view.phase or "Ready", len(view.toolsets), len(view.services)
            ready = new_condition("Ready", phase == "Ready", phase, view.message, generation=generation)
            services = [
                ServiceStatusEntry(
                    name=service.name,
                    namespace=service.namespace,
                    type=service.type,
                    endpoint=service.endpoint,
                    state=service.state,
                )
                for service in view.services[:MAX_STATUS_SERVICES]
            ]
        status: dict[str, Any] = {
            "observed_generation": generation,
            "phase": phase,
            "config_map": str(key),
            "toolsets": toolsets,
            "services": services or None,
            "omitted": max(0, total - MAX_STATUS_SERVICES),
            "conditions": set_conditions(config.status.conditions, ready, now=ctx.clock.time()),
        }
        await ctx.status(config, **status)


# -- the page and `steersman status` -----------------------------------------------------------------------------------


def tables(views: Sequence[TargetView]) -> Sequence[Table]:
    """The services and toolsets of all targets."""
    several = len(views) > 1
    services = [_service_row(view, service, several=several) for view in views for service in view.services]
    columns = ("service", "namespace", "type", "endpoint", "health", "matched by", "last check")
    return (
        Table(
            "Services",
            (*columns, "target") if several else columns,
            services[:_SHOWN_ROWS],
        ),
        Table(
            "Toolsets",
            ("ConfigMap", "namespace", "toolsets", "overrides", "parts", "drift", "last discovery"),
            [_target_row(view) for view in views],
        ),
    )


def _service_row(view: TargetView, service: ServiceView, *, several: bool) -> Row:
    state = RowState.GOOD if service.included else RowState.BAD
    if service.state == HealthState.UNKNOWN:
        state = RowState.BUSY
    elif service.included and service.state in (
        HealthState.UNHEALTHY,
        HealthState.NO_ENDPOINTS,
        HealthState.NOT_IDENTIFIED,
    ):
        state = RowState.WAITING
    elif not service.included and service.state in (HealthState.AUTH_REQUIRED, HealthState.NOT_IDENTIFIED):
        state = RowState.OFF
    cells = (
        *(service.name, service.namespace, service.type, service.endpoint, service.state),
        *(service.reason, service.last_check, *([view.name] if several else [])),
    )
    problem = None
    if state is RowState.BAD:
        problem = RowProblem(
            objects=[f"service/{service.namespace}/{service.name}"],
            message=f"left out of the toolset: {service.message or service.state}",
            command=f"steersman toolset explain {service.namespace}/{service.name}",
            runbook="SteersmanToolsetServicesLeftOut",
        )
    return Row(cells, state, service.message, problem=problem)


def _target_row(view: TargetView) -> Row:
    state = {"Ready": RowState.GOOD, "Paused": RowState.OFF, "Failing": RowState.BAD}.get(view.phase, RowState.BUSY)
    if state is RowState.GOOD and view.override_error:
        state = RowState.WAITING
    note = view.message or (f"overrides.yaml {view.override_error}" if view.override_error else "")
    drift = ", ".join(view.drift[:5])
    cells = (view.name, view.namespace, len(view.toolsets), view.overrides, view.parts, drift, view.last_discovery)
    problem = None
    if state is RowState.BAD or view.override_error:
        problem = RowProblem(
            objects=[f"configmap/{view.namespace}/{view.name}"],
            message=note,
            command="steersman toolset diff",
            runbook="SteersmanToolsetOverridesInvalid" if view.override_error else "SteersmanToolsetWritesFailing",
        )
    return Row(cells, state, note, problem=problem)
