"""Telling people: Events on the ConfigMap, metrics, and the status of ToolsetConfigs. Each fact is told once."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from steersman.operators.toolset.objects import MAX_STATUS_SERVICES, ServiceStatusEntry, TargetMap
from steersman.operators.toolset.plan import Operation
from steersman.runtime.conditions import condition, with_conditions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.kube.resources import ObjectRef
    from steersman.operators.toolset.look import Look, Problem
    from steersman.operators.toolset.metrics import ToolsetMetrics
    from steersman.operators.toolset.steps import Step
    from steersman.operators.toolset.targets import Targets
    from steersman.operators.toolset.types import Settings
    from steersman.operators.toolset.views import TargetView
    from steersman.runtime.context import Context

__all__ = ["Reporter", "report_status"]

_SHOWN = 5  # names in one message


class Reporter:
    """What was told already, by target."""

    def __init__(self, metrics: ToolsetMetrics) -> None:
        self._metrics = metrics
        self._problems: dict[ObjectRef, set[Problem]] = defaultdict(set)
        self._services: dict[ObjectRef, set[tuple[str, str]]] = {}

    def tell(
        self,
        ctx: Context,
        key: ObjectRef,
        subject: TargetMap | None,
        reason: str,
        message: str,
        *,
        warning: bool = False,
    ) -> None:
        """An Event on the ConfigMap; in the log when there is none yet."""
        if subject is not None and subject.metadata.uid:
            ctx.event(subject, reason, message[:1000], warning=warning)
        log = ctx.log.warning if warning else ctx.log.info
        log("told", component="reconciliation", configmap=str(key), reason=reason, message=message[:1000])

    def problems(self, ctx: Context, key: ObjectRef, subject: TargetMap | None, problems: Iterable[Problem]) -> None:
        """Every problem once, for as long as it stays."""
        now = set(problems)
        self._metrics.stands(key, [one.reason for one in now])
        for one in sorted(now - self._problems[key], key=lambda one: (one.reason, one.message)):
            if one.reason == "OverridesInvalid":
                self._metrics.override_errors.inc()
            else:
                self._metrics.failures.labels(one.kind, one.reason).inc()
            self.tell(ctx, key, subject, one.reason, one.message, warning=True)
        if subject is not None:
            self._problems[key] = now

    def looked(self, look: Look, settings: Settings) -> None:
        """The gauges of a look."""
        taking_part: Counter[tuple[str, str]] = Counter()
        left_out: Counter[str] = Counter()
        for one in look.seen:
            if one.admission.included:
                taking_part[one.candidate.type, one.candidate.namespace] += 1
            else:
                left_out[one.candidate.type] += 1
        self._metrics.looked(taking_part, left_out)
        self._metrics.override_conflicts.set(len(look.merged.conflicts))
        self._metrics.parts.set(len(look.layout.parts))
        failed = any(verdict.reason == "DetectorFailed" for verdict in look.verdicts.values())
        for detector in settings.detectors:
            self._metrics.detectors.labels(detector.type).set(0 if failed else 1)

    def planned(
        self,
        ctx: Context,
        key: ObjectRef,
        subject: TargetMap | None,
        steps: tuple[Step, ...],
        look: Look,
        *,
        split_before: bool,
    ) -> None:
        """What a plan found and did."""
        for step in steps:
            plan, desired, current = step.plan, step.desired, step.current
            self._metrics.found_drift(plan.counted)
            if plan.operation is Operation.CREATE:
                reason = "Recreated" if "deleted" in plan.drift else "Created"
                self.tell(ctx, key, subject, reason, f"{desired.name} with {len(desired.data)} keys")
            elif plan.blocked:
                message = f"{desired.name} is immutable and cannot be kept true; delete it, or set allowRecreate"
                self.tell(ctx, key, subject, "Immutable", message, warning=True)
            elif plan.operation is Operation.UPDATE and current is not None:
                found = [one for one in plan.counted if not one.startswith("extra:")]
                if found:
                    self.tell(ctx, key, subject, "DriftCorrected", f"{desired.name}: {_few(found)}")
                if plan.prune:
                    self.tell(ctx, key, subject, "Pruned", f"{desired.name}: {_few(plan.prune)}")
            if plan.write or plan.operation is Operation.CREATE:
                for one in look.model.toolsets:
                    if f"missing:{one.key}" in plan.drift or f"modified:{one.key}" in plan.drift:
                        self._metrics.generated.labels(one.type).inc()
        if look.layout.split and not split_before:
            self.tell(ctx, key, subject, "Split", f"too large for one ConfigMap: {len(look.layout.parts)} parts")

    def services(self, ctx: Context, key: ObjectRef, subject: TargetMap | None, look: Look, written: str) -> None:
        """Who came and who went; what was written before this process began is no news."""
        now = {one.candidate.key: one.candidate for one in look.taking_part}
        known = self._services.get(key)
        if known is None:
            known = {name for name, one in now.items() if f'"{one.url}"' in written or f'"{one.url}/' in written}
        for name in sorted(now.keys() - known):
            self.tell(ctx, key, subject, "ServiceAdded", f"{now[name].type} {'/'.join(name)} at {now[name].url}")
        for name in sorted(known - now.keys()):
            self.tell(ctx, key, subject, "ServiceRemoved", "/".join(name))
        self._services[key] = set(now)


def _few(names: Iterable[str]) -> str:
    shown = list(names)
    rest = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + rest


async def report_status(ctx: Context, targets: Targets, key: ObjectRef, view: TargetView | None) -> None:
    """The status of the ToolsetConfigs that name a ConfigMap; bounded, and written only when it changed."""
    for claim in targets.claims_on(key):
        config, generation = claim.config, claim.config.metadata.generation
        if claim.refusal or view is None:
            phase, ready = (
                "Refused",
                condition("Ready", False, claim.reason or "Refused", claim.refusal, generation=generation),
            )
            services: list[ServiceStatusEntry] = []
            toolsets, total = 0, 0
        else:
            phase = view.phase or "Ready"
            ready = condition("Ready", phase == "Ready", phase, view.message, generation=generation)
            shown = view.services[:MAX_STATUS_SERVICES]
            services = [
                ServiceStatusEntry(
                    name=one.name, namespace=one.namespace, type=one.type, endpoint=one.endpoint, state=one.state
                )
                for one in shown
            ]
            toolsets, total = len(view.toolsets), len(view.services)
        status: dict[str, Any] = {
            "observed_generation": generation,
            "phase": phase,
            "config_map": f"{key.namespace}/{key.name}",
            "toolsets": toolsets,
            "services": services or None,
            "omitted": max(0, total - MAX_STATUS_SERVICES),
            "conditions": with_conditions(config.status.conditions, ready, now=ctx.clock.time()),
        }
        await ctx.status(config, **status)
