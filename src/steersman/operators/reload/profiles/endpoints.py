"""The paths of the originals, on the listener that serves everything else too. Ours stay where an original has none.

shipshape   /leadz   200 ok or 503 not leader        /readyz  200 ready=true leader=true, or 503 with what is missing
reloader    /live    200
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["routes_for"]


def routes_for(name: str, *, ready: Callable[[], bool], leading: Callable[[], bool]) -> Sequence[web.RouteDef]:
    """What the original of that profile serves beside metrics."""

    async def leadz(_request: web.Request) -> web.Response:
        return web.Response(text="ok") if leading() else web.Response(text="not leader", status=503)

    async def readyz(_request: web.Request) -> web.Response:
        now = ready(), leading()
        text = f"ready={str(now[0]).lower()} leader={str(now[1]).lower()}"
        return web.Response(text=text, status=200 if all(now) else 503)

    async def live(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    if name == "shipshape":
        return [web.get("/leadz", leadz), web.get("/readyz", readyz)]
    if name == "reloader":
        return [web.get("/live", live)]
    return []
