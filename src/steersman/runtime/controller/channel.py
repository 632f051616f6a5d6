"""Channels: keys without a watch, because the cause is in this process: another controller, a request, an answer.

    changed = Channel()
    Controller(ARecord, reconcile_record).watches_channel(changed)
    changed.send(ref)                                 # from anywhere: the event loop, or any thread

A queue belongs to one event loop. What another thread sends is handed to that loop, in the order in which it was sent.
What is sent before a controller is connected is kept, once per key with its earliest time, and handed over then. A
channel is memory: after a restart every controller reconciles all its objects anyway, so nothing is lost with it.
"""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Channel"]

INFINITY = float("inf")


class Channel:
    """From any number of senders to any number of queues."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held for both fields, never while a queue is called
        self._queues: list[tuple[asyncio.AbstractEventLoop | None, Callable[..., None]]] = []
        self._early: dict[Any, float | None] = {}

    def send(self, key: Any, *, after: float | None = None) -> None:
        """Have `key` reconciled by the connected controllers, `after` some seconds or at once. Any thread may send."""
        with self._lock:
            if not self._queues:
                known = self._early.get(key, INFINITY)
                self._early[key] = None if after is None or known is None else min(after, known)
            queues = list(self._queues)
        current = _running_loop()
        for loop, add in queues:
            if loop is None or loop is current:
                add(key, after=after)
            else:
                self._hand_over(loop, add, key, after)

    def connect(self, add: Callable[..., None]) -> None:
        """Hand everything to the queue that `add` adds to, from now on; to be called on the queue's event loop."""
        with self._lock:
            self._queues.append((_running_loop(), add))
            early, self._early = self._early, {}
        for key, after in early.items():
            add(key, after=after)

    def _hand_over(
        self, loop: asyncio.AbstractEventLoop, add: Callable[..., None], key: Any, after: float | None
    ) -> None:
        try:
            loop.call_soon_threadsafe(partial(add, key, after=after))
        except RuntimeError:  # the loop is closed, and its controllers have ended
            with self._lock:
                self._queues = [queue for queue in self._queues if queue != (loop, add)]


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
