"""Protobuf bodies, which kubectl and client-go send: read here as the real server means them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from steersman.apiserver.discovery.protobuf import MEDIA_TYPE, decode
from steersman.testing.raw_api import RawApi, ssl_context
from tests.support.manifests import Space, configmap, container, cronjob, deployment, job, pod, secret, service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from steersman.testing.raw_api import ApiServer

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


# Nothing to do with protobuf: a LimitRange without a name gets one there, a Binding without a target is an error 500.
ODD = {"bindings?dryRun=All", "limitranges?dryRun=All"}


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


async def test_a_body_that_is_not_a_protobuf_is_a_bad_request(both: tuple[RawApi, RawApi]):
    for api in both:
        got = await api.post("/api/v1/namespaces", b"nonsense", headers={"Content-Type": MEDIA_TYPE})
        assert (got.status, got.body["reason"]) == (400, "BadRequest")
        assert got.body["message"].startswith("the object provided is unrecognized (must be of type Namespace): ")


def definition(plural: str) -> dict[str, Any]:
    """A definition with everything that JSON and protobuf spell differently."""
    targets = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "default": "a"}}},
    }
    spec = {
        "type": "object",
        "x-kubernetes-validations": [{"rule": "self.size > 1", "message": "too small", "fieldPath": ".size"}],
        "properties": {
            "size": {"type": "integer", "minimum": 0, "maximum": 99, "default": 3},
            "share": {"type": "number", "maximum": 0.5, "exclusiveMaximum": True},
            "name": {"type": "string", "minLength": 0, "maxLength": 9, "pattern": "^[a-z]*$", "enum": ["a", "b"]},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"},
            "port": {"x-kubernetes-int-or-string": True, "anyOf": [{"maximum": 9}, {"pattern": "^a"}]},
            "free": {"type": "object", "nullable": True, "x-kubernetes-preserve-unknown-fields": True},
            "targets": targets,
            "template": {
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-preserve-unknown-fields": True,
            },
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
        },
        "selectableFields": [{"jsonPath": ".spec.name"}],
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    }
    group = "protobuf.example.org"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural.capitalize()},
            "versions": [version],
        },
    }


async def test_a_definition_is_read_as_client_go_sends_it(both: tuple[RawApi, RawApi]):
    real, embedded = both
    path, made = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition("packed")
    name = made["metadata"]["name"]
    try:
        stored = await real.post(path, made)
        assert stored.status == 201, stored.body
        packed = (await real.get(f"{path}/{name}", headers={"Accept": MEDIA_TYPE})).raw
        assert (
            decode(packed)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["type"] == "object"
        )
        sent = await embedded.post(path, _without_revision(packed), headers={"Content-Type": MEDIA_TYPE})
        assert sent.status == 201, sent.body
        assert sent.body["spec"] == stored.body["spec"]
    finally:
        for api in both:
            await api.delete(f"{path}/{name}")


async def test_every_kind_that_can_be_created_is_known_in_protobuf(both: tuple[RawApi, RawApi]):
    real, embedded = both
    accept = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    space, answers = Space("protobuf-kinds"), dict[str, list[tuple[int, Any]]]()
    for api in both:
        await api.post("/api/v1/namespaces", {"metadata": {"name": space}})
    listed = [
        (f"/api/{version['version']}" if not group else f"/apis/{group}/{version['version']}", resource)
        for root in ("/api", "/apis")
        for item in (await embedded.get(root, headers=accept)).body["items"]
        for group in [item["metadata"].get("name", "")]
        for version in item["versions"]
        for resource in version["resources"]
        if "create" in resource["verbs"] and not group.endswith("example.org") and "conformance" not in group
    ]
    for prefix, resource in listed:
        place = f"{prefix}/namespaces/{space}" if resource["scope"] == "Namespaced" else prefix
        body = _empty(prefix.removeprefix("/apis/").removeprefix("/api/"), resource["responseKind"]["kind"])
        path = f"{place}/{resource['resource']}?dryRun=All"
        got = [await api.post(path, body, headers={"Content-Type": MEDIA_TYPE}) for api in (real, embedded)]
        answers[path] = [(answer.status, answer.body.get("reason")) for answer in got]
    different = {path.rsplit("/", 1)[1] for path, (theirs, ours) in answers.items() if theirs != ours}
    assert different <= ODD, answers
    assert len(answers) > 50


def _empty(api_version: str, kind: str) -> bytes:
    """An object of a kind with nothing in it."""
    type_meta = b"".join(
        bytes([number << 3 | 2, len(text)]) + text.encode() for number, text in ((1, api_version), (2, kind))
    )
    return b"k8s\x00" + bytes([1 << 3 | 2, len(type_meta)]) + type_meta + bytes([2 << 3 | 2, 0])
