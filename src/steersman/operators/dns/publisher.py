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
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from steersman.errors import DriverError
from steersman.operators.dns.driver import Refused, Stale, ZoneFileAccess
from steersman.operators.dns.messages import FULL, Change, changes_size
from steersman.operators.dns.names import short_text, text_of
from steersman.operators.dns.native import file_of
from steersman.operators.dns.refusals import search
from steersman.operators.dns.rrsets import CNAME, GENERATED, Key, Soa
from steersman.operators.dns.serials import following, is_ahead, latest
from steersman.operators.dns.servers import Server
from steersman.operators.dns.types import Drift
from steersman.operators.dns.zoneconfig import primary_config, same_config, secondary_config, zone_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from steersman.operators.dns.book import Copy, ZoneBook
    from steersman.operators.dns.driver import Driver
    from steersman.operators.dns.rrsets import RRset
    from steersman.operators.dns.zonetext import Statement

__all__ = ["LISTED_IN", "Job", "Report", "publish", "remove"]

TRIES: Final = 4  # to write a copy that keeps changing
REFRESH: Final = 0.5  # seconds between two requests to a secondary to catch up
LISTED_IN: Final = "still serves the zone, which is no longer listed in "
AT_ONCE: Final = 50  # changes that were refused before and are tried again in one update
WHOLE: Final = 6  # every so many looks a copy is read as a whole, whatever its serial says


class Job(msgspec.Struct, frozen=True):
    """What is to be published, and where."""

    soa: Soa  # with the least serial that will do
    ttl: int
    primaries: tuple[Server, ...]
    secondaries: tuple[Server, ...]
    drift: Drift = Drift.REPAIR
    ignore: tuple[str, ...] = ()  # names that belong to others, as patterns
    policy: str | None = None  # the zone is signed by the first primary
    look: bool = False  # look at every copy, also where nothing is to be written
    first: bool = False  # this process has not published the zone before: what differs need not be drift
    now: float = 0.0  # seconds, by a clock that does not jump
    ours: frozenset[Key] = frozenset()  # keys of records that are being deleted: removing them is no repair


class Report(msgspec.Struct):
    """What came of it."""

    serial: int = 0
    written: int = 0  # updates that were sent
    drift: dict[str, list[str]] = {}  # server -> names that were not as they should be
    errors: dict[str, tuple[str, str]] = {}  # server -> reason, message
    behind: list[str] = []  # secondaries that have not caught up

    @property
    def ok(self) -> bool:
        """Whether every primary serves the draft."""
        return not self.errors


async def publish(book: ZoneBook, job: Job, driver_of: Callable[[Server], Driver]) -> Report:
    """Bring every copy to the draft, as far as servers answer."""
    report = Report(drift={}, errors={}, behind=[])
    writers = job.primaries[:1] if job.policy is not None else job.primaries
    followers = (*(job.primaries[1:] if job.policy is not None else ()), *job.secondaries)
    configs = {
        server.id: primary_config(server, book.draft.zone, followers, policy=job.policy, widest=book.draft.widest)
        for server in writers
    }
    configs |= {server.id: secondary_config(server, book.draft.zone, writers) for server in followers}
    work = _Work(book, job, driver_of, report, configs)
    await asyncio.gather(*(work.guarded(server, work.look) for server in writers))
    await work.decide(writers, followers)
    await asyncio.gather(*(work.guarded(server, work.write) for server in writers))
    # Whoever was written while another took a later serial joins it.
    await asyncio.gather(*(work.guarded(server, work.write) for server in writers if work.is_late(server)))
    await asyncio.gather(*(work.guarded(server, work.follow, writer=False) for server in followers))
    report.serial = book.serial
    return report


async def remove(zone: bytes, servers: Sequence[Server], driver_of: Callable[[Server], Driver]) -> dict[str, str]:
    """Remove a zone everywhere; returns where that failed, and why."""
    failed: dict[str, str] = {}

    async def one(server: Server) -> None:
        try:
            if server.catalog:
                await _unlisted(zone, server, driver_of(server), failed)
            elif not server.records_only:
                await driver_of(server).remove(zone)
        except DriverError as error:
            failed[server.title] = error.message

    await asyncio.gather(*(one(server) for server in servers))
    return failed


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


class _Work:
    """One publication."""

    def __init__(
        self,
        book: ZoneBook,
        job: Job,
        driver_of: Callable[[Server], Driver],
        report: Report,
        configs: dict[str, tuple[Statement, ...]],
    ) -> None:
        self.book, self.job, self.driver_of, self.report = book, job, driver_of, report
        self.configs = configs
        self.skip = GENERATED if job.policy is not None else frozenset()
        self.target = 0
        self._cut: dict[int, tuple[dict[Key, RRset | None], list[list[Change]]]] = {}  # what is asked for twice

    async def guarded(self, server: Server, step: Callable[[Server, Copy], object], *, writer: bool = True) -> None:
        """A step at one server; what fails there concerns nobody else."""
        copy = self.book.copy(server.id)
        if server.title in self.report.errors:
            return
        try:
            await step(server, copy)  # type: ignore[misc]  # every step is a coroutine function
        except DriverError as error:
            copy.forget()
            copy.error, copy.reason = error.message, _reason(error, writer=writer)
            self.report.errors[server.title] = (copy.reason, error.message)
        else:
            copy.error = copy.reason = ""

    # -- look ----------------------------------------------------------------------------------------------------------

    async def look(self, server: Server, copy: Copy) -> None:
        """Know what a primary has."""
        driver, zone, config = self.driver_of(server), self.book.draft.zone, self.configs[server.id]
        if copy.known and not self.job.look and copy.config == config:
            return
        if not server.records_only and (copy.config != config or self.job.look):
            await self._configure(driver, copy, config)
        if copy.known and not copy.absent:
            copy.passes += 1
            if self.job.drift is Drift.OFF:
                return
            served = await driver.soa(zone)
            if served == copy.soa and copy.passes % WHOLE:
                return
        if not copy.absent:
            await self._read(server, copy)

    async def _configure(self, driver: Driver, copy: Copy, config: tuple[Statement, ...]) -> None:
        zone = self.book.draft.zone
        found = await driver.configuration(zone)
        if found is None:
            copy.known, copy.absent, copy.soa, copy.config = True, True, None, None
            return
        if found and zone_type(found) != zone_type(config):
            await driver.remove(zone)
            copy.known, copy.absent, copy.soa, copy.config = True, True, None, None
            return
        if copy.absent:
            copy.known = copy.absent = False  # somebody else added it
        if found and not same_config(found, config):
            await driver.configure(zone, config)
        copy.config = config

    async def _read(self, server: Server, copy: Copy) -> None:
        known, before, drifted = copy.known, dict(copy.lag), copy.drift
        soa, rrsets = await self.driver_of(server).read(self.book.draft.zone, self.skip)
        lag = self.book.learn(copy, soa, rrsets)
        foreign = {
            key: have
            for key, have in lag.items()
            if (self._is_ignored(key) and have is not None and key not in self.book.draft.rrsets)
        }
        for key in foreign:
            del lag[key]
        if known and not self.job.first:
            unexpected = {key: have for key, have in lag.items() if key not in before}
        else:  # what we wrote before and what others did cannot be told apart, except where nobody here has a say
            rrsets_wanted = self.book.draft.rrsets
            unexpected = {
                key: have for key, have in lag.items() if key not in rrsets_wanted and key not in self.job.ours
            }
        news = {key for key in unexpected if drifted.get(key, ()) != unexpected[key]}
        if self.job.drift is Drift.REPAIR:
            copy.drift = {}
        else:
            copy.drift = unexpected | {key: lag[key] for key in drifted.keys() & lag.keys()}
        if news and not self.job.first:
            names = sorted({short_text(key[0], self.book.draft.zone) for key in news})
            self.report.drift[server.title] = names

    def _is_ignored(self, key: Key) -> bool:
        name = short_text(key[0], self.book.draft.zone)
        return any(
            fnmatchcase(name, pattern) or fnmatchcase(name.partition(".")[0], pattern) for pattern in self.job.ignore
        )

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

        return [serial for serial in await asyncio.gather(*(one(server) for server in servers)) if serial]

    def _due(self, copy: Copy) -> bool:
        """Whether a copy is to be written, apart from its serial."""
        return (
            copy.absent
            or bool(self._lag(copy))
            or copy.soa is None
            or _timers(copy.soa) != _timers(self.job.soa.value())
        )

    def _lag(self, copy: Copy) -> dict[Key, RRset | None]:
        book = self.book
        return {
            key: have
            for key, have in copy.lag.items()
            if (key not in copy.drift or self._collides(key)) and not (copy.refused and book.is_refused(copy, key))
        }

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
        chunks = self._cut_up(lag)
        self._cut[id(copy)] = (lag, chunks)
        return chunks

    def _cut_up(self, lag: dict[Key, RRset | None]) -> list[list[Change]]:
        wanted = self.book.draft.rrsets
        chunks: list[list[Change]] = [[]]
        size = 0
        for key in sorted(lag, key=lambda key: (key in wanted, key)) if len(lag) > 1 else lag:
            change = Change(key, lag[key], wanted.get(key))
            size += changes_size(change)
            if size > FULL and chunks[-1]:
                chunks.append([])
                size = changes_size(change)
            chunks[-1].append(change)
        return chunks

    # -- write ---------------------------------------------------------------------------------------------------------

    async def write(self, server: Server, copy: Copy) -> None:
        """Bring one primary to the draft and the serial."""
        for attempt in range(TRIES):
            try:
                if await self._written(server, copy):
                    return
            except Stale:
                if attempt == TRIES - 1:
                    raise
            # It changed under our hands: read it again, and take a serial that is later than what it has now.
            await self._read(server, copy)
            if copy.serial == self.target or is_ahead(copy.serial, self.target):
                self.target = self.book.serial = following(latest(self.target, copy.serial), len(self._chunks(copy)))

    def is_late(self, server: Server) -> bool:
        """Whether a primary has everything but the serial of the others."""
        copy = self.book.copy(server.id)
        settled = copy.known and not copy.absent and not copy.error and self.job.policy is None
        return settled and copy.serial != self.target

    async def _written(self, server: Server, copy: Copy) -> bool:
        book, job, driver = self.book, self.job, self.driver_of(server)
        zone, config = book.draft.zone, self.configs[server.id]
        soa = replace(job.soa, serial=self.target)
        if copy.absent:
            if server.records_only:
                raise DriverError(
                    "it does not have the zone, and may not be given it (recordsOnly)", server=server.title
                )
            await driver.create_primary(zone, config, soa, book.draft.rrsets, job.ttl)
            self.report.written += 1
            copy.known, copy.absent, copy.soa, copy.lag, copy.drift, copy.config = (
                True,
                False,
                soa.value(),
                {},
                {},
                config,
            )
            if job.policy is not None:
                copy.soa = await driver.soa(zone)
            return True
        signed = job.policy is not None
        if signed and copy.soa is not None:
            copy.soa = await driver.soa(zone) or copy.soa
            soa = replace(soa, serial=latest(soa.serial, following(copy.serial))) if self._due(copy) else soa
        if not self._due(copy) and (copy.serial == self.target or signed):
            if job.look:
                await self._try_again(driver, copy, soa)
            return True
        chunks = self._chunks(copy)
        for number, changes in enumerate(chunks):
            value = replace(soa, serial=_back(soa.serial, len(chunks) - 1 - number)).value()
            try:
                await driver.write(zone, copy.soa, value, job.ttl, changes)
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

    def _took(self, copy: Copy, soa: bytes, changes: Sequence[Change]) -> None:
        self.report.written += 1
        copy.soa = soa
        for change in changes:
            copy.lag.pop(change.key, None)
            copy.refused.pop(change.key, None)

    async def _attempt(self, driver: Driver, copy: Copy, soa: Soa, changes: Sequence[Change]) -> bool:
        """Make some changes, at the next serial; says whether the server would have them."""
        zone = self.book.draft.zone
        if self.job.policy is not None:
            copy.soa = await driver.soa(zone) or copy.soa
        value = replace(soa, serial=following(copy.serial)).value()
        try:
            await driver.write(zone, copy.soa, value, self.job.ttl, changes)
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
        copy.refused |= {change.key: change.want for change in found.refused}
        if found.untried:
            raise DriverError(
                f"it refuses more than {len(found.refused)} RRsets, and {len(found.untried)} were not tried yet",
                server=driver.server.title,
            )

    async def _try_again(self, driver: Driver, copy: Copy, soa: Soa) -> None:
        """What was refused before may be fine beside what has been published since."""
        book = self.book
        wanted = [
            Change(key, copy.lag[key], want)
            for key, want in copy.refused.items()
            if key in copy.lag and book.is_refused(copy, key)
        ]
        copy.refused = {change.key: change.want for change in wanted}
        if wanted:
            await self._attempt(driver, copy, soa, wanted[:AT_ONCE])

    # -- follow --------------------------------------------------------------------------------------------------------

    async def follow(self, server: Server, copy: Copy) -> None:
        """A secondary fetches by itself; see that it is told where, and that it does."""
        driver, zone, config = self.driver_of(server), self.book.draft.zone, self.configs[server.id]
        by_catalog = bool(server.catalog)  # its zones come from there, and the catalog from its own configuration
        if not by_catalog and (copy.config != config or self.job.look):
            found = await driver.configuration(zone)
            if found is not None and found and zone_type(found) != "secondary":
                await driver.remove(zone)
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


def _reason(error: DriverError, *, writer: bool) -> str:
    if isinstance(error, ZoneFileAccess):
        return "ZoneFileAccess"
    return "PrimaryFailed" if writer else "SecondaryFailed"
