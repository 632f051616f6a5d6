"""Types become structural schemas, and definitions that a server takes."""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, get_args

import msgspec
import pytest

from steersman.apiserver.crd.formats import format_check
from steersman.crd import (
    Atomic,
    Column,
    Description,
    EmbeddedResource,
    Format,
    Ge,
    Gt,
    Immutable,
    Le,
    ListMap,
    ListSet,
    Lt,
    MaxLength,
    MinLength,
    MultipleOf,
    Pattern,
    PreserveUnknown,
    ScaleSubresource,
    Schema,
    SchemaError,
    Selectable,
    XValidation,
    crd_manifest,
    drift,
    schema_of,
)
from steersman.crd.markers import KnownFormat
from steersman.kube.api.crd_options import PrinterColumn
from steersman.kube.api.objects import Resource, Struct
from steersman.runtime.reconcile.conditions import Condition


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Port(Struct):
    name: str
    number: Annotated[int, Ge(1), Le(65535)]


class Ruled(Struct):
    RULES: ClassVar = [("self.size > 0", "one")]

    size: int


def field_schema(annotation: Any, default: Any = msgspec.NODEFAULT) -> dict[str, Any]:
    field = ("value", annotation) if default is msgspec.NODEFAULT else ("value", annotation, default)
    struct = msgspec.defstruct("Holder", [field], kw_only=True)
    node: dict[str, Any] = schema_of(struct)["properties"]["value"]
    return node


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (bool, {"type": "boolean"}),
        (int, {"type": "integer", "format": "int64"}),
        (float, {"type": "number"}),
        (str, {"type": "string"}),
        (bytes, {"type": "string", "format": "byte"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (Any, {"x-kubernetes-preserve-unknown-fields": True}),
        (int | str, {"x-kubernetes-int-or-string": True}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer", "format": "int64"}}),
        (dict[str, Any], {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        (str | None, {"type": "string", "nullable": True}),
        (Annotated[str, Pattern("^a"), MinLength(1), MaxLength(9)],
         {"type": "string", "pattern": "^a", "minLength": 1, "maxLength": 9}),
        (Annotated[int, Gt(1), Lt(9)], {"type": "integer", "format": "int64", "minimum": 1, "exclusiveMinimum": True,
                                        "maximum": 9, "exclusiveMaximum": True}),
        (Annotated[int, MultipleOf(5)], {"type": "integer", "format": "int64", "multipleOf": 5}),
        (Annotated[list[str], ListSet(), MaxLength(3)],
         {"type": "array", "items": {"type": "string"}, "maxItems": 3, "x-kubernetes-list-type": "set"}),
        (Annotated[list[str], Atomic()],
         {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"}),
        (Annotated[str, Description("Why.")], {"type": "string", "description": "Why."}),
        (Annotated[str, Schema(format="ipv4")], {"type": "string", "format": "ipv4"}),
        (Annotated[str, Format("uuid")], {"type": "string", "format": "uuid"}),
        (Annotated[int, Format("int32"), Ge(1)], {"type": "integer", "format": "int32", "minimum": 1}),
        (Annotated[dict[str, str], Atomic()],
         {"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"}),
        (Annotated[dict[str, Any], EmbeddedResource()],
         {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}),
        (Annotated[str, Immutable()],
         {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "cannot be changed"}]}),
        (Annotated[str | None, Immutable()],
         {"type": "string", "nullable": True,
          "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "cannot be changed"}]}),
        (Annotated[dict[str, str], PreserveUnknown()],
         {"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-preserve-unknown-fields": True}),
        (Annotated[str, XValidation(("self != 'x'", "not x"))],
         {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'x'", "message": "not x"}]}),
    ],
    ids=str,
)  # fmt: skip
def test_every_type_has_its_schema(annotation, schema):
    assert field_schema(annotation) == schema


def test_rules_of_a_type_and_of_several_markers_add_up():
    node = field_schema(Annotated[Ruled, XValidation(("self.size > 1", "two")), Immutable()])
    assert [rule["message"] for rule in node["x-kubernetes-validations"]] == ["one", "two", "cannot be changed"]


def test_every_format_is_one_that_api_servers_know():
    numbers = {"int32", "int64", "float", "double"}
    assert {name for name in get_args(KnownFormat) if format_check(name) is None} == numbers


def test_a_list_map_names_its_keys():
    node = field_schema(Annotated[list[Port], ListMap("name")])
    assert node["x-kubernetes-list-type"] == "map"
    assert node["x-kubernetes-list-map-keys"] == ["name"]
    assert node["items"]["required"] == ["name", "number"]


@pytest.mark.parametrize(
    ("annotation", "default", "written"),
    [
        (int, 3, {"default": 3}),
        (bool, False, {"default": False}),
        (Colour, Colour.RED, {"default": "red"}),
        (str | None, None, {}),
        (list[str], msgspec.field(default_factory=list), {}),
        (dict[str, str], msgspec.field(default_factory=dict), {}),
    ],
    ids=["int", "bool", "enum", "optional", "list", "dict"],
)
def test_defaults_are_written_where_a_server_may_add_them_without_making_manifests_differ(annotation, default, written):
    node = field_schema(annotation, default)
    assert {k: v for k, v in node.items() if k == "default"} == written
    assert "nullable" not in node


class Inner(Struct):
    size: int = 5


class Outer(Struct):
    inner: Inner = Inner()


def test_a_nested_part_with_defaults_is_defaulted_so_that_its_own_defaults_apply():
    assert schema_of(Outer)["properties"]["inner"]["default"] == {}


class Node(Struct):
    child: Node | None = None


def test_a_recursive_type_is_refused_with_the_way_that_leads_in_a_circle():
    with pytest.raises(SchemaError, match=r"Node\.child: Node contains itself"):
        schema_of(Node)


def test_a_union_without_a_schema_is_refused_with_a_way_out():
    with pytest.raises(SchemaError, match=r"a union of bool \| str has no structural schema"):
        field_schema(bool | str)


class WebAppSpec(Struct):
    """What to run."""

    RULES: ClassVar = [("self.replicas > 0 || self.paused", "only a paused app has no replicas")]

    image: str
    """The image, with its tag."""
    replicas: Annotated[int, Ge(0), Column("Replicas")] = 1
    paused: bool = False


class WebAppStatus(Struct):
    ready_replicas: Annotated[int | None, Column("Ready", priority=1)] = None


class WebApp(
    Resource,
    group="example.org",
    version="v1",
    short_names=("wa",),
    categories=("all",),
    columns=(PrinterColumn(name="Image", json_path=".spec.image"),),
    scale=ScaleSubresource(),
):
    """A web application."""

    spec: WebAppSpec
    status: WebAppStatus = WebAppStatus()


def test_a_definition_holds_names_scope_subresources_and_columns():
    manifest = crd_manifest(WebApp)
    (version,) = manifest["spec"]["versions"]
    assert manifest["metadata"]["name"] == "webapps.example.org"
    assert manifest["spec"]["names"] == {
        "kind": "WebApp", "listKind": "WebAppList", "plural": "webapps", "singular": "webapp",
        "shortNames": ["wa"], "categories": ["all"],
    }  # fmt: skip
    assert version["subresources"] == {
        "status": {},
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
    }
    assert [
        (c["name"], c["type"], c["jsonPath"], c.get("priority", 0)) for c in version["additionalPrinterColumns"]
    ] == [
        ("Replicas", "integer", ".spec.replicas", 0),
        ("Ready", "integer", ".status.readyReplicas", 1),
        ("Image", "string", ".spec.image", 0),
        ("Age", "date", ".metadata.creationTimestamp", 0),
    ]


def test_docstrings_become_descriptions_and_rules_become_validations():
    schema = crd_manifest(WebApp)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"]
    assert schema["description"] == "A web application."
    assert spec["description"] == "What to run."
    assert spec["properties"]["image"]["description"] == "The image, with its tag."
    assert spec["x-kubernetes-validations"][0]["message"] == "only a paused app has no replicas"


def test_a_list_of_conditions_is_a_map_by_type_unless_declared_otherwise():
    class Status(Struct):
        plain: list[Condition] | None = None
        atomic: Annotated[list[Condition] | None, Atomic()] = None
        others: list[str] | None = None

    shown = {
        name: {key: value for key, value in node.items() if "list" in key}
        for name, node in schema_of(Status)["properties"].items()
    }
    assert shown == {
        "plain": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        "atomic": {"x-kubernetes-list-type": "atomic"},
        "others": {},
    }


def test_a_docstring_of_one_line_may_end_on_the_next():
    class Port(Struct):
        """A port.
        """  # fmt: skip

    assert schema_of(Port)["description"] == "A port."


class Part(Struct):
    """Of the class."""


class Parts(Struct):
    by_class: Part
    by_annotation: Annotated[Part, Description("Of the annotation.")]
    by_docstring: Annotated[Part, Description("Of the annotation.")]
    """Of the field."""


def test_a_description_is_the_nearest_text_that_was_written_for_the_field():
    shown = {name: node["description"] for name, node in schema_of(Parts)["properties"].items()}
    assert shown == {
        "byClass": "Of the class.",
        "byAnnotation": "Of the annotation.",
        "byDocstring": "Of the field.",
    }


def test_the_lines_of_a_paragraph_are_joined_and_lists_and_paragraphs_stay():
    class Spec(Struct):
        mode: str
        """How it is
        done.

        - fast
        - safe
        """

    assert schema_of(Spec)["properties"]["mode"]["description"] == "How it is done.\n\n- fast\n- safe"


def test_a_status_is_never_defaulted_by_the_server():
    schema = crd_manifest(WebApp)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert "default" not in schema["properties"]["status"]


def test_several_versions_are_served_and_the_last_one_is_stored():
    class Old(Resource, group="example.org", version="v1beta1", kind="WebApp", plural="webapps"):
        spec: WebAppSpec

    versions = crd_manifest(Old, WebApp)["spec"]["versions"]
    assert [(v["name"], v["served"], v["storage"]) for v in versions] == [("v1beta1", True, False), ("v1", True, True)]


def test_a_version_may_be_deprecated_with_and_without_a_text_and_no_longer_served():
    class First(Resource, group="example.org", version="v1alpha1", kind="WebApp", served=False):
        spec: WebAppSpec

    class Second(Resource, group="example.org", version="v1beta1", kind="WebApp", deprecated=True):
        spec: WebAppSpec

    class Third(Resource, group="example.org", version="v1beta2", kind="WebApp", deprecated="use v1"):
        spec: WebAppSpec

    shown = [
        {key: version[key] for key in ("name", "served", "deprecated", "deprecationWarning") if key in version}
        for version in crd_manifest(First, Second, Third, WebApp)["spec"]["versions"]
    ]
    assert shown == [
        {"name": "v1alpha1", "served": False},
        {"name": "v1beta1", "served": True, "deprecated": True},
        {"name": "v1beta2", "served": True, "deprecated": True, "deprecationWarning": "use v1"},
        {"name": "v1", "served": True},
    ]


class Placed(Struct):
    zone: Annotated[str | None, Selectable()] = None


class PlacedSpec(Struct):
    place: Placed | None = None
    volume: Annotated[str, Immutable(), Selectable(), Column("Volume")]
    others: list[Placed] | None = None


class Machine(Resource, group="example.org", version="v1"):
    spec: PlacedSpec


def test_selectable_fields_are_named_by_their_paths_and_never_inside_of_lists():
    (version,) = crd_manifest(Machine)["spec"]["versions"]
    assert version["selectableFields"] == [{"jsonPath": ".spec.place.zone"}, {"jsonPath": ".spec.volume"}]
    assert [column["name"] for column in version["additionalPrinterColumns"]] == ["Volume", "Age"]


def test_two_kinds_do_not_fit_into_one_definition():
    class Other(Resource, group="example.org", version="v1"):
        pass

    with pytest.raises(Exception, match="one definition holds one kind"):
        crd_manifest(Other, WebApp)


def test_a_definition_that_the_server_has_completed_is_not_a_drift():
    wanted, live = crd_manifest(WebApp), crd_manifest(WebApp)
    live["spec"]["conversion"] = {"strategy": "None"}
    live["status"] = {"conditions": []}
    assert drift(live, wanted) == []


def test_drift_names_the_place():
    wanted, live = crd_manifest(WebApp), crd_manifest(WebApp)
    properties = live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["replicas"]["minimum"] = 1
    del properties["paused"]
    properties["extra"] = {"type": "string"}
    path = "version v1: schema.openAPIV3Schema.properties.spec.properties"
    assert drift(live, wanted) == [
        f"{path}.replicas.minimum is 1, not 0",
        f"{path}.paused is missing",
        f"{path}.extra is not expected",
    ]


def test_a_missing_version_is_drift():
    wanted, live = crd_manifest(WebApp), crd_manifest(WebApp)
    live["spec"]["versions"][0]["name"] = "v0"
    assert drift(live, wanted) == ["version v1 is missing"]


def test_a_version_that_is_no_longer_served_is_drift():
    wanted, live = crd_manifest(WebApp), crd_manifest(WebApp)
    live["spec"]["versions"][0]["served"] = False
    assert drift(live, wanted) == ["version v1 is not served"]
