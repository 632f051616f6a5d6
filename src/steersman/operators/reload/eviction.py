"""Replacing pods one by one by eviction, which disruption budgets may refuse for now.

The decision is written to the workload first, with a time: every pod created before it has to go. So whoever carries on
after a crash knows what is left to do, and a pod that came later is never evicted for the same change.

    next step, from the pods alone:   nobody is old         ──► finished
                                      a new one is not ready ──► wait for it
                                      otherwise              ──► evict one: an unready one first, then the highest name
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from steersman.operators.reload.workloadpods import created, is_ready, living

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.kube.types.pods import Pod

__all__ = ["BUDGET_SECONDS", "POLL_SECONDS", "Step", "next_step"]

POLL_SECONDS: Final = 2.0  # between two looks at pods
BUDGET_SECONDS: Final = 10.0  # after a disruption budget said no


class Step(msgspec.Struct, frozen=True):
    """What to do now."""

    evict: str = ""  # the name of a pod…
    uid: str = ""  # …and which one of that name
    finished: bool = False
    waits: str = ""  # for what, when there is nothing to do


def next_step(pods: Sequence[Pod], since: float, now: float) -> Step:
    """What to do so that every pod created before `since` is replaced."""
    old = [pod for pod in living(pods) if created(pod) < since]
    if not old:
        return Step(finished=True)
    if now < since:  # what is created from now on must not look older than the decision
        return Step(waits="for the clock")
    going = [pod for pod in pods if pod.metadata.deletion_timestamp]
    if going:
        return Step(waits=f"for pod {going[0].name} to go")
    fresh = [pod for pod in living(pods) if created(pod) >= since and not is_ready(pod)]
    if fresh:
        return Step(waits=f"for pod {fresh[0].name} to be ready")
    chosen = max(old, key=lambda pod: (not is_ready(pod), _ordinal(pod.name), pod.name))
    return Step(evict=chosen.name, uid=chosen.metadata.uid)


def _ordinal(name: str) -> int:
    """The number of a StatefulSet's pod: the highest goes first, as in its own rollouts."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() and len(number) < 9 else -1
