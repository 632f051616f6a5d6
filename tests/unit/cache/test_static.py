"""A static cache answers as the cache of a controller does."""

from __future__ import annotations

import pytest

from steersman.cache.static import StaticCache
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.selectors import Selector
from steersman.kube.api.types.core import ConfigMap, Secret


def config(name, namespace="shop", **labels):
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels), data={"mode": name})


CACHE = {ConfigMap: [config("b", tier="web"), config("a"), config("a", "bank", tier="web")]}


def names(objects):
    return [f"{obj.namespace}/{obj.name}" for obj in objects]


def test_objects_are_found_by_name_namespace_and_labels_in_order():
    found = StaticCache(CACHE)[ConfigMap]
    assert found.get(NamespacedName("a", "bank")).data == {"mode": "a"}
    assert found.get(NamespacedName("a", "nowhere")) is None
    assert names(found.list()) == names(found) == ["bank/a", "shop/a", "shop/b"]
    assert names(found.list(namespace="shop")) == ["shop/a", "shop/b"]
    assert names(found.list(selector=Selector.parse("tier=web"))) == ["bank/a", "shop/b"]
    assert len(found) == 3
    assert NamespacedName("b", "shop") in found


def test_an_index_is_built_when_it_is_first_read_and_follows_later_objects():
    cache = StaticCache(CACHE, indexes={"mode": lambda obj: [obj.data["mode"]], "of others": lambda obj: obj.nothing})
    assert names(cache[ConfigMap].by_index("mode", "a")) == ["bank/a", "shop/a"]
    cache.add(ConfigMap, config("a", "zoo"))
    assert names(cache[ConfigMap].by_index("mode", "a")) == ["bank/a", "shop/a", "zoo/a"]


def test_a_kind_that_was_not_given_is_empty_and_may_be_filled():
    cache = StaticCache()
    assert not cache[Secret].list()
    cache.add(Secret, Secret(metadata=ObjectMeta(name="s", namespace="shop")))
    assert names(cache[Secret]) == ["shop/s"]


def test_an_unknown_index_is_an_error_that_names_it():
    with pytest.raises(LookupError, match="'zone'"):
        StaticCache(CACHE)[ConfigMap].by_index("zone", "x")
