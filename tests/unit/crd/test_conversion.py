"""Objects in another version of their kind, by way of the hub."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

import steersman as sm
from steersman.crd.conversion import convert
from steersman.crd.partial_objects import decode_partial
from steersman.errors import ConfigError, SteersmanError
from steersman.runtime.webhook.conversion import ConversionWebhook
from tests.support.docs.pages import blocks_of


class Rope(sm.Resource, group="example.org", version="v2"):
    class Spec(sm.Struct):
        length: str
        strands: int = 3

    spec: Spec


class RopeV1(sm.Resource, group="example.org", version="v1", kind="Rope", hub=Rope):
    class Spec(sm.Struct):
        size: int
        strands: int = 3

    spec: Spec

    def convert_to(self) -> Rope:
        return Rope(spec=Rope.Spec(length=f"{self.spec.size}cm", strands=self.spec.strands))

    @classmethod
    def convert_from(cls, hub: Rope) -> RopeV1:
        return cls(spec=cls.Spec(size=int(hub.spec.length.removesuffix("cm")), strands=hub.spec.strands))


class RopeV1Beta1(sm.Resource, group="example.org", version="v1beta1", kind="Rope", hub=Rope):
    class Spec(sm.Struct):
        metres: float

    spec: Spec

    def convert_to(self) -> Any:
        return None if self.spec.metres < 0 else Rope(spec=Rope.Spec(length=f"{round(self.spec.metres * 100)}cm"))

    @classmethod
    def convert_from(cls, hub: Rope) -> RopeV1Beta1:
        made = cls(metadata=hub.metadata, spec=cls.Spec(metres=int(hub.spec.length.removesuffix("cm")) / 100))
        made.metadata.annotations = None
        return made


VERSIONS = [RopeV1Beta1, RopeV1, Rope]
META = {"name": "a", "namespace": "shop", "uid": "1", "managedFields": [{}], "annotations": {"x": "y"}}


def rope(version: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"example.org/{version}", "kind": "Rope", "metadata": META, "spec": spec}


@pytest.mark.parametrize(
    ("obj", "version", "spec"),
    [
        (rope("v1", size=7), "v2", {"length": "7cm", "strands": 3}),
        (rope("v2", length="7cm", strands=4), "v1", {"size": 7, "strands": 4}),
        (rope("v1beta1", metres=0.5), "v1", {"size": 50, "strands": 3}),
        (rope("v1", size=7), "v1", {"size": 7}),
    ],
)
def test_an_object_is_converted_by_way_of_the_hub_and_keeps_its_metadata(obj, version, spec):
    converted = convert(VERSIONS, obj, f"example.org/{version}")
    assert converted == {**rope(version, **spec), "metadata": META}


def test_a_conversion_that_passes_metadata_on_may_remove_annotations():
    metadata = convert(VERSIONS, rope("v2", length="5cm"), "example.org/v1beta1")["metadata"]
    assert metadata == {key: value for key, value in META.items() if key != "annotations"}


class Part(sm.Struct):
    name: str
    when: dt.datetime
    colour: Literal["red", "blue"]
    port: Annotated[int, sm.Ge(1)]


class Whole(sm.Resource, group="example.org", version="v1"):
    class Spec(sm.Struct):
        text: Annotated[str, sm.Pattern("^a+$")]
        part: Part
        parts: list[Part]
        optional: Part | None = None
        count: int = 3

    spec: Spec


def test_an_apply_has_objects_converted_that_lack_required_fields():
    """The API server asks for what one manager owns in the version of another manager."""
    owned = {"apiVersion": "example.org/v1", "kind": "Rope", "metadata": META}
    assert convert(VERSIONS, owned, "example.org/v2") == {**owned, "apiVersion": "example.org/v2"}
    assert convert(VERSIONS, {**owned, "spec": {}}, "example.org/v2")["spec"] == {"length": "0cm", "strands": 3}


def test_a_section_that_only_the_other_version_has_is_made():
    class Flat(sm.Resource, group="example.org", version="v0", kind="Rope", hub=Rope):
        size: int

        def convert_to(self) -> Rope:
            return Rope(spec=Rope.Spec(length=f"{self.size}cm"))

        @classmethod
        def convert_from(cls, hub: Rope) -> Any:
            return cls(size=int(hub.spec.length.removesuffix("cm")))

    flat = {"apiVersion": "example.org/v0", "kind": "Rope", "metadata": META, "size": 7}
    hub = convert([Flat, Rope], flat, "example.org/v2")
    assert hub == rope("v2", length="7cm")
    assert convert([Flat, Rope], hub, "example.org/v0") == flat


def test_a_missing_field_of_a_partial_object_is_empty_and_others_are_kept():
    when = "2026-01-02T03:04:05Z"
    spec = {"parts": [{"name": "x"}], "optional": {"when": when, "port": 0}}
    seen = decode_partial({"metadata": META, "spec": spec}, Whole).spec
    assert (seen.text, seen.count, seen.part.name, seen.part.when) == ("", 3, "", None)
    assert seen.part.colour in ("red", "blue")
    assert seen.parts[0].name == "x"
    assert (seen.optional.when, seen.optional.port) == (dt.datetime.fromisoformat(when), 0)


@pytest.mark.parametrize(
    ("obj", "version", "problem"),
    [
        (rope("v2", length="long"), "v1", "invalid literal for int() with base 10: 'long'"),
        (rope("v1", size="7"), "v2", "Expected `int`, got `str` - at `$.spec.size`"),
        (rope("v1beta1", metres=-1.0), "v2", "RopeV1Beta1.convert_to returned NoneType, not Rope"),
        (rope("v3"), "v2", "unknown version (known: example.org/v1, example.org/v1beta1, example.org/v2)"),
    ],
)
def test_an_error_names_the_object_and_the_reason(obj, version, problem):
    wanted = f"Rope shop/a from {obj['apiVersion']} to example.org/{version}: {problem}"
    with pytest.raises(sm.ConversionError, match=f"^{re.escape(wanted)}$"):
        convert(VERSIONS, obj, f"example.org/{version}")


def methods(**changes: Any) -> dict[str, Any]:
    return {"convert_to": lambda self: None, "convert_from": classmethod(lambda cls, hub: None), **changes}


async def asynchronous(self: Any) -> None:
    return None


@pytest.mark.parametrize(
    ("hub", "version", "members", "problem"),
    [
        (Rope, "v1", {}, "Spoke: a version with hub=Rope needs def convert_to"),
        (Rope, "v1", {"convert_to": lambda self: None}, "needs classmethod convert_from"),
        (Rope, "v1", methods(convert_to=asynchronous), "not async"),
        (Rope, "v2", methods(), "version v2 is that of its hub Rope"),
        (RopeV1, "v1", methods(), "has no hub itself"),
        (sm.Secret, "v1", methods(), "and its hub Secret .* are different kinds"),
    ],
)
def test_a_spoke_without_what_it_needs_is_refused_where_it_is_written(hub, version, members, problem):
    with pytest.raises(TypeError, match=problem):
        type(sm.Resource)("Spoke", (sm.Resource,), members, group="example.org", version=version, kind="Rope", hub=hub)


def reach(path: str) -> dict[str, Any]:
    return {"url": f"https://hooks.example.org{path}"}


def test_a_definition_names_the_webhook_and_stores_the_hub():
    spec = sm.crd_manifest(Rope, RopeV1, conversion=reach)["spec"]
    client = {"url": "https://hooks.example.org/convert/example.org/ropes"}
    assert spec["conversion"] == {
        "strategy": "Webhook",
        "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
    }
    assert {version["name"]: version["storage"] for version in spec["versions"]} == {"v1": False, "v2": True}


def test_another_version_is_stored_when_it_says_so():
    class RopeV0(RopeV1, group="example.org", version="v0", kind="Rope", hub=Rope, storage=True):
        pass

    versions = sm.crd_manifest(RopeV0, Rope, conversion=reach)["spec"]["versions"]
    assert {version["name"]: version["storage"] for version in versions} == {"v0": True, "v2": False}


@pytest.mark.parametrize(
    ("versions", "problem"),
    [
        ([RopeV1, Rope], r"Rope.example.org is converted by a webhook: crd_manifest\(…, conversion=…\)"),
        ([RopeV1, RopeV1Beta1], "by way of their hub: Rope is missing"),
    ],
)
def test_versions_that_would_lose_data_are_refused(versions, problem):
    with pytest.raises(SteersmanError, match=problem):
        sm.crd_manifest(*versions)


def test_a_conversion_without_a_hub_is_refused():
    with pytest.raises(ConfigError, match="versions: none of Rope names its hub"):
        ConversionWebhook(versions=[Rope])


@pytest.mark.parametrize("body", [b"", b"{}", b'{"request": {"uid": "1"}}'])
async def test_what_is_not_a_review_is_refused(body):
    with pytest.raises(ValueError, match="not a ConversionReview"):
        await ConversionWebhook(versions=VERSIONS).respond(body)


def test_the_example_of_the_documentation_works():
    page = Path(__file__).parents[3] / "docs" / "concepts" / "crds.md"
    (block,) = [block for block in blocks_of(page, page.parents[2]) if "hub=" in block.text]
    shown: dict[str, Any] = {"sm": sm}
    exec(compile(block.text, page, "exec", dont_inherit=True), shown)
    hub, spoke = shown["Site"], shown["SiteV1"]
    made = convert([spoke, hub], rope("v1", host="a.example.org") | {"kind": "Site"}, "example.org/v2")
    assert made["spec"] == {"hosts": ["a.example.org"]}
    made["spec"]["hosts"].append("b.example.org")
    older = convert([spoke, hub], made, "example.org/v1")
    assert older["spec"] == {"host": "a.example.org"}
    assert convert([spoke, hub], older, "example.org/v2") == made
