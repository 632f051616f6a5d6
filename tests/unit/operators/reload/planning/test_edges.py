"""Which sources a workload depends on, which it does not, and which rule says so."""

from __future__ import annotations

import pytest

from steersman.kube.api.selectors import Selector
from steersman.operators.reload.api.config import LabelScope, ReloadOptions
from tests.support.reload.miniature import World, configmap, env, env_from, secret, volume, workload

RELOAD, EXTRA, IGNORE = "steersman.dev/reload", "steersman.dev/reload-extra", "steersman.dev/reload-ignore"
BOTH = [env("app", "mode"), volume("db", kind="secret")]


def edges(*objects, name="web", options=None):
    world = World(options)
    for obj in objects:
        world.put(obj)
    found = world.evaluate("Deployment", name).edges
    tracked = {one.source.seen_from("shop"): one.keys and sorted(one.keys) for one in found.tracked}
    return tracked, {one.source.seen_from("shop"): one.rule for one in found.untracked}, found


@pytest.mark.parametrize(
    ("annotations", "tracked", "untracked"),
    [
        ({RELOAD: "auto"}, {"configmap/app": ["mode"], "secret/db": None}, {}),
        ({}, {}, {"configmap/app": "not enrolled", "secret/db": "not enrolled"}),
        (
            {RELOAD: "off"},
            {},
            {
                "configmap/app": "steersman.dev/reload: off on the workload",
                "secret/db": "steersman.dev/reload: off on the workload",
            },
        ),
        (
            {RELOAD: "secret/*"},
            {"secret/db": None},
            {"configmap/app": "not named by steersman.dev/reload"},
        ),
        (
            {RELOAD: "configmap/app,configmap/flags"},
            {"configmap/app": ["mode"], "configmap/flags": None},
            {"secret/db": "not named by steersman.dev/reload"},
        ),
        (
            {RELOAD: "auto", IGNORE: "secret/d?"},
            {"configmap/app": ["mode"]},
            {"secret/db": "steersman.dev/reload-ignore: secret/d?"},
        ),
        (
            {RELOAD: "auto", IGNORE: "configmap/app#mo*"},
            {"secret/db": None},
            {"configmap/app": "steersman.dev/reload-ignore: configmap/app#mo*"},
        ),
        (
            {EXTRA: "configmap/flags"},
            {"configmap/flags": None},
            {"configmap/app": "not enrolled", "secret/db": "not enrolled"},
        ),
    ],
)
def test_annotations_decide_what_is_tracked(annotations, tracked, untracked):
    web = workload("web", uses=BOTH, annotations=annotations)
    found, left_out, _ = edges(configmap("app", mode="a"), secret("db", pw="x"), web)
    assert found == tracked
    assert left_out == untracked


def namespace(**annotations):
    marks = {f"steersman.dev/{name.replace('_', '-')}": text for name, text in annotations.items()}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "annotations": marks}}


@pytest.mark.parametrize(
    ("around", "own", "takes_part"),
    [("auto", None, True), ("off", None, False), ("auto", "off", False), ("off", "auto", True), (None, None, False)],
)
def test_the_workload_overrides_its_namespace(around, own, takes_part):
    objects = [workload("web", uses=BOTH, annotations={RELOAD: own} if own else {})]
    objects += [namespace(reload=around)] if around else []
    tracked, _, found = edges(*objects)
    assert bool(tracked) == takes_part
    assert bool(found.reason) != takes_part


def test_an_edge_that_several_rules_make_counts_once_and_names_them_all():
    options = ReloadOptions(scopes=(LabelScope(selector=Selector.parse("app=web")),))
    app = configmap("app", mode="a")
    app["metadata"]["labels"] = {"app": "web", "env": "test"}
    web = workload(
        "web",
        uses=[env("app", "mode"), env("app", "level")],
        labels={"app": "web", "env": "test"},
        annotations={RELOAD: "auto", EXTRA: "configmap/app"},
    )
    _, _, found = edges(app, web, options=options)
    (edge,) = found.tracked
    assert edge.keys is None
    assert edge.required == {"mode", "level"}
    assert not edge.optional
    assert [rule.split(":")[0] for rule in edge.rules] == [
        "container main",
        "steersman.dev/reload-extra",
        "selector app=web, env=test",
    ]


def test_two_keys_of_one_source_are_one_edge_over_both():
    tracked, _, _ = edges(workload("web", uses=[env("app", "mode"), env("app", "level")]))
    assert tracked == {"configmap/app": ["level", "mode"]}


def test_a_scope_joins_what_shares_namespace_labels_and_environment():
    options = ReloadOptions(scopes=(LabelScope(selector=Selector.parse("app=web")),))

    def labelled(obj, **labels):
        obj["metadata"]["labels"] = labels
        return obj

    tracked, _, _ = edges(
        labelled(configmap("same"), app="web", env="test"),
        labelled(configmap("other-env"), app="web", env="prod"),
        labelled(configmap("no-env"), app="web"),
        labelled(configmap("other-app"), app="db", env="test"),
        labelled(configmap("other-namespace", namespace="lab"), app="web", env="test"),
        labelled(secret("no-configmap"), app="web", env="test"),
        workload("web", annotations={}, labels={"app": "web", "env": "test"}),
        options=options,
    )
    assert tracked == {"configmap/same": None}


def test_a_scope_restarts_the_kinds_it_names_only():
    options = ReloadOptions(scopes=(LabelScope(selector=Selector.parse("app=web")),))
    world = World(options)
    world.put(workload("web", kind="StatefulSet", annotations={}, labels={"app": "web", "env": "test"}))
    assert not world.evaluate("StatefulSet", "web").edges.tracked


def test_a_source_of_another_namespace_must_grant_it():
    web = workload("web", annotations={EXTRA: "configmap/lab/shared"})
    granted = configmap("shared", namespace="lab", annotations={"steersman.dev/share-with": "shop,prod"})
    assert edges(web, granted)[0] == {"configmap/lab/shared": None}
    refused = edges(web, configmap("shared", namespace="lab", annotations={"steersman.dev/share-with": "prod"}))
    assert refused[0] == {}
    assert refused[1] == {"configmap/lab/shared": "the source does not grant it (steersman.dev/share-with: shop)"}


@pytest.mark.parametrize("beside", [False, True])
def test_a_workload_does_not_show_whether_a_source_exists_that_is_not_granted(beside):
    shown = []
    for exists in (False, True):
        for forged in (None, '{"v":1,"s":{"secret/lab/x":{"d":"1"}}}'):
            world = World()
            marks = {EXTRA: "secret/lab/x", "steersman.dev/reload": "auto"}
            marks |= {"steersman.dev/applied": forged} if forged else {}
            world.put(configmap("app", mode="a"))
            if exists:
                world.put(secret("x", namespace="lab", pw="a", annotations={"steersman.dev/reload": "off"}))
            world.put(workload("web", uses=[env_from("app")] if beside else [], annotations=marks))
            world.run()
            plan = world.evaluate("Deployment", "web").plan
            shown.append((forged, plan.problems, world.get("Deployment", "web")["metadata"]["annotations"]))
    assert shown[:2] == shown[2:]


@pytest.mark.parametrize("beside", [False, True])
def test_a_granted_source_that_is_deleted_and_comes_back_changed_restarts_once(beside):
    world, grant = World(), {"steersman.dev/share-with": "shop"}
    world.put(configmap("app", mode="a"))
    world.put(configmap("shared", namespace="lab", mode="a", annotations=grant))
    marks = {EXTRA: "configmap/lab/shared", "steersman.dev/reload": "auto"}
    world.put(workload("web", uses=[env_from("app")] if beside else [], annotations=marks))
    world.run()
    world.delete("ConfigMap", "shared", namespace="lab")
    assert not world.run()
    world.put(configmap("shared", namespace="lab", mode="b", annotations=grant))
    world.run()
    world.now += 60
    world.run()
    assert world.restarts == {"deployment/web": 1}


def test_an_extra_source_that_is_not_granted_is_reported():
    world = World()
    world.put(configmap("shared", namespace="lab"))
    world.put(workload("web", annotations={EXTRA: "configmap/lab/shared"}))
    told = "configmap/lab/shared: the source does not grant it (steersman.dev/share-with: shop)"
    assert world.evaluate("Deployment", "web").plan.problems == (f"{EXTRA}: {told}",)


def test_a_namespace_that_names_sources_applies_to_its_workloads():
    world = World()
    marks = {"steersman.dev/reload": "configmap/app"}
    world.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "annotations": marks}})
    world.put(workload("web", uses=[env("app", "mode")], annotations={}))
    look = world.evaluate("Deployment", "web")
    assert not look.edges.tracked
    assert "sources are named on a workload (try auto or off)" in look.plan.problems[0]


def test_a_source_can_switch_itself_off():
    tracked, left_out, found = edges(
        configmap("app", annotations={RELOAD: "off"}, mode="a"), workload("web", uses=[env("app", "mode")])
    )
    assert tracked == {}
    assert left_out == {"configmap/app": "steersman.dev/reload: off on the source"}
    assert found.reason == "configmap/app: steersman.dev/reload: off on the source"


def test_a_problem_names_the_annotation_and_the_rest_still_counts():
    tracked, _, found = edges(workload("web", uses=BOTH, annotations={RELOAD: "auto", EXTRA: "pod/x"}))
    assert sorted(tracked) == ["configmap/app", "secret/db"]
    assert found.problems == (
        'steersman.dev/reload-extra: "pod/x" is not a source (try configmap/NAME or secret/NAME)',
    )


def test_what_was_asked_for_is_what_must_be_evaluated_again():
    options = ReloadOptions(scopes=(LabelScope(selector=Selector.parse("app=web")),))
    world = World(options)
    world.put(workload("web", uses=[env_from("app")], labels={"app": "web", "env": "test"}))
    assert world.evaluate("Deployment", "web").snapshot.interests == {"configmap/shop/app", "configmap/shop/*"}


def test_a_rollout_without_a_template_uses_that_of_its_deployment():
    world = World()
    world.put(workload("web", uses=[env("app", "mode")], annotations={}))
    rollout = workload("web", kind="Rollout")
    rollout["spec"] = {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}
    world.put(rollout)
    look = world.evaluate("Rollout", "web")
    assert [str(edge.source) for edge in look.edges.tracked] == ["configmap/shop/app"]
    assert "template/shop/web" in look.snapshot.interests
