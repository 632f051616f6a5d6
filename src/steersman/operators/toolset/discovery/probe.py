"""Probes: is a service healthy, and is it what it was matched as. The only module that calls services.

A probe is bounded: each request has one deadline; no redirect is followed; no more than `BODY_LIMIT` bytes are read; no
credential is sent; and no forbidden address is called. Addresses are checked after the name was resolved, so DNS
rebinding changes nothing.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver

from steersman.clock import SYSTEM_CLOCK
from steersman.operators.toolset.discovery.endpoints import forbidden_address, url_host
from steersman.operators.toolset.discovery.health import ProbeOutcome, ProbeResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.abc import ResolveResult

    from steersman.clock import Clock
    from steersman.operators.toolset.discovery.matching import Candidate

BODY_LIMIT: Final = 64 * 1024
_PAUSE: Final = 1.0  # seconds between two attempts
_LONGEST_HEADERS: Final = 8190
_HEADERS: Final = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",  # a small answer must not become a large one
    "User-Agent": "steersman-toolset",
}


class _Refused(Exception):  # noqa: N818  what happened
    """A forbidden address."""


class _Resolver(AbstractResolver):
    """The system's resolver; rejects forbidden addresses in its answers."""

    def __init__(self, resolver: AbstractResolver, *, loopback: bool) -> None:
        self._resolver = resolver
        self._loopback = loopback

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        for address in found:
            if (why := forbidden_address(address["host"], loopback=self._loopback)) is not None:
                raise _Refused(f"{host} {why}")
        return found

    async def close(self) -> None:
        await self._resolver.close()


class Prober:
    """Probes services. `resolver` makes the DNS resolver."""

    def __init__(
        self,
        *,
        clock: Clock = SYSTEM_CLOCK,
        resolver: Callable[[], AbstractResolver] = aiohttp.ThreadedResolver,
        loopback: bool = False,
    ) -> None:
        self._clock = clock
        self._resolver = resolver
        self._loopback = loopback

    async def probe(self, candidate: Candidate, *, timeout: float, attempts: int, strict: bool) -> ProbeResult:
        """Probe the health of a candidate, and its identity when the match was a guess."""
        began = self._clock.monotonic()
        loopback = self._loopback or candidate.may_be_local
        result = await self._attempts(candidate.health_url, timeout, attempts, loopback)
        if result.outcome is ProbeOutcome.OK and strict and candidate.needs_identity:
            result = await self._identify(candidate, timeout, loopback)
        return msgspec.structs.replace(result, seconds=self._clock.monotonic() - began)

    async def _attempts(self, url: str, timeout: float, attempts: int, loopback: bool) -> ProbeResult:
        result = ProbeResult(outcome=ProbeOutcome.UNREACHABLE)
        for number in range(attempts):
            if number:
                await self._clock.sleep(_PAUSE)
            result, _ = await self._request(url, timeout, loopback)
            if result.reachable or result.outcome is ProbeOutcome.REFUSED:
                break
        return result

    async def _identify(self, candidate: Candidate, timeout: float, loopback: bool) -> ProbeResult:
        unknown = ProbeResult(
            outcome=ProbeOutcome.NOT_IDENTIFIED, message=f"matched as {candidate.type}, but does not answer like one"
        )
        if not candidate.identity_url:
            return unknown
        result, body = await self._request(candidate.identity_url, timeout, loopback)
        if result.outcome is ProbeOutcome.AUTH_REQUIRED:
            return result
        if result.outcome is not ProbeOutcome.OK:
            return msgspec.structs.replace(unknown, message=f"{unknown.message} ({result.message})")
        return result if _identifies(body, candidate.identity_fields) else unknown

    async def _request(self, url: str, timeout: float, loopback: bool) -> tuple[ProbeResult, bytes]:
        """One request; everything that can happen to it is a result."""
        host, _ = url_host(url)
        if (why := forbidden_address(host, loopback=loopback)) is not None:
            return ProbeResult(outcome=ProbeOutcome.REFUSED, message=f"{host} {why}"), b""
        resolver = _Resolver(self._resolver(), loopback=loopback)
        try:
            async with (
                asyncio.timeout(timeout),
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(resolver=resolver, ssl=False, force_close=True),
                    timeout=aiohttp.ClientTimeout(total=timeout),
                    headers=_HEADERS,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    max_line_size=_LONGEST_HEADERS,
                    max_field_size=_LONGEST_HEADERS,
                    auto_decompress=False,  # also not when it was not requested
                ) as session,
                session.get(url, allow_redirects=False) as answer,
            ):
                return await self._read(answer)
        except TimeoutError:
            return ProbeResult(outcome=ProbeOutcome.TIMEOUT, message=f"no complete answer within {timeout:g} s"), b""
        except _Refused as error:
            return ProbeResult(outcome=ProbeOutcome.REFUSED, message=str(error)), b""
        except (aiohttp.ClientError, OSError, ValueError) as error:
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, _Refused):
                cause = cause.__cause__ or cause.__context__
            if cause is not None:
                return ProbeResult(outcome=ProbeOutcome.REFUSED, message=str(cause)), b""
            return ProbeResult(outcome=ProbeOutcome.UNREACHABLE, message=f"{type(error).__name__}: {error}"[:300]), b""
        finally:
            await resolver.close()

    async def _read(self, answer: aiohttp.ClientResponse) -> tuple[ProbeResult, bytes]:
        if answer.status in (401, 403):
            return ProbeResult(outcome=ProbeOutcome.AUTH_REQUIRED, message=f"answers {answer.status}"), b""
        if 300 <= answer.status < 400:
            message = f"answers {answer.status}; redirects are not followed"
            return ProbeResult(outcome=ProbeOutcome.REDIRECTED, message=message), b""
        if answer.status not in (200, 204):
            return ProbeResult(outcome=ProbeOutcome.STATUS, message=f"answers {answer.status}"), b""
        body = bytearray()
        async for piece in answer.content.iter_any():
            body += piece
            if len(body) > BODY_LIMIT:
                message = f"answers with more than {BODY_LIMIT} bytes"
                return ProbeResult(outcome=ProbeOutcome.TOO_LARGE, message=message), b""
        return ProbeResult(outcome=ProbeOutcome.OK), bytes(body)


def _identifies(body: bytes, fields: tuple[str, ...]) -> bool:
    """Whether the JSON in `body` has one of the fields; without fields, whether it is a JSON object."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return False
    if not isinstance(value, dict):
        return False
    return not fields or any(_has(value, path) for path in fields)


def _has(value: Any, path: str) -> bool:
    for step in path.split("."):
        if not isinstance(value, dict) or step not in value:
            return False
        value = value[step]
    return value is not None
