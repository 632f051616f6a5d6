"""The bindcar driver: zones come and go through a sidecar's HTTP interface; records by signed DNS, as everywhere.

It talks to the original and to our own. Every request says all that the original understands, and the whole in a field
that only ours looks at (`wire.WholeSettings`). What the original cannot be asked, how a zone is configured, the driver
remembers from telling it; a new process tells it once more, which changes nothing.
"""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from steersman.clock import Deadline
from steersman.errors import ConfigError, DriverError
from steersman.operators.dns.bindcar import wire
from steersman.operators.dns.bindcar.data import zone_config
from steersman.operators.dns.bindcar.firstcopy import first_part, remaining_updates
from steersman.operators.dns.bindcar.settings import (
    PORT,
    modified_settings,
    plain_acl,
    plain_targets,
    read_settings,
    statements,
    whole,
)
from steersman.operators.dns.datapath import DataPath
from steersman.operators.dns.driver import Static
from steersman.operators.dns.names import text_of
from steersman.operators.dns.native import address_towards
from steersman.operators.dns.rrsets import GENERATED
from steersman.operators.dns.servers import PAUSE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from steersman.clock import Clock
    from steersman.operators.dns.bindcar.settings import Settings
    from steersman.operators.dns.rrsets import Key, RRset, Soa
    from steersman.operators.dns.servers import Server
    from steersman.operators.dns.zonetext import Statement

__all__ = ["BindcarDriver", "SidecarError"]

B = TypeVar("B")
LONGEST: Final = 4 * 2**20  # bytes of an answer
TOO_MUCH: Final = (
    400,
    413,
    500,
)  # how the original refuses names it does not like, long bodies, and what named refuses
CREATING: Final = 6  # times as long as other requests: a whole zone travels, and named loads it
REASONS: Final = {400: "BindcarBadRequest", 401: "BindcarAuthFailed", 403: "BindcarAuthFailed", 404: "ZoneNotFound"}


class SidecarError(DriverError):
    """A sidecar did not do it. `.status` is its answer, 0 when there was none; `.text` is a sign of life."""

    def __init__(self, message: str, *, server: str, status: int = 0, retryable: bool = True) -> None:
        super().__init__(message, server=server, retryable=retryable)
        self.status = status
        self.text = str(status) if 0 < status < 500 else ""

    @property
    def reason(self) -> str:
        """For a condition."""
        if not self.status:
            return "BindcarUnreachable"
        return REASONS.get(self.status, "BindcarInternalError" if self.status >= 500 else "BindcarBadRequest")


class BindcarDriver(DataPath):
    """See `driver.Driver`. `token` gives the operator's own, for a server that has none of its own."""

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
        self._base = f"http://{host}:{server.api_port}{wire.PREFIX}"
        self._token = token
        self._told: dict[bytes, tuple[Statement, ...]] = {}  # what the original was told last

    # -- zones ---------------------------------------------------------------------------------------------------------

    async def configuration(self, zone: bytes) -> tuple[Statement, ...] | None:
        try:
            found = await self._request("GET", _path(zone), shape=wire.ZoneInfo)
        except SidecarError as error:
            if error.status != 404:
                raise
        else:
            if found.steersman is not None:
                asked = wire.ModifyZone(steersman=found.steersman)
                return statements(modified_settings(read_settings([("type", found.zone_type)]), asked))
            return self._remembered(zone, found.zone_type)
        try:  # the original sees only zones whose file it wrote; named sees them all
            status = await self._request("GET", _path(zone, "status"), shape=wire.Done)
        except SidecarError as error:
            if error.status != 404 and (error.status != 500 or not await self._is_waiting(zone)):
                raise
            if error.status == 500:
                return self._remembered(zone, "secondary")
            self._told.pop(zone, None)
            return None
        rows = (line.partition(":") for line in str(status.details or "").splitlines())
        return self._remembered(zone, next((value.strip() for name, _, value in rows if name.strip() == "type"), ""))

    async def _is_waiting(self, zone: bytes) -> bool:
        """Whether a zone is a secondary without data: named cannot say how it is, and the original says nothing then.

        Fetching it is what it waits for, and no other kind of zone can be told to.
        """
        try:
            await self._request("POST", _path(zone, "retransfer"), shape=wire.Done)
        except SidecarError as error:
            if error.status == 500:
                return False
            raise
        return True

    def _remembered(self, zone: bytes, kind: str) -> tuple[Statement, ...]:
        told = self._told.get(zone, ())
        found = statements(read_settings([("type", kind)]))
        return told if told[:1] == found[:1] else found

    async def create_primary(
        self, zone: bytes, config: tuple[Statement, ...], soa: Soa, rrsets: Mapping[Key, RRset], ttl: int
    ) -> None:
        settings = read_settings(config)
        try:
            await self._create(zone, settings, zone_config(soa, rrsets, ttl))
        except SidecarError as error:
            if error.status not in TOO_MUCH or not await self._create_in_parts(zone, settings, soa, rrsets, ttl):
                raise
        # Somebody else wrote this zone: see that it is what it should be, before anybody believes so.
        served, found = await self.read(zone, GENERATED)
        if not settings.dnssec_policy and (served != soa.value() or found != rrsets):
            raise SidecarError(
                "the zone that it made is not the one it was given", server=self.server.title, status=200
            )

    async def _create_in_parts(
        self, zone: bytes, settings: Settings, soa: Soa, rrsets: Mapping[Key, RRset], ttl: int
    ) -> bool:
        """Begin with what every sidecar takes, and update the rest; says whether there is such a part."""
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
        # The original wants a start of authority here too, and has no use for it.
        name = text_of(zone)
        soa = wire.SoaRecord(primary_ns=name, admin_email=name, serial=1)
        body = wire.ZoneConfig(ttl=3600, soa=soa, name_servers=[], name_server_ips={}, records=[])
        await self._create(zone, read_settings(config), body)

    async def _create(self, zone: bytes, settings: Settings, body: wire.ZoneConfig) -> None:
        primary = settings.kind == "primary"
        request = wire.CreateZone(
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
        await self._request("POST", "/zones", request, shape=wire.Done, patience=CREATING)
        self._told[zone] = statements(settings)

    async def configure(self, zone: bytes, config: tuple[Statement, ...]) -> None:
        settings, before = read_settings(config), self._told.get(zone)
        told, signed = settings.also_notify or (), before is not None and bool(read_settings(before).dnssec_policy)
        request = wire.ModifyZone(
            # The original takes no ports here: a server it cannot name right it had better not be told of.
            also_notify=[one.address for one in told] if all(one.port == PORT for one in told) else None,
            allow_transfer=self._plain_acl(settings),
            primaries=plain_targets(settings.primaries) or None,
            dnssec_policy=settings.dnssec_policy or ("none" if signed else None),
            inline_signing=settings.inline_signing,
            steersman=whole(settings),
        )
        answer = await self._request("PATCH", _path(zone), request, shape=wire.Done)
        moved = before is not None and read_settings(before).primaries != settings.primaries
        if not answer.applied and moved:  # the original cannot change them: the zone has to come again
            await self.remove(zone)
            await self.create_secondary(zone, config)
        self._told[zone] = config

    def _plain_acl(self, settings: Settings) -> list[str]:
        called = settings.also_notify or ()
        return plain_acl(settings, called, address_towards(self.server.address, self.server.dns_port))

    async def remove(self, zone: bytes) -> None:
        if await self.configuration(zone) is None:  # the original answers 500 to whoever deletes what is not there
            return
        try:
            await self._request("DELETE", _path(zone), shape=wire.Done, patience=CREATING)
        except SidecarError as error:
            if error.status == 409:
                raise Static(error.message, server=self.server.title, retryable=False) from None
            if error.status != 404 and (error.status < 500 or await self.configuration(zone) is not None):
                raise
        self._told.pop(zone, None)

    async def refresh(self, zone: bytes) -> None:
        # Ours asks the primaries whether they have news; the original, which does not read this, fetches in any case.
        await self._request("POST", f"{_path(zone, 'retransfer')}?ifNewer=true", shape=wire.Done)

    async def signing(self, zone: bytes) -> str:
        return str((await self._request("GET", _path(zone, "status"), shape=wire.Done)).details or "")

    async def load_keys(self, zone: bytes) -> None:  # noqa: ARG002  # there is a word for all zones only
        with suppress(DriverError):  # the original has no word for it; named looks again by itself, after ten minutes
            await self.reconfigure()

    async def reconfigure(self) -> None:
        await self._request("POST", "/server/reconfig", shape=wire.Done)

    async def renew(self) -> bool:
        # The sidecar knows the keys of control and updates, and says whether named does; that of transfers we try.
        if self.server.keys.previous is None and await self._transfers():
            return True
        try:
            known = (await self._request("POST", "/server/reconfig", shape=wire.Done)).applied
        except SidecarError as error:
            if error.status != 404:
                raise
            return True  # the original has no such request: its pods know new keys when they are replaced
        return known and await self._transfers()

    async def ready(self) -> None:
        await self._request("GET", "/server/status", shape=wire.ServerStatus)

    # -- the machinery -------------------------------------------------------------------------------------------------

    async def _request(
        self, method: str, path: str, body: wire.Body | None = None, *, shape: type[B], patience: int = 1
    ) -> B:
        data = None if body is None else msgspec.json.encode(body)
        return await self._guarded(lambda: self._ask(method, path, data, shape, self._timeout * patience), "sidecar")

    async def _ask(self, method: str, path: str, data: bytes | None, shape: type[B], timeout: float) -> B:
        import aiohttp
        from yarl import URL

        try:
            token = self.server.keys.token or self._token()
        except ConfigError as error:
            raise SidecarError(str(error), server=self.server.title) from None
        headers = {"Content-Type": "application/json"} if data is not None else {}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        options: dict[str, Any] = {"headers": headers, "data": data and BytesIO(data), "allow_redirects": False}
        url = URL(f"{self._base}{path}", encoded=True)
        try:
            async with (
                Deadline(self._clock, timeout),
                # Zones come and go seldom: a connection of its own for each request costs less than keeping some.
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(force_close=True),
                    timeout=aiohttp.ClientTimeout(total=None),
                    cookie_jar=aiohttp.DummyCookieJar(),
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
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SidecarError(
                f"its sidecar answered something else than expected: {error}", server=self.server.title, status=502
            ) from None

    def _refused(self, status: int, text: bytes) -> SidecarError:
        try:
            failure = msgspec.json.decode(text, type=wire.Failure)
            said = ": ".join(part for part in (failure.error, failure.details) if part)
        except (msgspec.DecodeError, UnicodeDecodeError):
            said = ""
        hint = {
            401: " (the token: see rndcKey.secretRef, or dns.bindcarTokenFile)",
            403: " (it knows who we are, and does not let us)",
            413: " (the zone is larger than its sidecar takes)",
        }.get(status, "")
        message = f"its sidecar answered {status}{f': {said[:500]}' if said else ''}{hint}"
        return SidecarError(message, server=self.server.title, status=status)


def _path(zone: bytes, verb: str = "") -> str:
    """The address of a zone; its name is one segment whatever is in it."""
    name = quote(text_of(zone).removesuffix("."), safe="")
    return f"/zones/{name}/{verb}" if verb else f"/zones/{name}"
