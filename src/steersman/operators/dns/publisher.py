"""Bringing the copies of a zone to its draft: look, decide on one serial, write.

    look      every primary: is the zone there, how is it configured, what does it serve
    decide    one serial for all of them, later than any that anybody has seen
    write     create what is absent, complete; change what differs, in one conditional update per primary

The serial of a copy that lacks nothing but time is brought up to the others'; a new serial is taken only for new data.
An update names the start of authority it was made for, so whatever happened in between makes it fail instead of mixing
with it; the copy is then read again. Nothing here knows Kubernetes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from steersman.errors import DriverError
from steersman.operators.dns.driver import BadZone, Refused, Stale
from steersman.operators.dns.foreign import keeps_ttl
from steersman.operators.dns.looking import Job, Looking, Report
from steersman.operators.dns.messages import Change, pieces
from steersman.operators.dns.refusals import search, servers_only
from steersman.operators.dns.rrsets import CNAME, Key, Soa
from steersman.operators.dns.serials import following, is_ahead, latest
from steersman.operators.dns.zoneconfig import (
    is_made_here,
    primary_config,
    same_config,
    secondary_config,
    unannounced,
    zone_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from steersman.operators.dns.book import Copy, ZoneBook
    from steersman.operators.dns.driver import Driver
    from steersman.operators.dns.rrsets import RRset
    from steersman.operators.dns.servers import Server
    from steersman.operators.dns.zonetext import Statement

__all__ = ["Job", "Report", "publish"]

TRIES: Final = 4  # to write a copy that keeps changing
REFRESH: Final = 0.5  # seconds between two requests to a secondary to catch up
AT_ONCE: Final = 50  # changes that were refused before and are tried again in one update


async def publish(
    book: ZoneBook, job: Job, driver_of: Callable[[Server], Driver], probe: Callable[[Server], None] | None = None
) -> Report:
    """Bring every copy to the draft, as far as servers answer.

    `probe` has somebody watch for signs of life of a server that keeps silent; without it every server is waited for.
    """
    report = Report(drift={}, errors={}, behind=[], unsigned=[], foreign={}, adopted={}, repaired={})
    if job.ignore != book.ignore:
        book.ignore = job.ignore
        for copy in book.copies.values():
            copy.known = False  # what others may have there is another question now
    writers = job.primaries[:1] if job.policy is not None else job.primaries
    followers = (*(job.primaries[1:] if job.policy is not None else ()), *job.secondaries)
    configs = {
        server.id: primary_config(
            server, book.draft.zone, followers, policy=job.policy, keys=job.key_directory, widest=book.draft.widest
        )
        for server in writers
    }
    configs |= {
        server.id: secondary_config(server, book.draft.zone, writers, widest=book.draft.widest) for server in followers
    }
    work = _Work(book, job, driver_of, report, configs, probe)
    await work.at_all(writers, work.look)
    await work.decide(writers, followers)
    await work.at_all(writers, work.write)
    # Whoever was written while another took a later serial joins it.
    await work.at_all([server for server in writers if work.is_late(server)], work.write)
    if not (job.hold and report.unsigned):  # what a parent vouches for is fetched signed, or not at all
        await work.at_all(followers, work.follow, writer=False)
    work.finish((*writers, *followers))
    report.serial = book.serial
    return report


class _Work(Looking):
    """One publication."""

    def __init__(
        self,
        book: ZoneBook,
        job: Job,
        driver_of: Callable[[Server], Driver],
        report: Report,
        configs: dict[str, tuple[Statement, ...]],
        probe: Callable[[Server], None] | None,
    ) -> None:
        super().__init__(book, job, driver_of, report, configs, probe)
        self.target = 0
        self._ttls: dict[str, int | None] = {}  # server -> the TTL of its start of authority, where that is not ours
        self._cut: dict[int, tuple[dict[Key, RRset | None], list[list[Change]]]] = {}  # what is asked for twice

    # -- decide --------------------------------------------------------------------------------------------------------

    async def decide(self, writers: Sequence[Server], followers: Sequence[Server]) -> None:
        """One serial for all."""
        book, job = self.book, self.job
        copies = [book.copy(server.id) for server in writers if server.title not in self.report.errors]
        seen = [serial for serial in (job.soa.serial, book.serial, *(copy.serial for copy in copies)) if serial]
        if any(copy.absent for copy in copies):
            seen += await self._serials_of(followers)
        newest = latest(*seen) if seen else 0
        due = [copy for copy in copies if self._due(copy)]
        complete = [copy for copy in copies if copy not in due and copy.serial == newest]
        # Someone has all of it already: the others join at that serial. Otherwise it is new, and so is its serial.
        steps = max((len(self._chunks(copy)) for copy in due), default=1)
        joinable = complete and all(copy.absent or is_ahead(newest, copy.serial) for copy in due)
        if (
            (not due and all(copy.serial == newest for copy in copies))
            or joinable
            or (not due and newest == book.serial)
        ):
            self.target = newest
        else:
            self.target = following(newest, steps)
        if copies:
            book.serial = self.target

    async def _serials_of(self, servers: Sequence[Server]) -> list[int]:
        """What those serve who must not be thrown back."""

        async def one(server: Server) -> int:
            try:
                soa = await self.driver_of(server).soa(self.book.draft.zone)
            except DriverError:
                return 0
            return 0 if soa is None else Soa.read(soa).serial

        asked = [server for server in servers if self.probe is None or not self.book.copy(server.id).silent]
        return [serial for serial in await asyncio.gather(*(one(server) for server in asked)) if serial]

    def _due(self, copy: Copy) -> bool:
        """Whether a copy is to be written, apart from its serial."""
        return (
            copy.absent
            or any(self._is_due(copy, key) for key in copy.lag)
            or copy.soa is None
            or (copy.ours and _timers(copy.soa) != _timers(self.job.soa.value()))
        )

    def _lag(self, copy: Copy) -> dict[Key, RRset | None]:
        if copy.ours and not (copy.drift or copy.foreign or copy.refused or copy.shut):
            return dict(copy.lag)
        return {key: have for key, have in copy.lag.items() if self._is_due(copy, key)}

    def _is_due(self, copy: Copy, key: Key) -> bool:
        """Whether a difference is to be written: it is not left to others, and the server would have it."""
        if key in copy.foreign or (key in copy.drift and not self._collides(key)):
            return False
        if not copy.ours and self._change(copy, key).is_idle:
            return False
        return not ((copy.refused or copy.shut) and self.book.is_refused(copy, key))

    def _collides(self, key: Key) -> bool:
        """Whether data of others keeps ours out: beside a CNAME a server ignores what it is given, and says nothing."""
        owner, kind = key
        draft = self.book.draft
        return draft.serves(owner) if kind == CNAME else (owner, CNAME) in draft.rrsets

    def _chunks(self, copy: Copy) -> list[list[Change]]:
        """The changes of a copy, in pieces that fit into a message. Nearly always there is one."""
        lag = self._lag(copy)
        known = self._cut.get(id(copy))
        if known is not None and known[0] == lag:
            return known[1]
        chunks = pieces([self._change(copy, key) for key in lag]) or [[]]
        self._cut[id(copy)] = (lag, chunks)
        return chunks

    def _change(self, copy: Copy, key: Key) -> Change:
        """What is to be done about a difference; an RRset of others that gets further values keeps its TTL."""
        have, want = copy.lag[key], self.book.draft.rrsets.get(key)
        if not copy.ours and want is not None and have is not None and keeps_ttl(have, want) and key not in copy.exact:
            want = replace(want, ttl=have.ttl)
        return Change(key, have, want)

    # -- write ---------------------------------------------------------------------------------------------------------

    async def write(self, server: Server, copy: Copy) -> None:
        """Bring one primary to the draft and the serial."""
        for attempt in range(TRIES):
            try:
                if await self._written(server, copy):
                    await self._signed(server, copy)
                    return
            except Stale:
                if attempt == TRIES - 1:
                    raise
            # It changed under our hands: read it again, and take a serial that is later than what it has now.
            await self._read(server, copy)
            self.meet(server, copy)
            if copy.serial == self.target or is_ahead(copy.serial, self.target):
                self.target = self.book.serial = following(latest(self.target, copy.serial), len(self._chunks(copy)))

    def is_late(self, server: Server) -> bool:
        """Whether a primary has everything but the serial of the others."""
        copy = self.book.copy(server.id)
        settled = copy.known and not copy.absent and not copy.error and self.job.policy is None
        return settled and copy.serial != self.target

    async def _written(self, server: Server, copy: Copy) -> bool:
        book, job, driver = self.book, self.job, self.driver_of(server)
        zone = book.draft.zone
        theirs = None if copy.ours or copy.absent else copy.soa  # nothing else of it is ours to change
        soa = replace(job.soa if theirs is None else Soa.read(theirs), serial=self.target)
        if copy.absent:
            await self._create(server, copy, soa)
            if not self._due(copy):
                return True
            self.target = book.serial = following(copy.serial, len(self._chunks(copy)))
            soa = replace(soa, serial=self.target)
        signed = job.policy is not None
        if signed and copy.soa is not None:
            copy.soa = await driver.soa(zone) or copy.soa
            soa = replace(soa, serial=latest(soa.serial, following(copy.serial))) if self._due(copy) else soa
        if not self._due(copy) and (copy.serial == self.target or signed):
            if job.look:
                await self._try_again(driver, copy, soa)
            return True
        chunks = self._chunks(copy)
        ttl = await self._soa_ttl(driver, copy)
        for number, changes in enumerate(chunks):
            value = replace(soa, serial=_back(soa.serial, len(chunks) - 1 - number)).value()
            try:
                await driver.write(zone, copy.soa, value, ttl, changes)
            except Refused:
                await self._sort_out(driver, copy, soa, changes)
                if self._due(copy) and not is_ahead(self.target, copy.serial):
                    self.target = book.serial = following(copy.serial, len(self._chunks(copy)))
                return await self._written(server, copy)  # every round makes it less
            except DriverError:
                copy.known = False
                raise
            self._took(copy, value, changes)
        await self._try_again(driver, copy, soa)
        if signed:
            copy.soa = await driver.soa(zone) or copy.soa
            book.serial = latest(book.serial, copy.serial)
        return True

    async def _soa_ttl(self, driver: Driver, copy: Copy) -> int:
        """The TTL of the start of authority: what it has, until the copy is ours."""
        if copy.ours:
            return self.job.ttl
        if driver.server.id not in self._ttls:
            self._ttls[driver.server.id] = await driver.soa_ttl(self.book.draft.zone)
        found = self._ttls[driver.server.id]
        return self.job.ttl if found is None else found

    async def _create(self, server: Server, copy: Copy, soa: Soa) -> None:
        """Give a primary the zone, all of it, or as much as it loads."""
        book, job, driver = self.book, self.job, self.driver_of(server)
        zone, config = book.draft.zone, self.configs[server.id]
        if server.records_only:
            raise DriverError("it does not have the zone, and may not be given it (recordsOnly)", server=server.title)
        config = unannounced(config) if job.hold else config
        copy.signed = frozenset()
        wanted = {key: one for key, one in book.draft.rrsets.items() if not book.is_refused(copy, key)}
        try:
            await driver.create_primary(zone, config, soa, wanted, job.ttl)
        except BadZone:  # what it minds it shows when it is asked to change what it has
            wanted, whole = servers_only(wanted, zone), wanted
            if wanted == whole:
                raise
            soa = replace(soa, serial=following(soa.serial))  # a file with the other data may be there
            self.target = book.serial = soa.serial
            await driver.create_primary(zone, config, soa, wanted, job.ttl)
        self.report.written += 1
        copy.known, copy.absent, copy.soa, copy.config, copy.drift = True, False, soa.value(), config, {}
        copy.ours = copy.made = True
        copy.lag = dict.fromkeys(book.draft.rrsets.keys() - wanted.keys())
        if job.policy is not None:
            copy.soa = await driver.soa(zone)

    async def _signed(self, server: Server, copy: Copy) -> None:
        """Know whether a zone is signed, until it is; and tell others of it then."""
        config, driver = self.configs[server.id], self.driver_of(server)
        if not self.job.tags:
            copy.unsigned = 0
        elif (copy.signed != self.job.tags or self.job.look) and await self._is_signed(driver, copy):
            if copy.config != config:
                await driver.configure(self.book.draft.zone, config)
                copy.config = config
            copy.soa = await driver.soa(self.book.draft.zone) or copy.soa
            self.book.serial = latest(self.book.serial, copy.serial)

    def _took(self, copy: Copy, soa: bytes, changes: Sequence[Change]) -> None:
        self.report.written += 1
        copy.soa = soa
        for change in changes:
            copy.lag.pop(change.key, None)
            copy.refused.pop(change.key, None)
            if change.want != self.book.draft.rrsets.get(change.key):
                copy.lag[change.key] = change.want

    async def _attempt(self, driver: Driver, copy: Copy, soa: Soa, changes: Sequence[Change]) -> bool:
        """Make some changes, at the next serial; says whether the server would have them."""
        zone = self.book.draft.zone
        if self.job.policy is not None:
            copy.soa = await driver.soa(zone) or copy.soa
        value = replace(soa, serial=following(copy.serial)).value()
        ttl = await self._soa_ttl(driver, copy)
        try:
            await driver.write(zone, copy.soa, value, ttl, changes)
        except Refused:
            return False
        self._took(copy, value, changes)
        self.target = self.book.serial = latest(self.target, copy.serial)
        return True

    async def _sort_out(self, driver: Driver, copy: Copy, soa: Soa, changes: Sequence[Change]) -> None:
        """An update was refused: hold back what the server minds, and get the rest through."""
        if not await self._attempt(driver, copy, soa, ()):
            raise DriverError(
                "it refuses every update of the zone (is it frozen, or has the key no right to?)",
                server=driver.server.title,
            )
        found = await search(changes, lambda part: self._attempt(driver, copy, soa, part))
        copy.refused |= {change.key: self.book.draft.rrsets.get(change.key) for change in found.refused}
        if found.untried:
            raise DriverError(
                f"it refuses more than {len(found.refused)} RRsets, and {len(found.untried)} were not tried yet",
                server=driver.server.title,
            )

    async def _try_again(self, driver: Driver, copy: Copy, soa: Soa) -> None:
        """What was refused before may be fine beside what has been published since."""
        book = self.book
        copy.refused = {
            key: want
            for key, want in copy.refused.items()
            if key in copy.lag and key not in copy.shut and book.is_refused(copy, key)
        }
        if copy.refused:
            wanted = [self._change(copy, key) for key in copy.refused]
            await self._attempt(driver, copy, soa, pieces(wanted[:AT_ONCE])[0])

    # -- follow --------------------------------------------------------------------------------------------------------

    async def follow(self, server: Server, copy: Copy) -> None:
        """A secondary fetches by itself; see that it is told where, and that it does."""
        driver, zone, config = self.driver_of(server), self.book.draft.zone, self.configs[server.id]
        by_catalog = bool(server.catalog)  # its zones come from there, and the catalog from its own configuration
        if not by_catalog and (copy.config != config or self.job.look):
            found = await driver.configuration(zone)
            copy.made = copy.made or is_made_here(found or (), server, zone)
            if found and zone_type(found) != "secondary":
                await self.clear_way(server, copy, found)
                found = None
            if found is None:
                await driver.create_secondary(zone, config)
            elif found and not same_config(found, config):
                await driver.configure(zone, config)
            copy.config = config
        soa = await driver.soa(zone)
        copy.known, copy.soa = True, soa
        serial = 0 if soa is None else Soa.read(soa).serial
        if self.book.serial and (not serial or is_ahead(self.book.serial, serial)):
            copy.behind += 1
            self.report.behind.append(server.title)
            # Notifications come first; but one that arrives during a refresh is forgotten when that refresh fails.
            if copy.behind > 1 and self.job.now - copy.refreshed >= REFRESH:
                copy.refreshed = self.job.now
                try:
                    await driver.refresh(zone)
                except DriverError:
                    if not by_catalog:  # else it has not read the catalog yet
                        raise
        else:
            copy.behind = 0


def _timers(soa: bytes) -> Soa:
    return replace(Soa.read(soa), serial=0)


def _back(serial: int, steps: int) -> int:
    return (serial - steps) % 2**32 or 2**32 - 1
