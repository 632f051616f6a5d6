"""One member of a group that shares the namespaces of a cluster: carries out what `sharding.assignment` decides.

    member = ShardMember(KubeShards(client, "steersman", "ops"), drain=stop_working_on, interrupt=stop_at_once)
    member.owns("shop")       may this process act on that namespace, at this instant?
    await member.run()        until cancelled; then everything is stopped and released

`drain(slots)` must return only when nothing works on those slots; from the moment it is called, `owns` is
false for them. `interrupt(slots)` is called first when time does not allow that: the lease is lost, and before
long others may take over. `on_gained(slots)` reconciles those namespaces once, which finds everything that happened
while they belonged to another member, or to none.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec

from steersman.clock import SYSTEM_CLOCK, Clock
from steersman.kube.api.errors import Conflict, KubeError, NotFound
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.patches import PatchType
from steersman.logger import Logger
from steersman.runtime.leaderelection.elector import LeaderElector, LeadershipLost, Lease, LeaseLock, unique_identity
from steersman.runtime.leaderelection.rules import LeaderElectionRecord, LeaseTimings
from steersman.runtime.sharding.assignment import SLOTS, ShardAssignment, join, next_move, slot_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from steersman.kube.client.client import Client
    from steersman.runtime.leaderelection.elector import LeaseStore

__all__ = ["KubeShards", "ShardMember", "ShardStore"]

TABLE = "steersman.dev/shards"  # annotation that holds the table
GROUP = "steersman.dev/shard-group"  # label of the members' leases
DEAD_TERMS = 4  # so many terms after its last sign of life a member is taken not to come back

log = Logger(__name__)


class ShardStore(Protocol):
    """Where the group keeps its table and its members' leases."""

    def lease(self, identity: str) -> LeaseStore:
        """The lease of one member, which only that member ever holds."""

    async def members(self) -> dict[str, LeaderElectionRecord]:
        """The leases of all members by name, and those that were released and still exist."""

    async def read(self) -> tuple[ShardAssignment, str]:
        """The table and its version; an empty one when there is none yet."""

    async def write(self, table: ShardAssignment, version: str) -> str:
        """Replace `version`; Conflict when it is not the newest."""

    async def sweep(self, gone: Mapping[str, LeaderElectionRecord]) -> None:
        """Remove leases that still are as they were seen: a member that has renewed its lease since is back."""


class ShardMember:
    """See the module's docstring."""

    def __init__(
        self,
        store: ShardStore,
        *,
        drain: Callable[[frozenset[int]], Awaitable[None]],
        interrupt: Callable[[frozenset[int]], None] = lambda _slots: None,
        on_gained: Callable[[frozenset[int]], None] | None = None,
        identity: str | None = None,
        timing: LeaseTimings | None = None,
        slots: int = SLOTS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.identity = identity or unique_identity()
        self._store = store
        self._drain = drain
        self._interrupt = interrupt
        self._on_gained = on_gained
        self._timing = timing or LeaseTimings()
        self._slots = slots
        self._clock = clock
        self._elector = LeaderElector(store.lease(self.identity), identity=self.identity, timing=timing, clock=clock)
        self._incarnation = ""  # under which we joined the table we act by
        self._acting: frozenset[int] = frozenset()
        self._draining: frozenset[int] = frozenset()  # no longer acted on, and perhaps still worked on
        self._writable: frozenset[int] = frozenset()  # acted on, or drained by what may still write
        self._stopped: frozenset[int] = frozenset()
        self._seen: dict[
            str, tuple[LeaderElectionRecord, float]
        ] = {}  # lease -> its record, and since when it is like that

    def owns(self, namespace: str) -> bool:
        """Whether this process may act on `namespace` at this instant."""
        return slot_of(namespace, self._slots) in self._acting and self._elector.leading()

    def write_allowed(self, namespace: str) -> bool:
        """Whether what works on `namespace` may write at this instant; unlike `owns`, also while it is handed over.

        The table names this process until its work has ended, so no other process acts there yet.
        """
        return slot_of(namespace, self._slots) in self._writable and self._elector.leading()

    @property
    def acting(self) -> frozenset[int]:
        """The slots this process may act on at this instant."""
        return self._acting if self._elector.leading() else frozenset()

    async def run(self) -> None:
        """Take part until cancelled."""
        try:
            while True:
                await self._elector.acquire()
                await self._term()
                log.warning("the shard lease was lost; joining again", identity=self.identity)
        finally:
            if self._acting or self._draining:  # the wait for the work to end was cancelled once more
                log.error("the lease is left to expire: not all work has ended", identity=self.identity)
            else:
                await self._leave()

    async def _term(self) -> None:
        """Share for as long as the lease runs. It is kept until the work has ended, unless it is lost before."""
        holding = asyncio.create_task(self._elector.hold())
        holding.add_done_callback(self._over)
        sharing = asyncio.create_task(self._share())
        try:
            await asyncio.wait({holding, sharing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            try:
                await _stop(sharing)
                await self._let_go(self._acting | self._draining)
            finally:
                await _stop(holding)
        for task in (sharing, holding):
            error = task.exception() if not task.cancelled() else None
            if error is not None and not isinstance(error, LeadershipLost):
                raise error

    def _over(self, _holding: asyncio.Task[None]) -> None:
        """The lease has ended, so others may take over soon: no grace for whatever still works."""
        self._draining |= self._acting
        self._acting = self._writable = frozenset()
        if self._draining:
            self._interrupt(self._draining)

    async def _let_go(self, slots: frozenset[int]) -> None:
        """Return when nothing works on `slots`; work on them may not begin again from here on."""
        self._acting -= slots
        self._draining |= slots
        if slots:
            await self._drain(slots)
        self._draining -= slots
        self._writable -= slots

    async def _leave(self) -> None:
        """Give the lease back. It stays for the others to see, and they remove it; the last one removes it itself."""
        await self._elector.release()
        try:
            if await self._alive() == {self.identity}:
                given_back = {lease: record for lease, (record, _) in self._seen.items() if not record.holder}
                await self._store.sweep(given_back)
        except KubeError as error:
            log.warning("the lease of this member is left behind", identity=self.identity, error=str(error))

    async def _share(self) -> None:
        """Follow the table for one term of the lease."""
        self._stopped = frozenset()
        self._incarnation = ""
        while True:
            try:
                table, version = await self._store.read()
                if table.members.get(self.identity) != self._incarnation or not self._incarnation:
                    table, version = await self._join(table, version)
                if self._incarnation:
                    await self._move(table, version, await self._alive())
                    await self._sweep(table)
            except Conflict:
                continue  # another member moved first: read again
            except KubeError as error:
                log.warning("the shard table cannot be read or written", error=str(error))
            await self._clock.sleep(self._timing.retry_seconds)

    async def _join(self, table: ShardAssignment, version: str) -> tuple[ShardAssignment, str]:
        """Take part in a table that we have not joined; what we did by another one ends first."""
        self._incarnation = ""
        await self._let_go(self._acting | self._draining)
        if len(table.owners) != self._slots:
            others = (await self._alive() - {self.identity}) & table.members.keys()
            if others:  # theirs until they have ended
                log.error(
                    "other members use another number of slots",
                    slots=self._slots,
                    theirs=len(table.owners),
                    members=len(others),
                )
                return table, version
            table = ShardAssignment.empty(self._slots)
        incarnation = uuid.uuid4().hex[:8]
        table = join(table, self.identity, incarnation)
        version = await self._store.write(table, version)
        self._incarnation, self._stopped = incarnation, frozenset()
        return table, version

    async def _move(self, table: ShardAssignment, version: str, alive: set[str]) -> None:
        await self._act_on(table)
        move = next_move(table, me=self.identity, alive=alive, stopped=self._stopped)
        if move.stop:
            await self._let_go(move.stop)
            self._stopped |= move.stop
            move = next_move(table, me=self.identity, alive=alive, stopped=self._stopped)
        if move.table is not None:
            await self._store.write(move.table, version)
            await self._act_on(move.table)

    async def _act_on(self, table: ShardAssignment) -> None:
        mine = table.owned_by(self.identity)
        self._stopped &= mine
        if lost := self._acting - mine:  # the table was changed by hand: it counts, and another may act already
            self._writable -= lost
            self._interrupt(lost)
            await self._let_go(lost)
        acting = mine - self._stopped
        gained, self._acting = acting - self._acting, acting
        self._writable |= acting
        if gained:
            log.info("working on more slots", gained=len(gained), slots=len(acting))
            if self._on_gained is not None:
                self._on_gained(gained)

    async def _alive(self) -> set[str]:
        """Whose leases run, by our own measure of how long each record has not changed.

        A lease that was deleted says nothing: its holder may not have noticed. It runs on as if it were there,
        unrenewed. A member that leaves releases its lease, and that is what counts.
        """
        now = self._clock.monotonic()
        records = await self._store.members()
        known = {
            lease: seen if (seen := self._seen.get(lease)) is not None and seen[0] == record else (record, now)
            for lease, record in records.items()
        }
        vanished = {lease: seen for lease, seen in self._seen.items() if lease not in records and _runs(*seen, now)}
        self._seen = known | vanished
        return {record.holder for record, since in self._seen.values() if _runs(record, since, now)} | {self.identity}

    async def _sweep(self, table: ShardAssignment) -> None:
        """Remove what members left behind, once all members have had the time to see it."""
        now = self._clock.monotonic()
        kept = {self.identity, *table.members, *table.owners} - {""}
        gone = {
            lease: record
            for lease, (record, since) in self._seen.items()
            if now - since >= self._kept_seconds(record) and record.holder not in kept
        }
        if gone:
            await self._store.sweep(gone)

    def _kept_seconds(self, record: LeaderElectionRecord) -> float:
        """How long a lease is left where it is after its last change."""
        if not record.holder:
            return self._timing.lease_seconds
        return DEAD_TERMS * max(record.duration_seconds, self._timing.lease_seconds)


def _runs(record: LeaderElectionRecord, since: float, now: float) -> bool:
    return bool(record.holder) and now - since < record.duration_seconds


async def _stop(task: asyncio.Task[None]) -> None:
    """Wait until the task has ended; its outcome is handled later."""
    task.cancel()
    await asyncio.wait({task})


class KubeShards:
    """The table as an annotation of one Lease, and one Lease per member beside it."""

    def __init__(self, client: Client, name: str, namespace: str, *, slots: int = SLOTS) -> None:
        self._client = client.with_options(retry=False)
        self._name = f"{name}-shards"
        self._namespace = namespace
        self._slots = slots

    def lease(self, identity: str) -> LeaseStore:
        """The member's own Lease; its name is derived from the identity."""
        name = f"{self._name}-{identity.rpartition('_')[2] or identity}".lower()
        return LeaseLock(self._client, name, self._namespace, labels={GROUP: self._name})

    async def members(self) -> dict[str, LeaderElectionRecord]:
        return {lease.name: LeaseLock.record(lease) for lease in await self._leases()}

    async def sweep(self, gone: Mapping[str, LeaderElectionRecord]) -> None:
        for lease in await self._leases():
            if gone.get(lease.name) == LeaseLock.record(lease):
                version = lease.metadata.resource_version
                with suppress(Conflict, NotFound):
                    await self._client.delete(Lease, lease.name, namespace=self._namespace, resource_version=version)

    async def _leases(self) -> list[Lease]:
        selector = f"{GROUP}={self._name}"
        return (await self._client.list(Lease, namespace=self._namespace, label_selector=selector)).items

    async def read(self) -> tuple[ShardAssignment, str]:
        try:
            lease = await self._client.get(Lease, self._name, namespace=self._namespace)
        except NotFound:
            return ShardAssignment.empty(self._slots), ""
        text = (lease.metadata.annotations or {}).get(TABLE, "")
        try:
            table = msgspec.json.decode(text, type=ShardAssignment)
        except msgspec.DecodeError:
            log.warning("invalid shard table; reset", lease=f"{self._namespace}/{self._name}")
            table = ShardAssignment.empty(self._slots)
        return table, lease.metadata.resource_version

    async def write(self, table: ShardAssignment, version: str) -> str:
        annotations = {TABLE: msgspec.json.encode(table).decode()}
        if not version:
            meta = ObjectMeta(name=self._name, namespace=self._namespace, annotations=annotations)
            created = await self._client.create(Lease(metadata=meta))
            return created.metadata.resource_version
        patch = {"metadata": {"resourceVersion": version, "annotations": annotations}}
        written = await self._client.patch(Lease, self._name, patch, type=PatchType.MERGE, namespace=self._namespace)
        return written.metadata.resource_version
