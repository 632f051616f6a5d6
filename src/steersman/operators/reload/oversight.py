"""Oversight: what stands above the controllers of one process. Whether they may write, who hears of it, and the end.

    held(...)     why nothing may be written now (another controller leads, or this process only compares); looks go on
    looked(...)   every plan, with whether it was written; failed(...): what the server would not have
    hurry()       before the process ends: what waits only for its window is restarted now

It decides nothing about workloads. Without anybody above them controllers write, and nobody listens.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from steersman.operators.reload.types import Window

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection

    from steersman.kube.errors import KubeError
    from steersman.kube.resources import ObjectRef
    from steersman.operators.reload.hooks import Judge
    from steersman.operators.reload.ledger import Ledger, Observed
    from steersman.operators.reload.look import Look
    from steersman.operators.reload.plan import Plan
    from steersman.operators.reload.types import Options

__all__ = ["AT_ONCE", "Listener", "Oversight"]

AT_ONCE: Final = Window(quiet=timedelta(0), limit=timedelta(0))


class Listener(Protocol):
    """Somebody who hears what the controllers do."""

    def looked(self, look: Look, *, written: bool) -> None:
        """A plan was made, and carried out as far as there was anything to write and it might be written."""

    def failed(self, look: Look, error: KubeError) -> None:
        """What the plan asks for could not be written."""


class Oversight:
    """See the module."""

    def __init__(self, *listeners: Listener, pretends: bool = False) -> None:
        """`pretends`: nothing is ever written, and plans go on as if it had been."""
        self.listeners = list(listeners)
        self.reasons: list[Callable[[str | None], str | None]] = []  # in a namespace; None: in all of them
        self.ledgers: dict[str, Ledger] = {}  # by the name of their controller
        self.pretends = pretends
        self.judge: Judge | None = None  # a function of the user's that has the last word
        self.preparing: list[Callable[[Look], Look]] = []  # who must know beforehand what is about to be carried out
        self._hurry = False
        self._answered: set[tuple[str, ObjectRef]] = set()  # looked at since, whatever came of it
        self._before: list[asyncio.Event] = []

    def guard(self, reason: Callable[[str | None], str | None], *, after: asyncio.Event) -> None:
        """Write nothing while there is a reason, and nothing at all before `after` is set."""
        self.reasons.append(reason)
        self.wait_for(after)

    def wait_for(self, event: asyncio.Event) -> None:
        """Look at nothing, and write nothing, before `event` is set."""
        self._before.append(event)

    def prepared(self, look: Look) -> Look:
        """The look that is carried out now, after everybody has heard of it who must know beforehand."""
        for prepare in self.preparing:
            look = prepare(look)
        return look

    async def opened(self) -> None:
        """Return when it is known whether anything may be written."""
        for event in self._before:
            await event.wait()

    def held(self, namespace: str | None = None) -> str | None:
        """Why nothing may be written in `namespace`; None: why nothing may be written at all."""
        if self.pretends:
            return "this process only compares"
        return next((why for reason in self.reasons if (why := reason(namespace)) is not None), None)

    def looked(self, look: Look, *, written: bool) -> None:
        """Tell everybody."""
        self._note(look)
        for listener in self.listeners:
            listener.looked(look, written=written)

    def failed(self, look: Look, error: KubeError) -> None:
        """Tell everybody."""
        self._note(look)
        for listener in self.listeners:
            listener.failed(look, error)

    def _note(self, look: Look) -> None:
        if self._hurry:  # before, nobody asks, and names of workloads that are long gone would pile up
            self._answered.add((f"reload-{type(look.workload).KIND.plural}", look.workload.ref))

    def pretended(self, plan: Plan) -> Observed:
        """What to remember of a plan that is not carried out: as if it were, for one who only compares."""
        if not self.pretends or plan.state is None:
            return plan.observed
        return replace(plan.remembered(written=True), wiped=())  # what was never written was not removed either

    def hurry(self) -> None:
        """From now on no window holds anything back."""
        self._hurry = True
        self._answered.clear()

    def hurried(self, options: Options) -> Options:
        """The options as they are now."""
        return replace(options, window=AT_ONCE) if self._hurry else options

    def unanswered(self, name: str, refs: Collection[ObjectRef]) -> set[ObjectRef]:
        """Those of a controller's workloads that still wait and were not looked at since the hurry began."""
        waiting = set(self.ledgers[name].waiting()).intersection(refs)
        return {ref for ref in waiting if (name, ref) not in self._answered}

    def waiting(self) -> dict[str, list[ObjectRef]]:
        """The workloads with changes that wait, by controller."""
        return {name: ledger.waiting() for name, ledger in self.ledgers.items()}
