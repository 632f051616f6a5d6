"""The site: routes of the JSON API, the page and its files, for the manager's listener.

    site = attach(manager)              # `steersman run` does it; before the manager starts

Every answer carries the same headers: nothing may be loaded from elsewhere, nothing may be framed, nothing is cached
that is not named by its content.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

import msgspec
import structlog
from aiohttp import web

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import traceback_of
from steersman.runtime.http.authentication import AccessDenied
from steersman.runtime.http.server import peer_of
from steersman.web.access import COOKIE, AccessMode, PageAccess
from steersman.web.api import ENDPOINTS, PREFIX, BadParameter, HistoryParameters, read_parameters
from steersman.web.assets import static_digest, static_files
from steersman.web.change_authors import ChangeAuthors
from steersman.web.event_stream import EventStream
from steersman.web.health import HealthReader
from steersman.web.markup import relative_root
from steersman.web.model import ApiProblem
from steersman.web.openapi import openapi
from steersman.web.pages import PAGES, problem_page, sign_in_page
from steersman.web.reload_snapshot import reload_snapshot
from steersman.web.snapshot_cache import SnapshotCache

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from steersman.clock import Clock
    from steersman.runtime.manager.manager import Manager
    from steersman.web.api import ApiPath
    from steersman.web.markup import Element
    from steersman.web.model import PageSnapshot
    from steersman.web.pages import Page

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types steersman"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}

REVIEW_SECONDS: Final = 5.0

log = structlog.get_logger(__name__)


def attach(
    manager: Manager,
    mode: AccessMode = AccessMode.LOCAL,
    *,
    snapshot: Callable[[], PageSnapshot] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Site | None:
    """Serve page and API on the manager's listener; `snapshot` replaces what its operators know, for tests."""
    if mode is AccessMode.OFF or manager.health is None:
        return None
    health = HealthReader(manager, clock=clock)
    authors = ChangeAuthors(manager.cluster().client, clock=clock)
    snapshot = snapshot or functools.partial(reload_snapshot, manager)
    cache = SnapshotCache(manager, health, snapshot, authors=authors, clock=clock)
    reviews = manager.cluster().client.with_options(timeout=REVIEW_SECONDS, retry=False)  # a caller waits for it
    site = Site(cache, PageAccess(mode, reviews, clock=clock), taken=manager.health.paths)
    manager.health.add_routes(site.routes())
    manager.add_task("page samples", health.sample, leader_only=False)
    manager.add_task("page change authors", authors.run, leader_only=False)
    return site


class Site:
    """Answers requests."""

    def __init__(self, cache: SnapshotCache, access: PageAccess, *, taken: Collection[str] = ()) -> None:
        """`taken` are paths that operators serve: there, theirs is the answer."""
        self.cache = cache
        self._taken = taken
        cache.health_path = "/vitals" if "/health" in taken else "/health"
        cache.asks_for_tokens = access.mode is AccessMode.TOKEN
        self.access = access
        self._broadcast = EventStream(cache)

    def routes(self) -> list[web.AbstractRouteDef]:
        """Everything that is served."""
        return [
            *(web.get(f"{PREFIX}{endpoint.path}", self._guarded(self._api(endpoint))) for endpoint in ENDPOINTS),
            web.get(f"{PREFIX}/openapi.json", self._guarded(self._openapi)),
            web.get(f"{PREFIX}/events", self._guarded(self._events)),
            web.get(f"{PREFIX}/{{rest:.*}}", self._guarded(self._unknown)),
            *(web.get(page.path, self._guarded(self._page(page))) for page in PAGES if page.path not in self._taken),
            web.get("/sign-in", self._sign_in_form),
            web.post("/sign-in", self._sign_in),
            web.post("/sign-out", self._sign_out),
            web.get("/static/{digest}/{name}", self._static),
            web.get("/favicon.ico", self._icon),
        ]

    # -- who may -----------------------------------------------------------------------------------------------------

    def _guarded(self, handler: Handler) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            try:
                await self.access.check(request)
                return await handler(request)
            except AccessDenied as error:
                return self._refused(request, error)
            except BadParameter as error:
                return self._problem(request, str(error), 400)
            except web.HTTPException as error:
                return self._problem(request, error.reason, error.status)
            except (ConnectionError, TimeoutError):
                raise
            except Exception as error:  # noqa: BLE001  a failing view must not end anything else
                log.error("a view failed", path=request.path, traceback=traceback_of(error))  # noqa: TRY400  without locals
                return self._problem(request, f"this view failed: {type(error).__name__}", 500)

        return answer

    def _refused(self, request: web.Request, error: AccessDenied) -> web.Response:
        if error.status == 401 and not _wants_json(request):
            target = quote(request.path_qs, safe="/?=&")
            where = f"{relative_root(request.rel_url.raw_path)}sign-in?to={quote(target)}"
            return web.Response(status=303, headers={**HEADERS, "Location": where})
        return self._problem(request, str(error), error.status)

    def _problem(self, request: web.Request, text: str, status: int) -> web.Response:
        if _wants_json(request):
            return _json(ApiProblem(error=text, status=status), status)
        return _html(request, problem_page(text, status), status)

    async def _sign_in_form(self, request: web.Request) -> web.Response:
        return _html(request, sign_in_page(_inside(request.query.get("to", "/"))))

    async def _sign_in(self, request: web.Request) -> web.Response:
        """Keep the token in a cookie that scripts cannot read and other sites cannot send."""
        form = await request.post()
        token, target = str(form.get("token", "")).strip(), _inside(str(form.get("to", "/")))
        try:
            if self.access.mode is AccessMode.TOKEN:
                await self.access.check_token(token, peer_of(request))
        except AccessDenied as error:
            return _html(request, sign_in_page(target, str(error)), error.status)
        response = web.Response(status=303, headers={**HEADERS, "Location": f".{target}"})
        secure = request.secure or request.headers.get("X-Forwarded-Proto") == "https"
        # without a path a cookie is for the folder of this address: never for a neighbour behind the same proxy
        response.set_cookie(COOKIE, token, httponly=True, samesite="Strict", secure=secure, path="")
        return response

    async def _sign_out(self, _request: web.Request) -> web.Response:
        response = web.Response(status=303, headers={**HEADERS, "Location": "./sign-in"})
        response.set_cookie(COOKIE, "", max_age=0, path="")
        return response

    # -- what there is -----------------------------------------------------------------------------------------------

    def _api(self, endpoint: ApiPath) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            path = read_parameters(endpoint.within, {name: [value] for name, value in request.match_info.items()})
            query = read_parameters(endpoint.query, _grouped(request))
            value = endpoint.make(self.cache, path, query)
            if value is None:
                return _json(ApiProblem(error="not found", status=404), 404)
            return _json(value)

        return answer

    async def _openapi(self, _request: web.Request) -> web.Response:
        return _json(openapi())

    async def _events(self, request: web.Request) -> web.StreamResponse:
        return await self._broadcast.stream(request, HEADERS)

    async def _unknown(self, _request: web.Request) -> web.Response:
        return _json(ApiProblem(error=f"no such path: see {PREFIX}/openapi.json", status=404), 404)

    def _page(self, page: Page) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            query = _grouped(request)
            read: Any = read_parameters(HistoryParameters, query) if page.name == "history" else query
            shown = page.make(self.cache, dict(request.match_info), read)
            if shown is None:
                return _html(request, problem_page("This page does not exist, or its object was deleted.", 404), 404)
            return _html(request, shown)

        return answer

    async def _static(self, request: web.Request) -> web.Response:
        found = static_files().get(request.match_info["name"])
        if found is None or request.match_info["digest"] != static_digest():
            # another replica's page asks for its own version: no file of ours may be kept under that name
            raise web.HTTPNotFound(headers=HEADERS)
        body, media = found
        headers = {**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
        return web.Response(body=body, content_type=media, charset="utf-8", headers=headers)

    async def _icon(self, _request: web.Request) -> web.Response:
        body, media = static_files()["icon.svg"]
        return web.Response(body=body, content_type=media, charset="utf-8", headers=HEADERS)


def _grouped(request: web.Request) -> dict[str, list[str]]:
    return {name: request.query.getall(name) for name in request.query}


def _wants_json(request: web.Request) -> bool:
    return request.path.startswith("/api/")


def _inside(target: str) -> str:
    """A path of ours, whatever was asked for: a sign-in never redirects to another host."""
    parts = urlsplit(target)
    safe = target.startswith("/") and not target.startswith(("//", "/\\")) and not parts.netloc and not parts.scheme
    return target if safe and target.isprintable() else "/"


def _json(value: Any, status: int = 200) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, content_type="application/json", headers=HEADERS)


def _html(request: web.Request, page: Element, status: int = 200) -> web.Response:
    document = f"<!doctype html>\n{page.relative_to(request.rel_url.raw_path)}"
    return web.Response(text=document, status=status, content_type="text/html", headers=HEADERS)
