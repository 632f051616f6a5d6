"""Stuck keys: they write in every reconcile, never end, or keep failing.

A stuck key stops no other key; but each is a defect somewhere, and costs the API server or a worker. So each is
reported: in the log when it begins and when it is over, in a metric, and as a warning of readiness, which stays ready
(a restart would not help).

- *writes*: the last `Limits.writes` reconciles all wrote something within `Limits.writes_seconds` and not longer ago
  than that, and no other client changed the object's spec in between (of a kind without generation: the object): two
  controllers that fight, or one that never agrees with the server's defaults.
- *hangs*: it has been running for `Limits.hang_seconds`.
- *fails*: it failed `Limits.failures` times in a row.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["KINDS", "Limits", "StuckKey", "StuckKeyTracker"]

KINDS: Final = ("writes", "hangs", "fails")
_REMEMBERED = 10_000  # keys whose writes are counted; those that were quiet for longest go first


log = Logger(__name__)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """From when on a key counts as stuck."""

    writes: int = 30  # reconciles in a row that wrote…
    writes_seconds: float = 300.0  # …within this time; a status that is renewed every few minutes is not a fight
    hang_seconds: float = 300.0
    failures: int = 10  # with the usual delays that is a few seconds to a minute


class StuckKey(msgspec.Struct, frozen=True):
    """One key, and what is wrong with it."""

    key: Any
    kind: str  # one of KINDS
    text: str

    def __str__(self) -> str:
        return f"{self.key} {self.text}"


class _Streak(msgspec.Struct):
    """Reconciles in a row that wrote."""

    ends: deque[float]  # when each ended
    version: int | str  # of the object's spec, as the last of them left it


class StuckKeyTracker:
    """What is known about the keys of one controller. No clock and no I/O but the log: times are handed in."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._running: dict[Any, float] = {}
        self._streaks: OrderedDict[Any, _Streak] = OrderedDict()
        self._failing: dict[Any, str] = {}
        self._errors: OrderedDict[Any, str] = OrderedDict()  # how each failed when it was last tried
        self._logged: dict[tuple[str, Any], str] = {}

    def began(self, key: Any, now: float) -> None:
        """A reconcile of `key` begins."""
        self._running[key] = now

    def ended(self, key: Any) -> None:
        """It is over, however."""
        self._running.pop(key, None)

    def wrote(self, key: Any, now: float, *, before: int | str, after: int | str) -> None:
        """It wrote; `before` and `after` are the versions of the object's spec."""
        known = self._streaks.get(key)
        if known is None or known.version != before:
            known = self._streaks[key] = _Streak(deque(maxlen=self.limits.writes), after)
        known.ends.append(now)
        known.version = after
        self._streaks.move_to_end(key)
        if len(self._streaks) > _REMEMBERED:
            self._streaks.popitem(last=False)

    def rested(self, key: Any) -> None:
        """It wrote nothing."""
        self._streaks.pop(key, None)

    def failed(self, key: Any, times: int, error: str) -> bool:
        """It failed, `times` in a row; whether it failed otherwise, or not at all, the time before."""
        if times >= self.limits.failures:
            self._failing[key] = f"failed {times} times in a row: {error}"
        is_new = self._errors.get(key) != error
        self._errors[key] = error
        self._errors.move_to_end(key)
        if len(self._errors) > _REMEMBERED:
            self._errors.popitem(last=False)
        return is_new

    def succeeded(self, key: Any) -> None:
        """It did not fail, or will not be tried again."""
        self._failing.pop(key, None)
        self._errors.pop(key, None)

    def forget(self, key: Any) -> None:
        """The object no longer exists, or the key belongs to another process."""
        self._streaks.pop(key, None)
        self.succeeded(key)

    def current(self, now: float) -> Iterator[StuckKey]:
        """The keys that are stuck now, and why."""
        for key, since in self._running.items():
            if now - since >= self.limits.hang_seconds:
                yield StuckKey(key, "hangs", f"has been running for {now - since:.0f} s")
        for key, streak in self._streaks.items():
            ends = streak.ends
            within = self.limits.writes_seconds
            if len(ends) == self.limits.writes and max(now - ends[-1], ends[-1] - ends[0]) <= within:
                text = f"wrote something in each of its last {len(ends)} reconciles though its spec did not change"
                yield StuckKey(key, "writes", text)
        for key, text in self._failing.items():
            yield StuckKey(key, "fails", text)

    def log_changes(self, now: float, controller: str) -> None:
        """Log the keys that became stuck since the last call, and those that no longer are."""
        current = {(stuck.kind, stuck.key): stuck.text for stuck in self.current(now)}
        for (kind, key), text in current.items():
            if (kind, key) not in self._logged:
                log.warning("a key is stuck", controller=controller, object=str(key), kind=kind, why=text)
        for kind, key in self._logged.keys() - current.keys():
            log.info("a key is no longer stuck", controller=controller, object=str(key), kind=kind)
        self._logged = current
