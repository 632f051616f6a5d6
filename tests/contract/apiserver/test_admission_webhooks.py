"""Admission webhooks: when they are asked, what they are asked, and what their answers do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from steersman.testing import eventually
from tests.support.manifests import configmap, deployment, pod, service, widget
from tests.support.webhooks import REGISTRATION, WebhookStub, allowed, denied, patch, rule

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi
    from tests.support.manifests import Manifest, Space

LABEL = {"op": "add", "path": "/metadata/labels", "value": {"from": "webhook"}}


def data(key: str, value: str) -> Manifest:
    return {"op": "add", "path": f"/data/{key}", "value": value}


@pytest.fixture
async def stub():
    async with WebhookStub() as stub:
        yield stub


# What an answer does


async def test_a_mutating_webhook_changes_what_is_stored(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/label", lambda _: patch(LABEL))
    await stub.configure(api, ns, mutating=[stub.webhook("/label", rule("configmaps"))])
    made = await api.post(ns.core("configmaps"), configmap("a"))
    assert (made.status, made.body["metadata"]["labels"]) == (201, {"from": "webhook"})
    assert (await api.get(ns.core("configmaps/a"))).body["metadata"]["labels"] == {"from": "webhook"}


async def test_fields_that_a_webhook_sets_have_no_field_manager(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/label", lambda _: patch(LABEL))
    await stub.configure(api, ns, mutating=[stub.webhook("/label", rule("configmaps"))])
    made = await api.post(ns.core("configmaps"), configmap("a", {"key": "value"}))
    [entry] = made.body["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:data": {".": {}, "f:key": {}}}


async def test_what_a_webhook_adds_gets_its_defaults(api: RawApi, pods: Space, stub: WebhookStub):
    container = {"name": "sidecar", "image": "registry.example/sidecar:1"}
    stub.on("/inject", lambda _: patch({"op": "add", "path": "/spec/containers/-", "value": container}))
    await stub.configure(api, pods, mutating=[stub.webhook("/inject", rule("pods", operations=["CREATE"]))])
    made = await api.post(pods.core("pods"), pod("a"))
    assert made.status == 201, made.body
    injected = made.body["spec"]["containers"][1]
    assert (injected["name"], injected["imagePullPolicy"]) == ("sidecar", "IfNotPresent")


async def test_built_in_plugins_see_what_a_webhook_added(api: RawApi, pods: Space, stub: WebhookStub):
    container = {"name": "sidecar", "image": "registry.example/sidecar:1"}
    stub.on("/inject", lambda _: patch({"op": "add", "path": "/spec/containers/-", "value": container}))
    await stub.configure(api, pods, mutating=[stub.webhook("/inject", rule("pods", operations=["CREATE"]))])
    made = await api.post(pods.core("pods"), pod("a", spec={"automountServiceAccountToken": True}))
    mounts = [[mount["name"] for mount in item["volumeMounts"]] for item in made.body["spec"]["containers"]]
    assert mounts[0] == mounts[1]


@pytest.mark.parametrize(
    ("answer", "code", "reason", "message"),
    [
        (denied(), 400, None, "denied the request without explanation"),
        (denied("too large"), 400, None, "denied the request: too large"),
        (denied(reason="Forbidden"), 400, "Forbidden", "denied the request: Forbidden"),
        (denied("no", code=403, reason="Forbidden"), 403, "Forbidden", "denied the request: no"),
        (denied("no", code=200), 400, None, "denied the request: no"),
        (denied("busy", code=429, reason="TooManyRequests"), 429, "TooManyRequests", "denied the request: busy"),
    ],
)
async def test_a_refusal_has_the_code_reason_and_message_of_the_webhook(
    api: RawApi, ns: Space, stub: WebhookStub, answer, code, reason, message
):
    stub.on("/deny", lambda _: answer)
    await stub.configure(api, ns, validating=[stub.webhook("/deny", rule("configmaps"))])
    got = await api.post(ns.core("configmaps"), configmap("a"))
    assert (got.status, got.body["code"], got.body.get("reason")) == (code, code, reason)
    assert got.body["message"] == f'admission webhook "deny.stub.example.org" {message}'
    assert (await api.get(ns.core("configmaps/a"))).status == 404


async def test_the_causes_of_a_refusal_reach_the_client(api: RawApi, ns: Space, stub: WebhookStub):
    causes = [{"reason": "FieldValueInvalid", "message": "no", "field": "data.a"}]
    stub.on("/deny", lambda _: denied("no", code=422, reason="Invalid", details={"causes": causes}))
    await stub.configure(api, ns, validating=[stub.webhook("/deny", rule("configmaps"))])
    got = await api.post(ns.core("configmaps"), configmap("a"))
    assert (got.status, got.causes) == (422, [("FieldValueInvalid", "data.a", "no")])


@pytest.mark.parametrize("answer", [allowed, denied], ids=["allowed", "denied"])
async def test_warnings_reach_the_client_whatever_the_answer(api: RawApi, ns: Space, stub: WebhookStub, answer):
    stub.on("/warn", lambda _: answer() | {"warnings": ["first", "second"]})
    stub.on("/change", lambda _: patch(LABEL, warnings=["changed"]))
    await stub.configure(
        api,
        ns,
        mutating=[stub.webhook("/change", rule("configmaps"))],
        validating=[stub.webhook("/warn", rule("configmaps"))],
    )
    got = await api.post(ns.core("configmaps"), configmap("a"))
    assert got.warnings == ("changed", "first", "second")


# Which requests are asked about


async def test_webhooks_are_asked_about_every_way_to_write(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/see", lambda _: allowed())
    await stub.configure(api, ns, validating=[stub.webhook("/see", rule("configmaps"))])
    path = ns.core("configmaps/a")
    made = await api.post(ns.core("configmaps"), configmap("a", {"a": "1"}))
    await api.put(path, made.body | {"data": {"a": "2"}})
    await api.patch(path, {"data": {"a": "3"}})
    await api.apply(path, configmap("a", {"b": "1"}))
    await api.apply(ns.core("configmaps/b"), configmap("b"))
    await api.delete(path)
    await api.delete(ns.core("configmaps"), labelSelector="never=there")
    seen = [(request["operation"], request["name"], request["options"]["kind"]) for request in stub.asked("/see")]
    assert seen == [
        ("CREATE", "a", "CreateOptions"),
        ("UPDATE", "a", "UpdateOptions"),
        ("UPDATE", "a", "UpdateOptions"),
        ("UPDATE", "a", "UpdateOptions"),
        ("CREATE", "b", "CreateOptions"),
        ("DELETE", "a", "DeleteOptions"),
    ]


async def test_a_read_is_not_reviewed(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/see", lambda _: allowed())
    await stub.configure(api, ns, validating=[stub.webhook("/see", rule("*/*", group="*", version="*"))])
    await api.get(ns.core("configmaps"))
    await api.get(ns.core("configmaps/missing"))
    assert stub.asked("/see") == []


async def test_a_review_of_a_create_has_the_object_as_it_was_sent(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/mutate", lambda _: allowed())
    stub.on("/validate", lambda _: allowed())
    await stub.configure(
        api,
        ns,
        mutating=[stub.webhook("/mutate", rule("configmaps"))],
        validating=[stub.webhook("/validate", rule("configmaps"))],
    )
    made = await api.post(ns.core("configmaps"), configmap(None, {"a": "1"}, generateName="made-"))
    [first], [last] = stub.asked("/mutate"), stub.asked("/validate")
    assert (first.get("name", ""), last["name"]) == ("", made.name)
    assert first["kind"] == first["requestKind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert first["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert (first["namespace"], first["oldObject"], first["dryRun"]) == (ns, None, False)
    assert "system:masters" in first["userInfo"]["groups"]
    assert first["object"]["data"] == {"a": "1"}
    assert "uid" not in first["object"]["metadata"]
    assert last["object"]["metadata"]["uid"] == made.body["metadata"]["uid"]
    assert last["object"]["metadata"]["creationTimestamp"] == made.body["metadata"]["creationTimestamp"]


async def test_a_review_of_an_update_has_both_states(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/see", lambda _: allowed())
    await stub.configure(api, ns, validating=[stub.webhook("/see", rule("configmaps", operations=["UPDATE"]))])
    await api.post(ns.core("configmaps"), configmap("a", {"a": "1"}))
    await api.patch(ns.core("configmaps/a"), {"data": {"a": "2"}}, fieldManager="me")
    [request] = stub.asked("/see")
    assert (request["oldObject"]["data"], request["object"]["data"]) == ({"a": "1"}, {"a": "2"})
    assert request["object"]["kind"] == request["oldObject"]["kind"] == "ConfigMap"
    assert request["options"] == {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"}


async def test_a_review_of_a_delete_has_the_old_state_only(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/see", lambda _: allowed())
    await stub.configure(api, ns, validating=[stub.webhook("/see", rule("configmaps", operations=["DELETE"]))])
    await api.post(ns.core("configmaps"), configmap("a", {"a": "1"}))
    await api.delete(ns.core("configmaps/a"), {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
    [request] = stub.asked("/see")
    assert (request["object"], request["oldObject"]["data"]) == (None, {"a": "1"})
    assert request["options"]["propagationPolicy"] == "Background"
    assert request["options"]["gracePeriodSeconds"] == 0


async def test_a_refused_delete_deletes_nothing(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/keep", lambda _: denied("kept", code=403))
    await stub.configure(api, ns, validating=[stub.webhook("/keep", rule("configmaps", operations=["DELETE"]))])
    await api.post(ns.core("configmaps"), configmap("a"))
    assert (await api.delete(ns.core("configmaps/a"))).status == 403
    assert (await api.get(ns.core("configmaps/a"))).status == 200


async def test_the_delete_of_a_collection_is_reviewed_object_by_object(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/keep", lambda request: allowed() if request["oldObject"]["metadata"]["name"] != "b" else denied("kept"))
    await stub.configure(api, ns, validating=[stub.webhook("/keep", rule("secrets", operations=["DELETE"]))])
    for name in ("a", "b", "c"):
        await api.post(ns.core("secrets"), {"metadata": {"name": name}})
    got = await api.delete(ns.core("secrets"), fieldSelector="type=Opaque")
    assert (got.status, got.body["message"]) == (
        400,
        'admission webhook "keep.stub.example.org" denied the request: kept',
    )
    assert "a" not in (left := (await api.get(ns.core("secrets"))).names)
    assert "b" in left


async def test_the_answer_to_a_reviewed_delete_of_a_collection_is_everything_deleted(
    api: RawApi, ns: Space, stub: WebhookStub
):
    stub.on("/see", lambda _: allowed())
    seen = stub.webhook("/see", rule("secrets", operations=["DELETE"]))
    await stub.configure(api, ns, mutating=[seen], validating=[seen])
    for name in ("a", "b", "c"):
        await api.post(ns.core("secrets"), {"metadata": {"name": name}})
    assert (await api.delete(ns.core("secrets"), fieldSelector="type=Opaque")).names == ["a", "b", "c"]
    assert len(stub.asked("/see")) == 6


async def test_a_mutating_webhook_cannot_change_what_is_deleted(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/label", lambda _: patch(LABEL))
    await stub.configure(api, ns, mutating=[stub.webhook("/label", rule("configmaps", operations=["DELETE"]))])
    await api.post(ns.core("configmaps"), configmap("a"))
    got = await api.delete(ns.core("configmaps/a"))
    assert (got.status, got.body["reason"]) == (500, "InternalError")


async def test_subresources_are_reviewed_under_their_own_name(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/see", lambda _: allowed())
    everything = rule("deployments", "deployments/*", group="apps")
    await stub.configure(api, ns, validating=[stub.webhook("/see", everything)])
    path = ns.at("apps/v1", "deployments/web")
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    await api.patch(path + "/status", {"status": {"replicas": 1}})
    await api.patch(path + "/scale", {"spec": {"replicas": 3}})
    seen = [(request.get("subResource", ""), request["kind"]["kind"]) for request in stub.asked("/see")]
    assert seen == [("", "Deployment"), ("status", "Deployment"), ("scale", "Scale")]
    scale = stub.asked("/see")[-1]
    assert (scale["oldObject"]["spec"], scale["object"]["spec"]) == ({"replicas": 1}, {"replicas": 3})
    assert scale["resource"] == {"group": "apps", "version": "v1", "resource": "deployments"}


async def test_a_rule_for_a_resource_is_not_for_its_subresources(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/deny", lambda _: denied())
    only = rule("deployments", group="apps", operations=["UPDATE"])
    await stub.configure(api, ns, validating=[stub.webhook("/deny", only)])
    path = ns.at("apps/v1", "deployments/web")
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    assert (await api.patch(path + "/scale", {"spec": {"replicas": 3}})).status == 200
    assert (await api.patch(path, {"spec": {"replicas": 4}})).status == 400


async def test_a_webhook_can_change_a_scale(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/cap", lambda _: patch({"op": "replace", "path": "/spec/replicas", "value": 2}))
    await stub.configure(api, ns, mutating=[stub.webhook("/cap", rule("deployments/scale", group="apps"))])
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    got = await api.patch(ns.at("apps/v1", "deployments/web/scale"), {"spec": {"replicas": 9}})
    assert (got.status, got.body["spec"]) == (200, {"replicas": 2})
    assert (await api.get(ns.at("apps/v1", "deployments/web"))).body["spec"]["replicas"] == 2


@pytest.mark.parametrize("value", ["many", {"a": 1}, [1]])
async def test_a_patch_that_spoils_a_scale_is_a_failure_of_the_webhook(
    api: RawApi, ns: Space, stub: WebhookStub, value: object
):
    stub.on("/spoil", lambda _: patch({"op": "add", "path": "/spec/replicas", "value": value}))
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    await stub.configure(api, ns, mutating=[stub.webhook("/spoil", rule("deployments/scale", group="apps"))])
    got = await api.patch(ns.at("apps/v1", "deployments/web/scale"), {"spec": {"replicas": 2}})
    assert (got.status, got.body["reason"]) == (500, "InternalError")
    assert got.body["details"]["causes"]


async def test_a_patch_that_spoils_the_options_of_an_eviction_is_a_failure_of_the_webhook(
    api: RawApi, pods: Space, stub: WebhookStub
):
    spoiled = {"op": "add", "path": "/deleteOptions", "value": {"gracePeriodSeconds": "x"}}
    stub.on("/spoil", lambda _: patch(spoiled))
    await api.post(pods.core("pods"), pod("a"))
    await stub.configure(api, pods, mutating=[stub.webhook("/spoil", rule("pods/eviction"))])
    got = await api.post(pods.core("pods/a/eviction"), {"metadata": {"name": "a"}})
    assert (got.status, got.body["reason"]) == (500, "InternalError")
    assert got.body["details"]["causes"]


async def test_an_eviction_is_a_create_of_its_own_kind(api: RawApi, pods: Space, stub: WebhookStub):
    stub.on("/deny", lambda _: denied("stay", code=429))
    rules = [rule("pods/eviction"), rule("pods", operations=["DELETE"])]
    await stub.configure(api, pods, validating=[stub.webhook("/deny", *rules)])
    await api.post(pods.core("pods"), pod("a"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    assert (await api.post(pods.core("pods/a/eviction"), eviction)).status == 429
    [request] = stub.asked("/deny")
    assert (request["operation"], request["name"], request["subResource"]) == ("CREATE", "a", "eviction")
    assert request["kind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
    stub.on("/deny", lambda request: allowed() if request.get("subResource") else denied("not deleted"))
    assert (await api.post(pods.core("pods/a/eviction"), eviction)).status == 201


async def test_webhooks_are_not_asked_about_webhook_configurations(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/deny", lambda _: denied())
    name = f"exempt-{ns}"
    everything = rule("*", group="admissionregistration.k8s.io", version="*")
    await stub.configure(api, ns, validating=[stub.webhook("/deny", everything)])
    made = await api.post(f"{REGISTRATION}/mutatingwebhookconfigurations", {"metadata": {"name": name}})
    assert made.status == 201
    assert (await api.delete(f"{REGISTRATION}/mutatingwebhookconfigurations/{name}")).status == 200


async def test_an_object_selector_matches_the_old_or_the_new_state(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/see", lambda _: allowed())
    selector = {"matchLabels": {"watched": "yes"}}
    await stub.configure(api, ns, validating=[stub.webhook("/see", rule("configmaps"), objectSelector=selector)])
    path = ns.core("configmaps/a")
    await api.post(ns.core("configmaps"), configmap("a"))
    await api.patch(path, {"metadata": {"labels": {"watched": "yes"}}})
    await api.patch(path, {"metadata": {"labels": {"watched": "no"}}})
    await api.patch(path, {"metadata": {"labels": {"watched": None}}})
    labels = [request["object"]["metadata"]["labels"] for request in stub.asked("/see")]
    assert labels == [{"watched": "yes"}, {"watched": "no"}]


async def test_a_namespace_selector_leaves_other_namespaces_alone(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/deny", lambda _: denied())
    elsewhere = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [ns]}]}
    await stub.configure(
        api,
        ns,
        validating=[
            stub.webhook("/deny", rule("configmaps"), namespaceSelector=elsewhere | {"matchLabels": {"no": ns}})
        ],
    )
    assert (await api.post(ns.core("configmaps"), configmap("a"))).status == 201


async def test_a_webhook_of_one_version_is_asked_about_the_others(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/equivalent", lambda _: allowed())
    stub.on("/exact", lambda _: allowed())
    old = rule("horizontalpodautoscalers", group="autoscaling", version="v1")
    await stub.configure(
        api,
        ns,
        validating=[
            stub.webhook("/equivalent", old, matchPolicy="Equivalent"),
            stub.webhook("/exact", old, matchPolicy="Exact"),
        ],
    )
    reference = {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}
    target = {"type": "Utilization", "averageUtilization": 70}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    spec = {"scaleTargetRef": reference, "maxReplicas": 3, "metrics": metrics}
    made = await api.post(
        ns.at("autoscaling/v2", "horizontalpodautoscalers"), {"metadata": {"name": "a"}, "spec": spec}
    )
    assert made.status == 201, made.body
    [request] = stub.asked("/equivalent")
    assert (request["kind"]["version"], request["requestKind"]["version"]) == ("v1", "v2")
    assert (request["object"]["apiVersion"], request["object"]["spec"]["targetCPUUtilizationPercentage"]) == (
        "autoscaling/v1",
        70,
    )
    assert stub.asked("/exact") == []


async def test_a_put_that_creates_shows_the_version_it_named(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/seen", lambda _: allowed())
    await stub.configure(api, ns, validating=[stub.webhook("/seen", rule("leases", group="coordination.k8s.io"))])
    path = ns.at("coordination.k8s.io/v1", "leases/a")
    made = await api.put(path, {"metadata": {"name": "a", "resourceVersion": "1"}, "spec": {}})
    [request] = stub.asked("/seen")
    assert (made.status, request["operation"]) == (201, "CREATE")
    assert request["object"]["metadata"]["resourceVersion"] == "1"
    assert made.revision != "1"


# Order


async def test_mutating_webhooks_see_what_those_before_them_changed(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/one", lambda _: patch({"op": "add", "path": "/data", "value": {"one": "1"}}))
    stub.on("/two", lambda _: patch(data("two", "2")))
    stub.on("/check", lambda _: allowed())
    await stub.configure(
        api,
        ns,
        mutating=[stub.webhook("/one", rule("configmaps")), stub.webhook("/two", rule("configmaps"))],
        validating=[stub.webhook("/check", rule("configmaps"))],
    )
    made = await api.post(ns.core("configmaps"), configmap("a"))
    assert made.body["data"] == {"one": "1", "two": "2"}
    assert [stub.asked(path)[0]["object"].get("data") for path in ("/one", "/two", "/check")] == [
        None,
        {"one": "1"},
        {"one": "1", "two": "2"},
    ]


@pytest.mark.parametrize(("policy", "times"), [("Never", 1), ("IfNeeded", 2)])
async def test_a_webhook_is_asked_again_when_a_later_one_changed_the_object(
    api: RawApi, ns: Space, stub: WebhookStub, policy, times
):
    stub.on("/early", lambda _: allowed())
    stub.on("/late", lambda _: patch({"op": "add", "path": "/data", "value": {"late": "1"}}))
    await stub.configure(
        api,
        ns,
        mutating=[
            stub.webhook("/early", rule("configmaps"), reinvocationPolicy=policy),
            stub.webhook("/late", rule("configmaps"), reinvocationPolicy="IfNeeded"),
        ],
    )
    assert (await api.post(ns.core("configmaps"), configmap("a"))).status == 201
    assert (len(stub.asked("/early")), len(stub.asked("/late"))) == (times, 1)


async def test_a_webhook_is_not_asked_again_when_nothing_changed(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/early", lambda _: patch(LABEL))
    stub.on("/late", lambda _: patch(LABEL))
    again = {"reinvocationPolicy": "IfNeeded"}
    await stub.configure(
        api,
        ns,
        mutating=[
            stub.webhook("/early", rule("configmaps"), **again),
            stub.webhook("/late", rule("configmaps"), **again),
        ],
    )
    assert (await api.post(ns.core("configmaps"), configmap("a"))).status == 201
    assert (len(stub.asked("/early")), len(stub.asked("/late"))) == (1, 1)


async def test_validating_webhooks_are_asked_at_the_same_time(api: RawApi, ns: Space, stub: WebhookStub):
    both = asyncio.Barrier(2)

    async def together(_: Manifest) -> Manifest:
        await both.wait()
        return allowed()

    stub.on("/one", together)
    stub.on("/two", together)
    await stub.configure(
        api,
        ns,
        validating=[stub.webhook("/one", rule("secrets")), stub.webhook("/two", rule("secrets"))],
    )
    assert (await api.post(ns.core("secrets"), {"metadata": {"name": "a"}})).status == 201


async def test_validating_webhooks_are_asked_after_the_schema_was_checked(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/deny", lambda _: denied())
    await stub.configure(api, ns, validating=[stub.webhook("/deny", rule("configmaps"))])
    got = await api.post(ns.core("configmaps"), configmap("a", {"not/a/key": ""}))
    assert (got.status, got.body["reason"], stub.asked("/deny")) == (422, "Invalid", [])


async def test_what_a_webhook_makes_of_an_object_is_checked(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/spoil", lambda _: patch({"op": "add", "path": "/data", "value": {"not/a/key": ""}}))
    await stub.configure(api, ns, mutating=[stub.webhook("/spoil", rule("configmaps"))])
    got = await api.post(ns.core("configmaps"), configmap("a"))
    assert (got.status, got.body["reason"]) == (422, "Invalid")


async def test_an_object_that_changes_while_a_webhook_thinks_is_not_overwritten(
    api: RawApi, ns: Space, stub: WebhookStub
):
    path = ns.core("configmaps/a")

    async def meddle(request: Manifest) -> Manifest:
        if request["object"]["data"].get("slow") and not request["oldObject"]["data"].get("quick"):
            await api.patch(path, {"data": {"quick": "1"}})
        return allowed()

    stub.on("/meddle", meddle)
    await stub.configure(api, ns, validating=[stub.webhook("/meddle", rule("configmaps", operations=["UPDATE"]))])
    await api.post(ns.core("configmaps"), configmap("a", {"first": "1"}))
    got = await api.patch(path, {"data": {"slow": "1"}})
    assert (got.status, got.body["data"]) == (200, {"first": "1", "quick": "1", "slow": "1"})


async def test_a_replace_of_an_object_that_changes_meanwhile_is_a_conflict(api: RawApi, ns: Space, stub: WebhookStub):
    path = ns.core("configmaps/a")

    async def meddle(request: Manifest) -> Manifest:
        if request["object"].get("data"):
            await api.patch(path, {"metadata": {"labels": {"quick": "1"}}})
        return allowed()

    stub.on("/meddle", meddle)
    await stub.configure(api, ns, mutating=[stub.webhook("/meddle", rule("configmaps", operations=["UPDATE"]))])
    made = await api.post(ns.core("configmaps"), configmap("a"))
    got = await api.put(path, made.body | {"data": {"slow": "1"}})
    assert (got.status, got.body["reason"]) == (409, "Conflict")


# Failures


def broken(_: Manifest) -> web.Response:
    return web.Response(status=500, text="the reason is in here")


FAILURES: dict[str, Any] = {
    "an error": broken,
    "no review": lambda _: web.json_response({"kind": "Status"}),
    "not JSON": lambda _: web.Response(text="hello"),
    "another uid": lambda _: allowed(uid="another"),
    "a patch without its type": lambda _: {key: value for key, value in patch(LABEL).items() if key != "patchType"},
    "a type without its patch": lambda _: allowed(patchType="JSONPatch"),
    "another patch type": lambda _: patch(LABEL) | {"patchType": "MergePatch"},
    "a patch that is not JSON": lambda _: allowed(patchType="JSONPatch", patch="aGVsbG8="),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize(("policy", "status"), [("Fail", 500), ("Ignore", 201)])
async def test_the_failure_policy_decides_about_failed_calls(
    api: RawApi, ns: Space, stub: WebhookStub, failure, policy, status
):
    stub.on("/fail", failure)
    await stub.configure(api, ns, mutating=[stub.webhook("/fail", rule("configmaps"), failurePolicy=policy)])
    got = await api.post(ns.core("configmaps"), configmap("a"))
    assert got.status == status, got.body
    if policy == "Fail":
        assert got.body["reason"] == "InternalError"
        assert got.body["message"].startswith(
            'Internal error occurred: failed calling webhook "fail.stub.example.org": '
        )


async def test_what_a_failed_webhook_answered_is_in_the_error(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/fail", broken)
    await stub.configure(api, ns, validating=[stub.webhook("/fail", rule("configmaps"))])
    assert "the reason is in here" in (await api.post(ns.core("configmaps"), configmap("a"))).body["message"]


async def test_a_patch_that_does_not_fit_is_an_error_whatever_the_policy(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/fail", lambda _: patch({"op": "remove", "path": "/data/missing"}))
    await stub.configure(api, ns, mutating=[stub.webhook("/fail", rule("configmaps"), failurePolicy="Ignore")])
    got = await api.post(ns.core("configmaps"), configmap("a"))
    assert (got.status, got.body["reason"]) == (500, "InternalError")


@pytest.mark.parametrize("field", ["patch", "patchType"])
async def test_a_validating_webhook_may_not_patch(api: RawApi, ns: Space, stub: WebhookStub, field):
    stub.on("/patch", lambda _: allowed(**{field: patch(LABEL)[field]}))
    await stub.configure(api, ns, validating=[stub.webhook("/patch", rule("configmaps"))])
    assert (await api.post(ns.core("configmaps"), configmap("a"))).status == 500


@pytest.mark.parametrize(("policy", "status"), [("Fail", 500), ("Ignore", 201)])
async def test_a_webhook_that_does_not_answer_in_time_has_failed(
    api: RawApi, ns: Space, stub: WebhookStub, policy, status
):
    given_up = asyncio.Event()

    async def too_late(_: Manifest) -> Manifest:
        await given_up.wait()
        return denied()

    stub.on("/slow", too_late)
    slow = stub.webhook("/slow", rule("secrets"), timeoutSeconds=1, failurePolicy=policy)
    await stub.configure(api, ns, validating=[slow])
    assert (await api.post(ns.core("secrets"), {"metadata": {"name": "a"}})).status == status
    given_up.set()


async def test_a_webhook_may_be_trusted_by_its_own_certificate(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/label", lambda _: patch(LABEL))
    webhook = stub.webhook("/label", rule("secrets"))
    webhook["clientConfig"]["caBundle"] = stub.certificate
    await stub.configure(api, ns, mutating=[webhook])
    made = await api.post(ns.core("secrets"), {"metadata": {"name": "a"}})
    assert (made.status, made.body["metadata"].get("labels")) == (201, {"from": "webhook"})


@pytest.mark.parametrize("path", ["//a//b", "/a/b/", "/a/./b", "/a/x/../b"])
async def test_the_path_of_a_webhook_is_cleaned(api: RawApi, ns: Space, stub: WebhookStub, path: str):
    stub.on("/a/b", lambda _: patch(LABEL))
    webhook = stub.webhook("/a/b", rule("secrets"))
    webhook["clientConfig"]["url"] = f"https://127.0.0.1:{stub.port}{path}"
    await stub.configure(api, ns, mutating=[webhook])
    made = await api.post(ns.core("secrets"), {"metadata": {"name": "a"}})
    assert (made.status, made.body["metadata"].get("labels")) == (201, {"from": "webhook"})


async def test_a_certificate_of_another_authority_is_not_trusted(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/see", lambda _: allowed())
    untrusting = stub.webhook("/see", rule("secrets"))
    del untrusting["clientConfig"]["caBundle"]
    await stub.configure(api, ns, validating=[untrusting])
    got = await api.post(ns.core("secrets"), {"metadata": {"name": "a"}})
    assert (got.status, "certificate" in got.body["message"], stub.asked("/see")) == (500, True, [])


async def test_a_dry_run_is_reviewed_and_stores_nothing(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/label", lambda _: patch(LABEL))
    on_dry_run = stub.webhook("/label", rule("configmaps"), sideEffects="NoneOnDryRun")
    await stub.configure(api, ns, mutating=[on_dry_run])
    got = await api.post(ns.core("configmaps"), configmap("a"), dryRun="All")
    assert got.body["metadata"]["labels"] == {"from": "webhook"}
    [request] = stub.asked("/label")
    assert (request["dryRun"], request["options"]["dryRun"]) == (True, ["All"])
    assert (await api.get(ns.core("configmaps/a"))).status == 404


# Services and custom resources


async def test_a_webhook_is_found_through_a_service_with_an_external_name(api: RawApi, ns: Space):
    async with WebhookStub(f"hooks.{ns}.svc") as stub:
        stub.on("/label", lambda _: patch(LABEL))
        await api.post(
            ns.core("services"), service("hooks", spec={"type": "ExternalName", "externalName": "localhost"})
        )
        at = {"service": {"namespace": ns, "name": "hooks", "port": stub.port, "path": "/label"}}
        hook = stub.webhook("/label", rule("secrets"), clientConfig={**at, "caBundle": stub.ca_bundle})
        probe = await api.post(
            f"{REGISTRATION}/mutatingwebhookconfigurations", {"metadata": {"name": f"service-{ns}"}, "webhooks": [hook]}
        )
        assert probe.status == 201, probe.body

        async def labelled() -> bool:
            got = await api.post(ns.core("secrets"), {"metadata": {"name": "a"}}, dryRun="All")
            return got.status == 201 and got.body["metadata"].get("labels") == {"from": "webhook"}

        try:
            await eventually(labelled)
        finally:
            await api.delete(f"{REGISTRATION}/mutatingwebhookconfigurations/service-{ns}")


async def test_what_a_webhook_adds_to_a_custom_resource_is_defaulted(
    api: RawApi, ns: Space, widgets: str, stub: WebhookStub
):
    port = {"op": "add", "path": "/spec", "value": {"ports": [{"port": 80}]}}
    stub.on("/port", lambda _: patch(port))
    await stub.configure(api, ns, mutating=[stub.webhook("/port", rule("widgets", group=widgets))])
    made = await api.post(ns.at(f"{widgets}/v1", "widgets"), widget(widgets, "a"))
    assert made.status == 201, made.body
    assert made.body["spec"]["ports"] == [{"port": 80, "protocol": "TCP"}]
    assert stub.asked("/port")[0]["object"]["apiVersion"] == f"{widgets}/v1"


async def test_an_unknown_field_from_a_webhook_is_not_stored(api: RawApi, ns: Space, widgets: str, stub: WebhookStub):
    stub.on("/add", lambda _: patch({"op": "add", "path": "/spec", "value": {"unknown": 1}}))
    await stub.configure(api, ns, mutating=[stub.webhook("/add", rule("widgets", group=widgets))])
    made = await api.post(ns.at(f"{widgets}/v1", "widgets"), widget(widgets, "a"))
    assert made.status == 201, made.body
    assert "unknown" not in (await api.get(ns.at(f"{widgets}/v1", "widgets/a"))).body["spec"]


# Configurations


@pytest.mark.parametrize(
    ("change", "reason", "field"),
    [
        ({"name": ""}, "FieldValueRequired", "name"),
        ({"name": "short.name"}, "FieldValueInvalid", "name"),
        ({"sideEffects": None}, "FieldValueRequired", "sideEffects"),
        ({"sideEffects": "Unknown"}, "FieldValueNotSupported", "sideEffects"),
        ({"sideEffects": "Some"}, "FieldValueNotSupported", "sideEffects"),
        ({"failurePolicy": "Maybe"}, "FieldValueNotSupported", "failurePolicy"),
        ({"matchPolicy": "Maybe"}, "FieldValueNotSupported", "matchPolicy"),
        ({"timeoutSeconds": 31}, "FieldValueInvalid", "timeoutSeconds"),
        ({"admissionReviewVersions": []}, "FieldValueRequired", "admissionReviewVersions"),
        ({"admissionReviewVersions": ["v9"]}, "FieldValueInvalid", "admissionReviewVersions"),
        ({"clientConfig": {}}, "FieldValueRequired", "clientConfig"),
        ({"clientConfig": {"url": "http://a"}}, "FieldValueInvalid", "clientConfig.url"),
        ({"clientConfig": {"url": "https://a?b=c"}}, "FieldValueInvalid", "clientConfig.url"),
        (
            {"clientConfig": {"service": {"name": "a", "namespace": ""}}},
            "FieldValueRequired",
            "clientConfig.service.name",
        ),
        ({"rules": [{}]}, "FieldValueRequired", "rules[0].operations"),
        ({"rules": [rule("*/*", "pods")]}, "FieldValueInvalid", "rules[0].resources"),
        ({"rules": [rule("pods", operations=["READ"])]}, "FieldValueNotSupported", "rules[0].operations[0]"),
        ({"rules": [rule("pods", scope="World")]}, "FieldValueNotSupported", "rules[0].scope"),
        ({"namespaceSelector": {"matchLabels": {"a": "b c"}}}, "FieldValueInvalid", "namespaceSelector.matchLabels"),
    ],
)
async def test_a_configuration_is_checked(api: RawApi, stub: WebhookStub, change, reason, field):
    webhook = {key: value for key, value in (stub.webhook("/a", rule("pods")) | change).items() if value is not None}
    body = {"metadata": {"name": "invalid"}, "webhooks": [webhook]}
    got = await api.post(f"{REGISTRATION}/validatingwebhookconfigurations", body)
    assert got.status == 422, got.body
    assert (reason, f"webhooks[0].{field}") in [(found[0], found[1]) for found in got.causes]


@pytest.mark.parametrize("rules", [None, []])
async def test_a_webhook_without_rules_is_accepted_and_never_called(api: RawApi, ns: Space, stub: WebhookStub, rules):
    stub.on("/deny", lambda _: denied("no"))
    webhook = stub.webhook("/deny", rule("configmaps")) | {"rules": rules}
    await stub.configure(api, ns, validating=[{key: value for key, value in webhook.items() if value is not None}])
    assert (await api.post(ns.core("configmaps"), configmap("a"))).status == 201
    assert stub.asked("/deny") == []


async def test_names_of_webhooks_are_unique_in_a_configuration(api: RawApi, stub: WebhookStub):
    webhook = stub.webhook("/a", rule("pods"))
    body = {"metadata": {"name": "invalid"}, "webhooks": [webhook, webhook]}
    got = await api.post(f"{REGISTRATION}/mutatingwebhookconfigurations", body)
    assert (got.status, got.causes[0][:2]) == (422, ("FieldValueDuplicate", "webhooks[1].name"))
