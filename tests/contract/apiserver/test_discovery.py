"""What a server says about itself, and to whom."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from steersman.testing.raw_api import RawApi, ssl_context
from tests.support.manifests import configmap

if TYPE_CHECKING:
    from steersman.testing.raw_api import ApiServer
    from tests.support.manifests import Space

AGGREGATED = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"}


async def test_the_version_is_that_of_kubernetes_1_36(api: RawApi):
    got = await api.get("/version")
    assert (got.body["major"], got.body["minor"], got.body["gitVersion"]) == ("1", "36", "v1.36.3")


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_health_is_ok(api: RawApi, path: str):
    got = await api.get(path)
    assert (got.status, got.body, got.headers["Content-Type"]) == (200, "ok", "text/plain; charset=utf-8")


async def test_the_core_group_is_found_at_api(api: RawApi):
    got = await api.get("/api")
    assert (got.body["kind"], got.body["versions"]) == ("APIVersions", ["v1"])


async def test_groups_are_listed_with_their_preferred_version(api: RawApi):
    got = await api.get("/apis")
    assert got.body["kind"] == "APIGroupList"
    groups = {group["name"]: group["preferredVersion"]["groupVersion"] for group in got.body["groups"]}
    assert groups["apps"] == "apps/v1"
    assert groups["autoscaling"] == "autoscaling/v2"


async def test_one_group_is_described(api: RawApi):
    got = await api.get("/apis/apps")
    assert got.body == {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": "apps",
        "versions": [{"groupVersion": "apps/v1", "version": "v1"}],
        "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"},
    }


async def test_resources_say_names_verbs_and_categories(api: RawApi):
    got = await api.get("/apis/apps/v1")
    assert (got.body["kind"], got.body["groupVersion"]) == ("APIResourceList", "apps/v1")
    resources = {item["name"]: item for item in got.body["resources"]}
    found = {key: value for key, value in resources["deployments"].items() if key != "storageVersionHash"}
    assert found == {
        "name": "deployments",
        "singularName": "deployment",
        "namespaced": True,
        "kind": "Deployment",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["deploy"],
        "categories": ["all"],
    }
    assert resources["deployments/scale"] == {
        "name": "deployments/scale",
        "singularName": "",
        "namespaced": True,
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
        "verbs": ["get", "patch", "update"],
    }
    assert resources["deployments/status"]["verbs"] == ["get", "patch", "update"]


async def test_a_custom_resource_is_discovered(api: RawApi, widgets: str):
    async def listed() -> dict[str, Any] | None:
        body = (await api.get(f"/apis/{widgets}/v1")).body
        return {item["name"]: item for item in body["resources"]} if isinstance(body, dict) else None

    resources = await listed()
    assert resources is not None
    assert resources["widgets"]["shortNames"] == ["wd"]
    assert resources["widgets"]["categories"] == ["contract"]
    assert {"widgets", "widgets/status", "widgets/scale"} == set(resources)


def described(answer: Any, group: str) -> dict[str, Any]:
    (found,) = (item for item in answer.body["items"] if item["metadata"].get("name", "") == group)
    resources: dict[str, Any] = {item["resource"]: item for item in found["versions"][0]["resources"]}
    return resources


async def test_aggregated_discovery_describes_all_groups_at_once(api: RawApi):
    got = await api.get("/apis", headers=AGGREGATED)
    assert got.headers["Content-Type"] == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    assert (got.body["kind"], got.body["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    deployments = described(got, "apps")["deployments"]
    assert deployments["responseKind"] == {"group": "", "version": "", "kind": "Deployment"}
    assert (deployments["scope"], deployments["shortNames"]) == ("Namespaced", ["deploy"])
    assert {item["subresource"] for item in deployments["subresources"]} == {"scale", "status"}


async def test_aggregated_discovery_of_the_core_group(api: RawApi):
    pods = described(await api.get("/api", headers=AGGREGATED), "")["pods"]
    assert {"status", "eviction", "binding"} <= {item["subresource"] for item in pods["subresources"]}


async def test_aggregated_discovery_knows_custom_resources(api: RawApi, widgets: str):
    async with asyncio.timeout(90):
        while True:
            got = await api.get("/apis", headers=AGGREGATED)
            if any(item["metadata"]["name"] == widgets for item in got.body["items"]):
                break
    assert described(got, widgets)["widgets"]["singularResource"] == "widget"


def document(answer: Any) -> Any:
    return msgspec.json.decode(answer.body) if isinstance(answer.body, str) else answer.body


async def test_openapi_is_indexed_by_group_with_a_hash(api: RawApi):
    index = document(await api.get("/openapi/v3"))
    url = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
    assert url.startswith("/openapi/v3/apis/apps/v1?hash=")
    got = document(await api.get(url))
    assert got["openapi"].startswith("3.")
    schema = got["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"]
    assert schema["x-kubernetes-group-version-kind"] == [{"group": "apps", "version": "v1", "kind": "Deployment"}]
    assert "/apis/apps/v1/namespaces/{namespace}/deployments/{name}" in got["paths"]


async def test_openapi_describes_custom_resources(api: RawApi, widgets: str):
    key = f"apis/{widgets}/v1"
    async with asyncio.timeout(90):
        while key not in (index := document(await api.get("/openapi/v3")))["paths"]:
            pass
    got = document(await api.get(index["paths"][key]["serverRelativeURL"]))
    (name,) = (name for name in got["components"]["schemas"] if name.endswith(".Widget"))
    schema = got["components"]["schemas"][name]
    assert name == ".".join([*reversed(widgets.split(".")), "v1", "Widget"])
    assert schema["properties"]["spec"]["properties"]["size"] == {
        "type": "integer",
        "minimum": 0,
        "maximum": 10,
        "default": 1,
    }
    assert schema["properties"]["metadata"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    ]


# Who asks


async def test_a_wrong_token_is_unauthorized(cluster: ApiServer):
    async with RawApi(cluster.url, token="wrong", ssl_context=ssl_context(cluster.ca_pem)) as stranger:
        got = await stranger.get("/api/v1/namespaces")
    assert got.status == 401
    assert got.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Unauthorized",
        "reason": "Unauthorized",
        "code": 401,
    }


async def test_without_a_token_nothing_can_be_read(cluster: ApiServer):
    async with RawApi(cluster.url, ssl_context=ssl_context(cluster.ca_pem)) as stranger:
        got = await stranger.get("/api/v1/pods")
    assert got.status == 403
    assert got.body["message"] == (
        'pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" at the cluster scope'
    )


async def test_without_a_token_nothing_can_be_written(cluster: ApiServer, ns: Space):
    async with RawApi(cluster.url, ssl_context=ssl_context(cluster.ca_pem)) as stranger:
        got = await stranger.post(ns.core("configmaps"), configmap("a"))
    assert got.status == 403
    assert got.body["message"] == (
        'configmaps is forbidden: User "system:anonymous" cannot create resource "configmaps" in API group "" '
        f'in the namespace "{ns}"'
    )


async def test_health_and_version_are_public(cluster: ApiServer):
    async with RawApi(cluster.url, ssl_context=ssl_context(cluster.ca_pem)) as stranger:
        for path in ("/healthz", "/readyz", "/livez", "/version"):
            assert (await stranger.get(path)).status == 200
