"""Calls webhooks over HTTPS: where they listen, whom to trust, and how long to wait.

A webhook by `url` is called there. One by `service` is called at the address that `services` gives for it, or at the
external name of the Service; its certificate must be for `NAME.NAMESPACE.svc` either way. There is no service network,
so a Service with a cluster IP needs an entry in `services`.
"""

from __future__ import annotations

import asyncio
import ssl
from posixpath import normpath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from steersman.apiserver.admission.review import GROUP, KIND, InvalidAnswer, verified
from steersman.apiserver.resources.conversion_webhook import TIMEOUT, conversion_review, converted_objects
from steersman.apiserver.write.service_allocator import SERVICE
from steersman.clock import Deadline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.apiserver.admission.chain import AdmissionOutcome, WebhookCall
    from steersman.apiserver.admission.configurations import WebhookTarget
    from steersman.apiserver.http.state import Api
    from steersman.apiserver.resources.conversion_webhook import Conversion, ConversionOutcome

JSON = dict[str, Any]
_encode = msgspec.json.Encoder().encode
_HEADERS = {
    "Accept": "application/json",
    "Content-Type": "application/json",
    "User-Agent": "kube-apiserver-admission",
}
SHOWN_BODY = 500  # characters of an unexpected response in a message


class CallFailed(Exception):  # noqa: N818  says what happened
    """A webhook could not be called, or did not answer with success."""


class WebhookCaller:
    """The HTTP client for webhooks. `services` maps `namespace/name` to `host:port`."""

    def __init__(self, api: Api, services: Mapping[str, str]) -> None:
        self._api = api
        self._services = services
        self._session: aiohttp.ClientSession | None = None
        self._trust: dict[str, ssl.SSLContext] = {}

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def review(self, calls: list[WebhookCall]) -> list[AdmissionOutcome]:
        """The outcomes of calls that are made at the same time."""
        return await asyncio.gather(*(self._reviewed(call) for call in calls))

    async def _reviewed(self, call: WebhookCall) -> AdmissionOutcome:
        webhook, uid = call.webhook, self._api.uid()
        version = f"{GROUP}/{webhook.review_version}"
        body = {"kind": KIND, "apiVersion": version, "request": {"uid": uid, **call.question}}
        try:
            answer = await self.post(webhook.target, _encode(body), timeout=webhook.timeout)
        except CallFailed as error:
            return f"failed to call webhook: {error}"
        try:
            return verified(webhook, uid, answer)
        except InvalidAnswer as error:
            return f"received invalid webhook response: {error}"

    async def convert(self, conversions: list[Conversion]) -> list[ConversionOutcome]:
        """Objects in other versions; one call for all objects that are wanted in the same version."""
        outcomes: dict[int, ConversionOutcome] = {}
        for api_version in dict.fromkeys(item.api_version for item in conversions):
            chosen = [at for at, item in enumerate(conversions) if item.api_version == api_version]
            answers = await self._convert([conversions[at] for at in chosen])
            outcomes |= dict(zip(chosen, answers, strict=True))
        return [outcomes[at] for at in range(len(conversions))]

    async def _convert(self, conversions: list[Conversion]) -> list[ConversionOutcome]:
        webhook, uid = conversions[0].webhook, self._api.uid()
        try:
            body = await self.post(webhook.target, conversion_review(webhook, uid, conversions), timeout=TIMEOUT)
            return converted_objects(webhook, uid, conversions, body)
        except (CallFailed, ValueError) as error:
            return [str(error)] * len(conversions)

    async def post(self, target: WebhookTarget, body: bytes, *, timeout: float) -> bytes:
        """The body of a successful response."""
        url, name = self._address(target)
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=_HEADERS, timeout=aiohttp.ClientTimeout(None))
        shown = f'Post "{url}?timeout={timeout}s"'
        try:
            async with (
                Deadline(self._api.clock, timeout),
                self._session.post(
                    url,
                    params={"timeout": f"{timeout}s"},
                    data=body,
                    ssl=self._context(target.ca_pem),
                    server_hostname=name,
                    allow_redirects=False,
                ) as response,
            ):
                answer = await response.read()
        except TimeoutError:
            raise CallFailed(f"{shown}: context deadline exceeded") from None
        except (aiohttp.ClientError, OSError, ssl.SSLError, ValueError) as error:
            raise CallFailed(f"{shown}: {error}") from None
        if not 200 <= response.status < 300:
            text = answer.decode(errors="replace").strip()[:SHOWN_BODY]
            raise CallFailed(f'an error on the server ("{text}") has prevented the request from succeeding')
        return answer

    def _address(self, target: WebhookTarget) -> tuple[str, str | None]:
        """The URL to call, and the name that the certificate must be for when it is not the URL's."""
        if target.url:
            parts = urlsplit(target.url)
            return f"{parts.scheme}://{parts.netloc}{_clean(parts.path)}", None
        namespace, _, name = target.service.partition("/")
        return f"https://{self._resolve(target)}{_clean(target.path)}", f"{name}.{namespace}.svc"

    def _resolve(self, target: WebhookTarget) -> str:
        if (address := self._services.get(target.service)) is not None:
            return address
        record = self._api.store.table(SERVICE).records.get(target.service)
        if record is None:
            raise CallFailed(f'service "{target.service.partition("/")[2]}" not found')
        if external := record.obj["spec"].get("externalName"):
            return f"{external}:{target.port}"
        raise CallFailed(
            f"this server has no service network; give it an address for service {target.service}: "
            f'EmbeddedServer(services={{"{target.service}": "127.0.0.1:9443"}})'
        )

    def _context(self, ca_pem: str) -> ssl.SSLContext:
        context = self._trust.get(ca_pem)
        if context is None:
            context = ssl.create_default_context(cadata=ca_pem or None)
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # kube-apiserver does not require key identifiers either
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # caBundle may be the certificate itself
            self._trust[ca_pem] = context
        return context


def _clean(path: str) -> str:
    """A path without empty segments, as kube-apiserver sends it.

    >>> _clean("//a//b/"), _clean("")
    ('/a/b', '/')
    """
    return normpath("/" + path.lstrip("/"))
