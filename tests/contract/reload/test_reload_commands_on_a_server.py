"""The reload commands against a server, with the operator at work: through the real entry point of the program."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from steersman.crd import crd_manifest
from steersman.kube.api.gvk import Kind
from steersman.kube.api.types import ConfigMap, Deployment
from steersman.operators.reload.api.config import KindConfig, ReloadConfig
from steersman.operators.reload.api.policy import ClusterReloadPolicy, ReloadPolicy
from steersman.operators.reload.controllers.setup import operator
from steersman.operators.reload.inspect.offline import OfflineInspection, read_cluster
from steersman.testing import eventually, running

STEERSMAN = Path(sys.executable).with_name("steersman")
pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


def configmap(namespace, mode):
    meta = {"name": "app", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"mode": mode}}


def deployment(namespace, name="web", **marks):
    source = {"configMapKeyRef": {"name": "app", "key": "mode"}}
    container = {"name": "main", "image": "web:1", "env": [{"name": "MODE", "valueFrom": source}]}
    labels, marks = {"app": name}, {"steersman.dev/reload": "auto", **marks}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "annotations": marks},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


@pytest.fixture
def steersman(cluster, namespace, tmp_path):
    """`await steersman("why", "deploy/web")` runs the program; returns its exit code and what it printed."""
    path = tmp_path / "kubeconfig"
    cluster.write_kubeconfig(path)

    async def run(*arguments):
        process = await asyncio.create_subprocess_exec(
            STEERSMAN,
            *(*arguments, "--kubeconfig", str(path), "-n", namespace),
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert not err, err
        return process.returncode, out.decode()

    return run


@pytest.fixture
async def at_work(cluster, client, namespace):
    """The operator, the workload `web` and its source `app`; ends when everything is seeded."""
    await client.create(configmap(namespace, "a"))
    await client.create(deployment(namespace))
    config = ReloadConfig(quiet_period="0s", max_delay="0s", namespaces=(namespace,), kinds=("Deployment",))
    async with running(client, *operator(config, registry=CollectorRegistry())):
        await eventually(lambda: marked(client, namespace, "steersman.dev/applied"), timeout=60)
        yield


async def marked(client, namespace, name, workload="web"):
    return (await client.get(Deployment, workload, namespace=namespace)).annotations.get(name)


async def stamp(client, namespace, name="restarted-at"):
    found = await client.get(Deployment, "web", namespace=namespace)
    return (found.spec.template.metadata.annotations or {}).get(f"steersman.dev/{name}")


async def shared(client, namespace, grant):
    """A source of a namespace of its own that the workload `extra` names; returns that namespace."""
    library = f"{namespace}-lib"
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": library}})
    source = configmap(library, "a")
    source["metadata"]["annotations"] = {"steersman.dev/share-with": grant}
    await client.create(source)
    asks = {"steersman.dev/reload-extra": f"configmap/{library}/app"}
    await client.create(deployment(namespace, "extra", **asks))
    return library, source


async def test_a_source_of_another_namespace_is_foretold_for_those_it_is_shared_with(
    cluster, client, namespace, steersman, tmp_path
):
    library, source = await shared(client, namespace, namespace)
    (tmp_path / "new.json").write_text(json.dumps(source | {"data": {"mode": "b"}}))
    code, shown = await steersman("plan", "--live", "-f", str(tmp_path / "new.json"), "-o", "json")
    (change,) = json.loads(shown)["changes"]
    assert (code, change["workload"]["name"], change["sources"][0]["keys"]) == (3, "extra", ["mode"])
    _code, shown = await steersman("graph", "-o", "json")
    assert library in shown


async def test_a_source_of_another_namespace_that_is_not_granted_is_not_an_edge(
    cluster, client, namespace, steersman, tmp_path
):
    library, source = await shared(client, namespace, "somebody-else")
    _code, shown = await steersman("graph", "-o", "json")
    assert library not in shown
    (tmp_path / "new.json").write_text(json.dumps(source | {"data": {"mode": "b"}}))
    code, shown = await steersman("plan", "--live", "-f", str(tmp_path / "new.json"), "-o", "json")
    told = json.loads(shown)
    assert (code, told["changes"]) == (0, [])
    assert "does not grant it" in told["unaffected"][0]["reason"]


async def test_a_change_is_foretold_by_plan_and_explained_by_why(
    cluster, client, namespace, steersman, at_work, tmp_path
):
    (tmp_path / "new.json").write_text(json.dumps(configmap(namespace, "b")))
    code, shown = await steersman("plan", "--live", "-f", str(tmp_path / "new.json"), "-o", "json")
    (change,) = json.loads(shown)["changes"]
    assert (code, change["workload"]["name"], change["sources"][0]["keys"]) == (3, "web", ["mode"])

    await client.apply(configmap(namespace, "b"), field_manager="test", force=True)
    await eventually(lambda: stamp(client, namespace), "it restarts", timeout=60)
    code, shown = await steersman("plan", "--live", "-f", str(tmp_path / "new.json"), "-o", "json")
    assert (code, json.loads(shown)["changes"]) == (0, [])

    code, shown = await steersman("why", "deploy/web", "-o", "json")
    told = json.loads(shown)
    assert code == 0
    assert [(edge["source"], edge["keys"], edge["dialects"]) for edge in told["edges"]] == [
        ("configmap/app", ["mode"], ["native"])
    ]
    assert told["edges"][0]["digest"] == told["edges"][0]["applied"]
    assert told["restarts"][0]["cause"] == "configmap/app#mode"
    assert told["pending"] is None

    code, shown = await steersman("reload", "history", "-o", "json")
    assert [(load["workload"]["name"], load["cause"]) for load in json.loads(shown)] == [("web", "configmap/app#mode")]
    code, shown = await steersman("graph", "-o", "json")
    assert [edge["source"] for edge in json.loads(shown)["edges"]] == [f"configmap/{namespace}/app"]


async def test_why_names_the_workload_that_goes_first(cluster, client, namespace, steersman, at_work):
    await client.create(deployment(namespace, "api", **{"steersman.dev/wave": "1"}))
    await eventually(lambda: marked(client, namespace, "steersman.dev/applied", "api"), timeout=60)
    await client.apply(configmap(namespace, "b"), field_manager="test", force=True)
    await eventually(lambda: stamp(client, namespace), "the first wave restarts", timeout=60)
    told = [json.loads((await steersman("why", "deployment/api", "-o", "json"))[1]) for _ in range(2)]
    assert [message["pending"]["gate"] for message in told] == ["wave", "wave"]
    assert told[0]["verdict"] == "restart pending: wave 0 goes first: deployment/web: it is being restarted"


async def test_a_freeze_holds_a_change_until_it_is_thawed(cluster, client, namespace, steersman, at_work):
    await steersman("reload", "freeze", "deployment/web", "--for", "2h")
    await client.apply(configmap(namespace, "b"), field_manager="test", force=True)

    async def held():
        told = json.loads((await steersman("why", "deployment/web", "-o", "json"))[1])
        assert told["pending"] is not None
        assert told["pending"]["gate"] == "freeze"
        assert told["verdict"].startswith("restart pending")
        assert told["told"].startswith("the restart for configmap/app#mode waits: ")
        return True

    await eventually(held, "why names the freeze, and what the operator says about it", timeout=60)
    assert await stamp(client, namespace) is None
    await steersman("reload", "thaw", "deployment/web")
    await eventually(lambda: stamp(client, namespace), "it restarts", timeout=60)


async def test_policies_of_the_cluster_count_for_why_and_new_ones_for_plan(
    cluster, client, namespace, steersman, at_work, tmp_path
):
    for kind in (ReloadPolicy, ClusterReloadPolicy):
        await client.apply(crd_manifest(kind), field_manager="test", force=True)
        await eventually(lambda kind=kind: _listed(client, kind), f"{kind.__name__} is served", timeout=60)
    policy = {
        "apiVersion": "steersman.dev/v1alpha1",
        "kind": "ReloadPolicy",
        "metadata": {"name": "calm", "namespace": namespace},
        "spec": {"wave": 3},
    }
    (tmp_path / "new.json").write_text(json.dumps(policy))
    code, shown = await steersman("plan", "--live", "-f", str(tmp_path / "new.json"), "-o", "json")
    assert (code, json.loads(shown)["changes"]) == (0, [])  # a policy restarts nobody

    await client.create(policy)
    told = json.loads((await steersman("why", "deploy/web", "-o", "json"))[1])
    assert told["wave"] == 3


async def _listed(client, kind):
    await client.list(kind)
    return True


async def test_a_trigger_says_when_a_workload_takes_no_part(cluster, client, namespace, steersman):
    await client.create(deployment(namespace, **{"steersman.dev/reload": "off"}))
    code, shown = await steersman("reload", "trigger", "deployment/web")
    assert code == 0
    assert shown.endswith("; the operator never would: steersman.dev/reload: off on the workload\n")


async def test_a_trigger_restarts_at_once_and_the_operator_does_not_restart_again(
    cluster, client, namespace, steersman, at_work
):
    await steersman("reload", "freeze", "deployment/web")
    await client.apply(configmap(namespace, "b"), field_manager="test", force=True)
    code, shown = await steersman("reload", "trigger", "deploy/web")
    assert (code, shown) == (0, "deployment/web restarts for configmap/app#mode\n")
    first = await stamp(client, namespace)
    await steersman("reload", "thaw", "deployment/web")
    await client.apply(configmap(namespace, "c"), field_manager="test", force=True)
    await eventually(lambda: _changed(client, namespace, first), "the next change restarts it", timeout=60)
    restarts = json.loads(await marked(client, namespace, "steersman.dev/applied"))["r"]
    assert len(restarts) == 2
    code, _ = await steersman("reload", "trigger", "deployment/web")
    past = json.loads(await marked(client, namespace, "steersman.dev/applied"))["h"]
    outcomes = [one[2] if len(one) > 2 else "" for one in past]
    assert (len(past), outcomes[2]) == (3, "")
    assert all(outcomes[:2]), "how a restart ended is lost with the next one by hand"


async def _changed(client, namespace, stamped):
    return await stamp(client, namespace) != stamped


async def test_an_approval_names_what_the_source_says_now(cluster, client, namespace, steersman, at_work):
    await steersman("reload", "freeze", "deployment/web")
    await client.apply(configmap(namespace, "b"), field_manager="test", force=True)
    code, shown = await steersman("reload", "approve", "configmap/app")
    found = await client.get(ConfigMap, "app", namespace=namespace)
    assert code == 0
    assert found.annotations["steersman.dev/approve"] in shown


async def test_an_approval_of_nothing_says_so_and_writes_nothing(cluster, client, namespace, steersman):
    await client.create(configmap(namespace, "a"))
    code, shown = await steersman("reload", "approve", "configmap/app")
    assert (code, shown) == (
        0,
        "configmap/app: no workload waits for a change of it, so there is nothing to approve\n",
    )
    found = await client.get(ConfigMap, "app", namespace=namespace)
    assert "steersman.dev/approve" not in (found.annotations or {})


async def test_a_change_can_be_approved_for_workloads_of_a_dialect_that_the_command_does_not_name(
    cluster, client, namespace, steersman
):
    await client.create(configmap(namespace, "a"))
    web = deployment(namespace)
    web["metadata"]["annotations"] = {"reloader.stakater.com/auto": "true", "steersman.dev/freeze": "true"}
    await client.create(web)
    config = ReloadConfig(quiet_period="0s", namespaces=(namespace,), kinds=("Deployment",), dialects=("reloader",))
    async with running(client, *operator(config, registry=CollectorRegistry())):
        await eventually(lambda: marked(client, namespace, "steersman.dev/applied"), timeout=60)
    await client.apply(configmap(namespace, "b"), field_manager="test", force=True)
    _, shown = await steersman("reload", "approve", "configmap/app")
    found = await client.get(ConfigMap, "app", namespace=namespace)
    assert shown == f"configmap/app: the change to {found.annotations['steersman.dev/approve']} is approved\n"


async def test_why_explains_an_object_of_any_kind_by_its_conditions_and_events(cluster, client, namespace, steersman):
    pod = {"metadata": {"labels": {"app": "import"}}, "spec": {"containers": [{"name": "main", "image": "job:1"}]}}
    spec = {"replicas": 0, "selector": {"app": "import"}, "template": pod}
    meta = {"name": "import", "namespace": namespace}
    await client.create({"apiVersion": "v1", "kind": "ReplicationController", "metadata": meta, "spec": spec})
    failed = {"type": "Failed", "status": "True", "reason": "Refused", "message": "fuse 3"}
    kind = Kind(group="", version="v1", kind="ReplicationController", plural="replicationcontrollers")
    await client.patch(
        kind, "import", {"status": {"replicas": 0, "conditions": [failed]}}, namespace=namespace, subresource="status"
    )
    code, shown = await steersman("why", "rc/import")
    assert code == 3
    assert shown.startswith(f"replicationcontroller/import in {namespace} is failing: Refused: fuse 3\n")


async def test_why_says_which_dialect_of_the_annotations_is_off(cluster, client, namespace, steersman):
    await client.create(deployment(namespace, **{"reloader.stakater.com/auto": "true"}))
    _, shown = await steersman("why", "deployment/web")
    assert "the reloader dialect is off: --dialect reloader" in shown
    _, shown = await steersman("why", "deployment/web", "--dialect", "reloader")
    assert "dialect is off" not in shown


async def test_status_finds_the_leader_by_its_lease_and_says_when_its_pod_cannot_be_reached(
    cluster, client, namespace, tmp_path
):
    meta = {"name": "web", "namespace": namespace}
    spec = {"containers": [{"name": "main", "image": "none"}]}
    await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    held = {"holderIdentity": "web_1", "leaseDurationSeconds": 15}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {**meta, "name": "steersman"}}
    await client.create({**lease, "spec": held})
    path = tmp_path / "kubeconfig"
    cluster.write_kubeconfig(path)
    process = await asyncio.create_subprocess_exec(
        *(STEERSMAN, "status", "--kubeconfig", str(path), "-n", namespace), stderr=asyncio.subprocess.PIPE
    )
    _, shown = await process.communicate()
    assert process.returncode == 1
    assert f"pod/web in {namespace} leads and cannot be reached through the API server: " in shown.decode()


async def test_a_kind_whose_definition_is_removed_after_discovery_has_no_objects(cluster, client, namespace):
    gone = Kind(group="gone.example.org", version="v1", kind="Fleet", plural="fleets")
    kind = KindConfig(
        kind="Fleet", group=gone.group, version="v1", plural="fleets", template="spec.template", restart="template"
    )
    options = ReloadConfig(kinds=(kind,)).options()
    inspection = OfflineInspection(options, served=[gone])
    assert gone in [rule.kind for rule in inspection.rules.values()]
    await client.create(configmap(namespace, "a"))
    await read_cluster(inspection, client, namespaces=[namespace])
    assert not inspection.unread
