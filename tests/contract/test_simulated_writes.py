"""What the simulated controllers write, held against what the real controllers write.

Each test is one life of a workload, on the simulation and on a real control plane: which requests its controllers made
(from the audit log of the real server), and what is on the objects then. A controller that patches and one that updates
do the same here: both are a `write`. What differs and stays so is listed in docs/embedded-server.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from steersman.testing import eventually
from steersman.testing.controlplane.launcher import ControlPlane
from steersman.testing.raw_api import MERGE_PATCH, RawApi, ssl_context
from tests.support.manifests import Space, container, deployment, service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from steersman.testing.raw_api import ApiServer, RawResponse
    from tests.support.manifests import Manifest

REVISION = "deployment.kubernetes.io/revision"
AGENT = "simulated-writes"
RESTARTED = {"spec": {"template": {"metadata": {"annotations": {"example.org/again": "1"}}}}}
# Of the server, the scheduler and kubelets; events, and Endpoints, which the simulation has not.
_NOT_COMPARED = {"configmaps", "endpoints", "events", "events.events.k8s.io", "serviceaccounts"}
_READS = {"get", "list", "watch"}


@pytest.fixture(params=["simulated", pytest.param("full", marks=pytest.mark.real)])
def controlled(request: pytest.FixtureRequest) -> ApiServer:
    """A server with controllers of workloads behind it: simulated ones, then the real ones."""
    found: ApiServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def api(controlled: ApiServer) -> AsyncIterator[RawApi]:
    token, trust = controlled.token, ssl_context(controlled.ca_pem)
    async with RawApi(controlled.url, token=token, ssl_context=trust, user_agent=AGENT) as api:
        yield api


@pytest.fixture
async def space(api: RawApi, controlled: ApiServer) -> Space:
    """A namespace for pods, and nodes for them."""
    if isinstance(controlled, ControlPlane) and not (await api.get("/api/v1/nodes")).body["items"]:
        await controlled.add_nodes("writes-a", "writes-b")
    made = await api.post("/api/v1/namespaces", {"metadata": {"generateName": "writes-"}})
    ns = Space(made.name)
    await api.eventually(ns.core("serviceaccounts/default"), lambda answer: answer.status == 200)
    return ns


def writes_of(controlled: ApiServer, ns: Space) -> set[tuple[str, str, str]]:
    """What controllers of workloads wrote in a namespace: verb, resource and subresource."""
    if isinstance(controlled, ControlPlane):
        entries: Iterable[Any] = controlled.audit.entries(namespace=str(ns))
    else:
        entries = [entry for entry in list(controlled.requests) if entry.namespace == ns]  # type: ignore[attr-defined]
    found = set()
    for entry in entries:
        group = getattr(entry, "group", "")
        resource = f"{entry.resource}.{group}" if group else entry.resource
        ours = entry.user_agent.startswith(AGENT) or resource in _NOT_COMPARED or entry.status >= 300
        if ours or entry.verb in _READS or (resource == "pods" and entry.subresource):
            continue
        verb = "write" if entry.verb in {"patch", "update"} else entry.verb
        found.add((verb, resource, entry.subresource))
    return found


async def all_writes(controlled: ApiServer, ns: Space, expected: set[tuple[str, str, str]]) -> None:
    """The audit log is behind by a moment; what comes then must be what is expected and nothing else."""

    async def logged() -> bool:
        return writes_of(controlled, ns) >= expected

    await eventually(logged)
    assert writes_of(controlled, ns) == expected


def template(app: str) -> Manifest:
    spec = {"containers": [container()], "terminationGracePeriodSeconds": 0}
    return {"metadata": {"labels": {"app": app}}, "spec": spec}


def workload(name: str, **spec: Any) -> Manifest:
    selector = {"matchLabels": {"app": name}}
    return {"metadata": {"name": name}, "spec": {"selector": selector, "template": template(name), **spec}}


def observed(answer: RawResponse, **counts: int) -> bool:
    """Whether the controller has seen the spec and its status counts so much."""
    status = answer.body.get("status", {})
    seen = status.get("observedGeneration") == answer.body["metadata"]["generation"]
    return seen and all(status.get(name) == count for name, count in counts.items())


async def the_items(api: RawApi, path: str) -> list[Manifest]:
    items: list[Manifest] = (await api.get(path)).body["items"]
    return items


def keys(obj: Manifest, field: str) -> set[str]:
    return set(obj["metadata"].get(field) or {})


def revision_is(number: str) -> Any:
    def reached(answer: RawResponse) -> bool:
        return (answer.body["metadata"].get("annotations") or {}).get(REVISION) == number

    return reached


async def test_a_rollout_is_one_generation_and_its_revision_is_written_with_the_status(api: RawApi):
    made = await api.post("/api/v1/namespaces", {"metadata": {"generateName": "rollout-"}})
    space = Space(made.name)
    path = space.at("apps/v1", "deployments/web")
    await api.post(space.at("apps/v1", "deployments"), deployment("web"))
    first = await api.eventually(path, revision_is("1"))
    assert first.body["metadata"]["generation"] == 1
    await api.patch(path, RESTARTED)
    second = await api.eventually(path, revision_is("2"))
    assert second.body["metadata"]["generation"] == 2
    owned = {"f:annotations": {".": {}, f"f:{REVISION}": {}}}
    writers = [
        entry for entry in second.body["metadata"]["managedFields"] if entry["fieldsV1"].get("f:metadata") == owned
    ]
    assert [entry.get("subresource") for entry in writers] == ["status"]


async def test_a_deployment_that_rolls_and_scales(api: RawApi, controlled: ApiServer, space: Space):
    await api.post(space.core("services"), service("web", spec={"selector": {"app": "web"}}))
    path = space.at("apps/v1", "deployments/web")
    await api.post(space.at("apps/v1", "deployments"), workload("web", replicas=2))

    async def settled(count: int) -> None:
        want = {"replicas": count, "updatedReplicas": count, "availableReplicas": count, "terminatingReplicas": 0}
        await api.eventually(path, lambda answer: observed(answer, **want))

    await settled(2)
    await api.patch(path, RESTARTED, MERGE_PATCH)
    await settled(2)
    await api.patch(path, {"spec": {"replicas": 3}}, MERGE_PATCH)
    await settled(3)
    await api.patch(path, {"spec": {"replicas": 1}}, MERGE_PATCH)
    await settled(1)
    expected = {
        ("create", "replicasets.apps", ""),
        ("write", "replicasets.apps", ""),
        ("write", "replicasets.apps", "status"),
        ("write", "deployments.apps", "status"),
        ("create", "pods", ""),
        ("delete", "pods", ""),
        ("create", "endpointslices.discovery.k8s.io", ""),
        ("write", "endpointslices.discovery.k8s.io", ""),
    }
    await all_writes(controlled, space, expected)
    for replica_set in await the_items(api, space.at("apps/v1", "replicasets")):
        own = {REVISION, "deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"}
        assert keys(replica_set, "annotations") == own
        assert keys(replica_set, "labels") == {"app", "pod-template-hash"}
        assert replica_set["status"]["terminatingReplicas"] == 0
        if replica_set["spec"]["replicas"]:
            annotations = replica_set["metadata"]["annotations"]
            scale = [annotations[f"deployment.kubernetes.io/{name}-replicas"] for name in ("desired", "max")]
            assert scale == ["1", "2"]
    [endpoint_slice] = await the_items(api, space.at("discovery.k8s.io/v1", "endpointslices"))
    assert endpoint_slice["metadata"]["generateName"] == "web-"


async def test_a_stateful_set_that_rolls(api: RawApi, controlled: ApiServer, space: Space):
    path = space.at("apps/v1", "statefulsets/db")
    await api.post(space.at("apps/v1", "statefulsets"), workload("db", replicas=2, serviceName="db"))

    async def settled() -> Manifest:
        def reached(answer: RawResponse) -> bool:
            status = answer.body.get("status", {})
            same = status.get("currentRevision") == status.get("updateRevision")
            return same and observed(answer, readyReplicas=2, updatedReplicas=2)

        status: Manifest = (await api.eventually(path, reached)).body["status"]
        return status

    await settled()
    await api.patch(path, RESTARTED, MERGE_PATCH)
    status = await settled()
    expected = {
        ("create", "controllerrevisions.apps", ""),
        ("create", "pods", ""),
        ("delete", "pods", ""),
        ("write", "statefulsets.apps", "status"),
    }
    await all_writes(controlled, space, expected)
    for pod in await the_items(api, space.core("pods")):
        assert pod["metadata"]["labels"]["controller-revision-hash"] == status["updateRevision"]
        assert pod["metadata"]["generateName"] == "db-"
    for revision in await the_items(api, space.at("apps/v1", "controllerrevisions")):
        labels = revision["metadata"]["labels"]
        assert revision["metadata"]["name"] == f"db-{labels['controller.kubernetes.io/hash']}"
        assert set(labels) == {"app", "controller.kubernetes.io/hash"}


async def test_a_daemon_set_that_rolls(api: RawApi, controlled: ApiServer, space: Space):
    path = space.at("apps/v1", "daemonsets/agent")
    await api.post(space.at("apps/v1", "daemonsets"), workload("agent"))

    async def settled() -> None:
        def reached(answer: RawResponse) -> bool:
            wanted = answer.body.get("status", {}).get("desiredNumberScheduled", 0)
            return wanted > 0 and observed(answer, numberAvailable=wanted, updatedNumberScheduled=wanted)

        await api.eventually(path, reached)

    await settled()
    await api.patch(path, RESTARTED, MERGE_PATCH)
    await settled()
    expected = {
        ("create", "controllerrevisions.apps", ""),
        ("create", "pods", ""),
        ("delete", "pods", ""),
        ("write", "daemonsets.apps", "status"),
    }
    await all_writes(controlled, space, expected)
    for pod in await the_items(api, space.core("pods")):
        labels, spec = pod["metadata"]["labels"], pod["spec"]
        assert set(labels) == {"app", "controller-revision-hash", "pod-template-generation"}
        assert labels["pod-template-generation"] == "2"
        tolerated = {(toleration["key"], toleration["effect"]) for toleration in spec["tolerations"]}
        assert tolerated == {
            ("node.kubernetes.io/not-ready", "NoExecute"),
            ("node.kubernetes.io/unreachable", "NoExecute"),
            ("node.kubernetes.io/disk-pressure", "NoSchedule"),
            ("node.kubernetes.io/memory-pressure", "NoSchedule"),
            ("node.kubernetes.io/pid-pressure", "NoSchedule"),
            ("node.kubernetes.io/unschedulable", "NoSchedule"),
        }
        here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [spec["nodeName"]]}]}
        required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert required == {"nodeSelectorTerms": [here]}
    for revision in await the_items(api, space.at("apps/v1", "controllerrevisions")):
        assert keys(revision, "labels") == {"app", "controller-revision-hash"}
        assert keys(revision, "annotations") == {"deprecated.daemonset.template.generation"}


async def test_a_cron_job_and_its_job(api: RawApi, controlled: ApiServer, space: Space):
    pods = {"spec": {"containers": [container()], "restartPolicy": "Never"}}
    spec = {"schedule": "@every 2s", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": {"template": pods}}}
    path = space.at("batch/v1", "cronjobs/nightly")
    await api.post(space.at("batch/v1", "cronjobs"), {"metadata": {"name": "nightly"}, "spec": spec})
    await api.eventually(path, lambda answer: answer.body.get("status", {}).get("lastSuccessfulTime"))
    await api.patch(path, {"spec": {"suspend": True}}, MERGE_PATCH)  # it stays behind, and starts nothing any more
    expected = {
        ("create", "jobs.batch", ""),
        ("create", "pods", ""),
        ("write", "jobs.batch", "status"),
        ("write", "cronjobs.batch", "status"),
    }
    tracking = {("write", "pods", "")} if isinstance(controlled, ControlPlane) else set()  # it removes its finalizer
    await all_writes(controlled, space, expected | tracking)
    job = min(await the_items(api, space.at("batch/v1", "jobs")), key=lambda job: job["metadata"]["creationTimestamp"])
    assert keys(job, "annotations") == {"batch.kubernetes.io/cronjob-scheduled-timestamp"}
    assert [condition["type"] for condition in job["status"]["conditions"]] == ["SuccessCriteriaMet", "Complete"]
    assert [owner["kind"] for owner in job["metadata"]["ownerReferences"]] == ["CronJob"]
