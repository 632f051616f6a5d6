"""Custom resources: installing, validating, defaulting, pruning, printing, and taking them away again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from steersman.testing import eventually
from tests.support.manifests import crd, widget, widgets_crd

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from steersman.testing.raw_api import RawApi, RawResponse
    from tests.support.manifests import Space

    Install = Callable[[RawApi, dict[str, Any]], Awaitable[None]]

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


@pytest.fixture
def group(ns: Space) -> str:
    """An API group of the test's own."""
    return f"{ns}.example.org"


def path(ns: Space, group: str, name: str = "", version: str = "v1") -> str:
    return ns.at(f"{group}/{version}", f"widgets/{name}" if name else "widgets")


async def create(api: RawApi, ns: Space, group: str, spec: dict[str, Any] | None = None, **more: Any) -> RawResponse:
    return await api.post(path(ns, group), widget(group, "w", spec) | more)


# Installing


async def test_a_definition_is_accepted_and_established(api: RawApi, group: str, install: Install):
    await install(api, widgets_crd(group))
    got = await api.get(f"{CRDS}/widgets.{group}")
    conditions = {item["type"]: (item["status"], item["reason"]) for item in got.body["status"]["conditions"]}
    assert conditions == {"NamesAccepted": ("True", "NoConflicts"), "Established": ("True", "InitialNamesAccepted")}
    assert got.body["status"]["storedVersions"] == ["v1"]
    assert got.body["status"]["acceptedNames"] == {
        "plural": "widgets",
        "singular": "widget",
        "shortNames": ["wd"],
        "kind": "Widget",
        "listKind": "WidgetList",
        "categories": ["contract"],
    }


async def test_a_definition_is_defaulted(api: RawApi, group: str):
    made = await api.post(CRDS, widgets_crd(group))
    assert made.body["spec"]["names"]["singular"] == "widget"
    assert made.body["spec"]["names"]["listKind"] == "WidgetList"
    assert made.body["spec"]["conversion"] == {"strategy": "None"}


async def test_a_definition_must_be_named_after_its_resource(api: RawApi, group: str):
    body = widgets_crd(group)
    body["metadata"]["name"] = f"wrong.{group}"
    made = await api.post(CRDS, body)
    assert made.status == 422
    assert made.causes == [
        (
            "FieldValueInvalid",
            "metadata.name",
            f'Invalid value: "wrong.{group}": must be spec.names.plural+"."+spec.group',
        )
    ]


async def test_a_schema_without_types_is_not_structural(api: RawApi, group: str):
    made = await api.post(CRDS, crd("Thing", group=group, schema={"type": "object", "properties": {"spec": {}}}))
    assert made.status == 422
    assert made.causes == [
        (
            "FieldValueRequired",
            "spec.validation.openAPIV3Schema.properties[spec].type",
            "Required value: must not be empty for specified object fields",
        )
    ]


async def test_a_definition_needs_a_schema(api: RawApi, group: str):
    body = crd("Thing", group=group, schema={})
    del body["spec"]["versions"][0]["schema"]
    made = await api.post(CRDS, body)
    assert made.status == 422
    assert made.causes == [("FieldValueRequired", "spec.versions[0].schema.openAPIV3Schema", "Required value")]


async def test_exactly_one_version_is_stored(api: RawApi, group: str):
    schema = {"openAPIV3Schema": {"type": "object"}}
    versions = [{"name": name, "served": True, "storage": True, "schema": schema} for name in ("v1", "v2")]
    made = await api.post(CRDS, crd("Thing", group=group, schema={}, versions=versions))
    assert made.status == 422
    assert made.causes[0][:2] == ("FieldValueInvalid", "spec.versions")
    assert made.causes[0][2].endswith("must have exactly one version marked as storage version")


async def test_the_resource_answers_once_it_is_established(api: RawApi, ns: Space, widgets: str):
    got = await api.get(path(ns, widgets))
    assert (got.status, got.body["kind"], got.body["apiVersion"]) == (200, "WidgetList", f"{widgets}/v1")
    assert set(got.body) == {"apiVersion", "items", "kind", "metadata"}


async def test_deleting_the_definition_deletes_its_objects(api: RawApi, ns: Space, group: str, install: Install):
    await install(api, widgets_crd(group))
    assert (await create(api, ns, group)).status == 201
    assert (await api.delete(f"{CRDS}/widgets.{group}")).status == 200
    await api.eventually(f"{CRDS}/widgets.{group}", lambda answer: answer.status == 404)
    await api.eventually(path(ns, group), lambda answer: answer.status == 404)
    await install(api, widgets_crd(group))
    assert (await api.get(path(ns, group))).names == []


async def test_kind_and_version_are_required_for_a_custom_resource(api: RawApi, ns: Space, widgets: str):
    made = await api.post(path(ns, widgets), {"metadata": {"name": "w"}})
    assert made.status == 400
    assert made.body["message"].startswith(
        "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing"
    )


async def test_another_kind_is_refused(api: RawApi, ns: Space, widgets: str):
    made = await api.post(path(ns, widgets), widget(widgets) | {"kind": "Gadget"})
    assert made.status == 422
    assert made.body["message"] == f'Gadget.{widgets} "w" is invalid: kind: Invalid value: "Gadget": must be Widget'


async def test_another_version_is_refused(api: RawApi, ns: Space, widgets: str):
    made = await api.post(path(ns, widgets), widget(widgets) | {"apiVersion": f"{widgets}/v2"})
    assert made.status == 400
    assert made.body["message"] == (
        f"the API version in the data ({widgets}/v2) does not match the expected API version ({widgets}/v1)"
    )


# Validation


@pytest.mark.parametrize(
    ("spec", "reason", "field"),
    [
        ({"size": 11}, "FieldValueInvalid", "spec.size"),
        ({"size": -1}, "FieldValueInvalid", "spec.size"),
        ({"size": "1"}, "FieldValueTypeInvalid", "spec.size"),
        ({"size": 1.5}, "FieldValueTypeInvalid", "spec.size"),
        ({"on": "true"}, "FieldValueTypeInvalid", "spec.on"),
        ({"color": "pink"}, "FieldValueNotSupported", "spec.color"),
        ({"title": "thirteenchars"}, "FieldValueTooLong", "spec.title"),
        ({"title": "a"}, "FieldValueInvalid", "spec.title"),
        ({"title": "A1"}, "FieldValueInvalid", "spec.title"),
        ({"words": list("abcde")}, "FieldValueTooMany", "spec.words"),
        ({"tags": ["a", "a"]}, "FieldValueDuplicate", "spec.tags[1]"),
        ({"ports": [{"port": 1}, {"port": 1}]}, "FieldValueDuplicate", "spec.ports[1]"),
        ({"nested": {}}, "FieldValueRequired", "spec.nested.name"),
        ({"ports": [{"protocol": "TCP"}]}, "FieldValueRequired", "spec.ports[0].port"),
        ({"ports": [{"port": 0}]}, "FieldValueInvalid", "spec.ports[0].port"),
        ({"pairs": {"a": 1}}, "FieldValueTypeInvalid", "spec.pairs.a"),
        ({"limit": True}, "FieldValueTypeInvalid", "spec.limit"),
        ({"words": "a"}, "FieldValueTypeInvalid", "spec.words"),
        ({"nested": "a"}, "FieldValueTypeInvalid", "spec.nested"),
    ],
)
async def test_what_the_schema_forbids_is_refused_with_its_cause(
    api: RawApi, ns: Space, widgets: str, spec: dict[str, Any], reason: str, field: str
):
    made = await create(api, ns, widgets, spec)
    assert made.status == 422
    assert (reason, field) in {cause[:2] for cause in made.causes}
    assert made.body["message"].startswith(f'Widget.{widgets} "w" is invalid: ')
    assert made.body["details"]["kind"] == "Widget"
    assert made.body["details"]["group"] == widgets


@pytest.mark.parametrize(
    "spec",
    [
        {"limit": 1},
        {"limit": "10%"},
        {"maybe": None},
        {"maybe": "x"},
        {"ratio": 1},
        {"ratio": 1.5},
        {"free": {"any": [1, "x"]}},
        {},
    ],
)
async def test_what_the_schema_allows_is_stored(api: RawApi, ns: Space, widgets: str, spec: dict[str, Any]):
    made = await create(api, ns, widgets, spec)
    assert made.status == 201
    assert {key: value for key, value in made.body["spec"].items() if key != "size"} == spec


async def test_several_causes_are_listed_together(api: RawApi, ns: Space, widgets: str):
    made = await create(api, ns, widgets, {"size": 11, "color": "pink"})
    assert {cause[1] for cause in made.causes} == {"spec.size", "spec.color"}
    assert made.body["message"].startswith(f'Widget.{widgets} "w" is invalid: [')


async def test_an_update_is_validated_too(api: RawApi, ns: Space, widgets: str):
    await create(api, ns, widgets, {"size": 1})
    got = await api.patch(path(ns, widgets, "w"), {"spec": {"size": 99}})
    assert got.status == 422
    assert (await api.get(path(ns, widgets, "w"))).body["spec"]["size"] == 1


# Defaulting and pruning


async def test_defaults_are_stored(api: RawApi, ns: Space, widgets: str):
    made = await create(api, ns, widgets, {"nested": {"name": "x"}, "ports": [{"port": 1}]})
    assert made.body["spec"] == {
        "size": 1,
        "nested": {"name": "x", "level": 3},
        "ports": [{"port": 1, "protocol": "TCP"}],
    }


async def test_a_default_is_not_made_for_a_parent_that_is_missing(api: RawApi, ns: Space, widgets: str):
    made = await api.post(path(ns, widgets), widget(widgets))
    assert "spec" not in made.body


async def test_null_takes_the_default_unless_it_is_allowed(api: RawApi, ns: Space, widgets: str):
    made = await create(api, ns, widgets, {"size": None, "color": None, "maybe": None})
    assert made.body["spec"] == {"size": 1, "maybe": None}


async def test_unknown_fields_are_pruned(api: RawApi, ns: Space, widgets: str):
    made = await create(
        api, ns, widgets, {"color": "red", "unknown": 1, "nested": {"name": "x", "no": 1}}, junk={"a": 1}
    )
    assert made.status == 201
    assert made.body["spec"] == {"color": "red", "size": 1, "nested": {"name": "x", "level": 3}}
    assert "junk" not in made.body


async def test_preserved_fields_are_kept_whole(api: RawApi, ns: Space, widgets: str):
    made = await create(api, ns, widgets, {"free": {"deep": {"er": [{"x": 1}]}}})
    assert made.body["spec"]["free"] == {"deep": {"er": [{"x": 1}]}}


async def test_unknown_metadata_is_pruned(api: RawApi, ns: Space, widgets: str):
    body = widget(widgets, "w", None, unknown="x")
    made = await api.post(path(ns, widgets), body)
    assert (made.status, "unknown" in made.body["metadata"]) == (201, False)


# Subresources and generation


async def test_generation_follows_everything_but_metadata_and_status(api: RawApi, ns: Space, widgets: str):
    made = await create(api, ns, widgets, {"size": 1})
    assert made.body["metadata"]["generation"] == 1
    target = path(ns, widgets, "w")
    assert (await api.patch(target, {"metadata": {"labels": {"a": "b"}}})).body["metadata"]["generation"] == 1
    assert (await api.patch(target + "/status", {"status": {"phase": "x"}})).body["metadata"]["generation"] == 1
    assert (await api.patch(target, {"spec": {"size": 2}})).body["metadata"]["generation"] == 2


async def test_status_is_dropped_from_create_and_update(api: RawApi, ns: Space, widgets: str):
    made = await create(api, ns, widgets, {"size": 1}, status={"phase": "x"})
    assert "status" not in made.body
    got = await api.patch(path(ns, widgets, "w"), {"status": {"phase": "x"}})
    assert "status" not in got.body


async def test_without_a_status_subresource_status_is_a_field(api: RawApi, ns: Space, group: str, install: Install):
    await install(api, widgets_crd(group, subresources={}))
    made = await create(api, ns, group, {"size": 1}, status={"phase": "x"})
    assert made.body["status"] == {"phase": "x"}
    assert (await api.get(path(ns, group, "w") + "/status")).status == 404
    got = await api.patch(path(ns, group, "w"), {"status": {"phase": "y"}})
    assert got.body["metadata"]["generation"] == 2


# Versions


async def test_every_served_version_shows_every_object(api: RawApi, ns: Space, group: str, install: Install):
    schema = {
        "openAPIV3Schema": {
            "type": "object",
            "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }
    }
    versions = [
        {"name": "v1", "served": True, "storage": True, "schema": schema},
        {"name": "v1beta1", "served": True, "storage": False, "schema": schema, "deprecated": True},
        {"name": "v1alpha1", "served": False, "storage": False, "schema": schema},
    ]
    await install(api, crd("Widget", group=group, schema={}, versions=versions))
    await create(api, ns, group, {"a": 1})
    old = await api.get(path(ns, group, "w", "v1beta1"))
    assert (old.body["apiVersion"], old.body["spec"]) == (f"{group}/v1beta1", {"a": 1})
    assert old.warnings == (f"{group}/v1beta1 Widget is deprecated; use {group}/v1 Widget",)
    assert (await api.get(path(ns, group, "w", "v1alpha1"))).status == 404


async def test_a_watch_speaks_the_version_it_was_asked_in(api: RawApi, ns: Space, group: str, install: Install):
    schema = {"openAPIV3Schema": {"type": "object"}}
    versions = [
        {"name": "v1", "served": True, "storage": True, "schema": schema},
        {"name": "v2", "served": True, "storage": False, "schema": schema},
    ]
    await install(api, crd("Widget", group=group, schema={}, versions=versions))
    await create(api, ns, group)
    async with api.watch(path(ns, group, version="v2")) as stream:
        event = await stream.next()
    assert event is not None
    assert event["object"]["apiVersion"] == f"{group}/v2"


# Tables


async def test_printer_columns_become_a_table(api: RawApi, ns: Space, widgets: str):
    await create(api, ns, widgets, {"size": 3})
    got = await api.get(path(ns, widgets), headers=TABLE)
    assert [(column["name"], column["type"], column["priority"]) for column in got.body["columnDefinitions"]] == [
        ("Name", "string", 0),
        ("Size", "integer", 0),
        ("Color", "string", 1),
        ("Age", "date", 0),
    ]
    cells = got.body["rows"][0]["cells"]
    assert cells[:3] == ["w", 3, None]


async def test_without_printer_columns_a_table_has_name_and_age(api: RawApi, ns: Space, group: str, install: Install):
    await install(api, widgets_crd(group, additionalPrinterColumns=[]))
    await create(api, ns, group)
    got = await api.get(path(ns, group), headers=TABLE)
    assert [column["name"] for column in got.body["columnDefinitions"]] == ["Name", "Age"]


# Changing the definition


async def test_a_changed_schema_holds_from_then_on(api: RawApi, ns: Space, group: str, install: Install):
    await install(api, widgets_crd(group))
    await create(api, ns, group, {"size": 9})
    change = {
        "op": "replace",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum",
        "value": 5,
    }
    changed = await api.patch(f"{CRDS}/widgets.{group}", [change], "application/json-patch+json")
    assert changed.status == 200
    assert changed.body["metadata"]["generation"] == 2
    probe = widget(group, "probe", {"size": 9})

    async with asyncio.timeout(90):
        while (got := await api.post(path(ns, group), probe, dryRun="All")).status != 422:
            pass  # the real server learns of the change a moment later; every question is a request, so nothing spins
    assert [cause[1] for cause in got.causes] == ["spec.size"]


async def test_a_cluster_scoped_kind_has_no_namespaces(api: RawApi, group: str, install: Install):
    body = widgets_crd(group)
    body["spec"]["scope"] = "Cluster"
    await install(api, body)
    made = await api.post(f"/apis/{group}/v1/widgets", widget(group, "w"))
    assert made.status == 201
    assert "namespace" not in made.body["metadata"]
    assert (await api.get(f"/apis/{group}/v1/namespaces/default/widgets")).status == 404


async def test_scaling_an_object_without_spec_gives_it_one_with_defaults(api: RawApi, ns: Space, widgets: str):
    await api.apply(path(ns, widgets, "w"), widget(widgets))
    await api.patch(path(ns, widgets, "w") + "/scale", {"spec": {"replicas": 2}})
    assert (await api.get(path(ns, widgets, "w"))).body["spec"] == {"replicas": 2, "size": 1}


async def test_a_negative_scale_is_an_invalid_object(api: RawApi, ns: Space, widgets: str):
    await create(api, ns, widgets, {"replicas": 1})
    got = await api.patch(path(ns, widgets, "w") + "/scale", {"spec": {"replicas": -1}})
    assert got.status == 422
    assert [cause[:2] for cause in got.causes] == [("FieldValueInvalid", ".spec.replicas")]


async def test_the_schema_of_the_stored_version_prunes_and_defaults_what_another_version_writes(
    api: RawApi, ns: Space, group: str, install: Install
):
    def version(name: str, **fields: Any) -> dict[str, Any]:
        spec = {"type": "object", "properties": fields}
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
        return {"name": name, "served": True, "storage": name == "v1", "schema": schema}

    text = {"type": "string"}
    stored = version("v1", both=text, old=text | {"default": "o"})
    await install(api, crd("Widget", group=group, schema={}, versions=[stored, version("v2", both=text, new=text)]))
    body = widget(group, "w", {"both": "b", "new": "n"}) | {"apiVersion": f"{group}/v2"}

    async def written() -> bool:
        return (await api.post(path(ns, group, version="v2"), body)).status == 201

    await eventually(written)
    assert (await api.get(path(ns, group, "w"))).body["spec"] == {"both": "b", "old": "o"}
    assert (await api.get(path(ns, group, "w", "v2"))).body["spec"] == {"both": "b"}
