"""Controllers on virtual time against servers that know nothing of it."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry

import steersman as sm
from steersman.kube.api.types import ConfigMap
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.testing import FaultProxy, eventually, running

pytestmark = pytest.mark.timeout(120)


def controller(namespace, reconcile):
    return sm.Controller(ConfigMap, reconcile, name="maps").within([namespace])


async def done(_ctx, _obj):
    return sm.done


@pytest.fixture
async def road(cluster, tmp_path):
    """A client that reaches the server through a proxy, and the proxy."""
    address = urlsplit(cluster.url)
    async with FaultProxy(address.hostname, address.port) as proxy:
        (tmp_path / "proxied").write_text(cluster.kubeconfig().replace(address.netloc, proxy.address))
        async with Client.connect(load_config(tmp_path / "proxied")) as through:
            yield through, proxy


async def test_a_server_that_is_away_at_first_is_asked_again_although_virtual_time_stands_still(road, namespace, clock):
    through, proxy = road
    proxy.refuse()

    async def come_back():
        await eventually(lambda: proxy.accepted)
        proxy.accept()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(come_back())
        async with running(through, controller(namespace, done), clock=clock):
            pass


async def test_hours_of_virtual_time_replace_no_watch(cluster, client, namespace, clock):
    registry = CollectorRegistry()
    async with running(client, controller(namespace, done), clock=clock, registry=registry):
        for _ in range(24):
            await clock.advance(3600)
    found = {sample.name: sample.value for metric in registry.collect() for sample in metric.samples}
    assert found["steersman_cache_watch_stale_total"] == 0
    assert found["steersman_cache_watches_total"] == 1


async def test_a_session_that_does_not_begin_says_what_it_waits_for(road, namespace, clock):
    through, proxy = road
    proxy.refuse()
    with pytest.raises(AssertionError, match=r"not at work within 1 s: source configmaps .*"):
        async with running(through, controller(namespace, done), clock=clock, timeout=1.0):
            pass


async def test_a_session_whose_reconcile_waits_for_virtual_time_ends_and_says_so(cluster, client, namespace, clock):
    started = asyncio.Event()

    async def waits(ctx, _obj):
        started.set()
        await ctx.clock.sleep(3600)
        return sm.done

    with pytest.raises(AssertionError, match="not stopped within 1 s: maps reconciles 1"):
        async with running(client, controller(namespace, waits), clock=clock, timeout=1.0):
            await started.wait()
