"""What a process remembers: who is interested in what, what is news, and what is its own echo."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ManagedFieldsEntry
from steersman.operators.reload.api.annotations import APPLIED
from steersman.operators.reload.controllers.change_tracker import ChangeTracker, source_matters
from steersman.operators.reload.controllers.report import writers
from steersman.operators.reload.planning.edges import DependencyEdge
from tests.support.reload.miniature import World, configmap, env, env_from, workload

names = st.sampled_from(["a", "b", "c"])


@given(st.lists(st.tuples(names, st.frozensets(st.sampled_from("xyz")))))
def test_the_last_interested_member_is_found_and_no_other(history):
    tracker, model = ChangeTracker(), {}
    for name, interests in history:
        tracker.set_interests(NamespacedName(name), interests)
        model[name] = interests
    for source in "xyz":
        assert [ref.name for ref in tracker.interested_in([source])] == sorted(n for n in model if source in model[n])


def decoded(world, manifest):
    world.put(manifest)
    return world.decoded(world.get(manifest["kind"], manifest["metadata"]["name"]))


def marked(world, state):
    marks = {"steersman.dev/reload": "auto", **({APPLIED: state} if state else {})}
    return decoded(world, workload("web", uses=[env_from("app")], annotations=marks))


def test_our_own_write_is_not_an_event_but_another_clients_is():
    tracker, world = ChangeTracker(), World()
    before, after = marked(world, ""), marked(world, "ours")
    tracker.wrote(after.ref, "ours")
    assert not tracker.workload_matters(before, after)
    assert tracker.workload_matters(after, before)


def test_only_what_a_plan_depends_on_counts():
    tracker, world = ChangeTracker(), World()
    web = decoded(world, workload("web", uses=[env("app", "mode")]))
    world.edit("Deployment", "web", {"spec": {"replicas": 5}, "metadata": {"annotations": {"theirs": "x"}}})
    same = world.decoded(world.get("Deployment", "web"))
    assert not tracker.workload_matters(web, same)
    assert tracker.workload_matters(same, decoded(world, workload("web", uses=[env("app", "level")])))
    assert tracker.workload_matters(None, web)
    assert tracker.workload_matters(web, None)


def test_a_source_changes_when_its_data_or_what_it_says_about_itself_changes():
    world = World()
    app = decoded(world, configmap("app", mode="a"))
    assert not source_matters(app, decoded(world, configmap("app", annotations={"theirs": "x"}, mode="a")))
    assert source_matters(app, decoded(world, configmap("app", annotations={"steersman.dev/urgent": "true"}, mode="a")))
    assert source_matters(app, decoded(world, configmap("app", mode="b")))
    assert source_matters(app, None)


@pytest.mark.parametrize(
    ("listed_before", "counts"), [("5", True), ("7", False), ("", False)], ids=["before it", "after it", "watched"]
)
def test_a_change_between_two_lists_counts_for_a_workload_that_the_second_shows_first(listed_before, counts):
    """A watch shows a workload as it was created; a list shows it later, perhaps with a status written since."""
    tracker, world = ChangeTracker(), World()
    tracker.listed_before = lambda _namespace: listed_before
    before, after = (
        at(decoded(world, configmap("app", mode=mode)), revision) for mode, revision in (("a", 3), ("b", 7))
    )
    tracker.observe_source(before, after)
    web = at(decoded(world, workload("web", uses=[env_from("app")])), 9)
    tracker.observe_workload(None, web)
    edge = DependencyEdge(source=after.source)
    assert tracker.moved(web.ref, [edge]) == ({after.source: False} if counts else {})


@pytest.mark.parametrize(
    ("written", "listed", "shown_after", "counts"),
    [
        (3, "5", "5", True),  # a list, the workload and the deletion, and then the list that shows the workload
        (7, "5", "5", True),
        (3, "5", "9", False),  # a list after the deletion does not show the workload
        (7, "", "", False),  # a watch: the workload came at 9
        (11, "", "", True),
    ],
)
def test_a_deletion_counts_for_a_workload_that_may_have_used_the_source(written, listed, shown_after, counts):
    tracker, world = ChangeTracker(), World()
    tracker.live = True
    tracker.listed_at = lambda _namespace: listed
    tracker.listed_before = lambda _namespace: shown_after
    app = at(decoded(world, configmap("app", mode="a")), written)
    tracker.observe_source(app, None)
    web = at(decoded(world, workload("web", uses=[env_from("app")])), 9)
    tracker.observe_workload(None, web)
    edge = DependencyEdge(source=app.source)
    assert tracker.deleted(web.ref, [edge]) == (frozenset({app.source}) if counts else frozenset())
    tracker.observe_source(None, app)
    assert not tracker.deleted(web.ref, [edge])


def at(obj, revision):
    return replace(obj, metadata=replace(obj.metadata, resource_version=str(revision)))


def test_an_annotation_that_keeps_being_removed_is_not_written_for_ever():
    world = World()
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env("app", "mode")]))
    for _ in range(20):
        world.run()
        world.edit("Deployment", "web", {"metadata": {"annotations": {APPLIED: None}}})
    assert world.patches <= 7
    assert "another client keeps removing our annotation" in world.step("Deployment", "web").plan.problems[0]
    world.put(configmap("app", mode="b"))
    world.run()
    assert world.run(after=60) == {"deployment/web": "restart"}


def entry(manager, time, *keys):
    return ManagedFieldsEntry(manager=manager, time=time, fields_v1={"f:data": {f"f:{key}": {} for key in keys}})


def test_those_who_write_the_flapping_keys_are_named_first_and_the_latest_of_them_before_others():
    entries = [
        entry("helm", "2026-01-01T00:00:00Z", "mode"),
        entry("labeller", "2026-01-09T00:00:00Z"),
        entry("sync", "2026-01-08T00:00:00Z", "other"),
        entry("cert-manager", "2026-01-02T00:00:00Z", "mode"),
    ]
    assert writers(entries, ["mode"]) == ["cert-manager", "helm", "sync"]
