"""Credentials from an OpenID Connect provider: the `oidc` auth-provider of kubeconfig.

The id token is used until shortly before it expires; then the issuer's token endpoint, found by discovery, gives a
new one for the refresh token. New tokens live in memory only: the kubeconfig is the user's, and we do not write to it.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from steersman.clock import Clock, Deadline
from steersman.kube.api.errors import CredentialsFailed
from steersman.kube.config.credentials import bearer, jwt_expiry
from steersman.kube.config.reloading_file import Material

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.kube.config.config import Config, OIDCProvider
    from steersman.kube.config.credentials import KeyPair

__all__ = ["OIDCCredentials"]

T = TypeVar("T")

_EARLY: Final = 10.0  # seconds before its end that a token counts as expired, for clocks differ
_LIMIT: Final = 30.0  # seconds for a refresh
_MAX_ANSWER: Final = 2**20


class _Discovery(msgspec.Struct):
    token_endpoint: str = ""


class _Tokens(msgspec.Struct):
    id_token: str | None = None
    refresh_token: str | None = None


class OIDCCredentials:
    """The id token of one user, renewed as needed."""

    def __init__(self, provider: OIDCProvider, config: Config, *, clock: Clock) -> None:
        self._provider = provider
        self._config = config
        self._clock = clock
        self._refresh_token = provider.refresh_token
        self._headers: Mapping[str, str] = {}
        self._expires = float("-inf")
        self._refreshing = asyncio.Lock()
        if provider.id_token:
            self._adopt(provider.id_token)

    async def headers(self) -> Mapping[str, str]:
        async with self._refreshing:
            if self._clock.time() + _EARLY >= self._expires:
                self._adopt(await self._refresh())
            return self._headers

    async def certificate(self) -> KeyPair | None:
        return None

    def invalidate(self, used: Mapping[str, str]) -> bool:
        if used is self._headers:
            self._expires = float("-inf")
        return bool(self._refresh_token)

    def hint(self) -> str:
        return f"the id token of {self._provider.issuer} was refused: log in again"

    def _adopt(self, token: str) -> None:
        expires = jwt_expiry(token)
        if expires is None:
            raise self._failed("the id token is not a JSON Web Token with an expiry")
        self._headers, self._expires = bearer(token), expires

    async def _refresh(self) -> str:
        if not self._refresh_token:
            raise self._failed("the id token has expired and the user has no refresh-token")
        try:
            async with Deadline(self._clock, _LIMIT), self._session() as session:
                endpoint = await self._token_endpoint(session)
                tokens = await self._ask(session, endpoint)
        except TimeoutError:
            raise self._failed(f"no answer within {_LIMIT:g} seconds") from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._failed(f"the issuer cannot be reached ({type(error).__name__})") from None
        if not tokens.id_token:
            raise self._failed("the issuer gave no id_token: was the scope openid asked for at login?")
        self._refresh_token = tokens.refresh_token or self._refresh_token
        return tokens.id_token

    async def _token_endpoint(self, session: aiohttp.ClientSession) -> str:
        url = f"{self._provider.issuer.rstrip('/')}/.well-known/openid-configuration"
        async with session.get(url, allow_redirects=False) as answer:
            if answer.status != 200:
                raise self._failed(f"discovery answered with HTTP status {answer.status}")
            found = await self._decode(answer, _Discovery)
        if urlsplit(found.token_endpoint).scheme not in {"https", urlsplit(url).scheme}:
            raise self._failed("discovery gave no token_endpoint that a refresh token may be sent to")
        return found.token_endpoint

    async def _ask(self, session: aiohttp.ClientSession, endpoint: str) -> _Tokens:
        """Client authentication in the header first, then in the form: providers accept one or the other."""
        provider = self._provider
        form = {"grant_type": "refresh_token", "refresh_token": self._refresh_token}
        pair = f"{quote(provider.client_id, safe='')}:{quote(provider.client_secret, safe='')}"
        basic = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        in_form = {**form, "client_id": provider.client_id, "client_secret": provider.client_secret}
        refusals: list[str] = []
        for headers, data in ((basic, form), ({}, in_form)):
            async with session.post(endpoint, data=data, headers=headers, allow_redirects=False) as answer:
                if answer.status == 200:
                    return await self._decode(answer, _Tokens)
                refusals.append(str(answer.status))
        raise self._failed(f"the issuer refused the refresh token (HTTP status {', then '.join(refusals)})")

    def _session(self) -> aiohttp.ClientSession:
        authorities = None
        if self._provider.ca is not None:
            field = "idp-certificate-authority"
            authorities = Material.of(self._provider.ca, self._clock, field=field, where=self._config.source).read()
        try:
            context = ssl.create_default_context(cadata=authorities and authorities.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise self._failed("idp-certificate-authority holds no PEM certificate") from None
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def _decode(self, answer: aiohttp.ClientResponse, shape: type[T]) -> T:
        body = await answer.content.read(_MAX_ANSWER)
        while len(body) < _MAX_ANSWER and (more := await answer.content.read(_MAX_ANSWER - len(body))):
            body += more
        try:
            return msgspec.json.decode(body, type=shape)
        except msgspec.DecodeError:
            raise self._failed("the issuer answered something that is not JSON") from None

    def _failed(self, what: str) -> CredentialsFailed:
        return CredentialsFailed(
            f"OpenID Connect login at {self._provider.issuer}: {what}; log in again ({self._config.source})"
        )
