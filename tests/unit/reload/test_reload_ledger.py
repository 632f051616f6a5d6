"""What a process remembers: who is interested in what, what is news, and what is its own echo."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from steersman.kube.objects import ManagedFieldsEntry
from steersman.kube.resources import ObjectRef
from steersman.operators.reload.flapping import writers
from steersman.operators.reload.ledger import Ledger
from steersman.operators.reload.types import APPLIED
from steersman.testing.reloading import World, configmap, env, env_from, workload

names = st.sampled_from(["a", "b", "c"])


@given(st.lists(st.tuples(names, st.frozensets(st.sampled_from("xyz")))))
def test_whoever_said_last_that_he_is_interested_is_found_and_nobody_else(history):
    ledger, model = Ledger(), {}
    for name, interests in history:
        ledger.set_interests(ObjectRef(name), interests)
        model[name] = interests
    for source in "xyz":
        assert [ref.name for ref in ledger.interested_in([source])] == sorted(n for n in model if source in model[n])


def decoded(world, manifest):
    world.put(manifest)
    return world._decoded(world.get(manifest["kind"], manifest["metadata"]["name"]))


def marked(world, state):
    marks = {"steersman.dev/reload": "auto", **({APPLIED: state} if state else {})}
    return decoded(world, workload("web", uses=[env_from("app")], annotations=marks))


def test_our_own_write_is_no_news_but_somebody_elses_is():
    ledger, world = Ledger(), World()
    before, after = marked(world, ""), marked(world, "ours")
    ledger.wrote(after.ref, "ours")
    assert not ledger.workload_changed(before, after)
    assert ledger.workload_changed(after, before)


def test_only_what_a_plan_depends_on_is_news():
    ledger, world = Ledger(), World()
    web = decoded(world, workload("web", uses=[env("app", "mode")]))
    world.edit("Deployment", "web", {"spec": {"replicas": 5}, "metadata": {"annotations": {"theirs": "x"}}})
    same = world._decoded(world.get("Deployment", "web"))
    assert not ledger.workload_changed(web, same)
    assert ledger.workload_changed(same, decoded(world, workload("web", uses=[env("app", "level")])))
    assert ledger.workload_changed(None, web)
    assert ledger.workload_changed(web, None)


def test_a_source_is_news_when_its_data_or_what_it_says_about_itself_changes():
    ledger, world = Ledger(), World()
    app = decoded(world, configmap("app", mode="a"))
    assert not ledger.source_changed(app, decoded(world, configmap("app", annotations={"theirs": "x"}, mode="a")))
    assert ledger.source_changed(
        app, decoded(world, configmap("app", annotations={"steersman.dev/urgent": "true"}, mode="a"))
    )
    assert ledger.source_changed(app, decoded(world, configmap("app", mode="b")))
    assert ledger.source_changed(app, None)


def test_what_somebody_keeps_removing_is_not_written_for_ever():
    world = World()
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env("app", "mode")]))
    for _ in range(20):
        world.run()
        world.edit("Deployment", "web", {"metadata": {"annotations": {APPLIED: None}}})
    assert world.patches <= 7
    assert "somebody keeps removing it" in world.step("Deployment", "web").plan.problems[0]
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
