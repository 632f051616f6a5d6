"""Taking a zone off servers: what is ours goes as a whole, and who could not be told is named.

A zone of a server's own configuration is not ours to remove, nor is one of a server that may only be given records:
there the records that were published go, value by value, and everything else stays.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from steersman.errors import DriverError
from steersman.operators.dns.driver import Refused, Stale, Static
from steersman.operators.dns.messages import Change, pieces
from steersman.operators.dns.names import short_text, text_of
from steersman.operators.dns.native import file_of
from steersman.operators.dns.refusals import search
from steersman.operators.dns.rrsets import GENERATED, NS, Key, RRset, Soa, type_name
from steersman.operators.dns.serials import following

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from steersman.operators.dns.driver import Driver
    from steersman.operators.dns.servers import Server
    from steersman.operators.dns.zonetext import Statement

__all__ = ["LISTED_IN", "Data", "remove", "without"]

LISTED_IN: Final = "still serves the zone, which is no longer listed in "
TRIES: Final = 4  # to write a copy that keeps changing

Data = dict[Key, frozenset[bytes]]


async def remove(
    zone: bytes,
    servers: Sequence[Server],
    driver_of: Callable[[Server], Driver],
    *,
    ours: bool = False,
    data: Callable[[], Data] = dict,
) -> dict[str, str]:
    """Remove a zone everywhere; returns where that failed, and why. `ours`: only where it is provably so.

    `data` gives what records have put into it, to be taken out of a zone that stays.
    """
    failed: dict[str, str] = {}

    async def one(server: Server) -> None:
        driver = driver_of(server)
        if server.catalog:
            await _unlisted(zone, server, driver, failed)
            return
        if not server.records_only and (not ours or await _is_ours(zone, server, driver)):
            try:
                await driver.remove(zone)
            except Static:
                pass
            else:
                return
        if server.role == "primary" and (taken := data()):
            await _take_out(zone, driver, taken)

    async def guarded(server: Server) -> None:
        try:
            await one(server)
        except DriverError as error:
            failed[server.title] = error.message

    await asyncio.gather(*(guarded(server) for server in servers))
    return failed


async def _is_ours(zone: bytes, server: Server, driver: Driver) -> bool:
    """Whether a server has a zone because we added it: with the file that we give it, or through a sidecar."""
    found = await driver.configuration(zone)
    if server.api_port:
        return found is not None  # it refuses to remove what it does not manage
    return ("file", file_of(server, zone)) in (found or ())


async def _unlisted(zone: bytes, server: Server, driver: Driver, failed: dict[str, str]) -> None:
    """A secondary with a catalog drops zones by itself, but for those it was given before it had one."""
    if server.catalog == text_of(zone).removesuffix("."):
        return  # that one is in its own configuration
    found: tuple[Statement, ...] | None = None
    with suppress(DriverError):  # named does not show what came from a catalog
        found = await driver.configuration(zone)
    if ("file", file_of(server, zone)) in (found or ()):
        await driver.remove(zone)
    elif await driver.soa(zone) is not None:
        failed[server.title] = f"{LISTED_IN}{server.catalog}"


async def _take_out(zone: bytes, driver: Driver, data: Data) -> None:
    """Remove data from a zone that stays."""
    if await driver.soa(zone) is None:
        return
    for attempt in range(TRIES):
        try:
            await _taken_out(zone, driver, data)
        except Stale:
            if attempt == TRIES - 1:
                raise
        else:
            return


async def _taken_out(zone: bytes, driver: Driver, data: Data) -> None:
    start, rrsets = await driver.read(zone, GENERATED)
    ttl = min((rrset.ttl for rrset in rrsets.values()), default=0)

    async def attempt(changes: Sequence[Change]) -> bool:
        nonlocal start
        soa = Soa.read(start)
        value = replace(soa, serial=following(soa.serial)).value()
        try:
            await driver.write(zone, start, value, ttl, changes)
        except Refused:
            return False
        start = value
        return True

    for changes in pieces(without(rrsets, data)):
        if await attempt(changes):
            continue
        found = await search(changes, attempt)
        if kept := (*found.refused, *found.untried):
            names = ", ".join(f"{short_text(one.key[0], zone)} {type_name(one.key[1])}" for one in kept[:5])
            raise DriverError(f"it refuses to let {len(kept)} RRsets go: {names}", server=driver.server.title)


def without(rrsets: Mapping[Key, RRset], data: Data) -> list[Change]:
    """What has to be changed so that a zone that is served on has none of these values; it keeps a name server."""
    changes = []
    for key, values in sorted(data.items()):
        have = rrsets.get(key)
        if have is None or not have.values & values:
            continue
        left = have.values - values
        if left or key[0] or key[1] != NS:
            changes.append(Change(key, have, RRset(have.ttl, left) if left else None))
    return changes
