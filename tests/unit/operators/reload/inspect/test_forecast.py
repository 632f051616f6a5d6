"""What would restart: from manifests alone, and against a cluster as it is."""

from __future__ import annotations

import pytest

from steersman.cli.reload.inspection import among_others
from steersman.kube.api.errors import Forbidden
from steersman.kube.api.times import format_time
from steersman.operators.reload.api.config import GuardConfig, ReloadConfig
from steersman.operators.reload.api.policy import ClusterReloadPolicy, ReloadPolicy
from steersman.operators.reload.inspect.explain import answer
from steersman.operators.reload.inspect.forecast import forecast
from steersman.operators.reload.inspect.graph import dot, graph_of, mermaid, svg
from steersman.operators.reload.inspect.offline import OfflineInspection
from steersman.operators.reload.inspect.trigger import triggered
from steersman.operators.reload.planning.diff import wanted
from steersman.operators.reload.planning.snapshot import SnapshotSources
from steersman.operators.reload.sources.csi import ProviderStatus
from tests.support.reload.miniature import START, World, configmap, env, env_from, secret, workload


def inspection(*manifests, config=None):
    served = [ReloadPolicy.KIND, ClusterReloadPolicy.KIND]
    made = OfflineInspection((config or ReloadConfig()).options(), served=served)
    return made, [made.add(manifest) for manifest in manifests]


def names(planned):
    return [one.workload.name for one in planned]


def test_from_manifests_alone_every_source_among_them_counts_as_changed():
    after, applied = inspection(
        configmap("app", mode="a", level="b"),
        workload("web", uses=[env("app", "mode")]),
        workload("job", uses=[env_from("elsewhere")]),
    )
    made = forecast(after, START, applied=applied)
    (change,) = made.changes
    assert (change.workload.kind, change.workload.namespace, change.workload.name) == ("Deployment", "shop", "web")
    assert [(source.kind, source.name, source.keys) for source in change.sources] == [("ConfigMap", "app", ("mode",))]
    assert (change.action, change.wave, change.due) == ("restart", 0, "2023-11-14T22:13:25Z")
    assert "steersman.dev/reload: auto" in change.reason
    (kept,) = made.unaffected
    assert kept.reason == "it uses none of the changed sources (uses configmap/elsewhere)"


def waiting(*, written):
    """A inspection of two workloads that were seeded before their source was written again, at that time."""
    world = World()
    world.put(configmap("app", mode="a"))
    for name, wave in {"db": "0", "web": "1"}.items():
        marks = {"steersman.dev/reload": "auto", "steersman.dev/wave": wave}
        world.put(workload(name, uses=[env("app", "mode")], annotations=marks))
    world.run()
    changed = configmap("app", mode="b")
    entry = {"manager": "kubectl", "time": format_time(written), "fieldsV1": {"f:data": {"f:mode": {}}}}
    changed["metadata"]["managedFields"] = [entry]
    made, _ = inspection(*(world.get("Deployment", name) for name in ("db", "web")), changed)
    return made


@pytest.mark.parametrize(("age", "due"), [(1, START + 4), (4, START + 1), (60, None)])
def test_a_reconcile_without_memory_takes_the_time_of_a_change_from_the_server(age, due):
    made = waiting(written=START - age)
    look = made.evaluate_since_changes(*made.workload("Deployment", "db", "shop"), START)
    assert look.plan.due == due


def test_known_members_decide_the_order():
    made = waiting(written=START - 1)
    web = made.workload("Deployment", "web", "shop")
    assert made.evaluate_since_changes(*web, START).plan.gate == "window"
    made.register_all(START)
    plan = made.evaluate_since_changes(*web, START).plan
    assert (plan.gate, plan.waits_for.name) == ("wave", "db")


def rotated(*, driver):
    """A inspection of a workload that mounts a class whose secret rotated since it was written down."""
    csi = {"driver": "secrets-store.csi.k8s.io", "volumeAttributes": {"secretProviderClass": "vault"}}
    world = World(providers=True)
    world.put(mounted("1"))
    world.put(workload("web", uses=[{"volumes": [{"name": "v", "csi": csi}]}]))
    world.run()
    made = OfflineInspection(ReloadConfig().options(), served=[ProviderStatus.KIND] if driver else [])
    for one in (world.get("Deployment", "web"), mounted("2")):
        made.add(one)
    rule, web = made.workload("Deployment", "web", "shop")
    return made, made.evaluate(rule, web, START)


def mounted(version):
    said = {"secretProviderClassName": "vault", "objects": [{"id": "db", "version": version}]}
    meta = {"name": "web-1-vault", "namespace": "shop", "resourceVersion": version}
    kind = ProviderStatus.KIND
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "status": said}


def test_commands_see_what_the_csi_driver_has_mounted_where_it_is_installed():
    _, look = rotated(driver=True)
    assert [change.seen_from("shop") for change in look.plan.changes] == ["secretproviderclass/vault#db"]
    _, blind = rotated(driver=False)
    assert blind.edges.untracked[0].rule == "secretproviderclass is not watched"


def test_a_restart_writes_down_what_the_csi_driver_has_mounted():
    made, look = rotated(driver=True)
    state = triggered(look, made, START).state
    now = wanted(look.edges.tracked[0], made.source(look.edges.tracked[0].source)).entry
    assert state.sources == {"secretproviderclass/vault": now}


def test_a_restart_by_hand_is_remembered_with_the_changes_it_applied_or_as_what_it_was():
    made, look = rotated(driver=True)
    assert triggered(look, made, START).state.history[-1].cause == "secretproviderclass/vault#db"
    made, look = rotated(driver=False)
    assert triggered(look, made, START).state.history[-1].cause == "steersman reload trigger"


async def test_a_user_without_the_right_to_the_others_learns_that_they_may_hold_it_back():
    class Refusing:
        async def get(self, *_arguments):
            raise Forbidden("namespaces is forbidden")

        async def pages(self, kind, **_arguments):
            raise Forbidden(f"{kind.plural} is forbidden")
            yield

    made = waiting(written=START - 1)
    rule, web = made.workload("Deployment", "web", "shop")
    look, unseen = await among_others(Refusing(), made, rule, made.evaluate(rule, web, START))
    said = answer(look, (), SnapshotSources(made, ()), unseen=unseen)
    told = "a workload of namespace shop may hold it back, which cannot be seen from here: "
    assert said.problems[-1].startswith(told)


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [
        ({}, "configmap/app: not enrolled"),
        ({"steersman.dev/reload": "off"}, "configmap/app: steersman.dev/reload: off on the workload"),
        (
            {"steersman.dev/reload": "auto", "steersman.dev/reload-ignore": "configmap/app"},
            "configmap/app: steersman.dev/reload-ignore: configmap/app",
        ),
        ({"steersman.dev/reload": "secret/db"}, "configmap/app: not named by steersman.dev/reload"),
    ],
)
def test_what_does_not_restart_is_reported_with_the_rule_that_says_so(annotations, reason):
    after, applied = inspection(
        configmap("app", mode="a"), workload("web", uses=[env_from("app")], annotations=annotations)
    )
    made = forecast(after, START, applied=applied)
    assert (made.changes, made.unaffected[0].reason) == ((), reason)


@pytest.mark.parametrize(
    ("data", "ignored", "restarts"),
    [
        ({"mode": "a"}, "configmap/app#mode", False),
        ({"mode": "a", "more": "b"}, "configmap/app#mode", True),
        ({"mode": "a", "more": "b"}, "configmap/app#mo*", False),
        ({}, "configmap/app#mode", True),  # what it had before is not known
    ],
)
def test_a_source_with_nothing_but_ignored_keys_restarts_nothing_whatever_it_says(data, ignored, restarts):
    marks = {"steersman.dev/reload": "auto", "steersman.dev/reload-ignore": ignored}
    after, applied = inspection(configmap("app", **data), workload("web", uses=[env_from("app")], annotations=marks))
    made = forecast(after, START, applied=applied)
    assert names(made.changes) == (["web"] if restarts else [])
    told = [f"configmap/app: all keys it uses are ignored ({ignored})"]
    assert [one.reason for one in made.unaffected] == ([] if restarts else told)


def test_what_means_the_same_by_a_comparison_rule_is_reported_as_unchanged_with_the_rule():
    def app(text):
        made = configmap("app", mode=text)
        made["metadata"]["annotations"] = {"steersman.dev/compare": "mode=json"}
        return made

    for text, count in (('{"b":1,"a":2}', 0), ('{"a":3}', 1)):
        before, _ = inspection(workload("web", uses=[env_from("app")]), app('{"a": 2, "b": 1}'))
        after = before.copy()
        applied = [after.add(app(text))]
        made = forecast(after, START, before=before, applied=applied)
        assert len(made.changes) == count
        reason = "the keys it uses have not changed, compared as mode=json (the source)"
        assert [one.reason for one in made.unaffected] == [reason] * (1 - count)


def test_a_frozen_workload_waits_until_the_freeze_ends():
    marks = {"steersman.dev/reload": "auto", "steersman.dev/freeze": "until=2030-01-01T00:00:00Z"}
    after, applied = inspection(configmap("app", mode="a"), workload("web", uses=[env_from("app")], annotations=marks))
    (change,) = forecast(after, START, applied=applied).changes
    assert (change.action, change.due) == ("wait", "2030-01-01T00:00:00Z")
    assert "steersman.dev/freeze on the workload" in change.reason


def test_changes_come_in_the_order_of_their_waves():
    marks = {"steersman.dev/reload": "auto"}
    after, applied = inspection(
        configmap("app", mode="a"),
        workload("late", uses=[env_from("app")], annotations={**marks, "steersman.dev/wave": "2"}),
        workload("soon", uses=[env_from("app")], annotations={**marks, "steersman.dev/wave": "-1"}),
        workload("web", uses=[env_from("app")], annotations=marks),
    )
    made = forecast(after, START, applied=applied)
    assert names(made.changes) == ["soon", "web", "late"]
    assert [change.due is None for change in made.changes] == [False, True, True]
    assert "wave -1" in made.changes[1].reason


def test_against_a_cluster_only_what_differs_is_a_change():
    running = [configmap("app", mode="a", level="x"), workload("web", uses=[env("app", "mode")])]
    running.append(workload("api", uses=[env("app", "level")]))
    before, _ = inspection(*running)
    after = before.copy()
    made = forecast(after, START, before=before, applied=[after.add(configmap("app", mode="b", level="x"))])
    assert names(made.changes) == ["web"]
    assert made.changes[0].sources[0].keys == ("mode",)
    assert [one.reason for one in made.unaffected] == ["the keys it uses have not changed"]


def test_against_a_cluster_the_applied_state_of_a_workload_is_what_its_pods_run():
    world = World()
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env("app", "mode")]))
    world.run()
    world.put(configmap("app", mode="b"))  # changed, and not applied yet
    before, _ = inspection(*world.objects.values())
    after = before.copy()
    applied = [after.add(before.laid_over(workload("web", uses=[env("app", "mode")]), "shop"))]
    assert names(forecast(after, START, before=before, applied=applied).changes) == ["web"]


def test_a_secret_is_named_and_its_value_never_shown():
    after, applied = inspection(secret("db", password="hunter2"), workload("web", uses=[env_from("db", kind="secret")]))
    made = forecast(after, START, applied=applied)
    assert made.changes[0].sources[0].kind == "Secret"
    assert "hunter2" not in repr(made) + repr(after.__dict__)


def test_a_graph_is_the_same_edges_in_every_form():
    after, _ = inspection(
        configmap("app", mode="a"),
        secret("db", x="y"),
        workload("web", uses=[env("app", "mode"), env_from("db", kind="secret")]),
    )
    graph = graph_of(after.evaluate(rule, one, START) for rule, one in after.workloads())
    assert [(edge.source, edge.workload, edge.keys) for edge in graph.edges] == [
        ("configmap/shop/app", "deployment/shop/web", ("mode",)),
        ("secret/shop/db", "deployment/shop/web", None),
    ]
    assert '"configmap/shop/app" -> "deployment/shop/web" [label="mode"];' in dot(graph)
    assert 'n0 -->|"mode"| n1' in mermaid(graph)
    assert svg(graph).count("<path") == 2


def test_names_cannot_break_out_of_a_drawing():
    after, _ = inspection(workload('we"<b>b', uses=[env_from("a&b")]))
    graph = graph_of(after.evaluate(rule, one, START) for rule, one in after.workloads())
    assert "<b>" not in svg(graph)
    assert 'we\\"<b>b' in dot(graph)
    assert "#quot;" in mermaid(graph)


def test_policies_among_the_manifests_count():
    policy = {
        "apiVersion": "steersman.dev/v1alpha1",
        "kind": "ReloadPolicy",
        "metadata": {"name": "calm", "namespace": "shop"},
        "spec": {"freeze": "true", "wave": 3},
    }
    after, applied = inspection(configmap("app", mode="a"), workload("web", uses=[env_from("app")]), policy)
    (change,) = forecast(after, START, applied=applied).changes
    assert (change.action, change.wave) == ("wait", 3)
    assert "reloadpolicy/calm" in change.reason


def test_a_change_that_needs_an_approval_says_so():
    config = ReloadConfig(guard=GuardConfig(workloads=1))
    after, applied = inspection(
        configmap("app", mode="a"),
        workload("web", uses=[env_from("app")]),
        workload("api", uses=[env_from("app")]),
        config=config,
    )
    made = forecast(after, START, applied=applied)
    assert {change.action for change in made.changes} == {"wait"}
    assert "steersman.dev/approve" in made.changes[0].reason
