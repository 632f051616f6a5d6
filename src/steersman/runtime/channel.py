"""Channels: keys that no watch brings, because the process itself has news: of a controller, a request, an answer.

    told = Channel()
    Controller(ARecord, reconcile_record).hears(told)
    told.send(ref)                                    # from anywhere on the event loop

What is sent before anybody listens is kept, once per key, and handed over then. A channel is memory: after a restart
every controller looks at all its objects anyway, so nothing is lost with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Channel"]


class Channel:
    """From any number of senders to any number of queues."""

    def __init__(self) -> None:
        self._queues: list[Callable[..., None]] = []
        self._early: dict[Any, float | None] = {}

    def send(self, key: Any, *, after: float | None = None) -> None:
        """Have `key` reconciled by whoever listens, `after` some seconds or at once."""
        if not self._queues:
            self._early[key] = after
        for add in self._queues:
            add(key, after=after)

    def connect(self, add: Callable[..., None]) -> None:
        """Hand everything to the queue that `add` adds to, from now on."""
        self._queues.append(add)
        while self._early:
            key, after = self._early.popitem()
            add(key, after=after)
