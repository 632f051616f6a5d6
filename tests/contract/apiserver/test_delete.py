"""Deleting objects: preconditions, finalizers, owners and namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from steersman.apiserver.discovery.protobuf import MEDIA_TYPE
from tests.support.manifests import configmap, deployment, owner, pod, widget

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi, RawResponse
    from tests.support.manifests import Space

HELD = ["example.org/hold"]


def gone(answer: RawResponse) -> bool:
    return answer.status == 404


async def test_delete_answers_with_the_uid_of_what_is_gone(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a"))
    deleted = await api.delete(ns.core("configmaps/a"))
    assert deleted.status == 200
    assert deleted.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": made.body["metadata"]["uid"]},
    }
    assert gone(await api.get(ns.core("configmaps/a")))


async def test_deleting_what_is_not_there_is_not_found(api: RawApi, ns: Space):
    deleted = await api.delete(ns.core("configmaps/a"))
    assert (deleted.status, deleted.body["message"]) == (404, 'configmaps "a" not found')


async def test_a_uid_precondition_protects_a_successor(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a"))
    deleted = await api.delete(ns.core("configmaps/a"), {"preconditions": {"uid": "other"}})
    assert deleted.status == 409
    assert deleted.body["message"] == (
        'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition (other) does not match the UID in '
        f"record ({made.body['metadata']['uid']}). The object might have been deleted and then recreated"
    )
    right = await api.delete(ns.core("configmaps/a"), {"preconditions": {"uid": made.body["metadata"]["uid"]}})
    assert right.status == 200


async def test_a_resource_version_precondition_protects_a_change(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", {"k": "1"}))
    changed = await api.patch(ns.core("configmaps/a"), {"data": {"k": "2"}})
    deleted = await api.delete(ns.core("configmaps/a"), {"preconditions": {"resourceVersion": made.revision}})
    assert deleted.status == 409
    assert deleted.body["message"] == (
        f'Operation cannot be fulfilled on ConfigMap "a": the ResourceVersion in the precondition ({made.revision}) '
        f"does not match the ResourceVersion in record ({changed.revision}). The object might have been modified"
    )


async def test_dry_run_deletes_nothing(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a"))
    assert (await api.delete(ns.core("configmaps/a"), dryRun="All")).status == 200
    assert (await api.get(ns.core("configmaps/a"))).status == 200


async def test_an_unknown_propagation_policy_is_refused(api: RawApi, ns: Space):
    deleted = await api.delete(ns.core("configmaps/a"), {"propagationPolicy": "Nope"})
    assert [cause[:2] for cause in deleted.causes] == [("FieldValueNotSupported", "propagationPolicy")]


def delete_options(api_version: str, kind: str = "DeleteOptions") -> bytes:
    """Empty options as protobuf: an envelope that holds nothing but the type."""

    def field(number: int, value: bytes) -> bytes:
        return bytes([number << 3 | 2, len(value)]) + value

    return b"k8s\x00" + field(1, field(1, api_version.encode()) + field(2, kind.encode())) + field(2, b"")


@pytest.mark.parametrize("version", ["v1", "apps/v1", "rbac.authorization.k8s.io/v1", "meta.k8s.io/v1", "x.example/v9"])
async def test_delete_options_may_be_of_any_group_version(api: RawApi, ns: Space, version: str):
    path = ns.at("apps/v1", "deployments")
    for body, media in (
        ({"apiVersion": version, "kind": "DeleteOptions"}, "application/json"),
        (delete_options(version), MEDIA_TYPE),
    ):
        await api.post(path, deployment("web"))
        deleted = await api.delete(f"{path}/web", body, headers={"Content-Type": media})
        assert (deleted.status, deleted.body["status"]) == (200, "Success")


async def test_delete_options_of_a_custom_group_may_be_protobuf(api: RawApi, ns: Space, widgets: str):
    path = ns.at(f"{widgets}/v1", "widgets")
    await api.post(path, widget(widgets, "w"))
    deleted = await api.delete(f"{path}/w", delete_options(f"{widgets}/v1"), headers={"Content-Type": MEDIA_TYPE})
    assert deleted.status == 200


async def test_protobuf_delete_options_without_a_type_are_delete_options(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a"))
    deleted = await api.delete(ns.core("configmaps/a"), delete_options("", ""), headers={"Content-Type": MEDIA_TYPE})
    assert deleted.status == 200


@pytest.mark.parametrize("kind", ["Pod", "CreateOptions", "ListOptions"])
async def test_the_body_of_a_delete_is_of_no_other_kind(api: RawApi, ns: Space, kind: str):
    for body, media in (
        ({"apiVersion": "v1", "kind": kind}, "application/json"),
        (delete_options("v1", kind), MEDIA_TYPE),
    ):
        refused = await api.delete(ns.core("configmaps/a"), body, headers={"Content-Type": media})
        assert (refused.status, refused.body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    "body",
    [
        "null",
        '{"kind": null}',
        '{"preconditions": null}',
        '{"preconditions": {"uid": null, "resourceVersion": null}}',
        '{"gracePeriodSeconds": null, "propagationPolicy": null, "orphanDependents": null, "dryRun": null}',
    ],
)
async def test_a_null_in_delete_options_is_an_option_left_out(api: RawApi, ns: Space, body: str):
    await api.post(ns.core("configmaps"), configmap("a"))
    assert (await api.delete(ns.core("configmaps/a"), body)).status == 200


@pytest.mark.parametrize("body", ['"x"', "[]", '{"gracePeriodSeconds": "1"}', '{"preconditions": []}', '{"kind": 5}'])
async def test_delete_options_of_the_wrong_shape_are_a_bad_request(api: RawApi, ns: Space, body: str):
    refused = await api.delete(ns.core("configmaps/a"), body)
    assert (refused.status, refused.body["reason"]) == (400, "BadRequest")


# Finalizers


async def test_a_finalizer_keeps_the_object_until_it_is_removed(api: RawApi, ns: Space):
    path = ns.core("configmaps/a")
    made = await api.post(ns.core("configmaps"), configmap("a", finalizers=HELD))
    deleted = await api.delete(path)
    assert deleted.status == 200
    meta = deleted.body["metadata"]
    assert (deleted.body["kind"], meta["deletionGracePeriodSeconds"]) == ("ConfigMap", 0)
    assert meta["deletionTimestamp"] >= meta["creationTimestamp"]
    assert int(deleted.revision) > int(made.revision)
    released = await api.patch(path, {"metadata": {"finalizers": None}})
    assert released.status == 200
    assert gone(await api.get(path))


async def test_deleting_twice_keeps_the_first_deletion_time_and_resource_version(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a", finalizers=HELD))
    first = await api.delete(ns.core("configmaps/a"))
    second = await api.delete(ns.core("configmaps/a"))
    assert (second.status, second.body) == (200, first.body)
    await api.patch(ns.core("configmaps/a"), {"metadata": {"finalizers": None}})


async def test_no_finalizer_can_be_added_while_deleting(api: RawApi, ns: Space):
    path = ns.core("configmaps/a")
    await api.post(ns.core("configmaps"), configmap("a", finalizers=HELD))
    await api.delete(path)
    got = await api.patch(path, {"metadata": {"finalizers": [*HELD, "example.org/new"]}})
    assert got.status == 422
    assert {cause[:2] for cause in got.causes} == {("FieldValueForbidden", "metadata.finalizers")}
    await api.patch(path, {"metadata": {"finalizers": None}})


async def test_a_deletion_cannot_be_taken_back(api: RawApi, ns: Space):
    path = ns.core("configmaps/a")
    await api.post(ns.core("configmaps"), configmap("a", finalizers=HELD))
    deleted = await api.delete(path)
    got = await api.patch(path, {"metadata": {"deletionTimestamp": None, "labels": {"still": "here"}}})
    assert got.body["metadata"]["deletionTimestamp"] == deleted.body["metadata"]["deletionTimestamp"]
    await api.patch(path, {"metadata": {"finalizers": None}})


async def test_a_deployment_being_deleted_has_a_new_generation(api: RawApi, ns: Space):
    path = ns.at("apps/v1", "deployments/web")
    await api.post(ns.at("apps/v1", "deployments"), deployment("web", finalizers=HELD))
    deleted = await api.delete(path)
    assert deleted.body["metadata"]["generation"] == 2
    await api.patch(path, {"metadata": {"finalizers": None}})


async def test_a_name_is_free_again_after_the_last_finalizer(api: RawApi, ns: Space):
    path = ns.core("configmaps/a")
    first = await api.post(ns.core("configmaps"), configmap("a", finalizers=HELD))
    await api.delete(path)
    refused = await api.post(ns.core("configmaps"), configmap("a"))
    assert (refused.status, refused.body["reason"]) == (409, "AlreadyExists")
    assert refused.body["message"] == 'object is being deleted: configmaps "a" already exists'
    await api.patch(path, {"metadata": {"finalizers": None}})
    second = await api.post(ns.core("configmaps"), configmap("a"))
    assert second.body["metadata"]["uid"] != first.body["metadata"]["uid"]


# Pods


async def test_a_pod_that_runs_nowhere_is_gone_at_once(api: RawApi, pods: Space):
    await api.post(pods.core("pods"), pod("a"))
    deleted = await api.delete(pods.core("pods/a"))
    assert (deleted.status, deleted.body["kind"]) == (200, "Pod")
    assert gone(await api.get(pods.core("pods/a")))


async def test_a_pod_on_a_node_is_given_its_grace_period(api: RawApi, pods: Space):
    await api.post(pods.core("pods"), pod("a", spec={"nodeName": "somewhere", "terminationGracePeriodSeconds": 20}))
    deleted = await api.delete(pods.core("pods/a"))
    assert deleted.body["metadata"]["deletionGracePeriodSeconds"] == 20
    assert (await api.get(pods.core("pods/a"))).status == 200
    forced = await api.delete(pods.core("pods/a"), {"gracePeriodSeconds": 0})
    assert forced.status == 200
    assert gone(await api.get(pods.core("pods/a")))


# Collections


async def test_a_collection_is_deleted_by_selector(api: RawApi, ns: Space):
    for name in ("a", "b", "c"):
        await api.post(ns.core("configmaps"), configmap(name, labels={"name": name, "test": "yes"}))
    deleted = await api.delete(ns.core("configmaps"), labelSelector="name in (a,b)")
    assert deleted.status == 200
    assert (deleted.body["kind"], deleted.names) == ("ConfigMapList", ["a", "b"])
    assert (await api.get(ns.core("configmaps"), labelSelector="test=yes")).names == ["c"]


async def test_dry_run_deletes_no_collection(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a", labels={"x": "y"}))
    await api.delete(ns.core("configmaps"), labelSelector="x=y", dryRun="All")
    assert (await api.get(ns.core("configmaps/a"))).status == 200


# Owners


async def test_what_an_object_owned_is_collected_after_it(api: RawApi, ns: Space):
    parent = await api.post(ns.core("configmaps"), configmap("parent"))
    child = await api.post(ns.core("configmaps"), configmap("child", ownerReferences=[owner(parent.body)]))
    await api.post(ns.core("configmaps"), configmap("grandchild", ownerReferences=[owner(child.body)]))
    await api.delete(ns.core("configmaps/parent"), {"propagationPolicy": "Background"})
    await api.eventually(ns.core("configmaps/child"), gone)
    await api.eventually(ns.core("configmaps/grandchild"), gone)


async def test_an_object_with_another_live_owner_stays(api: RawApi, ns: Space):
    one = await api.post(ns.core("configmaps"), configmap("one"))
    two = await api.post(ns.core("configmaps"), configmap("two"))
    await api.post(ns.core("configmaps"), configmap("child", ownerReferences=[owner(one.body), owner(two.body)]))
    await api.delete(ns.core("configmaps/one"))
    left = await api.eventually(
        ns.core("configmaps/child"), lambda answer: len(answer.body["metadata"]["ownerReferences"]) == 1
    )
    assert left.body["metadata"]["ownerReferences"] == [owner(two.body)]


async def test_orphans_lose_their_owner_and_stay(api: RawApi, ns: Space):
    parent = await api.post(ns.core("configmaps"), configmap("parent"))
    await api.post(ns.core("configmaps"), configmap("child", ownerReferences=[owner(parent.body)]))
    deleted = await api.delete(ns.core("configmaps/parent"), {"propagationPolicy": "Orphan"})
    assert deleted.body["metadata"]["finalizers"] == ["orphan"]
    await api.eventually(ns.core("configmaps/parent"), gone)
    child = await api.get(ns.core("configmaps/child"))
    assert (child.status, "ownerReferences" in child.body["metadata"]) == (200, False)


async def test_foreground_deletion_waits_for_what_blocks_it(api: RawApi, ns: Space):
    parent = await api.post(ns.core("configmaps"), configmap("parent"))
    await api.post(
        ns.core("configmaps"), configmap("child", ownerReferences=[owner(parent.body, block=True)], finalizers=HELD)
    )
    deleted = await api.delete(ns.core("configmaps/parent"), {"propagationPolicy": "Foreground"})
    assert deleted.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    await api.eventually(ns.core("configmaps/child"), lambda answer: "deletionTimestamp" in answer.body["metadata"])
    assert (await api.get(ns.core("configmaps/parent"))).status == 200
    await api.patch(ns.core("configmaps/child"), {"metadata": {"finalizers": None}})
    await api.eventually(ns.core("configmaps/parent"), gone)


async def test_a_child_of_an_owner_that_never_was_is_collected(api: RawApi, ns: Space):
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost", "uid": "11111111-1111-1111-1111-111111111111"}
    await api.post(ns.core("configmaps"), configmap("child", ownerReferences=[ghost]))
    await api.eventually(ns.core("configmaps/child"), gone)


async def test_a_dependent_that_may_not_be_deleted_keeps_no_other_from_being_collected(api: RawApi, ns: Space):
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    parent = await api.post(roles, {"metadata": {"name": f"{ns}-parent"}})
    owned = {"metadata": {"ownerReferences": [owner(parent.body)]}}
    await api.patch("/api/v1/namespaces/kube-public", owned)  # it may not be deleted
    names = [f"{ns}-{number}" for number in range(8)]
    for name in names:
        await api.post(roles, {"metadata": {"name": name} | owned["metadata"]})
    await api.delete(f"{roles}/{ns}-parent")
    for name in names:
        await api.eventually(f"{roles}/{name}", gone)
    released = await api.patch("/api/v1/namespaces/kube-public", {"metadata": {"ownerReferences": None}})
    assert (released.status, "deletionTimestamp" in released.body["metadata"]) == (200, False)


async def test_a_deployment_is_deleted_in_the_background_by_default(api: RawApi, ns: Space):
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    deleted = await api.delete(ns.at("apps/v1", "deployments/web"))
    assert (deleted.body["kind"], deleted.body["status"]) == ("Status", "Success")


# Namespaces


async def test_a_new_namespace_has_a_default_account_and_the_root_certificate(api: RawApi, ns: Space):
    await api.eventually(ns.core("serviceaccounts/default"), lambda answer: answer.status == 200)
    root = await api.eventually(ns.core("configmaps/kube-root-ca.crt"), lambda answer: answer.status == 200)
    assert root.body["data"]["ca.crt"].startswith("-----BEGIN CERTIFICATE-----")


async def test_a_namespace_is_labelled_with_its_name_and_active(api: RawApi, ns: Space):
    got = await api.get(f"/api/v1/namespaces/{ns}")
    assert got.body["metadata"]["labels"] == {"kubernetes.io/metadata.name": ns}
    assert got.body["spec"] == {"finalizers": ["kubernetes"]}
    assert got.body["status"] == {"phase": "Active"}


async def test_a_namespace_takes_its_content_with_it(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a"))
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    deleted = await api.delete(f"/api/v1/namespaces/{ns}")
    assert (deleted.status, deleted.body["status"]["phase"]) == (200, "Terminating")
    await api.eventually(f"/api/v1/namespaces/{ns}", gone)
    assert gone(await api.get(ns.core("configmaps/a")))
    assert (await api.get(ns.at("apps/v1", "deployments"))).names == []


async def test_a_terminating_namespace_takes_nothing_new(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a", finalizers=HELD))
    await api.delete(f"/api/v1/namespaces/{ns}")
    refused = await api.post(ns.core("configmaps"), configmap("b"))
    assert refused.status == 403
    assert refused.body["message"] == (
        f'configmaps "b" is forbidden: unable to create new content in namespace {ns} because it is being terminated'
    )
    assert refused.causes == [("NamespaceTerminating", "metadata.namespace", f"namespace {ns} is being terminated")]
    await api.eventually(ns.core("configmaps/a"), lambda answer: "deletionTimestamp" in answer.body["metadata"])
    await api.patch(ns.core("configmaps/a"), {"metadata": {"finalizers": None}})
    await api.eventually(f"/api/v1/namespaces/{ns}", gone)


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_the_first_namespaces_cannot_be_deleted(api: RawApi, name: str):
    deleted = await api.delete(f"/api/v1/namespaces/{name}")
    assert (deleted.status, deleted.body["reason"]) == (403, "Forbidden")
    assert deleted.body["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'
