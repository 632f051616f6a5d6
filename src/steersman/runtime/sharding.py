"""One member of a group that shares the namespaces of a cluster: carries out what `steersman.runtime.shards` decides.

    member = ShardMember(KubeShards(client, "steersman", "ops"), drain=stop_working_on)
    member.owns("shop")       may this process act on that namespace, at this instant?
    await member.run()        until cancelled; then everything is stopped and given back

`drain(slots)` must return only when nothing works on those slots any more; from the moment it is called, `owns` is
false for them. `on_gained(slots)` is told what to look at afresh: everything that happened there while it belonged to
somebody else, or to nobody, is found by reconciling those namespaces once.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Protocol

import msgspec

from steersman.clock import SYSTEM_CLOCK, Clock
from steersman.kube.errors import Conflict, KubeError, NotFound
from steersman.kube.objects import ObjectMeta
from steersman.kube.patches import PatchType
from steersman.logger import Logger
from steersman.runtime.election import Record, Timing
from steersman.runtime.elector import KubeLease, LeaderElector, LeadershipLost, Lease, unique_identity
from steersman.runtime.shards import SLOTS, Table, join, next_move, slot_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from steersman.kube.client import Client
    from steersman.runtime.elector import LeaseStore

__all__ = ["KubeShards", "ShardMember", "ShardStore"]

TABLE = "steersman.dev/shards"  # annotation that holds the table
GROUP = "steersman.dev/shard-group"  # label of the members' leases

log = Logger(__name__)


class ShardStore(Protocol):
    """Where the group keeps its table and its members' leases."""

    def lease(self, identity: str) -> LeaseStore:
        """The lease of one member, which only that member ever holds."""

    async def members(self) -> dict[str, Record]:
        """The leases of all members, by identity."""

    async def read(self) -> tuple[Table, str]:
        """The table and its version; an empty one when there is none yet."""

    async def write(self, table: Table, version: str) -> str:
        """Replace `version`; Conflict when it is not the newest."""


class ShardMember:
    """See the module's docstring."""

    def __init__(
        self,
        store: ShardStore,
        *,
        drain: Callable[[frozenset[int]], Awaitable[None]],
        on_gained: Callable[[frozenset[int]], None] | None = None,
        identity: str | None = None,
        timing: Timing | None = None,
        slots: int = SLOTS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.identity = identity or unique_identity()
        self._store = store
        self._drain = drain
        self._on_gained = on_gained
        self._timing = timing or Timing()
        self._slots = slots
        self._clock = clock
        self._elector = LeaderElector(store.lease(self.identity), identity=self.identity, timing=timing, clock=clock)
        self._acting: frozenset[int] = frozenset()
        self._stopped: frozenset[int] = frozenset()
        self._seen: dict[str, tuple[Record, float]] = {}  # member -> its record, and since when it is like that

    def owns(self, namespace: str) -> bool:
        """Whether this process may act on `namespace` at this instant."""
        return slot_of(namespace, self._slots) in self._acting and self._elector.leading()

    @property
    def acting(self) -> frozenset[int]:
        """The slots this process may act on at this instant."""
        return self._acting if self._elector.leading() else frozenset()

    async def run(self) -> None:
        """Take part until cancelled."""
        try:
            while True:
                await self._elector.acquire()
                holding = asyncio.create_task(self._elector.hold())
                sharing = asyncio.create_task(self._share())
                try:
                    await asyncio.wait({holding, sharing}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    lost, self._acting = self._acting, frozenset()
                    await _stop(sharing, holding)
                    await self._drain(lost)
                for task in (sharing, holding):
                    error = task.exception() if not task.cancelled() else None
                    if error is not None and not isinstance(error, LeadershipLost):
                        raise error
                log.warning("the shard lease was lost; joining again", identity=self.identity)
        finally:
            await self._elector.release()

    async def _share(self) -> None:
        """Follow the table for one term of the lease."""
        self._stopped = frozenset()
        joined = False
        while True:
            try:
                table, version = await self._store.read()
                if not joined:
                    table = join(table, self.identity, uuid.uuid4().hex[:8])
                    version = await self._store.write(table, version)
                    joined = True
                alive = await self._alive()
                await self._move(table, version, alive)
            except Conflict:
                continue  # somebody else moved first; look again
            except KubeError as error:
                log.warning("the shard table is out of reach", error=str(error))
            await self._clock.sleep(self._timing.retry_seconds)

    async def _move(self, table: Table, version: str, alive: set[str]) -> None:
        self._act_on(table)
        move = next_move(table, me=self.identity, alive=alive, stopped=self._stopped)
        if move.stop:
            self._acting -= move.stop
            await self._drain(move.stop)
            self._stopped |= move.stop
            move = next_move(table, me=self.identity, alive=alive, stopped=self._stopped)
        if move.table is not None:
            await self._store.write(move.table, version)
            self._act_on(move.table)

    def _act_on(self, table: Table) -> None:
        mine = table.owned_by(self.identity)
        self._stopped &= mine
        acting = mine - self._stopped
        gained, self._acting = acting - self._acting, acting
        if gained:
            log.info("working on more slots", gained=len(gained), slots=len(acting))
            if self._on_gained is not None:
                self._on_gained(gained)

    async def _alive(self) -> set[str]:
        """Whose leases run, by our own measure of how long each record has not changed."""
        now = self._clock.monotonic()
        records = await self._store.members()
        self._seen = {
            member: seen if (seen := self._seen.get(member)) is not None and seen[0] == record else (record, now)
            for member, record in records.items()
        }
        alive = {
            member
            for member, (record, since) in self._seen.items()
            if record.holder and now - since < record.duration_seconds
        }
        return alive | {self.identity}


async def _stop(*tasks: asyncio.Task[None]) -> None:
    """Whatever they end with is looked at later: first the work must end."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


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
        return KubeLease(self._client, name, self._namespace, labels={GROUP: self._name})

    async def members(self) -> dict[str, Record]:
        found = await self._client.list(Lease, namespace=self._namespace, label_selector=f"{GROUP}={self._name}")
        records = [KubeLease.record(lease) for lease in found.items]
        return {record.holder: record for record in records if record.holder}

    async def read(self) -> tuple[Table, str]:
        try:
            lease = await self._client.get(Lease, self._name, namespace=self._namespace)
        except NotFound:
            return Table.empty(self._slots), ""
        text = (lease.metadata.annotations or {}).get(TABLE, "")
        try:
            table = msgspec.json.decode(text, type=Table)
        except msgspec.DecodeError:
            log.warning("the shard table is unreadable and is made anew", lease=f"{self._namespace}/{self._name}")
            table = Table.empty(self._slots)
        if len(table.owners) != self._slots:
            table = Table.empty(self._slots)
        return table, lease.metadata.resource_version

    async def write(self, table: Table, version: str) -> str:
        annotations = {TABLE: msgspec.json.encode(table).decode()}
        if not version:
            meta = ObjectMeta(name=self._name, namespace=self._namespace, annotations=annotations)
            created = await self._client.create(Lease(metadata=meta))
            return created.metadata.resource_version
        patch = {"metadata": {"resourceVersion": version, "annotations": annotations}}
        written = await self._client.patch(Lease, self._name, patch, type=PatchType.MERGE, namespace=self._namespace)
        return written.metadata.resource_version
