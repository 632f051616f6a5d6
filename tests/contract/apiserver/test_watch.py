"""Watches: where they begin, what they carry, and how they end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.manifests import Space, configmap, secret, widget, widgets_crd

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi

INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
END = "k8s.io/initial-events-end"
MATCH = "resourceVersionMatch: Forbidden:"
NOT_EXACT = 'resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"'


async def make(api: RawApi, ns: Space, name: str, **meta: Any) -> str:
    """Create a Secret (nobody else puts one into a new namespace); return its revision."""
    return (await api.post(ns.core("secrets"), secret(name, {"k": "1"}, **meta))).revision


async def test_a_watch_from_a_resource_version_sees_what_came_after_it(api: RawApi, ns: Space):
    await make(api, ns, "a")
    start = (await api.get(ns.core("secrets"))).revision
    await make(api, ns, "b")
    async with api.watch(ns.core("secrets"), resourceVersion=start) as stream:
        assert stream.status == 200
        assert await stream.take(1) == [("ADDED", "b")]
        await api.patch(ns.core("secrets/a"), {"stringData": {"k": "2"}})
        await api.delete(ns.core("secrets/b"))
        assert await stream.take(2) == [("MODIFIED", "a"), ("DELETED", "b")]


async def test_events_carry_the_whole_object_with_kind(api: RawApi, ns: Space):
    start = (await api.get(ns.core("secrets"))).revision
    made = await api.post(ns.core("secrets"), secret("a", {"k": "1"}))
    async with api.watch(ns.core("secrets"), resourceVersion=start) as stream:
        event = await stream.next()
    assert event == {"type": "ADDED", "object": made.body}


async def test_a_deleted_object_carries_the_resource_version_of_its_deletion(api: RawApi, ns: Space):
    made = await make(api, ns, "a")
    async with api.watch(ns.core("secrets"), resourceVersion=made) as stream:
        await api.delete(ns.core("secrets/a"))
        event = await stream.next()
    assert event is not None
    assert event["type"] == "DELETED"
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(made)
    assert event["object"]["data"] == {"k": "MQ=="}


async def test_a_watch_from_zero_starts_with_what_there_is(api: RawApi, ns: Space):
    for name in ("b", "a"):
        await make(api, ns, name)
    newest = (await api.get(ns.core("secrets"))).revision
    await api.get(ns.core("secrets"), resourceVersion=newest, resourceVersionMatch="NotOlderThan")
    async with api.watch(ns.core("secrets"), resourceVersion="0") as stream:
        assert sorted(await stream.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
        await make(api, ns, "c")
        assert await stream.take(1) == [("ADDED", "c")]


async def test_a_watch_without_a_resource_version_starts_with_what_there_is(api: RawApi, ns: Space):
    await make(api, ns, "a")
    async with api.watch(ns.core("secrets")) as stream:
        assert await stream.take(1) == [("ADDED", "a")]


async def test_every_write_is_one_event_in_order(api: RawApi, ns: Space):
    start = await make(api, ns, "a")
    for number in range(20):
        await api.patch(ns.core("secrets/a"), {"metadata": {"labels": {"n": str(number)}}})
    async with api.watch(ns.core("secrets"), resourceVersion=start) as stream:
        events = [await stream.next() for _ in range(20)]
    assert [event["object"]["metadata"]["labels"]["n"] for event in events if event] == [str(n) for n in range(20)]


async def test_a_write_that_changes_nothing_is_not_an_event(api: RawApi, ns: Space):
    start = await make(api, ns, "a", labels={"n": "1"})
    async with api.watch(ns.core("secrets"), resourceVersion=start) as stream:
        await api.patch(ns.core("secrets/a"), {"metadata": {"labels": {"n": "1"}}})
        await api.patch(ns.core("secrets/a"), {"metadata": {"labels": {"n": "2"}}})
        event = await stream.next()
    assert event is not None
    assert event["object"]["metadata"]["labels"] == {"n": "2"}


async def test_an_object_enters_and_leaves_a_selector(api: RawApi, ns: Space):
    path = ns.core("secrets/a")
    start = await make(api, ns, "a")
    async with api.watch(ns.core("secrets"), resourceVersion=start, labelSelector="on=yes") as stream:
        await api.patch(path, {"metadata": {"labels": {"on": "yes"}}})
        assert await stream.take(1) == [("ADDED", "a")]
        await api.patch(path, {"metadata": {"labels": {"other": "1"}}})
        assert await stream.take(1) == [("MODIFIED", "a")]
        left = await api.patch(path, {"metadata": {"labels": {"on": "no"}}})
        event = await stream.next()
    assert event is not None
    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["labels"] == {"on": "yes", "other": "1"}
    assert event["object"]["metadata"]["resourceVersion"] == left.revision


async def test_what_a_selector_never_matched_is_never_seen(api: RawApi, ns: Space):
    start = await make(api, ns, "a")
    async with api.watch(ns.core("secrets"), resourceVersion=start, labelSelector="on=yes") as stream:
        await make(api, ns, "b")
        await api.delete(ns.core("secrets/a"))
        await make(api, ns, "c", labels={"on": "yes"})
        assert await stream.take(1) == [("ADDED", "c")]


async def test_one_object_is_watched_by_field_selector(api: RawApi, ns: Space):
    start = await make(api, ns, "a")
    async with api.watch(ns.core("secrets"), resourceVersion=start, fieldSelector="metadata.name=b") as stream:
        await api.patch(ns.core("secrets/a"), {"metadata": {"labels": {"x": "y"}}})
        await make(api, ns, "b")
        assert await stream.take(1) == [("ADDED", "b")]


async def test_the_path_of_an_object_cannot_be_watched_and_answers_the_object(api: RawApi, ns: Space):
    await make(api, ns, "a")
    got = await api.get(ns.core("secrets/a"), watch="true")
    assert got.body == (await api.get(ns.core("secrets/a"))).body


async def test_one_object_is_watched_by_its_old_watch_path(api: RawApi, ns: Space):
    start = await make(api, ns, "a")
    async with api.watch(f"/api/v1/watch/namespaces/{ns}/secrets/a", resourceVersion=start) as stream:
        await make(api, ns, "b")
        await api.delete(ns.core("secrets/a"))
        assert await stream.take(1) == [("DELETED", "a")]


async def test_the_old_watch_path_still_watches(api: RawApi, ns: Space):
    start = (await api.get(ns.core("secrets"))).revision
    await make(api, ns, "a")
    async with api.watch(f"/api/v1/watch/namespaces/{ns}/secrets", resourceVersion=start) as stream:
        assert await stream.take(1) == [("ADDED", "a")]


async def test_a_watch_over_all_namespaces_sees_each(api: RawApi, ns: Space):
    start = (await api.get(ns.core("secrets"))).revision
    await make(api, ns, "a", labels={"across": ns})
    async with api.watch("/api/v1/secrets", resourceVersion=start, labelSelector=f"across={ns}") as stream:
        assert await stream.take(1) == [("ADDED", "a")]


async def test_initial_events_end_with_an_annotated_bookmark(api: RawApi, ns: Space):
    for name in ("a", "b"):
        await make(api, ns, name)
    newest = (await api.get(ns.core("secrets"))).revision
    async with api.watch(ns.core("secrets"), **INITIAL) as stream:
        assert sorted(await stream.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
        event = await stream.next()
        assert event is not None
        assert event["type"] == "BOOKMARK"
        assert event["object"]["kind"] == "Secret"
        assert event["object"]["metadata"]["annotations"] == {END: "true"}
        assert int(event["object"]["metadata"]["resourceVersion"]) >= int(newest)
        await make(api, ns, "c")
        assert await stream.take(1) == [("ADDED", "c")]


async def test_initial_events_of_nothing_are_just_the_bookmark(api: RawApi, ns: Space):
    async with api.watch(ns.core("secrets"), labelSelector="no=body", **INITIAL) as stream:
        event = await stream.next()
    assert event is not None
    assert (event["type"], event["object"]["metadata"]["annotations"]) == ("BOOKMARK", {END: "true"})


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            {"sendInitialEvents": "true"},
            f"{MATCH} sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            {"resourceVersionMatch": "NotOlderThan"},
            f"{MATCH} resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        (
            {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
            f"[{MATCH} sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, {NOT_EXACT}]",
        ),
    ],
)
async def test_wrong_watch_options_are_refused(api: RawApi, ns: Space, query: dict[str, str], message: str):
    got = await api.get(ns.core("secrets"), watch="true", **query)
    assert got.status == 422
    assert got.body["message"] == f'ListOptions.meta.k8s.io "" is invalid: {message}'


async def test_a_watch_ends_after_its_timeout(api: RawApi, ns: Space):
    async with api.watch(ns.core("secrets"), timeoutSeconds=1, resourceVersion="0") as stream:
        assert await stream.next() is None


async def test_a_bookmark_before_the_end_says_how_far_the_server_is(api: RawApi, ns: Space):
    start = await make(api, ns, "a")
    options = {"timeoutSeconds": 4, "allowWatchBookmarks": "true", "resourceVersion": start}
    async with api.watch(ns.core("secrets"), **options) as stream:
        elsewhere = await make(api, Space("default"), f"of-{ns}")
        event = await stream.until("BOOKMARK")
    assert event["object"]["kind"] == "Secret"
    assert int(event["object"]["metadata"]["resourceVersion"]) >= int(elsewhere)


async def test_a_watch_for_metadata_carries_metadata_only(api: RawApi, ns: Space):
    start = (await api.get(ns.core("secrets"))).revision
    await make(api, ns, "a", labels={"x": "y"})
    headers = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
    async with api.watch(ns.core("secrets"), resourceVersion=start, headers=headers) as stream:
        event = await stream.next()
    assert event is not None
    assert (event["type"], event["object"]["kind"], event["object"]["apiVersion"]) == (
        "ADDED",
        "PartialObjectMetadata",
        "meta.k8s.io/v1",
    )
    assert set(event["object"]) == {"kind", "apiVersion", "metadata"}


async def test_a_watch_for_tables_carries_rows(api: RawApi, ns: Space):
    start = (await api.get(ns.core("secrets"))).revision
    await make(api, ns, "a")
    await make(api, ns, "b")
    headers = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    async with api.watch(ns.core("secrets"), resourceVersion=start, headers=headers) as stream:
        first, second = await stream.next(), await stream.next()
    assert first is not None
    assert second is not None
    assert (first["object"]["kind"], first["object"]["rows"][0]["cells"][0]) == ("Table", "a")
    assert [column["name"] for column in first["object"]["columnDefinitions"]] == ["Name", "Type", "Data", "Age"]
    assert second["object"]["columnDefinitions"] in (None, [])


async def test_a_large_object_passes_in_one_event(api: RawApi, ns: Space):
    start = (await api.get(ns.core("configmaps"))).revision
    body = configmap("big", {"k": "x" * 1_000_000}, annotations={"more": "y" * 250_000})
    assert (await api.post(ns.core("configmaps"), body)).status == 201
    async with api.watch(ns.core("configmaps"), resourceVersion=start, fieldSelector="metadata.name=big") as stream:
        event = await stream.next()
    assert event is not None
    assert event["object"]["data"] == body["data"]


async def test_a_resource_version_that_is_not_a_number_is_refused(api: RawApi, ns: Space):
    got = await api.get(ns.core("secrets"), watch="true", resourceVersion="abc")
    assert got.status == 500
    assert got.body["message"].startswith('resourceVersion: Invalid value: "abc": ')


async def test_an_object_with_a_finalizer_is_modified_before_it_is_deleted(api: RawApi, ns: Space):
    start = await make(api, ns, "a", finalizers=["example.org/hold"])
    async with api.watch(ns.core("secrets"), resourceVersion=start) as stream:
        await api.delete(ns.core("secrets/a"))
        await api.patch(ns.core("secrets/a"), {"metadata": {"finalizers": None}})
        events = [await stream.next(), await stream.next()]
    assert [event["type"] for event in events if event] == ["MODIFIED", "DELETED"]


async def test_many_watchers_see_the_same_bytes(api: RawApi, ns: Space):
    start = (await api.get(ns.core("secrets"))).revision
    made = await api.post(ns.core("secrets"), secret("a"))
    for _ in range(5):
        async with api.watch(ns.core("secrets"), resourceVersion=start) as stream:
            assert await stream.next() == {"type": "ADDED", "object": made.body}


async def test_the_watches_of_a_resource_end_with_its_definition(api: RawApi, ns: Space, install: Any):
    group = f"ending-{ns}.example.org"
    await install(api, widgets_crd(group))
    path = ns.at(f"{group}/v1", "widgets")
    made = await api.post(path, widget(group, "w"))
    async with api.watch(path, resourceVersion=made.revision) as stream:
        await api.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{group}")
        assert await stream.take(1) == [("DELETED", "w")]
        assert await stream.next() is None
