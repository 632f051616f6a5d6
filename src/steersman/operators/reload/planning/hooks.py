"""The hook: a function of the user that decides last about a restart. A change goes in, a decision comes out.

    # in your package; pyproject.toml: [project.entry-points."steersman.reload.hooks"] night = "mine:decide"
    def decide(change):
        if change.workload.namespace == "shop" and "secret/db" in change.names:
            return hold("the database is being moved", seconds=600)
        return allow()

It is the last gate (`gates.CHAIN`). A gate only reads: when there is no answer yet, the plan is to ask. The reconciler
then calls the function in a thread of its own, and the next evaluation, with all other gates evaluated again, finds the
answer. An answer counts once, for the same change, for 30 s.

An exception, a hang or an invalid answer means what `reload.hook.onError` says: `allow` (the default) or `hold`. A call
that hangs is abandoned; until it returns, no other call is made and the default decides.
"""

from __future__ import annotations

import asyncio
import importlib
import math
import threading
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.errors import ConfigError
from steersman.operators.reload.planning.gates import PLANNED
from steersman.operators.reload.workloads.workload import WorkloadName

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.clock import Clock
    from steersman.operators.reload.api.config import Features
    from steersman.operators.reload.planning.evaluate import Evaluation

GROUP: Final = "steersman.reload.hooks"
FRESH_SECONDS: Final = 30.0  # how long an answer counts
LONGEST_SECONDS: Final = 86_400.0  # the function is asked again after a day, whatever it said
RETRY_SECONDS: Final = 60.0  # after a hold that names no time, and after a failure that holds


class HookSource(msgspec.Struct, frozen=True):
    """One source that changed."""

    kind: str
    namespace: str
    name: str
    keys: tuple[str, ...] = ()  # none: not known which


class HookChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is about to happen. Names only: the values of sources are not in memory."""

    workload: WorkloadName
    sources: tuple[HookSource, ...]
    at: float  # seconds since the epoch
    action: str = "restart"  # or track, call, evict
    wave: int = 0
    labels: dict[str, str] = {}  # of the workload
    restarts: tuple[float, ...] = ()  # when it was restarted lately

    @property
    def names(self) -> tuple[str, ...]:
        """The sources as seen from the workload's namespace: `configmap/app`."""
        home = self.workload.namespace
        return tuple(
            f"{source.kind}/{source.name}"
            if source.namespace == home
            else f"{source.kind}/{source.namespace}/{source.name}"
            for source in self.sources
        )


class Decision(msgspec.Struct, frozen=True):
    """What the function says."""

    allowed: bool
    reason: str = ""
    seconds: float | None = None  # when to ask again

    @property
    def wait_seconds(self) -> float:
        """How long a hold lasts."""
        return RETRY_SECONDS if self.seconds is None else min(max(1.0, self.seconds), LONGEST_SECONDS)

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


def change_of(evaluation: Evaluation, now: float) -> HookChange:
    """The change that a plan is about to apply."""
    workload, plan = evaluation.workload, evaluation.plan
    return HookChange(
        workload=WorkloadName(type(workload).KIND.kind, workload.namespace, workload.name),
        sources=tuple(
            HookSource(change.source.kind.value, change.source.namespace, change.source.name, change.keys)
            for change in plan.changes
        ),
        at=now,
        action=PLANNED[evaluation.policy.action.kind],
        wave=evaluation.policy.wave,
        labels=dict(workload.labels),
        restarts=tuple(map(float, plan.observed.applied.restarts if plan.observed.applied else ())),
    )


class _Answer(msgspec.Struct, frozen=True):
    """What the function said, about which change."""

    question: object  # the planned action, and sources and keys without values: sources that never rest must not starve
    decision: Decision
    at: float


class HookRunner:
    """Calls the function, with a timeout, and keeps its answers for the gate."""

    def __init__(self, function: Callable[[HookChange], Any], *, timeout: float = 2.0, on_error: str = "allow") -> None:
        self._function = function
        self._timeout = timeout
        self._on_error = on_error
        self._busy: asyncio.Future[Any] | None = None  # a call that did not return in time
        self._turn = asyncio.Lock()
        self._answers: dict[str, _Answer] = {}  # by uid of the workload
        self.failures = 0

    @classmethod
    def of(cls, on: Features) -> HookRunner | None:
        """The one that the configuration names."""
        if not on.hook.name:
            return None
        return cls(load_hook(on.hook.name), timeout=on.hook_timeout.total_seconds(), on_error=on.hook.on_error)

    def answer(self, uid: str, question: object, now: float) -> Decision | None:
        """The answer for the workload with this uid; None: it has not been asked, or not about this change."""
        answer = self._answers.get(uid)
        if answer is None or answer.question != question or now - answer.at >= FRESH_SECONDS:
            return None
        return answer.decision

    def forget(self, uid: str) -> None:
        """The answer has been used."""
        self._answers.pop(uid, None)

    async def ask(self, evaluation: Evaluation, clock: Clock) -> None:
        """Have the function decide about a plan; the answer counts for the next evaluation that finds the same.

        A function takes time, in which other workloads restart and people freeze things. So an answer is never acted on
        by the evaluation that asked for it.
        """
        question = PLANNED[evaluation.policy.action.kind], evaluation.plan.changes
        decision = await self.decide(change_of(evaluation, clock.time()))
        now = clock.time()
        self._answers = {uid: answer for uid, answer in self._answers.items() if now - answer.at < FRESH_SECONDS}
        self._answers[evaluation.workload.metadata.uid] = _Answer(question, decision, now)

    async def decide(self, change: HookChange) -> Decision:
        """What the function says, or the default when it gives no valid answer in time."""
        async with self._turn:
            if self._busy is not None and not self._busy.done():
                return self._default("an earlier call has not returned")
            self._busy = _in_a_thread(self._function, change)
            try:
                answer = await asyncio.wait_for(asyncio.shield(self._busy), self._timeout)
            except TimeoutError:
                return self._default(f"no answer within {self._timeout:g} s")
            except Exception as error:  # noqa: BLE001  # whatever the user's code raises
                return self._default(f"{type(error).__name__}: {error}")
        if answer is None or answer is True:
            return allow()
        if answer is False:
            return hold("the hook returned False")
        if not isinstance(answer, Decision):
            return self._default(f"{type(answer).__name__} is not a decision")
        problem = _problem_of(answer)
        return self._default(problem) if problem else answer

    def _default(self, why: str) -> Decision:
        self.failures += 1
        return allow() if self._on_error == "allow" else hold(f"the hook failed: {why}")


def _problem_of(decision: Decision) -> str:
    """What is wrong with a decision, whose types are unchecked; empty when nothing is."""
    seconds: Any = decision.seconds
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and (not number or (isinstance(seconds, float) and math.isnan(seconds))):
        return f"seconds={str(seconds)[:100]!r} is not a number"
    allowed: Any = decision.allowed
    reason: Any = decision.reason
    if not (isinstance(allowed, bool) and isinstance(reason, str)):
        return "a decision has a boolean and a text as reason"
    return ""


def _in_a_thread(function: Callable[[HookChange], Any], change: HookChange) -> asyncio.Future[Any]:
    """Call it in a daemon thread: the end of the process does not wait for it."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if result.done():
            return
        if error is None:
            result.set_result(value)
        else:
            result.set_exception(error)
            result.exception()  # retrieved: the caller may have given up

    def work() -> None:
        value, failed = None, None
        try:
            value = function(change)
        except Exception as error:  # noqa: BLE001  # passed on to the caller
            failed = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, failed)

    threading.Thread(target=work, name="reload-hook", daemon=True).start()
    return result
