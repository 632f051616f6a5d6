"""What only the embedded server has: addresses of services, the clock of the test, annotations in the request log."""

from __future__ import annotations

import asyncio
import json

import pytest

from steersman.apiserver import EmbeddedServer
from steersman.testing.clock import VirtualClock
from steersman.testing.raw_api import RawApi, ssl_context
from tests.support.manifests import Space, configmap, crd, service
from tests.support.webhooks import REGISTRATION, Refused, WebhookStub, allowed, patch, rule

NS = Space("default")


@pytest.fixture
async def server(clock):
    async with EmbeddedServer(clock=clock) as server:
        yield server


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
async def api(server):
    async with RawApi(server.url, token=server.token, ssl_context=ssl_context(server.ca_pem)) as api:
        yield api


@pytest.fixture
async def stub():
    async with WebhookStub("hooks.default.svc", "127.0.0.1") as stub:
        yield stub


async def configured_by_service(api, stub):
    stub.on("/label", lambda _: patch({"op": "add", "path": "/metadata/labels", "value": {"from": "service"}}))
    client = {"service": {"namespace": "default", "name": "hooks", "path": "/label"}, "caBundle": stub.ca_bundle}
    webhook = stub.webhook("/label", rule("secrets"), clientConfig=client)
    await api.post(f"{REGISTRATION}/mutatingwebhookconfigurations", {"metadata": {"name": "a"}, "webhooks": [webhook]})
    return await api.post(NS.core("secrets"), {"metadata": {"name": "a"}})


async def test_a_webhook_of_a_service_is_called_at_the_address_that_the_test_gives(server, api, stub):
    server.services["default/hooks"] = f"127.0.0.1:{stub.port}"
    made = await configured_by_service(api, stub)
    assert made.body["metadata"]["labels"] == {"from": "service"}


async def test_a_service_without_an_address_fails_at_once_and_says_the_way_out(api, stub):
    await api.post(NS.core("services"), service("hooks"))
    got = await configured_by_service(api, stub)
    assert got.status == 500
    assert 'EmbeddedServer(services={"default/hooks": "127.0.0.1:9443"})' in got.body["message"]


async def test_a_timeout_runs_on_the_clock_of_the_server(api, stub, clock):
    asked, given_up = asyncio.Event(), asyncio.Event()

    async def too_late(_):
        asked.set()
        await given_up.wait()
        return allowed()

    stub.on("/slow", too_late)
    await stub.configure(api, NS, validating=[stub.webhook("/slow", rule("secrets"), timeoutSeconds=30)])
    pending = asyncio.create_task(api.post(NS.core("secrets"), {"metadata": {"name": "a"}}))
    await asked.wait()
    await clock.advance(30)
    assert "context deadline exceeded" in (await pending).body["message"]
    given_up.set()


async def test_annotations_of_webhooks_are_in_the_request_log(server, api, stub):
    stub.on(
        "/change", lambda _: patch({"op": "add", "path": "/data", "value": {"a": "1"}}, auditAnnotations={"why": "b"})
    )
    await stub.configure(
        api,
        NS,
        mutating=[
            stub.webhook("/change", rule("configmaps")),
            stub.webhook("/missing", rule("configmaps"), failurePolicy="Ignore"),
        ],
    )
    await api.post(NS.core("configmaps"), configmap("a"))
    seen = server.requests[-1].annotations
    assert seen["change.stub.example.org/why"] == "b"
    mutation = json.loads(seen["mutation.webhook.admission.k8s.io/round_0_index_1"])
    assert (mutation["webhook"], mutation["mutated"]) == ("change.stub.example.org", True)
    assert seen["failed-open.mutation.webhook.admission.k8s.io/round_0_index_2"] == "missing.stub.example.org"


async def test_an_object_gets_one_uid_and_name_however_often_webhooks_are_asked(api, stub):
    stub.on("/one", lambda _: allowed())
    stub.on("/two", lambda _: allowed())
    await stub.configure(
        api,
        NS,
        mutating=[stub.webhook("/one", rule("services"))],
        validating=[stub.webhook("/one", rule("services")), stub.webhook("/two", rule("services"))],
    )
    made = await api.post(NS.core("services"), service(None, generateName="web-"))
    reviewed = [request["object"] for request in (*stub.asked("/one")[1:], *stub.asked("/two"))]
    assert [obj["metadata"]["name"] for obj in reviewed] == [made.name] * 2
    assert [obj["metadata"]["uid"] for obj in reviewed] == [made.body["metadata"]["uid"]] * 2
    assert [obj["spec"]["clusterIP"] for obj in reviewed] == [made.body["spec"]["clusterIP"]] * 2


async def test_a_watch_whose_objects_cannot_be_converted_ends_with_the_error(api, stub):
    def refuse(_):
        raise Refused("cannot measure this")

    stub.on("/convert", refuse)
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": {"type": "object"}}}
        for name in ("v1", "v2")
    ]
    definition = crd("Rope", group="example.org", schema={}, versions=versions)
    client = {"url": f"https://127.0.0.1:{stub.port}/convert", "caBundle": stub.ca_bundle}
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    rope = {"apiVersion": "example.org/v1", "kind": "Rope", "metadata": {"name": "a"}}
    assert (await api.post(NS.at("example.org/v1", "ropes"), rope)).status == 201
    async with api.watch(NS.at("example.org/v2", "ropes")) as stream:
        event = await stream.next()
        assert (event["type"], event["object"]["code"]) == ("ERROR", 500)
        assert await stream.next() is None


async def test_a_request_may_pass_more_than_a_hundred_mutating_webhooks(api, stub):
    stub.on("/pass", lambda _: allowed())
    webhooks = [{**stub.webhook("/pass", rule("secrets")), "name": f"w{number}.example.org"} for number in range(130)]
    await api.post(f"{REGISTRATION}/mutatingwebhookconfigurations", {"metadata": {"name": "a"}, "webhooks": webhooks})
    assert (await api.post(NS.core("secrets"), {"metadata": {"name": "a"}})).status == 201
    assert len(stub.asked("/pass")) == 130
