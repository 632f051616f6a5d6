from __future__ import annotations

from typing import Any

import pytest

from steersman.apiserver.resources.registry import Registry
from steersman.apiserver.write.decoding import unknown_fields

CONTAINER = {
    "name": "a",
    "imagee": "x",
    "resources": {"limits": {"cpu": "1"}, "x": 1},
    "env": [{"name": "a", "valueFrm": 1}],
}


# The paths and their order are those the real server names.
@pytest.mark.parametrize(
    ("kind", "obj", "expected"),
    [
        (
            ("apps", "v1", "Deployment"),
            {
                "metadata": {"name": "x", "foo": 1, "labels": {"a": "b"}, "ownerReferences": [{"x": 1}]},
                "foo": 1,
                "spec": {"Replicas": 1, "template": {"metadata": {"zip": {}}, "spec": {"containers": [CONTAINER]}}},
                "status": {"zap": 1},
            },
            [
                "metadata.foo",
                "metadata.ownerReferences[0].x",
                "foo",
                "spec.Replicas",
                "spec.template.metadata.zip",
                "spec.template.spec.containers[0].imagee",
                "spec.template.spec.containers[0].resources.x",
                "spec.template.spec.containers[0].env[0].valueFrm",
                "status.zap",
            ],
        ),
        (
            ("", "v1", "ConfigMap"),
            {
                "metadata": {"managedFields": [{"fieldsV1": {"f:x": {}}, "zip": 1}]},
                "data": {"any": "thing"},
                "spec": {},
            },
            ["metadata.managedFields[0].zip", "spec"],
        ),
        (
            ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
            {
                "spec": {
                    "versions": [
                        {
                            "schema": {
                                "openAPIV3Schema": {"zip": 1, "properties": {"a": {"typ": "x", "default": {"q": 1}}}}
                            }
                        }
                    ]
                }
            },
            [
                "spec.versions[0].schema.openAPIV3Schema.zip",
                "spec.versions[0].schema.openAPIV3Schema.properties.a.typ",
            ],
        ),
        (("apps", "v1", "ControllerRevision"), {"data": {"free": {"form": 1}}, "x": 1}, ["x"]),
    ],
)
def test_fields_a_built_in_type_does_not_have_are_named(
    kind: tuple[str, str, str], obj: dict[str, Any], expected: list[str]
) -> None:
    info = Registry().by_kind(*kind)
    assert info is not None
    assert unknown_fields(info.schema, obj) == expected
