"""Replacing objects and optimistic locking."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING

from tests.support.manifests import configmap, deployment, secret, service

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi
    from tests.support.manifests import Space


async def test_replace_writes_the_whole_object(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", {"k": "1", "l": "2"}, labels={"x": "y"}))
    put = await api.put(ns.core("configmaps/a"), configmap("a", {"k": "9"}, resourceVersion=made.revision))
    assert put.status == 200
    assert put.body["data"] == {"k": "9"}
    assert "labels" not in put.body["metadata"]
    assert int(put.revision) > int(made.revision)
    assert put.body["metadata"]["uid"] == made.body["metadata"]["uid"]


async def test_an_old_resource_version_conflicts(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", {"k": "1"}))
    await api.put(ns.core("configmaps/a"), configmap("a", {"k": "2"}))
    late = await api.put(ns.core("configmaps/a"), configmap("a", {"k": "3"}, resourceVersion=made.revision))
    assert late.status == 409
    assert late.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": (
            'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
            "please apply your changes to the latest version and try again"
        ),
        "reason": "Conflict",
        "details": {"name": "a", "kind": "configmaps"},
        "code": 409,
    }


async def test_a_replace_without_resource_version_always_wins(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a", {"k": "1"}))
    await api.put(ns.core("configmaps/a"), configmap("a", {"k": "2"}))
    assert (await api.put(ns.core("configmaps/a"), configmap("a", {"k": "3"}))).body["data"] == {"k": "3"}


async def test_a_replace_that_changes_nothing_keeps_the_resource_version(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", {"k": "1"}))
    put = await api.put(ns.core("configmaps/a"), made.body)
    assert (put.status, put.body) == (200, made.body)


async def test_of_many_writers_with_one_resource_version_exactly_one_wins(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", {"k": "1"}))
    puts = [
        api.put(ns.core("configmaps/a"), configmap("a", {"k": f"w{number}"}, resourceVersion=made.revision))
        for number in range(8)
    ]
    statuses = sorted(answer.status for answer in await asyncio.gather(*puts))
    assert statuses == [200] + [409] * 7


async def test_replacing_what_is_not_there_is_not_found(api: RawApi, ns: Space):
    put = await api.put(ns.core("configmaps/a"), configmap("a"))
    assert (put.status, put.body["message"]) == (404, 'configmaps "a" not found')


async def test_the_name_in_the_body_must_be_the_name_in_the_path(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a"))
    put = await api.put(ns.core("configmaps/a"), configmap("b"))
    assert put.status == 400
    assert put.body["message"] == "the name of the object (b) does not match the name on the URL (a)"


async def test_another_uid_is_a_conflict(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a"))
    other = "11111111-1111-1111-1111-111111111111"
    put = await api.put(ns.core("configmaps/a"), configmap("a", uid=other))
    assert (put.status, put.body["reason"]) == (409, "Conflict")
    assert put.body["message"].startswith('Operation cannot be fulfilled on configmaps "a": ')
    assert other in put.body["message"]


async def test_creation_time_cannot_be_changed(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a"))
    body = copy.deepcopy(made.body)
    body["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z"
    put = await api.put(ns.core("configmaps/a"), body)
    assert put.status == 200
    assert put.body["metadata"]["creationTimestamp"] == made.body["metadata"]["creationTimestamp"]


async def test_dry_run_replace_answers_and_stores_nothing(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", {"k": "1"}))
    put = await api.put(ns.core("configmaps/a"), configmap("a", {"k": "2"}), dryRun="All")
    assert put.body["data"] == {"k": "2"}
    assert put.revision == made.revision
    assert (await api.get(ns.core("configmaps/a"))).body == made.body


async def test_an_immutable_configmap_keeps_its_data(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a", {"k": "1"}) | {"immutable": True})
    put = await api.put(ns.core("configmaps/a"), configmap("a", {"k": "2"}) | {"immutable": True})
    assert put.status == 422
    assert (
        put.body["message"] == 'ConfigMap "a" is invalid: data: Forbidden: field is immutable when `immutable` is set'
    )
    unset = await api.put(ns.core("configmaps/a"), configmap("a", {"k": "1"}))
    assert unset.causes == [
        ("FieldValueForbidden", "immutable", "Forbidden: field is immutable when `immutable` is set")
    ]


async def test_the_type_of_a_secret_cannot_change(api: RawApi, ns: Space):
    await api.post(ns.core("secrets"), secret("a"))
    put = await api.put(ns.core("secrets/a"), secret("a") | {"type": "example.org/other"})
    assert put.status == 422
    assert put.causes == [("FieldValueInvalid", "type", 'Invalid value: "example.org/other": field is immutable')]


async def test_the_selector_of_a_deployment_cannot_change(api: RawApi, ns: Space):
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    changed = deployment("web")
    changed["spec"]["selector"]["matchLabels"] = changed["spec"]["template"]["metadata"]["labels"] = {"app": "new"}
    put = await api.put(ns.at("apps/v1", "deployments/web"), changed)
    assert put.status == 422
    assert put.causes == [
        ("FieldValueInvalid", "spec.selector", 'Invalid value: {"matchLabels":{"app":"new"}}: field is immutable')
    ]


async def test_a_service_replaced_without_its_ip_keeps_it(api: RawApi, ns: Space):
    made = await api.post(ns.core("services"), service("web"))
    put = await api.put(ns.core("services/web"), service("web", spec={"ports": [{"port": 81}]}))
    assert put.body["spec"]["clusterIP"] == made.body["spec"]["clusterIP"]


async def test_a_service_cannot_move_to_another_ip(api: RawApi, ns: Space):
    await api.post(ns.core("services"), service("web"))
    put = await api.put(ns.core("services/web"), service("web", spec={"clusterIP": "10.0.200.200"}))
    assert put.status == 422
    assert [cause[1] for cause in put.causes] == ["spec.clusterIPs[0]"]


async def test_a_replace_drops_the_status(api: RawApi, ns: Space):
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    put = await api.put(ns.at("apps/v1", "deployments/web"), deployment("web") | {"status": {"replicas": 2}})
    assert put.body["status"] == {}


async def test_the_manager_of_a_replace_owns_what_it_changed(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a", {"k": "1", "l": "1"}), fieldManager="first")
    put = await api.put(ns.core("configmaps/a"), configmap("a", {"k": "1", "l": "2"}), fieldManager="second")
    owners = {entry["manager"]: entry["fieldsV1"] for entry in put.body["metadata"]["managedFields"]}
    assert owners == {"first": {"f:data": {".": {}, "f:k": {}}}, "second": {"f:data": {"f:l": {}}}}


async def test_emptied_managed_fields_start_again(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a", {"k": "1"}), fieldManager="first")
    put = await api.put(ns.core("configmaps/a"), configmap("a", {"k": "1"}, managedFields=[{}]), fieldManager="second")
    assert "managedFields" not in put.body["metadata"]
