"""Who may look at the page.

    local   callers on this machine, which includes `kubectl port-forward`; the default
    token   who shows a token that the cluster knows (TokenReview) and may `get` the path /steersman/page
            (SubjectAccessReview): in a header, or in a cookie that the sign-in form sets
    open    everybody who reaches the address
    off     nobody: there is no page and no API

The path is one that API servers do not serve, so that no right that exists by default lets anybody in. A local caller
must also call us by a local name: a page on the internet whose name leads to 127.0.0.1 gets nothing.
"""

from __future__ import annotations

import hashlib
import ipaddress
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import SteersmanError
from steersman.kube.types.authorization import (
    NonResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
    TokenReview,
    TokenReviewSpec,
)

if TYPE_CHECKING:
    from aiohttp import web

    from steersman.clock import Clock
    from steersman.kube.client import Client

__all__ = ["COOKIE", "PAGE_PATH", "Access", "Denied", "Mode"]

PAGE_PATH: Final = "/steersman/page"
COOKIE: Final = "steersman_token"
REMEMBERED_SECONDS: Final = 60.0  # an answer about a token; as long as API servers remember them
REMEMBERED: Final = 1000  # tokens


class Mode(StrEnum):
    """Who may look."""

    LOCAL = "local"
    TOKEN = "token"  # noqa: S105  # a word
    OPEN = "open"
    OFF = "off"


class Denied(SteersmanError):  # noqa: N818  says what happened
    """This caller may not look."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class _Verdict(msgspec.Struct, frozen=True):
    until: float
    status: int = 200
    message: str = ""


class Access:
    """Decides about requests."""

    def __init__(self, mode: Mode, client: Client | None = None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.mode = mode
        self._client = client
        self._clock = clock
        self._verdicts: dict[bytes, _Verdict] = {}

    async def check(self, request: web.Request) -> None:
        """Return when the caller may look, else raise Denied."""
        if self.mode is Mode.LOCAL:
            if not (_loopback(_peer(request)) and _loopback(_host(request.headers.get("Host", "")))):
                raise Denied("the page answers to callers on this machine only (see --page)", status=403)
        elif self.mode is Mode.TOKEN:
            await self.check_token(_token(request))

    async def check_token(self, token: str) -> None:
        """Return when this token lets one in, else raise Denied."""
        if not token:
            raise Denied("a token is needed: Authorization: Bearer TOKEN, or sign in", status=401)
        name = hashlib.sha256(token.encode(errors="surrogatepass")).digest()
        verdict = self._verdicts.get(name)
        if verdict is None or verdict.until < self._clock.monotonic():
            verdict = await self._ask(token)
            if len(self._verdicts) >= REMEMBERED:
                self._verdicts.clear()
            self._verdicts[name] = verdict
        if verdict.status != 200:
            raise Denied(verdict.message, status=verdict.status)

    async def _ask(self, token: str) -> _Verdict:
        assert self._client is not None
        until = self._clock.monotonic() + REMEMBERED_SECONDS
        who = (await self._client.create(TokenReview(spec=TokenReviewSpec(token=token)))).status
        if not who.authenticated or who.user is None:
            return _Verdict(until, 401, "the cluster does not know this token")
        asked = SubjectAccessReviewSpec(
            user=who.user.username,
            uid=who.user.uid,
            groups=who.user.groups,
            extra=who.user.extra,
            non_resource_attributes=NonResourceAttributes(path=PAGE_PATH, verb="get"),
        )
        if (await self._client.create(SubjectAccessReview(spec=asked))).status.allowed:
            return _Verdict(until)
        rule = f'{{"nonResourceURLs":["{PAGE_PATH}"],"verbs":["get"]}}'
        return _Verdict(until, 403, f"{who.user.username} may not look: a ClusterRole with the rule {rule} allows it")


def _token(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else request.cookies.get(COOKIE, "")


def _peer(request: web.Request) -> str:
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return str(peer[0]) if peer else ""


def _host(header: str) -> str:
    """The name in a Host header.

    >>> _host("127.0.0.1:8080"), _host("[::1]:8080"), _host("localhost")
    ('127.0.0.1', '::1', 'localhost')
    """
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _loopback(name: str) -> bool:
    if name.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
