"""Field handlers: a function that is called with the old and the new value when a field of an object changed.

    Controller(Site, reconcile).on_field("spec.image", image_changed)

    async def image_changed(ctx, site, change):
        ctx.event(site, "ImageChanged", f"{change.old} -> {change.new}")

The worker calls it before the reconcile, with the same context and snapshot. `old` is the value for which it last
succeeded, so a call that fails is repeated with the retries of the key, and several quick changes become one. The
values are memory: the first one that a process sees is the beginning, and what changed while no process ran is not
reported. What must become true in any case belongs into the reconciler, which asks for the present state only.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

__all__ = ["FieldChange", "FieldHandler", "copied"]


class FieldChange(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a field; None where it was, or is, not there."""

    path: str
    old: Any
    new: Any


class FieldHandler(msgspec.Struct, frozen=True):
    """One row of a controller's table."""

    path: str
    handler: Any  # (Context, object, FieldChange), async or not

    @property
    def route(self) -> list[str]:
        """The path in parts."""
        return self.path.split(".")


def copied(value: Any) -> Any:
    """A value that no reader of the object can change."""
    return value if isinstance(value, str | int | float | None) else copy.deepcopy(value)
