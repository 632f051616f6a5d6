"""The plan for a whole target: one step per ConfigMap, in the order in which nobody ever misses a key. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from steersman.operators.toolset.layout import part_name
from steersman.operators.toolset.objects import TargetMap
from steersman.operators.toolset.plan import LABELS, TOLD, Desired, Drift, ObjectPlan, Operation, plan_object, stamped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.operators.toolset.look import Look
    from steersman.operators.toolset.stand import Stand
    from steersman.operators.toolset.types import Settings

__all__ = ["Step", "digest_of", "drift_of", "plan_target"]

PART_LABEL: Final = "steersman.dev/part"
_LONGEST_LABEL: Final = 63


class Step(msgspec.Struct, frozen=True):
    """What becomes of one ConfigMap."""

    plan: ObjectPlan
    desired: Desired
    current: TargetMap | None


def plan_target(
    look: Look, stand: Stand, settings: Settings, *, manager: str, now: str, conflicts: int = 0
) -> tuple[Step, ...]:
    """Parts first, then the base, then what is left over."""

    def step(desired: Desired, current: TargetMap | None, *, existed: bool) -> Step:
        stamp = stamped(desired, current, now=now)
        plan = plan_object(current, stamp, manager=manager, extra_keys=settings.extra_keys, existed=existed)
        return Step(plan, stamp, current)

    parts = [
        step(_part(settings, number, data), stand.parts.get(number), existed=False)
        for number, data in look.layout.parts.items()
    ]
    known = stand.base.annotations if stand.base is not None else {}
    base = step(_base(settings, look, conflicts, known), stand.base, existed=stand.existed)
    surplus = [_removal(part, settings) for number, part in stand.parts.items() if number not in look.layout.parts]
    return (*parts, base, *surplus)


def drift_of(steps: tuple[Step, ...]) -> tuple[str, ...]:
    """What counts as drift, sorted."""
    return tuple(sorted({one for step in steps for one in step.plan.counted}))


def digest_of(steps: tuple[Step, ...], settings: Settings) -> str:
    """The hash over everything a consumer reads."""
    name = f"{settings.prefix}content-hash"
    found = {step.desired.name: step.desired.annotations.get(name, "") for step in steps}
    return ".".join(found[one][:16] for one in sorted(found) if found[one])


def _part(settings: Settings, number: int, data: Mapping[str, str]) -> Desired:
    labels = {
        **LABELS,
        "app.kubernetes.io/part-of": settings.name[:_LONGEST_LABEL].rstrip("-."),
        PART_LABEL: str(number),
    }
    return Desired(
        name=part_name(settings.name, number),
        namespace=settings.namespace,
        data=data,
        labels=labels,
        annotations={},
        prefix=settings.prefix,
    )


def _base(settings: Settings, look: Look, conflicts: int, known: Mapping[str, str]) -> Desired:
    told = {
        "discovered-services": str(len(look.taking_part)),
        "override-services": str(len(look.overrides)),
        "conflict-count": str(conflicts),
    }
    if (notified := known.get(f"{settings.prefix}{TOLD}")) is not None:
        told[TOLD] = notified  # ours to keep: an apply without it would take it away
    if look.override_error:
        told["override-error"] = look.override_error[:500]
    return Desired(
        name=settings.name,
        namespace=settings.namespace,
        data=look.layout.base,
        labels=LABELS,
        annotations={f"{settings.prefix}{name}": value for name, value in told.items()},
        prefix=settings.prefix,
    )


def _removal(part: TargetMap, settings: Settings) -> Step:
    empty = Desired(
        name=part.name, namespace=part.namespace, data={}, labels={}, annotations={}, prefix=settings.prefix
    )
    drift = tuple(f"{Drift.EXTRA}:{key}" for key in sorted(part.data or {}))
    return Step(ObjectPlan(operation=Operation.DELETE, drift=drift), empty, part)
