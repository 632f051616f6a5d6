"""The table and the leases of a sharing group, on the embedded and the real server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from steersman.kube.api.patches import PatchType
from steersman.kube.api.types.coordination import Lease
from steersman.runtime.leaderelection.rules import LeaderElectionRecord, LeaseTimings
from steersman.runtime.rbac import rule
from steersman.runtime.sharding.member import TABLE, KubeShards, ShardMember
from steersman.testing import client_as, eventually

if TYPE_CHECKING:
    from steersman.kube.client.client import Client

TIMING = LeaseTimings(lease_seconds=6, renew_seconds=4, retry_seconds=0.3)


@asynccontextmanager
async def member(client: Client, namespace: str):
    async def drain(slots: frozenset[int]) -> None: ...

    made = ShardMember(KubeShards(client, "group", namespace), drain=drain, timing=TIMING)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.wait({task})


async def leases(client: Client, namespace: str) -> list[str]:
    return sorted(lease.name for lease in (await client.list(Lease, namespace=namespace)).items)


async def test_members_share_and_leave_nothing_but_the_table_behind(client, cluster, namespace):
    for _ in range(3):
        async with member(client, namespace) as one, member(client, namespace) as other:
            await eventually(lambda: one.acting and other.acting and len(one.acting | other.acting) == 64)
            assert not one.acting & other.acting
            assert len(await leases(client, namespace)) == 3
    assert await leases(client, namespace) == ["group-shards"]


async def test_a_table_that_cannot_be_read_or_is_gone_is_created_again_and_shared_again(client, cluster, namespace):
    broken = {"metadata": {"annotations": {TABLE: "nonsense"}}}
    store = KubeShards(client, "group", namespace)

    async def whole() -> bool:
        table, _ = await store.read()
        return "" not in table.owners

    async with member(client, namespace) as one, member(client, namespace) as other:

        def shared() -> bool:
            return len(one.acting | other.acting) == 64 and not one.acting & other.acting

        await eventually(shared)
        await client.patch(Lease, "group-shards", broken, type=PatchType.MERGE, namespace=namespace)
        await eventually(whole)
        await eventually(shared)
        await client.delete(Lease, "group-shards", namespace=namespace)
        await eventually(whole)
        await eventually(shared)


async def test_a_member_that_comes_back_while_its_lease_is_being_removed_keeps_it(client, cluster, namespace):
    store = KubeShards(client, "group", namespace)
    lease = store.lease("member")
    seen = LeaderElectionRecord(holder="member", duration_seconds=6, renewed=1_000_000_000.0)
    version = await lease.write(seen, "")
    await lease.write(replace(seen, renewed=1_000_000_001.0), version)
    await store.sweep({"group-shards-member": seen})
    assert await leases(client, namespace) == ["group-shards-member"]
    await store.sweep(await store.members())
    assert await leases(client, namespace) == []


async def test_the_rights_that_the_documentation_names_are_enough(cluster, namespace):
    leases_only = rule("leases.coordination.k8s.io", "get", "list", "create", "patch", "delete")
    async with client_as(cluster, "sharer", leases_only, namespace=namespace) as limited:
        async with member(limited, namespace) as one:
            await eventually(lambda: len(one.acting) == 64)
        assert await leases(limited, namespace) == ["group-shards"]
