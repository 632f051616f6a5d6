"""Gates: what holds a restart back. Pure.

`CHAIN` lists them in order; the first that blocks is the reason people see:

    missing      a source or key that pods need to start does not exist
    action       the action asked for is not switched on, or the workload's pods cannot be found
    freeze       a freeze on the workload, its namespace, a source or in a policy
    approval     the change restarts more workloads than the guard allows without approval
    budget       the workload was restarted too often recently
    schedule     outside the maintenance windows
    halt         the same change failed on another workload
    depends-on   a workload named in depends-on goes first
    wave         a lower wave goes first
    window       the sources have not settled, or the kubelet has not updated mounted files yet
    concurrency  enough rollouts are in progress
    hook         the user's function says no, or has not been asked yet

A gate that blocks says when it opens, or that only a change opens it. `urgent` on a source skips schedule and window,
which are about time; the other gates are explicit decisions, or restarts that could only fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.clock import moved_along
from steersman.kube.api.durations import format_duration
from steersman.operators.reload.api.action import RESTART, ReloadAction
from steersman.operators.reload.api.annotations import ACTION, FREEZE, Freeze
from steersman.operators.reload.api.config import (
    Guard,
    OnFailure,
    RestartBudget,
    SourceKind,
    SourceRef,
    Window,
    WorkloadId,
)
from steersman.operators.reload.api.windows import MaintenanceWindows
from steersman.operators.reload.sources.digest import edge_digest
from steersman.operators.reload.sources.digest_keys import NO_KEYS, UNKEYED, DigestKey, Keyring

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from steersman.operators.reload.planning.diff import SourceChange
    from steersman.operators.reload.planning.hooks import HookRunner
    from steersman.operators.reload.planning.plan import Observed
    from steersman.operators.reload.planning.restart_order import RestartCoordinator
    from steersman.operators.reload.sources.digest import Source

DIGEST_LENGTH: Final = 12  # characters of a digest that people copy


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Now, on both clocks."""

    wall: float  # seconds since the epoch: budgets and freezes
    tick: float  # on the monotonic clock: windows
    steps: tuple[tuple[float, float], ...] = ()  # by which the wall clock was set forward: `clock.WallSteps`

    def moved_along(self, stamps: Iterable[float]) -> list[float]:
        """Stamps from before the wall clock was set, shifted so that their distance from now is right."""
        return [moved_along(stamp, self.steps) for stamp in stamps] if self.steps else list(stamps)


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one workload; `effective_policy` computes it from annotations, policies and the configuration."""

    window: Window = Window()
    budget: RestartBudget = RestartBudget()
    maintenance_windows: MaintenanceWindows = MaintenanceWindows()
    freezes: tuple[tuple[str, Freeze], ...] = ()  # where each was found
    wave: int = 0
    depends: tuple[WorkloadId, ...] = ()
    order_with: frozenset[str] = frozenset()  # other namespaces; "*" is all of them
    max_concurrent: int = 0  # rollouts at once in the namespace; 0: no limit
    max_concurrent_cluster: int = 0
    notify: tuple[str, ...] | None = None  # receivers of notifications, by name; None: all
    on_failure: OnFailure = OnFailure.HALT
    deadline: timedelta = timedelta(minutes=10)
    cluster_deadline: timedelta = timedelta(minutes=10)  # after which a rollout elsewhere no longer counts
    guard: Guard = Guard()
    action: ReloadAction = RESTART  # what is done once all gates are open
    approved: frozenset[str] = frozenset()

    def orders_with(self, namespace: str) -> bool:
        """Whether it accepts that workloads of another namespace go first, fail or count for the same change."""
        return "*" in self.order_with or namespace in self.order_with


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """A gate that does not let a restart pass."""

    gate: str
    reason: str
    due: float | None = None  # when to evaluate again, in seconds since the epoch; None: when something changes
    waits_for: WorkloadId | None = None  # the other workload that opens it
    unanswered: bool = False  # the hook has not been asked about this change yet


@dataclass(frozen=True, kw_only=True)
class RestartRequest:
    """The restart of one workload, and everything that a gate may ask about it."""

    workload: WorkloadId
    uid: str = ""
    policy: Policy
    changes: tuple[SourceChange, ...] = ()
    sources: Mapping[SourceRef, Source | None]  # those that changed, as far as they exist
    missing: str | None = None  # what pods could not start without
    restarts: Collection[int] = ()  # the recent ones, in seconds since the epoch
    observed: Observed
    now: Moment
    coordinator: RestartCoordinator | None = None  # None: no other workload counts
    keys: Keyring = NO_KEYS
    hook: HookRunner | None = None

    @property
    def recent(self) -> list[float]:
        """When it was restarted, by the wall clock as it is set now."""
        return self.now.moved_along(self.restarts)

    @property
    def urgent(self) -> bool:
        """Whether one of the sources asks for a restart without delay."""
        return any(source is not None and source.settings.urgent for source in self.sources.values())

    @property
    def planned(self) -> str:
        """What follows once all gates are open, as a plan names it."""
        return PLANNED[self.policy.action.kind]


def first_blocking_gate(request: RestartRequest) -> Blocked | None:
    """The first gate that blocks; None: go ahead. No gate is evaluated behind one that blocks."""
    return next((blocked for _, gate in CHAIN if (blocked := gate(request)) is not None), None)


def _missing(request: RestartRequest) -> Blocked | None:
    return Blocked(gate="missing", reason=request.missing) if request.missing else None


def _action(request: RestartRequest) -> Blocked | None:
    action = request.policy.action
    return Blocked(gate="action", reason=f"{ACTION}: {action.kind} {action.off}") if action.off else None


def _freeze(request: RestartRequest) -> Blocked | None:
    on_sources = (
        (ref.seen_from(request.workload.namespace), source.settings.freeze)
        for ref, source in request.sources.items()
        if source is not None and source.settings.freeze is not None
    )
    for where, freeze in (*request.policy.freezes, *on_sources):
        if freeze.holds(request.now.wall):
            invalid = f" (invalid, so it has no end: {freeze.broken})" if freeze.broken else ""
            return Blocked(gate="freeze", reason=f"{FREEZE} on {where}{invalid}", due=freeze.until)
    return None


def _approval(request: RestartRequest) -> Blocked | None:
    if request.coordinator is None:
        return None
    return request.coordinator.needs_approval(request.workload, request.policy, _unapproved(request), request.now)


def _budget(request: RestartRequest) -> Blocked | None:
    budget, now = request.policy.budget, request.now.wall
    per = budget.per.total_seconds()
    recent = sorted(at for at in request.recent if now - per < at <= now)
    if not budget.restarts or len(recent) < budget.restarts:
        return None
    return Blocked(gate="budget", reason=f"budget used up ({budget})", due=recent[-budget.restarts] + per)


def _schedule(request: RestartRequest) -> Blocked | None:
    windows, now = request.policy.maintenance_windows, request.now.wall
    if request.urgent:
        return None
    opens = windows.opens(now)
    if opens is None:
        return Blocked(gate="schedule", reason=f"invalid maintenance windows: {windows.broken}")
    return None if opens <= now else Blocked(gate="schedule", reason=f"outside its windows ({windows})", due=opens)


def _halt(request: RestartRequest) -> Blocked | None:
    if request.coordinator is None:
        return None
    return request.coordinator.failed_elsewhere(request.workload, request.policy, _sources(request), request.now)


def _depends_on(request: RestartRequest) -> Blocked | None:
    if request.coordinator is None:
        return None
    return request.coordinator.unfinished_dependency(request.workload, request.policy, request.now)


def _wave(request: RestartRequest) -> Blocked | None:
    if request.coordinator is None:
        return None
    return request.coordinator.unfinished_wave(request.workload, request.policy, _sources(request), request.now)


def _window(request: RestartRequest) -> Blocked | None:
    """Sources have to settle; pods are called only once the kubelet has updated mounted files, urgent or not."""
    window, observed, now = request.policy.window, request.observed, request.now
    if not request.urgent:
        past = max((at for at in request.recent if at <= now.wall), default=None)  # a clock may have been ahead
        restarted = None if past is None else now.tick - (now.wall - past)
        wait = window.due(first=observed.first, last=observed.last, restarted=restarted) - now.tick
        if wait > 0:
            return Blocked(gate="window", reason=f"window ({window})", due=now.wall + wait)
    if request.policy.action.kind != "http":
        return None
    after = request.policy.action.after
    wait = window.due(first=observed.first, last=observed.last, after=after) - now.tick
    if wait <= 0:
        return None
    reason = f"waiting up to {format_duration(after)} for the kubelet to update mounted files"
    return Blocked(gate="window", reason=reason, due=now.wall + wait)


def _concurrency(request: RestartRequest) -> Blocked | None:
    if request.coordinator is None:
        return None
    return request.coordinator.no_room(request.workload, request.policy, request.now)


def _hook(request: RestartRequest) -> Blocked | None:
    if request.hook is None:
        return None
    now = request.now.wall
    decision = request.hook.answer(request.uid, (request.planned, request.changes), now)
    if decision is None:
        return Blocked(gate="hook", reason="the hook decides", due=now, unanswered=True)
    if decision.allowed:
        return None
    return Blocked(gate="hook", reason=f"hook: {decision.reason}", due=now + decision.wait_seconds)


CHAIN: Final = (
    ("missing", _missing),
    ("action", _action),
    ("freeze", _freeze),
    ("approval", _approval),
    ("budget", _budget),
    ("schedule", _schedule),
    ("halt", _halt),
    ("depends-on", _depends_on),
    ("wave", _wave),
    ("window", _window),
    ("concurrency", _concurrency),
    ("hook", _hook),
)
GATES: Final = tuple(name for name, _ in CHAIN)
PLANNED: Final = {"restart": "restart", "none": "track", "http": "call", "evict": "evict"}  # by the action asked for


def _sources(request: RestartRequest) -> tuple[SourceRef, ...]:
    return tuple(change.source for change in request.changes)


def change_digest(source: Source, key: DigestKey = UNKEYED) -> str:
    """The digest of a source's current content, short enough to copy: what an approval names."""
    key = UNKEYED if source.source.kind is SourceKind.CONFIGMAP else key
    return edge_digest(source.source, source.digests, key=key)[:DIGEST_LENGTH]


def _unapproved(request: RestartRequest) -> dict[SourceRef, str]:
    """The changes that are not approved yet, by digest; none without a guard.

    An approval with an older key, or without one, approves the same content.
    """
    policy, keys = request.policy, request.keys
    if not (policy.guard.workloads or policy.guard.percent):
        return {}
    return {
        ref: change_digest(source, keys.newest)
        for ref, source in request.sources.items()
        if source is not None
        and (policy.approved | source.settings.approved).isdisjoint(
            change_digest(source, key) for key in (*keys.keys, UNKEYED)
        )
    }
