"""A function of your own that has the last word on a restart: a change goes in, a decision comes out.

    # in your package; pyproject.toml: [project.entry-points."steersman.reload.hooks"] night = "mine:decide"
    def decide(change):
        if change.workload.namespace == "shop" and "secret/db" in change.names:
            return hold("the database is being moved", seconds=600)
        return allow()

It is called once all gates are open, in a thread of its own, and they are asked again before its answer counts. An
exception, a hang or an answer that is no decision means what `reload.hook.onError` says: `allow` (the default:
configuration is applied) or `hold`. A call that hangs is left behind; until it returns no other one is made and the
default decides.
"""

from __future__ import annotations

import asyncio
import importlib
import math
import threading
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from steersman.errors import ConfigError
from steersman.operators.reload.forecast import WorkloadName
from steersman.operators.reload.plan import APPLYING, Action

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.clock import Clock
    from steersman.operators.reload.features import Features
    from steersman.operators.reload.look import Look

__all__ = ["GROUP", "Decision", "HookChange", "HookSource", "Judge", "allow", "change_of", "hold", "load_hook"]

GROUP: Final = "steersman.reload.hooks"
FRESH_SECONDS: Final = 30.0  # for so long an answer counts
LONGEST_SECONDS: Final = 86_400.0  # a function is asked again after a day, whatever it said
RETRY_SECONDS: Final = 60.0  # after a hold that names no time, and after a failure that holds


class HookSource(msgspec.Struct, frozen=True):
    """One source that changed."""

    kind: str
    namespace: str
    name: str
    keys: tuple[str, ...] = ()  # none: nobody knows which


class HookChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is about to happen. Names only: values of sources are never at hand."""

    workload: WorkloadName
    sources: tuple[HookSource, ...]
    at: float  # seconds since the epoch
    action: str = "restart"  # or track, call, evict
    wave: int = 0
    labels: dict[str, str] = {}  # of the workload
    restarts: tuple[float, ...] = ()  # when it was restarted lately

    @property
    def names(self) -> tuple[str, ...]:
        """The sources as people of the workload's namespace call them: `configmap/app`."""
        home = self.workload.namespace
        return tuple(
            f"{one.kind}/{one.name}" if one.namespace == home else f"{one.kind}/{one.namespace}/{one.name}"
            for one in self.sources
        )


class Decision(msgspec.Struct, frozen=True):
    """What the function says."""

    allowed: bool
    reason: str = ""
    seconds: float | None = None  # when to ask again

    def __str__(self) -> str:
        return "allow" if self.allowed else f"hold: {self.reason}"


def allow() -> Decision:
    """Go on."""
    return Decision(True)


def hold(reason: str, seconds: float | None = None) -> Decision:
    """Not now; ask again after `seconds` (a day at most), or after a minute."""
    return Decision(False, reason, seconds)


def load_hook(name: str) -> Callable[[HookChange], Any]:
    """The function behind the name of an entry point, or behind `module:function`."""
    points = {point.name: point for point in entry_points(group=GROUP)}
    if ":" not in name and name not in points:
        known = ", ".join(sorted(points)) or "none is installed"
        raise ConfigError(f'there is no hook "{name}" in the group {GROUP} ({known})', field="reload.hook.name")
    try:
        if ":" in name:
            module, _, attribute = name.partition(":")
            found = getattr(importlib.import_module(module), attribute)
        else:
            found = points[name].load()
    except Exception as error:
        raise ConfigError(f'"{name}" cannot be loaded: {error}', field="reload.hook.name") from error
    if not callable(found):
        raise ConfigError(f'"{name}" is not a function', field="reload.hook.name")
    function: Callable[[HookChange], Any] = found
    return function


def change_of(look: Look, now: float) -> HookChange:
    """The change that a plan is about to apply."""
    workload, plan = look.workload, look.plan
    return HookChange(
        workload=WorkloadName(type(workload).KIND.kind, workload.namespace, workload.name),
        sources=tuple(
            HookSource(one.source.kind.value, one.source.namespace, one.source.name, one.keys) for one in plan.changes
        ),
        at=now,
        action=plan.action.value,
        wave=look.policy.wave,
        labels=dict(workload.labels),
        restarts=tuple(map(float, plan.observed.applied.restarts if plan.observed.applied else ())),
    )


class _Answer(msgspec.Struct, frozen=True):
    """What the function said, and to what."""

    question: object
    decision: Decision
    at: float


def _question(look: Look) -> object:
    return look.plan.action, look.plan.changes  # by key, not by value: sources that never rest must not starve


class Judge:
    """Asks the function, and is safe from it."""

    def __init__(self, function: Callable[[HookChange], Any], *, timeout: float = 2.0, on_error: str = "allow") -> None:
        self._function = function
        self._timeout = timeout
        self._on_error = on_error
        self._busy: asyncio.Future[Any] | None = None  # a call that did not come back in time
        self._turn = asyncio.Lock()
        self._answers: dict[str, _Answer] = {}  # by uid of the workload
        self.failures = 0

    @classmethod
    def of(cls, on: Features) -> Judge | None:
        """The one that the configuration names."""
        if not on.hook.name:
            return None
        return cls(load_hook(on.hook.name), timeout=on.hook_timeout.total_seconds(), on_error=on.hook.on_error)

    async def ask(self, look: Look, clock: Clock) -> None:
        """Have the function decide about a look's plan; the answer counts for the next look that finds the same."""
        decision = await self.decide(change_of(look, clock.time()))
        now = clock.time()
        self._answers = {who: one for who, one in self._answers.items() if now - one.at < FRESH_SECONDS}
        self._answers[look.workload.metadata.uid] = _Answer(_question(look), decision, now)

    def verdict(self, look: Look, now: float) -> Look | None:
        """The look, with its plan held back when the function says so; None: it has not been asked about this.

        A function takes its time, in which others are restarted, and people freeze things. So an answer is never acted
        on by the look that asked, but by the next one.
        """
        if look.plan.action not in APPLYING:
            return look
        answer = self._answers.pop(look.workload.metadata.uid, None)
        if answer is None or answer.question != _question(look) or now - answer.at >= FRESH_SECONDS:
            return None
        decision = answer.decision
        if decision.allowed:
            return look
        due = now + (RETRY_SECONDS if decision.seconds is None else min(max(1.0, decision.seconds), LONGEST_SECONDS))
        held = replace(
            look.plan, action=Action.WAIT, gate="hook", reason=f"hook: {decision.reason}", due=due, state=None
        )
        return replace(look, plan=held)

    async def decide(self, change: HookChange) -> Decision:
        """What the function says, or the default when it says nothing sensible in time."""
        async with self._turn:
            if self._busy is not None and not self._busy.done():
                return self._default("an earlier call has not come back")
            self._busy = _in_a_thread(self._function, change)
            try:
                answer = await asyncio.wait_for(asyncio.shield(self._busy), self._timeout)
            except TimeoutError:
                return self._default(f"no answer within {self._timeout:g} s")
            except Exception as error:  # noqa: BLE001  # whatever somebody else's code raises
                return self._default(f"{type(error).__name__}: {error}")
        if answer is None or answer is True:
            return allow()
        if answer is False:
            return hold("it said no")
        if not isinstance(answer, Decision):
            return self._default(f"{type(answer).__name__} is no decision")
        problem = _problem_of(answer)
        return self._default(problem) if problem else answer

    def _default(self, why: str) -> Decision:
        self.failures += 1
        return allow() if self._on_error == "allow" else hold(f"the hook failed: {why}")


def _problem_of(decision: Decision) -> str:
    """What is wrong with a decision, whose types nobody has checked; empty when nothing is."""
    seconds: Any = decision.seconds
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and (not number or (isinstance(seconds, float) and math.isnan(seconds))):
        return f"seconds={str(seconds)[:100]!r} is not a number"
    allowed: Any = decision.allowed
    reason: Any = decision.reason
    if not (isinstance(allowed, bool) and isinstance(reason, str)):
        return "a decision is a boolean with a reason in words"
    return ""


def _in_a_thread(function: Callable[[HookChange], Any], change: HookChange) -> asyncio.Future[Any]:
    """Call it in a thread that the end of the process does not wait for."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if result.done():
            return
        if error is None:
            result.set_result(value)
        else:
            result.set_exception(error)
            result.exception()  # nobody may be waiting for it any more

    def work() -> None:
        value, failed = None, None
        try:
            value = function(change)
        except Exception as error:  # noqa: BLE001  # it is told to who asked
            failed = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, failed)

    threading.Thread(target=work, name="reload-hook", daemon=True).start()
    return result
