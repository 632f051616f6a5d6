"""The structs of `steersman.kube.api.types` against the recorded API of a real server."""

from __future__ import annotations

import base64
import gzip
import json
import random
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from steersman.kube.api import types
from steersman.kube.api.objects import Resource, Struct, decode, encode, to_wire

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = [cls for name in types.__all__ if isinstance(cls := getattr(types, name), type) and issubclass(cls, Resource)]
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
SCALARS: dict[str, Any] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"int", "str"},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"str", "int", "float"},
    f"{META}.Time": {"str"},
    f"{META}.MicroTime": {"str"},
}


# ------------------------------------------------------------------------------------------------ the API, as recorded
@cache
def components() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for file in (resources.files("steersman.apiserver") / "data").iterdir():
        if file.name.startswith("api"):
            found |= json.loads(gzip.decompress(file.read_bytes()))["components"]["schemas"]
    return found


@cache
def paths() -> set[str]:
    found: set[str] = set()
    for file in (resources.files("steersman.apiserver") / "data").iterdir():
        if file.name.startswith("api"):
            found |= set(json.loads(gzip.decompress(file.read_bytes()))["paths"])
    return found


@cache
def go_types() -> dict[str, dict[str, str]]:
    file = resources.files("steersman.apiserver") / "data" / "go-types.json.gz"
    found: dict[str, dict[str, str]] = json.loads(gzip.decompress(file.read_bytes()))
    return found


def component_of(cls: type[Resource]) -> str:
    wanted = {"group": cls.KIND.group, "version": cls.KIND.version, "kind": cls.KIND.kind}
    (name,) = [
        name for name, schema in components().items() if wanted in schema.get("x-kubernetes-group-version-kind", ())
    ]
    return name


def reference(node: dict[str, Any]) -> str | None:
    for part in (node, *node.get("allOf", ())):
        if "$ref" in part:
            return str(part["$ref"]).rpartition("/")[2]
    return None


# ------------------------------------------------------------------------------------------------------ our structs
def alternatives(node: inspect.Type) -> list[inspect.Type]:
    return list(node.types) if isinstance(node, inspect.UnionType) else [node]


def words(node: inspect.Type) -> set[str]:
    """What JSON a type takes, in one word each."""
    names = {
        inspect.IntType: "int",
        inspect.StrType: "str",
        inspect.FloatType: "float",
        inspect.BoolType: "bool",
        inspect.BytesType: "bytes",
        inspect.NoneType: "null",
        inspect.DictType: "object",
        inspect.StructType: "object",
        inspect.CollectionType: "array",
        inspect.ListType: "array",
        inspect.AnyType: "any",
    }
    return {names[type(part)] for part in alternatives(node)}


def places(cls: type[Struct], component: str, seen: set[Any] | None = None) -> Iterator[tuple[type[Struct], str]]:
    """Every struct that is reachable from `cls`, with the component of the API that it stands for."""
    seen = set() if seen is None else seen
    if (cls, component) in seen:
        return
    seen.add((cls, component))
    yield cls, component
    for field in fields(cls):
        property_ = components()[component]["properties"].get(field.encode_name, {})
        for part in alternatives(field.type):
            node = property_
            if isinstance(part, inspect.CollectionType | inspect.ListType):
                part, node = part.item_type, property_["items"]  # noqa: PLW2901 - the element stands for the list
            elif isinstance(part, inspect.DictType):
                part, node = part.value_type, property_.get("additionalProperties", {})  # noqa: PLW2901
            if isinstance(part, inspect.StructType):
                target = reference(node)
                assert target is not None, f"{cls.__name__}.{field.name} is a struct, but plain in the API"
                yield from places(part.cls, target, seen)


def fields(cls: type[Struct]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return info.fields


PLACES = sorted({place for cls in KINDS for place in places(cls, component_of(cls))}, key=str)


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
def test_a_kind_lives_where_the_server_serves_it(cls: type[Resource]) -> None:
    assert cls.KIND.path("{namespace}").replace("%7B", "{").replace("%7D", "}") in paths()


@pytest.mark.parametrize(("cls", "component"), PLACES, ids=lambda part: getattr(part, "__name__", part))
def test_every_field_has_the_name_and_the_type_it_has_on_the_wire(cls: type[Struct], component: str) -> None:
    properties = components()[component]["properties"]
    for field in fields(cls):
        assert field.encode_name in properties, f"{field.name} is called differently"
        node = properties[field.encode_name]
        ours = words(field.type) - {"null", "any"}
        target = reference(node)
        if target in SCALARS:
            assert ours == SCALARS[target], field.name
        elif ours:
            word = {"integer": "int", "string": "str", "boolean": "bool", "number": "float"}
            kind = "object" if target else word.get(node["type"], node["type"])
            assert ours == {kind}, field.name


def may_be_null(go: str) -> bool:
    kind, _, options = go.partition(",")
    if kind in ("metav1.Time", "metav1.MicroTime", "Time", "MicroTime"):
        return True
    return kind.startswith(("[]", "map[", "*")) and "omitempty" not in options and "omitzero" not in options


@pytest.mark.parametrize(("cls", "component"), PLACES, ids=lambda part: getattr(part, "__name__", part))
def test_a_field_that_a_server_may_send_as_null_takes_none(cls: type[Struct], component: str) -> None:
    for field in fields(cls):
        go = go_types()[component].get(field.encode_name, "")
        if may_be_null(go):
            assert words(field.type) & {"null", "any"}, f"{field.name} is {go} on the server"


@pytest.mark.parametrize(("cls", "component"), PLACES, ids=lambda part: getattr(part, "__name__", part))
def test_a_field_whose_absence_means_something_is_none_when_absent(cls: type[Struct], component: str) -> None:
    for field in fields(cls):
        go = go_types()[component].get(field.encode_name, "")
        if go.startswith("*"):
            assert field.default is None, f"{field.name} is {go} on the server"


# ----------------------------------------------------------------------------------------- random objects of the API
def random_object(rng: random.Random, component: str, depth: int = 0) -> dict[str, Any]:
    schema = components()[component]
    required = set(schema.get("required", ()))
    result: dict[str, Any] = {"unknownField": {"kept": False}} if rng.random() < 0.2 else {}
    for name, node in schema.get("properties", {}).items():
        if name not in required and rng.random() > 3 / (depth + 4):
            continue
        if may_be_null(go_types().get(component, {}).get(name, "")) and rng.random() < 0.3:
            result[name] = None
        else:
            result[name] = random_value(rng, node, depth)
    return result


def random_value(rng: random.Random, node: dict[str, Any], depth: int) -> Any:  # noqa: PLR0911 - one per JSON type
    if target := reference(node):
        if target in SCALARS:
            return "2024-01-01T00:00:00Z" if target.startswith(META) else rng.choice([1, "100m"])
        if components()[target].get("type") == "object" and "properties" in components()[target]:
            return random_object(rng, target, depth + 1)
        return {}
    match node.get("type"):
        case "array":
            return [random_value(rng, node["items"], depth + 1) for _ in range(rng.randint(0, 2))]
        case "object":
            inner = node.get("additionalProperties", {"type": "string"})
            return {f"k{n}": random_value(rng, inner, depth + 1) for n in range(rng.randint(0, 2))}
        case "integer":
            return rng.choice([0, 1, 2**31 - 1])
        case "boolean":
            return rng.random() < 0.5
        case "number":
            return rng.choice([0.5, 1.5])
        case "string" if node.get("format") == "byte":
            return base64.b64encode(rng.randbytes(rng.randint(0, 3))).decode()
        case "string":
            return rng.choice(["", "a", "ü/x"])
    return None


def invented(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """The paths in `ours` that are not in `theirs`, or are different there."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key in theirs:
                yield from invented(value, theirs[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            yield from invented(left, right, f"{path}[{index}]")
    elif ours != theirs or type(ours) is not type(theirs):
        yield f"{path}: {ours!r} is not {theirs!r}"


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
@given(seed=st.integers(0, 2**32))
def test_any_object_decodes_and_writing_it_back_invents_nothing(cls: type[Resource], seed: int) -> None:
    wire = random_object(random.Random(seed), component_of(cls))
    wire |= {"apiVersion": cls.KIND.api_version, "kind": cls.KIND.kind}
    written = json.loads(encode(decode(json.dumps(wire), cls)))
    assert list(invented(written, wire)) == []


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
def test_an_object_that_is_nearly_empty_decodes_and_stays_so(cls: type[Resource]) -> None:
    required = {"roleRef": {"kind": "Role", "name": "r"}} if "role_ref" in cls.__struct_fields__ else {}
    wire = {"apiVersion": cls.KIND.api_version, "kind": cls.KIND.kind, "metadata": {"name": "x"}, **required}
    assert to_wire(decode(json.dumps(wire), cls)) == wire


# -------------------------------------------------------------------------------------------------- what people write
def test_a_template_with_a_null_creation_timestamp_decodes() -> None:
    wire = {"metadata": {"name": "web"}, "spec": {"template": {"metadata": {"creationTimestamp": None}, "spec": {}}}}
    deployment = decode(json.dumps(wire), types.Deployment)
    assert deployment.spec.template.metadata.creation_timestamp is None
    assert deployment.spec.template.spec.containers == ()


def test_zero_and_empty_are_kept_where_absence_means_something_else() -> None:
    wire: dict[str, Any] = {
        "spec": {
            "replicas": 0,
            "selector": {},
            "template": {"spec": {"volumes": [{"name": "tmp", "emptyDir": {}}], "containers": []}},
        }
    }
    written = to_wire(decode(json.dumps(wire), types.Deployment))
    assert written["spec"] == wire["spec"]
    claim = decode(b'{"spec": {"storageClassName": ""}}', types.PersistentVolumeClaim)
    assert to_wire(claim)["spec"] == {"storageClassName": ""}
    policy = decode(b'{"spec": {"podSelector": {}, "ingress": [{}]}}', types.NetworkPolicy)
    assert to_wire(policy)["spec"] == {"podSelector": {}, "ingress": [{}]}


def test_a_status_that_was_not_set_reads_as_zero_and_is_not_written() -> None:
    deployment = types.Deployment()
    assert deployment.status.ready_replicas == 0
    assert "status" not in to_wire(deployment)
    deployment.status.ready_replicas = 2
    assert to_wire(deployment)["status"] == {"readyReplicas": 2}
    assert types.Deployment().status.ready_replicas == 0


def test_a_role_without_rules_is_sent_with_null() -> None:
    assert decode(b'{"rules": null}', types.Role).rules is None
    assert decode(b'{"endpoints": null, "ports": null}', types.EndpointSlice).endpoints is None


def test_the_data_of_a_secret_is_decoded_and_never_shown() -> None:
    secret = decode(b'{"metadata": {"name": "db"}, "data": {"password": "aHVudGVyMg==", "x": null}}', types.Secret)
    assert secret.data == {"password": b"hunter2", "x": None}
    assert to_wire(secret)["data"] == {"password": "aHVudGVyMg==", "x": None}
    secret.string_data["token"] = "swordfish"
    assert repr(secret) == "Secret('db', type='', keys=['password', 'token', 'x'])"
    review = types.TokenReview(spec=types.TokenReviewSpec(token="swordfish"))
    assert "swordfish" not in repr(review)


def test_every_reference_of_a_pod_to_another_object_is_typed() -> None:
    pod = decode(
        b"""{"spec": {
          "imagePullSecrets": [{"name": "pull"}], "serviceAccountName": "web",
          "containers": [{"name": "c", "resources": {"requests": {"cpu": 1, "memory": "1Gi"}},
             "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}},
                     {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}}],
             "envFrom": [{"prefix": "P_", "configMapRef": {"name": "cm2"}}, {"secretRef": {"name": "s2"}}]}],
          "volumes": [
            {"name": "v1", "configMap": {"name": "cm3", "items": [{"key": "a", "path": "b"}]}},
            {"name": "v2", "secret": {"secretName": "s3"}},
            {"name": "v3", "projected": {"sources": [{"configMap": {"name": "cm4"}}, {"secret": {"name": "s4"}}]}},
            {"name": "v4", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "s5"}}},
            {"name": "v5", "persistentVolumeClaim": {"claimName": "pvc"}}]},
         "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "hostIP": "192.0.2.1",
          "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}},
             "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}}""",
        types.Pod,
    )
    (container,) = pod.spec.containers or ()
    assert [source.value_from is not None for source in container.env] == [True, True]
    assert container.env_from[0].config_map_ref == types.ConfigMapEnvSource(name="cm2")
    assert container.resources is not None
    assert container.resources.requests == {"cpu": 1, "memory": "1Gi"}
    projected = pod.spec.volumes[2].projected
    assert projected is not None
    assert projected.sources is not None
    assert [bool(source.config_map) for source in projected.sources] == [True, False]
    csi = pod.spec.volumes[3].csi
    assert csi is not None
    assert csi.node_publish_secret_ref == types.LocalObjectReference(name="s5")
    (status,) = pod.status.container_statuses
    assert status.state is not None
    assert status.state.waiting == types.ContainerStateWaiting(reason="CrashLoopBackOff")
    assert pod.status.pod_ip == "10.0.0.1"


def test_lists_and_tuples_may_both_be_given_and_lists_are_sent() -> None:
    rules = [types.PolicyRule(verbs=["get"], resources=("pods",))]
    wire = {"rules": [{"verbs": ["get"], "resources": ["pods"]}]}
    for given_rules in (rules, tuple(rules)):
        body = to_wire(types.Role(rules=given_rules))
        assert {"rules": body["rules"]} == wire
        assert type(body["rules"]) is list
