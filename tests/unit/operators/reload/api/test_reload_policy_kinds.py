"""ReloadPolicy and ClusterReloadPolicy: what they say, which of them decides, and what is wrong with them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.crd import crd_manifest
from steersman.kube.client.codec import codec_for
from steersman.operators.reload.api.annotations import NATIVE_ANNOTATIONS, SETTINGS, LayerSettings
from steersman.operators.reload.api.config import Guard, OnFailure, ReloadOptions, RestartBudget, Window, WorkloadId
from steersman.operators.reload.api.policy import (
    ClusterPolicySpec,
    ClusterReloadPolicy,
    ReloadPolicy,
    read_policy,
    self_references,
)
from steersman.operators.reload.planning.gates import Policy as EffectivePolicy
from tests.support.reload.miniature import World, configmap, env, workload

NOW = Window(quiet=timedelta(0), limit=timedelta(0))


NIGHT = {"cron": "0 2 * * *", "duration": "1h"}


def manifest(name="p", *, cluster=False, **spec):
    meta = {"name": name} if cluster else {"name": name, "namespace": "shop"}
    kind = "ClusterReloadPolicy" if cluster else "ReloadPolicy"
    return {"apiVersion": "steersman.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}


def policy(*, cluster=False, **spec):
    cls = ClusterReloadPolicy if cluster else ReloadPolicy
    return codec_for(cls).object(msgspec.json.encode(manifest(cluster=cluster, **spec)))


def world_with(*policies, labels=None, **annotations):
    world = World(ReloadOptions(window=NOW, budget=RestartBudget(restarts=0)), policies=True)
    world.put(configmap("app", mode="a", note="x"))
    for one in policies:
        world.put(one)
    marks = {"steersman.dev/reload": "auto", **annotations}
    world.put(workload("web", uses=[env("app", "mode"), env("app", "note")], annotations=marks, labels=labels))
    world.run()
    return world


def ruling(*policies, labels=None, **annotations):
    return world_with(*policies, labels=labels, **annotations).evaluate("Deployment", "web").policy


@pytest.mark.parametrize("kind", [ReloadPolicy, ClusterReloadPolicy])
def test_a_list_of_policies_says_which_are_accepted(kind):
    (version,) = crd_manifest(kind)["spec"]["versions"]
    columns = {
        additionalprintercolumn["name"]: additionalprintercolumn["jsonPath"]
        for additionalprintercolumn in version["additionalPrinterColumns"]
    }
    assert columns["Accepted"] == '.status.conditions[?(@.type=="Accepted")].status'


def test_every_field_counts():
    found = ruling(
        manifest(
            quietPeriod="7s",
            maxDelay="9s",
            budget={"restarts": 2, "per": "10m"},
            windows=[{"cron": "0 2 * * *", "duration": "1h", "timeZone": "Europe/Berlin"}],
            wave=3,
            dependsOn=["statefulset/db"],
            maxConcurrent=4,
            onFailure="continue",
            rolloutDeadline="90s",
            guard={"workloads": 5, "percent": 50},
            freeze="true",
        )
    )
    assert str(found.window) == "7s quiet, at most 9s"
    assert str(found.budget) == "2 restarts in 10m"
    assert str(found.maintenance_windows) == "0 2 * * * for 1h in Europe/Berlin"
    assert (found.wave, found.max_concurrent, found.on_failure) == (3, 4, OnFailure.CONTINUE)
    assert found.depends == (WorkloadId("StatefulSet", "shop", "db"),)
    assert (found.deadline, found.guard) == (timedelta(seconds=90), Guard(workloads=5, percent=50))
    assert [where for where, _ in found.freezes] == ["reloadpolicy/p"]


def test_only_the_policy_of_a_cluster_limits_the_cluster():
    assert ruling(manifest(cluster=True, maxConcurrentInCluster=3)).max_concurrent_cluster == 3
    assert ruling(manifest(maxConcurrentInCluster=3)).max_concurrent_cluster == 0  # no such field there
    properties = [
        crd_manifest(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        for kind in (ReloadPolicy, ClusterReloadPolicy)
    ]
    assert ["maxConcurrentInCluster" in field for field in properties] == [False, True]


@pytest.mark.parametrize(
    ("policies", "annotations", "told"),
    [
        ((), {}, None),
        ((manifest(notify=["ops"]),), {}, ("ops",)),
        ((manifest(notify=[]),), {}, ()),
        ((manifest(notify=["ops"]),), {"steersman.dev/notify": "shop, web"}, ("shop", "web")),
        ((manifest(notify=["ops"]),), {"steersman.dev/notify": "none"}, ()),
    ],
)
def test_who_is_notified_is_chosen_by_annotation_or_policy(policies, annotations, told):
    assert ruling(*policies, **annotations).notify == told


def test_a_receiver_that_is_not_configured_is_a_problem_that_names_it():
    world = world_with(manifest(notify=["opps"]))
    problems = world.evaluate("Deployment", "web").plan.problems
    assert problems == ('steersman.dev/notify: unknown receiver "opps" (configuration: reload.notify[].name)',)


def test_keys_that_a_policy_ignores_restart_nothing():
    world = world_with(manifest(ignore=["configmap/app#no*"]))
    world.put(configmap("app", mode="a", note="y"))
    assert world.run() == {}
    world.put(configmap("app", mode="b", note="y"))
    assert world.run() == {"deployment/web": "restart"}


@pytest.mark.parametrize(
    ("policies", "annotations", "wave"),
    [
        ([], {}, 0),
        ([manifest("c", cluster=True, wave=5)], {}, 5),
        ([manifest("c", cluster=True, wave=5), manifest("n", wave=4)], {}, 4),
        ([manifest("n", wave=4)], {"steersman.dev/wave": "1"}, 1),
        ([manifest("b", wave=2), manifest("a", wave=3)], {}, 3),  # the first name
        ([manifest("b", wave=2, priority=1), manifest("a", wave=3)], {}, 2),  # the highest priority
        ([manifest("a", priority=9), manifest("b", wave=2)], {}, 2),  # who says nothing decides nothing
        ([manifest("a", wave=7, selector={"matchLabels": {"app": "other"}})], {}, 0),
        ([manifest("a", wave=7, selector={"matchLabels": {"app": "web"}})], {}, 7),
        ([manifest("a", wave=7, selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]})], {}, 7),
    ],
)
def test_the_most_specific_setting_wins(policies, annotations, wave):
    assert ruling(*policies, labels={"app": "web"}, **annotations).wave == wave


def test_a_namespace_counts_before_the_clusters_policy_and_after_its_own():
    world = world_with(manifest("c", cluster=True, guard={"workloads": 9}, wave=3), manifest("n", wave=4))
    marks = {"steersman.dev/guard": "2", "steersman.dev/wave": "6"}
    world.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "annotations": marks}})
    found = world.evaluate("Deployment", "web").policy
    assert (found.guard, found.wave) == (Guard(workloads=2), 4)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"quietPeriod": "5 sec"}, 'spec.quietPeriod: "5 sec" is not a duration'),
        ({"maxDelay": "soon"}, "spec.maxDelay: "),
        ({"rolloutDeadline": "-"}, "spec.rolloutDeadline: "),
        ({"budget": {"restarts": 1, "per": "x"}}, "spec.budget.per: "),
        ({"budget": {"restarts": 201}}, "spec.budget.restarts: 201 are more than are recorded (at most 200"),
        ({"budget": {"restarts": 1, "per": "0s"}}, "spec.budget.per: must be longer than 0"),
        ({"windows": [{"cron": "0 2 * *", "duration": "1h"}]}, 'spec.windows[0]: "0 2 * *" is not a cron expression'),
        ({"windows": [{"cron": "0 2 * * *", "duration": "1"}]}, "spec.windows[0]: "),
        (
            {
                "windows": [
                    {"cron": "0 2 * * *", "duration": "1h"},
                    {"cron": "1 1 * * *", "duration": "1h", "timeZone": "X"},
                ]
            },
            'spec.windows[1]: "X" is not a time zone',
        ),
        ({"dependsOn": ["db"]}, 'spec.dependsOn[0]: "db" is not a workload'),
        ({"ignore": ["configmap/a", "cm/b"]}, 'spec.ignore[1]: "cm/b" is not a source'),
        ({"freeze": "maybe"}, 'spec.freeze: "maybe" is not a freeze'),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, "spec.selector: "),
        ({"selector": {"matchLabels": {"not a key": "x"}}}, "spec.selector: "),
    ],
)
def test_what_makes_no_sense_is_named_and_the_rest_counts(spec, problem):
    said = read_policy(policy(**{"wave": 2, **spec}))
    (found,) = said.problems
    assert found.startswith(problem)
    assert said.settings.wave == 2


def test_windows_that_cannot_be_read_stay_shut():
    world = world_with(manifest(windows=[{"cron": "never", "duration": "1h"}]))
    world.put(configmap("app", mode="b", note="x"))
    plan = world.evaluate("Deployment", "web").plan
    assert (plan.gate, plan.due) == ("schedule", None)


def test_a_selector_that_cannot_be_read_selects_nothing():
    bad = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    assert ruling(manifest(selector=bad, freeze="true")).freezes == ()


@pytest.mark.parametrize("cluster", [False, True])
def test_a_policy_that_refers_to_what_it_selects_says_so_and_nothing_waits_for_itself(cluster):
    one = manifest(cluster=cluster, dependsOn=["deployment/web"])
    world = world_with(one)
    web = world.evaluate("Deployment", "web").workload
    (told,) = self_references(
        read_policy(policy(cluster=cluster, **one["spec"])), [(WorkloadId("Deployment", "shop", "web"), web)]
    )
    assert told.startswith("spec.dependsOn[0]: the policy selects deployment/web itself")
    world.put(configmap("app", mode="b", note="x"))
    assert world.run() == {"deployment/web": "restart"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=2), max_leaves=4
    )
)
def test_texts_of_any_kind_are_read_or_named(value):
    text = value if isinstance(value, str) else repr(value)
    given = {"quietPeriod": text, "freeze": text, "dependsOn": [text], "ignore": [text]}
    problems = read_policy(policy(**given, windows=[{"cron": text, "duration": text}])).problems
    assert all(problem.startswith(tuple(f"spec.{field}" for field in (*given, "windows"))) for problem in problems)
    assert any(problem.startswith("spec.windows") for problem in problems)  # no text is both a cron and a duration


def test_the_definitions_are_valid_and_name_their_columns():
    for cls, scope in ((ReloadPolicy, "Namespaced"), (ClusterReloadPolicy, "Cluster")):
        made = crd_manifest(cls)
        assert made["spec"]["scope"] == scope
        (version,) = made["spec"]["versions"]
        assert version["subresources"] == {"status": {}}
        assert version["additionalPrinterColumns"][0]["name"] == "Workloads"


def test_every_setting_of_the_table_is_a_field_of_settings_and_of_the_policy_and_is_in_the_reference():
    """A setting is declared once; types, custom resources and the reference follow the table."""
    reference = Path(__file__).parents[5].joinpath("docs/reload-policies.md").read_text()
    cluster_spec = {field.name: field.encode_name for field in msgspec.structs.fields(ClusterPolicySpec)}
    for setting in SETTINGS:
        assert setting.field in LayerSettings.__struct_fields__
        if setting.annotation:
            assert setting.annotation in NATIVE_ANNOTATIONS
        if setting.policy and setting.annotation:
            assert f"`{setting.annotation}" in reference
        if setting.policy:
            assert f"`{cluster_spec[setting.policy]}" in reference
    assert set(cluster_spec) == {setting.policy for setting in SETTINGS if setting.policy} | {"selector", "priority"}
    merged = {setting.field for setting in SETTINGS if setting.default is not None}
    assert merged <= set(EffectivePolicy.__struct_fields__)
