"""The dialect of Reloader: its truth table row by row, its marks, and going over to it and back."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.operators.reload.api.config import ReloadOptions, RestartBudget, SourceKind, SourceRef, Strategy, Window
from steersman.operators.reload.compat.dialects.hashes import ReloaderHash
from steersman.operators.reload.compat.dialects.reloader import Names, Reloader, variable_name, verdict
from tests.support.reload.miniature import START, World, configmap, env, env_from, secret, volume, workload

CM, SECRET = SourceKind.CONFIGMAP, SourceKind.SECRET
R = "reloader.stakater.com"
AUTO, SEARCH, MATCH, IGNORE, LAST = (
    f"{R}/{word}" for word in ("auto", "search", "match", "ignore", "last-reloaded-from")
)
NAMED, CM_AUTO, SECRET_AUTO = f"configmap.{R}/reload", f"configmap.{R}/auto", f"secret.{R}/auto"
EXCLUDE = f"configmaps.exclude.{R}/reload"
AT_ONCE = ReloadOptions(window=Window(quiet=timedelta(0), limit=timedelta(0)), budget=RestartBudget(restarts=0))


# ----------------------------------------------------------------------------------------------------- the truth table
TABLE = [
    # on the workload, on its template, on the source, verdict for configmap "app"
    ({}, {}, {}, "no"),
    ({AUTO: "true"}, {}, {}, "auto"),
    *[({AUTO: value}, {}, {}, "auto") for value in ("1", "t", "T", "TRUE", "True")],
    *[({AUTO: value}, {}, {}, "no") for value in ("0", "f", "F", "FALSE", "false", "False", "yes", "on", "", " true")],
    ({CM_AUTO: "true"}, {}, {}, "auto"),
    ({SECRET_AUTO: "true"}, {}, {}, "no"),
    ({AUTO: "true", CM_AUTO: "false"}, {}, {}, "auto"),
    ({AUTO: "false", CM_AUTO: "true"}, {}, {}, "auto"),
    ({}, {AUTO: "true"}, {}, "auto"),
    ({}, {NAMED: "app"}, {}, "named"),
    ({AUTO: "false"}, {AUTO: "true"}, {}, "no"),
    ({AUTO: ""}, {AUTO: "true"}, {}, "no"),
    ({SEARCH: ""}, {AUTO: "true"}, {}, "no"),
    ({NAMED: "other"}, {AUTO: "true"}, {}, "no"),
    ({SECRET_AUTO: "true"}, {AUTO: "true"}, {}, "auto"),  # says nothing about ConfigMaps, so the template counts
    ({AUTO: "true"}, {}, {IGNORE: "true"}, "no"),
    ({NAMED: "app"}, {}, {IGNORE: "true"}, "no"),
    ({AUTO: "true"}, {}, {IGNORE: "True"}, "auto"),
    ({AUTO: "true", EXCLUDE: "x, app ,y"}, {}, {}, "no"),
    ({NAMED: "app", EXCLUDE: "app"}, {}, {}, "no"),
    ({AUTO: "true", EXCLUDE: "ap.*"}, {}, {}, "auto"),
    ({AUTO: "true"}, {EXCLUDE: "app"}, {}, "auto"),
    ({EXCLUDE: "app"}, {AUTO: "true"}, {}, "no"),
    ({NAMED: " x , app "}, {}, {}, "named"),
    ({NAMED: "ap."}, {}, {}, "named"),
    ({NAMED: "a.*"}, {}, {}, "named"),
    ({NAMED: "app|zzz"}, {}, {}, "named"),
    ({NAMED: "pp"}, {}, {}, "no"),
    ({NAMED: "(", AUTO: "true"}, {}, {}, "auto"),
    ({NAMED: "("}, {}, {}, "no"),
    ({NAMED: "app", AUTO: "false"}, {}, {}, "named"),
    ({SEARCH: "true"}, {}, {MATCH: "true"}, "auto"),
    ({SEARCH: "true"}, {}, {}, "no"),
    ({SEARCH: "1"}, {}, {MATCH: "true"}, "no"),
    ({SEARCH: "true"}, {}, {MATCH: "1"}, "no"),
    ({}, {SEARCH: "true"}, {MATCH: "true"}, "auto"),
]


@pytest.mark.parametrize(("metadata", "template", "source", "expected"), TABLE)
def test_the_truth_table(metadata, template, source, expected):
    decision, rule = verdict(CM, "app", metadata=metadata, template=template, source=source, names=Names())
    assert decision == expected
    assert rule


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, "auto"),
        ({AUTO: "", CM_AUTO: ""}, "auto"),
        ({AUTO: "false"}, "no"),
        ({AUTO: "no"}, "no"),
        ({CM_AUTO: "0"}, "no"),
    ],
)
def test_when_every_workload_takes_part_any_value_but_true_opts_out(metadata, expected):
    decision, _ = verdict(CM, "app", metadata=metadata, template={}, source={}, names=Names(), auto_all=True)
    assert decision == expected


def test_the_names_are_those_of_the_original():
    assert Names().all() == {
        *(f"{R}/{word}" for word in ("auto", "search", "match", "ignore", "last-reloaded-from", "rollout-strategy")),
        *(f"deployment.{R}/{word}" for word in ("pause-period", "paused-at")),
        *(
            f"{kind}.{R}/{word}"
            for kind in ("configmap", "secret", "secretproviderclass")
            for word in ("auto", "reload")
        ),
        *(f"{kind}.exclude.{R}/reload" for kind in ("configmaps", "secrets", "secretproviderclasses")),
    }


# -------------------------------------------------------------------------------------------------------- on a cluster
def world(**options):
    return World(AT_ONCE, dialects=(Reloader(**options),))


def variables(world, kind="Deployment"):
    spec = world.get(kind, "web")["spec"]
    pod = (spec["jobTemplate"]["spec"] if kind == "CronJob" else spec)["template"]["spec"]
    return {
        (container["name"], one["name"]): one["value"]
        for container in pod["containers"]
        for one in container.get("env", ())
        if "value" in one
    }


def hash_of(**data):
    return ReloaderHash()(CM, data, None)


def with_variable(manifest, value, name="STAKATER_APP_CONFIGMAP"):
    manifest["spec"]["template"]["spec"]["containers"][0].setdefault("env", []).append({"name": name, "value": value})
    return manifest


def original_would_restart(world, source, *, kind=CM):
    """Reloader with reload-on-create and sync-after-restart: whether it writes for this source at its start."""
    data = world.get("ConfigMap" if kind is CM else "Secret", source)["data"]
    found = {name: value for (_, name), value in variables(world).items()}
    name = variable_name(SourceRef(kind, "shop", source))
    return name in found and found[name] != ReloaderHash()(kind, data, None)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_what_the_original_applied_is_taken_over_without_a_restart_and_a_change_restarts_once(kind):
    cluster = world()
    cluster.put(configmap("app", mode="a"))
    made = workload("web", uses=[env_from("app")], kind=kind, annotations={AUTO: "true"})
    cluster.put(with_variable(made, hash_of(mode="a")))
    cluster.run()
    assert (cluster.restarts, cluster.patches) == ({}, 1)
    cluster.put(configmap("app", mode="b"))
    cluster.run()
    cluster.run(after=60)
    assert (cluster.restarts, cluster.patches) == ({f"{kind.lower()}/web": 1}, 2)
    assert variables(cluster, kind) == {("main", "STAKATER_APP_CONFIGMAP"): hash_of(mode="b")}


def test_a_variable_with_another_hash_means_that_the_pods_are_out_of_date():
    cluster = world()
    cluster.put(configmap("app", mode="b"))
    cluster.put(with_variable(workload("web", uses=[env_from("app")], annotations={AUTO: "true"}), hash_of(mode="a")))
    assert cluster.run() == {"deployment/web": "restart"}
    assert cluster.run(after=60) == {}


def test_two_sources_that_share_a_variable_are_both_taken_over():
    cluster = world()
    cluster.put(configmap("foo-bar", mode="a"))
    cluster.put(configmap("foo.bar", mode="b"))
    made = workload("web", uses=[env_from("foo-bar"), volume("foo.bar")], annotations={AUTO: "true"})
    made["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [
        {"name": "foo.bar-configmap", "mountPath": "/x"}
    ]
    cluster.put(with_variable(made, hash_of(mode="b"), "STAKATER_FOO_BAR_CONFIGMAP"))
    cluster.run()
    assert cluster.restarts == {}


@pytest.mark.parametrize(
    "seen", ["{}", "null", "[]", "junk", '{"hash": 1}', "{" * 200_000, '{"type":null,"name":"app"}']
)
def test_junk_where_the_last_source_should_be_is_nothing_known(seen):
    cluster = world(strategy=Strategy.ANNOTATIONS)
    cluster.put(configmap("app", mode="a"))
    made = workload("web", uses=[env_from("app")], annotations={AUTO: "true"})
    made["spec"]["template"]["metadata"] = {"annotations": {LAST: seen}}
    cluster.put(made)
    assert cluster.run() == {"deployment/web": "seed"}


@pytest.mark.parametrize("word", ["type", "kind"])
@pytest.mark.parametrize(("before", "expected"), [("a", "seed"), ("b", "restart")])
def test_the_annotation_with_the_last_source_is_a_baseline_for_that_source(before, expected, word):
    cluster = world(strategy=Strategy.ANNOTATIONS)
    cluster.put(configmap("app", mode="a"))
    cluster.put(configmap("other", mode="z"))
    made = workload("web", uses=[env_from("app"), env_from("other")], annotations={AUTO: "true"})
    last = {word: "CONFIGMAP", "name": "app", "namespace": "shop", "hash": hash_of(mode=before), "observedAt": 1}
    made["spec"]["template"]["metadata"] = {"annotations": {LAST: json.dumps(last)}}
    cluster.put(made)
    assert cluster.run() == {"deployment/web": expected}


def test_the_annotations_strategy_writes_the_last_source_and_no_variable():
    cluster = world(strategy=Strategy.ANNOTATIONS)
    cluster.put(configmap("app", mode="a"))
    cluster.put(workload("web", uses=[env_from("app")], annotations={AUTO: "true"}))
    cluster.run()
    cluster.put(configmap("app", mode="b"))
    cluster.run()
    written = cluster.get("Deployment", "web")["spec"]["template"]["metadata"]["annotations"][LAST]
    assert json.loads(written) == {
        "type": "CONFIGMAP",
        "name": "app",
        "namespace": "shop",
        "hash": hash_of(mode="b"),
        "containerRefs": ["main"],
        "observedAt": int(START),
    }
    assert variables(cluster) == {}


def test_our_own_marks_are_taken_over_like_the_originals():
    cluster = world()
    cluster.put(configmap("app", mode="a"))
    cluster.put(workload("web", uses=[env_from("app")], annotations={AUTO: "true"}))
    cluster.run()
    cluster.put(configmap("app", mode="b"))
    cluster.run()
    assert not original_would_restart(cluster, "app")
    cluster.edit("Deployment", "web", {"metadata": {"annotations": {"steersman.dev/applied": None}}})
    cluster.crash()
    assert cluster.run() == {"deployment/web": "seed"}


def test_a_restart_leaves_every_variable_true():
    cluster = world()
    cluster.put(configmap("app", mode="a"))
    cluster.put(configmap("other", mode="x", unused="1"))
    made = workload("web", uses=[env_from("app"), env("other", "mode")], annotations={AUTO: "true"})
    first, second = made["spec"]["template"]["spec"]["containers"]
    made["spec"]["template"]["spec"]["containers"] = [first | second]
    cluster.put(with_variable(made, hash_of(mode="x", unused="1"), "STAKATER_OTHER_CONFIGMAP"))
    cluster.run()
    cluster.put(configmap("other", mode="x", unused="2"))
    assert cluster.run() == {}  # nobody uses that key
    cluster.put(configmap("app", mode="b"))
    assert cluster.run() == {"deployment/web": "restart"}
    assert not original_would_restart(cluster, "app")
    assert not original_would_restart(cluster, "other")


def test_a_named_source_counts_without_a_reference_and_with_every_key():
    cluster = world()
    cluster.put(configmap("app", mode="a"))
    cluster.put(secret("db", password="x"))
    cluster.put(workload("web", uses=[env("app", "mode")], annotations={f"secret.{R}/reload": "d."}))
    cluster.run()
    cluster.put(configmap("app", mode="b"))
    assert cluster.run() == {}
    cluster.put(secret("db", password="y"))
    assert cluster.run() == {"deployment/web": "restart"}
    assert variables(cluster) == {("main", "STAKATER_DB_SECRET"): ReloaderHash()(SECRET, {"password": "eQ=="}, None)}


def test_a_source_that_appears_and_fits_an_expression_joins_without_a_restart():
    cluster = world()
    cluster.put(workload("web", uses=[env("app", "mode", optional=True)], annotations={NAMED: "x-.*"}))
    cluster.run()
    cluster.put(configmap("x-1", mode="a"))
    cluster.run()
    assert cluster.evaluate("Deployment", "web").edges.tracked[0].source.name == "x-1"


def test_an_expression_that_is_none_is_a_problem_and_the_others_count():
    cluster = world()
    cluster.put(configmap("app", mode="a"))
    cluster.put(workload("web", uses=[env_from("app")], annotations={NAMED: "(,app,[", AUTO: "false"}))
    plan = cluster.step("Deployment", "web").plan
    assert [text.split(":")[0] for text in plan.problems] == [NAMED, NAMED]
    cluster.put(configmap("app", mode="b"))
    assert cluster.run() == {"deployment/web": "restart"}


def test_a_list_without_end_counts_as_far_as_the_limit_allows_and_is_reported():
    cluster = world()
    cluster.put(configmap("app", mode="a"))
    expressions = [f"(a|b)*x{number}" for number in range(90)]
    names = [f"n{number}" for number in range(5000)]
    for listed, problem in (
        (["app", *names], "it has 5001 entries, of which the first 100 count"),
        (["app", *expressions * 10], "it has 901 entries, of which the first 100 count"),
        ([*expressions[:80], "a{1}[p]{2}" + "z*" * 200, "app"], "more than 1000 characters together"),
    ):
        cluster.put(workload("web", uses=[], annotations={NAMED: ",".join(listed)}))
        look = cluster.evaluate("Deployment", "web")
        (told,) = look.plan.problems
        assert told.startswith(f"{NAMED}: ")
        assert problem in told
        assert "app" in {edge.source.name for edge in look.edges.tracked}
        assert len(look.edges.tracked) <= 100


def mounting(*containers, volumes, inits=()):
    def made(name, mounts, reads):
        env = [{"configMapRef": {"name": source}} for source in reads]
        return {
            "name": name,
            "volumeMounts": [{"name": mount, "mountPath": f"/{mount}"} for mount in mounts],
            "envFrom": env,
        }

    return {
        "containers": [made(*container) for container in containers],
        "initContainers": [made(*init) for init in inits],
        "volumes": [{"name": name, "configMap": {"name": source}} for name, source in volumes],
    }


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (mounting(("a", [], []), ("b", ["v"], []), volumes=[("v", "app")]), "b"),
        (mounting(("a", [], ["app"]), ("b", ["v"], []), volumes=[("v", "app")]), "b"),
        (mounting(("a", [], []), ("b", [], []), volumes=[("v", "app")], inits=[("i", ["v"], [])]), "a"),
        (mounting(("a", [], []), ("b", [], ["app"]), volumes=[]), "b"),
        (mounting(("a", [], []), ("b", [], []), volumes=[], inits=[("i", [], ["app"])]), "a"),
        (mounting(("a", [], []), ("b", ["w"], []), volumes=[("v", "app"), ("w", "app")]), "b"),
        (mounting(("a", [], []), volumes=[("v", "app")]), None),
    ],
)
def test_the_variable_goes_to_the_container_that_reads_the_source(pod, expected):
    cluster = world()
    cluster.put(configmap("app", mode="a"))
    cluster.put(workload("web", uses=[pod], annotations={AUTO: "true"}))
    cluster.run()
    cluster.put(configmap("app", mode="b"))
    cluster.run()
    assert [container for container, _ in variables(cluster)] == ([expected] if expected else [])


def test_marks_of_a_workload_that_takes_no_part_say_nothing():
    cluster = world()
    cluster.put(configmap("app", mode="b"))
    made = workload("web", uses=[env_from("app")], annotations={"steersman.dev/reload": "auto"})
    cluster.put(with_variable(made, hash_of(mode="a")))
    assert cluster.run() == {"deployment/web": "seed"}


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from(["app", "foo-bar", "foo.bar"]), st.sampled_from("123")), max_size=6),
    st.sampled_from(Strategy),
)
def test_after_any_history_the_original_would_restart_nothing_and_we_take_over_from_ourselves(steps, strategy):
    cluster = world(strategy=strategy)
    for name in ("app", "foo-bar", "foo.bar"):
        cluster.put(configmap(name, a="1"))
    pod = mounting(("main", ["v"], ["app", "foo-bar"]), volumes=[("v", "foo.bar")])
    cluster.put(workload("web", uses=[pod], annotations={AUTO: "true"}))
    cluster.run()
    for name, value in steps:
        cluster.put(configmap(name, a=value))
        restarted = cluster.run(after=1) == {"deployment/web": "restart"}
        assert not (restarted and original_would_restart(cluster, name))
        restarts = dict(cluster.restarts)
        cluster.edit("Deployment", "web", {"metadata": {"annotations": {"steersman.dev/applied": None}}})
        cluster.crash()
        cluster.run(after=1)
        assert cluster.restarts == restarts


# -------------------------------------------------------------------------------- secrets that a CSI driver mounts
GROUP = "secrets-store.csi.x-k8s.io/v1"
SPC_NAMED, SPC_AUTO = f"secretproviderclass.{R}/reload", f"secretproviderclass.{R}/auto"
CSI = {"driver": "secrets-store.csi.k8s.io", "volumeAttributes": {"secretProviderClass": "vault"}}
MOUNTED = {
    "volumes": [{"name": "v", "csi": CSI}],
    "containers": [{"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
}


def status(version, *, pod="web-1", provider="vault"):
    said = {"secretProviderClassName": provider, "podName": pod, "objects": [{"id": "db", "version": version}]}
    meta = {"name": f"{pod}-{provider}", "namespace": "shop"}
    return {"apiVersion": GROUP, "kind": "SecretProviderClassPodStatus", "metadata": meta, "status": said}


def provider_class(**annotations):
    meta = {"name": "vault", "namespace": "shop", "annotations": annotations}
    return {"apiVersion": GROUP, "kind": "SecretProviderClass", "metadata": meta, "spec": {"provider": "vault"}}


def rotating(on_workload, *, uses=(MOUNTED,), on_class=None, **options):
    """A cluster in which a class is mounted, everything is written down, and its secret rotates."""
    cluster = World(AT_ONCE, dialects=(Reloader(**options),), providers=True)
    if on_class is not None:
        cluster.put(provider_class(**on_class))
    cluster.put(status("1"))
    cluster.put(workload("web", uses=list(uses), annotations=on_workload))
    cluster.run()
    cluster.put(status("2"))
    return cluster


@pytest.mark.parametrize(
    ("on_workload", "uses", "on_class", "restarts"),
    [
        ({AUTO: "true"}, [MOUNTED], None, True),
        ({SPC_AUTO: "true"}, [MOUNTED], None, True),
        ({CM_AUTO: "true"}, [MOUNTED], None, False),
        ({SPC_NAMED: "vault"}, [MOUNTED], None, True),
        ({SPC_NAMED: "vault"}, [env_from("app")], None, True),  # named: it need not be mounted here
        ({SPC_NAMED: "x, v.*t"}, [env_from("app")], None, True),
        ({SPC_NAMED: "other"}, [env_from("app")], None, False),
        ({AUTO: "true"}, [env_from("app")], None, False),  # only those it mounts
        ({AUTO: "true", f"secretproviderclasses.exclude.{R}/reload": "vault"}, [MOUNTED], None, False),
        ({AUTO: "true"}, [MOUNTED], {IGNORE: "true"}, False),
        ({SEARCH: "true"}, [MOUNTED], {MATCH: "true"}, True),
        ({SEARCH: "true"}, [MOUNTED], {}, False),
        ({AUTO: "true"}, [MOUNTED], {"steersman.dev/reload": "off"}, False),
    ],
)
def test_a_rotated_secret_of_a_provider_restarts_whom_the_annotations_name(on_workload, uses, on_class, restarts):
    cluster = rotating(on_workload, uses=uses, on_class=on_class)
    assert cluster.run(after=1) == ({"deployment/web": "restart"} if restarts else {})
    assert cluster.run(after=1) == {}


def test_a_rotation_is_written_as_the_original_writes_it_and_its_setting_is_taken_over():
    cluster = rotating({AUTO: "true"})
    cluster.run(after=1)
    sha = hashlib.sha1(b"SecretProviderClassName=vault;db=2", usedforsecurity=False).hexdigest()
    assert variables(cluster) == {("main", "STAKATER_VAULT_SECRETPROVIDERCLASS"): sha}
    cluster.edit("Deployment", "web", {"metadata": {"annotations": {"steersman.dev/applied": None}}})
    cluster.crash()
    assert cluster.run(after=1) == {"deployment/web": "seed"}
    cluster.edit("Deployment", "web", {"metadata": {"annotations": {"steersman.dev/applied": None}}})
    cluster.put(status("3"))
    cluster.crash()
    assert cluster.run(after=1) == {"deployment/web": "restart"}


def test_the_annotation_names_the_class_whose_secret_rotated():
    cluster = rotating({SPC_NAMED: "vault"}, strategy=Strategy.ANNOTATIONS)
    cluster.run(after=1)
    told = json.loads(cluster.get("Deployment", "web")["spec"]["template"]["metadata"]["annotations"][LAST])
    assert (told["type"], told["name"], told["containerRefs"]) == ("SECRETPROVIDERCLASS", "vault", ["main"])


@pytest.mark.parametrize(
    ("on_workload", "uses"),
    [({AUTO: "true"}, MOUNTED), ({SPC_NAMED: "vault"}, env_from("app")), ({SPC_NAMED: "v.*"}, env_from("app"))],
)
def test_the_first_mount_of_a_class_is_written_down_without_a_restart(on_workload, uses):
    cluster = World(AT_ONCE, dialects=(Reloader(),), providers=True)
    cluster.put(configmap("app", mode="a"))
    cluster.put(workload("web", uses=[uses], annotations=on_workload))
    cluster.run()
    cluster.put(status("1"))
    assert cluster.run(after=1) == {"deployment/web": "seed"}
    cluster.put(status("2"))
    assert cluster.run(after=1) == {"deployment/web": "restart"}
