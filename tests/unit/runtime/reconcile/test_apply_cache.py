from __future__ import annotations

from typing import Any

import pytest

from steersman.kube.api.gvk import Kind, NamespacedName
from steersman.kube.api.objects import ObjectMeta, OwnerReference, Resource
from steersman.runtime.reconcile.apply_cache import ApplyCache, digest, fingerprint

REF = NamespacedName("web", "shop")


class Deployment(Resource, group="apps", version="v1"):
    pass


class ConfigMap(Resource, version="v1"):
    data: dict[str, str] | None = None


class PriorityClass(Resource, group="scheduling.k8s.io", version="v1", plural="priorityclasses", namespaced=False):
    pass


class App(Resource, group="example.org", version="v1"):
    pass


def live(cls: type[Resource], **meta: Any) -> Any:
    fields = {"name": "web", "namespace": "shop", "uid": "u1", "resource_version": "7", "generation": 1, **meta}
    return cls(metadata=ObjectMeta(**fields))


DRIFT: list[dict[str, Any]] = [
    {"uid": "u2"},
    {"generation": 2},
    {"labels": {"a": "b"}},
    {"annotations": {"a": "b"}},
    {"finalizers": ["x/y"]},
    {"owner_references": [OwnerReference(api_version="v1", kind="Pod", name="p", uid="u")]},
    {"deletion_timestamp": "2026-01-01T00:00:00Z"},
]


@pytest.mark.parametrize("cls", [Deployment, App])
@pytest.mark.parametrize("drift", DRIFT, ids=lambda drift: next(iter(drift)))
def test_any_change_that_an_apply_could_undo_is_noticed(cls: type[Resource], drift: dict[str, Any]) -> None:
    assert fingerprint(cls.KIND, live(cls)) != fingerprint(cls.KIND, live(cls, **drift))


@pytest.mark.parametrize("cls", [Deployment, App])
def test_a_change_of_the_status_alone_is_none_for_kinds_whose_generation_counts(cls: type[Resource]) -> None:
    assert fingerprint(cls.KIND, live(cls)) == fingerprint(cls.KIND, live(cls, resource_version="8"))


@pytest.mark.parametrize("cls", [ConfigMap, PriorityClass])
def test_kinds_whose_generation_says_nothing_go_by_their_resource_version(cls: type[Resource]) -> None:
    assert fingerprint(cls.KIND, live(cls)) != fingerprint(cls.KIND, live(cls, resource_version="8"))


def test_an_apply_is_current_while_config_and_object_are_the_same() -> None:
    memory = ApplyCache()
    one, two = digest(ConfigMap(data={"a": "1"})), digest(ConfigMap(data={"a": "2"}))
    obj = live(ConfigMap)
    assert not memory.is_current("m", ConfigMap.KIND, REF, one, obj)
    memory.remember("m", ConfigMap.KIND, REF, one, obj)
    assert memory.is_current("m", ConfigMap.KIND, REF, one, obj)
    assert not memory.is_current("m", ConfigMap.KIND, REF, two, obj)
    assert not memory.is_current("other manager", ConfigMap.KIND, REF, one, obj)
    assert not memory.is_current("m", ConfigMap.KIND, REF, one, live(ConfigMap, resource_version="8"))
    memory.forget("m", ConfigMap.KIND, REF)
    assert not memory.is_current("m", ConfigMap.KIND, REF, one, obj)


def test_a_digest_does_not_depend_on_the_order_of_keys_or_the_form() -> None:
    one = ConfigMap(metadata=ObjectMeta(name="x"), data={"a": "1", "b": "2"})
    other = {
        "data": {"b": "2", "a": "1"},
        "metadata": {"name": "x"},
        "kind": "ConfigMap",
        "apiVersion": "v1",
    }
    assert digest(one) == digest(other)


def test_plain_dicts_have_the_same_fingerprint_as_structs() -> None:
    from steersman.kube.api.objects import to_wire

    kind = Kind(group="apps", version="v1", kind="Deployment", plural="deployments")
    obj = live(Deployment, labels={"a": "b"})
    assert fingerprint(kind, obj) == fingerprint(kind, to_wire(obj))


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steersman.runtime.reconcile.apply_cache._ENTRIES", 3)
    memory = ApplyCache()
    for number in range(10):
        memory.remember("m", ConfigMap.KIND, NamespacedName(str(number)), b"", live(ConfigMap))
    assert len(memory) == 3
