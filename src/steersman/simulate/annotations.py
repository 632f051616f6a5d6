"""What people can ask of the simulation, by annotations on a pod or in its template. Pure.

simulate.steersman.dev/fail             never-ready, crash or image-pull; on a node: not-ready
simulate.steersman.dev/ready-after      how long a pod runs before it is ready, such as 2s
simulate.steersman.dev/complete-after   how long a pod that ends by itself runs
simulate.steersman.dev/terminate-after  how long a deleted pod takes to go (never longer than its grace period)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from steersman.errors import FormatError, PlanError
from steersman.kube.api.durations import parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

DOMAIN = "simulate.steersman.dev/"
FAIL = f"{DOMAIN}fail"
READY_AFTER = f"{DOMAIN}ready-after"
COMPLETE_AFTER = f"{DOMAIN}complete-after"
TERMINATE_AFTER = f"{DOMAIN}terminate-after"

INVALID = "InvalidSimulation"  # the reason that a pod shows which asks for something unknown

Failure = Literal["", "never-ready", "crash", "image-pull"]


class PodBehavior(msgspec.Struct, frozen=True, kw_only=True):
    """How a pod should fare; all times in seconds."""

    failure: Failure = ""
    ready_after: float = 0.0
    complete_after: float = 0.0
    terminate_after: float = 0.0


def behavior_of(annotations: Mapping[str, str]) -> PodBehavior:
    """Read them; PlanError says which annotation is wrong and what would be right."""
    failure = annotations.get(FAIL, "")
    if failure not in get_args(Failure):
        known = ", ".join(filter(None, get_args(Failure)))
        raise PlanError(f'"{failure}" is not one of {known}', reason=INVALID, field=f"annotation {FAIL}")
    return PodBehavior(
        failure=failure,  # type: ignore[arg-type]  # just checked
        ready_after=_seconds(annotations, READY_AFTER),
        complete_after=_seconds(annotations, COMPLETE_AFTER),
        terminate_after=_seconds(annotations, TERMINATE_AFTER),
    )


def _seconds(annotations: Mapping[str, str], name: str) -> float:
    text = annotations.get(name)
    if text is None:
        return 0.0
    try:
        return max(0.0, parse_duration(text).total_seconds())
    except FormatError as error:
        raise PlanError(str(error), reason=INVALID, field=f"annotation {name}") from None
