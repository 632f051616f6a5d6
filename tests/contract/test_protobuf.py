"""Protobuf bodies, which kubectl sends: read here as the real server means them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from steersman.apiserver.protobuf import MEDIA_TYPE, decode
from steersman.testing.manifests import Space, configmap, container, cronjob, deployment, job, pod, secret, service
from steersman.testing.rawapi import RawApi, ssl_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from steersman.testing.servers import ApiServer

FULL = container(
    env=[
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "k"}}},
        {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ],
    envFrom=[{"secretRef": {"name": "token"}}],
    ports=[{"containerPort": 80, "name": "http"}],
    resources={"limits": {"cpu": "500m", "memory": "1Gi"}},
    readinessProbe={"httpGet": {"path": "/", "port": "http"}},
    livenessProbe={"tcpSocket": {"port": 80}},
    volumeMounts=[{"name": "v", "mountPath": "/v"}],
)
VOLUMES = [
    {"name": "v", "emptyDir": {}},
    {"name": "s", "secret": {"secretName": "token", "items": [{"key": "k", "path": "p"}]}},
    {"name": "c", "configMap": {"name": "settings"}},
]
PATH = {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}}
OBJECTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "configmap": (
        "v1",
        "configmaps",
        configmap("a", {"k": "v", "empty": ""}, labels={"x": "y"}) | {"binaryData": {"b": "AAE="}},
    ),
    "secret": ("v1", "secrets", secret("a", {"k": "v"})),
    "service": ("v1", "services", service("a", spec={"ports": [{"port": 80, "targetPort": "http"}]})),
    "pod": ("v1", "pods", pod("a", spec={"containers": [FULL], "volumes": VOLUMES})),
    "deployment": (
        "apps/v1",
        "deployments",
        deployment("a", spec={"replicas": 0}, pod_spec={"containers": [FULL], "volumes": VOLUMES}),
    ),
    "job": ("batch/v1", "jobs", job("a", spec={"template": job()["spec"]["template"], "backoffLimit": 0})),
    "cronjob": ("batch/v1", "cronjobs", cronjob("a")),
    "role": (
        "rbac.authorization.k8s.io/v1",
        "roles",
        {"metadata": {"name": "a"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    ),
    "lease": (
        "coordination.k8s.io/v1",
        "leases",
        {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me", "renewTime": "2026-01-02T03:04:05.123456Z"}},
    ),
    "budget": (
        "policy/v1",
        "poddisruptionbudgets",
        {"metadata": {"name": "a"}, "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}},
    ),
    "ingress": (
        "networking.k8s.io/v1",
        "ingresses",
        {"metadata": {"name": "a"}, "spec": {"rules": [{"host": "a.example", "http": {"paths": [PATH]}}]}},
    ),
}


@pytest.fixture
async def both(real: ApiServer, embedded: ApiServer) -> AsyncIterator[tuple[RawApi, RawApi]]:
    clients = [
        RawApi(server.url, token=server.token, ssl_context=ssl_context(server.ca_pem)) for server in (real, embedded)
    ]
    async with clients[0], clients[1]:
        yield clients[0], clients[1]


def meant(value: Any) -> Any:
    """Without what means nothing: empty values, and what a server adds by itself."""
    if isinstance(value, dict):
        kept = {key: meant(item) for key, item in value.items() if key not in {"managedFields", "creationTimestamp"}}
        return {key: item for key, item in kept.items() if item not in (None, "", 0, False, [], {})}
    return [meant(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", OBJECTS)
async def test_what_the_real_server_writes_as_protobuf_is_read_as_its_json(both: tuple[RawApi, RawApi], name: str):
    real, embedded = both
    version, plural, body = OBJECTS[name]
    space = Space(f"protobuf-{name}")
    path = space.core(plural) if version == "v1" else space.at(version, plural)
    for api in both:
        await api.post("/api/v1/namespaces", {"metadata": {"name": space}})
        await api.eventually(space.core("serviceaccounts/default"), lambda answer: answer.status == 200)
    made = await real.post(path, body)
    assert made.status == 201, made.body
    packed = (await real.get(f"{path}/a", headers={"Accept": MEDIA_TYPE})).raw
    assert meant(decode(packed)) == meant((await real.get(f"{path}/a")).body)
    if name in {"job", "service"}:
        return  # they hold a uid and an address that are good on one server only
    sent = await embedded.post(path, _without_revision(packed), headers={"Content-Type": MEDIA_TYPE})
    assert sent.status == 201, sent.body
    assert meant(_spec(sent.body)) == meant(_spec(made.body))


def _spec(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in {"metadata", "status"}}


def _without_revision(packed: bytes) -> bytes:
    """The same bytes with the number of the field `resourceVersion` changed to one that nobody knows."""
    revision = decode(packed)["metadata"]["resourceVersion"].encode()
    field = bytes([6 << 3 | 2, len(revision)]) + revision
    assert packed.count(field) == 1
    return packed.replace(field, bytes([15 << 3 | 2]) + field[1:])


async def test_a_body_that_is_no_protobuf_is_a_bad_request(both: tuple[RawApi, RawApi]):
    for api in both:
        got = await api.post("/api/v1/namespaces", b"nonsense", headers={"Content-Type": MEDIA_TYPE})
        assert (got.status, got.body["reason"]) == (400, "BadRequest")
        assert got.body["message"].startswith("the object provided is unrecognized (must be of type Namespace): ")
