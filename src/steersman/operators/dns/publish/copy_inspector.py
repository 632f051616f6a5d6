"""The inspect step of a zone's pass: whether a primary has the zone, how it is configured, and what it serves.

A configuration that is ours and differs is corrected here, because what a server serves depends on it. Which data is
written is decided later (`diff`). Nothing here knows Kubernetes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.errors import DriverError
from steersman.operators.dns.api.config import DriftPolicy
from steersman.operators.dns.bind.servers import Server
from steersman.operators.dns.bind.zone_statements import (
    borrowed,
    is_made_here,
    is_signed_by_policy,
    keeping_file,
    open_to,
    same_config,
    unannounced,
    zone_type,
)
from steersman.operators.dns.dnssec.signer import see_signed
from steersman.operators.dns.publish.diff import ignored_keys, unexpected_diff
from steersman.operators.dns.publish.ownership import blocked_keys, is_bare, names_in, unmanaged_values
from steersman.operators.dns.zone.rdata import GENERATED, NS, Key, Soa
from steersman.operators.dns.zone.serial import latest

if TYPE_CHECKING:
    from steersman.operators.dns.bind.driver import Driver
    from steersman.operators.dns.bind.statements import Statement
    from steersman.operators.dns.publish.zone_state import ServerCopy

PATIENCE: Final = 2.0  # seconds for which other servers, when they are done, wait for one
CHECKS_PER_READ: Final = 6  # every so many checks a copy is read as a whole, whatever its serial


class PublishJob(msgspec.Struct, frozen=True):
    """What is to be published, and where."""

    soa: Soa  # with the lowest acceptable serial
    ttl: int
    primaries: tuple[Server, ...]
    secondaries: tuple[Server, ...]
    drift: DriftPolicy = DriftPolicy.REPAIR
    ignore: tuple[str, ...] = ()  # names that belong to others, as patterns
    policy: str | None = None  # the first primary signs the zone with it
    key_directory: str = ""  # of that primary; empty: the server's own
    tags: frozenset[int] = frozenset()  # of the keys that the zone must be signed with; empty: whichever the server has
    hold: bool = False  # secondaries may not get the zone before it is signed
    check_all: bool = False  # check every copy, also where nothing is to be written
    first: bool = False  # this process has not published the zone before: what differs need not be drift
    now: float = 0.0  # seconds, of a monotonic clock
    deleted: Mapping[Key, frozenset[bytes]] = {}  # data of records being deleted: its removal is not a repair
    owned: Mapping[str, frozenset[Key]] = {}  # by instance: where it held what records declare
    adopted: frozenset[str] = frozenset()  # servers whose copy was managed before this process began
    adopt: frozenset[str] = frozenset()  # servers on which all data of the zone is to be managed


class PublishReport(msgspec.Struct):
    """What came of it, by server title."""

    serial: int = 0
    written: int = 0  # updates that were sent
    drift: dict[str, list[str]] = {}  # names that differed from the desired zone
    errors: dict[str, tuple[str, str]] = {}  # reason, message
    behind: list[str] = []  # secondaries with an older serial
    unsigned: list[str] = []  # primaries that have not signed the zone yet
    foreign: dict[str, list[str]] = {}  # names with unmanaged data that is kept
    adopted: dict[str, list[str]] = {}  # names with unmanaged data that is removed
    repaired: dict[str, list[str]] = {}  # names whose drift was only reported until now

    @property
    def ok(self) -> bool:
        """Whether every server has the desired zone."""
        return not self.errors


class Publication(msgspec.Struct):
    """What the steps of one publication share."""

    state: Any  # ZoneState
    job: PublishJob
    driver_of: Callable[[Server], Any]  # Driver
    report: PublishReport
    plain_configs: dict[str, tuple[Any, ...]]  # by server id: configuration of a zone that we add
    configs: dict[str, tuple[Any, ...]]  # the same for the zone as the server has it, which others may have added
    config_errors: dict[str, DriverError] = {}  # servers whose configuration could not be checked

    @property
    def zone(self) -> bytes:
        """The name of the zone."""
        name: bytes = self.state.desired.zone
        return name

    def is_trusted(self, server: Server, copy: ServerCopy) -> bool:
        """Whether a copy is managed whatever it holds."""
        return copy.managed or copy.added or server.managed or server.id in (self.job.adopt | self.job.adopted)

    async def is_signed(self, driver: Driver, copy: ServerCopy) -> bool:
        """Whether a copy is signed with the expected keys; reports it when it is not."""
        signed = await see_signed(driver, self.zone, copy, self.job.tags)
        if not signed and driver.server.title not in self.report.unsigned:
            self.report.unsigned.append(driver.server.title)
        return signed


class CopyInspector:
    """Finds out what primaries have."""

    def __init__(self, publication: Publication) -> None:
        self.publication = publication
        self.state, self.job, self.report = publication.state, publication.job, publication.report
        self._skipped = GENERATED if self.job.policy is not None else frozenset[int]()

    async def inspect(self, server: Server, copy: ServerCopy) -> None:
        """Know what a primary has."""
        run = self.publication
        drifted = set(copy.drift)
        if not copy.known or self.job.check_all or copy.config != run.configs[server.id]:
            await self._check(server, copy)
        if self.job.drift is DriftPolicy.REPAIR and drifted:  # it was only reported until now
            copy.drift = {}
            if run.is_trusted(server, copy) and (due := drifted & copy.diff.keys()):
                self.report.repaired[server.title] = names_in(due, run.zone)
        self.classify(server, copy)
        is_settled = copy.config is not None or copy.absent or server.records_only or server.id in run.config_errors
        if copy.managed and not is_settled:
            await self._configure(server, copy)

    async def _check(self, server: Server, copy: ServerCopy) -> None:
        run = self.publication
        driver = run.driver_of(server)
        found: tuple[Statement, ...] = ()
        if not server.records_only and (copy.config != run.configs[server.id] or self.job.check_all):
            began = asyncio.get_running_loop().time()
            try:
                found = await self._configure(server, copy)
            except DriverError as error:  # data may take another path to the server, and what is known still holds
                if not copy.known or copy.absent or asyncio.get_running_loop().time() - began > PATIENCE:
                    raise
                run.config_errors[server.id], copy.config = error, None
        if copy.known and not copy.absent:
            copy.checks += 1
            if self.job.drift is DriftPolicy.OFF:
                return
            if await driver.soa(run.zone) == copy.soa and copy.checks % CHECKS_PER_READ:
                return
        if copy.absent:
            return
        try:
            await self.read(server, copy)
        except DriverError:
            if not found or run.is_trusted(server, copy):
                raise
            await driver.configure(run.zone, open_to(found, server))  # others added it, and do not let us read it yet
            await self.read(server, copy)

    async def read(self, server: Server, copy: ServerCopy) -> None:
        """Read a copy as a whole, and find out what of its diff is drift."""
        run, job, desired = self.publication, self.job, self.state.desired.rrsets
        before = copy.diff.keys() if copy.known and not job.first else None
        drifted = copy.drift
        soa, rrsets = await run.driver_of(server).read(run.zone, self._skipped)
        diff = self.state.record_content(copy, soa, rrsets)
        copy.unmanaged.ignored = ignored_keys(diff, desired, run.zone, job.ignore)
        for key in copy.unmanaged.ignored:
            del diff[key]
        unexpected = unexpected_diff(diff, before, desired, job.deleted)
        if job.drift is DriftPolicy.REPAIR:
            copy.drift = {}
        else:
            copy.drift = unexpected | {key: diff[key] for key in drifted.keys() & diff.keys()}
        changed = {key for key, have in unexpected.items() if drifted.get(key, ()) != have}
        if changed and not job.first and run.is_trusted(server, copy):
            self.report.drift[server.title] = names_in(changed, run.zone)

    def classify(self, server: Server, copy: ServerCopy) -> None:
        """Decide whether a copy is managed, and else what of it is foreign."""
        if not copy.known or copy.absent:
            return
        run, job, desired, unmanaged = self.publication, self.job, self.state.desired.rrsets, copy.unmanaged
        if not copy.managed:
            unmanaged.owned |= job.owned.get(str(server.instance), frozenset())
            diff = {key: have for key, have in copy.diff.items() if key not in unmanaged.owned}
            foreign = unmanaged_values(diff, desired, unmanaged.last_published, job.deleted)
            bare = is_bare(foreign, copy.diff.get((b"", NS)) or desired.get((b"", NS)), run.zone)
            copy.managed = bare or run.is_trusted(server, copy)
            unmanaged.values = {} if copy.managed else foreign
            if not bare and server.id in job.adopt and job.drift is DriftPolicy.REPAIR:
                self.report.adopted[server.title] = names_in(foreign, run.zone)
        unmanaged.blocked = frozenset()
        if unmanaged.values or unmanaged.ignored:
            unmanaged.blocked = blocked_keys(copy.diff, desired, [*unmanaged.values, *unmanaged.ignored])
        # Where drift is not repaired nothing is removed, and what differs is reported as drift.
        kept = unmanaged.values if job.drift is DriftPolicy.REPAIR else unmanaged.values.keys() & desired.keys()
        if kept:
            self.report.foreign[server.title] = names_in(kept, run.zone)

    # -- configuration -------------------------------------------------------------------------------------------------

    async def _configure(self, server: Server, copy: ServerCopy) -> tuple[Statement, ...]:
        """Have a zone configured as it should be, where we may decide that; returns the configuration as it was."""
        run, zone = self.publication, self.publication.zone
        driver = run.driver_of(server)
        found: tuple[Statement, ...] | None = await driver.configuration(zone)
        if found is None:
            copy.lose()
            return ()
        config = self.note_origin(server, copy, found)
        if found and zone_type(found) != zone_type(config):
            await self.remove_other_type(server, found)
            copy.lose()
            return ()
        if copy.absent:
            copy.known = copy.absent = False  # others added it since
        if found and not same_config(found, config):
            if not run.is_trusted(server, copy):
                copy.config = None
                return found
            if is_signed_by_policy(found) and not is_signed_by_policy(config):
                # named never removes signatures: the unsigned zone is a new one, with a later serial.
                copy.soa = await driver.soa(zone)
                self.state.serial = latest(*(serial for serial in (self.state.serial, copy.serial) if serial))
                await self.remove_other_type(server, found)
                copy.lose()
                return ()
            if self.job.hold and same_config(found, unannounced(config)) and not await run.is_signed(driver, copy):
                copy.config = found
                return found
            await driver.configure(zone, keeping_file(config, found))
        copy.config = config
        return found

    def note_origin(self, server: Server, copy: ServerCopy, found: tuple[Statement, ...]) -> tuple[Statement, ...]:
        """Note whether we added the zone; returns how it should be configured, which depends on that."""
        run = self.publication
        # A sidecar does not show the file of a zone: there it is ours if this process added it.
        copy.added = is_made_here(found, server, run.zone) or (copy.added and bool(server.api_port))
        copy.borrowed = not (copy.added or server.id in self.job.adopt or server.api_port)
        config = run.plain_configs[server.id]
        run.configs[server.id] = config = borrowed(config) if copy.borrowed else config
        return config

    async def remove_other_type(self, server: Server, found: tuple[Statement, ...]) -> None:
        """Remove a zone that a server has with another type than it should, if we added or adopted it."""
        driver, zone = self.publication.driver_of(server), self.publication.zone
        if not (server.id in self.job.adopt or await driver.added(zone)):
            kind = f"signed {zone_type(found)}" if is_signed_by_policy(found) else zone_type(found)
            raise DriverError(
                f"the server already has the zone as a {kind} that Steersman did not add: remove it on the server, or "
                "select another instance",
                server=server.title,
            )
        await driver.remove(zone)
