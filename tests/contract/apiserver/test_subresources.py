"""Status, scale, eviction, tokens, bindings, and the reviews that are never stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from steersman.testing.raw_api import RawApi, ssl_context
from tests.support.manifests import deployment, pod, widget

if TYPE_CHECKING:
    from steersman.testing.raw_api import ApiServer
    from tests.support.manifests import Space


async def test_status_is_written_through_its_subresource_only(api: RawApi, ns: Space):
    path = ns.at("apps/v1", "deployments/web")
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    assert (await api.patch(path, {"status": {"replicas": 2}})).body["status"] == {}
    got = await api.patch(path + "/status", {"status": {"replicas": 2, "readyReplicas": 1}})
    assert got.body["status"] == {"replicas": 2, "readyReplicas": 1}


async def test_a_status_write_changes_neither_spec_nor_generation(api: RawApi, ns: Space):
    path = ns.at("apps/v1", "deployments/web")
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    got = await api.patch(path + "/status", {"spec": {"replicas": 9}, "status": {"observedGeneration": 1}})
    assert (got.body["spec"]["replicas"], got.body["metadata"]["generation"]) == (1, 1)


async def test_a_status_write_of_a_deployment_keeps_its_labels(api: RawApi, ns: Space):
    path = ns.at("apps/v1", "deployments/web")
    await api.post(ns.at("apps/v1", "deployments"), deployment("web", labels={"a": "b"}))
    got = await api.patch(path + "/status", {"metadata": {"labels": {"a": "c"}}, "status": {"replicas": 1}})
    assert got.body["metadata"]["labels"] == {"a": "b"}


async def test_a_status_replace_uses_optimistic_locking(api: RawApi, ns: Space):
    path = ns.at("apps/v1", "deployments/web")
    made = await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    body = made.body | {"status": {"replicas": 1}}
    assert (await api.put(path + "/status", body)).status == 200
    assert (await api.put(path + "/status", body)).status == 409


async def test_the_owner_of_a_status_write_is_marked_with_the_subresource(api: RawApi, ns: Space):
    path = ns.at("apps/v1", "deployments/web")
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    got = await api.patch(path + "/status", {"status": {"replicas": 2}}, fieldManager="controller")
    entry = next(item for item in got.body["metadata"]["managedFields"] if item["manager"] == "controller")
    assert (entry["subresource"], entry["fieldsV1"]) == ("status", {"f:status": {"f:replicas": {}}})


async def test_status_can_be_read_alone(api: RawApi, ns: Space):
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    got = await api.get(ns.at("apps/v1", "deployments/web/status"))
    assert (got.status, got.body["kind"]) == (200, "Deployment")


# Scale


async def test_scale_shows_replicas_and_selector(api: RawApi, ns: Space):
    made = await api.post(ns.at("apps/v1", "deployments"), deployment("web", spec={"replicas": 3}))
    got = await api.get(ns.at("apps/v1", "deployments/web/scale"))
    assert got.body == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": "web",
            "namespace": ns,
            "uid": made.body["metadata"]["uid"],
            "resourceVersion": made.revision,
            "creationTimestamp": made.body["metadata"]["creationTimestamp"],
        },
        "spec": {"replicas": 3},
        "status": {"replicas": 0, "selector": "app=web"},
    }


async def test_scale_is_replaced_and_patched(api: RawApi, ns: Space):
    path = ns.at("apps/v1", "deployments/web")
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    scale = (await api.get(path + "/scale")).body
    put = await api.put(path + "/scale", scale | {"spec": {"replicas": 4}})
    assert (put.status, put.body["spec"]) == (200, {"replicas": 4})
    patched = await api.patch(path + "/scale", {"spec": {"replicas": 6}})
    assert patched.body["spec"] == {"replicas": 6}
    live = await api.get(path)
    assert (live.body["spec"]["replicas"], live.body["metadata"]["generation"]) == (6, 3)


async def test_a_negative_scale_is_refused(api: RawApi, ns: Space):
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    got = await api.patch(ns.at("apps/v1", "deployments/web/scale"), {"spec": {"replicas": -1}})
    assert got.status == 422
    assert got.causes == [
        ("FieldValueInvalid", "spec.replicas", "Invalid value: -1: must be greater than or equal to 0")
    ]


async def test_an_old_scale_conflicts(api: RawApi, ns: Space):
    path = ns.at("apps/v1", "deployments/web")
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    scale = (await api.get(path + "/scale")).body
    await api.patch(path, {"spec": {"replicas": 2}})
    assert (await api.put(path + "/scale", scale | {"spec": {"replicas": 4}})).status == 409


async def test_a_custom_resource_scales_by_its_paths(api: RawApi, ns: Space, widgets: str):
    path = ns.at(f"{widgets}/v1", "widgets/w")
    await api.post(ns.at(f"{widgets}/v1", "widgets"), widget(widgets, spec={"replicas": 2}))
    await api.patch(path + "/status", {"status": {"replicas": 1, "selector": "a=b"}})
    got = await api.get(path + "/scale")
    assert (got.body["spec"], got.body["status"]) == ({"replicas": 2}, {"replicas": 1, "selector": "a=b"})
    assert (got.body["kind"], got.body["apiVersion"]) == ("Scale", "autoscaling/v1")
    scaled = await api.patch(path + "/scale", {"spec": {"replicas": 5}})
    assert scaled.body["spec"] == {"replicas": 5}
    assert (await api.get(path)).body["spec"]["replicas"] == 5


# Pods


def eviction(name: str, ns: Space) -> dict[str, object]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": ns}}


async def test_an_evicted_pod_is_deleted(api: RawApi, pods: Space):
    await api.post(pods.core("pods"), pod("a"))
    got = await api.post(pods.core("pods/a/eviction"), eviction("a", pods))
    assert (got.status, got.body["status"]) == (201, "Success")
    assert (await api.get(pods.core("pods/a"))).status == 404


@pytest.mark.parametrize("held", [[], ["example.org/hold"]])
async def test_an_eviction_of_the_expected_resource_version_is_done(api: RawApi, pods: Space, held: list[str]):
    made = await api.post(pods.core("pods"), pod("a", finalizers=held))
    options = {"preconditions": {"resourceVersion": made.revision, "uid": made.body["metadata"]["uid"]}}
    got = await api.post(pods.core("pods/a/eviction"), eviction("a", pods) | {"deleteOptions": options})
    assert got.status == 201, got.body
    left = await api.get(pods.core("pods/a"))
    assert (left.status == 404) is not bool(held)


@pytest.mark.parametrize("expected", [{"resourceVersion": "1"}, {"uid": "another"}])
async def test_an_eviction_of_another_resource_version_or_uid_leaves_the_pod_as_it_is(
    api: RawApi, pods: Space, expected: dict[str, str]
):
    made = await api.post(pods.core("pods"), pod("a"))
    body = eviction("a", pods) | {"deleteOptions": {"preconditions": expected}}
    got = await api.post(pods.core("pods/a/eviction"), body)
    assert (got.status, got.body["reason"]) == (409, "Conflict")
    assert (await api.get(pods.core("pods/a"))).revision == made.revision


async def test_a_budget_refuses_an_eviction(api: RawApi, pods: Space):
    await api.post(pods.core("pods"), pod("a", labels={"app": "web"}))
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await api.patch(pods.core("pods/a/status"), {"status": ready})
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    made = await api.post(pods.at("policy/v1", "poddisruptionbudgets"), budget)
    assert made.status == 201
    counts = {
        "observedGeneration": 1,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
        "disruptionsAllowed": 0,
    }
    await api.patch(pods.at("policy/v1", "poddisruptionbudgets/b/status"), {"status": counts})
    got = await api.post(pods.core("pods/a/eviction"), eviction("a", pods))
    assert (got.status, got.body["reason"]) == (429, "TooManyRequests")
    assert got.body["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert got.causes == [("DisruptionBudget", "", "The disruption budget b needs 1 healthy pods and has 1 currently")]


async def test_a_binding_puts_a_pod_on_a_node(api: RawApi, pods: Space):
    await api.post(pods.core("pods"), pod("a"))
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a", "namespace": pods},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    got = await api.post(pods.core("pods/a/binding"), binding)
    assert (got.status, got.body["status"]) == (201, "Success")
    live = await api.get(pods.core("pods/a"))
    assert live.body["spec"]["nodeName"] == "n1"
    (condition,) = live.body["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


async def test_a_bound_pod_cannot_be_bound_again(api: RawApi, pods: Space):
    await api.post(pods.core("pods"), pod("a", spec={"nodeName": "n1"}))
    binding = {"metadata": {"name": "a", "namespace": pods}, "target": {"kind": "Node", "name": "n2"}}
    got = await api.post(pods.core("pods/a/binding"), binding | {"apiVersion": "v1", "kind": "Binding"})
    assert got.status == 409
    assert (
        got.body["message"]
        == 'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n1"'
    )


async def test_only_a_few_fields_of_a_pod_can_change(api: RawApi, pods: Space):
    await api.post(pods.core("pods"), pod("a"))
    image = await api.patch(
        pods.core("pods/a"),
        [{"op": "replace", "path": "/spec/containers/0/image", "value": "x:2"}],
        "application/json-patch+json",
    )
    assert image.status == 200
    got = await api.patch(pods.core("pods/a"), {"spec": {"hostname": "other"}})
    assert got.status == 422
    assert got.body["message"].startswith(
        'Pod "a" is invalid: spec: Forbidden: pod updates may not change fields other than '
    )


# Tokens and reviews


async def test_a_service_account_token_is_issued_and_names_its_account(api: RawApi, ns: Space):
    await api.eventually(ns.core("serviceaccounts/default"), lambda answer: answer.status == 200)
    got = await api.post(
        ns.core("serviceaccounts/default/token"),
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}},
    )
    assert (got.status, got.body["kind"]) == (201, "TokenRequest")
    assert got.body["status"]["expirationTimestamp"].endswith("Z")
    review = await api.post(
        "/apis/authentication.k8s.io/v1/tokenreviews",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": got.body["status"]["token"]},
        },
    )
    assert review.status == 201
    assert review.body["status"]["authenticated"] is True
    assert review.body["status"]["user"]["username"] == f"system:serviceaccount:{ns}:default"


SERVER = "https://kubernetes.default.svc"
Audiences = list[str] | None


@pytest.mark.parametrize(
    ("issued", "asked", "found"),
    [
        (None, None, [SERVER]),
        (None, ["vault", SERVER], [SERVER]),
        (None, ["vault"], None),
        (["vault"], ["vault"], ["vault"]),
        (["vault", "sts"], ["sts", "other"], ["sts"]),
        (["vault"], None, None),
        (["vault", SERVER], None, [SERVER]),
    ],
)
async def test_a_token_is_valid_for_its_audiences_only(
    api: RawApi,
    cluster: ApiServer,
    ns: Space,
    issued: list[str] | None,
    asked: list[str] | None,
    found: list[str] | None,
):
    await api.eventually(ns.core("serviceaccounts/default"), lambda answer: answer.status == 200)
    got = await api.post(ns.core("serviceaccounts/default/token"), {"spec": {"audiences": issued} if issued else {}})
    token = got.body["status"]["token"]
    spec = {"token": token} | ({"audiences": asked} if asked else {})
    review = (await api.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": spec})).body["status"]
    assert (review.get("authenticated", False), review.get("audiences")) == (found is not None, found)
    assert bool(review.get("error")) is (found is None)
    async with RawApi(cluster.url, token=token, ssl_context=ssl_context(cluster.ca_pem)) as bearer:
        answer = await bearer.get("/version")
    assert answer.status == (200 if SERVER in (issued or [SERVER]) else 401)


async def test_a_token_of_no_account_is_not_found(api: RawApi, ns: Space):
    got = await api.post(
        ns.core("serviceaccounts/nobody/token"),
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    )
    assert (got.status, got.body["message"]) == (404, 'serviceaccounts "nobody" not found')


async def test_an_unknown_token_is_not_authenticated(api: RawApi):
    review = await api.post(
        "/apis/authentication.k8s.io/v1/tokenreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "nonsense"}},
    )
    assert review.status == 201
    assert not review.body["status"].get("authenticated", False)


async def test_the_administrator_may_do_everything(api: RawApi, ns: Space):
    got = await api.post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"namespace": ns, "verb": "delete", "resource": "pods"}},
        },
    )
    assert got.status == 201
    assert got.body["status"]["allowed"] is True
    assert got.body["spec"]["resourceAttributes"] == {"namespace": ns, "verb": "delete", "resource": "pods"}


async def test_a_subresource_of_what_is_not_there_is_not_found(api: RawApi, ns: Space):
    for subresource in ("status", "scale"):
        got = await api.get(ns.at("apps/v1", "deployments/nope", subresource))
        assert (got.status, got.body["message"]) == (404, 'deployments.apps "nope" not found')


async def test_a_subresource_the_kind_has_not_is_a_generic_not_found(api: RawApi, ns: Space):
    got = await api.get(ns.core("configmaps/a/status"))
    assert (got.status, got.body["message"]) == (404, "the server could not find the requested resource")
