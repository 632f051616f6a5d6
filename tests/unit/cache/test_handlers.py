"""Who is told what: handlers that come and go while a list is being told."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from steersman.cache.factory import SharedInformerFactory
from steersman.cache.informer import SharedInformer
from steersman.cache.metrics import CacheMetrics
from steersman.kube.api.errors import Forbidden
from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.kube.client.codec import DecodeFailure


class Thing(Resource, group="example.org", version="v1"):
    note: str = ""


def thing(name: str, revision: int = 1) -> Thing:
    return Thing(metadata=ObjectMeta(name=name, namespace="shop", uid=name, resource_version=str(revision)))


@pytest.fixture
def informer() -> SharedInformer[Thing]:
    client: Any = SimpleNamespace()
    return SharedInformer(client, Thing, random=random.Random(1), metrics=CacheMetrics(CollectorRegistry()))


async def test_a_handler_that_joins_while_the_first_list_is_told_hears_of_every_object_once(informer):
    sink, first, second = informer._scopes[None]._sink, [], []

    def joining(old, new, initial):
        first.append(new.name)
        if len(first) == 3:
            informer.add_handler(lambda old, new, initial: second.append((new.name, initial)))

    informer.add_handler(joining)
    names = [f"n{number:04}" for number in range(1200)]
    await sink.replace([thing(name) for name in names], "9", ())
    sink.upsert([thing("late", 10)])
    assert first == [*names, "late"]
    assert sorted(second) == [("late", False), *((name, True) for name in names)]


async def test_a_handler_that_leaves_while_a_list_is_told_hears_no_more(informer):
    sink, seen = informer._scopes[None]._sink, []
    subscription = informer.add_handler(lambda old, new, initial: seen.append(new.name))
    others = []
    informer.add_handler(lambda old, new, initial: others.append(new.name))
    telling = asyncio.create_task(sink.replace([thing(f"n{number:04}") for number in range(1200)], "9", ()))
    await asyncio.sleep(0)  # as far as the first breath
    subscription.remove()
    await telling
    assert 0 < len(seen) < 1200
    assert len(others) == 1200


async def test_a_handler_that_joins_among_changes_hears_of_none_it_has_been_shown(informer):
    sink, first, second = informer._scopes[None]._sink, [], []

    def joining(old, new, initial):
        first.append((old and old.metadata.resource_version, new.metadata.resource_version))
        if len(first) == 1:
            informer.add_handler(lambda old, new, initial: second.append((new.metadata.resource_version, initial)))

    informer.add_handler(joining)
    sink.upsert([thing("a", 1), thing("a", 2)])
    sink.upsert([thing("a", 3)])
    assert first == [(None, "1"), ("1", "2"), ("2", "3")]
    assert second == [("2", True), ("3", False)]


async def test_a_handler_that_leaves_among_changes_hears_no_more(informer):
    sink, seen, others = informer._scopes[None]._sink, [], []

    def leaving(old, new, initial):
        seen.append(new.name)
        subscription.remove()

    subscription = informer.add_handler(leaving)
    informer.add_handler(lambda old, new, initial: others.append(new.name))
    sink.upsert([thing("a"), thing("b")])
    assert seen == ["a"]
    assert others == ["a", "b"]


async def test_a_handler_that_fails_hears_of_the_next_change_all_the_same(informer):
    sink, seen, others = informer._scopes[None]._sink, [], []

    def failing(old, new, initial):
        seen.append(new.name)
        raise LookupError("no")

    informer.add_handler(failing)
    informer.add_handler(lambda old, new, initial: others.append(new.name))
    sink.upsert([thing("a"), thing("b")])
    assert seen == others == ["a", "b"]


@pytest.mark.parametrize(("refused", "partial"), [("", False), ("a", True), ("ab", False)])
def test_a_source_is_down_when_all_its_namespaces_are(refused, partial):
    client: Any = SimpleNamespace()
    metrics = CacheMetrics(CollectorRegistry())
    informer = SharedInformer(client, Thing, namespaces=["a", "b"], random=random.Random(1), metrics=metrics)
    for namespace in refused:
        informer._scopes[namespace].status.error = Forbidden("no", code=403)
    assert (informer.health().problem is not None, informer.health().partial) == (bool(refused), partial)


async def test_an_unreadable_object_that_vanished_while_nobody_watched_is_no_problem_any_more(informer):
    project, sink = informer._scopes[None]._project, informer._scopes[None]._sink
    for name in ("gone", "still"):
        assert project([DecodeFailure(ObjectMeta(name=name, namespace="shop"), "odd")]) == [None]
    still = thing("still").ref
    await sink.replace([], "9", {still, thing("gone").ref})
    assert "shop/gone left out" in informer.health().problem
    await sink.replace([], "12", {still})
    assert "shop/gone" not in informer.health().problem
    assert "shop/still left out" in informer.health().problem
    assert informer.health().partial


def test_sources_of_the_same_objects_have_names_of_their_own():
    class Slim(Resource, group="example.org", version="v1", kind="Thing"):
        pass

    client: Any = SimpleNamespace()
    registry = CollectorRegistry()
    pool = SharedInformerFactory(client, registry=registry)
    targets: list[Any] = [
        (Thing, None),
        (Slim, None),
        (Slim, lambda obj: obj),
        (Slim, lambda obj: obj),
        (Thing.KIND, None),
    ]
    names = [pool.informer(target, transform=transform).name for target, transform in targets]
    plain = "things.example.org"
    assert names == [plain, f"{plain} as Slim", f"{plain} as Slim 2", f"{plain} as Slim 3", f"{plain} as dict"]
    for name in names:
        assert registry.get_sample_value("steersman_cache_objects", {"cluster": "", "source": name}) == 0


async def test_a_list_whose_telling_is_cancelled_is_told_to_its_end(informer):
    sink, seen = informer._scopes[None]._sink, []
    informer.add_handler(lambda old, new, initial: seen.append(new.name))
    names = [f"n{number:04}" for number in range(1200)]
    telling = asyncio.create_task(sink.replace([thing(name) for name in names], "9", ()))
    await asyncio.sleep(0)  # as far as the first breath
    assert 0 < len(seen) < 1200
    telling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await telling
    assert seen == names  # the store has them all, so a later list would not tell of them again
