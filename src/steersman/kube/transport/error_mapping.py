"""From what went wrong on the wire to the one KubeError that says it.

`map_exception` takes exceptions, `error_from_response` takes answers. Both only ever quote what cannot be secret: the
request, the server's own words, host names; never headers, and never another exception's arguments.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import msgspec
from yarl import URL

from steersman.kube.api.errors import (
    BadResponse,
    ConnectionFailed,
    KubeError,
    RequestInfo,
    RequestTimeout,
    error_for_status,
)
from steersman.kube.transport.retry import parse_retry_after
from steersman.kube.transport.tls import explain_tls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.kube.config.config import Config

__all__ = ["RequestFailure", "describe_body", "error_from_response", "map_exception"]


class RequestFailure(NamedTuple):
    """An error, and what the transport has to know to decide what next."""

    error: KubeError
    code: str = "<error>"  # for metrics: the HTTP status, if there was one
    processed: bool = True  # the server may have acted on the request
    renewed: bool = False  # other credentials or another CA are at hand now, so once more makes sense
    distrusted: bool = False  # the server's certificate was refused: waiting does not help
    disconnected: bool = False  # the connection broke before an answer began


def map_exception(  # noqa: PLR0911  # a table: one line for each thing that can happen
    error: Exception, request: RequestInfo, config: Config, limit: float
) -> RequestFailure:
    """The failure that an exception of aiohttp or the system stands for. `limit` is the timeout that was in force."""
    server = config.server
    match error:
        case aiohttp.ConnectionTimeoutError():
            text = (
                f"no connection to {server} in time: is the address right, is a firewall in between? ({config.source})"
            )
            return RequestFailure(ConnectionFailed(text, request=request), processed=False)
        case TimeoutError():
            return RequestFailure(RequestTimeout(f"no complete answer within {limit:g} seconds", request=request))
        case aiohttp.ClientConnectorCertificateError():
            text = explain_tls(_certificate_error(error), config)
            return RequestFailure(ConnectionFailed(text, request=request), processed=False, distrusted=True)
        case aiohttp.ClientConnectorSSLError():
            text = explain_tls(_ssl_error(error), config)
            return RequestFailure(ConnectionFailed(text, request=request), processed=False)
        case aiohttp.ClientProxyConnectionError():
            text = f"cannot reach the proxy {_without_userinfo(config.proxy_url)}: {_system(error)} ({config.source})"
            return RequestFailure(ConnectionFailed(text, request=request), processed=False)
        case aiohttp.ClientHttpProxyError():
            text = f"the proxy {_without_userinfo(config.proxy_url)} answered {error.status} ({config.source})"
            return RequestFailure(ConnectionFailed(text, request=request), processed=False)
        case aiohttp.ClientConnectorError():
            text = f"cannot connect to {server}: {_system(error)}; is it running, is server right? ({config.source})"
            return RequestFailure(ConnectionFailed(text, request=request), processed=False)
        case aiohttp.ClientPayloadError():  # of a whole answer; a stream that breaks is an ordinary event
            return RequestFailure(BadResponse("the answer was cut off before its end", request=request))
        case aiohttp.ClientResponseError():
            text = f"{server} does not speak HTTP: is it the address of an API server? ({config.source})"
            return RequestFailure(BadResponse(text, request=request))
        case _:
            text = f"the connection to {server} broke before the answer was complete: {_system(error)}"
            return RequestFailure(ConnectionFailed(text, request=request), disconnected=True)


def error_from_response(
    status: int, headers: Mapping[str, str], body: bytes, request: RequestInfo, config: Config, *, now: float
) -> KubeError:
    """The error that an answer with an HTTP status other than 2xx stands for."""
    if status < 400:
        target = _without_userinfo(headers.get("Location", "nowhere"))
        text = f"the server redirects to {target}; redirects are not followed, correct server in {config.source}"
        error = BadResponse(text, request=request, code=status)
        error.retryable = False
        return error
    retry_after = parse_retry_after(headers.get("Retry-After"), now=now)
    said = _status_object(body)
    if said is None:
        said = {"message": f"HTTP status {status}: {describe_body(headers, body)}"}
    return error_for_status(said, code=status, request=request, retry_after=retry_after)


def describe_body(headers: Mapping[str, str], body: bytes) -> str:
    """What a body is that is not the JSON it should be, in a few words.

    >>> describe_body({"Content-Type": "text/html"}, b"<html>...")
    'an HTML page, not a Kubernetes answer'
    """
    kind = headers.get("Content-Type", "").partition(";")[0].strip()
    if kind == "text/html" or body[:64].lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "an HTML page, not a Kubernetes answer"
    if not body.strip():
        return "an empty answer"
    if kind in {"", "text/plain"}:
        return repr(body[:200].decode(errors="replace").strip())
    return f"{len(body)} bytes of {kind or 'no content type'}, not a Kubernetes answer"


def _status_object(body: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) and value.get("kind") == "Status" else None


def _certificate_error(error: aiohttp.ClientConnectorCertificateError) -> ssl.SSLError:
    inner = error.certificate_error
    return inner if isinstance(inner, ssl.SSLError) else ssl.SSLError(str(inner))


def _ssl_error(error: aiohttp.ClientConnectorSSLError) -> ssl.SSLError:
    inner = error.os_error
    return inner if isinstance(inner, ssl.SSLError) else ssl.SSLError(str(inner))


def _system(error: BaseException) -> str:
    """The operating system's words for it."""
    inner = getattr(error, "os_error", error)
    if isinstance(inner, OSError) and inner.strerror:
        # asyncio puts the address in the place of the reason; a resolver's numbers are negative and its words good.
        return os.strerror(inner.errno) if inner.errno and inner.errno > 0 else inner.strerror
    return "connection closed" if isinstance(inner, aiohttp.ClientError) else type(inner).__name__


def _without_userinfo(url: str | None) -> str:
    """`url` fit for an error: no user, password, query or fragment."""
    try:
        return str(URL(url or "").with_user(None).with_query(None).with_fragment(None))
    except ValueError:
        return "(unreadable)"
