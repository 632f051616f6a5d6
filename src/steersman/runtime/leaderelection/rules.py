"""The rules of leader election, without clocks, requests or tasks: (state, event, now) -> (state, action).

    following ── the lease is free, or unchanged for its whole duration ──► write it ──► leading
    leading   ── every retry_seconds ──► renew it; not renewed for renew_seconds, or another holder ──► lost

What makes it safe, whatever the clocks of other machines say:
- timestamps of different machines are never compared; a follower measures, on its own monotonic clock, how long the
  record has not changed *since it saw it*;
- a leader counts its term from the moment it *sent* the last renewal that succeeded, so its term ends on its own before
  a follower, who can only have seen that renewal later, may take over: renew_seconds < lease_seconds;
- every write names the version it replaces, so of two writers one is refused;
- an identity belongs to one process; no other process ever holds a lease under it.

So at most one identity is leading at any instant, as long as clocks *run* at rates that differ by less than
lease_seconds / renew_seconds. Code that acts must ask `leading(now)`, or be cancelled when the term ends.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from steersman.errors import ConfigError

__all__ = [
    "Action",
    "ElectionState",
    "Event",
    "LeaderElectionRecord",
    "LeaseTimings",
    "Lost",
    "Missing",
    "Read",
    "RequestFailed",
    "Seen",
    "Tick",
    "Wait",
    "Write",
    "WriteConflict",
    "Written",
    "released",
    "step",
]


class LeaseTimings(msgspec.Struct, frozen=True, kw_only=True):
    """How long things take. The defaults are those of Kubernetes' own components."""

    lease_seconds: float = 15.0  # followers wait this long for a sign of life before they take over
    renew_seconds: float = 10.0  # a leader that could not renew for this long stops
    retry_seconds: float = 2.0  # between attempts; followers add up to `jitter` times as much
    jitter: float = 1.2

    def __post_init__(self) -> None:
        if not self.lease_seconds > self.renew_seconds:
            raise ConfigError(f"must be greater than renew_seconds ({self.renew_seconds:g})", field="lease_seconds")
        if not self.renew_seconds > self.jitter * self.retry_seconds:
            longest = self.jitter * self.retry_seconds
            raise ConfigError(f"must be greater than jitter x retry_seconds ({longest:g})", field="renew_seconds")
        if not (self.retry_seconds > 0 and self.jitter > 0):
            raise ConfigError("must be greater than zero, and so must jitter", field="retry_seconds")
        if self.lease_seconds < 1:
            raise ConfigError("must be at least one second: leases count whole seconds", field="lease_seconds")

    @property
    def request_seconds(self) -> float:
        """The longest a single request may take: a leader must have time for a second one."""
        return self.renew_seconds / 2


class LeaderElectionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the lease says. The times are for people; no rule reads them."""

    holder: str = ""
    duration_seconds: float = 0.0
    acquired: float = 0.0  # wall clock
    renewed: float = 0.0  # wall clock; differs with every renewal, which is how others notice
    transitions: int = 0


# -- events: what became of the last action


class Tick(msgspec.Struct, frozen=True, tag=True):
    """Nothing but time has passed."""


class Seen(msgspec.Struct, frozen=True, tag=True):
    """The lease was read."""

    record: LeaderElectionRecord
    version: str


class Missing(msgspec.Struct, frozen=True, tag=True):
    """The lease does not exist."""


class Written(msgspec.Struct, frozen=True, tag=True):
    """The write succeeded."""

    version: str


class WriteConflict(msgspec.Struct, frozen=True, tag=True):
    """Another candidate wrote first."""


class RequestFailed(msgspec.Struct, frozen=True, tag=True):
    """No usable answer; a write may have happened all the same."""


Event = Tick | Seen | Missing | Written | WriteConflict | RequestFailed


# -- actions: what to do next


class Read(msgspec.Struct, frozen=True, tag=True):
    """Read the lease."""

    timeout_seconds: float


class Write(msgspec.Struct, frozen=True, tag=True):
    """Write the lease over `version`; create it when that is empty."""

    record: LeaderElectionRecord
    version: str
    timeout_seconds: float


class Wait(msgspec.Struct, frozen=True, tag=True):
    """Do nothing for a while."""

    seconds: float


class Lost(msgspec.Struct, frozen=True, tag=True):
    """Stop acting, now."""

    reason: str


Action = Read | Write | Wait | Lost


class ElectionState(msgspec.Struct, frozen=True, kw_only=True):
    """What one candidate knows."""

    identity: str
    timing: LeaseTimings = LeaseTimings()
    record: LeaderElectionRecord | None = None  # the lease as last seen or written
    version: str = ""
    changed_at: float = 0.0  # when, on our clock, the record was first seen as it is
    sent: Write | None = None  # the write whose outcome we wait for…
    sent_at: float = 0.0  # …and when we sent it
    fast: bool = False  # whether that write was a renewal without reading first
    term_ends: float | None = None  # set while we believe to lead

    def leading(self, now: float) -> bool:
        """Whether this candidate may act at this instant."""
        return self.term_ends is not None and now < self.term_ends


def step(state: ElectionState, event: Event, now: float, *, wall: float, jitter: float) -> tuple[ElectionState, Action]:
    """What to know and do next. `wall` is the time in records; `jitter` in [0, 1) spreads the attempts of followers."""
    state = _learn(state, event, now)
    if state.term_ends is None:
        return _follow(state, event, now, wall, jitter)
    if now >= state.term_ends:
        lost = Lost(f"the lease could not be renewed within {state.timing.renew_seconds:g} s")
        return replace(state, term_ends=None), lost
    return _lead(state, event, now, wall)


def released(record: LeaderElectionRecord, wall: float) -> LeaderElectionRecord:
    """The record that releases a lease: it has no holder, and followers need not wait."""
    return replace(record, holder="", duration_seconds=1.0, renewed=wall)


def _learn(state: ElectionState, event: Event, now: float) -> ElectionState:
    match event:
        case Seen(record=record, version=version):
            if record != state.record:
                state = replace(state, record=record, changed_at=now)
            return replace(state, version=version, sent=None)
        case Written(version=version):
            assert state.sent is not None
            ends = state.sent_at + state.timing.renew_seconds
            return replace(state, record=state.sent.record, version=version, changed_at=now, sent=None, term_ends=ends)
        case Missing():
            return replace(state, record=None, version="", sent=None)
        case Tick() | WriteConflict() | RequestFailed():
            return replace(state, sent=None)


def _follow(state: ElectionState, event: Event, now: float, wall: float, jitter: float) -> tuple[ElectionState, Action]:
    timing = state.timing
    match event:
        case Tick():
            return state, Read(timing.request_seconds)
        case Missing():
            return _write(state, now, wall)
        case Seen(record=record):
            unchanged = now - state.changed_at
            if record.holder in ("", state.identity) or unchanged >= record.duration_seconds:
                return _write(state, now, wall)
        case _:
            pass
    return state, Wait(timing.retry_seconds * (1 + timing.jitter * jitter))


def _lead(state: ElectionState, event: Event, now: float, wall: float) -> tuple[ElectionState, Action]:
    assert state.term_ends is not None
    left = state.term_ends - now
    match event:
        case Seen(record=record) if record.holder != state.identity:
            reason = f"{record.holder or 'no process'} holds the lease now"
            return replace(state, term_ends=None), Lost(reason)
        case Tick():
            state, write = _write(state, now, wall)
            return replace(state, fast=True), write
        case Seen() | Missing():
            return _write(state, now, wall)
        case WriteConflict() | RequestFailed() if state.fast:
            return replace(state, fast=False), Read(min(state.timing.request_seconds, left))
        case Written() | WriteConflict() | RequestFailed():
            # near the end of the term attempts come closer together, so that one fits in before it
            pause = min(state.timing.retry_seconds, left / 2 if left > 0.2 else left)
            return replace(state, fast=False), Wait(pause)


def _write(state: ElectionState, now: float, wall: float) -> tuple[ElectionState, Write]:
    known = state.record or LeaderElectionRecord(transitions=-1)
    ours = known.holder == state.identity
    stamp = max(wall, known.renewed + 1e-5) if ours else wall  # a stopped clock is not a dead leader
    record = LeaderElectionRecord(
        holder=state.identity,
        duration_seconds=state.timing.lease_seconds,
        acquired=known.acquired if ours else wall,
        renewed=stamp,
        transitions=known.transitions if ours else known.transitions + 1,
    )
    timeout = state.timing.request_seconds
    if state.term_ends is not None:
        timeout = min(timeout, state.term_ends - now)
    write = Write(record, state.version, timeout)
    return replace(state, sent=write, sent_at=now, fast=False), write
