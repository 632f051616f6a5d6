"""Objects from types, and round trips between versions that lose something."""

from __future__ import annotations

import base64
import datetime as dt  # noqa: TC003  # resolved when the class is inspected
import enum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given, settings

import steersman as sm
from steersman.errors import ConfigError
from steersman.kube.api.objects import decode, to_wire
from steersman.testing import assert_round_trips, objects_of
from tests.support.docs.pages import blocks_of


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Port(sm.Struct):
    LIST_KEYS = ("name",)

    name: str
    number: Annotated[int, sm.Ge(1), sm.Le(65535)]


class Everything(sm.Resource, group="example.org", version="v1"):
    class Spec(sm.Struct):
        schedule: Annotated[str, sm.Pattern(r"^[a-z]+$"), sm.MaxLength(5)]
        step: Annotated[int, sm.Gt(0), sm.Lt(100), sm.MultipleOf(7)]
        share: Annotated[float, sm.Gt(0), sm.Le(1)] = 0.5
        mode: Literal["a", "b"] = "a"
        colour: Colour | None = None
        ports: list[Port] | None = None
        hosts: Annotated[list[str] | None, sm.ListSet()] = None
        names: Annotated[list[Port] | None, sm.ListMap("name")] = None
        secret: Annotated[str, sm.Format("byte")] = ""
        small: Annotated[int, sm.Format("int32")] = 0
        at: dt.datetime | None = None
        options: Annotated[dict[str, str], sm.MinLength(1)] | None = None
        anything: dict[str, Any] | None = None
        either: int | str = 0

    spec: Spec


@given(objects_of(Everything))
@settings(deadline=None)
def test_objects_are_what_their_definition_allows(obj):
    assert decode(msgspec.json.encode(to_wire(obj)), Everything) == obj  # msgspec checks bounds, patterns and enums
    spec = obj.spec
    base64.b64decode(spec.secret, validate=True)
    assert -(2**31) <= spec.small < 2**31
    for items in (spec.ports or [], spec.names or []):
        assert len({port.name for port in items}) == len(items)
    assert not spec.schedule.endswith("\n")


SORTS = [
    lambda obj: obj.spec.colour is Colour.BLUE,
    lambda obj: obj.spec.anything and obj.spec.ports,
    lambda obj: isinstance(obj.spec.either, str),
    lambda obj: obj.labels and not obj.annotations,
]


def test_objects_are_of_every_sort():
    seen = []

    @given(objects_of(Everything))
    @settings(deadline=None, max_examples=500, derandomize=True, database=None)
    def collect(obj):
        seen.append(tuple(bool(wanted(obj)) for wanted in SORTS))

    collect()
    assert [set(sort) for sort in zip(*seen, strict=True)] == [{True, False}] * len(SORTS)


def test_a_format_without_values_is_an_error_that_says_what_to_do():
    class Card(sm.Resource, group="example.org", version="v1"):
        number: Annotated[str, sm.Format("creditcard")]

    with pytest.raises(
        ConfigError, match=r"Card\.number: no values are known for the format creditcard: pass objects="
    ):
        objects_of(Card)


class Rope(sm.Resource, group="example.org", version="v2"):
    class Spec(sm.Struct):
        length: str
        colour: str | None = None

    spec: Spec


class RopeV1(sm.Resource, group="example.org", version="v1", kind="Rope", hub=Rope):
    class Spec(sm.Struct):
        size: int
        note: str | None = None

    spec: Spec

    def convert_to(self) -> Rope:
        return Rope(spec=Rope.Spec(length=f"{self.spec.size}cm"))

    @classmethod
    def convert_from(cls, hub: Rope) -> RopeV1:
        return cls(spec=cls.Spec(size=int(hub.spec.length.removesuffix("cm"))))


def test_a_conversion_that_loses_a_field_fails_with_the_field():
    with pytest.raises(AssertionError, match=r"RopeV1 → Rope → RopeV1: spec\.note is None, and was ''"):
        assert_round_trips(RopeV1)


def test_a_conversion_that_keeps_all_of_the_objects_in_question_passes():
    assert_round_trips(RopeV1, objects=objects_of(RopeV1).filter(lambda rope: rope.spec.note is None))


def test_a_conversion_that_raises_fails_with_the_object():
    strange = objects_of(Rope).filter(lambda rope: not rope.spec.length.removesuffix("cm").isdecimal())
    with pytest.raises(sm.ConversionError, match=r"Rope default/object from example\.org/v2 to example\.org/v1"):
        assert_round_trips(Rope, via=RopeV1, objects=strange)


def test_a_version_without_a_hub_needs_another_to_go_by():
    with pytest.raises(ConfigError, match="Rope has no hub: name a spoke, or the version to go by as via="):
        assert_round_trips(Rope)


def test_the_examples_of_the_documentation_work():
    docs = Path(__file__).parents[3] / "docs" / "concepts"
    shown: dict[str, Any] = {"sm": sm}
    for page, text in (("crds.md", "hub="), ("testing.md", "assert_round_trips")):
        (block,) = [block for block in blocks_of(docs / page, docs.parents[1]) if text in block.text]
        exec(compile(block.text, page, "exec", dont_inherit=True), shown)
    shown["test_a_site_of_v2_survives_v1"]()
    shown["test_a_site_of_v1_survives_the_hub"]()
