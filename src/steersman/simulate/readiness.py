"""What a workload wants to know of its pods: which count, which are ready, which have been so long enough. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from steersman.kube.times import parse_time
from steersman.simulate.plan import earliest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.simulate.kinds import Pod

__all__ = ["Census", "census", "is_active", "is_ready", "until_available"]


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """Pods, counted."""

    total: int
    ready: int
    available: int
    again: float | None  # seconds until the next ready pod counts as available


def is_active(pod: Pod) -> bool:
    """Neither on its way out nor finished."""
    return not pod.deleting and pod.status.phase not in {"Succeeded", "Failed"}


def is_ready(pod: Pod) -> bool:
    """Whether its Ready condition says so."""
    return any(known.type == "Ready" and known.status == "True" for known in pod.status.conditions)


def until_available(pod: Pod, min_ready_seconds: int, now: float) -> float | None:
    """Seconds until a pod has been ready long enough; 0 when it has, None while it is not ready."""
    for known in pod.status.conditions:
        if known.type == "Ready" and known.status == "True":
            if not min_ready_seconds or known.last_transition_time is None:
                return 0.0
            return max(0.0, parse_time(known.last_transition_time).timestamp() + min_ready_seconds - now)
    return None


def census(pods: Iterable[Pod], min_ready_seconds: int, now: float) -> Census:
    """Count them."""
    waits = [until_available(pod, min_ready_seconds, now) for pod in pods]
    return Census(
        total=len(waits),
        ready=sum(wait is not None for wait in waits),
        available=sum(wait == 0 for wait in waits),
        again=earliest(*(wait for wait in waits if wait)),
    )
