"""The ConfigMaps as they are: one watch per object, made when its name is known, and a memory of what was deleted.

One watch by name works with rights on names alone, and an object that loses a label stays in sight. A deletion brings
the last state of the object with it, which is how overrides survive it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.clock import Deadline
from steersman.errors import SteersmanError
from steersman.kube.errors import NotFound
from steersman.operators.toolset.objects import TargetMap, target_look

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.kube.resources import ObjectRef
    from steersman.runtime.context import Context

__all__ = ["Held", "NotSynced"]

SYNC_SECONDS = 20.0


class NotSynced(SteersmanError):  # noqa: N818  what happened
    """A ConfigMap cannot be watched."""


class Held:
    """What is known of the ConfigMaps of all targets."""

    def __init__(self, changed: Callable[[ObjectRef], None]) -> None:
        """`changed` is told the owner of an object that changed."""
        self._changed = changed
        self._informers: dict[ObjectRef, Any] = {}
        self._deleted: dict[ObjectRef, TargetMap] = {}

    async def get(self, ctx: Context, ref: ObjectRef, owner: ObjectRef) -> TargetMap | None:
        """The object as the watch shows it."""
        informer = self._informers.get(ref)
        if informer is None:
            informer = ctx.caches.informer(
                TargetMap,
                namespaces={ref.namespace},
                field_selector=f"metadata.name={ref.name}",
                transform=target_look,
            )
            self._informers[ref] = informer
            informer.add_handler(lambda old, new, initial: self._on_change(ref, owner, old, new, initial))
        if not informer.has_synced():
            try:
                async with Deadline(ctx.clock, SYNC_SECONDS):
                    await informer.wait_synced()
            except TimeoutError:
                problem = informer.health().problem or "no answer yet"
                raise NotSynced(f"configmap {ref} cannot be watched: {problem}") from None
        with informer.snapshot() as snapshot:
            found: TargetMap | None = snapshot.get(ref)
        return found

    async def read(self, ctx: Context, ref: ObjectRef) -> TargetMap | None:
        """The object as the server has it."""
        try:
            found: TargetMap = await ctx.client.get(TargetMap, ref.name, namespace=ref.namespace)
        except NotFound:
            return None
        return target_look(found)

    def wrote(self, obj: TargetMap) -> None:
        """Show a written object until the watch brings it."""
        informer = self._informers.get(obj.ref)
        if informer is not None:
            informer.record_write(obj)
        self._deleted.pop(obj.ref, None)

    def removed(self, obj: TargetMap) -> None:
        """Hide an object that we deleted."""
        informer = self._informers.get(obj.ref)
        if informer is not None:
            informer.record_delete(obj.ref, obj.metadata.uid)

    def watched(self, ref: ObjectRef) -> bool:
        """Whether there is a watch on it already."""
        return ref in self._informers

    def known(self, ref: ObjectRef) -> TargetMap | None:
        """The object as it was seen or written last, if it is there."""
        informer = self._informers.get(ref)
        if informer is None:
            return None
        with informer.snapshot() as snapshot:
            found: TargetMap | None = snapshot.get(ref)
        return found

    def last_of(self, ref: ObjectRef) -> TargetMap | None:
        """What a deleted object was at the end, if that was seen."""
        return self._deleted.get(ref)

    def _on_change(
        self, ref: ObjectRef, owner: ObjectRef, old: TargetMap | None, new: TargetMap | None, initial: bool
    ) -> None:
        if new is None and old is not None:
            self._deleted[ref] = old
        if not initial:
            self._changed(owner)
