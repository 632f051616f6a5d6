"""Knowing what the copies of a zone are: is the zone there, how is it configured, what does it serve.

A step at one server never fails for another, nor keeps another waiting for long: who says nothing while all others are
done is left behind, and asked nothing more until somebody has seen it alive. Nothing here knows Kubernetes, and nothing
here decides what is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.errors import DriverError
from steersman.operators.dns.driver import ZoneFileAccess
from steersman.operators.dns.foreign import is_bare, names_in, shut_out, unspoken
from steersman.operators.dns.rrsets import GENERATED, NS, Key, Soa
from steersman.operators.dns.serials import latest
from steersman.operators.dns.servers import Server
from steersman.operators.dns.signedcopies import see_signed
from steersman.operators.dns.types import Drift
from steersman.operators.dns.zoneconfig import (
    is_made_here,
    is_signed_by_policy,
    keeping_file,
    open_to,
    same_config,
    unannounced,
    zone_type,
)
from steersman.operators.dns.zoneplan import is_ignored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from steersman.operators.dns.book import Copy, ZoneBook
    from steersman.operators.dns.driver import Driver
    from steersman.operators.dns.zonetext import Statement

__all__ = ["Job", "Looking", "Report"]

PATIENCE: Final = 2.0  # seconds for which others wait for a server when they are done themselves
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
    key_directory: str = ""  # where that has the keys; empty: in a place of its own
    tags: frozenset[int] = frozenset()  # of the keys that it is to be signed with; empty: whichever the server has
    hold: bool = False  # nobody is told of a zone that is not signed yet
    look: bool = False  # look at every copy, also where nothing is to be written
    first: bool = False  # this process has not published the zone before: what differs need not be drift
    now: float = 0.0  # seconds, by a clock that does not jump
    ours: Mapping[Key, frozenset[bytes]] = {}  # data of records that are being deleted: removing it is no repair
    owned: Mapping[str, frozenset[Key]] = {}  # instance -> where records say that it had what they say
    mine: frozenset[str] = frozenset()  # servers whose copy was ours before this process began
    adopt: bool = False  # whatever servers have is ours


class Report(msgspec.Struct):
    """What came of it."""

    serial: int = 0
    written: int = 0  # updates that were sent
    drift: dict[str, list[str]] = {}  # server -> names that were not as they should be
    errors: dict[str, tuple[str, str]] = {}  # server -> reason, message
    behind: list[str] = []  # secondaries that have not caught up
    unsigned: list[str] = []  # primaries that have not signed it yet
    foreign: dict[str, list[str]] = {}  # server -> names of data that no resource speaks for and that is kept
    adopted: dict[str, list[str]] = {}  # server -> names of such data that goes
    repaired: dict[str, list[str]] = {}  # server -> names whose drift was only reported until now

    @property
    def ok(self) -> bool:
        """Whether every primary serves the draft."""
        return not self.errors


class Looking:
    """What the steps of one publication share, and the first of them."""

    def __init__(
        self,
        book: ZoneBook,
        job: Job,
        driver_of: Callable[[Server], Driver],
        report: Report,
        configs: dict[str, tuple[Statement, ...]],
        probe: Callable[[Server], None] | None = None,
    ) -> None:
        self.probe = probe
        self.trouble: dict[str, DriverError] = {}  # server -> why its configuration could not be seen to
        self.book, self.job, self.driver_of, self.report = book, job, driver_of, report
        self.configs = configs
        self.skip = GENERATED if job.policy is not None else frozenset()

    async def guarded(self, server: Server, step: Callable[[Server, Copy], object], *, writer: bool = True) -> None:
        """A step at one server; what fails there concerns nobody else."""
        copy = self.book.copy(server.id)
        if server.title in self.report.errors:
            return
        if copy.silent and self.probe is not None:
            self.report.errors[server.title] = (copy.reason, copy.error)
            self.probe(server)
            return
        began = asyncio.get_running_loop().time()
        try:
            await step(server, copy)  # type: ignore[misc]  # every step is a coroutine function
        except DriverError as error:
            self._failed(server, error, writer=writer)
            copy.silent = asyncio.get_running_loop().time() - began > PATIENCE
        else:
            copy.error = copy.reason = ""

    def _failed(self, server: Server, error: DriverError, *, writer: bool) -> None:
        copy = self.book.copy(server.id)
        copy.forget()
        copy.error, copy.reason = error.message, _reason(error, writer=writer)
        self.report.errors[server.title] = (copy.reason, error.message)

    async def at_all(
        self, servers: Iterable[Server], step: Callable[[Server, Copy], object], *, writer: bool = True
    ) -> None:
        """A step at several servers at once. Secondaries are not waited for: their primaries are done by then."""
        tasks = {asyncio.create_task(self.guarded(server, step, writer=writer)): server for server in servers}
        waiting = set(tasks)
        try:
            while waiting:
                waited_for = (writer and len(waiting) == len(tasks)) or self._is_slow(tasks[task] for task in waiting)
                done, waiting = await asyncio.wait(
                    waiting, timeout=None if waited_for else PATIENCE, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        for server in (tasks[task] for task in waiting):
            text = f"no answer {PATIENCE:g} s after others were done; it is asked again when it gives signs of life"
            self._failed(server, DriverError(text, server=server.title), writer=writer)
            self.book.copy(server.id).silent = True

    def _is_slow(self, servers: Iterable[Server]) -> bool:
        return self.probe is None or any(self.book.copy(server.id).slow for server in servers)

    def finish(self, servers: Iterable[Server]) -> None:
        """Say what was put off, and forget who was waited for."""
        for server in servers:
            copy, error = self.book.copy(server.id), self.trouble.get(server.id)
            copy.slow = False
            if error is not None and server.title not in self.report.errors:
                copy.error, copy.reason = error.message, _reason(error, writer=True)
                self.report.errors[server.title] = (copy.reason, copy.error)

    # -- look ----------------------------------------------------------------------------------------------------------

    async def look(self, server: Server, copy: Copy) -> None:
        """Know what a primary has."""
        config, drifted = self.configs[server.id], set(copy.drift)
        if not (copy.known and not self.job.look and copy.config == config):
            await self._look(server, copy)
        if self.job.drift is Drift.REPAIR and drifted:  # which was left alone until now
            copy.drift = {}
            if self._is_trusted(server, copy) and (due := drifted & copy.lag.keys()):
                self.report.repaired[server.title] = names_in(due, self.book.draft.zone)
        self.meet(server, copy)
        seen_to = copy.config is not None or copy.absent or server.records_only or server.id in self.trouble
        if copy.ours and not seen_to:
            await self._configure(server, copy)

    async def _look(self, server: Server, copy: Copy) -> None:
        driver, zone, config = self.driver_of(server), self.book.draft.zone, self.configs[server.id]
        found: tuple[Statement, ...] = ()
        if not server.records_only and (copy.config != config or self.job.look):
            began = asyncio.get_running_loop().time()
            try:
                found = await self._configure(server, copy)
            except DriverError as error:  # there may be another way for data, and what is known of that still holds
                if not copy.known or copy.absent or asyncio.get_running_loop().time() - began > PATIENCE:
                    raise
                self.trouble[server.id], copy.config = error, None
        if copy.known and not copy.absent:
            copy.passes += 1
            if self.job.drift is Drift.OFF:
                return
            served = await driver.soa(zone)
            if served == copy.soa and copy.passes % WHOLE:
                return
        if copy.absent:
            return
        try:
            await self._read(server, copy)
        except DriverError:
            if not found or self._is_trusted(server, copy):
                raise
            await driver.configure(zone, open_to(found, server))  # a zone of others, who have not let us read it
            await self._read(server, copy)

    def _is_trusted(self, server: Server, copy: Copy) -> bool:
        """Whether a copy is ours whatever it holds."""
        return copy.ours or copy.made or server.managed or self.job.adopt or server.id in self.job.mine

    def meet(self, server: Server, copy: Copy) -> None:
        """Find out whether a copy is ours, and what others have in it."""
        if not copy.known or copy.absent:
            return
        book, job = self.book, self.job
        zone, wanted = book.draft.zone, book.draft.rrsets
        if not copy.ours:
            copy.owned |= job.owned.get(str(server.instance), frozenset())
            lag = {key: have for key, have in copy.lag.items() if key not in copy.owned}
            found = unspoken(lag, wanted, copy.spoken, job.ours)
            bare = is_bare(found, copy.lag.get((b"", NS)) or wanted.get((b"", NS)), zone)
            copy.ours = bare or self._is_trusted(server, copy)
            copy.foreign = {} if copy.ours else found
            if not bare and job.adopt and job.drift is Drift.REPAIR:
                self.report.adopted[server.title] = names_in(found, zone)
        copy.shut = frozenset()
        if copy.foreign or copy.left:
            copy.shut = shut_out(copy.lag, wanted, [*copy.foreign, *copy.left])
        # Where drift is not repaired nobody takes anything away, and what differs is told as drift.
        kept = copy.foreign if job.drift is Drift.REPAIR else copy.foreign.keys() & wanted.keys()
        if kept:
            self.report.foreign[server.title] = names_in(kept, zone)

    async def clear_way(self, server: Server, copy: Copy, found: tuple[Statement, ...]) -> None:
        """Remove a zone that is there in another way than it should be, if it is ours to remove."""
        if not self._is_trusted(server, copy):
            kind = zone_type(found)
            text = f"it has the zone as a {kind} already, from others: remove it there, or select another instance"
            raise DriverError(text, server=server.title)
        await self.driver_of(server).remove(self.book.draft.zone)

    async def _configure(self, server: Server, copy: Copy) -> tuple[Statement, ...]:
        """See that a zone is configured as it should be, where that is ours to say; returns how it was found."""
        driver, zone, config = self.driver_of(server), self.book.draft.zone, self.configs[server.id]
        found = await driver.configuration(zone)
        if found is None:
            copy.lose()
            return ()
        copy.made = copy.made or is_made_here(found, server, zone)
        if found and zone_type(found) != zone_type(config):
            await self.clear_way(server, copy, found)
            copy.lose()
            return ()
        if copy.absent:
            copy.known = copy.absent = False  # somebody else added it
        if found and not same_config(found, config):
            if not self._is_trusted(server, copy):
                copy.config = None
                return found
            if is_signed_by_policy(found) and not is_signed_by_policy(config):
                # named takes no signature out again: an unsigned zone is another one, with a later serial
                copy.soa = await driver.soa(zone)
                self.book.serial = latest(*(serial for serial in (self.book.serial, copy.serial) if serial))
                await driver.remove(zone)
                copy.lose()
                return ()
            if self.job.hold and same_config(found, unannounced(config)) and not await self._is_signed(driver, copy):
                copy.config = found
                return found
            await driver.configure(zone, keeping_file(config, found))
        copy.config = config
        return found

    async def _is_signed(self, driver: Driver, copy: Copy) -> bool:
        signed = await see_signed(driver, self.book.draft.zone, copy, self.job.tags)
        if not signed and driver.server.title not in self.report.unsigned:
            self.report.unsigned.append(driver.server.title)
        return signed

    async def _read(self, server: Server, copy: Copy) -> None:
        known, before, drifted = copy.known, dict(copy.lag), copy.drift
        soa, rrsets = await self.driver_of(server).read(self.book.draft.zone, self.skip)
        lag = self.book.learn(copy, soa, rrsets)
        zone, wanted, patterns = self.book.draft.zone, self.book.draft.rrsets, self.job.ignore
        copy.left = frozenset(
            key
            for key, have in lag.items()
            if patterns and have is not None and key not in wanted and is_ignored(key, zone, patterns)
        )
        for key in copy.left:
            del lag[key]
        if known and not self.job.first:
            unexpected = {key: have for key, have in lag.items() if key not in before}
        else:  # what we wrote before and what others did cannot be told apart, except where nobody here has a say
            unexpected = {key: have for key, have in lag.items() if key not in wanted and key not in self.job.ours}
        news = {key for key in unexpected if drifted.get(key, ()) != unexpected[key]}
        if self.job.drift is Drift.REPAIR:
            copy.drift = {}
        else:
            copy.drift = unexpected | {key: lag[key] for key in drifted.keys() & lag.keys()}
        if news and not self.job.first and self._is_trusted(server, copy):
            self.report.drift[server.title] = names_in(news, zone)


def _reason(error: DriverError, *, writer: bool) -> str:
    if isinstance(error, ZoneFileAccess):
        return "ZoneFileAccess"
    return "PrimaryFailed" if writer else "SecondaryFailed"
