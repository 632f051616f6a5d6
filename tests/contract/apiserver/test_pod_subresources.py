"""`resize` and `ephemeralcontainers`: the two parts of the spec of a pod that may change later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from steersman.testing.raw_api import STRATEGIC_PATCH
from tests.support.manifests import container, deployment, pod

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi, RawResponse
    from tests.support.manifests import Manifest, Space

REQUIRED, INVALID, FORBIDDEN = "FieldValueRequired", "FieldValueInvalid", "FieldValueForbidden"
NOT_FOUND, DUPLICATE = "FieldValueNotFound", "FieldValueDuplicate"
AMOUNTS = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}}
DEBUGGER = {"name": "debugger", "image": "registry.example/tools:1", "targetContainerName": "main"}


def causes(answer: RawResponse) -> set[tuple[str, str]]:
    assert answer.status == 422, answer.body
    return {(reason, field) for reason, field, _ in answer.causes}


@pytest.fixture
async def path(api: RawApi, pods: Space) -> str:
    """A pod with requests and limits."""
    made = await api.post(pods.core("pods"), pod("web", spec={"containers": [container(resources=AMOUNTS)]}))
    assert made.status == 201, made.body
    return pods.core("pods/web")


async def resized(api: RawApi, path: str, resources: Manifest, **parameters: str) -> RawResponse:
    body = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    return await api.patch(f"{path}/resize", body, STRATEGIC_PATCH, **parameters)


async def debugged(api: RawApi, path: str, *containers: Manifest, **parameters: str) -> RawResponse:
    body = {"spec": {"ephemeralContainers": list(containers)}}
    return await api.patch(f"{path}/ephemeralcontainers", body, STRATEGIC_PATCH, **parameters)


async def test_a_resize_changes_resources_and_the_generation(api: RawApi, path: str):
    before = (await api.get(path)).body
    got = await resized(api, path, {"requests": {"cpu": "150m"}}, fieldManager="resizer")
    assert got.status == 200, got.body
    assert got.body["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "150m", "memory": "64Mi"}
    assert got.body["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert got.body["status"] == before["status"]
    entry = next(item for item in got.body["metadata"]["managedFields"] if item["manager"] == "resizer")
    assert entry["subresource"] == "resize"
    assert entry["fieldsV1"] == {
        "f:spec": {"f:containers": {'k:{"name":"main"}': {"f:resources": {"f:requests": {"f:cpu": {}}}}}}
    }
    assert (await api.get(f"{path}/resize")).body == got.body


async def test_a_resize_takes_nothing_but_resources(api: RawApi, path: str):
    body = (await api.get(path)).body
    body["metadata"]["labels"] = {"a": "b"}
    body["spec"]["activeDeadlineSeconds"] = 60
    body["spec"]["containers"][0] |= {"image": "registry.example/app:2"}
    body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "150m"
    got = await api.put(f"{path}/resize", body)
    assert got.status == 200, got.body
    assert "activeDeadlineSeconds" not in got.body["spec"]
    assert "labels" not in got.body["metadata"]
    assert got.body["spec"]["containers"][0]["image"] == "registry.example/app:1"
    assert got.body["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "150m"
    assert (await api.put(f"{path}/resize", body)).status == 409


@pytest.mark.parametrize(
    ("resources", "wanted"),
    [
        ({"limits": {"memory": None}}, {(FORBIDDEN, "spec.containers[0].resources.limits")}),
        (
            {"requests": {"memory": None}, "limits": {"memory": None}},
            {(FORBIDDEN, f"spec.containers[0].resources.{part}") for part in ("requests", "limits")},
        ),
        ({"requests": {"cpu": "200m", "memory": "128Mi"}}, {(INVALID, "spec")}),
        ({"requests": {"cpu": "300m"}}, {(INVALID, "spec.containers[0].resources.requests")}),
        ({"requests": {"ephemeral-storage": "1Gi"}}, {(FORBIDDEN, "spec")}),
    ],
)
async def test_a_resize_may_not(api: RawApi, path: str, resources: Manifest, wanted: set[Any]):
    assert causes(await resized(api, path, resources)) == wanted


async def test_a_node_that_does_not_report_resources_does_not_resize(api: RawApi, path: str):
    running = {"name": "main", "image": "x", "imageID": "x", "ready": True, "restartCount": 0}
    state = {"running": {"startedAt": "2024-01-01T00:00:00Z"}}
    status = {"phase": "Running", "containerStatuses": [running | {"state": state}]}
    assert (await api.patch(f"{path}/status", {"status": status})).status == 200
    assert causes(await resized(api, path, {"requests": {"cpu": "150m"}})) == {(FORBIDDEN, "spec")}


async def test_the_resources_of_a_pod_change_by_resize_only(api: RawApi, path: str):
    body = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "150m"}}}]}}
    assert causes(await api.patch(path, body, STRATEGIC_PATCH)) == {(FORBIDDEN, "spec")}


async def test_ephemeral_containers_are_added_with_defaults(api: RawApi, path: str):
    before = (await api.get(path)).body
    got = await debugged(api, path, DEBUGGER, fieldManager="kubectl-debug")
    assert got.status == 200, got.body
    assert got.body["spec"]["ephemeralContainers"] == [
        DEBUGGER
        | {
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
        }
    ]
    assert got.body["metadata"]["generation"] == before["metadata"]["generation"] + 1
    entry = next(item for item in got.body["metadata"]["managedFields"] if item["manager"] == "kubectl-debug")
    assert entry["subresource"] == "ephemeralcontainers"
    assert list(entry["fieldsV1"]["f:spec"]) == ["f:ephemeralContainers"]
    second = await debugged(api, path, DEBUGGER | {"name": "second"})
    assert [item["name"] for item in second.body["spec"]["ephemeralContainers"]] == ["second", "debugger"]


async def test_a_write_of_ephemeral_containers_takes_nothing_else(api: RawApi, path: str):
    body = (await api.get(path)).body
    body["metadata"]["annotations"] = {"a": "b"}
    body["spec"]["containers"][0]["image"] = "registry.example/app:2"
    body["spec"]["ephemeralContainers"] = [DEBUGGER]
    got = await api.put(f"{path}/ephemeralcontainers", body)
    assert got.status == 200, got.body
    assert "annotations" not in got.body["metadata"]
    assert got.body["spec"]["containers"][0]["image"] == "registry.example/app:1"


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"name": "main"}, {(DUPLICATE, "spec.ephemeralContainers[0].name")}),
        ({"image": ""}, {(REQUIRED, "spec.ephemeralContainers[0].image")}),
        ({"targetContainerName": "other"}, {(NOT_FOUND, "spec.ephemeralContainers[0].targetContainerName")}),
        ({"ports": [{"containerPort": 80}]}, {(FORBIDDEN, "spec.ephemeralContainers[0].ports")}),
        ({"resources": AMOUNTS}, {(FORBIDDEN, "spec.ephemeralContainers[0].resources")}),
        (
            {"livenessProbe": {"httpGet": {"port": 80}}},
            {(FORBIDDEN, "spec.ephemeralContainers[0].livenessProbe")},
        ),
    ],
)
async def test_an_ephemeral_container_may_not(api: RawApi, path: str, change: Manifest, wanted: set[Any]):
    assert causes(await debugged(api, path, DEBUGGER | change)) == wanted


async def test_an_ephemeral_container_stays_as_it_is(api: RawApi, path: str):
    assert (await debugged(api, path, DEBUGGER)).status == 200
    refused = {(FORBIDDEN, "spec.ephemeralContainers")}
    assert causes(await debugged(api, path, DEBUGGER | {"image": "registry.example/tools:2"})) == refused
    body = (await api.get(path)).body
    del body["spec"]["ephemeralContainers"]
    assert causes(await api.put(f"{path}/ephemeralcontainers", body)) == refused


async def test_ephemeral_containers_come_later_only(api: RawApi, pods: Space):
    spec = {"containers": [container()], "ephemeralContainers": [DEBUGGER]}
    refused = await api.post(pods.core("pods"), pod("new", spec=spec))
    assert causes(refused) == {(FORBIDDEN, "spec.ephemeralContainers")}
    template = {"ephemeralContainers": [DEBUGGER]}
    refused = await api.post(pods.at("apps/v1", "deployments"), deployment("new", pod_spec=template))
    assert causes(refused) == {(FORBIDDEN, "spec.template.spec.ephemeralContainers")}
