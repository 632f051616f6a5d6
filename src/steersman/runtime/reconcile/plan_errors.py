"""A PlanError, reported on the object that caused it: the condition `Stalled`, and one Event for each cause.

    PlanError          ─► Stalled=True with the reason and the message of the error, and a Warning Event
    the same again     ─► nothing: neither a write nor an Event
    a reconcile passes ─► the condition is removed

`Stalled` is a condition of kstatus, so Flux, Argo CD and `kubectl wait` understand it: it exists only while something
is wrong. The stored condition is the memory of what was reported, so a restart repeats nothing. A kind whose class
declares no conditions gets the Event alone, and the memory of it is that of the process.

Invariant: reporting never changes the outcome of a reconcile. What the API server rejects is logged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.kube.api.errors import KubeError
from steersman.logger import Logger
from steersman.runtime.controller.struct_fields import field_type, structs_in
from steersman.runtime.reconcile.status_patch import CONDITIONS, as_conditions, conditions_of
from steersman.runtime.reconcile.write_guard import NotLeading

if TYPE_CHECKING:
    from steersman.errors import PlanError
    from steersman.runtime.reconcile.context import Context

__all__ = ["STALLED", "PlanErrorReporter", "has_conditions"]

STALLED: Final = "Stalled"

log = Logger(__name__)


def has_conditions(target: Any) -> bool:
    """Whether the class of a kind declares conditions, so that errors are reported there."""
    structs = structs_in(target, "status") if isinstance(target, type) else ()
    return any(field_type(struct, CONDITIONS) is not None for struct in structs)


class PlanErrorReporter:
    """Reports the errors of one controller; see the module's docstring."""

    def __init__(self, target: Any) -> None:
        """`target`: the kind that the controller is for."""
        self._target = target
        self._has_conditions = has_conditions(target)
        self._reported: dict[Any, tuple[str, str]] = {}  # of kinds without conditions

    def is_reported(self, key: Any, obj: Any) -> bool:
        """Whether the last reconcile of `obj` ended in a PlanError, as far as the object or this process knows."""
        if not self._has_conditions:
            return key in self._reported
        for entry in (obj.status and obj.status.conditions) or ():  # a loop: this is asked in every reconcile
            if (entry["type"] if isinstance(entry, dict) else entry.type) == STALLED:
                return True
        return False

    async def report(self, context: Context, key: Any, error: PlanError) -> None:
        """Say on the object of `key` why its reconcile failed, unless the object says so already."""
        obj = context.cache.live(self._target, key)
        if obj is None:
            return
        issue = (error.reason, str(error))
        if not self._has_conditions:
            is_new = self._reported.get(key) != issue
            self._reported[key] = issue
        else:
            try:
                is_new = await self._set(context, obj, issue)
            except (KubeError, NotLeading) as problem:
                log.warning("condition not written", condition=STALLED, reason=error.reason, error=str(problem))
                return
        if is_new:
            context.event(obj, error.reason, str(error), warning=True)

    async def clear(self, context: Context, key: Any) -> None:
        """The reconcile of `key` passed: remove what `report` wrote."""
        if self._reported.pop(key, None) is not None:
            return
        obj = context.cache.live(self._target, key)
        if obj is None:
            return
        left = [entry for entry in conditions_of(obj) if entry.get("type") != STALLED]
        try:
            await context.status(obj, conditions=as_conditions(obj, left))
        except (KubeError, NotLeading) as problem:
            log.warning("condition not removed", condition=STALLED, error=str(problem))

    def forget(self, key: Any) -> None:
        """The object no longer exists."""
        self._reported.pop(key, None)

    async def _set(self, context: Context, obj: Any, issue: tuple[str, str]) -> bool:
        """Whether the condition says something new; a new generation alone is not."""
        before = next((entry for entry in conditions_of(obj) if entry.get("type") == STALLED), {})
        await context.set_condition(obj, STALLED, True, reason=issue[0], message=issue[1])
        return (before.get("status"), before.get("reason"), before.get("message")) != ("True", *issue)
