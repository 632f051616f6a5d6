"""What the toolset operator does when it may not, or cannot, list what it looks at: what was known stays in force."""

from __future__ import annotations

from contextlib import asynccontextmanager

import msgspec
import pytest

from steersman.apiserver.http.faults import Fault
from steersman.kube.api.types import ConfigMap, Event, Service
from steersman.kube.api.types.rbac import RoleBinding
from steersman.kube.client.client import Client
from steersman.kube.config.config import AuthInfo, Config
from steersman.operators.toolset.api.config import HealthConfig, ToolsetSection
from steersman.operators.toolset.reconcile.rbac import rules
from steersman.testing import FaultProxy, eventually
from steersman.testing.raw_api import RawApi, ssl_context
from steersman.testing.service_accounts import make_service_account
from tests.support.toolset.services import running_toolset, service

pytestmark = pytest.mark.timeout(300)
NAME = "kubernaut-toolset-config"
RBAC = "rbac.authorization.k8s.io"


class Pair:
    """Two namespaces that are looked at; the target is in the first."""

    def __init__(self, client, first, second):
        self.client, self.first, self.second = client, first, second

    @property
    def section(self):
        return ToolsetSection(
            namespace=self.first,
            namespaces=[self.first, self.second],
            health_check=HealthConfig(enabled=False),
        )

    async def add(self, name, namespace, **labels):
        await self.client.create(service(name, namespace=namespace, labels=labels, ports=[3100]))

    async def holds(self, *types):
        """Wait until the ConfigMap has the toolsets of exactly these types."""

        async def fact():
            data = (await self.client.get(ConfigMap, NAME, namespace=self.first)).data or {}
            found = {key.removesuffix("-toolset.yaml") for key in data if key.endswith("-toolset.yaml")}
            assert found == {"kubernetes", *types}, found
            return data

        return await eventually(fact, f"exactly {types}", timeout=90)

    async def told(self):
        async def fact():
            rows = (await self.client.list(Event, namespace=self.first)).items
            return [row.message for row in rows if row.reason == "ListFailed"]

        return await eventually(fact, "an Event says what cannot be listed", timeout=90)


@pytest.fixture
async def pair(client, namespace):
    second = f"{namespace}-b"
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": second}})
    return Pair(client, namespace, second)


@asynccontextmanager
async def through(proxy, server, token):
    """A client that goes through a proxy."""
    ca = server.ca_pem.encode()
    config = Config(server=f"https://{proxy.address}", ca=ca, auth=AuthInfo(token=token))
    async with Client.connect(config) as client:
        yield client


def proxy_to(server):
    host, _, port = server.url.removeprefix("https://").rpartition(":")
    return FaultProxy(host, int(port))


async def bind(client, account, namespace, home):
    """Let an account do in a namespace what the operator needs; returns nothing, takes effect when it does."""
    meta = {"name": "toolset-reader", "namespace": namespace}
    wire = [msgspec.to_builtins(rule) for rule in rules(ToolsetSection(namespace=home))]
    await client.apply(
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": meta, "rules": wire}, field_manager="test"
    )
    await client.apply(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": meta["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": home}],
        },
        field_manager="test",
    )


async def may_list(client, account, namespace, home):
    attributes = {"verb": "list", "resource": "services", "namespace": namespace}
    spec = {"user": f"system:serviceaccount:{home}:{account}", "resourceAttributes": attributes}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = await client.raw_post("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    return answer["status"].get("allowed", False)


async def test_rights_that_are_taken_away_stop_one_namespace_and_no_other(cluster, pair):
    """403 on LIST, of a process that has seen the namespace, and of one that never has."""
    client, first, second = pair.client, pair.first, pair.second
    trust = ssl_context(cluster.ca_pem)
    async with RawApi(cluster.url, token=cluster.token, ssl_context=trust, user_agent="test") as api:
        token = await make_service_account(api, "toolset", [], namespace=first)

    async def granted(namespace, wanted):
        async def fact():
            return await may_list(client, "toolset", namespace, first) is wanted

        await eventually(fact, timeout=90)

    for namespace in (first, second):
        await bind(client, "toolset", namespace, first)
        await granted(namespace, True)
    await pair.add("loki", first, app="loki")
    await pair.add("tempo", second, app="tempo")
    async with proxy_to(cluster) as proxy, through(proxy, cluster, token) as limited:
        async with running_toolset(limited, pair.section):
            await pair.holds("loki", "tempo")
            await client.delete(RoleBinding, "toolset-reader", namespace=second)
            await granted(second, False)
            await proxy.cut()  # a watch that is open stays allowed; the next one is not
            await pair.add("pyroscope", first, app="pyroscope")
            await pair.holds("loki", "tempo", "pyroscope")

            async def reported():
                return any("services" in text for text in await pair.told())

            await eventually(reported, "an Event names what may not be listed", timeout=90)
        async with running_toolset(limited, pair.section) as manager:
            await client.delete(Service, "pyroscope", namespace=first)
            await pair.holds("loki", "tempo")
            told = [text for text in manager.warnings() if "services" in text]  # the other namespace works
            assert any(second in text.partition(": ")[2] for text in told), told

            async def named():
                return any(second in text for text in await pair.told())

            await eventually(named, "the Event names the namespace", timeout=90)
            await client.delete(Service, "tempo", namespace=second)
            await bind(client, "toolset", second, first)
            await pair.holds("loki")  # what is gone goes when it can be seen


async def test_a_server_that_cannot_list_a_namespace_stops_no_other(embedded, pair):
    """500 on LIST and WATCH, of a process that has seen the namespace."""
    await pair.add("loki", pair.first, app="loki")
    await pair.add("tempo", pair.second, app="tempo")
    embedded.faults.clear()
    async with (
        proxy_to(embedded) as proxy,
        through(proxy, embedded, embedded.token) as proxied,
        running_toolset(proxied, pair.section) as manager,
    ):
        await pair.holds("loki", "tempo")
        for verb in ("list", "watch"):
            embedded.faults.add(Fault("error", verb=verb, resource="services", namespace=pair.second))
        try:
            await proxy.cut()
            await eventually(
                lambda: any(problem for name, problem in manager.ready().items() if "services" in name),
                "readiness says so",
                timeout=90,
            )
            await pair.client.delete(Service, "tempo", namespace=pair.second)
            await pair.add("pyroscope", pair.first, app="pyroscope")
            await pair.holds("loki", "tempo", "pyroscope")
            await pair.told()
        finally:
            embedded.faults.clear()
        await pair.holds("loki", "pyroscope")
