"""The 19 defects of the original, one test each: what ours does in its place. In the order of the list."""

from __future__ import annotations

import msgspec
import pytest
import yaml

from steersman.crd import crd_manifest
from steersman.kube.api.errors import Invalid
from steersman.kube.api.gvk import Kind
from steersman.kube.api.types import ConfigMap, Deployment, Event, Pod, Secret, Service, ServiceAccount
from steersman.operators.hourglass.api.config import HardwareMap, Offer
from steersman.operators.hourglass.api.types import (
    PERFORMER_FINALIZER,
    TEMPLATE_HASH,
    HourglassExecutor,
    Performer,
    StoredExecutor,
    StoredPerformer,
)
from steersman.operators.hourglass.children.pod import avs_label, ordered_environment
from steersman.testing import eventually
from tests.support.hourglass import executor, performer, ready_performer, settle_pod, status_of

pytestmark = pytest.mark.timeout(300)


async def pod_of(client, name, namespace):
    return await client.get(Pod, f"performer-{name}", namespace=namespace)


async def start(client, namespace, name="p", **spec):
    await client.create(performer(name, namespace, **spec))
    await settle_pod(client, f"performer-{name}", namespace)
    return await ready_performer(client, name, namespace)


async def change(client, namespace, name="p", **spec):
    await client.patch(StoredPerformer, name, {"spec": spec}, namespace=namespace)


async def replaced(client, namespace, old, name="p"):
    """Wait for another pod of that name; where nobody plays the kubelet, old pods are let go at once."""

    async def another():
        found = await pod_of(client, name, namespace)
        if found.deleting and found.metadata.uid == old:
            await client.delete(Pod, found.name, namespace=namespace, grace_period_seconds=0)
        return found.metadata.uid != old

    await eventually(another, f"{name} has a new pod", timeout=90)
    await settle_pod(client, f"performer-{name}", namespace)
    return await pod_of(client, name, namespace)


async def condition(client, name, namespace, kind, reason):
    async def told():
        status = await status_of(client, name, namespace)
        found = {one["type"]: one for one in status.get("conditions", ())}.get(kind, {})
        assert found.get("reason") == reason, status
        return found

    return await eventually(told, f"{name} is {reason}", timeout=90)


async def test_01_an_upgrade_replaces_the_pod_and_status_and_service_follow(client, namespace, hourglass):
    async with hourglass():
        await start(client, namespace)
        old = (await pod_of(client, "p", namespace)).metadata.uid
        await change(client, namespace, image="avs:2", config={"grpcPort": 9191})
        new = await replaced(client, namespace, old)
        status = await ready_performer(client, "p", namespace, observedImage="avs:2")
        assert new.spec.containers[0].image == "avs:2"
        assert status["lastUpgrade"]
        assert (await client.get(Service, "performer-p", namespace=namespace)).spec.ports[0].port == 9191


async def test_02_a_change_that_is_not_the_image_replaces_the_pod_too(client, namespace, hourglass):
    async with hourglass():
        await start(client, namespace)
        old = (await pod_of(client, "p", namespace)).metadata.uid
        await change(client, namespace, config={"grpcPort": 9292})
        new = await replaced(client, namespace, old)
        service = await client.get(Service, "performer-p", namespace=namespace)
        assert new.spec.containers[0].ports[0].container_port == service.spec.ports[0].port == 9292


async def test_03_a_pod_of_another_owner_is_never_deleted(client, namespace, hourglass):
    meta = {"name": "performer-p", "namespace": namespace}
    spec = {"containers": [{"name": "x", "image": "other:1"}]}
    theirs = await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    async with hourglass():
        await client.create(performer("p", namespace))
        found = await condition(client, "p", namespace, "Available", "NameConflict")
        assert "Pod performer-p" in found["message"]
    assert (await pod_of(client, "p", namespace)).metadata.uid == theirs["metadata"]["uid"]


async def test_04_a_pod_that_waits_for_hardware_is_not_churned(client, namespace, hourglass):
    async with hourglass():
        await client.create(performer("p", namespace, hardwareRequirements={"gpuCount": 1}))
        text = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
        waiting = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}]
        await settle_pod(client, "performer-p", namespace, phase="Pending", conditions=waiting)
        found = await condition(client, "p", namespace, "Available", "HardwareUnavailable")
        assert found["message"] == text
        first = await pod_of(client, "p", namespace)
        await change(client, namespace, version="later")  # many looks later…
        await eventually(lambda: _observed(client, namespace), timeout=60)
        assert (await pod_of(client, "p", namespace)).metadata.uid == first.metadata.uid


async def _observed(client, namespace, name="p"):
    found = await client.get(StoredPerformer, name, namespace=namespace)
    return (found.status or {}).get("observedGeneration") == found.metadata.generation


@pytest.mark.parametrize(("pod_phase", "phase"), [("Succeeded", "Failed"), ("Unknown", "Pending")])
async def test_05_every_phase_of_a_pod_has_a_phase_in_the_status(client, namespace, hourglass, pod_phase, phase):
    async with hourglass():
        await start(client, namespace)
        hold = {"metadata": {"finalizers": ["example.org/hold"]}}  # so that the state stays to be looked at
        await client.patch(Pod, "performer-p", hold, namespace=namespace)
        seen = set()
        await settle_pod(client, "performer-p", namespace, phase=pod_phase, ready=False)

        async def told():
            status = await status_of(client, "p", namespace)
            seen.add(status["phase"])
            return status["ready"] is False

        await eventually(told, timeout=60)
        assert seen <= {"Running", phase, "Pending"}
        await client.patch(Pod, "performer-p", {"metadata": {"finalizers": None}}, namespace=namespace)


async def test_06_ready_and_ready_time_go_with_the_pod_and_events_are_reported(client, namespace, hourglass):
    async with hourglass():
        assert (await start(client, namespace))["readyTime"]
        hold = {"metadata": {"finalizers": ["example.org/hold"]}}
        await client.patch(Pod, "performer-p", hold, namespace=namespace)
        await client.delete(Pod, "performer-p", namespace=namespace, grace_period_seconds=0)

        async def reset():
            status = await status_of(client, "p", namespace)
            return status["ready"] is False and "readyTime" not in status

        await eventually(reset, timeout=60)
        await client.patch(Pod, "performer-p", {"metadata": {"finalizers": None}}, namespace=namespace)
        await eventually(lambda: _reasons(client, namespace), timeout=60)


async def _reasons(client, namespace):
    events = (await client.list(Event, namespace=namespace)).items
    return {"PodCreated", "PodRecreated"} <= {event.reason for event in events}


async def test_07_nothing_that_is_accepted_is_ignored(client, namespace, hourglass):
    defaults = {"kubernetes": {"namespace": namespace, "defaultScheduling": {"nodeSelector": {"pool": "avs"}}}}
    async with hourglass():
        await client.create(executor("e", namespace, config=defaults))
        labels = {"teeRequired": True, "teeType": "tdx", "customLabels": {"rack": "7"}}
        await client.create(performer("p", namespace, executorRef="e", hardwareRequirements=labels))
        pod = await eventually(lambda: pod_of(client, "p", namespace), timeout=60)
        assert pod.spec.node_selector == {
            "intel.feature.node.kubernetes.io/tdx": "true",
            "rack": "7",
            "pool": "avs",
        }
        secret = await eventually(lambda: client.get(Secret, "e-keys", namespace=namespace), timeout=60)
        assert set(secret.data) == {"ecdsa", "bls"}


async def test_08_a_documented_gpu_type_asks_for_what_device_plugins_advertise(client, namespace, hourglass):
    hardware = HardwareMap(gpu={"nvidia-a100": Offer(node_selector={"nvidia.com/gpu.product": "A100"})})
    async with hourglass(hardware=hardware):
        gpu = {"gpuType": "nvidia-a100", "gpuCount": 1}
        await client.create(performer("p", namespace, hardwareRequirements=gpu))
        pod = await eventually(lambda: pod_of(client, "p", namespace), timeout=60)
        assert pod.spec.containers[0].resources.limits == {"nvidia.com/gpu": "1"}
        await client.create(performer("q", namespace, hardwareRequirements={"gpuType": "a b", "gpuCount": 1}))
        found = await condition(client, "q", namespace, "Available", "InvalidSpec")
        assert "gpuType" in found["message"]


async def test_09_the_service_keeps_its_address_whatever_changes(client, namespace, hourglass):
    async with hourglass():
        await start(client, namespace)
        before = await client.get(Service, "performer-p", namespace=namespace)
        await change(client, namespace, config={"grpcPort": 9393})

        async def moved():
            after = await client.get(Service, "performer-p", namespace=namespace)
            return after.spec.ports[0].port == 9393 and after.spec.cluster_ip == before.spec.cluster_ip

        await eventually(moved, timeout=60)


def test_10_the_environment_has_one_order():
    made = ordered_environment({"B": "$(C)", "A": "1", "C": "2"})
    assert [item["name"] for item in made] == ["A", "C", "B"]


async def test_11_any_text_survives_in_the_configuration(client, namespace, hourglass):
    rpc = 'https://x/"quoted": {yes}\n- injected: true\\ # ünïcode \u2028'
    chain = {"name": "a: b", "rpc": rpc, "chainId": 1, "taskMailboxAddress": "0x..."}
    async with hourglass():
        await client.create(executor("e", namespace, config={"chains": [chain]}))
        config = await eventually(lambda: client.get(ConfigMap, "e-config", namespace=namespace), timeout=60)
        parsed = yaml.safe_load(config.data["config.yaml"])
        assert (parsed["chains"][0]["rpc"], parsed["chains"][0]["name"], len(parsed)) == (rpc, "a: b", 4)


async def test_12_a_configuration_change_rolls_pods_and_a_restart_by_hand_stays(client, namespace, hourglass):
    async with hourglass():
        await client.create(executor("e", namespace))
        before = await eventually(lambda: client.get(Deployment, "e", namespace=namespace), timeout=60)
        stamp = {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}}
        await client.patch(Deployment, "e", stamp, namespace=namespace)
        change = {"spec": {"config": {"logLevel": "debug"}}}
        await client.patch(StoredExecutor, "e", change, namespace=namespace)

        async def rolled():
            after = await client.get(Deployment, "e", namespace=namespace)
            notes = after.spec.template.metadata.annotations
            key = "hourglass.eigenlayer.io/config-hash"
            assert notes["kubectl.kubernetes.io/restartedAt"] == "now"
            return notes[key] != before.spec.template.metadata.annotations[key]

        await eventually(rolled, timeout=60)

        async def selecting():  # the status follows the Deployment
            scale = await client.scale(StoredExecutor, "e", 2, namespace=namespace)
            return scale.status.selector == "app=hourglass-executor,hourglass.eigenlayer.io/name=e"

        await eventually(selecting, timeout=60)


async def test_13_the_time_of_the_last_configuration_moves_only_with_the_configuration(client, namespace, hourglass):
    async with hourglass():
        await client.create(executor("e", namespace))

        async def told():
            return ((await client.get(StoredExecutor, "e", namespace=namespace)).status or {}).get("lastConfigUpdate")

        first = await eventually(told, timeout=60)
        await client.patch(StoredExecutor, "e", {"spec": {"image": "executor:2"}}, namespace=namespace)

        async def observed():
            status = (await client.get(StoredExecutor, "e", namespace=namespace)).status
            return status["observedImage"] == "executor:2" and status["lastConfigUpdate"] == first

        await eventually(observed, timeout=60)


async def test_14_the_service_account_is_made_or_its_absence_is_named(client, namespace, hourglass):
    async with hourglass(create_service_accounts=False):
        await client.create(executor("e", namespace))

        async def degraded():
            status = (await client.get(StoredExecutor, "e", namespace=namespace)).status or {}
            found = {one["type"]: one for one in status.get("conditions", ())}.get("Degraded", {})
            return found.get("reason") == "ServiceAccountMissing" and "hourglass-executor" in found["message"]

        await eventually(degraded, timeout=60)
    async with hourglass():
        await eventually(lambda: client.get(ServiceAccount, "hourglass-executor", namespace=namespace), timeout=60)


async def test_15_names_that_cannot_work_are_reported_and_any_address_makes_a_label(client, namespace, hourglass):
    async with hourglass():
        await client.create(performer("p" * 54, namespace))
        found = await condition(client, "p" * 54, namespace, "Available", "InvalidSpec")
        assert found["message"].startswith("metadata.name")
        await client.create(performer("p", namespace, avsAddress="0x..."))
        pod = await eventually(lambda: pod_of(client, "p", namespace), timeout=60)
        assert pod.labels["hourglass.eigenlayer.io/avs"] == avs_label("0x...") == "0x"


async def test_16_the_finalizer_does_its_work_and_goes(client, namespace, hourglass):
    async with hourglass():
        await start(client, namespace)
        hold = {"metadata": {"finalizers": ["example.org/hold"]}}
        await client.patch(Pod, "performer-p", hold, namespace=namespace)
        await client.delete(StoredPerformer, "p", namespace=namespace)

        async def service_first():
            services = (await client.list(Service, namespace=namespace)).items
            status = await status_of(client, "p", namespace)
            return not services and status["phase"] == "Terminating"

        await eventually(service_first, timeout=60)
        found = await client.get(StoredPerformer, "p", namespace=namespace)
        assert PERFORMER_FINALIZER in found.metadata.finalizers
        await client.patch(Pod, "performer-p", {"metadata": {"finalizers": None}}, namespace=namespace)

        async def over():
            for pod in (await client.list(Pod, namespace=namespace)).items:
                await client.delete(Pod, pod.name, namespace=namespace, grace_period_seconds=0)
            return not (await client.list(StoredPerformer, namespace=namespace)).items

        await eventually(over, timeout=60)


async def test_17_without_a_port_it_is_9090_everywhere(client, namespace, hourglass):
    async with hourglass():
        await client.create(performer("p", namespace))
        pod = await eventually(lambda: pod_of(client, "p", namespace), timeout=60)
        service = await eventually(lambda: client.get(Service, "performer-p", namespace=namespace), timeout=60)
        assert pod.spec.containers[0].ports[0].container_port == service.spec.ports[0].port == 9090


async def test_18_both_definitions_are_accepted_as_they_are_printed(client, namespace, hourglass):
    definition = Kind(
        group="apiextensions.k8s.io",
        version="v1",
        kind="CustomResourceDefinition",
        plural="customresourcedefinitions",
        namespaced=False,
    )
    for kind in (HourglassExecutor, Performer):
        stored = await client.get(definition, kind.KIND.qualified)
        assert stored["status"]["acceptedNames"]["kind"] == kind.KIND.kind
        conditions = {one["type"]: one["status"] for one in stored["status"]["conditions"]}
        assert conditions["Established"] == "True"
        assert conditions.get("NonStructuralSchema", "False") == "False"
        await client.apply(crd_manifest(kind), dry_run=True, force=True, field_manager="test")


async def test_19_keys_reach_the_pod_by_a_secret_and_nothing_else_holds_them(client, namespace, hourglass):
    async with hourglass():
        await client.create(executor("e", namespace))
        deployment = await eventually(lambda: client.get(Deployment, "e", namespace=namespace), timeout=60)
        mounts = {mount.name: mount.mount_path for mount in deployment.spec.template.spec.containers[0].volume_mounts}
        assert mounts["keys"] == "/etc/hourglass/keys"
        config = await client.get(ConfigMap, "e-config", namespace=namespace)
        found = await client.get(StoredExecutor, "e", namespace=namespace)
        for text in (str(config), str(deployment), str(found.status)):
            assert "key-material" not in text


# ------------------------------------------------------------------------------------------------------- bad input
BAD_PERFORMERS = [
    {"image": 1},
    {"image": ""},
    {"avsAddress": None},
    {"imagePullPolicy": "Sometimes"},
    {"replicas": -1},
    {"strategy": "Canary"},
    {"config": {"grpcPort": 0}},
    {"config": {"grpcPort": 70000}},
    {"hardwareRequirements": {"gpuCount": -1}},
    {"hardwareRequirements": {"teeRequired": True}},
    {"resources": {"limits": {"cpu": "lots"}}},
    {"scheduling": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}},
    {"networkPolicy": "All"},
]


async def test_the_schema_refuses_what_a_schema_can_refuse(client, namespace, hourglass):
    for spec in BAD_PERFORMERS:
        body = performer("bad", namespace, **spec)
        body["spec"] = {key: value for key, value in body["spec"].items() if value is not None}
        with pytest.raises(Invalid):
            await client.create(body)
    twice = {"name": "a", "rpc": "r", "chainId": 1, "taskMailboxAddress": "0x"}
    for config in (
        {"chains": []},
        {"chains": [twice, twice]},
        {"chains": [{**twice, "chainId": 0}]},
        {"performerMode": "magic"},
        {"aggregatorEndpoint": ""},
    ):
        with pytest.raises(Invalid):
            await client.create(executor("bad", namespace, config=config))
    keyless = executor("bad", namespace)
    del keyless["spec"]["config"]["operatorKeys"]
    with pytest.raises(Invalid):
        await client.create(keyless)


async def test_a_resource_of_an_older_schema_says_what_is_wrong_and_harms_nothing_else(client, namespace, hourglass):
    """The definition is loosened, a malformed resource stored, and the definition restored, as an upgrade would."""
    definition = Kind(
        group="apiextensions.k8s.io",
        version="v1",
        kind="CustomResourceDefinition",
        plural="customresourcedefinitions",
        namespaced=False,
    )
    whole = crd_manifest(Performer)
    loose = msgspec.json.decode(msgspec.json.encode(whole))
    schema = loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    name = Performer.KIND.qualified
    bad = performer("bad", namespace, config={"grpcPort": "not a number"})
    await client.patch(definition, name, {"spec": loose["spec"]})
    try:
        await eventually(lambda: _stored(client, bad), "the loose schema takes it", timeout=60)
    finally:
        await client.patch(definition, name, {"spec": whole["spec"]})
        await eventually(lambda: _refused(client, namespace), "the definition is itself again", timeout=60)
    async with hourglass():
        await client.create(performer("good", namespace))
        await settle_pod(client, "performer-good", namespace)
        await ready_performer(client, "good", namespace)
        found = await condition(client, "bad", namespace, "Available", "InvalidSpec")
        assert "spec." in found["message"]


async def _refused(client, namespace):
    try:
        await client.create(performer("probe", namespace, config={"grpcPort": "x"}), dry_run=True)
    except Invalid:
        return True
    return False


async def _stored(client, manifest):
    return await client.create(manifest)


async def test_a_marked_pod_is_not_marked_again(client, namespace, hourglass):
    async with hourglass():
        await start(client, namespace)
        before = await pod_of(client, "p", namespace)
    async with hourglass():
        await change(client, namespace, version="2")
        await eventually(lambda: _observed(client, namespace), timeout=60)
    after = await pod_of(client, "p", namespace)
    assert (after.metadata.uid, after.annotations[TEMPLATE_HASH]) == (
        before.metadata.uid,
        before.annotations[TEMPLATE_HASH],
    )
