from __future__ import annotations

import pytest

from steersman.kube.api.errors import BadResponse
from steersman.kube.api.gvk import Kind
from steersman.kube.client.discovery import APIResource
from tests.support.wire_server import reply

VERBS = ["get", "list", "watch"]
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

DEPLOYMENT = APIResource(
    kind=Kind(group="apps", version="v1", kind="Deployment", plural="deployments"),
    verbs=frozenset(VERBS),
    singular="deployment",
    short_names=("deploy",),
    categories=("all",),
    subresources=("scale", "status"),
)
POD = APIResource(kind=Kind(version="v1", kind="Pod", plural="pods"), verbs=frozenset(VERBS), singular="pod")
OLD = APIResource(
    kind=Kind(group="apps", version="v1beta1", kind="Old", plural="olds", namespaced=False),
    verbs=frozenset(),
    preferred=False,
)


def aggregated(*groups):
    return reply(200, {"kind": "APIGroupDiscoveryList", "items": groups}, kind=AGGREGATED)


def resource(name, kind, scope="Namespaced", verbs=VERBS, **more):
    return {"resource": name, "responseKind": {"kind": kind}, "scope": scope, "verbs": verbs, **more}


async def new(received, writer):
    if received.path == "/api":
        pods = resource("pods", "Pod", singularResource="pod")
        return aggregated({"metadata": {}, "versions": [{"version": "v1", "resources": [pods]}]})
    deployments = resource(
        "deployments",
        "Deployment",
        singularResource="deployment",
        shortNames=["deploy"],
        categories=["all"],
        subresources=[{"subresource": "scale"}, {"subresource": "status"}],
    )
    old = resource("olds", "Old", "Cluster", [])
    versions = [{"version": "v1", "resources": [deployments]}, {"version": "v1beta1", "resources": [old]}]
    return aggregated({"metadata": {"name": "apps"}, "versions": versions})


async def old(received, writer):
    deployment = {"kind": "Deployment", "namespaced": True, "verbs": VERBS}
    answers = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/api/v1": {
            "resources": [{"name": "pods", "kind": "Pod", "namespaced": True, "verbs": VERBS, "singularName": "pod"}]
        },
        "/apis": {
            "groups": [
                {
                    "versions": [{"groupVersion": "apps/v1"}, {"groupVersion": "apps/v1beta1"}],
                    "preferredVersion": {"groupVersion": "apps/v1"},
                }
            ]
        },
        "/apis/apps/v1": {
            "resources": [
                {
                    **deployment,
                    "name": "deployments",
                    "singularName": "deployment",
                    "shortNames": ["deploy"],
                    "categories": ["all"],
                },
                {**deployment, "name": "deployments/scale", "kind": "Scale"},
                {**deployment, "name": "deployments/status"},
            ]
        },
        "/apis/apps/v1beta1": {"resources": [{"name": "olds", "kind": "Old", "namespaced": False}]},
    }
    return reply(200, answers[received.path])


@pytest.mark.parametrize("answer", [new, old])
async def test_both_kinds_of_discovery_tell_the_same(wire, client, answer):
    assert await client(await wire(answer)).api_resources() == [POD, DEPLOYMENT, OLD]


async def test_new_discovery_takes_two_requests(wire, client):
    server = await wire(new)
    await client(server).api_resources()
    assert len(server.requests) == 2
    assert server.requests[0].headers["accept"] == f"{AGGREGATED},application/json"


async def test_the_server_reports_its_version(wire, client):
    version = await client(await wire(reply(200, {"gitVersion": "v1.36.3", "major": "1"}))).server_version()
    assert (str(version), version.major) == ("v1.36.3", "1")


async def test_openapi_is_read_by_api_version(wire, client):
    server = await wire(reply(200, {"openapi": "3.0.0"}))
    link = client(server)
    assert await link.openapi("apps/v1") == {"openapi": "3.0.0"}
    await link.openapi("v1")
    await link.openapi()
    assert [r.path for r in server.requests] == ["/openapi/v3/apis/apps/v1", "/openapi/v3/api/v1", "/openapi/v3"]


async def test_what_is_not_a_discovery_document_is_refused(wire, client):
    with pytest.raises(BadResponse, match=r"not a discovery document: .*\(GET .*/version\)"):
        await client(await wire(reply(200, b"<html>", kind="text/html"))).server_version()
