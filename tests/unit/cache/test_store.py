"""The store: replace, indexes, snapshots that hold still, own writes shown until the watch has them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from steersman.cache.store import TOMBSTONE_SECONDS, Delta, ObjectStore
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.testing.clock import VirtualClock


class Thing(Resource, group="example.org", version="v1"):
    data: dict[str, str] | None = None


def thing(name: str, revision: int = 1, *, uid: str = "", namespace: str = "shop", **data: str) -> Thing:
    meta = ObjectMeta(name=name, namespace=namespace, uid=uid or f"uid-{name}", resource_version=str(revision))
    return Thing(metadata=meta, data=data)


@pytest.fixture
def store() -> ObjectStore[Thing]:
    return ObjectStore()


def names(objects) -> list[str]:
    return [obj.metadata.name for obj in objects]


# -- what came since a snapshot --------------------------------------------------------------------------------------


def test_a_snapshot_knows_what_later_ones_show_and_when_that_changes(store):
    before, after = thing("a", 1), thing("a", 2)
    store.upsert(before)
    told: list[NamespacedName] = []
    with store.snapshot() as snapshot:
        snapshot.listeners.append(told.append)
        store.record_write(after)
        assert (snapshot.get(before.ref), snapshot.latest(before.ref)) == (before, after)
        store.upsert(after)  # the watch brings what is shown already: the same object, no news
        assert told == [before.ref]
        store.remove(thing("a", 3))
        assert snapshot.latest(before.ref) is None
        assert told == [before.ref] * 2


# -- replace ---------------------------------------------------------------------------------------------------------


def test_replace_emits_deletions_for_what_vanished(store):
    a, b = thing("a"), thing("b")
    store.replace([a, b], "1")
    assert store.replace([b], "2") == [Delta(a, None)]
    assert names(store.snapshot()) == ["b"]


def test_replace_reports_what_is_new_and_what_changed_and_nothing_else(store):
    a, b = thing("a"), thing("b")
    store.replace([a, b], "1")
    b2, c = thing("b", 2), thing("c", 2)
    assert store.replace([thing("a"), b2, c], "2") == [Delta(b, b2), Delta(None, c)]


def test_an_object_that_comes_twice_at_once_replaces_itself(store):
    first, other, second = thing("a", 1), thing("a", 2, namespace="mine"), thing("a", 3)
    assert store.upserts([first, other, second]) == [None, None, first]
    assert len(store) == 2
    assert list(store.snapshot()) == [other, second]


def test_replace_shows_an_object_created_again_under_the_same_name(store):
    old, new = thing("a", 1, uid="one"), thing("a", 1, uid="two")
    store.replace([old], "1")
    assert store.replace([new], "2") == [Delta(old, new)]


def test_replace_of_one_namespace_leaves_the_others_alone(store):
    mine, theirs = thing("a", namespace="mine"), thing("a", namespace="theirs")
    store.replace([mine], "1", namespace="mine")
    store.replace([theirs], "1", namespace="theirs")
    assert store.replace([], "2", namespace="mine") == [Delta(mine, None)]
    assert list(store.snapshot()) == [theirs]


def test_replace_keeps_what_exists_but_could_not_be_read(store):
    a = thing("a")
    store.replace([a], "1")
    assert store.replace([], "2", keep={a.ref}) == []
    assert store.get(a.ref) is a


def test_replaced_objects_are_released(store):
    class Tracked(Thing, weakref=True, gc=True):
        pass

    old = Tracked(metadata=ObjectMeta(name="a", uid="1", resource_version="1"))
    gone = weakref.ref(old)
    store.replace([old], "1")
    store.replace([], "2")
    del old
    gc.collect()
    assert gone() is None


# -- indexes ---------------------------------------------------------------------------------------------------------


def test_an_index_finds_an_object_by_each_of_its_values(store):
    store.add_index("keys", lambda obj: obj.data or ())
    store.upsert(thing("a", x="1", y="1"))
    store.upsert(thing("b", y="1"))
    assert names(store.snapshot().by_index("keys", "x")) == ["a"]
    assert names(store.snapshot().by_index("keys", "y")) == ["a", "b"]


def test_an_index_forgets_values_that_no_object_has(store):
    store.add_index("keys", lambda obj: obj.data or ())
    store.upsert(thing("a", 1, x="1"))
    store.upsert(thing("a", 2, y="1"))
    store.remove(thing("a", 3))
    assert store.index("keys")._refs == {}


def test_an_index_added_late_knows_what_is_there(store):
    store.upsert(thing("a", x="1"))
    store.add_index("keys", lambda obj: obj.data or ())
    assert names(store.snapshot().by_index("keys", "x")) == ["a"]


def test_an_index_function_that_fails_on_one_object_does_not_hide_the_others(store):
    store.add_index("first", lambda obj: [next(iter(obj.data))])
    store.upsert(thing("empty"))
    store.upsert(thing("full", x="1"))
    assert names(store.snapshot().by_index("first", "x")) == ["full"]
    assert len(store) == 2


def test_one_index_name_cannot_mean_two_things(store):
    store.add_index("keys", lambda obj: [])
    with pytest.raises(ValueError, match="another function"):
        store.add_index("keys", lambda obj: [])


def test_an_unknown_index_is_named_with_the_known_ones(store):
    store.add_index("keys", lambda obj: [])
    with pytest.raises(LookupError, match=r"unknown index 'kesy' \(known: keys\)"):
        store.snapshot().by_index("kesy", "x")


# -- snapshots -------------------------------------------------------------------------------------------------------


def test_a_snapshot_does_not_move(store):
    store.add_index("keys", lambda obj: obj.data or ())
    store.replace([thing("a", x="1"), thing("b", x="1")], "1")
    with store.snapshot() as snapshot:
        store.upsert(thing("a", 2, y="1"))
        store.remove(thing("b", 2))
        store.upsert(thing("c", 2, x="1"))
        assert names(snapshot.list()) == ["a", "b"]
        assert names(snapshot.by_index("keys", "x")) == ["a", "b"]
        assert snapshot.get(NamespacedName("c", "shop")) is None
        assert snapshot.by_index("keys", "y") == []
        assert snapshot.resource_version == "1"
    assert names(store.snapshot().by_index("keys", "x")) == ["c"]


def test_a_closed_snapshot_cannot_be_read_and_costs_nothing(store):
    snapshot = store.snapshot()
    snapshot.close()
    snapshot.close()
    assert store._snapshots == []
    with pytest.raises(RuntimeError, match="closed"):
        snapshot.list()


def test_lists_are_ordered_by_namespace_and_name(store):
    store.replace([thing("b", namespace="y"), thing("a", namespace="z"), thing("a", namespace="y")], "1")
    assert [str(o.ref) for o in store.snapshot()] == ["y/a", "y/b", "z/a"]
    assert [str(o.ref) for o in store.snapshot().list(namespace="y")] == ["y/a", "y/b"]


# -- own writes ------------------------------------------------------------------------------------------------------


def test_a_write_is_seen_by_the_next_snapshot_before_the_watch_delivers_it(store):
    store.upsert(thing("a", 1))
    store.record_write(thing("a", 5, x="mine"))
    assert store.snapshot().get(NamespacedName("a", "shop")).data == {"x": "mine"}


def test_a_write_through_a_snapshot_is_seen_there_and_by_later_ones_but_not_by_others_already_open(store):
    store.upsert(thing("a", 1))
    other, mine = store.snapshot(), store.snapshot()
    mine.record_write(thing("a", 5, x="mine"))
    ref = NamespacedName("a", "shop")
    assert mine.get(ref).data == store.snapshot().get(ref).data == {"x": "mine"}
    assert other.get(ref).data == {}


def test_a_created_object_is_seen_before_the_watch_delivers_it(store):
    store.replace([], "3")
    store.record_write(thing("a", 5))
    assert names(store.snapshot()) == ["a"]


def test_a_third_partys_newer_change_replaces_our_write(store):
    store.upsert(thing("a", 1))
    store.record_write(thing("a", 5, x="mine"))
    store.upsert(thing("a", 6, x="theirs"))
    assert store.get(NamespacedName("a", "shop")).data == {"x": "theirs"}


def test_handlers_still_learn_of_a_change_that_our_write_already_contained(store):
    first, label = thing("a", 1), thing("a", 4, label="theirs")
    store.upsert(first)
    store.record_write(thing("a", 5, label="theirs", x="mine"))
    assert store.upsert(label) == Delta(first, label)
    assert store.get(label.ref).data == {"label": "theirs", "x": "mine"}  # not back in time for readers


def test_a_write_older_than_what_the_watch_delivered_is_ignored(store):
    store.upsert(thing("a", 9, x="newer"))
    store.record_write(thing("a", 5, x="older"))
    assert store.get(NamespacedName("a", "shop")).data == {"x": "newer"}


def test_a_write_to_something_already_gone_does_not_bring_it_back(store):
    store.replace([thing("a", 1)], "1")
    store.remove(thing("a", 8))
    store.progress("8")
    store.record_write(thing("a", 5))
    assert store.get(NamespacedName("a", "shop")) is None


def test_a_write_gives_way_when_a_bookmark_shows_that_the_watch_is_past_it(store):
    store.replace([], "3")
    store.record_write(thing("a", 5))
    store.progress("4")
    assert names(store.snapshot()) == ["a"]
    store.progress("6")
    assert names(store.snapshot()) == []


def test_progress_of_one_namespace_says_nothing_about_writes_in_another(store):
    store.replace([], "1", namespace="shop")
    store.replace([], "9", namespace="other")
    store.record_write(thing("a", 5))
    store.progress("9", namespace="other")
    assert names(store.snapshot()) == ["a"]


def test_resource_versions_that_are_not_numbers_end_an_overlay_with_the_next_event(store):
    def opaque(revision, **data):
        return Thing(metadata=ObjectMeta(name="a", namespace="shop", uid="u", resource_version=revision), data=data)

    store.upsert(opaque("alpha"))
    store.record_write(opaque("beta", x="mine"))
    assert store.get(NamespacedName("a", "shop")).data == {"x": "mine"}
    store.upsert(opaque("gamma", x="theirs"))
    assert store.get(NamespacedName("a", "shop")).data == {"x": "theirs"}


def test_a_deletion_we_made_hides_the_object_until_the_watch_agrees(store):
    store.upsert(thing("a", 1))
    store.record_delete(NamespacedName("a", "shop"), "uid-a")
    assert names(store.snapshot()) == []
    assert store.remove(thing("a", 2)) == Delta(thing("a", 1), None)
    store.upsert(thing("a", 3, uid="another"))
    assert names(store.snapshot()) == ["a"]


def test_a_deletion_never_hides_a_successor_of_the_same_name(store):
    store.upsert(thing("a", 1, uid="new"))
    store.record_delete(NamespacedName("a", "shop"), "old")
    assert names(store.snapshot()) == ["a"]


async def test_a_deletion_that_the_watch_never_confirms_is_shown_for_a_bounded_time():
    clock = VirtualClock()
    store: ObjectStore[Thing] = ObjectStore(clock=clock)
    store.upsert(thing("a", 1))
    store.record_delete(NamespacedName("a", "shop"), "uid-a")
    await clock.advance(TOMBSTONE_SECONDS - 1)
    assert names(store.snapshot()) == []
    await clock.advance(2)
    assert names(store.snapshot()) == ["a"]


class StoreMachine(RuleBasedStateMachine):
    """A store fed by a random history agrees with a plain dict, in every view."""

    @initialize()
    def start(self) -> None:
        self.store: ObjectStore[Thing] = ObjectStore()
        self.store.add_index("keys", lambda obj: obj.data or ())
        self.base: dict[str, Thing] = {}
        self.overlay: dict[str, Thing] = {}
        self.held: list[tuple[Any, dict[str, Thing]]] = []
        self.revision = 0

    def visible(self) -> dict[str, Thing]:
        return {**self.base, **self.overlay}

    def fresh(self, name: str, keys: set[str]) -> Thing:
        self.revision += 1
        return thing(name, self.revision, **dict.fromkeys(keys, "1"))

    letters = st.sampled_from("abcd")
    keys = st.sets(st.sampled_from("xyz"))

    @rule(name=letters, keys=keys)
    def watch_delivers(self, name, keys):
        obj = self.fresh(name, keys)
        self.store.upsert(obj)
        self.base[name] = obj
        self.overlay.pop(name, None)

    @rule(name=letters)
    def watch_deletes(self, name):
        obj = self.fresh(name, set())
        change = self.store.remove(obj)
        assert (change is None) == (name not in self.base)
        if self.base.pop(name, None):
            self.overlay.pop(name, None)

    @rule(name=letters, keys=keys)
    def we_write(self, name, keys):
        obj = self.fresh(name, keys)
        self.store.record_write(obj)
        self.overlay[name] = obj

    @rule(chosen=st.dictionaries(letters, keys))
    def relist(self, chosen):
        objects = [self.fresh(name, keys) for name, keys in chosen.items()]
        self.store.replace(objects, str(self.revision))
        self.base = {o.name: o for o in objects}
        self.overlay = {}

    @rule()
    def take_snapshot(self):
        self.held.append((self.store.snapshot(), self.visible()))

    @invariant()
    def views_agree(self):
        if not hasattr(self, "store"):
            return
        with self.store.snapshot() as now:
            for view, expected in [*self.held, (now, self.visible())]:
                assert names(view.list()) == sorted(expected)
                for key in "xyz":
                    assert names(view.by_index("keys", key)) == sorted(n for n, o in expected.items() if key in o.data)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_the_store_knows_the_resource_version_it_has_reached():
    store: ObjectStore[Any] = ObjectStore()
    assert store.revision == ""
    store.replace([], "4", namespace="one")
    store.replace([], "9", namespace="two")
    assert store.revision == "4"  # the one furthest behind
    store.reached("12", namespace="one")
    assert store.revision == "9"
    with store.snapshot() as snapshot:
        store.progress("20", namespace="two")
        assert (snapshot.resource_version, store.revision) == ("9", "12")
