"""Comparison rules are on the source or in the configuration, and the rules of a digest are recorded with it.

To add, remove or replace a rule is never a change, and no change hides behind it, whenever it comes and whenever the
process dies.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.operators.reload.api.annotations import APPLIED
from steersman.operators.reload.api.config import (
    CompareConfig,
    ReloadConfig,
    ReloadOptions,
    RestartBudget,
    SourceKind,
    SourceRef,
    Window,
)
from steersman.operators.reload.planning.gates import Moment
from steersman.operators.reload.planning.state import LIMIT, read_state
from steersman.operators.reload.sources.compare import LONGEST_RULES, deciding_rule, parse_compare_rules
from steersman.operators.reload.sources.digest import ConfigMapSource
from steersman.operators.reload.sources.digest_cache import CanonicalDigestCache
from tests.support.reload.miniature import World, configmap, env, env_from, workload

AT_ONCE = Window(quiet=timedelta(0), limit=timedelta(0))
COMPARE = "steersman.dev/compare"
JSON = "*.json=json"
ONE, SAME, OTHER = '{"x": 1, "y": 2}', '{"y":2, "x":1}', '{"x": 1, "y": 3}'
APP = SourceRef(SourceKind.CONFIGMAP, "shop", "app")


def namespace(**annotations):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "annotations": annotations}}


def world(config=None, **annotations):
    options = (config or ReloadConfig()).options()
    made = World(msgspec.structs.replace(options, window=AT_ONCE, budget=RestartBudget(restarts=0)), policies=True)
    made.put(configmap("app", **{"a.json": ONE}))
    marks = {"steersman.dev/reload": "auto", **annotations}
    made.put(workload("web", uses=[env_from("app")], annotations=marks, labels={"app": "web"}))
    return made


def rules(made, text, *names, crash=False):
    """Annotate the sources with these comparison rules, or remove them; and the process may die."""
    for name in names or ("app",):
        made.edit("ConfigMap", name, {"metadata": {"annotations": {COMPARE: text}}})
    if crash:
        made.crash()


def by_source():
    made = world()
    rules(made, JSON)
    return made


PLACES = {
    "source": by_source,
    "configuration": lambda: world(ReloadConfig(compare=(CompareConfig(keys="*.json", form="json"),))),
    "configuration for one source": lambda: world(
        ReloadConfig(compare=(CompareConfig(source="configmap/a*", namespace="shop", keys="*.json", form="json"),))
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_wherever_the_rule_is_what_means_the_same_restarts_nothing_and_another_value_does(place):
    made = PLACES[place]()
    made.run()
    made.edit("ConfigMap", "app", {"data": {"a.json": SAME}})
    assert made.run() == {}
    made.edit("ConfigMap", "app", {"data": {"a.json": OTHER}})
    assert made.run() == {"deployment/web": "restart"}


def test_a_rule_on_a_workload_or_a_namespace_is_reported_and_has_no_effect():
    for made in (world(**{COMPARE: "*=ignore"}), world()):
        if COMPARE not in made.get("Deployment", "web")["metadata"]["annotations"]:
            made.put(namespace(**{COMPARE: "*=ignore"}))
        look = made.evaluate("Deployment", "web")
        assert [edge.compare_rules for edge in look.edges.tracked] == [()]
        (problem,) = look.plan.problems
        assert f"{COMPARE}: read on ConfigMaps and Secrets only; ignored here (annotate the source" in problem
        made.run()
        made.edit("ConfigMap", "app", {"data": {"a.json": OTHER}})
        assert made.run() == {"deployment/web": "restart"}


def test_the_source_decides_before_the_configuration():
    made = world(ReloadConfig(compare=(CompareConfig(keys="*", form="ignore"),)))
    for text, form, where in ((None, "ignore", "the configuration"), ("*.json=yaml", "yaml", "the source")):
        rules(made, text)
        (edge,) = made.evaluate("Deployment", "web").edges.tracked
        rule = deciding_rule("a.json", edge.compare_rules)
        assert (rule.form, rule.where) == (form, where)


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("uses", [env_from("app"), env("app", "a.json")])
def test_adding_and_removing_rules_restarts_nothing(uses, crash):
    made = world()
    made.put(workload("web", uses=[uses], labels={"app": "web"}))
    made.run()
    for text in (JSON, "*=ignore", "*=yaml", None):
        rules(made, text, crash=crash)
        assert set(made.run().values()) <= {"seed"}
        assert made.run() == {}
    made.edit("ConfigMap", "app", {"data": {"a.json": OTHER}})
    assert made.run() == {"deployment/web": "restart"}


@pytest.mark.parametrize("crash", [False, True])
def test_a_change_that_comes_together_with_a_rule_is_not_lost(crash):
    made = world()
    made.run()
    for text, rule in ((OTHER, JSON), (ONE, None), (OTHER, "*.json=yaml")):
        made.edit("ConfigMap", "app", {"data": {"a.json": text}})
        rules(made, rule, crash=crash)
        assert made.run() == {"deployment/web": "restart"}


def test_a_change_that_waits_stays_one_when_a_rule_comes_and_only_ignoring_it_takes_it_back():
    made = world(**{"steersman.dev/freeze": "true"})
    made.run()
    made.edit("ConfigMap", "app", {"data": {"a.json": OTHER}})
    assert made.run() == {"deployment/web": "wait"}
    rules(made, JSON, crash=True)
    assert made.run() == {"deployment/web": "wait"}
    rules(made, "a.*=ignore")
    assert made.run() == {"deployment/web": "seed"}
    assert made.run() == {}


def test_an_ignored_key_may_come_and_go():
    made = world()
    rules(made, "build-*=ignore")
    made.run()
    made.edit("ConfigMap", "app", {"data": {"build-id": "7"}})
    assert made.run() == {}
    made.edit("ConfigMap", "app", {"data": {"build-id": None}})
    assert made.run() == {}


def test_what_is_gone_is_compared_as_it_was_when_it_comes_back():
    made = by_source()
    made.run()
    made.delete("ConfigMap", "app")
    made.run()
    made.put(configmap("app", **{"a.json": SAME}))
    assert set(made.run().values()) <= {"seed"}
    made.edit("ConfigMap", "app", {"data": {"a.json": OTHER}})
    assert made.run() == {"deployment/web": "restart"}


@pytest.mark.parametrize(("count", "size"), [(1, 900), (400, 2)], ids=["per source", "all sources"])
def test_a_state_that_had_to_be_summarised_is_compared_as_it_was_too(count, size):
    made = World(ReloadOptions(window=AT_ONCE, budget=RestartBudget(restarts=0)), policies=True)
    names = [f"app-{number}" for number in range(count)]
    data = {f"{number:03}.json": ONE for number in range(size)}
    for name in names:
        made.put(configmap(name, **data))
    made.put(workload("web", uses=[env_from(name) for name in names]))
    rules(made, JSON, *names)
    made.run()
    text = made.get("Deployment", "web")["metadata"]["annotations"][APPLIED]
    state = read_state(text).applied
    assert len(text) <= LIMIT
    assert (state.total is not None) if count > 1 else (state.sources["configmap/app-0"].keys is None)
    rules(made, "*=yaml", *names, crash=True)
    assert made.run() == {"deployment/web": "seed"}
    made.edit("ConfigMap", "app-0", {"data": {"000.json": SAME}})
    assert made.run() == {}
    made.edit("ConfigMap", "app-0", {"data": {"000.json": OTHER}})
    rules(made, None, *names, crash=True)
    assert made.run() == {"deployment/web": "restart"}


def test_a_policy_that_ignores_keys_restarts_no_workload_whose_state_is_one_sum():
    made = World(ReloadOptions(window=AT_ONCE, budget=RestartBudget(restarts=0)), policies=True)
    names = [f"app-{number}" for number in range(400)]
    for name in names:
        made.put(configmap(name, a="1", b="2"))
    made.put(workload("web", uses=[env_from(name) for name in names]))
    made.run()
    meta = {"name": "p", "namespace": "shop"}
    policy = {"apiVersion": "steersman.dev/v1alpha1", "kind": "ReloadPolicy", "metadata": meta}
    made.put({**policy, "spec": {"ignore": ["configmap/app-1#b"]}})
    assert set(made.run().values()) <= {"seed"}


def test_a_rule_between_the_first_evaluation_and_its_state_restarts_nothing():
    made = world()
    look = made.evaluate("Deployment", "web")
    made.reconcilers["Deployment"].tracker.keep(look.workload.ref, look.plan.observed)
    rules(made, JSON)
    assert made.run() == {"deployment/web": "seed"}


def test_another_layout_between_creation_and_first_observation_restarts_nothing_and_another_value_does():
    for text, expected in ((SAME, "seed"), (OTHER, "restart")):
        made = by_source()
        made.evaluate("Deployment", "web")
        made.put(workload("new", uses=[env_from("app")]))
        made.edit("ConfigMap", "app", {"data": {"a.json": text}})
        assert made.run()["deployment/new"] == expected


def test_a_key_that_it_does_not_use_may_change_between_creation_and_first_observation():
    made = world()
    made.evaluate("Deployment", "web")
    made.put(workload("new", uses=[env("app", "a.json")]))
    made.edit("ConfigMap", "app", {"data": {"b": "2"}})
    assert made.run()["deployment/new"] == "seed"


def test_more_rules_than_can_be_recorded_are_reported_and_the_first_count():
    made = world()
    rules(made, ",".join((JSON, *(f"{'k' * 100}-{number}=json" for number in range(20)))))
    look = made.evaluate("Deployment", "web")
    (problem,) = look.plan.problems
    assert (
        problem
        == "configmap/app: 21 globs say how its keys are compared; only the first 10 fit into 1000 characters and count"
    )
    made.run()
    state = read_state(made.get("Deployment", "web")["metadata"]["annotations"][APPLIED]).applied
    assert 0 < len(state.sources["configmap/app"].compare_rules) <= LONGEST_RULES


@pytest.mark.parametrize("junk", ["x", "*.json=xml", "=", "a=json,,b"])
def test_recorded_rules_that_cannot_be_parsed_make_their_entry_a_new_one(junk):
    made = by_source()
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
        st.tuples(st.just("rule"), st.sampled_from(["a", "*", "b"]), FORMS),
        st.tuples(st.just("no rule"), st.none(), st.none()),
        st.tuples(st.just("layout"), st.sampled_from(["a", "b"]), st.integers(0, 3)),
        st.tuples(st.just("value"), st.sampled_from(["a", "b"]), st.integers(0, 3)),
        st.tuples(st.just("crash"), st.none(), st.none()),
        st.tuples(st.just("run"), st.none(), st.none()),
        st.tuples(st.just("lose"), st.none(), st.none()),
    ),
    max_size=14,
)


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(STEPS, st.booleans())
def test_whatever_happens_pods_run_the_last_values_and_never_restart_without_an_edit(steps, wide):
    made = World(ReloadOptions(window=AT_ONCE, budget=RestartBudget(restarts=0)), policies=True)
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
        if what == "rule":
            rules(made, f"{key}={value}")
        elif what == "no rule":
            rules(made, None)
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
    made = World(ReloadOptions(window=AT_ONCE, budget=RestartBudget(restarts=0)), policies=True)
    for number in range(count):
        made.put(configmap(f"app-{number}", **{"a.json": ONE}))
        rules(made, JSON, f"app-{number}")
    made.put(workload("web", uses=[env_from(f"app-{number}") for number in range(count)]))
    made.run()
    made.crash()
    made.forms.while_decoding = False
    reconciler = made.reconcilers["Deployment"]
    found = made.decoded(made.get("Deployment", "web"))
    look = reconciler.evaluate(found, made.caches(), Moment(wall=made.now, tick=made.now))
    assert look.snapshot.incomplete
    assert look.plan.changes == ()


# -- who asks for which forms ----------------------------------------------------------------------------------


def test_a_form_is_hashed_as_long_as_it_is_needed():
    forms = CanonicalDigestCache()
    forms.want("web", {APP: {"*.json=json"}})
    forms.want("api", {APP: {"*.json=json", "a=yaml", ""}})
    assert forms.of(APP) == {parse_compare_rules("*.json=json"), parse_compare_rules("a=yaml")}
    forms.want("api", {})
    assert forms.of(APP) == {parse_compare_rules("*.json=json")}
    forms.want("web", {APP: {""}})
    assert forms.of(APP) == set()


def source(revision, **forms):
    meta = {"name": "app", "namespace": "shop", "uid": "u", "resourceVersion": revision}
    return msgspec.convert(
        {"metadata": meta, "steersman.dev/digests": {"a": b"1"}, "steersman.dev/forms": forms}, ConfigMapSource
    )


async def test_what_was_read_once_more_stands_in_for_that_very_version_only():
    forms = CanonicalDigestCache()
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
