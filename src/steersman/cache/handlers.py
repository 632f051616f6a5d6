"""The handlers of an informer: called in order, one at a time, each isolated from the others' failures."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from steersman.cache.identity import ref_of
from steersman.errors import traceback_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.cache.interfaces import EventHandler, HandlerRegistration
    from steersman.cache.metrics import ReflectorMetrics
    from steersman.cache.store import Delta

__all__ = ["Subscribers"]

T = TypeVar("T")

BATCH = 500  # deliveries between two breaths of the event loop, so that a large list does not stall everything else


class Subscribers(Generic[T]):
    """The handlers of one informer."""

    def __init__(self, synced: asyncio.Event, log: Any, metrics: ReflectorMetrics) -> None:
        self._synced = synced
        self._log = log
        self._metrics = metrics
        self._members: tuple[_Member[T], ...] = ()  # replaced when a handler is added or removed

    def add(self, handler: EventHandler[T], known: Iterable[T]) -> HandlerRegistration:
        """Call `handler` for every change from now on, and for all known objects as initial creations."""
        member = _Member(self, handler)
        self._members = (*self._members, member)
        for obj in known:
            self._call((member,), None, obj, initial=True)
        return member

    def deliver(self, replaced: Sequence[T | None], objects: Sequence[T | None]) -> None:
        """Call all present handlers with each of `objects` and what it replaced, in order, handler by handler."""
        for member in self._members:
            handler = member.handler
            for old, new in zip(replaced, objects, strict=True):
                if not member.active:
                    break
                try:
                    handler(old, new, False)
                except Exception as error:  # noqa: BLE001  # whatever a handler does, the store and others go on
                    self._failed(error, old, new)

    async def deliver_all(self, changes: Sequence[Delta[T]], *, initial: bool) -> None:
        """Call all present handlers; one that is added meanwhile has the new state already.

        The store has the changes, so nothing would deliver them later: a cancelled delivery goes on to its end at once.
        """
        members, rest = self._members, iter(changes)
        try:
            while batch := list(islice(rest, BATCH)):
                self._call_all(members, batch, initial)
                await asyncio.sleep(0)
        finally:
            self._call_all(members, rest, initial)

    def forget(self, member: _Member[T]) -> None:
        """Call `member` no more."""
        if member.active:
            member.active = False
            self._members = tuple(known for known in self._members if known is not member)

    def has_synced(self) -> bool:
        """Whether the first complete list has been handled."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return once `has_synced()`."""
        await self._synced.wait()

    def _call_all(self, members: tuple[_Member[T], ...], changes: Iterable[Delta[T]], initial: bool) -> None:
        for change in changes:
            self._call(members, change.old, change.new, initial=initial and change.old is None)

    def _call(self, members: tuple[_Member[T], ...], old: T | None, new: T | None, *, initial: bool) -> None:
        for member in members:
            if not member.active:
                continue
            try:
                member.handler(old, new, initial)
            except Exception as error:  # noqa: BLE001  # whatever a handler does, the store and the others go on
                self._failed(error, old, new)

    def _failed(self, error: Exception, old: T | None, new: T | None) -> None:
        self._metrics.handler_errors.inc()
        about = str(ref_of(old if new is None else new))
        self._log.error("an event handler failed", object=about, traceback=traceback_of(error))


class _Member(Generic[T]):
    """One handler's place."""

    def __init__(self, group: Subscribers[T], handler: EventHandler[T]) -> None:
        self.handler = handler
        self.active = True
        self._group = group

    def has_synced(self) -> bool:
        return self._group.has_synced()

    async def wait_synced(self) -> None:
        await self._group.wait_synced()

    def remove(self) -> None:
        self._group.forget(self)
