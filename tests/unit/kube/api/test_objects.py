from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from msgspec import field

from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import (
    ObjectMeta,
    OwnerReference,
    PartialObjectMetadata,
    Resource,
    Struct,
    decode,
    encode,
    owner_reference,
    to_wire,
)


class Part(Struct):
    size: int = 0


class Gadget(Resource, group="example.org", version="v1"):
    part: Part = field(default_factory=Part)
    parts: list[Part] = field(default_factory=list)
    other: Part | None = None


def test_an_object_without_labels_and_annotations_has_empty_ones_for_reading() -> None:
    bare = Gadget(metadata=ObjectMeta(name="a"))
    assert bare.labels == {}
    assert bare.annotations == {}
    bare.labels["x"] = "y"
    assert bare.labels == {}
    full = Gadget(metadata=ObjectMeta(labels={"a": "b"}, annotations={"c": "d"}))
    assert (full.labels, full.annotations) == ({"a": "b"}, {"c": "d"})


def test_an_object_knows_when_it_was_created_and_whether_it_is_on_its_way_out() -> None:
    assert Gadget().created is None
    assert not Gadget().deleting
    gadget = decode(
        b'{"metadata": {"creationTimestamp": "2024-02-29T12:00:00Z", "deletionTimestamp": "2024-03-01T12:00:00Z"}}',
        Gadget,
    )
    assert gadget.created == datetime(2024, 2, 29, 12, tzinfo=UTC)
    assert gadget.deleting


def test_an_owner_reference_names_the_owner_and_makes_it_the_controller() -> None:
    owner = Gadget(metadata=ObjectMeta(name="web", namespace="shop", uid="u-1"))
    reference = owner_reference(owner)
    assert msgspec.to_builtins(reference) == {
        "apiVersion": "example.org/v1",
        "kind": "Gadget",
        "name": "web",
        "uid": "u-1",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    plain = owner_reference(owner, controller=False, block_deletion=False)
    assert "controller" not in msgspec.to_builtins(plain)
    child = Gadget(metadata=ObjectMeta(owner_references=[plain, reference]))
    assert child.controller is reference
    assert Gadget(metadata=ObjectMeta(owner_references=[plain])).controller is None
    assert Gadget().controller is None


def test_only_a_stored_object_can_own() -> None:
    with pytest.raises(ValueError, match=r"Gadget\.example\.org shop/web has no uid"):
        owner_reference(Gadget(metadata=ObjectMeta(name="web", namespace="shop")))


def test_fields_an_owner_reference_needs_are_required() -> None:
    with pytest.raises(TypeError, match="uid"):
        OwnerReference(api_version="v1", kind="Pod", name="x")  # type: ignore[call-arg]  # what is tested


def test_the_wire_form_carries_kind_and_version_and_no_part_that_was_not_set() -> None:
    assert to_wire(Gadget(metadata=ObjectMeta(name="a"))) == {
        "apiVersion": "example.org/v1",
        "kind": "Gadget",
        "metadata": {"name": "a"},
    }
    assert to_wire(Gadget())["kind"] == "Gadget"
    gadget = Gadget(part=Part(size=1), parts=[Part(), Part(size=2)], other=Part())
    assert msgspec.json.decode(encode(gadget)) == {
        "apiVersion": "example.org/v1",
        "kind": "Gadget",
        "part": {"size": 1},
        "parts": [{}, {"size": 2}],
        "other": {},
    }


def test_a_plain_dict_is_encoded_as_it_is() -> None:
    assert encode({"kind": "X", "a": None}) == b'{"kind":"X","a":null}'


def test_unknown_fields_are_skipped_and_kind_and_version_need_not_be_there() -> None:
    meta = decode(b'{"metadata": {"name": "a", "namespace": "b", "selfLink": "x"}, "spec": 1}', PartialObjectMetadata)
    assert meta.ref == NamespacedName("a", "b")
    assert (meta.name, meta.namespace) == ("a", "b")
