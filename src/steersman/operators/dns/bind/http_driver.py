"""The bindcar driver (`driver: bindcar`): zones by the HTTP interface of a sidecar, data by signed DNS messages.

It works with the original sidecar and with ours. Every request has the fields that the original understands, and all
settings in a field that only ours reads (`messages.WholeSettings`). The original cannot report the configuration of a
zone, so the driver keeps the one it sent last; a new process sends it again, which changes nothing.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from steersman.clock import Deadline
from steersman.errors import ConfigError, DriverError
from steersman.operators.dns.bind.breaker import PAUSE
from steersman.operators.dns.bind.driver import DataPath, Static
from steersman.operators.dns.bind.rndc_driver import address_towards
from steersman.operators.dns.bind.zone_statements import zone_type
from steersman.operators.dns.sidecar import messages
from steersman.operators.dns.sidecar.zone_data import zone_config
from steersman.operators.dns.sidecar.zone_settings import (
    PORT,
    modified_settings,
    plain_acl,
    plain_targets,
    read_settings,
    statements,
    whole,
)
from steersman.operators.dns.wire.client import ask_guard
from steersman.operators.dns.zone.names import text_of
from steersman.operators.dns.zone.rdata import GENERATED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from steersman.clock import Clock
    from steersman.operators.dns.bind.servers import Server
    from steersman.operators.dns.bind.statements import Statement
    from steersman.operators.dns.sidecar.zone_settings import ZoneSettings
    from steersman.operators.dns.zone.rdata import Key, RRset, Soa


import asyncio
import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from steersman.operators.dns.wire.messages import RRsetChange, pieces
from steersman.operators.dns.zone.names import owner_in
from steersman.operators.dns.zone.rdata import AAAA, MX, NS, PTR, SRV, A, value_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.operators.dns.zone.rdata import Key, RRset, Soa

B = TypeVar("B")
LONGEST: Final = 4 * 2**20  # bytes of an answer
TOO_MUCH: Final = (
    400,
    413,
    500,
)  # from the original: unsupported names, large bodies, and what named rejects
CREATING: Final = 6  # times the timeout of other requests: a whole zone is sent and loaded
REASONS: Final = {400: "BindcarBadRequest", 401: "BindcarAuthFailed", 403: "BindcarAuthFailed", 404: "ZoneNotFound"}


class SidecarError(DriverError):
    """A sidecar rejected a request or did not answer: then `.status` is 0 and `.text` is empty."""

    def __init__(self, message: str, *, server: str, status: int = 0, retryable: bool = True) -> None:
        super().__init__(message, server=server, retryable=retryable)
        self.status = status
        self.text = str(status) if 0 < status < 500 else ""

    @property
    def reason(self) -> str:
        """The reason for a condition."""
        if not self.status:
            return "BindcarUnreachable"
        return REASONS.get(self.status, "BindcarInternalError" if self.status >= 500 else "BindcarBadRequest")


class BindcarDriver(DataPath):
    """See `driver.Driver`. `token` returns the bearer token for a server whose Secret has none."""

    def __init__(
        self,
        server: Server,
        *,
        clock: Clock,
        timeout: float,
        pause: float = PAUSE,
        token: Callable[[], str] = str,
    ) -> None:
        super().__init__(server, clock=clock, timeout=timeout, pause=pause)
        host = f"[{server.address}]" if ":" in server.address else server.address
        self._base = f"http://{host}:{server.api_port}{messages.PREFIX}"
        self._token = token
        self._sent: dict[bytes, tuple[Statement, ...]] = {}  # the last configuration of each zone

    # -- zones ---------------------------------------------------------------------------------------------------------

    async def configuration(self, zone: bytes) -> tuple[Statement, ...] | None:
        try:
            found = await self._request("GET", _path(zone), shape=messages.ZoneInfo)
        except SidecarError as error:
            if error.status != 404:
                raise
        else:
            if found.steersman is not None:
                asked = messages.ModifyZone(steersman=found.steersman)
                return statements(modified_settings(read_settings([("type", found.zone_type)]), asked))
            return self._remembered(zone, found.zone_type)
        try:  # the original lists only zones whose file it wrote
            status = await self._request("GET", _path(zone, "status"), shape=messages.Done)
        except SidecarError as error:
            if error.status != 404 and (error.status != 500 or not await self._is_waiting(zone)):
                raise
            if error.status == 500:
                return self._remembered(zone, "secondary")
            self._sent.pop(zone, None)
            return None
        rows = (line.partition(":") for line in str(status.details or "").splitlines())
        return self._remembered(zone, next((value.strip() for name, _, value in rows if name.strip() == "type"), ""))

    async def _is_waiting(self, zone: bytes) -> bool:
        """Whether a zone is a secondary without data, for which the original answers 500 to a status request.

        Only a secondary accepts `retransfer`, and it is waiting for that transfer anyway.
        """
        try:
            await self._request("POST", _path(zone, "retransfer"), shape=messages.Done)
        except SidecarError as error:
            if error.status == 500:
                return False
            raise
        return True

    def _remembered(self, zone: bytes, kind: str) -> tuple[Statement, ...]:
        sent = self._sent.get(zone, ())
        found = statements(read_settings([("type", kind)]))
        return sent if sent[:1] == found[:1] else found

    async def create_primary(
        self, zone: bytes, config: tuple[Statement, ...], soa: Soa, rrsets: Mapping[Key, RRset], ttl: int
    ) -> None:
        settings = read_settings(config)
        try:
            await self._create(zone, settings, await asyncio.to_thread(zone_config, soa, rrsets, ttl))
        except SidecarError as error:
            if error.status not in TOO_MUCH or not await self._create_in_parts(zone, settings, soa, rrsets, ttl):
                raise
        # The sidecar wrote this zone: verify its content before it counts as published.
        served, found = await self.read(zone, GENERATED)
        if not settings.dnssec_policy and (served != soa.value() or found != rrsets):
            raise SidecarError("the sidecar serves other data than it was given", server=self.server.title, status=200)

    async def _create_in_parts(
        self, zone: bytes, settings: ZoneSettings, soa: Soa, rrsets: Mapping[Key, RRset], ttl: int
    ) -> bool:
        """Create the part that every sidecar accepts and update the rest; returns whether there is such a part."""
        plain, first = first_part(zone, soa, rrsets)
        if plain == soa and first == rrsets:
            return False
        begin, updates = remaining_updates(plain, first, rrsets)
        await self._create(zone, settings, zone_config(begin, first, ttl))
        expected = begin.value()
        for after, changes in updates:
            value = msgspec.structs.replace(soa, serial=after.serial).value()
            await self.write(zone, expected, value, ttl, changes)
            expected = value
        return True

    async def create_secondary(self, zone: bytes, config: tuple[Statement, ...]) -> None:
        # The original requires an SOA here too and ignores it.
        name = text_of(zone)
        soa = messages.SoaRecord(primary_ns=name, admin_email=name, serial=1)
        body = messages.ZoneConfig(ttl=3600, soa=soa, name_servers=[], name_server_ips={}, records=[])
        await self._create(zone, read_settings(config), body)

    async def _create(self, zone: bytes, settings: ZoneSettings, body: messages.ZoneConfig) -> None:
        primary = settings.kind == "primary"
        request = messages.CreateZone(
            zone_name=text_of(zone).removesuffix("."),
            zone_type="primary" if primary else "secondary",
            zone_config=msgspec.structs.replace(
                body,
                also_notify=plain_targets(settings.also_notify) if settings.also_notify else None,
                allow_transfer=self._plain_acl(settings),
                primaries=plain_targets(settings.primaries) or None,
                dnssec_policy=settings.dnssec_policy or None,
                inline_signing=settings.inline_signing,
                steersman=whole(settings),
            ),
            update_key_name=self.server.keys.update.name if primary else None,
        )
        await self._request("POST", "/zones", request, shape=messages.Done, patience=CREATING)
        self._sent[zone] = statements(settings)

    async def configure(self, zone: bytes, config: tuple[Statement, ...]) -> None:
        settings, before = read_settings(config), self._sent.get(zone)
        targets, signed = settings.also_notify or (), before is not None and bool(read_settings(before).dnssec_policy)
        request = messages.ModifyZone(
            # The original accepts no ports here: leave out the list when a server has another port.
            also_notify=[target.address for target in targets]
            if all(target.port == PORT for target in targets)
            else None,
            allow_transfer=self._plain_acl(settings),
            primaries=plain_targets(settings.primaries) or None,
            dnssec_policy=settings.dnssec_policy or ("none" if signed else None),
            inline_signing=settings.inline_signing,
            steersman=whole(settings),
        )
        answer = await self._request("PATCH", _path(zone), request, shape=messages.Done)
        moved = before is not None and read_settings(before).primaries != settings.primaries
        if not answer.applied and moved:  # the original cannot change primaries: add the zone again
            await self.remove(zone)
            await self.create_secondary(zone, config)
        self._sent[zone] = config

    def _plain_acl(self, settings: ZoneSettings) -> list[str]:
        called = settings.also_notify or ()
        return plain_acl(settings, called, address_towards(self.server.address, self.server.dns_port))

    async def added(self, zone: bytes) -> bool | None:
        try:
            found = await self._request("GET", _path(zone), shape=messages.ZoneInfo)
        except SidecarError as error:
            if error.status != 404:
                raise
            # The original lists only zones whose file it wrote, and it writes none for a secondary.
            kind = zone_type(await self.configuration(zone) or ())
            return None if kind == "secondary" else False
        return found.steersman is None or found.steersman.added is not False

    async def remove(self, zone: bytes) -> None:
        if await self.configuration(zone) is None:  # the original answers 500 to the deletion of an absent zone
            return
        try:
            await self._request("DELETE", _path(zone), shape=messages.Done, patience=CREATING)
        except SidecarError as error:
            if error.status == 409:
                raise Static(error.message, server=self.server.title, retryable=False) from None
            if error.status != 404 and (error.status < 500 or await self.configuration(zone) is not None):
                raise
        self._sent.pop(zone, None)

    async def refresh(self, zone: bytes) -> None:
        # Ours compares serials first; the original ignores the parameter and transfers in any case.
        await self._request("POST", f"{_path(zone, 'retransfer')}?ifNewer=true", shape=messages.Done)

    async def signing(self, zone: bytes) -> str:
        return str((await self._request("GET", _path(zone, "status"), shape=messages.Done)).details or "")

    async def load_keys(self, zone: bytes) -> None:  # noqa: ARG002  # the interface has a command for all zones only
        with suppress(DriverError):  # the original has no such command; named checks by itself after ten minutes
            await self.reconfigure()

    async def reconfigure(self) -> None:
        await self._request("POST", "/server/reconfig", shape=messages.Done)

    async def renew(self) -> bool:
        # The sidecar reports whether named knows the control and update keys; the transfer key is tried here.
        if self.server.keys.previous is None and await self._transfers():
            return True
        try:
            known = (await self._request("POST", "/server/reconfig", shape=messages.Done)).applied
        except SidecarError as error:
            if error.status != 404:
                raise
            return True  # the original has no such request: its pods get new keys when they are replaced
        return known and await self._transfers()

    async def ready(self) -> None:
        await self._request("GET", "/server/status", shape=messages.ServerStatus)

    # -- requests -------------------------------------------------------------------------------------------------

    async def _request(
        self, method: str, path: str, body: messages.Body | None = None, *, shape: type[B], patience: int = 1
    ) -> B:
        data = None if body is None else msgspec.json.encode(body)
        return await self._guarded(lambda: self._ask(method, path, data, shape, self._timeout * patience), "sidecar")

    async def _ask(self, method: str, path: str, data: bytes | None, shape: type[B], timeout: float) -> B:
        import aiohttp
        from yarl import URL

        from steersman.kube.transport.transport import AdmittedRequest, admitted

        try:
            token = self.server.keys.token or self._token()
        except ConfigError as error:
            raise SidecarError(str(error), server=self.server.title) from None
        headers = {"Content-Type": "application/json"} if data is not None else {}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        options: dict[str, Any] = {"headers": headers, "data": data and BytesIO(data), "allow_redirects": False}
        url = URL(f"{self._base}{path}", encoded=True)
        may_change = None if method == "GET" else partial(ask_guard, f"{method} {path}", self.server.title)
        if may_change is not None:
            may_change()
        try:
            with admitted(may_change):
                async with (
                    Deadline(self._clock, timeout),
                    # Requests are rare: a connection for each costs less than a pool.
                    aiohttp.ClientSession(
                        connector=aiohttp.TCPConnector(force_close=True),
                        timeout=aiohttp.ClientTimeout(total=None),
                        cookie_jar=aiohttp.DummyCookieJar(),
                        request_class=AdmittedRequest,
                    ) as session,
                    session.request(method, url, **options) as answer,
                ):
                    status, text = answer.status, b""
                    while len(text) < LONGEST and (more := await answer.content.read(LONGEST)):
                        text += more
        except TimeoutError:
            raise SidecarError(f"its sidecar gave no answer within {timeout:g} s", server=self.server.title) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:  # a token may hold what no header can
            raise SidecarError(
                f"its sidecar does not answer: {str(error) or type(error).__name__}", server=self.server.title
            ) from None
        if not 200 <= status < 300:
            raise self._refused(status, text)
        try:
            return msgspec.json.decode(text, type=shape)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SidecarError(
                f"its sidecar answered something else than expected: {error}", server=self.server.title, status=502
            ) from None

    def _refused(self, status: int, text: bytes) -> SidecarError:
        try:
            failure = msgspec.json.decode(text, type=messages.ErrorBody)
            said = ": ".join(part for part in (failure.error, failure.details) if part)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            said = ""
        hint = {
            401: " (the token: put it into the Secret of rndcKey.secretRef, or have the operator show its own with "
            "dns.bindcarTokenFile and dns.bindcarTokenNamespaces)",
            403: " (it knows who we are, and does not let us)",
            413: " (the zone is larger than its sidecar takes)",
        }.get(status, "")
        message = f"its sidecar answered {status}{f': {said[:500]}' if said else ''}{hint}"
        return SidecarError(message, server=self.server.title, status=status)


def _path(zone: bytes, verb: str = "") -> str:
    """The address of a zone; its name is one segment whatever is in it."""
    name = quote(text_of(zone).removesuffix("."), safe="")
    return f"/zones/{name}/{verb}" if verb else f"/zones/{name}"


# -- a zone in parts -------------------------------------------------------------------------------------------------
LARGEST: Final = 25_000  # values; about 2 MB of JSON
_PLAIN: Final = re.compile(r"[A-Za-z0-9.*_-]+\Z")
HOSTS: Final = frozenset({A, AAAA, MX})  # types whose owners must be host names
TARGETS: Final = frozenset({MX, NS, PTR, SRV})  # types whose values end in a host name


def first_part(zone: bytes, soa: Soa, rrsets: Mapping[Key, RRset]) -> tuple[Soa, dict[Key, RRset]]:
    """The SOA and the RRsets that every sidecar accepts; of a large zone only the name servers and their addresses."""
    kept = {key: rrset for key, rrset in rrsets.items() if _is_plain(key, rrset)}
    if sum(len(rrset.values) for rrset in kept.values()) > LARGEST:
        servers = kept.get((b"", NS))
        hosts = {owner_in(host, zone) for host in (servers.values if servers is not None else ())}
        kept = {
            key: rrset for key, rrset in kept.items() if key == (b"", NS) or (key[0] in hosts and key[1] in (A, AAAA))
        }
    names = {"primary": soa.primary, "mailbox": soa.mailbox}
    plain = {field: name if _PLAIN.match(text_of(name)) else zone for field, name in names.items()}
    return replace(soa, **plain), kept


def remaining_updates(
    soa: Soa, first: Mapping[Key, RRset], rrsets: Mapping[Key, RRset]
) -> tuple[Soa, list[tuple[Soa, list[RRsetChange]]]]:
    """The SOA of the first part, and the updates that follow, each with its resulting SOA."""
    left = [RRsetChange(key, None, rrsets[key]) for key in rrsets.keys() - first.keys()]
    chunks = pieces(left) or [[]]
    serials = [_before(soa.serial, steps) for steps in range(len(chunks), -1, -1)]
    updates = [(replace(soa, serial=serial), chunk) for serial, chunk in zip(serials[1:], chunks, strict=True)]
    return replace(soa, serial=serials[0]), updates


def _is_plain(key: Key, rrset: RRset) -> bool:
    owner, kind = key
    if owner and not _PLAIN.match(text_of(owner)):
        return False
    texts = [text_of(owner)] if owner and kind in HOSTS else []
    if kind in TARGETS:
        targets = [value_text(kind, value).rpartition(" ")[2] for value in rrset.values]
        if not all(_PLAIN.match(target) for target in targets):
            return False
        texts += targets
    return not any("_" in text for text in texts)


def _before(serial: int, steps: int) -> int:
    """The serial so many steps earlier, skipping 0.

    >>> _before(3, 2), _before(3, 3), _before(3, 4)
    (1, 4294967295, 4294967294)
    """
    found = serial - steps
    return found % 2**32 if found > 0 else (found - 1) % 2**32
