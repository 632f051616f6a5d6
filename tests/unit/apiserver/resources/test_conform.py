from __future__ import annotations

from typing import Any

import pytest

from steersman.apiserver.resources.conform import ConformError, at_rest, conform, zero
from steersman.apiserver.resources.schema import builtin_schema, custom_schema
from steersman.errors import FormatError
from steersman.kube.api.gvk import Kind


def schema(group: str, kind: str, version: str = "v1"):
    return builtin_schema(Kind(group=group, version=version, kind=kind, plural=kind.lower()))


POD, DEPLOYMENT, CONFIG_MAP = schema("", "Pod"), schema("apps", "Deployment"), schema("", "ConfigMap")


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def conformed(**spec: Any) -> dict[str, Any]:
    return conform(POD, pod(containers=None, **spec))["spec"]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({"hostNetwork": False}, {}),  # a plain optional value loses its zero…
        ({"terminationGracePeriodSeconds": 0}, {"terminationGracePeriodSeconds": 0}),  # …a pointer keeps it
        ({"securityContext": {}}, {"securityContext": {}}),
        ({"securityContext": None}, {}),
        ({"nodeSelector": {}, "tolerations": [], "nodeName": ""}, {}),
        ({"nodeSelector": {"b": "1", "a": None}}, {"nodeSelector": {"a": "", "b": "1"}}),
        ({"imagePullSecrets": [None]}, {"imagePullSecrets": [{}]}),
        ({"unheardOf": 1}, {}),
        ({"activeDeadlineSeconds": None}, {}),
    ],
)
def test_optional_fields_survive_as_the_go_type_lets_them(sent, kept):
    assert conformed(**sent) == {"containers": None, **kept}


def test_structs_that_cannot_be_absent_appear():
    made = conform(POD, pod(containers=[{"name": "c"}]))
    assert made["spec"]["containers"] == [{"name": "c", "resources": {}}]
    assert made["status"] == {}


def test_what_a_create_starts_from_is_an_unwritten_object():
    assert zero(CONFIG_MAP) == {"metadata": {}}
    assert zero(DEPLOYMENT) == {
        "metadata": {},
        "spec": {"selector": None, "template": {"metadata": {}, "spec": {"containers": None}}, "strategy": {}},
        "status": {},
    }
    assert zero(custom_schema({"type": "object"}, status=False)) == {}


def test_quantities_and_times_have_one_spelling():
    container = {"name": "c", "resources": {"limits": {"cpu": "1000m", "memory": "1.5Gi", "x.y/z": 2}}}
    made = conform(POD, pod(containers=[container]))
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1", "memory": "1536Mi", "x.y/z": "2"}
    lease = schema("coordination.k8s.io", "Lease")
    spec = {"acquireTime": "2026-01-01T02:00:00.500000+02:00"}
    assert conform(lease, {"spec": spec})["spec"] == {"acquireTime": "2026-01-01T00:00:00.500000Z"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024-01-01",
        "2024-01-01 00:00:00Z",
        "2024-01-01T00:00:00",
        "2024-13-01T00:00:00Z",
        "2024-02-31T00:00:00Z",
        "2024-01-01T25:00:00Z",
        "2024-01-01T00:00:00Zx",
    ],
)
def test_what_is_not_a_time_is_refused_with_its_field(text):
    with pytest.raises(FormatError, match=f'^metadata.creationTimestamp .*"{text}"$'):
        conform(CONFIG_MAP, {"metadata": {"creationTimestamp": text}})


@pytest.mark.parametrize("text", ["2024-01-01T00:00:00.5Z", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00.1234567Z"])
def test_a_micro_time_needs_six_decimals(text):
    with pytest.raises(FormatError, match=r"^spec.renewTime must be a time such as 2006-01-02T15:04:05.000000Z"):
        conform(schema("coordination.k8s.io", "Lease"), {"spec": {"renewTime": text}})


def test_binary_data_is_base64():
    assert conform(CONFIG_MAP, {"binaryData": {"k": "YQ==", "n": None}})["binaryData"] == {"k": "YQ==", "n": ""}
    with pytest.raises(ConformError, match="binaryData must be base64"):
        conform(CONFIG_MAP, {"binaryData": {"k": "!"}})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"replicas": "two"}, 'spec.replicas must be an integer, not "two"'),
        ({"replicas": 1.5}, "spec.replicas must be an integer, not 1.5"),
        ({"paused": 1}, "spec.paused must be a boolean, not 1"),
        ({"replicas": 2**31}, "spec.replicas must be an integer, not 2147483648"),
        ({"selector": "x"}, 'spec.selector must be an object, not "x"'),
        ({"template": {"spec": {"containers": {}}}}, "spec.template.spec.containers must be a list, not {}"),
        (
            {"template": {"spec": {"containers": [{"imagePullPolicy": 5}]}}},
            "spec.template.spec.containers.imagePullPolicy must be a string, not 5",
        ),
        (
            {"template": {"spec": {"volumes": [{"secret": {"secretName": 5}}]}}},
            "spec.template.spec.volumes.secret.secretName must be a string, not 5",
        ),
        (
            {"strategy": {"rollingUpdate": {"maxSurge": []}}},
            "spec.strategy.rollingUpdate.maxSurge must be an integer or a string, not []",
        ),
        (
            {"template": {"metadata": {"creationTimestamp": 5}}},
            "spec.template.metadata.creationTimestamp must be a string, not 5",
        ),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_its_field(spec, message):
    with pytest.raises(ConformError) as refused:
        conform(DEPLOYMENT, {"spec": spec})
    assert str(refused.value) == message


def test_an_empty_list_of_managers_survives_because_it_is_a_request():
    assert conform(CONFIG_MAP, {"metadata": {"managedFields": []}})["metadata"] == {"managedFields": []}
    custom = custom_schema({"type": "object"}, status=False)
    assert conform(custom, {"metadata": {"managedFields": []}})["metadata"] == {}


def test_of_a_custom_resource_only_metadata_is_typed():
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    custom = custom_schema(
        {
            "type": "object",
            "properties": {
                "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "templates": {"type": "array", "items": embedded},
            },
        },
        status=False,
    )
    sent = {
        "metadata": {"name": "x", "labels": {}, "unheardOf": 1},
        "spec": {"labels": {}, "none": None},
        "templates": [{"kind": "Y", "metadata": {"labels": {}, "name": "y"}, "data": {}}],
    }
    assert conform(custom, sent) == {
        "metadata": {"name": "x"},
        "spec": {"labels": {}, "none": None},
        "templates": [{"kind": "Y", "metadata": {"name": "y"}, "data": {}}],
    }


def test_a_required_list_that_is_empty_comes_back_from_storage_as_null():
    role = schema("rbac.authorization.k8s.io", "Role")
    made = conform(role, {"metadata": {"name": "r"}, "rules": []})
    assert made["rules"] == []
    assert at_rest(role, made)["rules"] is None
    assert at_rest(CONFIG_MAP, {"data": {}}) == {"data": {}}
