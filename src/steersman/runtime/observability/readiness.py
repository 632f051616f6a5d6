"""Whether a process is ready, why not, and the warnings of one that is ready.

Not ready is a source that has not synced, or that is down as a whole; a task that is down; a check that fails. An issue
of single objects, names, namespaces or keys is a warning: taking the process out of service would stop everything that
is well, among it the webhook that the repair of the rest has to pass.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import ConfigError, SteersmanError
from steersman.logger import Logger
from steersman.runtime.observability.metrics import NAMED_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from steersman.cache.interfaces import Informer, SourceHealth
    from steersman.clock import Clock
    from steersman.runtime.controller.runner import ControllerRunner

__all__ = ["Readiness", "SyncTimeout"]

PATIENCE_SECONDS = 10.0  # before the first complaint about sources that are not synced; doubles from one to the next…
LONGEST_PATIENCE = 300.0  # …up to this
_REQUEST = re.compile(r" \([A-Z]+ [^)]*\)")  # what an error says about the request it belongs to

log = Logger(__name__)


class SyncTimeout(SteersmanError):  # noqa: N818  says what happened
    """Sources were not synced in time."""


class Readiness:
    """Asks everything that should work."""

    def __init__(
        self,
        *,
        informers: Callable[[], Iterable[Informer[Any]]],
        runners: Callable[[], Iterable[ControllerRunner]],
        tasks: Callable[[], Mapping[str, str]],
        stopping: Callable[[], bool],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`tasks` says which are down, and why."""
        self._informers = informers
        self._runners = runners
        self._tasks = tasks
        self._stopping = stopping
        self._clock = clock
        self._checks: dict[str, Callable[[], str | None]] = {}

    def add_check(self, name: str, problem: Callable[[], str | None]) -> None:
        """One more condition: `problem` answers None while all is well. Names are unique."""
        if name in self._checks:
            raise ConfigError(f"there are two checks called {name}: give one another name", field="checks")
        self._checks[name] = problem

    def sources(self) -> list[SourceHealth]:
        """How every watch is doing."""
        return [informer.health() for informer in self._informers()]

    def ready(self) -> dict[str, str | None]:
        """Every condition, with what is wrong with it."""
        results: dict[str, str | None] = {}
        for health in self.sources():
            waiting = None if health.synced else "not synced yet"
            name = f"source {health.name}"  # two classes for the same objects share it: one that is well hides nothing
            results[name] = results.get(name) or (waiting and health.problem) or _failure(health) or waiting
        results["tasks"] = "; ".join(f"{task}: {why}" for task, why in self._tasks().items()) or None
        results["stopping"] = "asked to stop" if self._stopping() else None
        return results | {name: _asked(check) for name, check in self._checks.items()}

    def details(self) -> dict[str, str]:
        """What there is to say about conditions that hold: how far every source has come."""
        return {f"source {health.name}": _progress(health) for health in self.sources()}

    def unknown(self) -> dict[str, str]:
        """Sources of which nothing is known, and why, though nothing waits for them."""
        return {f"source {health.name}": health.unknown for health in self.sources() if health.unknown is not None}

    def warnings(self) -> list[str]:
        """Issues of a process that is ready."""
        found = [
            f"source {health.name}: {health.problem}" for health in self.sources() if health.synced and health.partial
        ]
        for runner in self._runners():
            found += [f"controller {runner.name}: {source.problem}" for source in runner.sources if source.problem]
            found += [f"controller {runner.name}: {stuck}" for stuck in runner.stuck_keys()[:NAMED_KEYS]]
        return found

    async def watch_sync(self, limit_seconds: float | None = None) -> None:
        """Complain about sources that are not synced, less often with time; give up on them if there is a limit."""
        began, patience = self._clock.monotonic(), PATIENCE_SECONDS
        while True:
            waited = self._clock.monotonic() - began
            await self._clock.sleep(patience if limit_seconds is None else min(patience, limit_seconds - waited))
            waited = self._clock.monotonic() - began
            late = [health for health in self.sources() if not health.synced]
            alike: dict[str | None, list[str]] = {}
            for health in late:
                alike.setdefault(health.problem and _REQUEST.sub("", health.problem), []).append(health.name)
            for problem, names in alike.items():
                log.warning("not synced", sources=", ".join(names), problem=problem, waited_seconds=int(waited))
            patience = min(patience * 2, LONGEST_PATIENCE) if late else PATIENCE_SECONDS
            if limit_seconds is not None and waited >= limit_seconds:
                if late:
                    found = "; ".join(f"{health.name} ({health.problem or 'no answer yet'})" for health in late)
                    raise SyncTimeout(f"not synced within {limit_seconds:g} s: {found}")
                limit_seconds = None


def _failure(health: SourceHealth) -> str | None:
    return None if health.partial else health.problem


def _progress(health: SourceHealth) -> str:
    age = health.last_event_seconds
    heard = "no event yet" if age is None else f"last event {age:.0f} s ago"
    if health.coverage and not health.objects:
        return health.coverage
    objects = f"{health.objects} objects{f' ({health.coverage})' if health.coverage else ''}"
    return f"{objects}, resourceVersion {health.resource_version or 'unknown'}, {heard}"


def _asked(check: Callable[[], str | None]) -> str | None:
    try:
        return check()
    except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
        return f"the check itself failed: {type(error).__name__}: {error}"
