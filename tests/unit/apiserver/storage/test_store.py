"""The MVCC log."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from steersman.apiserver.storage.store import ResourceTable, Store, StoreEvent, key_of
from steersman.kube.api.gvk import Kind
from steersman.testing.clock import VirtualClock

CONFIG_MAP = Kind(version="v1", kind="ConfigMap", plural="configmaps")
SECRET = Kind(version="v1", kind="Secret", plural="secrets")


def obj(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def made() -> tuple[Store, ResourceTable]:
    store = Store(VirtualClock())
    return store, store.table(CONFIG_MAP)


names = st.sampled_from(["a", "b", "c", "d"])
histories = st.lists(st.tuples(names, st.one_of(st.none(), st.text("xyz", max_size=2))), max_size=30)


@given(histories, st.data())
def test_undoing_the_log_gives_the_state_at_any_retained_resource_version(
    history: list[tuple[str, str | None]], data: Any
):
    store, table = made()
    states = {store.revision: {}}
    for name, value in history:
        key = key_of("ns", name)
        if value is not None:
            store.put(table, key, obj(name, v=value))
        elif key in table.records:
            store.remove(table, key)
        states[store.revision] = {k: r.obj["data"] for k, r in table.records.items()}
    store.compact(data.draw(st.integers(0, store.revision)))
    for revision, expected in states.items():
        if revision >= store.compacted:
            state = table.at(revision)
            assert {key: state.records[key].obj["data"] for key in state.keys} == expected
            assert state.keys == sorted(expected)


def test_every_write_raises_the_single_resource_version_by_one_whatever_the_table():
    store, table = made()
    first = store.put(table, "ns/a", obj("a"))
    second = store.put(store.table(SECRET), "ns/a", obj("a"))
    third = store.remove(table, "ns/a")
    assert [first.revision, second.revision, third.revision] == [2, 3, 4]
    assert third.obj["metadata"]["resourceVersion"] == "4"


def test_an_object_that_is_written_is_not_changed_by_the_write():
    store, table = made()
    mine = obj("a", k="v")
    before = msgspec.json.encode(mine)
    store.put(table, "ns/a", mine)
    assert msgspec.json.encode(mine) == before


def test_keys_sort_as_etcd_sorts_them_with_the_slash_after_dash_and_dot():
    store, table = made()
    for namespace in ("a", "a-b", "a.b", "ab"):
        store.put(table, key_of(namespace, "x"), obj("x"))
    assert [record.key for record in table.scan()] == ["a-b/x", "a.b/x", "a/x", "ab/x"]


def test_a_scan_of_a_namespace_sees_no_other_whose_name_begins_alike():
    store, table = made()
    for namespace in ("a", "a-b", "ab"):
        store.put(table, key_of(namespace, "x"), obj("x"))
    assert [record.key for record in table.scan("a")] == ["a/x"]


def test_a_scan_goes_on_from_a_key():
    store, table = made()
    for name in "abcd":
        store.put(table, key_of("ns", name), obj(name))
    assert [record.key for record in table.scan("ns", "ns/b\0")] == ["ns/c", "ns/d"]


def test_bodies_carry_no_type_and_are_encoded_once():
    store, table = made()
    record = store.put(table, "ns/a", obj("a", k="v"))
    assert msgspec.json.decode(record.body) == {"metadata": {"name": "a", "resourceVersion": "2"}, "data": {"k": "v"}}
    assert record.body is record.body


def test_the_log_forgets_by_count():
    store = Store(VirtualClock(), history=10)
    table = store.table(CONFIG_MAP)
    for number in range(40):
        store.put(table, "ns/a", obj("a", k=str(number)))
    assert 10 <= len(table.events) <= 13
    assert store.compacted == store.revision - len(table.events)


async def test_the_log_forgets_by_age_but_keeps_at_least_one_interval():
    clock = VirtualClock()
    store = Store(clock, compaction_interval=300)
    table = store.table(CONFIG_MAP)
    store.put(table, "ns/a", obj("a"))
    await clock.advance(301)
    store.expire()
    assert store.compacted == 0
    store.put(table, "ns/b", obj("b"))
    await clock.advance(301)
    store.expire()
    assert [event.record.key for event in table.events] == ["ns/b"]


def test_compaction_never_changes_the_current_state():
    store, table = made()
    store.put(table, "ns/a", obj("a"))
    store.compact()
    assert store.compacted == store.revision
    assert table.since(store.compacted) == []
    assert list(table.records) == ["ns/a"]


def test_listeners_hear_every_change_in_order_with_both_states():
    store, table = made()
    heard: list[tuple[str, bool]] = []

    def listen(_: ResourceTable, event: StoreEvent) -> None:
        heard.append((event.type, event.previous is not None))

    store.listen(listen)
    store.put(table, "ns/a", obj("a"))
    store.put(table, "ns/a", obj("a", k="v"))
    store.remove(table, "ns/a")
    assert heard == [("ADDED", False), ("MODIFIED", True), ("DELETED", True)]


def test_rereading_changes_what_is_read_and_no_resource_version():
    store, table = made()
    store.put(table, "ns/a", obj("a", k="v"))
    store.reread(table, lambda old: {**old, "data": {"k": "w"}})
    assert table.records["ns/a"].obj["data"] == {"k": "w"}
    assert (table.records["ns/a"].revision, store.revision) == (2, 2)
