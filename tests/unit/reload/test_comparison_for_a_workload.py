"""How a source is compared is said for each workload: by it, its namespace, policies, the source, the configuration.

To say it, to take it back, or to say something else is never a change; and no change hides behind it, whenever it comes
and whenever the process dies.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.operators.reload.comparison import LONGEST_WAYS, read_ways
from steersman.operators.reload.digest import ConfigMapSource
from steersman.operators.reload.features import CompareConfig
from steersman.operators.reload.forms import Forms
from steersman.operators.reload.gates import Moment
from steersman.operators.reload.state import LIMIT, read_state
from steersman.operators.reload.types import APPLIED, Budget, Options, ReloadConfig, SourceKind, SourceRef, Window
from steersman.testing.reloading import World, configmap, env, env_from, workload

AT_ONCE = Window(quiet=timedelta(0), limit=timedelta(0))
COMPARE = "steersman.dev/compare"
JSON = {"keys": "*.json", "as": "json"}
ONE, SAME, OTHER = '{"x": 1, "y": 2}', '{"y":2, "x":1}', '{"x": 1, "y": 3}'
APP = SourceRef(SourceKind.CONFIGMAP, "shop", "app")


def policy(*rows, name="p", cluster=False, **spec):
    meta = {"name": name} if cluster else {"name": name, "namespace": "shop"}
    kind = "ClusterReloadPolicy" if cluster else "ReloadPolicy"
    body = {"compare": list(rows), **spec}
    return {"apiVersion": "steersman.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": body}


def namespace(**annotations):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "annotations": annotations}}


def world(config=None, **annotations):
    options = (config or ReloadConfig()).options()
    made = World(msgspec.structs.replace(options, window=AT_ONCE, budget=Budget(restarts=0)), policies=True)
    made.put(configmap("app", **{"a.json": ONE}))
    marks = {"steersman.dev/reload": "auto", **annotations}
    made.put(workload("web", uses=[env_from("app")], annotations=marks, labels={"app": "web"}))
    return made


def by_source():
    made = world()
    made.edit("ConfigMap", "app", {"metadata": {"annotations": {COMPARE: "*.json=json"}}})
    return made


def by_namespace():
    made = world()
    made.put(namespace(**{COMPARE: "*.json=json"}))
    return made


def by_policy(**more):
    made = world()
    made.put(policy(JSON, **more))
    return made


def say(made, change, *, crash):
    """A policy comes, changes or goes; and the process may die."""
    if change is None:
        made.delete("ReloadPolicy", "p")
    else:
        made.put(change)
    if crash:
        made.crash()


WAYS = {
    "source": by_source,
    "workload": lambda: world(**{COMPARE: "configmap/app#*.json=json"}),
    "namespace": by_namespace,
    "policy": by_policy,
    "policy that selects": lambda: by_policy(selector={"matchLabels": {"app": "web"}}),
    "policy of the cluster": lambda: by_policy(cluster=True),
    "configuration": lambda: world(ReloadConfig(compare=(CompareConfig(keys="*.json", form="json"),))),
}


@pytest.mark.parametrize("who", WAYS)
def test_whoever_says_it_what_means_the_same_restarts_nobody_and_what_does_not_restarts(who):
    made = WAYS[who]()
    made.run()
    made.edit("ConfigMap", "app", {"data": {"a.json": SAME}})
    assert made.run() == {}
    made.edit("ConfigMap", "app", {"data": {"a.json": OTHER}})
    assert made.run() == {"deployment/web": "restart"}


def test_a_policy_is_about_the_workloads_it_selects_and_no_others():
    made = by_policy(selector={"matchLabels": {"app": "web"}})
    made.put(workload("api", uses=[env_from("app")]))
    made.run()
    made.edit("ConfigMap", "app", {"data": {"a.json": SAME}})
    assert made.run() == {"deployment/api": "restart"}


def test_the_nearest_who_says_something_about_a_key_decides():
    """The source, the workload, ReloadPolicy, the namespace, ClusterReloadPolicy, the configuration."""
    made = world(ReloadConfig(compare=(CompareConfig(keys="*", form="ignore"),)))
    layers = [
        (lambda: None, "ignore", "the configuration"),
        (
            lambda: made.put(policy({"keys": "*.json", "as": "properties"}, cluster=True)),
            "properties",
            "clusterreloadp",
        ),
        (lambda: made.put(namespace(**{COMPARE: "*.json=yaml"})), "yaml", "the namespace"),
        (lambda: made.put(policy(JSON)), "json", "reloadpolicy/p"),
        (
            lambda: made.edit("Deployment", "web", {"metadata": {"annotations": {COMPARE: "a*=bytes"}}}),
            "bytes",
            "the w",
        ),
        (
            lambda: made.edit("ConfigMap", "app", {"metadata": {"annotations": {COMPARE: "*=certificate"}}}),
            "certificate",
            "the source",
        ),
    ]
    for say, form, who in layers:
        say()
        (edge,) = made.look("Deployment", "web").edges.tracked
        way = next(one for one in edge.ways if one.keys in ("*", "*.json", "a*"))
        assert (way.form, way.where.startswith(who)) == (form, True), way


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("uses", [env_from("app"), env("app", "a.json")])
def test_switching_a_policy_on_and_off_restarts_nobody(uses, crash):
    made = world()
    made.put(workload("web", uses=[uses], labels={"app": "web"}))
    made.run()
    for change in (policy(JSON), policy({"keys": "*", "as": "ignore"}), policy({"keys": "*", "as": "yaml"}), None):
        say(made, change, crash=crash)
        assert set(made.run().values()) <= {"seed"}
        assert made.run() == {}
    made.edit("ConfigMap", "app", {"data": {"a.json": OTHER}})
    assert made.run() == {"deployment/web": "restart"}


@pytest.mark.parametrize("crash", [False, True])
def test_a_change_that_comes_together_with_a_policy_is_not_lost(crash):
    made = world()
    made.run()
    for text, change in ((OTHER, policy(JSON)), (ONE, None), (OTHER, policy({"keys": "*.json", "as": "yaml"}))):
        made.edit("ConfigMap", "app", {"data": {"a.json": text}})
        say(made, change, crash=crash)
        assert made.run() == {"deployment/web": "restart"}


def test_a_change_that_waits_stays_one_when_a_policy_comes_and_only_ignoring_it_takes_it_back():
    made = world(**{"steersman.dev/freeze": "true"})
    made.run()
    made.edit("ConfigMap", "app", {"data": {"a.json": OTHER}})
    assert made.run() == {"deployment/web": "wait"}
    made.put(policy(JSON))
    made.crash()
    assert made.run() == {"deployment/web": "wait"}
    made.put(policy({"keys": "a.*", "as": "ignore"}))
    assert made.run() == {"deployment/web": "seed"}
    assert made.run() == {}


def test_an_ignored_key_may_come_and_go():
    made = world()
    made.put(policy({"source": "configmap/app", "keys": "build-*", "as": "ignore"}))
    made.run()
    made.edit("ConfigMap", "app", {"data": {"build-id": "7"}})
    assert made.run() == {}
    made.edit("ConfigMap", "app", {"data": {"build-id": None}})
    assert made.run() == {}


def test_what_is_gone_is_compared_as_it_was_when_it_comes_back():
    made = by_policy()
    made.run()
    made.delete("ConfigMap", "app")
    made.run()
    made.delete("ReloadPolicy", "p")
    made.run()
    made.put(configmap("app", **{"a.json": SAME}))
    assert set(made.run().values()) <= {"seed"}
    made.edit("ConfigMap", "app", {"data": {"a.json": OTHER}})
    assert made.run() == {"deployment/web": "restart"}


@pytest.mark.parametrize(("count", "size"), [(1, 900), (400, 2)], ids=["per source", "all sources"])
def test_a_state_that_had_to_be_summarised_is_compared_as_it_was_too(count, size):
    made = World(Options(window=AT_ONCE, budget=Budget(restarts=0)), policies=True)
    names = [f"app-{number}" for number in range(count)]
    data = {f"{number:03}.json": ONE for number in range(size)}
    for name in names:
        made.put(configmap(name, **data))
    made.put(workload("web", uses=[env_from(name) for name in names]))
    made.put(policy(JSON))
    made.run()
    text = made.get("Deployment", "web")["metadata"]["annotations"][APPLIED]
    state = read_state(text).applied
    assert len(text) <= LIMIT
    assert (state.total is not None) if count > 1 else (state.sources["configmap/app-0"].keys is None)
    made.put(policy({"keys": "*", "as": "yaml"}))
    made.crash()
    assert made.run() == {"deployment/web": "seed"}
    made.edit("ConfigMap", "app-0", {"data": {"000.json": SAME}})
    assert made.run() == {}
    made.edit("ConfigMap", "app-0", {"data": {"000.json": OTHER}})
    made.delete("ReloadPolicy", "p")
    made.crash()
    assert made.run() == {"deployment/web": "restart"}


def test_a_policy_that_ignores_keys_restarts_nobody_whose_state_is_one_sum():
    made = World(Options(window=AT_ONCE, budget=Budget(restarts=0)), policies=True)
    names = [f"app-{number}" for number in range(400)]
    for name in names:
        made.put(configmap(name, a="1", b="2"))
    made.put(workload("web", uses=[env_from(name) for name in names]))
    made.run()
    made.put(policy(ignore=["configmap/app-1#b"]))
    assert set(made.run().values()) <= {"seed"}


def test_a_policy_between_the_first_sight_and_its_writing_restarts_nobody():
    made = world()
    look = made.look("Deployment", "web")
    made.keepers["Deployment"].ledger.keep(look.workload.ref, look.plan.observed)
    made.put(policy(JSON))
    assert made.run() == {"deployment/web": "seed"}


def test_another_layout_between_creation_and_first_sight_restarts_nobody_and_another_value_does():
    for text, expected in ((SAME, "seed"), (OTHER, "restart")):
        made = by_source()
        made.look("Deployment", "web")
        made.put(workload("new", uses=[env_from("app")]))
        made.edit("ConfigMap", "app", {"data": {"a.json": text}})
        assert made.run()["deployment/new"] == expected


def test_a_key_that_it_does_not_use_may_change_between_creation_and_first_sight():
    made = world()
    made.look("Deployment", "web")
    made.put(workload("new", uses=[env("app", "a.json")]))
    made.edit("ConfigMap", "app", {"data": {"b": "2"}})
    assert made.run()["deployment/new"] == "seed"


def test_more_ways_than_can_be_noted_are_told_and_the_first_count():
    rows = [{"keys": f"{'k' * 100}-{number}", "as": "json"} for number in range(20)]
    made = world()
    made.put(policy(JSON, *rows))
    look = made.look("Deployment", "web")
    (problem,) = look.plan.problems
    assert (
        problem
        == "configmap/app: 21 globs say how its keys are compared; only the first 10 fit into 1000 characters and count"
    )
    made.run()
    state = read_state(made.get("Deployment", "web")["metadata"]["annotations"][APPLIED]).applied
    assert 0 < len(state.sources["configmap/app"].ways) <= LONGEST_WAYS


@pytest.mark.parametrize("junk", ["x", "*.json=xml", "=", "a=json,,b"])
def test_ways_that_cannot_be_read_make_their_entry_a_new_one(junk):
    made = by_policy()
    made.run()
    text = made.get("Deployment", "web")["metadata"]["annotations"][APPLIED]
    state = msgspec.json.decode(text)
    assert state["w"] == ["*.json=json"]
    made.edit("Deployment", "web", {"metadata": {"annotations": {APPLIED: text.replace("*.json=json", junk)}}})
    made.crash()
    assert set(made.run().values()) <= {"seed"}
    made.edit("Deployment", "web", {"metadata": {"annotations": {APPLIED: text.replace('"w":1', '"w":7')}}})
    made.crash()
    assert made.run() == {"deployment/web": "seed"}


FORMS = st.sampled_from(["json", "yaml", "bytes"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("policy"), st.sampled_from(["a", "*", "b"]), FORMS),
        st.tuples(st.just("unpolicy"), st.none(), st.none()),
        st.tuples(st.just("layout"), st.sampled_from(["a", "b"]), st.integers(0, 3)),
        st.tuples(st.just("value"), st.sampled_from(["a", "b"]), st.integers(0, 3)),
        st.tuples(st.just("crash"), st.none(), st.none()),
        st.tuples(st.just("run"), st.none(), st.none()),
        st.tuples(st.just("lose"), st.none(), st.none()),
    ),
    max_size=14,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.booleans())
def test_whatever_happens_pods_run_the_last_values_and_never_restart_without_an_edit(steps, wide):
    made = World(Options(window=AT_ONCE, budget=Budget(restarts=0)), policies=True)
    values = {"a": 0, "b": 0}
    layout = {"a": 0, "b": 0}

    def text(key):
        return "{" + " " * layout[key] + f'"v": {values[key]}' + "}"

    def write():
        made.edit("ConfigMap", "app", {"data": {key: text(key) for key in values}})

    made.put(configmap("app", **{key: text(key) for key in values}))
    made.put(workload("web", uses=[env_from("app") if wide else env("app", "a")]))
    made.run()
    started = dict(values)
    edits = 0

    def run(lose=False):
        before = made.restarts.get("deployment/web", 0)
        made.step("Deployment", "web", lose=lose)
        if made.restarts.get("deployment/web", 0) > before:
            started.update(values)

    for what, key, value in steps:
        if what == "policy":
            made.put(policy({"keys": key, "as": value}))
        elif what == "unpolicy" and ("ReloadPolicy", "shop", "p") in made.objects:
            made.delete("ReloadPolicy", "p")
        elif what in ("layout", "value"):
            (layout if what == "layout" else values)[key] = value
            edits += 1
            write()
        elif what == "crash":
            made.crash()
        elif what in ("run", "lose"):
            run(lose=what == "lose")
    run()
    used = ("a", "b") if wide else ("a",)
    assert {key: started[key] for key in used} == {key: values[key] for key in used}
    assert made.restarts.get("deployment/web", 0) <= edits
    run()
    assert made.run() == {}


@pytest.mark.parametrize("count", [1, 400])
def test_who_only_shows_what_a_process_knows_that_has_asked_for_no_form_shows_no_change(count):
    """As the page of a standby does, which reads nothing again."""
    made = World(Options(window=AT_ONCE, budget=Budget(restarts=0)), policies=True)
    for number in range(count):
        made.put(configmap(f"app-{number}", **{"a.json": ONE}))
    made.put(workload("web", uses=[env_from(f"app-{number}") for number in range(count)]))
    made.put(policy(JSON))
    made.run()
    made.crash()
    keeper = made.keepers["Deployment"]
    found = made._decoded(made.get("Deployment", "web"))
    look = keeper.look(found, made.caches(), Moment(wall=made.now, tick=made.now))
    assert look.lacking
    assert look.plan.changes == ()


# -- who asks for which forms ----------------------------------------------------------------------------------


def test_a_form_is_hashed_as_long_as_somebody_asks_for_it():
    forms = Forms()
    forms.want("web", {APP: {"*.json=json"}})
    forms.want("api", {APP: {"*.json=json", "a=yaml", ""}})
    assert forms.of(APP) == {read_ways("*.json=json"), read_ways("a=yaml")}
    forms.want("api", {})
    assert forms.of(APP) == {read_ways("*.json=json")}
    forms.want("web", {APP: {""}})
    assert forms.of(APP) == set()


def source(revision, **forms):
    meta = {"name": "app", "namespace": "shop", "uid": "u", "resourceVersion": revision}
    return msgspec.convert(
        {"metadata": meta, "steersman.dev/digests": {"a": b"1"}, "steersman.dev/forms": forms}, ConfigMapSource
    )


async def test_what_was_read_once_more_stands_in_for_that_very_version_only():
    forms = Forms()
    forms.want("web", {APP: {"a=json"}})

    class Server:
        asked = 0

        async def list(self, *_args, **_more):
            Server.asked += 1
            return type("Listing", (), {"items": [source("5")]})

    held = source("5")
    assert await forms.read(Server(), APP, held, lambda one: source("5", json={"a": b"2"}) if one else one)
    assert forms.shown(held, APP).forms == {"json": {"a": b"2"}}
    assert forms.shown(source("6"), APP).forms == {}
    assert await forms.read(Server(), APP, held, lambda one: one)
    assert Server.asked == 1  # it is there
    forms.superseded(APP, "6")
    assert forms.shown(held, APP).forms == {}
    assert not await forms.read(Server(), APP, source("6"), lambda one: one)  # a newer one is on its way
