"""ResourceQuotas and LimitRanges: what a namespace may consume, on both servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from steersman.testing.raw_api import RawApi, ssl_context
from tests.support.manifests import Space, configmap, container, deployment, pod, secret, service
from tests.support.webhooks import WebhookStub, allowed, rule

if TYPE_CHECKING:
    from steersman.apiserver import EmbeddedServer


async def limit(api: RawApi, ns: Space, hard: dict[str, str], **spec: Any) -> None:
    """A quota in force. On the real server it is when its status is written, which no controller does here."""
    hard = {"secrets": "0", **hard} if not spec else hard
    made = await api.post(ns.core("resourcequotas"), {"metadata": {"name": "most"}, "spec": {"hard": hard, **spec}})
    assert made.status == 201, made.body
    status = {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
    assert (await api.patch(ns.core("resourcequotas/most/status"), status)).status == 200
    if not spec:
        await refuses(api, ns.core("secrets"), secret("probe"))


async def refuses(api: RawApi, path: str, body: dict[str, Any]) -> None:
    """Wait until a dry run is refused: the real server knows quotas and ranges from watches of its own."""
    while (await api.post(path, body, dryRun="All")).status != 403:
        pass


def sized(name: str, cpu: str = "", *, limit_cpu: str = "", **spec: Any) -> dict[str, Any]:
    """A pod of one container that asks for this much."""
    resources = {
        **({"requests": {"cpu": cpu}} if cpu else {}),
        **({"limits": {"cpu": limit_cpu}} if limit_cpu else {}),
    }
    return pod(name, spec={"containers": [container(resources=resources)], **spec})


def said(answer: Any) -> str:
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden"), answer.body
    text: str = answer.body["message"].partition(" is forbidden: ")[2]
    return text


async def used(api: RawApi, ns: Space) -> dict[str, str]:
    found: dict[str, str] = (await api.get(ns.core("resourcequotas/most"))).body["status"]["used"]
    return {name: amount for name, amount in found.items() if name != "secrets"}


async def test_a_quota_counts_objects_and_refuses_one_too_many(api: RawApi, ns: Space):
    await limit(api, ns, {"services": "1", "count/deployments.apps": "1"})
    for path, make, name in (
        (ns.core("services"), service, "services"),
        (ns.at("apps/v1", "deployments"), deployment, "count/deployments.apps"),
    ):
        assert (await api.post(path, make("a"))).status == 201
        refused = await api.post(path, make("b"))
        assert said(refused) == f"exceeded quota: most, requested: {name}=1, used: {name}=1, limited: {name}=1"
        assert refused.body["details"]["name"] == "b"
    assert await used(api, ns) == {"services": "1", "count/deployments.apps": "1"}
    assert (await api.post(ns.core("configmaps"), configmap("free"))).status == 201


async def test_a_dry_run_is_checked_and_uses_nothing(api: RawApi, ns: Space):
    await limit(api, ns, {"services": "1"})
    before = await used(api, ns)
    assert (await api.post(ns.core("services"), service("a"), dryRun="All")).status == 201
    assert await used(api, ns) == before


async def test_a_quota_adds_up_what_pods_ask_for(api: RawApi, pods: Space):
    await limit(api, pods, {"pods": "3", "requests.cpu": "500m", "limits.cpu": "1"})
    path = pods.core("pods")
    assert (await api.post(path, sized("a", "200m", limit_cpu="400m"))).status == 201
    assert said(await api.post(path, sized("b", "400m", limit_cpu="400m"))) == (
        "exceeded quota: most, requested: requests.cpu=400m, used: requests.cpu=200m, limited: requests.cpu=500m"
    )
    assert said(await api.post(path, sized("c", "400m", limit_cpu="2"))) == (
        "exceeded quota: most, requested: limits.cpu=2,requests.cpu=400m, used: limits.cpu=400m,requests.cpu=200m, "
        "limited: limits.cpu=1,requests.cpu=500m"
    )
    assert said(await api.post(path, pod("d"))) == (
        "failed quota: most: must specify limits.cpu for: main; requests.cpu for: main"
    )
    init = {"initContainers": [container("first", resources={"requests": {"cpu": "300m"}, "limits": {"cpu": "300m"}})]}
    assert (await api.post(path, sized("e", "100m", limit_cpu="100m", **init))).status == 201
    assert await used(api, pods) == {"pods": "2", "requests.cpu": "500m", "limits.cpu": "700m"}


async def test_an_update_that_uses_more_is_refused_and_others_are_not(api: RawApi, ns: Space):
    await limit(api, ns, {"services": "1", "services.nodeports": "0"})
    await api.post(ns.core("services"), service("web"))
    path = ns.core("services/web")
    assert (await api.patch(path, {"metadata": {"labels": {"a": "b"}}})).status == 200
    assert said(await api.patch(path, {"spec": {"type": "NodePort"}})) == (
        "exceeded quota: most, requested: services.nodeports=1, used: services.nodeports=0, "
        "limited: services.nodeports=0"
    )


async def test_a_quota_with_a_scope_counts_only_pods_in_it(api: RawApi, pods: Space):
    await limit(api, pods, {"pods": "0"}, scopes=["BestEffort"])
    await refuses(api, pods.core("pods"), pod("probe"))
    assert (await api.post(pods.core("pods"), sized("sized", "100m"))).status == 201
    assert "exceeded quota: most" in said(await api.post(pods.core("pods"), pod("effortless")))


async def test_an_invalid_object_is_invalid_before_it_is_too_many(api: RawApi, ns: Space):
    await limit(api, ns, {"services": "0"})
    assert (await api.post(ns.core("services"), service("Not A Name"))).status == 422


# Limit ranges


async def bound(api: RawApi, ns: Space, *limits: dict[str, Any]) -> None:
    body = {"metadata": {"name": "range"}, "spec": {"limits": [*limits, CLAIMS]}}
    assert (await api.post(ns.core("limitranges"), body)).status == 201
    await refuses(api, ns.core("persistentvolumeclaims"), claim("9Ti"))


CLAIMS = {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "1Ti"}}


def claim(storage: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}


async def test_containers_get_the_defaults_of_a_limit_range(api: RawApi, pods: Space):
    await bound(
        api,
        pods,
        {"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}},
    )
    body = sized("a", "200m", initContainers=[container("first")])
    made = (await api.post(pods.core("pods"), body)).body
    found = [made["spec"][group][0]["resources"] for group in ("containers", "initContainers")]
    assert found == [
        {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "200m", "memory": "1Gi"}},
        {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "1Gi"}},
    ]
    assert made["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: memory request for container main; "
        "cpu, memory limit for container main; cpu, memory request for init container first; "
        "cpu, memory limit for init container first"
    }
    assert made["status"]["qosClass"] == "Burstable"


@pytest.mark.parametrize(
    ("limits", "body", "message"),
    [
        (
            {"type": "Container", "max": {"cpu": "1"}},
            sized("a", "100m", limit_cpu="2"),
            "maximum cpu usage per Container is 1, but limit is 2",
        ),
        (
            {"type": "Container", "min": {"cpu": "200m"}},
            sized("a", "100m"),
            "minimum cpu usage per Container is 200m, but request is 100m",
        ),
        (
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
            sized("a", "100m", limit_cpu="500m"),
            "cpu max limit to request ratio per Container is 2, but provided ratio is 5.000000",
        ),
        (
            {"type": "Pod", "max": {"cpu": "1"}},
            sized("a", "100m"),
            "maximum cpu usage per Pod is 1.  No limit is specified",
        ),
        (
            {"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "2"}},
            sized("a", "500m", limit_cpu="3"),
            "[minimum cpu usage per Pod is 1, but request is 500m, maximum cpu usage per Pod is 2, but limit is 3]",
        ),
    ],
)
async def test_a_pod_beyond_the_bounds_of_a_limit_range_is_refused(
    api: RawApi, pods: Space, limits: Any, body: Any, message: str
):
    await bound(api, pods, limits)
    assert said(await api.post(pods.core("pods"), body)) == message


async def test_webhooks_are_asked_after_limit_ranges_and_before_quotas(api: RawApi, pods: Space):
    async with WebhookStub() as stub:
        stub.on("/see", lambda _: allowed())
        await stub.configure(api, pods, validating=[stub.webhook("/see", rule("pods", "services"))])
        await bound(api, pods, {"type": "Container", "max": {"cpu": "1"}})
        await limit(api, pods, {"services": "0"})
        assert "maximum cpu usage" in said(await api.post(pods.core("pods"), sized("big", "2", limit_cpu="2")))
        assert "exceeded quota" in said(await api.post(pods.core("services"), service("many")))
        assert {request["name"] for request in stub.asked("/see")} == {"many"}


async def test_a_claim_beyond_the_bounds_of_a_limit_range_is_refused(api: RawApi, ns: Space):
    await bound(api, ns)
    assert said(await api.post(ns.core("persistentvolumeclaims"), claim("2Ti"))) == (
        "maximum storage usage per PersistentVolumeClaim is 1Ti, but request is 2Ti"
    )
    assert said(await api.post(ns.core("persistentvolumeclaims"), claim("1Mi"))) == (
        "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"
    )
    assert (await api.post(ns.core("persistentvolumeclaims"), claim("1Gi"))).status == 201


# What a controller does on a real cluster


async def test_the_status_of_a_quota_follows_its_namespace(embedded: EmbeddedServer, namespace: str):
    ns = Space(namespace)
    async with RawApi(embedded.url, token=embedded.token, ssl_context=ssl_context(embedded.ca_pem)) as api:
        hard = {"pods": "2", "requests.memory": "1Gi", "configmaps": "9"}
        await api.post(ns.core("resourcequotas"), {"metadata": {"name": "most"}, "spec": {"hard": hard}})
        body = pod("a", spec={"containers": [container(resources={"requests": {"memory": "512Mi"}})]})
        await api.post(ns.core("pods"), body)
        status = (await api.get(ns.core("resourcequotas/most"))).body["status"]
        assert status == {"hard": hard, "used": {"pods": "1", "requests.memory": "512Mi", "configmaps": "1"}}
        await api.patch(ns.core("pods/a/status"), {"status": {"phase": "Succeeded"}})
        assert (await used(api, ns))["pods"] == "0"
        await api.post(ns.core("configmaps"), configmap("a"))
        await api.delete(ns.core("configmaps/a"))
        assert (await used(api, ns))["configmaps"] == "1"


@pytest.mark.parametrize(
    ("plural", "spec", "causes"),
    [
        ("resourcequotas", {"hard": {"pods": "-1"}}, [("FieldValueInvalid", "spec.hard[pods]")]),
        ("resourcequotas", {"hard": {"nonsense": "1"}}, [("FieldValueInvalid", "spec.hard[nonsense]")]),
        (
            "resourcequotas",
            {"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotBestEffort"]},
            [("FieldValueInvalid", "spec.scopes")],
        ),
        (
            "resourcequotas",
            {
                "hard": {"pods": "1"},
                "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]},
            },
            [("FieldValueRequired", "spec.scopeSelector.matchExpressions.values")],
        ),
        (
            "limitranges",
            {"limits": [{"type": "Odd", "max": {"cpu": "1"}}]},
            [("FieldValueInvalid", "spec.limits[0].type")],
        ),
        (
            "limitranges",
            {"limits": [{"type": "Pod", "max": {"cpu": "1"}}, {"type": "Pod", "max": {"memory": "1"}}]},
            [("FieldValueDuplicate", "spec.limits[1].type")],
        ),
        (
            "limitranges",
            {"limits": [{"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}}]},
            [
                ("FieldValueInvalid", "spec.limits[0].default[cpu]"),
                ("FieldValueInvalid", "spec.limits[0].defaultRequest[cpu]"),
                ("FieldValueInvalid", "spec.limits[0].min[cpu]"),
            ],
        ),
        (
            "limitranges",
            {"limits": [{"type": "PersistentVolumeClaim", "max": {"cpu": "1"}}]},
            [("FieldValueRequired", "spec.limits[0].limits")],
        ),
        (
            "limitranges",
            {"limits": [{"type": "Pod", "default": {"cpu": "1"}}]},
            [("FieldValueForbidden", "spec.limits[0].default")],
        ),
    ],
)
async def test_a_limit_that_contradicts_itself_is_invalid(api: RawApi, ns: Space, plural: str, spec: Any, causes: Any):
    got = await api.post(ns.core(plural), {"metadata": {"name": "a"}, "spec": spec})
    assert (got.status, sorted({cause[:2] for cause in got.causes})) == (422, sorted(causes))
