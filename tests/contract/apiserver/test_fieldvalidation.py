"""Unknown and duplicate fields, and bodies that cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from steersman.testing.raw_api import STRATEGIC_PATCH
from tests.support.manifests import configmap, deployment, widget

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi
    from tests.support.manifests import Space

UNKNOWN = ('unknown field "bar"', 'unknown field "spec.foo"', 'unknown field "spec.template.spec.containers[0].zz"')
TWICE = '{"metadata":{"name":"a","name":"a"},"data":{"k":"1","k":"2"}}'


def with_unknown_fields() -> dict[str, Any]:
    body = deployment("web")
    body["spec"]["foo"] = 1
    body["bar"] = {"x": 1}
    body["spec"]["template"]["spec"]["containers"][0]["zz"] = 1
    return body


async def test_strict_refuses_unknown_fields(api: RawApi, ns: Space):
    got = await api.post(ns.at("apps/v1", "deployments"), with_unknown_fields(), fieldValidation="Strict")
    assert (got.status, got.body["reason"]) == (400, "BadRequest")
    prefix = 'Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: '
    assert got.body["message"].startswith(prefix)
    assert tuple(sorted(got.body["message"].removeprefix(prefix).split(", "))) == UNKNOWN


async def test_strict_refuses_a_patch_with_an_unknown_field_without_naming_a_kind(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a"))
    got = await api.patch(ns.core("configmaps/a"), {"unknown": 1}, fieldValidation="Strict")
    assert got.status == 422
    assert sorted(got.body["details"]) == ["causes"]


@pytest.mark.parametrize("query", [{"fieldValidation": "Warn"}, {}])
async def test_warn_is_the_default_and_drops_with_a_warning(api: RawApi, ns: Space, query: dict[str, str]):
    got = await api.post(ns.at("apps/v1", "deployments"), with_unknown_fields(), **query)
    assert got.status == 201
    assert tuple(sorted(got.warnings)) == UNKNOWN
    assert "foo" not in got.body["spec"]


async def test_ignore_drops_silently(api: RawApi, ns: Space):
    got = await api.post(ns.at("apps/v1", "deployments"), with_unknown_fields(), fieldValidation="Ignore")
    assert (got.status, got.warnings, "bar" in got.body) == (201, (), False)


async def test_an_unknown_way_to_validate_is_refused(api: RawApi, ns: Space):
    got = await api.post(ns.core("configmaps"), configmap("a"), fieldValidation="Sometimes")
    assert got.status == 422
    assert got.causes == [
        (
            "FieldValueNotSupported",
            "fieldValidation",
            'Unsupported value: "Sometimes": supported values: "", "Ignore", "Strict", "Warn"',
        )
    ]


async def test_strict_refuses_duplicate_fields(api: RawApi, ns: Space):
    got = await api.post(ns.core("configmaps"), TWICE, fieldValidation="Strict")
    assert got.status == 400
    assert got.body["message"] == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
        'duplicate field "metadata.name", duplicate field "data.k"'
    )


async def test_warn_names_duplicate_fields_and_takes_the_last(api: RawApi, ns: Space):
    got = await api.post(ns.core("configmaps"), TWICE)
    assert got.warnings == ('duplicate field "metadata.name"', 'duplicate field "data.k"')
    assert got.body["data"] == {"k": "2"}


async def test_a_patch_is_validated_strictly_too(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a"))
    warned = await api.patch(ns.core("configmaps/a"), {"datas": {}}, STRATEGIC_PATCH)
    assert (warned.status, warned.warnings) == (200, ('unknown field "datas"',))
    strict = await api.patch(ns.core("configmaps/a"), {"datas": {}}, STRATEGIC_PATCH, fieldValidation="Strict")
    assert strict.status == 422
    assert strict.body["message"].endswith('strict decoding error: unknown field "datas"')


async def test_custom_resources_are_validated_strictly(api: RawApi, ns: Space, widgets: str):
    path = ns.at(f"{widgets}/v1", "widgets")
    body = widget(widgets, "a", {"color": "red", "foo": 1}) | {"bar": 1}
    strict = await api.post(path, body, fieldValidation="Strict")
    assert strict.status == 400
    assert strict.body["message"] == (
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "bar", '
        'unknown field "spec.foo"'
    )
    warned = await api.post(path, body)
    assert (warned.status, warned.warnings) == (201, ('unknown field "bar"', 'unknown field "spec.foo"'))


@pytest.mark.parametrize("body", ["{", "", "[]", '"text"', "{'a': 1}"])
async def test_a_body_that_is_not_an_object_is_a_bad_request(api: RawApi, ns: Space, body: str):
    got = await api.post(ns.core("configmaps"), body)
    assert (got.status, got.body["reason"]) == (400, "BadRequest")
    assert got.body["message"].startswith("the object provided is unrecognized (must be of type ConfigMap): ")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"metadata": {"name": "a", "labels": {"x": 1}}}, "metadata.labels"),
        ({"metadata": {"name": "a"}, "data": "text"}, "data"),
        ({"metadata": {"name": "a"}, "data": {"k": 1}}, "data"),
    ],
)
async def test_a_wrong_type_is_named(api: RawApi, ns: Space, body: dict[str, Any], field: str):
    got = await api.post(ns.core("configmaps"), body)
    assert (got.status, got.body["reason"]) == (400, "BadRequest")
    head = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
    assert got.body["message"].startswith(head)
    assert field in got.body["message"].removeprefix(head)


async def test_yaml_bodies_are_read(api: RawApi, ns: Space):
    got = await api.post(
        ns.core("configmaps"), "metadata:\n  name: a\ndata:\n  k: v\n", headers={"Content-Type": "application/yaml"}
    )
    assert (got.status, got.body["data"]) == (201, {"k": "v"})


async def test_broken_yaml_is_a_bad_request(api: RawApi, ns: Space):
    got = await api.post(ns.core("configmaps"), "metadata: [}", headers={"Content-Type": "application/yaml"})
    assert (got.status, got.body["reason"]) == (400, "BadRequest")


async def test_another_media_type_is_unsupported(api: RawApi, ns: Space):
    got = await api.post(ns.core("configmaps"), "{}", headers={"Content-Type": "text/plain"})
    assert (got.status, got.body["reason"]) == (415, "UnsupportedMediaType")
    assert got.body["message"].startswith(
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json, application/yaml"
    )
