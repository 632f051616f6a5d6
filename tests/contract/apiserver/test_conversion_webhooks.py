"""Conversion webhooks: one object, stored in one version, seen and written in both as the webhook converts it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.conftest import WORKER
from tests.support.manifests import crd
from tests.support.webhooks import Refused, WebhookStub, allowed, rule

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi
    from tests.support.manifests import Manifest, Space

_numbers = itertools.count(1)


def schema(**properties: Manifest) -> Manifest:
    spec = {"type": "object", "properties": properties}
    return {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}


NUMBER, TEXT = {"type": "integer"}, {"type": "string"}
V1 = {"name": "v1", "served": True, "storage": True, "schema": schema(size=NUMBER)}
V2 = {"name": "v2", "served": True, "storage": False, "schema": schema(length=TEXT)}


def resize(obj: Manifest) -> Manifest:
    """v1 has `size: 7`, v2 has `length: "7cm"`."""
    spec = obj.get("spec") or {}
    if obj["apiVersion"].endswith("/v2"):
        return {**obj, "spec": {"length": f"{spec['size']}cm"} if "size" in spec else {}}
    return {**obj, "spec": {"size": int(spec["length"].removesuffix("cm"))} if "length" in spec else {}}


class Ropes:
    """A custom resource in two versions, and its paths."""

    def __init__(self, api: RawApi, ns: Space, stub: WebhookStub) -> None:
        self.group = f"ropes-{WORKER}-{next(_numbers)}.example.org"
        self.stub = stub
        self._ns = ns
        self._api = api
        stub.on("/convert", resize)
        client = {"url": f"https://127.0.0.1:{stub.port}/convert", "caBundle": stub.ca_bundle}
        webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
        self.definition = crd("Rope", group=self.group, schema={}, versions=[V1, V2])
        self.definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}

    def at(self, version: str, *parts: str) -> str:
        return self._ns.at(f"{self.group}/{version}", "ropes", *parts)

    def rope(self, version: str, name: str | None, **spec: Any) -> Manifest:
        metadata = {"name": name} if name else {"generateName": "rope-"}
        return {"apiVersion": f"{self.group}/{version}", "kind": "Rope", "metadata": metadata, "spec": spec}


@pytest.fixture
async def ropes(api: RawApi, ns: Space, install: Any):
    async with WebhookStub() as stub:
        ropes = Ropes(api, ns, stub)
        await install(api, ropes.definition)
        yield ropes
        await api.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ropes.{ropes.group}")


async def test_an_object_is_read_in_the_version_that_was_asked_for(api: RawApi, ropes: Ropes):
    made = await api.post(ropes.at("v1"), ropes.rope("v1", "a", size=7))
    assert made.status == 201, made.body
    got = await api.get(ropes.at("v2", "a"))
    assert (got.status, got.body["apiVersion"], got.body["spec"]) == (200, f"{ropes.group}/v2", {"length": "7cm"})
    assert got.revision == made.revision


async def test_an_object_is_written_in_any_version_and_stored_in_one(api: RawApi, ropes: Ropes):
    made = await api.post(ropes.at("v2"), ropes.rope("v2", "a", length="7cm"))
    assert (made.status, made.body["apiVersion"], made.body["spec"]) == (201, f"{ropes.group}/v2", {"length": "7cm"})
    assert (await api.get(ropes.at("v1", "a"))).body["spec"] == {"size": 7}
    replaced = await api.put(ropes.at("v2", "a"), made.body | {"spec": {"length": "8cm"}})
    assert (replaced.status, replaced.body["spec"]) == (200, {"length": "8cm"})
    patched = await api.patch(ropes.at("v2", "a"), {"spec": {"length": "9cm"}})
    assert (patched.body["spec"], patched.body["metadata"]["generation"]) == ({"length": "9cm"}, 3)
    assert (await api.get(ropes.at("v1", "a"))).body["spec"] == {"size": 9}


async def test_a_name_is_generated_once(api: RawApi, ropes: Ropes):
    made = await api.post(ropes.at("v2"), ropes.rope("v2", None, length="7cm"))
    assert (made.status, (await api.get(ropes.at("v1"))).names) == (201, [made.name])


async def test_a_list_is_converted(api: RawApi, ropes: Ropes):
    for name, size in (("a", 1), ("b", 2)):
        await api.post(ropes.at("v1"), ropes.rope("v1", name, size=size))
    listed = await api.get(ropes.at("v2"))
    seen = [(item["apiVersion"], item["spec"]) for item in listed.body["items"]]
    assert seen == [(f"{ropes.group}/v2", {"length": "1cm"}), (f"{ropes.group}/v2", {"length": "2cm"})]


async def test_a_watch_is_converted(api: RawApi, ropes: Ropes):
    made = await api.post(ropes.at("v1"), ropes.rope("v1", "a", size=1))
    async with api.watch(ropes.at("v2"), resourceVersion="0") as stream:
        first = await stream.next()
        await api.patch(ropes.at("v1", "a"), {"spec": {"size": 2}})
        second = await stream.next()
        await api.delete(ropes.at("v1", "a"))
        third = await stream.next()
    assert [(event["type"], event["object"]["spec"]) for event in (first, second, third)] == [
        ("ADDED", {"length": "1cm"}),
        ("MODIFIED", {"length": "2cm"}),
        ("DELETED", {"length": "2cm"}),
    ]
    assert first["object"]["metadata"]["resourceVersion"] == made.revision


async def test_an_apply_in_another_version_owns_its_fields(api: RawApi, ropes: Ropes):
    got = await api.apply(ropes.at("v2", "a"), ropes.rope("v2", "a", length="7cm"), manager="me")
    assert (got.status, got.body["spec"]) == (201, {"length": "7cm"})
    conflict = await api.apply(ropes.at("v1", "a"), ropes.rope("v1", "a", size=8), manager="other")
    assert (conflict.status, conflict.body["reason"]) == (409, "Conflict")
    forced = await api.apply(ropes.at("v1", "a"), ropes.rope("v1", "a", size=8), manager="other", force=True)
    assert forced.body["spec"] == {"size": 8}
    assert (await api.get(ropes.at("v2", "a"))).body["spec"] == {"length": "8cm"}


async def test_a_delete_with_a_finalizer_answers_in_the_version_of_the_request(api: RawApi, ropes: Ropes):
    rope = ropes.rope("v1", "a", size=7)
    rope["metadata"]["finalizers"] = ["example.org/wait"]
    await api.post(ropes.at("v1"), rope)
    got = await api.delete(ropes.at("v2", "a"))
    assert (got.status, got.body["spec"], "deletionTimestamp" in got.body["metadata"]) == (200, {"length": "7cm"}, True)
    await api.patch(ropes.at("v2", "a"), {"metadata": {"finalizers": None}})
    assert (await api.get(ropes.at("v1", "a"))).status == 404


async def test_a_conversion_may_change_labels_and_no_other_metadata(api: RawApi, ropes: Ropes):
    def meddle(obj: Manifest) -> Manifest:
        metadata = {**obj["metadata"], "labels": {"seen": "yes"}, "resourceVersion": "1", "finalizers": ["a.b/c"]}
        return {**resize(obj), "metadata": metadata}

    ropes.stub.on("/convert", meddle)
    made = await api.post(ropes.at("v1"), ropes.rope("v1", "a", size=7))
    got = await api.get(ropes.at("v2", "a"))
    assert (got.body["metadata"]["labels"], got.revision) == ({"seen": "yes"}, made.revision)
    assert "finalizers" not in got.body["metadata"]


def refuse(_: Manifest) -> Manifest:
    raise Refused("cannot measure this")


FAILURES = {
    "a failure": refuse,
    "another version": lambda obj: {**resize(obj), "apiVersion": "another/v1"},
    "another kind": lambda obj: {**resize(obj), "kind": "Another"},
    "another name": lambda obj: {**resize(obj), "metadata": {**obj["metadata"], "name": "another"}},
    "no metadata": lambda obj: {key: value for key, value in resize(obj).items() if key != "metadata"},
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_an_object_that_cannot_be_converted_is_an_error_and_never_wrong(api: RawApi, ropes: Ropes, failure):
    await api.post(ropes.at("v1"), ropes.rope("v1", "a", size=7))
    ropes.stub.on("/convert", failure)
    got = await api.get(ropes.at("v2", "a"))
    assert (got.status, got.body.get("reason")) == (500, None)
    assert "conversion webhook for" in got.body["message"]
    assert (await api.get(ropes.at("v1", "a"))).body["spec"] == {"size": 7}
    made = await api.post(ropes.at("v2"), ropes.rope("v2", "b", length="7cm"))
    assert made.status == 500
    ropes.stub.on("/convert", resize)
    assert (await api.get(ropes.at("v2", "b"))).status == 404


async def test_objects_of_an_earlier_storage_version_are_converted_too(api: RawApi, ropes: Ropes):
    await api.post(ropes.at("v1"), ropes.rope("v1", "a", size=7))
    definition = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ropes.{ropes.group}"
    versions = [V1 | {"storage": False}, V2 | {"storage": True}]
    assert (await api.patch(definition, {"spec": {"versions": versions}})).status == 200
    got = await api.eventually(ropes.at("v2", "a"), lambda answer: answer.status == 200)
    assert got.body["spec"] == {"length": "7cm"}
    assert (await api.patch(ropes.at("v2", "a"), {"spec": {"length": "8cm"}})).body["spec"] == {"length": "8cm"}
    assert (await api.get(ropes.at("v1", "a"))).body["spec"] == {"size": 8}


async def test_an_admission_webhook_of_one_version_sees_the_converted_object(api: RawApi, ns: Space, ropes: Ropes):
    ropes.stub.on("/see", lambda _: allowed())
    hook = ropes.stub.webhook("/see", rule("ropes", group=ropes.group, version="v1"))
    await ropes.stub.configure(api, ns, validating=[hook])
    made = await api.post(ropes.at("v2"), ropes.rope("v2", "a", length="7cm"))
    assert made.status == 201, made.body
    [request] = ropes.stub.asked("/see")
    assert (request["kind"]["version"], request["requestKind"]["version"]) == ("v1", "v2")
    assert request["object"]["spec"] == {"size": 7}
