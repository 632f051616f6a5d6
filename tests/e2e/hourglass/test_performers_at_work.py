"""Performers on the real control plane: placement, change, loss, conflict and deletion, by the real process."""

from __future__ import annotations

import collections
import contextlib

import pytest

from steersman.kube.api.errors import Conflict, NotFound
from steersman.kube.api.gvk import Kind
from steersman.kube.api.types import EndpointSlice, Node, Pod, Service, ServiceAccount
from steersman.operators.hourglass.api.types import TEMPLATE_HASH, StoredPerformer
from steersman.testing import eventually
from tests.support.hourglass import gone, performer, ready_performer, status_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RUNTIME_CLASS = Kind(group="node.k8s.io", version="v1", kind="RuntimeClass", plural="runtimeclasses", namespaced=False)


def on(pool, **scheduling):
    return {"nodeSelector": {"pool": pool}, **scheduling}


async def change(client, name, namespace, **spec):
    await client.patch(StoredPerformer, name, {"spec": spec}, namespace=namespace)


async def available(client, name, namespace):
    return (await status_of(client, name, namespace)).get("conditions", [{}])[-1]


async def reason_is(client, name, namespace, reason):
    found = await available(client, name, namespace)
    assert found.get("reason") == reason, found
    return found


async def pod_of(client, name, namespace):
    return await client.get(Pod, f"performer-{name}", namespace=namespace)


async def test_gpus_are_placed_by_capacity_and_a_pod_that_waits_is_not_churned(admin, operator, pool, namespace, full):
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
    node = await pool(gpus=2, labels={"nvidia.com/gpu.product": "A100"}, taints=[taint])
    hardware = {"gpuType": "nvidia-a100", "gpuCount": 1}
    for name in ("one", "two"):
        await admin.create(performer(name, namespace, hardwareRequirements=hardware, scheduling=on(node)))
        await ready_performer(admin, name, namespace)
    await admin.create(performer("three", namespace, hardwareRequirements=hardware, scheduling=on(node)))
    found = await eventually(lambda: reason_is(admin, "three", namespace, "HardwareUnavailable"), timeout=90)
    assert "Insufficient nvidia.com/gpu" in found["message"]
    waiting = (await pod_of(admin, "three", namespace)).metadata.uid
    await admin.delete(StoredPerformer, "one", namespace=namespace)
    await ready_performer(admin, "three", namespace)
    assert (await pod_of(admin, "three", namespace)).metadata.uid == waiting


async def test_tee_and_custom_labels_choose_the_node(admin, operator, pool, namespace, full):
    labels = {"intel.feature.node.kubernetes.io/sgx": "true", "zone-of-test": namespace}
    node = await pool(labels=labels)
    await pool()
    hardware = {"teeRequired": True, "teeType": "sgx", "customLabels": {"zone-of-test": namespace}}
    await admin.create(performer("tee", namespace, hardwareRequirements=hardware))
    await ready_performer(admin, "tee", namespace)
    assert (await pod_of(admin, "tee", namespace)).spec.node_name == node


async def test_taints_and_affinity_are_passed_on(admin, operator, pool, namespace, full):
    taint = {"key": "dedicated", "value": "avs", "effect": "NoSchedule"}
    node = await pool(labels={"tier": namespace}, taints=[taint])
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "tier", "operator": "In", "values": [namespace]}]}]}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    await admin.create(performer("shy", namespace, scheduling={"nodeAffinity": rule}))
    await eventually(lambda: reason_is(admin, "shy", namespace, "SchedulingFailed"), timeout=90)
    tolerations = [{"key": "dedicated", "operator": "Equal", "value": "avs", "effect": "NoSchedule"}]
    await change(admin, "shy", namespace, scheduling={"nodeAffinity": rule, "tolerations": tolerations})
    await ready_performer(admin, "shy", namespace)
    assert (await pod_of(admin, "shy", namespace)).spec.node_name == node


async def test_what_is_missing_is_named_and_its_appearance_is_noticed(admin, operator, pool, namespace, full):
    node, runtime = await pool(), f"kata-{namespace}"
    await admin.create(performer("kata", namespace, scheduling=on(node, runtimeClass=runtime)))
    priority = f"high-{namespace}"
    await admin.create(performer("vip", namespace, scheduling=on(node, priorityClassName=priority)))
    account = {"serviceAccountName": "hourglass-worker"}
    await admin.create(performer("worker", namespace, scheduling=on(node), config=account))
    for name, missing in (("kata", runtime), ("vip", priority), ("worker", "worker")):
        found = await eventually(lambda name=name: reason_is(admin, name, namespace, "AdmissionRejected"), timeout=90)
        assert missing in found["message"]
    body = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": runtime}, "handler": "kata"}
    await admin.create(body)
    await admin.create(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": priority}, "value": 1000}
    )
    await admin.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "hourglass-worker", "namespace": namespace}}
    )
    for name in ("kata", "vip", "worker"):
        await ready_performer(admin, name, namespace)
    assert (await pod_of(admin, "vip", namespace)).spec.priority == 1000
    await admin.delete(RUNTIME_CLASS, runtime)


async def test_a_quota_refuses_and_then_lets_in_and_a_limit_range_fills_in_without_a_replacement(
    admin, operator, pool, namespace, full
):
    node = await pool()
    meta = {"name": "tight", "namespace": namespace}
    await admin.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"pods": "1"}}})
    limits = {"limits": [{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}}]}
    await admin.create({"apiVersion": "v1", "kind": "LimitRange", "metadata": meta, "spec": limits})
    await admin.create(performer("first", namespace, scheduling=on(node)))
    await ready_performer(admin, "first", namespace)
    first = await pod_of(admin, "first", namespace)
    await admin.create(performer("second", namespace, scheduling=on(node)))
    found = await eventually(lambda: reason_is(admin, "second", namespace, "AdmissionRejected"), timeout=90)
    assert "exceeded quota" in found["message"]
    quota = Kind(version="v1", kind="ResourceQuota", plural="resourcequotas")
    await admin.patch(quota, "tight", {"spec": {"hard": {"pods": "5"}}}, namespace=namespace)
    await ready_performer(admin, "second", namespace)
    again = await pod_of(admin, "first", namespace)
    assert again.metadata.uid == first.metadata.uid
    assert again.spec.containers[0].resources.requests == {"cpu": "500m"}


async def test_every_change_of_the_pod_replaces_it_once_and_others_do_not(admin, operator, pool, namespace, full):
    node = await pool()
    await admin.create(performer("p", namespace, scheduling=on(node)))
    await ready_performer(admin, "p", namespace)
    seen = {(await pod_of(admin, "p", namespace)).metadata.uid}
    changes = [
        {"image": "avs:2"},
        {"config": {"environment": {"MODE": "fast"}}},
        {"config": {"args": ["--x"], "environment": {"MODE": "fast"}}},
        {"config": {"grpcPort": 9191}},
        {"resources": {"requests": {"cpu": "100m"}}},
        {"scheduling": on(node, tolerations=[{"key": "any", "operator": "Exists"}])},
    ]
    for spec in changes:
        await change(admin, "p", namespace, **spec)
        await ready_performer(admin, "p", namespace)
        seen.add((await pod_of(admin, "p", namespace)).metadata.uid)
    assert len(seen) == len(changes) + 1
    service = await admin.get(Service, "performer-p", namespace=namespace)
    assert service.spec.ports[0].port == 9191
    before = (await pod_of(admin, "p", namespace)).metadata.uid
    await change(admin, "p", namespace, version="v9")
    await ready_performer(admin, "p", namespace)
    assert (await pod_of(admin, "p", namespace)).metadata.uid == before


async def test_a_flip_during_a_slow_termination_ends_with_one_pod_of_the_last_template(
    admin, operator, pool, namespace, full
):
    node = await pool()
    await admin.create(performer("p", namespace, scheduling=on(node)))
    await ready_performer(admin, "p", namespace)
    first = await pod_of(admin, "p", namespace)
    hold = {"metadata": {"finalizers": ["example.org/slow"]}}
    await admin.patch(Pod, "performer-p", hold, namespace=namespace)
    await change(admin, "p", namespace, image="avs:2")
    await eventually(lambda: _deleting(admin, namespace), "the old pod terminates", timeout=90)
    await change(admin, "p", namespace, image="avs:1")

    async def noticed():
        found = await admin.get(StoredPerformer, "p", namespace=namespace)
        return found.status["observedGeneration"] == found.metadata.generation and found.status["phase"] == "Upgrading"

    await eventually(noticed, timeout=90)
    await admin.patch(Pod, "performer-p", {"metadata": {"finalizers": None}}, namespace=namespace)
    await ready_performer(admin, "p", namespace)
    last = await pod_of(admin, "p", namespace)
    assert last.metadata.uid != first.metadata.uid
    assert last.annotations[TEMPLATE_HASH] == first.annotations[TEMPLATE_HASH]
    assert len((await admin.list(Pod, namespace=namespace)).items) == 1


async def _deleting(client, namespace):
    return (await pod_of(client, "p", namespace)).deleting


async def test_a_pod_that_is_lost_in_any_way_is_made_again(admin, operator, pool, namespace, full):
    node = await pool()
    ways = {"failed": "Failed", "ended": "Succeeded", "evicted": None, "deleted": None}
    for name in (*ways, "lost"):
        where = node if name != "lost" else await pool()
        await admin.create(performer(name, namespace, scheduling=on(where)))
        await ready_performer(admin, name, namespace)
    before = {name: await pod_of(admin, name, namespace) for name in (*ways, "lost")}
    start = (await admin.list(Pod, namespace=namespace)).resource_version
    for name, phase in ways.items():
        if phase is not None:
            body = {"status": {"phase": phase, "reason": "Tested"}}
            await admin.patch(Pod, f"performer-{name}", body, namespace=namespace, subresource="status")
    await admin.evict("performer-evicted", namespace=namespace)
    await admin.delete(Pod, "performer-deleted", namespace=namespace)
    lost = before["lost"].spec.node_name
    await admin.delete(Node, lost)
    with contextlib.suppress(NotFound, Conflict):  # the garbage collector of pods may have been faster
        await admin.delete(
            Pod, "performer-lost", namespace=namespace, grace_period_seconds=0, uid=before["lost"].metadata.uid
        )
    spare = {"metadata": {"labels": {"pool": lost}}}
    other = await pool()
    await admin.patch(Node, other, spare)
    for name, old in before.items():

        async def renewed(name=name, old=old):
            pods = [pod for pod in (await admin.list(Pod, namespace=namespace)).items if pod.name == old.name]
            assert pods, (await status_of(admin, name, namespace), operator.log.read_text()[-3000:])
            return pods[0].metadata.uid != old.metadata.uid

        await eventually(renewed, f"{name} has a new pod", timeout=240)  # pauses grow with every pod that is lost
        await ready_performer(admin, name, namespace)
    made = await _pods_made_since(start, admin, namespace, until={f"performer-{name}" for name in before})
    # More than one is right as well: the scheduler may not know yet that a node is gone, and KWOK's kubelet deletes by
    # name, without the uid, so a second delete of an old pod can hit the new one.
    for name in before:
        recreations = (await status_of(admin, name, namespace))["recreations"]
        assert 1 <= recreations <= made[f"performer-{name}"], (name, made)


async def _pods_made_since(start, client, namespace, *, until):
    """How many pods of each name there have been since a revision, up to those there are now."""
    now = {pod.metadata.uid for pod in (await client.list(Pod, namespace=namespace)).items if pod.name in until}
    made = collections.Counter()
    async with client.watch(Pod, namespace=namespace, resource_version=start, timeout_seconds=60) as events:
        async for event in events:
            if event.type == "ADDED":
                made[event.object.name] += 1
                now.discard(event.object.metadata.uid)
            if not now:
                return made
    raise AssertionError(f"the watch ended before these pods were seen: {now}")


async def test_an_unknown_pod_is_pending_with_availability_unknown(admin, operator, pool, namespace, full):
    node = await pool()
    await admin.create(performer("p", namespace, scheduling=on(node)))
    await ready_performer(admin, "p", namespace)
    body = {"status": {"phase": "Unknown", "conditions": [{"type": "Ready", "status": "Unknown"}]}}
    await admin.patch(Pod, "performer-p", body, namespace=namespace, subresource="status")

    async def told():
        status = await status_of(admin, "p", namespace)
        assert (status["phase"], status["ready"]) == ("Pending", False)
        return status["conditions"][-1]["status"] == "Unknown" and "readyTime" not in status

    await eventually(told, timeout=90)


async def test_foreign_objects_of_our_names_are_left_alone_and_named(admin, operator, pool, namespace, full):
    node = await pool()
    pod = {"containers": [{"name": "x", "image": "x"}], "nodeSelector": {"pool": node}}
    meta = {"name": "performer-a", "namespace": namespace}
    theirs = await admin.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod})
    spec = {"ports": [{"port": 1}]}
    meta = {"name": "performer-b", "namespace": namespace}
    await admin.create({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})
    for name in ("a", "b"):
        await admin.create(performer(name, namespace, scheduling=on(node)))
        found = await eventually(lambda name=name: reason_is(admin, name, namespace, "NameConflict"), timeout=90)
        assert f"performer-{name}" in found["message"]
    assert (await pod_of(admin, "a", namespace)).metadata.uid == theirs["metadata"]["uid"]
    assert [port.port for port in (await admin.get(Service, "performer-b", namespace=namespace)).spec.ports] == [1]
    await admin.delete(Service, "performer-b", namespace=namespace)
    await ready_performer(admin, "b", namespace)


async def test_names_at_the_limit_work_and_beyond_it_are_invalid(admin, operator, pool, namespace, full):
    node = await pool()
    longest = "p" * 53
    await admin.create(performer(longest, namespace, scheduling=on(node), strategy="BlueGreen", replicas=2))
    await ready_performer(admin, longest, namespace)
    await change(admin, longest, namespace, image="avs:2")
    await ready_performer(admin, longest, namespace, observedImage="avs:2")
    for name in ("p" * 54, "with.dot"):
        await admin.create(performer(name, namespace, scheduling=on(node)))
        found = await eventually(lambda name=name: reason_is(admin, name, namespace, "InvalidSpec"), timeout=90)
        assert "metadata.name" in found["message"]


async def test_blue_green_never_leaves_the_service_without_a_ready_pod(admin, operator, pool, namespace, full):
    node = await pool()
    await admin.create(performer("p", namespace, scheduling=on(node), strategy="BlueGreen"))
    await ready_performer(admin, "p", namespace)
    selector = "kubernetes.io/service-name=performer-p"

    async def endpoints():
        listing = await admin.list(EndpointSlice, namespace=namespace, label_selector=selector)
        return [
            one.target_ref.name
            for item in listing.items
            for one in item.endpoints or ()
            if one.conditions is None or one.conditions.ready is not False
        ]

    await eventually(endpoints, "the Service has an endpoint", timeout=90)
    await change(admin, "p", namespace, image="avs:2")
    looks = []

    async def turned():
        looks.append(await endpoints())
        status = await status_of(admin, "p", namespace)
        return status["phase"] == "Running" and status["observedImage"] == "avs:2"

    await eventually(turned, "the upgrade is over", timeout=120)
    assert all(looks), looks
    status = await ready_performer(admin, "p", namespace)
    assert await endpoints() == [status["podName"]] != ["performer-p"]
    assert "lastUpgrade" in status


async def test_drift_is_repaired_and_foreign_fields_stay(admin, operator, pool, namespace, full):
    node = await pool()
    await admin.create(performer("p", namespace, scheduling=on(node)))
    await ready_performer(admin, "p", namespace)
    foreign = {"metadata": {"labels": {"team": "x"}}, "spec": {"selector": {"wrong": "pods"}}}
    await admin.patch(Service, "performer-p", foreign, namespace=namespace)

    async def repaired():
        service = await admin.get(Service, "performer-p", namespace=namespace)
        assert service.labels["team"] == "x"
        return service.spec.selector == {"hourglass.eigenlayer.io/performer": "p"}

    await eventually(repaired, timeout=90)
    uid = (await pod_of(admin, "p", namespace)).metadata.uid
    key = "hourglass.eigenlayer.io/performer"
    await admin.patch(Pod, "performer-p", {"metadata": {"labels": {key: None, "mine": "y"}}}, namespace=namespace)

    async def labelled():
        pod = await pod_of(admin, "p", namespace)
        return pod.labels.get(key) == "p" and pod.labels["mine"] == "y" and pod.metadata.uid == uid

    await eventually(labelled, timeout=90)
    await admin.delete(Service, "performer-p", namespace=namespace)
    await eventually(lambda: admin.get(Service, "performer-p", namespace=namespace), timeout=90)


async def test_a_performer_takes_its_children_along_unless_they_are_to_be_orphaned(
    admin, operator, pool, namespace, full
):
    node = await pool()
    for name in ("gone", "kept"):
        await admin.create(performer(name, namespace, scheduling=on(node), replicas=2, networkPolicy="ExecutorOnly"))
        await ready_performer(admin, name, namespace)
    kept = (await pod_of(admin, "kept", namespace)).metadata.uid
    await admin.delete(StoredPerformer, "gone", namespace=namespace)
    await admin.delete(StoredPerformer, "kept", namespace=namespace, propagation="Orphan")
    for name in ("gone", "kept"):
        await eventually(lambda name=name: gone(admin, StoredPerformer, name, namespace), timeout=90)
    assert await gone(admin, Service, "performer-gone", namespace)
    assert await gone(admin, Pod, "performer-gone", namespace)
    assert (await pod_of(admin, "kept", namespace)).metadata.uid == kept
    await eventually(lambda: _orphaned(admin, namespace), timeout=90)
    await admin.create(performer("kept", namespace, scheduling=on(node), replicas=2, networkPolicy="ExecutorOnly"))
    await ready_performer(admin, "kept", namespace)
    assert (await pod_of(admin, "kept", namespace)).metadata.uid == kept


async def _orphaned(client, namespace):
    return (await pod_of(client, "kept", namespace)).controller is None


async def test_an_account_of_its_own_keeps_its_token_and_others_get_none(admin, operator, pool, namespace, full):
    node = await pool()
    await admin.create(performer("plain", namespace, scheduling=on(node)))
    await admin.create(performer("own", namespace, scheduling=on(node), config={"serviceAccountName": "default"}))
    assert await admin.get(ServiceAccount, "default", namespace=namespace)
    for name in ("plain", "own"):
        await ready_performer(admin, name, namespace)
    assert not [volume for volume in (await pod_of(admin, "plain", namespace)).spec.volumes if volume.projected]
    assert [volume for volume in (await pod_of(admin, "own", namespace)).spec.volumes if volume.projected]
