"""Live updates: server-sent events that say when a view is out of date.

    change   {"revision": 7}    the snapshot is another one: fetch again what you show
    beat     {"at": …}          nothing but a sign of life, every few seconds; health changes with every beat

One event per change at most, and never more than a few per second. A client that hears nothing for some beats has lost
the connection, whatever its socket says.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.web.snapshot_cache import SnapshotCache

LOOK_SECONDS: Final = 0.5  # between two looks for news
BEAT_SECONDS: Final = 5.0
LISTENERS: Final = 200  # at once; each costs a connection


class EventStream:
    """Tells listeners that something changed."""

    def __init__(self, cache: SnapshotCache) -> None:
        self._cache = cache
        self._listeners = 0

    async def stream(self, request: web.Request, headers: Mapping[str, str]) -> web.StreamResponse:
        """Answer with events until the caller leaves."""
        if self._listeners >= LISTENERS:
            raise web.HTTPServiceUnavailable(reason="too many listeners")
        response = web.StreamResponse(
            headers={**headers, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        )
        self._listeners += 1
        try:
            await response.prepare(request)
            await response.write(b"retry: 1000\n\n")
            await self._send_events(response)
        except (ConnectionResetError, ConnectionAbortedError):
            pass  # the caller has left
        finally:
            self._listeners -= 1
        return response

    async def _send_events(self, response: web.StreamResponse) -> None:
        sent, beat = -1, 0.0
        loop = asyncio.get_running_loop()
        while True:
            self._cache.snapshot()
            if self._cache.revision != sent:
                sent = self._cache.revision
                await response.write(_event("change", {"revision": sent}))
            if loop.time() >= beat:
                beat = loop.time() + BEAT_SECONDS
                await response.write(_event("beat", {"at": self._cache.now()}))
            await asyncio.sleep(LOOK_SECONDS)


def _event(name: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))
