"""Gates: what stands between a change and a restart. Pure.

They are asked in this order, and the first that is closed is the reason people see:

    missing      pods could not start: something they need does not exist
    action       what the workload asks for is not switched on
    freeze       somebody said no, on the workload, its namespace, a source or in a policy
    approval     the change restarts more workloads than may go without a word
    budget       the workload was restarted too often lately
    schedule     no window of the calendar is open
    halt         the same change failed elsewhere
    depends-on   another workload goes first, by name
    wave         others go first, by wave
    window       the sources have not been still for long enough
    concurrency  enough rollouts are under way
    hook         a function of your own says no, or not yet

A closed gate says when it opens, or that only a change opens it. `urgent` on a source skips schedule and window, which
are about time, and no other: the rest is somebody's explicit word, or would only fail.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from steersman.operators.reload.digest import edge_digest
from steersman.operators.reload.means import RESTART, Means
from steersman.operators.reload.settings import Freeze
from steersman.operators.reload.timetable import Timetable
from steersman.operators.reload.types import (
    FREEZE,
    Budget,
    Guard,
    OnFailure,
    SourceRef,
    Window,
    WorkloadId,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from steersman.operators.reload.changes import Change
    from steersman.operators.reload.digest import Source
    from steersman.operators.reload.ledger import Observed

__all__ = ["GATES", "Closed", "Company", "Moment", "Policy", "change_digest", "first_closed"]

GATES: Final = (
    "missing",
    "action",
    "freeze",
    "approval",
    "budget",
    "schedule",
    "halt",
    "depends-on",
    "wave",
    "window",
    "concurrency",
    "hook",
)
DIGEST_LENGTH: Final = 12  # characters of a digest that people copy


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Now, on both clocks."""

    wall: float  # seconds since the epoch: budgets and freezes
    tick: float  # on the monotonic clock: windows


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one workload, after everybody who may has spoken; `rulings` makes it."""

    window: Window = Window()
    budget: Budget = Budget()
    timetable: Timetable = Timetable()
    freezes: tuple[tuple[str, Freeze], ...] = ()  # where each was found
    wave: int = 0
    depends: tuple[WorkloadId, ...] = ()
    max_concurrent: int = 0  # rollouts at once in the namespace; 0: no limit
    max_concurrent_cluster: int = 0
    notify: tuple[str, ...] | None = None  # who is told, by name; None: everybody
    on_failure: OnFailure = OnFailure.HALT
    deadline: timedelta = timedelta(minutes=10)
    guard: Guard = Guard()
    means: Means = RESTART  # what is done once all gates are open
    approved: frozenset[str] = frozenset()


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """A gate that is closed."""

    gate: str
    reason: str
    due: float | None = None  # when to look again, in seconds since the epoch; None: when something changes
    waits_for: WorkloadId | None = None  # the other workload that opens it


class Company(Protocol):
    """The other workloads: `fleet` knows them. Without them there is nobody to wait for."""

    def needs_approval(
        self, me: WorkloadId, policy: Policy, digests: Mapping[SourceRef, str], now: Moment
    ) -> Closed | None:
        """Whether the changes with these digests touch more workloads than the guard lets pass."""

    def goes_before(self, me: WorkloadId, policy: Policy, sources: Collection[SourceRef], now: Moment) -> Closed | None:
        """Whether a failure elsewhere, a dependency or a lower wave holds this workload back."""

    def has_room(self, me: WorkloadId, policy: Policy, now: Moment) -> Closed | None:
        """Whether one more rollout may begin."""

    def outcome(self, me: WorkloadId, now: Moment) -> tuple[str, int | None]:
        """How its last restart ended, and after how many seconds; "" when nobody knows."""

    def problems(self, me: WorkloadId, policy: Policy, now: Moment) -> tuple[str, ...]:
        """What is wrong with what it asks of others."""


def first_closed(
    me: WorkloadId,
    *,
    changes: Sequence[Change],
    held: Mapping[SourceRef, Source | None],
    missing: str | None,
    restarts: Collection[int],
    policy: Policy,
    observed: Observed,
    now: Moment,
    company: Company | None = None,
) -> Closed | None:
    """The first gate that is closed; None: the workload may be restarted. `held` are the sources that changed."""
    if missing:
        return Closed(gate="missing", reason=missing)
    for where, freeze in (*policy.freezes, *_frozen_sources(me, held)):
        if freeze.holds(now.wall):
            why = f", which cannot be read: {freeze.broken}" if freeze.broken else ""
            return Closed(gate="freeze", reason=f"{FREEZE} on {where}{why}", due=freeze.until)
    if company is not None and (closed := company.needs_approval(me, policy, _to_approve(held, policy), now)):
        return closed
    due = _affordable(restarts, policy.budget, now.wall)
    if due is not None:
        return Closed(gate="budget", reason=f"budget used up ({policy.budget})", due=due)
    urgent = any(one is not None and one.settings.urgent for one in held.values())
    if not urgent and (closed := _off_hours(policy.timetable, now.wall)):
        return closed
    sources = [change.source for change in changes]
    if company is not None and (closed := company.goes_before(me, policy, sources, now)):
        return closed
    if not urgent:
        past = max((at for at in restarts if at <= now.wall), default=None)  # a clock may have been ahead
        restarted = None if past is None else now.tick - (now.wall - past)
        wait = policy.window.due(first=observed.first, last=observed.last, restarted=restarted) - now.tick
        if wait > 0:
            return Closed(gate="window", reason=f"window ({policy.window})", due=now.wall + wait)
    return None if company is None else company.has_room(me, policy, now)


def change_digest(source: Source) -> str:
    """The digest of what a source says now, short enough to copy: what an approval names."""
    return edge_digest(source.source, source.digests)[:DIGEST_LENGTH]


def _to_approve(held: Mapping[SourceRef, Source | None], policy: Policy) -> dict[SourceRef, str]:
    """The changes that nobody has approved, by digest; none when there is no guard."""
    if not (policy.guard.workloads or policy.guard.percent):
        return {}
    digests = {ref: change_digest(one) for ref, one in held.items() if one is not None}
    return {
        ref: digest
        for ref, one in held.items()
        if one is not None and (digest := digests[ref]) not in policy.approved | one.settings.approved
    }


def _frozen_sources(me: WorkloadId, held: Mapping[SourceRef, Source | None]) -> list[tuple[str, Freeze]]:
    return [
        (ref.seen_from(me.namespace), one.settings.freeze)
        for ref, one in held.items()
        if one is not None and one.settings.freeze is not None
    ]


def _off_hours(timetable: Timetable, now: float) -> Closed | None:
    opens = timetable.opens(now)
    if opens is None:
        return Closed(gate="schedule", reason=f"the windows cannot be read: {timetable.broken}")
    return None if opens <= now else Closed(gate="schedule", reason=f"outside of its windows ({timetable})", due=opens)


def _affordable(restarts: Collection[int], budget: Budget, now: float) -> float | None:
    """When the next restart is within the budget; None: now."""
    per = budget.per.total_seconds()
    recent = sorted(at for at in restarts if now - per < at <= now)
    if not budget.restarts or len(recent) < budget.restarts:
        return None
    return recent[-budget.restarts] + per
