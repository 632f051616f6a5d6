"""What an ordinary tenant can do to others through the operator, with exactly the rights of one: nothing."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from steersman.kube.api.errors import Forbidden
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.times import format_micro_time
from steersman.kube.api.types import Deployment, Lease, Secret
from steersman.kube.api.types.coordination import LeaseSpec
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.operators.reload.api.config import GuardConfig, ReloadConfig, SourceKind, SourceRef
from steersman.operators.reload.compat.lease_conflict import LeaseConflictWatch
from steersman.operators.reload.controllers.digest_key_store import KeyStore
from steersman.operators.reload.controllers.reconciler import SharedContext
from steersman.operators.reload.controllers.setup import operator
from steersman.operators.reload.sources.digest import edge_digest, key_digest, short_digest
from steersman.testing import eventually, running

pytestmark = pytest.mark.timeout(300)
WORKLOADS = {
    "apiGroups": ["apps"],
    "resources": ["deployments"],
    "verbs": ["get", "list", "create", "update", "patch", "delete"],
}
LONG = 60.0


@asynccontextmanager
async def tenant(real, namespace, *rules):
    """A client with these rights in one namespace, and none elsewhere."""
    path = await real.service_account("tenant", rules, namespace=namespace)
    async with Client.connect(load_config(path)) as client:
        yield client


@pytest.fixture
async def spaces(client, namespace):
    """The namespaces of a victim, a tenant and the operator."""
    names = [f"{namespace}-{name}" for name in ("victim", "tenant", "operator")]
    for name in names:
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return names


def deployment(namespace, name, **marks):
    container = {"name": "main", "image": "web:1", "envFrom": [{"secretRef": {"name": "door", "optional": True}}]}
    labels = {"app": name}
    meta = {"name": name, "namespace": namespace, "annotations": {"steersman.dev/reload": "auto", **marks}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


async def state(client, namespace, name):
    text = (await client.get(Deployment, name, namespace=namespace)).annotations.get("steersman.dev/applied")
    return None if text is None else json.loads(text)


async def test_who_may_read_workloads_and_not_secrets_cannot_recover_a_pin(real, client, spaces):
    home, _, ours = spaces
    data = {"pin": b64encode(b"4930").decode()}
    meta = {"name": "door", "namespace": home}
    await client.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})
    await client.create(deployment(home, "web"))
    keys = KeyStore(ours, "digests")
    await keys.refresh(client)
    config = ReloadConfig(quiet_period="0s", max_delay="0s", namespaces=(home,), kinds=("Deployment",))
    reads = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}
    async with (
        tenant(real, home, reads) as stranger,
        running(client, *operator(config, registry=CollectorRegistry(), shared=SharedContext(keys=keys))),
    ):
        found = await eventually(lambda: state(client, home, "web"), "it is seeded", timeout=LONG)
        for place, name in ((home, "door"), (ours, "digests")):
            with pytest.raises(Forbidden):
                await stranger.get(Secret, name, namespace=place)
        text = json.dumps(await state(stranger, home, "web"))
    assert list(found["x"]) == ["secret/door"]
    source = SourceRef(SourceKind.SECRET, home, "door")
    for guess in range(10_000):
        digest = key_digest(b"%04d" % guess)
        assert edge_digest(source, {"pin": digest}) not in text
        assert short_digest(source, "pin", digest) not in text


async def test_a_tenant_holds_back_no_restart_of_another_namespace(real, client, spaces):
    home, theirs, platform = spaces
    meta = {"name": "app", "namespace": platform, "annotations": {"steersman.dev/share-with": "*"}}
    source = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
    await client.create({**source, "data": {"mode": "a"}})
    uses = {"steersman.dev/reload-extra": f"configmap/{platform}/app"}
    await client.create(deployment(home, "web", **uses))
    config = ReloadConfig(
        quiet_period="0s",
        max_delay="0s",
        namespaces=tuple(sorted(spaces)),
        kinds=("Deployment",),
        guard=GuardConfig(workloads=3),
    )
    attack = {"steersman.dev/wave": "-999", "steersman.dev/freeze": "true", "steersman.dev/order-with": "*"}
    async with (
        tenant(real, theirs, WORKLOADS) as stranger,
        running(client, *operator(config, registry=CollectorRegistry())),
    ):
        for number in range(5):
            await stranger.create(deployment(theirs, f"attack-{number}", **uses, **attack))
        for place, name in ((home, "web"), *((theirs, f"attack-{number}") for number in range(5))):
            await eventually(lambda place=place, name=name: state(client, place, name), "it is seeded", timeout=LONG)
        await client.apply({**source, "data": {"mode": "b"}}, field_manager="test", force=True)

        async def restarted():
            return len((await state(client, home, "web")).get("r", ())) == 1

        await eventually(restarted, "the victim restarts", timeout=LONG)
        assert all([not (await state(client, theirs, f"attack-{number}")).get("r") for number in range(5)])


async def test_a_lease_of_a_tenant_in_default_stops_no_restarts(real, client, namespace):
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "delete"]}
    path = await real.service_account(f"tenant-{namespace}", [leases], namespace="default")
    rivals = LeaseConflictWatch(["stakater-reloader-lock"], asks=True, registry=CollectorRegistry())
    spec = LeaseSpec(
        holder_identity="anything",
        lease_duration_seconds=2**31 - 1,
        renew_time=format_micro_time(4_000_000_000.0),
    )
    async with Client.connect(load_config(path)) as stranger:
        await stranger.create(Lease(metadata=ObjectMeta(name="stakater-reloader-lock", namespace="default"), spec=spec))
        task = asyncio.create_task(rivals.run(client))
        try:
            await asyncio.wait_for(rivals.all_observed.wait(), LONG)
            assert (rivals.problem(), rivals.problem("shop")) == (None, None)
            assert rivals.problem("default") is not None
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await stranger.delete(Lease, "stakater-reloader-lock", namespace="default")
