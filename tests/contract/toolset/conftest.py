"""A namespace with a target in it, on both servers."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from steersman.kube.api.errors import NotFound
from steersman.kube.api.types import ConfigMap, Event, Service
from steersman.operators.toolset.api.config import HealthConfig, ToolsetSection
from steersman.operators.toolset.api.crd import TargetConfigMap, with_key_owners
from steersman.testing import eventually
from tests.support.toolset.services import running_toolset, service

NAME = "kubernaut-toolset-config"
UNPROBED = HealthConfig(enabled=False, empty_after="0s")


class Site:
    """A namespace with a target in it, and an operator that can be started and stopped."""

    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace
        self.registry = CollectorRegistry()

    @asynccontextmanager
    async def running(self, **section):
        self.registry = CollectorRegistry()
        options = {
            "namespace": self.namespace,
            "namespaces": [self.namespace],
            "health_check": UNPROBED,
            **section,
        }
        async with running_toolset(self.client, ToolsetSection(**options), registry=self.registry) as manager:
            yield manager

    async def add(self, name, **options):
        return await self.client.create(service(name, namespace=self.namespace, **options))

    async def remove(self, name):
        await self.client.delete(Service, name, namespace=self.namespace)

    async def target(self, name=NAME):
        return with_key_owners(await self.client.get(TargetConfigMap, name, namespace=self.namespace))

    async def data(self, name=NAME):
        return (await self.target(name)).data or {}

    async def has(self, *keys, without=(), name=NAME):
        async def fact():
            data = await self.data(name)
            return data if {*keys} <= data.keys() and not {*without} & data.keys() else None

        return await eventually(fact, f"{keys} are there and {without} are not", timeout=90)

    async def patch(self, patch, name=NAME, manager="somebody"):
        await self.client.patch(ConfigMap, name, patch, namespace=self.namespace, field_manager=manager)

    async def events(self):
        return {event.reason for event in (await self.client.list(Event, namespace=self.namespace)).items}

    async def told(self, reason):
        async def fact():
            return reason in await self.events()

        await eventually(fact, f"an Event {reason}", timeout=90)

    def count(self, name, **labels):
        return self.registry.get_sample_value(name, labels) or 0

    async def is_gone(self, name):
        try:
            await self.target(name)
        except NotFound:
            return True
        return False

    async def counted(self, name, **labels):
        """Counters move after the write they count."""
        await eventually(lambda: self.count(name, **labels) >= 1, f"{name} {labels} is counted", timeout=90)

    def host(self, name, port=9090):
        return f"http://{name}.{self.namespace}.svc.cluster.local:{port}"


@pytest.fixture
def site(cluster, client, namespace):
    return Site(client, namespace)
