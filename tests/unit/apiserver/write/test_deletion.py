"""The end of objects: finalizers, grace, owners, namespaces and definitions, on an API without a network."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from steersman.apiserver.controllers.control_plane import ControlPlaneLoop, bootstrap
from steersman.apiserver.http.dispatch import dispatch
from steersman.apiserver.http.requests import Query, Request, negotiate, route
from steersman.apiserver.http.state import Api
from steersman.apiserver.status_errors import StatusError
from steersman.testing.clock import VirtualClock, settle

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"


class Cluster:
    """An API server without its network."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.api = Api(clock=self.clock)
        ControlPlaneLoop(self.api, ca_pem="PEM")
        bootstrap(self.api)

    async def send(self, method: str, path: str, body: Any = None, *, media: str = "application/json") -> Any:
        """Send a request, and let the control plane do what follows from it. The answer is the decoded body."""
        path, _, query = path.partition("?")
        request = Request(
            method,
            route(self.api.registry, path),
            Query(query),
            headers={"User-Agent": "test/1", "Content-Type": media},
            body=b"" if body is None else msgspec.json.encode(body),
            media=negotiate(""),
            user="me",
            warnings=[],
        )
        try:
            reply = dispatch(self.api, request)
        finally:
            await settle()
        return msgspec.json.decode(reply.body)  # type: ignore[union-attr]  # no test here sends a watch

    async def exists(self, path: str) -> bool:
        found = route(self.api.registry, path)
        key = "/".join(filter(None, (found.namespace, found.name)))
        return key in self.api.table(found.info).records

    async def config_map(self, name: str, owner: Any = None, *, blocks: bool = False, **metadata: Any) -> Any:
        if owner is not None:
            metadata["ownerReferences"] = [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "name": owner["metadata"]["name"],
                    "uid": owner["metadata"]["uid"],
                    "blockOwnerDeletion": blocks,
                }
            ]
        return await self.send("POST", MAPS, {"metadata": {"name": name, **metadata}})


@pytest.fixture
async def cluster() -> Cluster:
    cluster = Cluster()
    await settle()
    return cluster


async def test_an_object_with_a_finalizer_stays_until_the_last_one_is_taken_off(cluster: Cluster):
    await cluster.config_map("a", finalizers=["x.io/1", "x.io/2"])
    marked = await cluster.send("DELETE", f"{MAPS}/a")
    assert marked["metadata"]["deletionTimestamp"]
    await cluster.send("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": ["x.io/2"]}}, media=MERGE)
    assert await cluster.exists(f"{MAPS}/a")
    await cluster.send("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": None}}, media=MERGE)
    assert not await cluster.exists(f"{MAPS}/a")


async def test_a_dry_run_deletes_nothing(cluster: Cluster):
    await cluster.config_map("a", finalizers=["x.io/1"])
    revision = cluster.api.store.revision
    shown = await cluster.send("DELETE", f"{MAPS}/a?dryRun=All")
    assert shown["metadata"]["deletionTimestamp"]
    assert cluster.api.store.revision == revision


# Grace


async def pod(cluster: Cluster, *, node: str = "n1") -> None:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 30}
    await cluster.send("POST", PODS, {"metadata": {"name": "p"}, "spec": {**spec, "nodeName": node} if node else spec})


async def test_a_running_pod_gets_its_grace_and_a_second_delete_can_only_shorten_it(cluster: Cluster):
    await pod(cluster)
    first = await cluster.send("DELETE", f"{PODS}/p")
    assert (first["metadata"]["deletionGracePeriodSeconds"], first["metadata"]["generation"]) == (30, 2)
    longer = await cluster.send("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 60})
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 30
    shorter = await cluster.send("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 10})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 10
    assert shorter["metadata"]["deletionTimestamp"] < first["metadata"]["deletionTimestamp"]
    await cluster.send("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert not await cluster.exists(f"{PODS}/p")


async def test_a_pod_on_no_node_needs_no_grace(cluster: Cluster):
    await pod(cluster, node="")
    await cluster.send("DELETE", f"{PODS}/p")
    assert not await cluster.exists(f"{PODS}/p")


# Owners


async def test_what_a_deleted_object_owned_goes_with_it_to_the_last_generation(cluster: Cluster):
    root = await cluster.config_map("root")
    child = await cluster.config_map("child", root)
    await cluster.config_map("grandchild", child)
    await cluster.send("DELETE", f"{MAPS}/root")
    assert not await cluster.exists(f"{MAPS}/child")
    assert not await cluster.exists(f"{MAPS}/grandchild")


async def test_an_object_with_another_living_owner_only_forgets_the_dead_one(cluster: Cluster):
    first, second = await cluster.config_map("first"), await cluster.config_map("second")
    child = await cluster.config_map("child", first)
    owners = child["metadata"]["ownerReferences"]
    other = {**owners[0], "name": "second", "uid": second["metadata"]["uid"]}
    await cluster.send("PATCH", f"{MAPS}/child", {"metadata": {"ownerReferences": [*owners, other]}}, media=MERGE)
    await cluster.send("DELETE", f"{MAPS}/first")
    left = await cluster.send("GET", f"{MAPS}/child")
    assert [owner["name"] for owner in left["metadata"]["ownerReferences"]] == ["second"]


async def test_an_object_born_with_an_owner_that_does_not_exist_is_collected(cluster: Cluster):
    await cluster.config_map("a", {"metadata": {"name": "ghost", "uid": "no-such-uid"}})
    assert not await cluster.exists(f"{MAPS}/a")


async def test_an_owner_in_another_namespace_is_not_an_owner(cluster: Cluster):
    await cluster.send("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
    owner = await cluster.send("POST", "/api/v1/namespaces/other/configmaps", {"metadata": {"name": "owner"}})
    await cluster.config_map("a", owner)
    assert not await cluster.exists(f"{MAPS}/a")


async def test_orphans_stay_and_forget_their_owner(cluster: Cluster):
    root = await cluster.config_map("root")
    await cluster.config_map("child", root)
    await cluster.send("DELETE", f"{MAPS}/root?propagationPolicy=Orphan")
    assert not await cluster.exists(f"{MAPS}/root")
    child = await cluster.send("GET", f"{MAPS}/child")
    assert "ownerReferences" not in child["metadata"]


async def test_foreground_deletion_waits_for_dependents_that_block(cluster: Cluster):
    root = await cluster.config_map("root")
    await cluster.config_map("child", root, blocks=True, finalizers=["x.io/1"])
    marked = await cluster.send("DELETE", f"{MAPS}/root?propagationPolicy=Foreground")
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert (await cluster.send("GET", f"{MAPS}/child"))["metadata"]["deletionTimestamp"]
    assert await cluster.exists(f"{MAPS}/root")
    await cluster.send("PATCH", f"{MAPS}/child", {"metadata": {"finalizers": None}}, media=MERGE)
    assert not await cluster.exists(f"{MAPS}/root")


async def test_foreground_deletion_does_not_wait_for_dependents_that_do_not_block(cluster: Cluster):
    root = await cluster.config_map("root")
    await cluster.config_map("child", root, finalizers=["x.io/1"])
    await cluster.send("DELETE", f"{MAPS}/root?propagationPolicy=Foreground")
    assert not await cluster.exists(f"{MAPS}/root")
    assert await cluster.exists(f"{MAPS}/child")


# Namespaces


async def test_a_new_namespace_is_furnished_and_what_is_taken_comes_back(cluster: Cluster):
    await cluster.send("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    account = "/api/v1/namespaces/shop/serviceaccounts/default"
    assert await cluster.exists(account)
    trust = await cluster.send("GET", "/api/v1/namespaces/shop/configmaps/kube-root-ca.crt")
    assert trust["data"] == {"ca.crt": "PEM"}
    await cluster.send("DELETE", account)
    assert await cluster.exists(account)


async def test_a_terminating_namespace_takes_nothing_new_is_emptied_and_goes(cluster: Cluster):
    await cluster.send("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    held = {"metadata": {"name": "held", "finalizers": ["x.io/1"]}}
    await cluster.send("POST", "/api/v1/namespaces/shop/configmaps", held)
    await cluster.send("POST", "/api/v1/namespaces/shop/secrets", {"metadata": {"name": "free"}})
    await cluster.send("DELETE", "/api/v1/namespaces/shop")
    with pytest.raises(StatusError, match="because it is being terminated"):
        await cluster.send("POST", "/api/v1/namespaces/shop/secrets", {"metadata": {"name": "late"}})
    assert not await cluster.exists("/api/v1/namespaces/shop/secrets/free")
    status = (await cluster.send("GET", "/api/v1/namespaces/shop"))["status"]
    conditions = {item["type"]: item for item in status["conditions"]}
    assert status["phase"] == "Terminating"
    assert "x.io/1 in 1 resource instances" in conditions["NamespaceFinalizersRemaining"]["message"]
    path = "/api/v1/namespaces/shop/configmaps/held"
    await cluster.send("PATCH", path, {"metadata": {"finalizers": None}}, media=MERGE)
    assert not await cluster.exists("/api/v1/namespaces/shop")


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_the_first_namespaces_cannot_be_deleted(cluster: Cluster, name: str):
    with pytest.raises(StatusError, match="this namespace may not be deleted"):
        await cluster.send("DELETE", f"/api/v1/namespaces/{name}")


# CRDController


def definition(**properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "toys.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"plural": "toys", "kind": "Toy"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TOYS = "/apis/example.org/v1/namespaces/default/toys"


async def test_a_definition_is_served_at_once_and_goes_with_its_last_object(cluster: Cluster):
    await cluster.send("POST", CRDS, definition(size={"type": "integer"}))
    toy = {"apiVersion": "example.org/v1", "kind": "Toy", "metadata": {"name": "t", "finalizers": ["x.io/1"]}}
    await cluster.send("POST", TOYS, toy)
    await cluster.send("DELETE", f"{CRDS}/toys.example.org")
    assert await cluster.exists(f"{CRDS}/toys.example.org")
    with pytest.raises(StatusError, match="create not allowed while custom resource definition is terminating"):
        await cluster.send("POST", TOYS, toy)
    assert (await cluster.send("GET", f"{TOYS}/t"))["metadata"]["deletionTimestamp"]
    await cluster.send("PATCH", f"{TOYS}/t", {"metadata": {"finalizers": None}}, media=MERGE)
    assert not await cluster.exists(f"{CRDS}/toys.example.org")
    assert cluster.api.registry.lookup("example.org", "v1", "toys") is None


async def test_stored_objects_are_read_through_the_definition_as_it_is_now(cluster: Cluster):
    await cluster.send("POST", CRDS, definition(size={"type": "integer"}))
    toy = {"apiVersion": "example.org/v1", "kind": "Toy", "metadata": {"name": "t"}, "spec": {"size": 3}}
    made = await cluster.send("POST", TOYS, toy)
    versions = definition(colour={"type": "string", "default": "red"})["spec"]["versions"]
    await cluster.send("PATCH", f"{CRDS}/toys.example.org", {"spec": {"versions": versions}}, media=MERGE)
    read = await cluster.send("GET", f"{TOYS}/t")
    assert read["spec"] == {"colour": "red"}
    assert read["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
