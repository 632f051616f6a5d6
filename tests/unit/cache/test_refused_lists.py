"""What a refused list means for `has_synced`: a controller must not start with an empty picture."""

from __future__ import annotations

import asyncio
import contextlib
import random
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from steersman.cache.informer import SharedInformer
from steersman.cache.metrics import CacheMetrics
from steersman.kube.api.errors import Forbidden
from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.testing.clock import settle


class Thing(Resource, group="example.org", version="v1"):
    pass


class Client:
    """A server that allows lists of some namespaces only; None is the whole cluster."""

    def __init__(self, *allowed):
        self.allowed = set(allowed)

    async def pages(self, _target, *, namespace, **_):
        if namespace not in self.allowed:
            raise Forbidden("things is forbidden", code=403)
        found = Thing(metadata=ObjectMeta(name="a", namespace="shop", uid="a", resource_version="3"))
        yield SimpleNamespace(items=[found], undecodable=[], resource_version="4")

    @contextlib.asynccontextmanager
    async def watch(self, _target, **_):
        yield self

    async def batch(self):
        await asyncio.Event().wait()


@pytest.fixture
async def running(clock):
    tasks = []

    async def run(client, **options):
        metrics = CacheMetrics(CollectorRegistry())
        made = SharedInformer(
            client, Thing, random=random.Random(1), metrics=metrics, clock=clock, streaming=False, **options
        )
        tasks.append(asyncio.create_task(made.run()))
        await settle()
        return made

    yield run
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_cluster_wide_list_that_is_refused_is_not_synced_until_it_is_allowed(running, clock):
    client = Client()
    informer = await running(client)
    assert not informer.has_synced()
    assert informer.health().refused
    client.allowed.add(None)
    await clock.advance(60)
    assert informer.has_synced()
    assert informer.health().objects == 1


async def test_one_refused_namespace_of_several_holds_nothing_up_and_is_named(running):
    informer = await running(Client("shop"), namespaces=["shop", "lab"])
    assert informer.has_synced()
    assert informer.health().unseen == {"lab"}


async def test_a_refused_list_is_synced_where_single_names_stand_in_for_it(running):
    assert (await running(Client(), by_name="refused")).has_synced()
