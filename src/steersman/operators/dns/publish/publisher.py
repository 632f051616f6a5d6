"""Publishing a zone: every copy is brought to the desired zone.

    inspect   every primary: does it have the zone, how is it configured, what does it serve
    diff      what is written to each, and one serial for all of them
    write     create what is absent, complete; change what differs, in one conditional update per primary
    verify    primaries have signed the zone where they should, secondaries have the serial

A copy that lacks nothing but the serial gets the serial of the others; only new data gets a new serial. An update names
the start of authority it was made for, so a change in between makes it fail, and the copy is read again. A step at one
server never fails for another, nor keeps another waiting for long. Nothing here knows Kubernetes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from steersman.errors import DriverError
from steersman.operators.dns.api.config import ADOPT
from steersman.operators.dns.bind.driver import BadZone, Refused, Stale, ZoneFileAccess
from steersman.operators.dns.bind.zone_statements import (
    borrowed,
    keeping_file,
    primary_config,
    same_config,
    secondary_config,
    unannounced,
    zone_type,
)
from steersman.operators.dns.publish.copy_inspector import (
    PATIENCE,
    CopyInspector,
    Publication,
    PublishJob,
    PublishReport,
)
from steersman.operators.dns.publish.diff import change_of, due_diff, needs_write
from steersman.operators.dns.publish.refused_updates import search, servers_only
from steersman.operators.dns.publish.zone_state import ExchangeFailure
from steersman.operators.dns.wire.messages import RRsetChange, pieces
from steersman.operators.dns.zone.rdata import Soa
from steersman.operators.dns.zone.serial import choose_serial, is_later, latest, next_serial

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from steersman.operators.dns.bind.driver import Driver
    from steersman.operators.dns.bind.servers import Server
    from steersman.operators.dns.publish.zone_state import ServerCopy, ZoneState
    from steersman.operators.dns.zone.rdata import Key, RRset

    Step = Callable[[Server, ServerCopy], Awaitable[None]]

TRIES: Final = 4  # to write a copy that keeps changing
REFRESH: Final = 0.5  # seconds between two requests to a secondary to refresh
AT_ONCE: Final = 50  # refused changes that are tried again in one update


async def publish(
    state: ZoneState,
    job: PublishJob,
    driver_of: Callable[[Server], Driver],
    probe: Callable[[Server], None] | None = None,
) -> PublishReport:
    """Bring every copy to the desired zone, as far as servers answer.

    `probe` watches a silent server until it answers again; without it every server is waited for.
    """
    if job.ignore != state.ignored_names:
        state.ignored_names = job.ignore
        for copy in state.copies.values():
            copy.known = False  # which data is left to others has changed
    writers = job.primaries[:1] if job.policy is not None else job.primaries
    followers = (*(job.primaries[1:] if job.policy is not None else ()), *job.secondaries)
    run = _publication(state, job, driver_of, writers, followers)
    servers, inspector = ServerSteps(run, probe), CopyInspector(run)
    publisher = Publisher(run, inspector)
    await servers.run(writers, inspector.inspect)
    await publisher.choose_serial(writers, [server for server in followers if not servers.is_skipped(server)])
    await servers.run(writers, publisher.write)
    # A primary that was written before another one took a later serial joins it.
    await servers.run([server for server in writers if publisher.is_late(server)], publisher.write)
    if not (job.hold and run.report.unsigned):  # the parent has a DS record: secondaries get the zone signed only
        await servers.run(followers, publisher.verify_secondary, primary=False)
    servers.finish((*writers, *followers))
    run.report.serial = state.serial
    return run.report


def _publication(
    state: ZoneState,
    job: PublishJob,
    driver_of: Callable[[Server], Driver],
    writers: Sequence[Server],
    followers: Sequence[Server],
) -> Publication:
    zone, widest = state.desired.zone, state.desired.widest
    plain = {
        server.id: primary_config(server, zone, followers, policy=job.policy, keys=job.key_directory, widest=widest)
        for server in writers
    } | {server.id: secondary_config(server, zone, writers, widest=widest) for server in followers}
    configs = {server: borrowed(config) if state.copy(server).borrowed else config for server, config in plain.items()}
    return Publication(state, job, driver_of, PublishReport(), plain, configs)


class ServerSteps:
    """Runs a step at several servers at once, and keeps failures of one from the others.

    A server that says nothing while all others are done is skipped from then on, until a probe has reached it.
    """

    def __init__(self, run: Publication, probe: Callable[[Server], None] | None) -> None:
        self._state, self._report, self._config_errors = run.state, run.report, run.config_errors
        self._probe = probe

    async def run(self, servers: Iterable[Server], step: Step, *, primary: bool = True) -> None:
        """Secondaries are not waited for: their primaries are done by then."""
        tasks = {asyncio.create_task(self._guarded(server, step, primary=primary)): server for server in servers}
        waiting = set(tasks)
        try:
            while waiting:
                all_wait = primary and len(waiting) == len(tasks)
                is_awaited = self._probe is None or any(self._state.copy(tasks[task].id).awaited for task in waiting)
                done, waiting = await asyncio.wait(
                    waiting,
                    timeout=None if all_wait or is_awaited else PATIENCE,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not done:
                    break
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        for server in (tasks[task] for task in waiting):
            text = f"no answer {PATIENCE:g} s after the other servers; the next try follows when it answers a probe"
            self._failed(server, DriverError(text, server=server.title), primary=primary, silent=True)

    async def _guarded(self, server: Server, step: Step, *, primary: bool) -> None:
        copy: ServerCopy = self._state.copy(server.id)
        if server.title in self._report.errors:
            return
        if copy.failure is not None and self._probe is not None and self.is_skipped(server):
            self._report.errors[server.title] = (copy.failure.reason, copy.failure.message)
            self._probe(server)
            return
        began = asyncio.get_running_loop().time()
        try:
            await step(server, copy)
        except DriverError as error:
            silent = asyncio.get_running_loop().time() - began > PATIENCE
            self._failed(server, error, primary=primary, silent=silent)
        else:
            copy.failure = None

    def is_skipped(self, server: Server) -> bool:
        """Whether a server was silent and has not answered a probe since."""
        copy: ServerCopy = self._state.copy(server.id)
        return self._probe is not None and copy.is_silent

    def _failed(self, server: Server, error: DriverError, *, primary: bool, silent: bool) -> None:
        reason = _reason(error, primary=primary)
        self._state.copy(server.id).fail(ExchangeFailure(reason, error.message, silent))
        self._report.errors[server.title] = (reason, error.message)

    def finish(self, servers: Iterable[Server]) -> None:
        """Report configurations that could not be checked, and wait specially for no server any more."""
        for server in servers:
            copy, error = self._state.copy(server.id), self._config_errors.get(server.id)
            copy.awaited = False
            if error is not None and server.title not in self._report.errors:
                copy.failure = ExchangeFailure(_reason(error, primary=True), error.message)
                self._report.errors[server.title] = (copy.failure.reason, error.message)


def _reason(error: DriverError, *, primary: bool) -> str:
    if isinstance(error, ZoneFileAccess):
        return "ZoneFileAccess"
    return "PrimaryFailed" if primary else "SecondaryFailed"


class Publisher:
    """Writes to primaries, and verifies secondaries."""

    def __init__(self, run: Publication, inspector: CopyInspector) -> None:
        self._run, self._inspector = run, inspector
        self.state: ZoneState = run.state
        self.job, self.report, self.zone = run.job, run.report, run.zone
        self.target = 0  # the serial that every primary gets
        self._ttls: dict[str, int | None] = {}  # server id -> TTL of its start of authority, where it is not ours
        self._updates: dict[int, tuple[dict[Key, RRset | None], list[list[RRsetChange]]]] = {}  # by id of the copy

    # -- diff ----------------------------------------------------------------------------------------------------------

    async def choose_serial(self, writers: Sequence[Server], followers: Sequence[Server]) -> None:
        """Choose the serial for all primaries; followers that answer are asked what they serve."""
        state = self.state
        copies = [state.copy(server.id) for server in writers if server.title not in self.report.errors]
        seen = [self.job.soa.serial, state.serial, *(copy.serial for copy in copies)]
        if any(copy.absent for copy in copies):
            seen += await asyncio.gather(*(self._served_serial(server) for server in followers))
        updates = [len(self._updates_of(copy)) if self._needs_write(copy) else 0 for copy in copies]
        serials = [None if copy.absent else copy.serial for copy in copies]
        known = [serial for serial in seen if serial]
        self.target = choose_serial(list(zip(serials, updates, strict=True)), known, state.serial)
        if copies:
            state.serial = self.target

    async def _served_serial(self, server: Server) -> int:
        try:
            soa = await self._run.driver_of(server).soa(self.zone)
        except DriverError:
            return 0
        return 0 if soa is None else Soa.read(soa).serial

    def _needs_write(self, copy: ServerCopy) -> bool:
        return needs_write(self.state, copy, self.job.soa)

    def _updates_of(self, copy: ServerCopy) -> list[list[RRsetChange]]:
        """The changes of a copy, in parts that fit into a message: nearly always one."""
        diff = due_diff(self.state, copy)
        known = self._updates.get(id(copy))
        if known is not None and known[0] == diff:
            return known[1]
        updates = pieces([change_of(self.state, copy, key) for key in diff]) or [[]]
        self._updates[id(copy)] = (diff, updates)
        return updates

    def _take_serial_after(self, serial: int, copy: ServerCopy) -> None:
        self.target = self.state.serial = next_serial(serial, len(self._updates_of(copy)))

    # -- write ---------------------------------------------------------------------------------------------------------

    async def write(self, server: Server, copy: ServerCopy) -> None:
        """Bring one primary to the desired zone and the serial."""
        for attempt in range(TRIES):
            try:
                await self._write(server, copy)
                await self._verify_signed(server, copy)
            except Stale:
                if attempt == TRIES - 1:
                    raise
            else:
                return
            # It changed meanwhile: read it again, and take a serial that is later than what it has now.
            await self._inspector.read(server, copy)
            self._inspector.classify(server, copy)
            if copy.serial == self.target or is_later(copy.serial, self.target):
                self._take_serial_after(latest(self.target, copy.serial), copy)

    def is_late(self, server: Server) -> bool:
        """Whether a primary has everything but the serial of the others."""
        copy = self.state.copy(server.id)
        is_settled = copy.known and not copy.absent and copy.failure is None and self.job.policy is None
        return is_settled and copy.serial != self.target

    async def _write(self, server: Server, copy: ServerCopy) -> None:
        driver = self._run.driver_of(server)
        is_signed = self.job.policy is not None
        foreign_soa = None if copy.managed or copy.absent else copy.soa  # of which only the serial is changed
        soa = replace(self.job.soa if foreign_soa is None else Soa.read(foreign_soa), serial=self.target)
        if copy.absent:
            await self._create(server, copy, soa)
            if not self._needs_write(copy):
                return
            self._take_serial_after(copy.serial, copy)
            soa = replace(soa, serial=self.target)
        if is_signed and copy.soa is not None:  # the server's own signing takes serials too
            copy.soa = await driver.soa(self.zone) or copy.soa
            if self._needs_write(copy):
                soa = replace(soa, serial=latest(soa.serial, next_serial(copy.serial)))
        if not self._needs_write(copy) and (copy.serial == self.target or is_signed):
            if self.job.check_all:
                await self._retry_refused(driver, copy, soa)
            return
        updates = self._updates_of(copy)
        ttl = await self._soa_ttl(driver, copy)
        for number, changes in enumerate(updates):
            value = replace(soa, serial=next_serial(soa.serial, number + 1 - len(updates))).value()
            try:
                await driver.write(self.zone, copy.soa, value, ttl, changes)
            except Refused:
                await self._isolate_refused(driver, copy, soa, changes)
                if self._needs_write(copy) and not is_later(self.target, copy.serial):
                    self._take_serial_after(copy.serial, copy)
                await self._write(server, copy)  # every round leaves less to write
                return
            except DriverError:
                copy.known = False
                raise
            self._written(copy, value, changes)
        await self._retry_refused(driver, copy, soa)
        if is_signed:
            copy.soa = await driver.soa(self.zone) or copy.soa
            self.state.serial = latest(self.state.serial, copy.serial)

    def _written(self, copy: ServerCopy, soa: bytes, changes: Sequence[RRsetChange]) -> None:
        self.report.written += 1
        copy.soa = soa
        for change in changes:
            copy.diff.pop(change.key, None)
            copy.refused.pop(change.key, None)
            if change.want != self.state.desired.rrsets.get(change.key):
                copy.diff[change.key] = change.want

    async def _soa_ttl(self, driver: Driver, copy: ServerCopy) -> int:
        """The TTL of the start of authority: the server's own until the copy is managed."""
        if copy.managed:
            return self.job.ttl
        if driver.server.id not in self._ttls:
            self._ttls[driver.server.id] = await driver.soa_ttl(self.zone)
        found = self._ttls[driver.server.id]
        return self.job.ttl if found is None else found

    async def _create(self, server: Server, copy: ServerCopy, soa: Soa) -> None:
        """Add the zone to a primary, with all data that it loads."""
        state, driver = self.state, self._run.driver_of(server)
        config = self._run.configs[server.id] = self._run.plain_configs[server.id]
        if server.records_only:
            raise DriverError(
                "the server does not have the zone, and recordsOnly forbids adding it: add it there, or unset "
                "recordsOnly",
                server=server.title,
            )
        config = unannounced(config) if self.job.hold else config
        copy.signed = frozenset()
        data = {key: rrset for key, rrset in state.desired.rrsets.items() if not state.is_refused(copy, key)}
        try:
            await driver.create_primary(self.zone, config, soa, data, self.job.ttl)
        except BadZone:  # updates of a minimal zone will show what it does not accept
            complete, data = data, servers_only(data, self.zone)
            if data == complete:
                raise
            soa = replace(soa, serial=next_serial(soa.serial))  # a file with the complete data may be there
            self.target = state.serial = soa.serial
            await driver.create_primary(self.zone, config, soa, data, self.job.ttl)
        self.report.written += 1
        copy.known, copy.absent, copy.soa, copy.config, copy.drift = True, False, soa.value(), config, {}
        copy.managed = copy.added = True
        copy.diff = dict.fromkeys(state.desired.rrsets.keys() - data.keys())
        if self.job.policy is not None:
            copy.soa = await driver.soa(self.zone)

    # -- refused updates -----------------------------------------------------------------------------------------------

    async def _attempt(self, driver: Driver, copy: ServerCopy, soa: Soa, changes: Sequence[RRsetChange]) -> bool:
        """Write some changes at the next serial; returns whether the server accepted them."""
        if self.job.policy is not None:
            copy.soa = await driver.soa(self.zone) or copy.soa
        value = replace(soa, serial=next_serial(copy.serial)).value()
        ttl = await self._soa_ttl(driver, copy)
        try:
            await driver.write(self.zone, copy.soa, value, ttl, changes)
        except Refused:
            return False
        self._written(copy, value, changes)
        self.target = self.state.serial = latest(self.target, copy.serial)
        return True

    async def _isolate_refused(
        self, driver: Driver, copy: ServerCopy, soa: Soa, changes: Sequence[RRsetChange]
    ) -> None:
        """An update was refused: find the changes that the server does not accept, and write the others."""
        if not await self._attempt(driver, copy, soa, ()):
            raise DriverError(
                "the server refuses every update of the zone: it may be frozen (rndc thaw), or its update policy does "
                "not include our key",
                server=driver.server.title,
            )
        found = await search(changes, lambda part: self._attempt(driver, copy, soa, part))
        copy.refused |= {change.key: self.state.desired.rrsets.get(change.key) for change in found.refused}
        if found.untried:
            raise DriverError(
                f"the server refuses more than {len(found.refused)} RRsets; {len(found.untried)} are not tried yet",
                server=driver.server.title,
            )

    async def _retry_refused(self, driver: Driver, copy: ServerCopy, soa: Soa) -> None:
        """What was refused before may be accepted beside what has been published since."""
        copy.refused = {
            key: want
            for key, want in copy.refused.items()
            if key in copy.diff and key not in copy.unmanaged.blocked and self.state.is_refused(copy, key)
        }
        if copy.refused:
            changes = [change_of(self.state, copy, key) for key in copy.refused]
            await self._attempt(driver, copy, soa, pieces(changes[:AT_ONCE])[0])

    # -- verify --------------------------------------------------------------------------------------------------------

    async def _verify_signed(self, server: Server, copy: ServerCopy) -> None:
        """Check a zone until it is signed with the expected keys; then secondaries may be notified."""
        config, driver = self._run.configs[server.id], self._run.driver_of(server)
        if not self.job.tags:
            copy.unsigned = 0
        elif (copy.signed != self.job.tags or self.job.check_all) and await self._run.is_signed(driver, copy):
            if copy.config != config:
                await driver.configure(self.zone, config)
                copy.config = config
            copy.soa = await driver.soa(self.zone) or copy.soa
            self.state.serial = latest(self.state.serial, copy.serial)

    async def verify_secondary(self, server: Server, copy: ServerCopy) -> None:
        """A secondary transfers by itself: see that it is configured to, and that it does."""
        driver = self._run.driver_of(server)
        by_catalog = bool(server.catalog)  # its zones come from there, and the catalog from its own configuration
        if not by_catalog and (copy.config != self._run.configs[server.id] or self.job.check_all):
            await self._configure_secondary(server, copy, driver)
        soa = await driver.soa(self.zone)
        copy.known, copy.soa = True, soa
        if not self.state.serial or (copy.serial and not is_later(self.state.serial, copy.serial)):
            copy.behind = 0
            return
        copy.behind += 1
        self.report.behind.append(server.title)
        # A notification comes first; but one that arrives during a refresh is lost when that refresh fails.
        if copy.behind > 1 and self.job.now - copy.refreshed_at >= REFRESH:
            copy.refreshed_at = self.job.now
            try:
                await driver.refresh(self.zone)
            except DriverError:
                if not by_catalog:  # else it has not read the catalog yet
                    raise

    async def _configure_secondary(self, server: Server, copy: ServerCopy, driver: Driver) -> None:
        found = await driver.configuration(self.zone)
        config = self._inspector.note_origin(server, copy, found or ())
        if found and zone_type(found) != "secondary":
            await self._inspector.remove_other_type(server, found)
            found = None
        if found is None:
            await driver.create_secondary(self.zone, config)
            copy.added, copy.borrowed = True, False
        elif found and not same_config(found, config):
            may_change = self._run.is_trusted(server, copy) or (server.api_port and await driver.added(self.zone))
            if not may_change:
                raise DriverError(
                    "the server has the zone with another configuration that Steersman did not write: remove the zone "
                    f'there, select another instance, or set the annotation {ADOPT}: "true" on the DNSZone',
                    server=server.title,
                )
            await driver.configure(self.zone, keeping_file(config, found))
        copy.config = config
