from __future__ import annotations

import asyncio

import msgspec
import pytest

from steersman.kube.api.errors import (
    BadRequest,
    BadResponse,
    Conflict,
    NotFound,
    RequestTimeout,
    ResourceExpired,
    TooManyRequests,
    Unavailable,
)
from steersman.kube.api.field_selectors import FieldSelector
from steersman.kube.api.objects import ObjectMeta, PartialObjectMetadata, Resource, Struct
from steersman.kube.api.selectors import Selector
from steersman.kube.client.client import Client, PatchType
from steersman.kube.client.codec import DecodeFailure
from steersman.kube.config.config import Config
from steersman.testing.clock import settle
from tests.support.wire_server import END, HANG_UP, STREAM, chunk, reply


class ConfigMap(Resource, version="v1"):
    data: dict[str, str] | None = None


class Namespace(Resource, version="v1", namespaced=False):
    pass


class Container(Struct):
    name: str
    image: str = ""


class PodSpec(Struct):
    containers: list[Container]


class Pod(Resource, version="v1"):
    spec: PodSpec


class Deployment(Resource, group="apps", version="v1"):
    pass


def configmap(name="app", **parts):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "resourceVersion": "7"}, **parts}


def refused(code, reason="", **details):
    return reply(code, {"kind": "Status", "code": code, "reason": reason, "message": "no", "details": details})


def sent(server):
    (request,) = server.requests
    return request


class TestGet:
    async def test_an_object_is_read_from_its_own_namespace_or_the_clients(self, wire, client):
        server = await wire(reply(200, configmap(data={"k": "v"})))
        found = await client(server).get(ConfigMap, "app", resource_version="0")
        assert (found.name, found.data) == ("app", {"k": "v"})
        await client(server).get(ConfigMap, "app", namespace="other", subresource="status")
        assert [request.path for request in server.requests] == [
            "/api/v1/namespaces/shop/configmaps/app",
            "/api/v1/namespaces/other/configmaps/app/status",
        ]
        assert server.requests[0].query == {"resourceVersion": "0"}

    async def test_an_object_without_namespace_is_read_without_one(self, wire, client):
        server = await wire(reply(200, configmap("shop")))
        await client(server).get(Namespace, "shop")
        assert sent(server).path == "/api/v1/namespaces/shop"

    async def test_metadata_alone_can_be_asked_for(self, wire, client):
        server = await wire(reply(200, configmap()))
        found = await client(server).get(ConfigMap, "app", into=PartialObjectMetadata)
        assert type(found) is PartialObjectMetadata
        assert sent(server).headers["accept"].startswith("application/json;as=PartialObjectMetadata;")

    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            (
                reply(200, b"<!DOCTYPE html><html>", kind="text/html"),
                "the answer is an HTML page, not a Kubernetes answer",
            ),
            (reply(200, b"<html>", kind="application/json"), "the answer is not JSON"),
            (reply(200, b'{"metadata": {"name": "a', kind="application/json"), "not JSON: Input data was truncated"),
            (reply(200, b"", kind="application/json"), "the answer is not JSON"),
            (reply(200, b"hello", kind="text/plain"), "the answer is 'hello'"),
            (reply(200, b"\0\1", kind="application/x-protobuf"), "2 bytes of application/x-protobuf"),
        ],
    )
    async def test_an_answer_that_is_not_kubernetes_is_described_with_its_request(self, wire, client, answer, message):
        server = await wire(answer)
        with pytest.raises(BadResponse, match=message) as raised:
            await client(server).get(ConfigMap, "app")
        assert str(raised.value).endswith(f"(GET {server.url}/api/v1/namespaces/shop/configmaps/app)")


def page(*names, token="", revision="9"):
    metadata = {"resourceVersion": revision, "continue": token}
    items = [configmap(name, data={"k": name}) for name in names]
    return reply(200, {"kind": "ConfigMapList", "metadata": metadata, "items": items})


class TestList:
    async def test_every_page_is_read_and_later_pages_carry_only_the_token(self, wire, client):
        server = await wire([page("a", "b", token="t1"), page("c", token="t2"), page("d")])
        found = await client(server).list(
            ConfigMap,
            namespace="shop",
            label_selector="app=web",
            limit=2,
            resource_version="5",
            resource_version_match="Exact",
        )
        assert [item.name for item in found.items] == ["a", "b", "c", "d"]
        assert found.resource_version == "9"
        assert [request.query for request in server.requests] == [
            {"labelSelector": "app=web", "limit": "2", "resourceVersion": "5", "resourceVersionMatch": "Exact"},
            {"labelSelector": "app=web", "limit": "2", "continue": "t1"},
            {"labelSelector": "app=web", "limit": "2", "continue": "t2"},
        ]

    async def test_no_namespace_means_all_of_them(self, wire, client):
        server = await wire(page())
        await client(server).list(ConfigMap)
        assert (sent(server).path, sent(server).query) == ("/api/v1/configmaps", {"limit": "500"})

    async def test_selectors_may_be_values(self, wire, client):
        server = await wire(page())
        await client(server).list(
            ConfigMap,
            label_selector=Selector.parse("app in (a,b),!c"),
            field_selector=FieldSelector.parse("metadata.name=x"),
            limit=None,
        )
        assert sent(server).query == {"labelSelector": "app in (a,b),!c", "fieldSelector": "metadata.name=x"}

    async def test_a_selector_of_nothing_does_not_select_everything(self, wire, client):
        server = await wire(page())
        await client(server).list(ConfigMap, label_selector=Selector.NOTHING)
        assert sent(server).query["labelSelector"] == "steersman.dev/none,!steersman.dev/none"

    async def test_pages_that_expire_on_the_way_are_read_again_in_one_piece(self, wire, client):
        server = await wire([page("a", token="t1"), refused(410, "Expired"), page("a", "b", revision="20")])
        found = await client(server).list(ConfigMap, limit=1)
        assert ([item.name for item in found.items], found.resource_version) == (["a", "b"], "20")
        assert server.requests[2].query == {}

    async def test_an_expired_resource_version_on_the_first_page_is_the_callers_affair(self, wire, client):
        server = await wire(refused(410, "Expired"))
        with pytest.raises(ResourceExpired):
            await client(server).list(ConfigMap, resource_version="1", resource_version_match="Exact")

    async def test_pages_come_one_at_a_time(self, wire, client):
        server = await wire([page("a", token="t1"), page("b")])
        pages = client(server).pages(ConfigMap, limit=1)
        first = await anext(pages)
        assert ([item.name for item in first.items], len(server.requests)) == (["a"], 1)
        second = await anext(pages)
        assert [item.name for item in second.items] == ["b"]
        with pytest.raises(StopAsyncIteration):
            await anext(pages)

    async def test_items_that_do_not_fit_are_beside_those_that_do(self, wire, client):
        items = [configmap("a", data={"k": 5}), configmap("b")]
        server = await wire(reply(200, {"kind": "ConfigMapList", "metadata": {"resourceVersion": "9"}, "items": items}))
        found = await client(server).list(ConfigMap)
        assert [item.name for item in found.items] == ["b"]
        assert [item.metadata.name for item in found.undecodable] == ["a"]

    async def test_an_option_that_does_not_exist_is_refused(self, wire, client):
        with pytest.raises(TypeError, match="lable_selector"):
            await client(await wire(page())).list(ConfigMap, lable_selector="a=b")


def event(kind, obj):
    return chunk(msgspec.json.encode({"type": kind, "object": obj}) + b"\n")


class TestWatch:
    async def events(self, client, target=ConfigMap, **options):
        async with client.watch(target, timeout_seconds=60, **options) as events:
            return [found async for found in events]

    async def test_a_watch_gives_typed_changes_until_the_server_ends_it(self, wire, client):
        server = await wire(STREAM + event("ADDED", configmap("a")) + event("DELETED", configmap("a")) + END)
        found = await self.events(client(server), namespace="shop", resource_version="5", label_selector="a=b")
        assert [(change.type, change.object.name) for change in found] == [("ADDED", "a"), ("DELETED", "a")]
        assert sent(server).path == "/api/v1/namespaces/shop/configmaps"
        assert sent(server).query == {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "labelSelector": "a=b",
            "resourceVersion": "5",
            "timeoutSeconds": "60",
        }

    async def test_a_streamed_list_asks_for_what_the_server_insists_on(self, wire, client):
        server = await wire(STREAM + END)
        await self.events(client(server), send_initial_events=True)
        assert sent(server).query == {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "timeoutSeconds": "60",
        }

    async def test_an_error_in_the_stream_is_raised_after_what_came_before(self, wire, client):
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        server = await wire(STREAM + event("ADDED", configmap("a")) + event("ERROR", status) + END)
        async with client(server).watch(ConfigMap, timeout_seconds=60) as events:
            assert (await anext(events)).object.name == "a"
            with pytest.raises(ResourceExpired, match=r"too old \(GET .*watch=1"):
                await anext(events)

    async def test_an_expired_resource_version_may_also_be_refused_at_once(self, wire, client):
        with pytest.raises(ResourceExpired):
            await self.events(client(await wire(refused(410, "Expired"))))

    async def test_an_object_that_does_not_fit_does_not_end_the_stream(self, wire, client):
        changes = event("ADDED", configmap("a", data=5)) + event("ADDED", configmap("b"))
        first, second = await self.events(client(await wire(STREAM + changes + END)))
        assert isinstance(first.object, DecodeFailure)
        assert (first.object.metadata.name, second.object.name) == ("a", "b")

    async def test_html_in_place_of_events_is_refused_as_an_event(self, wire, client):
        server = await wire(reply(200, b"<html>\n<body>\n", kind="text/html"))
        with pytest.raises(BadResponse, match=r"a line that is not an event: .*\(GET .*/configmaps\?"):
            await self.events(client(server))

    async def test_silence_ends_a_watch_a_little_after_it_should_have_ended(self, wire, client, clock):
        async def answer(received, writer):
            writer.write(STREAM)
            await asyncio.Event().wait()
            return HANG_UP

        server = await wire(answer)
        async with client(server, clock=clock).watch(ConfigMap, timeout_seconds=60) as events:
            task = asyncio.ensure_future(anext(events))
            await clock.advance(64)
            assert not task.done()
            await clock.advance(1)
            with pytest.raises(RequestTimeout):
                await task


class TestWrites:
    async def test_create_returns_what_the_server_made_of_it(self, wire, client):
        server = await wire(reply(201, configmap(data={"k": "v", "more": "x"})))
        made = await client(server).create(ConfigMap(metadata=ObjectMeta(name="app"), data={"k": "v"}), dry_run=True)
        assert made.data == {"k": "v", "more": "x"}
        request = sent(server)
        assert (request.method, request.path) == ("POST", "/api/v1/namespaces/shop/configmaps")
        assert request.query == {"fieldManager": "tester", "dryRun": "All"}
        expected = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app"}, "data": {"k": "v"}}
        assert request.json == expected

    async def test_an_objects_own_namespace_beats_the_clients(self, wire, client):
        server = await wire(reply(201, configmap()))
        await client(server).create(ConfigMap(metadata=ObjectMeta(name="app", namespace="own")))
        assert sent(server).path == "/api/v1/namespaces/own/configmaps"

    async def test_a_dict_is_written_where_the_server_says_its_kind_is_and_it_is_asked_once(self, wire, client):
        async def answer(received, writer):
            if received.path == "/apis/example.org/v1":
                resources = [{"name": "mice", "kind": "Mouse", "namespaced": True, "verbs": []}]
                return reply(200, {"kind": "APIResourceList", "resources": resources})
            return reply(201, received.json)

        server = await wire(answer)
        mouse = {"apiVersion": "example.org/v1", "kind": "Mouse", "metadata": {"name": "m"}}
        link = client(server)
        assert await link.create(mouse) == mouse
        assert await link.replace(mouse, field_validation="Strict") == mouse
        assert [(request.method, request.path) for request in server.requests] == [
            ("GET", "/apis/example.org/v1"),
            ("POST", "/apis/example.org/v1/namespaces/shop/mice"),
            ("PUT", "/apis/example.org/v1/namespaces/shop/mice/m"),
        ]
        assert server.requests[2].query["fieldValidation"] == "Strict"

    async def test_a_kind_the_server_does_not_have_is_named(self, wire, client):
        server = await wire(refused(404, "NotFound"))
        with pytest.raises(NotFound, match=r"the server has no kind Mouse in example.org/v1: is its CustomResourceDef"):
            await client(server).create({"apiVersion": "example.org/v1", "kind": "Mouse"})

    @pytest.mark.parametrize(
        ("obj", "message"),
        [({"kind": "X"}, "needs apiVersion and kind"), (ConfigMap(), "the object has no metadata.name")],
    )
    async def test_an_object_without_identity_is_refused_before_it_is_sent(self, wire, client, obj, message):
        server = await wire(reply(200, configmap()))
        with pytest.raises(BadRequest, match=message):
            await client(server).apply(obj)
        assert server.requests == []

    @pytest.mark.parametrize(
        ("kind", "media", "patch"),
        [
            (PatchType.MERGE, "application/merge-patch+json", {"data": {"k": None}}),
            (PatchType.JSON, "application/json-patch+json", [{"op": "remove", "path": "/data/k"}]),
            (PatchType.STRATEGIC, "application/strategic-merge-patch+json", {"data": {"k": None}}),
        ],
    )
    async def test_a_patch_is_sent_in_its_own_media_type(self, wire, client, kind, media, patch):
        server = await wire(reply(200, configmap()))
        await client(server).patch(ConfigMap, "app", patch, type=kind, subresource="status", field_manager="me")
        request = sent(server)
        assert (request.method, request.headers["content-type"], request.json) == ("PATCH", media, patch)
        assert request.path == "/api/v1/namespaces/shop/configmaps/app/status"
        assert request.query == {"fieldManager": "me"}

    async def test_apply_sends_the_fields_it_owns(self, wire, client):
        server = await wire(reply(200, configmap(data={"k": "v"})))
        found = await client(server).apply(ConfigMap(metadata=ObjectMeta(name="app"), data={"k": "v"}), force=True)
        request = sent(server)
        assert isinstance(found, ConfigMap)
        assert request.headers["content-type"] == "application/apply-patch+yaml"
        assert request.query == {"fieldManager": "tester", "force": "true"}

    async def test_a_write_is_not_repeated_after_it_may_have_happened(self, wire, client):
        server = await wire(refused(503))
        with pytest.raises(Unavailable):
            await client(server).create(ConfigMap(metadata=ObjectMeta(name="app")))
        assert len(server.requests) == 1


class TestDelete:
    async def test_preconditions_and_policy_travel_in_the_body(self, wire, client):
        server = await wire(reply(200, {"kind": "Status", "status": "Success"}))
        left = await client(server).delete(
            ConfigMap,
            "app",
            uid="u",
            resource_version="7",
            propagation="Foreground",
            grace_period_seconds=0,
            dry_run=True,
        )
        assert left is None
        assert sent(server).json == {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": "u", "resourceVersion": "7"},
            "propagationPolicy": "Foreground",
            "gracePeriodSeconds": 0,
            "dryRun": ["All"],
        }

    async def test_an_object_that_stays_for_now_is_returned(self, wire, client):
        waiting = configmap()
        waiting["metadata"]["finalizers"] = ["example.org/wait"]
        left = await client(await wire(reply(200, waiting))).delete(ConfigMap, "app")
        assert left == PartialObjectMetadata(
            metadata=ObjectMeta(name="app", resource_version="7", finalizers=["example.org/wait"])
        )

    async def test_a_collection_is_deleted_in_one_namespace(self, wire, client):
        server = await wire(reply(200, {"kind": "ConfigMapList", "items": []}))
        await client(server).delete_collection(ConfigMap, label_selector="a=b")
        request = sent(server)
        assert (request.method, request.path) == ("DELETE", "/api/v1/namespaces/shop/configmaps")
        assert request.query == {"labelSelector": "a=b"}

    async def test_a_selector_of_nothing_does_not_delete_everything(self, wire, client):
        server = await wire(reply(200, {"kind": "ConfigMapList", "items": []}))
        await client(server).delete_collection(ConfigMap, label_selector=Selector.NOTHING)
        text = sent(server).query["labelSelector"]
        assert not Selector.parse(text).matches({})
        assert not Selector.parse(text).matches({"steersman.dev/none": "x"})


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "7", "unknown": 1},
    "spec": {
        "nodeName": "n1",
        "containers": [{"name": "a", "image": "a:1", "ports": [80]}, {"name": "b", "image": "b:1", "tty": True}],
    },
}


def upgrade(pod):
    pod.spec.containers[0].image = "a:2"


class TestModify:
    async def test_a_change_is_written_onto_the_whole_object(self, wire, client):
        async def answer(received, writer):
            return reply(200, received.json if received.method == "PUT" else POD)

        server = await wire(answer)
        found = await client(server).update_with_retry(Pod, "web", upgrade)
        assert found.spec.containers[0].image == "a:2"
        expected = msgspec.json.decode(msgspec.json.encode(POD))
        expected["spec"]["containers"][0]["image"] = "a:2"
        assert server.requests[1].json == expected

    async def test_nothing_is_written_when_nothing_differs(self, wire, client):
        server = await wire(reply(200, POD))
        found = await client(server).update_with_retry(Pod, "web", lambda pod: None)
        assert (found.name, len(server.requests)) == ("web", 1)

    async def test_a_change_may_return_another_object(self, wire, client):
        async def answer(received, writer):
            return reply(200, received.json if received.method == "PUT" else POD)

        server = await wire(answer)
        spec = PodSpec(containers=[Container(name="b", image="b:1")])
        await client(server).update_with_retry(Pod, "web", lambda pod: Pod(metadata=pod.metadata, spec=spec))
        assert server.requests[1].json["spec"] == {"nodeName": "n1", "containers": [POD["spec"]["containers"][1]]}

    async def test_a_conflict_is_read_again_and_changed_again(self, wire, client):
        revision = 7

        async def answer(received, writer):
            nonlocal revision
            if received.method == "GET":
                return reply(200, POD | {"metadata": {"name": "web", "resourceVersion": str(revision)}})
            if revision < 9:
                revision += 1
                return refused(409, "Conflict")
            return reply(200, received.json)

        server = await wire(answer)
        found = await client(server).update_with_retry(Pod, "web", upgrade)
        assert found.metadata.resource_version == "9"
        assert [request.method for request in server.requests] == ["GET", "PUT"] * 3

    async def test_a_fight_that_does_not_end_is_given_up(self, wire, client):
        async def answer(received, writer):
            return reply(200, POD) if received.method == "GET" else refused(409, "Conflict")

        server = await wire(answer)
        with pytest.raises(Conflict):
            await client(server).update_with_retry(Pod, "web", upgrade)
        assert len(server.requests) == 16

    async def test_status_is_read_from_the_object_and_written_to_the_subresource(self, wire, client):
        async def answer(received, writer):
            return reply(200, received.json if received.method == "PUT" else POD)

        server = await wire(answer)
        await client(server).update_with_retry(Pod, "web", upgrade, subresource="status")
        path = "/api/v1/namespaces/shop/pods/web"
        assert [request.path for request in server.requests] == [path, f"{path}/status"]

    async def test_dicts_are_modified_as_they_are(self, wire, client):
        async def answer(received, writer):
            return reply(200, received.json if received.method == "PUT" else POD)

        server = await wire(answer)
        await client(server).update_with_retry(Pod.KIND, "web", lambda pod: pod["spec"].update(nodeName="n2"))
        assert server.requests[1].json["spec"]["nodeName"] == "n2"


class TestSubresources:
    async def test_scale_is_read_and_set(self, wire, client):
        scale = {"kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": 3}, "status": {"replicas": 2}}
        server = await wire(reply(200, scale))
        found = await client(server).scale(Deployment, "web")
        assert (found.spec.replicas, found.status.replicas) == (3, 2)
        await client(server).scale(Deployment, "web", 5)
        read, written = server.requests
        assert read.path == written.path == "/apis/apps/v1/namespaces/shop/deployments/web/scale"
        assert (written.method, written.json) == ("PATCH", {"spec": {"replicas": 5}})

    async def test_an_eviction_is_posted_and_its_refusal_left_to_the_caller(self, wire, client, hasty):
        refusal = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "would violate the budget"}
        server = await wire([reply(201, {"kind": "Status"}), reply(429, refusal, Retry_After="10")])
        link = client(server)
        await link.evict("web-0", grace_period_seconds=5)
        assert server.requests[0].path == "/api/v1/namespaces/shop/pods/web-0/eviction"
        assert server.requests[0].json["deleteOptions"]["gracePeriodSeconds"] == 5
        assert server.requests[0].json["metadata"] == {"name": "web-0", "namespace": "shop"}
        with pytest.raises(TooManyRequests, match="budget"):
            await link.evict("web-1")
        assert hasty.slept == []

    async def test_a_token_is_issued_and_not_shown(self, wire, client):
        status = {"token": "s3cr3t", "expirationTimestamp": "2026-01-01T00:10:00Z"}
        server = await wire(reply(201, {"kind": "TokenRequest", "status": status}))
        issued = await client(server).create_token("builder", audiences=("vault",), expiration_seconds=600)
        assert (issued.token, issued.expires) == ("s3cr3t", "2026-01-01T00:10:00Z")
        assert "s3cr3t" not in repr(issued)
        assert sent(server).path == "/api/v1/namespaces/shop/serviceaccounts/builder/token"
        assert sent(server).json["spec"] == {"audiences": ["vault"], "expirationSeconds": 600}

    @pytest.mark.parametrize("allowed", [True, False])
    async def test_may_i_is_answered_like_a_bool_with_a_reason(self, wire, client, allowed):
        server = await wire(reply(201, {"status": {"allowed": allowed, "reason": "because"}}))
        answer = await client(server).can_i("update", Deployment, namespace="shop", name="web", subresource="scale")
        assert (bool(answer), answer.reason) == (allowed, "because")
        assert sent(server).path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        assert sent(server).json["spec"]["resourceAttributes"] == {
            "verb": "update",
            "group": "apps",
            "version": "v1",
            "resource": "deployments",
            "subresource": "scale",
            "namespace": "shop",
            "name": "web",
        }


class TestOptions:
    async def test_a_client_can_be_had_with_another_timeout_and_without_repeats(self, wire, client, clock):
        async def answer(received, writer):
            await asyncio.Event().wait()
            return HANG_UP

        server = await wire(answer)
        patient = client(server, clock=clock)
        task = asyncio.create_task(patient.with_options(timeout=2, retry=False).get(ConfigMap, "app"))
        await server.arrived.wait()
        await clock.advance(2)
        with pytest.raises(RequestTimeout, match="within 2 seconds"):
            await task
        assert len(server.requests) == 1

    async def test_connect_makes_a_client_that_closes_with_its_block(self, wire):
        server = await wire(reply(200, configmap()))
        config = Config(server=server.url, namespace="mine")
        async with Client.connect(config, user_agent="test") as connected:
            await connected.get(ConfigMap, "app")
        await settle()
        assert sent(server).path == "/api/v1/namespaces/mine/configmaps/app"
        assert sent(server).headers["user-agent"].endswith(" test")
