"""Copies of cached objects, and the detector that finds code which changes the originals."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec
import pytest

from steersman.cache import mutation_detector
from steersman.cache.copies import copy_of
from steersman.cache.mutation_detector import CacheMutated, check
from steersman.cache.store import ObjectStore
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta, Resource, Struct
from steersman.kube.api.types.core import Secret


class Part(Struct):
    size: int = 1


class Thing(Resource, group="example.org", version="v1"):
    data: dict[str, str] | None = None
    parts: list[Part] | None = None
    made: Any = None


def thing(name: str = "a", revision: str = "1", **fields: Any) -> Thing:
    return Thing(metadata=ObjectMeta(name=name, namespace="shop", uid=name, resource_version=revision), **fields)


def wire(name: str = "a") -> dict[str, Any]:
    return {"kind": "Thing", "metadata": {"name": name, "namespace": "shop", "resourceVersion": "1"}, "data": {}}


@pytest.fixture
def store() -> ObjectStore[Any]:
    return ObjectStore()


def test_the_detector_is_on_in_tests(store):
    assert os.environ[mutation_detector.ENABLED] == "true"
    assert mutation_detector.detector() is not None


def test_without_its_variable_there_is_no_detector(monkeypatch):
    monkeypatch.delenv(mutation_detector.ENABLED)
    assert mutation_detector.detector() is None


def test_a_change_of_a_cached_object_is_found_and_named_once(store):
    obj = thing(data={"password": "old"}, parts=[Part()])
    store.upsert(obj)
    check()
    obj.data["password"] = "very secret"
    obj.parts[0].size = 2
    with pytest.raises(CacheMutated, match=r"Thing shop/a \(data.password, parts\)") as caught:
        check()
    assert "very secret" not in str(caught.value)
    check()


def test_a_change_of_an_untyped_object_is_found(store):
    obj = wire()
    store.replace([obj], "1")
    obj["metadata"]["labels"] = {"a": "b"}
    with pytest.raises(CacheMutated, match=r"Thing shop/a \(metadata.labels\)"):
        check()


def test_a_change_before_an_object_is_replaced_or_removed_is_found(store):
    for leave in (lambda: store.upsert(thing(revision="2")), lambda: store.remove(thing(revision="2"))):
        store.upsert(obj := thing())
        obj.data = {"a": "b"}
        leave()
        with pytest.raises(CacheMutated, match=r"Thing shop/a \(data\)"):
            check()


def test_a_change_of_what_was_written_is_found(store):
    obj = thing(revision="5")
    store.record_write(obj)
    obj.data = {"a": "b"}
    with pytest.raises(CacheMutated):
        check()


def test_an_object_that_left_the_store_may_be_changed(store):
    obj = thing()
    store.upsert(obj)
    store.upsert(thing(revision="2"))
    obj.data = {"a": "b"}
    check()


def test_reading_and_writing_a_store_changes_no_object(store):
    store.replace([thing(), thing("b")], "1")
    store.upsert(thing(revision="2"))
    with store.snapshot() as snapshot:
        snapshot.record_write(thing("b", "3"))
        assert snapshot.get(NamespacedName("a", "shop")) is not None
    store.progress("9")
    check()


@pytest.mark.parametrize(
    "obj",
    [
        thing(data={"a": "b"}, parts=[Part(), Part(size=3)]),
        wire(),
        Secret(metadata=ObjectMeta(name="a"), data={"key": b"\x00\xff"}),
    ],
    ids=["typed", "untyped", "bytes"],
)
def test_a_copy_is_equal_and_shares_nothing_that_can_be_changed(obj):
    copied = copy_of(obj)
    assert copied == obj
    assert type(copied) is type(obj)
    if isinstance(obj, dict):
        assert copied["metadata"] is not obj["metadata"]
    else:
        assert copied.metadata is not obj.metadata
        assert copied.data is not obj.data


def test_a_copy_of_what_is_not_json_is_made_too():
    obj = thing(made=[object, {1, 2}])
    copied = copy_of(obj)
    assert copied == obj
    assert copied.made is not obj.made


def test_an_object_that_was_decoded_can_be_copied_however_deep_the_stack_of_its_reader_is():
    deep: Any = 1
    for _ in range(sys.getrecursionlimit() - 150):
        deep = [deep]
    obj = thing(made=deep)

    def below(levels):
        return copy_of(obj) if not levels else below(levels - 1)

    copied = below(140)
    assert copied.made is not obj.made
    assert msgspec.json.encode(copied) == msgspec.json.encode(obj)
