"""What `steersman crds --check` finds: fields without a text, and changes that break users of the last release."""

from __future__ import annotations

from copy import deepcopy
from typing import Annotated, Any, Literal

import pytest

from steersman.crd import (
    Description,
    Ge,
    Le,
    ListMap,
    MaxLength,
    ScaleSubresource,
    crd_manifest,
    incompatible_changes,
    undescribed,
)
from steersman.kube.api.objects import Resource, Struct


class Door(Struct):
    """A way in."""

    name: str
    """What it is called."""
    width: int = 90


class HouseSpec(Struct):
    """What to build."""

    address: Annotated[str, Description("Where it is."), MaxLength(100)]
    floors: Annotated[int, Ge(1), Le(9)] = 2
    colour: Literal["red", "blue"] = "red"
    """The walls."""
    note: str | None = None
    doors: Annotated[list[Door] | None, ListMap("name")] = None
    rooms: dict[str, Door] | None = None
    more: dict[str, Any] | None = None


class House(Resource, group="example.org", version="v1", scale=ScaleSubresource()):
    """A building."""

    spec: HouseSpec
    status: Door | None = None


def manifest() -> dict[str, Any]:
    return deepcopy(crd_manifest(House))


def spec_of(definition: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


def test_a_field_without_a_description_is_found_wherever_it_is():
    found = undescribed(manifest())
    assert [row.field for row in found] == [
        "spec.floors",
        "spec.note",
        "spec.doors",
        "spec.doors[].width",
        "spec.rooms",
        "spec.rooms.*.width",
        "spec.more",
        "status.width",
    ]
    assert {row.kind for row in found} == {"House v1"}
    assert "docstring below the field" in found[0].solution


def test_a_kind_without_a_description_is_found():
    class Bare(Resource, group="example.org", version="v1"):
        pass

    assert [(row.kind, row.field) for row in undescribed(crd_manifest(Bare))] == [("Bare v1", "")]


# How a definition changes -> the field and the problem that users of the earlier one have; None: none at all.
def replaced(name: str, **keywords: Any) -> Any:
    return lambda definition: spec_of(definition)["properties"][name].update(keywords)


def removed(name: str, keyword: str) -> Any:
    return lambda definition: spec_of(definition)["properties"][name].pop(keyword)


def version(**fields: Any) -> Any:
    return lambda definition: definition["spec"]["versions"][0].update(fields)


RULE = {"rule": "self.floors < 5", "message": "not so high"}
CHANGES: list[tuple[str, Any, str | None, str | None]] = [
    ("nothing", lambda _: None, None, None),
    ("a field goes", lambda d: spec_of(d)["properties"].pop("note"), "spec.note", "the field was removed"),
    ("a field comes", lambda d: spec_of(d)["properties"].update(new={"type": "string"}), None, None),
    ("another type", replaced("note", type="integer"), "spec.note", "the type changed from string to integer"),
    ("a map becomes an object", removed("rooms", "additionalProperties"), "spec.rooms",
     "the type changed from map to object"),
    ("now required", lambda d: spec_of(d)["required"].append("note"), "spec.note", "the field is now required"),
    ("required with a default", lambda d: spec_of(d)["required"].append("floors"), None, None),
    ("no longer required", lambda d: spec_of(d).update(required=[]), None, None),
    ("a lower maximum", replaced("floors", maximum=5), "spec.floors", "maximum is now 5"),
    ("a higher maximum", replaced("floors", maximum=20), None, None),
    ("a higher minimum", replaced("floors", minimum=2), "spec.floors", "minimum is now 2"),
    ("a minimum of 0", replaced("floors", minimum=0), None, None),
    ("an exclusive bound", replaced("floors", exclusiveMinimum=True), "spec.floors", "minimum no longer includes 1"),
    ("no bound", removed("floors", "maximum"), None, None),
    ("a first bound", replaced("note", maxLength=5), "spec.note", "maxLength is now 5"),
    ("a length of at least 0", replaced("note", minLength=0), None, None),
    ("a shorter text", replaced("address", maxLength=50), "spec.address", "maxLength is now 50"),
    ("a pattern", replaced("note", pattern="^a"), "spec.note", "pattern is now ^a"),
    ("a value less", replaced("colour", enum=["red"]), "spec.colour", "no longer accepts blue"),
    ("a value more", replaced("colour", enum=["red", "blue", "green"]), None, None),
    ("any value", removed("colour", "enum"), None, None),
    ("only some values", replaced("note", enum=["a"]), "spec.note", "accepts only a"),
    ("a format", replaced("note", format="date"), "spec.note", "the format is now date"),
    ("a narrower format", replaced("floors", format="int32"), "spec.floors", "the format is now int32"),
    ("another default", replaced("floors", default=3), "spec.floors", "the default changed from 2 to 3"),
    ("no default", removed("floors", "default"), "spec.floors", "the default changed from 2 to None"),
    ("a rule", lambda d: spec_of(d).update({"x-kubernetes-validations": [RULE]}), "spec",
     "has a new rule: not so high"),
    ("a combination", lambda d: spec_of(d).update(anyOf=[{"required": ["note"]}]), "spec", "anyOf has changed"),
    ("unknown fields dropped", removed("more", "x-kubernetes-preserve-unknown-fields"), "spec.more",
     "drops fields that the schema does not name"),
    ("another list type", replaced("doors", **{"x-kubernetes-list-type": "atomic"}), "spec.doors",
     "the list type changed from map to atomic"),
    ("other list keys", replaced("doors", **{"x-kubernetes-list-map-keys": ["width"]}), "spec.doors",
     "the list is now identified by width"),
    ("in a list", lambda d: spec_of(d)["properties"]["doors"]["items"]["properties"].pop("width"), "spec.doors[].width",
     "the field was removed"),
    ("in a map", lambda d: spec_of(d)["properties"]["rooms"]["additionalProperties"]["properties"].pop("width"),
     "spec.rooms.*.width", "the field was removed"),
    ("no longer served", version(served=False), "", "the version is no longer served"),
    ("another version", version(name="v2"), "", "the version was removed, and objects may be stored in it"),
    ("no scale", version(subresources={"status": {}}), "", "the subresource scale was removed"),
    ("another scope", lambda d: d["spec"].update(scope="Cluster"), "",
     "scope changed from Namespaced to Cluster, which API servers refuse"),
    ("another definition", lambda d: d["metadata"].update(name="homes.example.org"), "", "the kind was removed"),
    ("another text", replaced("note", description="Anything."), None, None),
]  # fmt: skip


@pytest.mark.parametrize(("change", "field", "problem"), [case[1:] for case in CHANGES], ids=[c[0] for c in CHANGES])
def test_a_change_is_incompatible_exactly_when_it_breaks_users_of_the_last_release(change, field, problem):
    now = manifest()
    change(now)
    found = incompatible_changes([manifest()], [now])
    assert [(row.field, row.problem) for row in found] == ([] if problem is None else [(field, problem)])
    assert all(row.solution and row.kind.startswith("House") for row in found)


def test_what_gets_wider_in_one_direction_is_narrower_in_the_other():
    now = manifest()
    spec_of(now)["properties"]["floors"].update(maximum=20)
    assert [row.problem for row in incompatible_changes([now], [manifest()])] == ["maximum is now 9"]


def test_a_version_that_was_deprecated_and_is_not_stored_may_go():
    class Old(Resource, group="example.org", version="v1beta1", kind="House", scale=ScaleSubresource()):
        """A building."""

        spec: HouseSpec

    earlier = crd_manifest(Old, House)
    assert [row.problem for row in incompatible_changes([earlier], [manifest()])] == ["the version is no longer served"]
    earlier["spec"]["versions"][0]["deprecated"] = True
    assert incompatible_changes([earlier], [manifest()]) == []


def test_a_field_that_can_no_longer_be_selected_is_found():
    earlier = manifest()
    earlier["spec"]["versions"][0]["selectableFields"] = [{"jsonPath": ".spec.colour"}]
    assert [(row.field, row.problem) for row in incompatible_changes([earlier], [manifest()])] == [
        ("spec.colour", "can no longer be used in field selectors")
    ]
