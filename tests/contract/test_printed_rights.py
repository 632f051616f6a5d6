"""The rights that `steersman rbac` prints suffice for a life of each operator, on the server that evaluates RBAC.

The toolset operator has tests of its own, which also take rules away.
"""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from steersman.apiserver import EmbeddedServer
from steersman.kube.api.errors import NotFound
from steersman.kube.api.types import Deployment, Pod, Service
from steersman.kube.client.client import Client
from steersman.kube.config.config import AuthInfo, Config
from steersman.operators import load_operator, permissions_of
from steersman.operators.dns.api.config import DnsOptions
from steersman.operators.dns.api.servers import Bind9Cluster
from steersman.operators.dns.controllers.setup import parts_of
from steersman.operators.hourglass.api.config import HourglassOptions
from steersman.operators.hourglass.api.types import Performer
from steersman.operators.hourglass.controllers.setup import controllers
from steersman.operators.reload.api.annotations import RESTARTED_FOR
from steersman.operators.reload.controllers.setup import parts
from steersman.runtime.manager.operator_bundle import OperatorBundle, RuntimeEnvironment
from steersman.testing import FastClock, client_as, eventually, running
from tests.support import hourglass
from tests.support.dns.zones import Site, install_crds
from tests.support.manifests import configmap, container, deployment

NAMESPACE = "default"
SPEED = 30  # quiet periods and backoffs of seconds pass in moments


async def reload_life(client):
    """A source changes and its workload is restarted."""
    env = [{"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "app", "key": "mode"}}}]
    pod = {"containers": [container() | {"env": env}]}
    await client.create(configmap("app", data={"mode": "a"}, namespace=NAMESPACE))
    annotations = {"steersman.dev/reload": "auto"}
    await client.create(deployment("web", pod_spec=pod, namespace=NAMESPACE, annotations=annotations))

    async def enrolled():
        return (await client.get(Deployment, "web", namespace=NAMESPACE)).metadata.annotations != annotations

    await eventually(enrolled, "the sources of the workload are recorded")
    await client.apply(configmap("app", data={"mode": "b"}, namespace=NAMESPACE), field_manager="test", force=True)

    async def restarted():
        found = await client.get(Deployment, "web", namespace=NAMESPACE)
        return RESTARTED_FOR in (found.spec.template.metadata.annotations or {})

    await eventually(restarted, "the workload is restarted")


async def hourglass_life(client):
    """A performer gets its pod and Service, and takes them with it; an executor runs."""
    await client.create(hourglass.performer("p", NAMESPACE))
    await hourglass.settle_pod(client, "performer-p", NAMESPACE)
    await hourglass.ready_performer(client, "p", NAMESPACE)
    await client.create(hourglass.executor("e", NAMESPACE))
    await eventually(lambda: client.get(Deployment, "e", namespace=NAMESPACE), "the executor has its Deployment")
    await client.delete(Performer, "p", namespace=NAMESPACE)
    await eventually(lambda: is_gone(client, Pod, "performer-p"), "the pod is gone")
    await eventually(lambda: is_gone(client, Service, "performer-p"), "the Service is gone")


async def dns_life(client):
    """A cluster becomes instances and what their pods need; a zone says that no server answers; the cluster goes."""
    site = Site(client, NAMESPACE, [])
    await site.apply("Bind9Cluster", "c", {"primary": {"replicas": 1}, "secondary": {"replicas": 1}})
    await eventually(lambda: client.get(Deployment, "c-secondary-0", namespace=NAMESPACE), "the instances have pods")
    await site.zone("example.org", clusterRef="c")
    await site.record("A", "www", ipv4Addresses=["192.0.2.1"])

    async def reported():
        return (await site.ready("DNSZone", "example.org"))[0] == "False"

    await eventually(reported, "the zone is not ready")
    await client.delete(Bind9Cluster, "c", namespace=NAMESPACE)
    await eventually(lambda: is_gone(client, Deployment, "c-primary-0"), "the pods are gone")


LIVES = {"dns": dns_life, "hourglass": hourglass_life, "reload": reload_life}


def bundle(name: str, clock: FastClock, registry: CollectorRegistry) -> OperatorBundle:
    match name:
        case "dns":
            return parts_of(DnsOptions(), home=NAMESPACE, clock=clock, registry=registry)
        case "hourglass":
            return OperatorBundle(controllers=controllers(HourglassOptions(), registry=registry))
    return parts(None, RuntimeEnvironment(clock=clock), registry=registry)


@pytest.mark.parametrize("name", LIVES)
async def test_the_printed_rights_suffice_for_a_life_of_the_operator(name):
    async with serving(name) as (server, client):
        for manifest in permissions_of([(load_operator(name), None)]).manifests(name, NAMESPACE):
            await client.create(manifest)
        server.requests.clear()
        clock, registry = FastClock(SPEED), CollectorRegistry()
        async with (
            client_as(server, name, namespace=NAMESPACE) as own,
            running(
                own,
                prepare=lambda manager: manager.include(name, bundle(name, clock, registry)),
                clock=clock,
                registry=registry,
            ),
        ):
            await LIVES[name](client)
        assert [entry.path for entry in server.requests if entry.status in {401, 403}] == []


@asynccontextmanager
async def serving(name):
    """A server with the kinds of an operator, and a client that may do everything."""
    async with EmbeddedServer(authorization="rbac") as server:
        config = Config(server=server.url, ca=server.ca_pem.encode(), auth=AuthInfo(token=server.token))
        async with Client.connect(config) as client:
            if name == "dns":
                await install_crds(client, server.url)
            if name == "hourglass":
                await hourglass.install(client)
            yield server, client


async def is_gone(client, kind, name):
    try:
        await client.get(kind, name, namespace=NAMESPACE)
    except NotFound:
        return True
    return False
