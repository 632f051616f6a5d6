"""Bad input of every kind at once: one Event and one count each, and nothing else is disturbed."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver
from prometheus_client import CollectorRegistry

from steersman.apiserver.http.faults import Fault
from steersman.kube.api.errors import NotFound
from steersman.kube.api.types import ConfigMap, Deployment, Event, Service
from steersman.operators.toolset.api.config import ConsumerNotifyConfig, HealthConfig, ToolsetSection
from steersman.operators.toolset.discovery.probe import Prober
from steersman.testing import eventually
from tests.support.toolset.services import running_toolset, service

NAME = "kubernaut-toolset-config"


class Loopback(AbstractResolver):
    """Every name is this machine, as a cluster's DNS would say of its Services."""

    async def resolve(self, host, port=0, family=socket.AF_INET):
        return [{"hostname": host, "host": "127.0.0.1", "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}]

    async def close(self):
        pass


@pytest.fixture
async def hostile():
    """A server that is well on one path, and harmful on others."""

    async def answer(request):
        match request.path:
            case "/loop":
                raise web.HTTPFound("/loop")
            case "/large":
                return web.Response(body=b"x" * 10_000_000)
            case "/slow":
                await asyncio.sleep(600)
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield runner.addresses[0][1]
    await runner.cleanup()


async def keys(client, namespace):
    return set((await client.get(ConfigMap, NAME, namespace=namespace)).data)


@pytest.mark.timeout(300)
async def test_bad_input_of_every_kind_is_reported_once_and_disturbs_nothing_else(cluster, client, namespace, hostile):
    asked = {"toolset": "true", "toolset-type": "loki"}
    bad = {
        "userinfo": {"toolset-endpoint": f"http://u:p@userinfo.{namespace}:80"},
        "fragment": {"toolset-endpoint": f"http://fragment.{namespace}:80/#x"},
        "template": {"toolset-endpoint": "http://evil/{{ env.OPENAI_API_KEY }}"},
        "elsewhere": {"toolset-endpoint": "http://evil.example:80"},
        "loop": {"toolset-health-path": "/loop"},
        "large": {"toolset-health-path": "/large"},
        "slow": {"toolset-health-path": "/slow"},
    }
    for name, row in bad.items():
        await client.create(service(name, namespace=namespace, annotations=asked | row, ports=[hostile]))
    await client.create(service("good", namespace=namespace, labels={"app": "loki"}, ports=[hostile]))
    long = "x" * 63
    await client.create(service(long, namespace=namespace, labels={"app": "loki"}, ports=[hostile]))
    await client.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": namespace},
            "data": {"overrides.yaml": "loki: {config: {a.b: 1}}\nnobody: {x: 1}\n"},
        }
    )
    registry = CollectorRegistry()
    section = ToolsetSection(
        namespace=namespace,
        namespaces=[namespace],
        health_check=HealthConfig(timeout="2s", interval="1s", attempts=1),
    )
    prober = Prober(resolver=Loopback, loopback=True)
    async with running_toolset(client, section, registry=registry, prober=prober) as manager:

        async def settled():
            found = await keys(client, namespace)
            return {"loki-toolset.yaml", f"loki-{namespace}-{long}-toolset.yaml"} <= found

        await eventually(settled, "the good ones are there", timeout=120)
        exactly = {"InvalidAnnotation": 3, "UntrustedEndpoint": 1, "UnmappableOverride": 2}
        asking = {"ServiceRedirected", "ServiceTooLarge", "ServiceTimeout"}  # a busy machine may time out on others too

        def counted():
            found: dict[str, float] = {}
            for family in registry.collect():
                for sample in family.samples:
                    if sample.name == "toolset_generation_failures_total":
                        reason = sample.labels["error_type"]
                        found[reason] = found.get(reason, 0) + sample.value
            return found

        await eventually(lambda: exactly.keys() | asking <= counted().keys(), "all are counted", timeout=120)
        looks, seen = manager.runner("toolset").tally.results, 0
        for number in range(3):  # looks that find all of it again
            seen = looks["requeue_after"]
            change = {"data": {"notes.txt": str(number)}}
            await client.patch(ConfigMap, NAME, change, namespace=namespace)
            await eventually(lambda seen=seen: looks["requeue_after"] > seen, timeout=90)
        assert exactly.items() <= counted().items()

        async def told():
            rows = (await client.list(Event, namespace=namespace)).items
            messages = [row.message for row in rows]
            assert all(any(f"/{name}:" in text for text in messages) for name in bad), messages
            return {row.reason for row in rows} >= exactly.keys() | asking

        await eventually(told, "an Event each", timeout=120)
        assert "OPENAI" not in str([event.message for event in (await client.list(Event, namespace=namespace)).items])
        found = await keys(client, namespace)
        assert len([key for key in found if key.startswith("loki")]) == 2


@pytest.mark.timeout(300)
async def test_a_list_that_fails_is_not_zero_services(embedded, client, namespace):
    """Also when it fails at the start, which ended the seed's loop for good."""
    section = ToolsetSection(namespace=namespace, namespaces=[namespace], health_check=HealthConfig(enabled=False))
    await client.create(service("loki", namespace=namespace, labels={"app": "loki"}, ports=[3100]))

    async def there():
        return "loki-toolset.yaml" in await keys(client, namespace)

    async with running_toolset(client, section):
        await eventually(there, timeout=90)
    embedded.faults.clear()
    for verb in ("list", "watch"):
        embedded.faults.add(Fault("error", verb=verb, resource="services", namespace=namespace))
    try:
        async with running_toolset(client, section) as manager:

            def complains():
                return any(problem for name, problem in manager.ready().items() if "services" in name)

            await eventually(complains, "readiness says so", timeout=90)
            assert await there()
            embedded.faults.clear()
            await client.create(service("tempo", namespace=namespace, labels={"app": "tempo"}, ports=[3200]))

            async def both():
                return {"loki-toolset.yaml", "tempo-toolset.yaml"} <= await keys(client, namespace)

            await eventually(both, timeout=120)
    finally:
        embedded.faults.clear()


@pytest.mark.timeout(300)
async def test_a_watch_that_expired_is_listed_again_and_nothing_is_missed(embedded, client, namespace):
    section = ToolsetSection(namespace=namespace, namespaces=[namespace], health_check=HealthConfig(enabled=False))
    async with running_toolset(client, section):
        for number in range(3):
            embedded.faults.add(Fault("expire", verb="create", resource="services", count=1))
            name = f"loki-{number}"
            await client.create(service(name, namespace=namespace, labels={"app": "loki"}, ports=[3100]))
        await client.delete(Service, "loki-1", namespace=namespace)

        async def settled():
            found = await keys(client, namespace)
            return len([key for key in found if key.startswith("loki")]) == 2

        try:
            await eventually(settled, timeout=120)
        finally:
            embedded.faults.clear()


@pytest.mark.timeout(300)
async def test_a_paused_configmap_that_is_deleted_stays_deleted(embedded, client, namespace):
    section = ToolsetSection(namespace=namespace, namespaces=[namespace], health_check=HealthConfig(enabled=False))
    async with running_toolset(client, section) as manager:
        await eventually(lambda: keys(client, namespace), timeout=90)
        patch = {"metadata": {"annotations": {"kubernaut.io/paused": "true"}}}
        await client.patch(ConfigMap, NAME, patch, namespace=namespace)
        tally = manager.runner("toolset").tally.results

        async def looked():
            before = tally["requeue_after"]
            await client.create(service(f"s{before}", namespace=namespace, labels={"app": "loki"}, ports=[3100]))
            await eventually(lambda: tally["requeue_after"] > before, timeout=90)

        await looked()
        await client.delete(ConfigMap, NAME, namespace=namespace)
        await looked()
        await looked()
        with pytest.raises(NotFound):
            await client.get(ConfigMap, NAME, namespace=namespace)


@pytest.mark.timeout(300)
async def test_a_call_that_one_process_could_not_make_is_made_by_the_next_and_only_once(embedded, client, namespace):
    answers, calls = [500], []

    async def reload(_request):
        calls.append(answers[-1])
        return web.Response(status=answers[-1])

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", reload)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    notify = ConsumerNotifyConfig(mode="reload", url=f"http://127.0.0.1:{runner.addresses[0][1]}/reload", delay="0s")
    common = {"namespace": namespace, "namespaces": [namespace], "health_check": HealthConfig(enabled=False)}
    section = ToolsetSection(**common, notify=notify)

    async def noted():
        found = await client.get(ConfigMap, NAME, namespace=namespace)
        return found.annotations.get("kubernaut.io/notified-hash")

    try:
        async with running_toolset(client, section):
            await eventually(lambda: calls, "it was tried", timeout=90)
        assert not await noted()
        answers.append(200)
        async with running_toolset(client, section):
            first = await eventually(noted, "it is written down", timeout=90)
        told = calls.count(200)
        async with running_toolset(client, section) as manager:
            looks = manager.runner("toolset").tally.results
            await eventually(lambda: looks["requeue_after"] >= 1, timeout=90)
            assert calls.count(200) == told == 1
            await client.create(service("loki", namespace=namespace, labels={"app": "loki"}, ports=[3100]))

            async def again():
                return await noted() != first

            await eventually(again, "a change is told", timeout=90)
        assert calls.count(200) == 2
    finally:
        await runner.cleanup()


@pytest.mark.timeout(300)
async def test_the_consumer_is_notified_by_a_call_or_by_its_template(embedded, client, namespace):
    called = asyncio.Event()

    async def reload(request):
        assert request.method == "POST"
        called.set()
        return web.json_response({})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", reload)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/api/admin/reload/toolsets"
    labels = {"app": "holmes"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "holmes:1"}]}}
    await client.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "holmes", "namespace": namespace},
            "spec": {"selector": {"matchLabels": labels}, "template": template, "replicas": 0},
        }
    )
    common = {"namespace": namespace, "namespaces": [namespace], "health_check": HealthConfig(enabled=False)}
    try:
        section = ToolsetSection(**common, notify=ConsumerNotifyConfig(mode="reload", url=url, delay="0s"))
        async with running_toolset(client, section):
            await asyncio.wait_for(called.wait(), 90)
        notify = ConsumerNotifyConfig(mode="template", deployment=f"{namespace}/holmes", delay="0s")
        async with running_toolset(client, ToolsetSection(**common, notify=notify)):

            async def hashed():
                found = await client.get(Deployment, "holmes", namespace=namespace)
                return (found.spec.template.metadata.annotations or {}).get("steersman.dev/toolset-hash")

            before = await eventually(hashed, timeout=90)
            await client.create(service("loki", namespace=namespace, labels={"app": "loki"}, ports=[3100]))

            async def other():
                return await hashed() != before

            await eventually(other, "a change rolls it", timeout=90)
    finally:
        await runner.cleanup()
