"""Who may read the page and its API.

    local   callers on this machine, which includes `kubectl port-forward`; the default
    token   callers with a token that the cluster accepts (TokenReview) and that may `get` the path /steersman/page
            (SubjectAccessReview): in a header, or in a cookie that the sign-in form sets
    open    every caller
    off     no page and no API

API servers do not serve this path, so no right that exists by default gives access. A local caller must also use a
local host name: a page on the internet whose name resolves to 127.0.0.1 gets nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from steersman.clock import SYSTEM_CLOCK
from steersman.kube.api.types.authorization import NonResourceAttributes
from steersman.runtime.http.authentication import AccessDenied, TokenAuthenticator, bearer_token
from steersman.runtime.http.server import is_local_caller, peer_of

if TYPE_CHECKING:
    from aiohttp import web

    from steersman.clock import Clock
    from steersman.kube.client.client import Client

PAGE_PATH: Final = "/steersman/page"
COOKIE: Final = "steersman_token"


class AccessMode(StrEnum):
    """Who may look."""

    LOCAL = "local"
    TOKEN = "token"  # noqa: S105  # a word
    OPEN = "open"
    OFF = "off"


class PageAccess:
    """Decides about requests."""

    def __init__(self, mode: AccessMode, client: Client | None = None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.mode = mode
        self._cluster = TokenAuthenticator(client, clock=clock) if client is not None else None

    async def check(self, request: web.Request) -> None:
        """Return when the caller may look, else raise AccessDenied."""
        if self.mode is AccessMode.LOCAL:
            if not is_local_caller(request):
                raise AccessDenied(403, "the page answers to callers on this machine only (see --page)")
        elif self.mode is AccessMode.TOKEN:
            await self.check_token(_token(request), peer_of(request))

    async def check_token(self, token: str, peer: str) -> None:
        """Return when this token, shown from `peer`, lets a caller in; else raise AccessDenied."""
        assert self._cluster is not None
        user = await self._cluster.authenticate(token, peer=peer)
        await self._cluster.authorize(user, path=NonResourceAttributes(path=PAGE_PATH, verb="get"))


def _token(request: web.Request) -> str:
    return bearer_token(request.headers.get("Authorization", "")) or request.cookies.get(COOKIE, "")
