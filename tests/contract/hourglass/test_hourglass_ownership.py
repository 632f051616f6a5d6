"""Whose objects are whose: names, the shared account, what is left behind, and drift that an event puts right."""

from __future__ import annotations

import time

import pytest

from steersman.kube.api.errors import NotFound
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types import ConfigMap, Deployment, Pod, Secret, Service, ServiceAccount
from steersman.kube.api.types.rbac import Role, RoleBinding
from steersman.operators.hourglass.api.types import EXECUTOR_FINALIZER, StoredExecutor, StoredPerformer
from steersman.testing import eventually
from tests.support.hourglass import executor, performer, ready_performer, settle_pod

pytestmark = pytest.mark.timeout(300)


async def start(client, namespace, name="p", **spec):
    await client.create(performer(name, namespace, **spec))
    await settle_pod(client, f"performer-{name}", namespace)
    return await ready_performer(client, name, namespace)


async def _observed(client, namespace, name="p"):
    found = await client.get(StoredPerformer, name, namespace=namespace)
    return (found.status or {}).get("observedGeneration") == found.metadata.generation


async def test_a_role_of_another_owner_stays_as_it_is(client, namespace, hourglass):
    role = Role(metadata=ObjectMeta(name="hourglass-executor", namespace=namespace), rules=[])
    before = await client.create(role, field_manager="somebody")
    async with hourglass():
        await client.create(executor("e", namespace))
        await eventually(lambda: client.get(ServiceAccount, "hourglass-executor", namespace=namespace), timeout=60)
        await eventually(lambda: client.get(Deployment, "e", namespace=namespace), timeout=60)
    assert await client.get(Role, "hourglass-executor", namespace=namespace) == before


async def test_the_shared_account_goes_with_its_last_executor(client, namespace, hourglass):
    kinds = (ServiceAccount, Role, RoleBinding)

    async def there(kind):
        try:
            await client.get(kind, "hourglass-executor", namespace=namespace)
        except NotFound:
            return False
        return True

    async def removed(name):
        for deployment in (await client.list(Deployment, namespace=namespace)).items:
            if deployment.name == name and deployment.deleting:  # where nobody collects garbage
                body = {"metadata": {"finalizers": None}}
                await client.patch(Deployment, name, body, namespace=namespace)
        return name not in {one.name for one in (await client.list(StoredExecutor, namespace=namespace)).items}

    async with hourglass():
        for name in ("one", "two"):
            await client.create(executor(name, namespace))
            await eventually(lambda name=name: client.get(Deployment, name, namespace=namespace), timeout=60)
        await client.create(performer("p", namespace, config={"serviceAccountName": "hourglass-executor"}))
        await client.delete(StoredExecutor, "one", namespace=namespace)
        await eventually(lambda: removed("one"), "the first is gone", timeout=60)
        assert [await there(kind) for kind in kinds] == [True] * 3
        await client.patch(StoredPerformer, "p", {"spec": {"config": None}}, namespace=namespace)
        await eventually(lambda: _observed(client, namespace), timeout=60)
        await client.delete(StoredExecutor, "two", namespace=namespace)
        await eventually(lambda: removed("two"), "the second is gone", timeout=60)
        assert [await there(kind) for kind in kinds] == [False] * 3


async def test_an_account_that_another_client_created_outlives_every_executor(client, namespace, hourglass):
    meta = ObjectMeta(name="hourglass-executor", namespace=namespace)
    before = await client.create(ServiceAccount(metadata=meta), field_manager="somebody")
    async with hourglass():
        await client.create(executor("e", namespace))
        await eventually(lambda: client.get(Deployment, "e", namespace=namespace), timeout=60)
        other = {"spec": {"serviceAccountName": "hourglass-another"}}
        await client.patch(StoredExecutor, "e", other, namespace=namespace)

        async def moved():
            found = await client.get(Deployment, "e", namespace=namespace)
            return found.spec.template.spec.service_account_name == "hourglass-another" and found

        found = await eventually(moved, timeout=60)
        assert await client.get(Role, "hourglass-executor", namespace=namespace)  # pods that go may still need it
        counts = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}
        settled = {"status": counts | {"observedGeneration": found.metadata.generation}}
        await client.patch(Deployment, "e", settled, namespace=namespace, subresource="status")

        async def left():
            return not [
                role for role in (await client.list(Role, namespace=namespace)).items if "hourglass" in role.name
            ]

        await eventually(left, "the Role of ours goes with its last user", timeout=60)
    after = await client.get(ServiceAccount, "hourglass-executor", namespace=namespace)
    assert after.metadata.uid == before.metadata.uid


async def test_a_replica_and_a_performer_that_is_named_like_one_do_not_meet(client, namespace, hourglass):
    async with hourglass():
        await client.create(performer("x", namespace, replicas=2))
        await client.create(performer("x-1", namespace))

        async def three():
            return {pod.name: pod.labels["hourglass.eigenlayer.io/performer"] for pod in await _pods(client, namespace)}

        async def made():
            return len(await three()) == 3

        await eventually(made, "all pods are there", timeout=60)
        owners = await three()
        assert (owners["performer-x"], owners["performer-x-1"]) == ("x", "x-1")
        for name in owners:
            await settle_pod(client, name, namespace)
        for name in ("x", "x-1"):
            await ready_performer(client, name, namespace)


async def _pods(client, namespace):
    return (await client.list(Pod, namespace=namespace)).items


async def test_drift_is_repaired_by_its_event_and_by_no_timer(client, namespace, hourglass, clock):
    """Time stands still for the operator: what it does now, an event made it do."""
    async with hourglass():
        await start(client, namespace)
        await client.create(executor("e", namespace))
        await eventually(lambda: client.get(Deployment, "e", namespace=namespace), timeout=60)
    selector = {"hourglass.eigenlayer.io/performer": "p"}
    async with hourglass(clock=clock):
        began, stopped = time.perf_counter(), clock.monotonic()
        await client.patch(Service, "performer-p", {"spec": {"selector": {"wrong": "pods"}}}, namespace=namespace)

        async def selects():
            return (await client.get(Service, "performer-p", namespace=namespace)).spec.selector == selector

        await eventually(selects, "an edited Service is put right", timeout=60)
        print(f"edit repaired after {time.perf_counter() - began:.3f} s")  # noqa: T201  # a report, not a verdict
        await client.delete(Service, "performer-p", namespace=namespace)
        await eventually(selects, "a deleted Service comes back", timeout=60)
        await client.patch(Deployment, "e", {"spec": {"replicas": 7}}, namespace=namespace)

        async def scaled():
            return (await client.get(Deployment, "e", namespace=namespace)).spec.replicas == 1

        await eventually(scaled, "an edited Deployment is put right", timeout=60)
        await client.delete(ConfigMap, "e-config", namespace=namespace)
        await eventually(lambda: client.get(ConfigMap, "e-config", namespace=namespace), timeout=60)
        assert clock.monotonic() == stopped


async def test_children_that_were_to_be_left_behind_stay_although_no_reconcile_ran_in_time(
    client, namespace, hourglass
):
    """The garbage collector cuts them loose and takes its mark away before the operator comes to look."""
    async with hourglass():
        await start(client, namespace)
        await client.create(executor("e", namespace))
        await eventually(lambda: client.get(Deployment, "e", namespace=namespace), timeout=60)

        async def held():
            found = await client.get(StoredExecutor, "e", namespace=namespace)
            return EXECUTOR_FINALIZER in (found.metadata.finalizers or ()) and found.status

        await eventually(held, timeout=60)
    kinds = {Pod: "performer-p", Service: "performer-p", Deployment: "e", ConfigMap: "e-config", Secret: "e-keys"}
    before = {kind: (await client.get(kind, name, namespace=namespace)).metadata.uid for kind, name in kinds.items()}
    for kind, name in ((StoredPerformer, "p"), (StoredExecutor, "e")):
        await client.delete(kind, name, namespace=namespace, propagation="Orphan")

        async def cut_loose(kind=kind, name=name):
            return "orphan" not in (await client.get(kind, name, namespace=namespace)).metadata.finalizers

        await eventually(cut_loose, "the garbage collector has done its part", timeout=120)
    async with hourglass():
        for kind in (StoredPerformer, StoredExecutor):

            async def over(kind=kind):
                return not (await client.list(kind, namespace=namespace)).items

            await eventually(over, "the resource is gone", timeout=60)
    after = {kind: (await client.get(kind, name, namespace=namespace)).metadata for kind, name in kinds.items()}
    assert {kind: meta.uid for kind, meta in after.items()} == before
    assert not any(meta.deletion_timestamp for meta in after.values())
    assert await client.get(ServiceAccount, "hourglass-executor", namespace=namespace)  # its pods run on


async def test_a_tenant_does_not_get_the_token_of_an_account_that_is_not_listed(client, namespace, hourglass):
    meta = ObjectMeta(name="deployer", namespace=namespace)
    await client.create(ServiceAccount(metadata=meta))
    await client.create(performer("thief", namespace, config={"serviceAccountName": "deployer"}))
    await client.create(executor("thief", namespace, serviceAccountName="deployer"))

    async def refused(kind):
        found = await client.get(kind, "thief", namespace=namespace)
        rows = {row["type"]: row for row in (found.status or {}).get("conditions", ())}
        available = rows.get("Available", {})
        return available.get("reason") == "NotAllowed" and "serviceAccountName: deployer" in available["message"]

    async def pods():
        return {pod.name: pod for pod in (await client.list(Pod, namespace=namespace)).items}

    async with hourglass():
        await eventually(lambda: refused(StoredPerformer), timeout=60)
        await eventually(lambda: refused(StoredExecutor), timeout=60)
        assert await pods() == {}
        assert (await client.list(Deployment, namespace=namespace)).items == []
    async with hourglass(service_accounts=("deployer",)):
        before = (await eventually(pods, "it is allowed, and made", timeout=60))["performer-thief"]
        assert before.spec.service_account_name == "deployer"
    async with hourglass():  # pods that run are left alone
        await eventually(lambda: refused(StoredPerformer), timeout=60)
        assert (await pods())["performer-thief"].metadata.uid == before.metadata.uid
