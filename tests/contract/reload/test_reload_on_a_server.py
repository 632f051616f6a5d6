"""The reload operator on both API servers: what is restarted, for what, and at what cost."""

from __future__ import annotations

import asyncio
import contextlib
import random
from base64 import b64encode
from datetime import timedelta

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from steersman.kube.api.errors import Invalid, NotFound
from steersman.kube.api.gvk import Kind
from steersman.kube.api.types import Event
from steersman.operators.reload.actions.recreate_job import Intent, mark_of, stand_in, successor
from steersman.operators.reload.api.annotations import APPLIED, RECREATED_BY, RECREATES, RESTARTED_FOR
from steersman.operators.reload.api.config import KindConfig, ReloadOptions, RestartBudget, Window
from steersman.operators.reload.controllers.setup import CONCURRENCY, controllers
from steersman.operators.reload.planning.state import read_state
from steersman.operators.reload.sources.digest import ConfigMapSource
from steersman.runtime.manager.manager import Manager
from steersman.testing import RequestLog, eventually, running

RELOAD = "steersman.dev/reload"
AT_ONCE = Window(quiet=timedelta(0), limit=timedelta(0))
KINDS = {
    "Deployment": Kind(group="apps", version="v1", kind="Deployment", plural="deployments"),
    "StatefulSet": Kind(group="apps", version="v1", kind="StatefulSet", plural="statefulsets"),
    "DaemonSet": Kind(group="apps", version="v1", kind="DaemonSet", plural="daemonsets"),
    "CronJob": Kind(group="batch", version="v1", kind="CronJob", plural="cronjobs"),
    "Job": Kind(group="batch", version="v1", kind="Job", plural="jobs"),
    "ConfigMap": Kind(version="v1", kind="ConfigMap", plural="configmaps"),
    "Secret": Kind(version="v1", kind="Secret", plural="secrets"),
    "Namespace": Kind(version="v1", kind="Namespace", plural="namespaces", namespaced=False),
}
ENV = {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "app", "key": "mode"}}}


class Site:
    """A namespace with an operator that can be started, stopped and killed."""

    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace

    def controllers(self, *, everywhere=False, window=AT_ONCE, kinds=("Deployment",), budget=RestartBudget(restarts=0)):  # noqa: B008  # frozen
        rows = tuple(row if isinstance(row, KindConfig) else KindConfig(kind=row) for row in kinds)
        where = None if everywhere else frozenset({self.namespace})
        options = ReloadOptions(window=window, budget=budget, kinds=rows, namespaces=where)
        return controllers(options, registry=CollectorRegistry())

    def running(self, **options):
        return running(self.client, *self.controllers(**options))

    async def source(self, name="app", kind="ConfigMap", annotations=None, **data):
        """Create a source, or give it this data."""
        if kind == "Secret":
            data = {key: b64encode(value.encode()).decode() for key, value in data.items()}
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": self.namespace}, "data": data}
        if annotations:
            body["metadata"]["annotations"] = annotations
        await self.client.apply(body, field_manager="test", force=True)

    async def workload(self, name="web", *, kind="Deployment", pod=None, annotations=None, **spec):
        await self.client.create(self.manifest(name, kind=kind, pod=pod, annotations=annotations, **spec))

    def manifest(self, name="web", *, kind="Deployment", pod=None, annotations=None, **spec):
        labels = {"app": name}
        pod = {"containers": [{"name": "main", "image": "web:1", "env": [ENV]}], **(pod or {})}
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            container.setdefault("image", "web:1")
        template = {"metadata": {"labels": labels}, "spec": pod}
        shape = {"template": template, "selector": {"matchLabels": labels}}
        if kind == "StatefulSet":
            shape["serviceName"] = name
        if kind == "CronJob":
            template["spec"]["restartPolicy"] = "Never"
            shape = {"schedule": "@yearly", "jobTemplate": {"spec": {"template": template}}}
        marks = {RELOAD: "auto"} if annotations is None else annotations
        api = "batch/v1" if kind == "CronJob" else "apps/v1"
        meta = {"name": name, "namespace": self.namespace, "annotations": marks}
        return {"apiVersion": api, "kind": kind, "metadata": meta, "spec": {**shape, **spec}}

    async def get(self, name="web", kind="Deployment"):
        return await self.client.get(KINDS[kind], name, namespace=self.namespace)

    async def seeded(self, name="web", kind="Deployment"):
        async def seeded():
            return APPLIED in (await self.get(name, kind))["metadata"].get("annotations", {})

        await eventually(seeded, f"{name} is seeded")

    async def restarted_for(self, sources, name="web", kind="Deployment"):
        async def restarted():
            assert template(await self.get(name, kind)).get(RESTARTED_FOR) == sources
            return True

        await eventually(restarted, f"{name} is restarted for {sources}")

    async def restarts(self, name="web", kind="Deployment"):
        """How often it was restarted: the state that a restart writes together with the template lists them."""
        found = await self.get(name, kind)
        listed = read_state(found["metadata"]["annotations"].get(APPLIED)).applied
        restarts = len(listed.restarts) if listed else 0
        assert bool(restarts) == (RESTARTED_FOR in template(found))
        return restarts

    async def events(self, reason):
        listing = await self.client.list(Event, namespace=self.namespace)
        return [event.message for event in listing.items if event.reason == reason]


def template(obj):
    spec = obj["spec"]["jobTemplate"]["spec"] if obj["kind"] == "CronJob" else obj["spec"]
    return spec["template"]["metadata"].get("annotations") or {}


@pytest.fixture
def site(client, cluster, namespace):
    return Site(client, namespace)


def volume(**source):
    return {"volumes": [{"name": "v", **source}]}


def in_container(role="containers", **parts):
    main = {"name": "main"}
    return {"containers": [main], role: [{"name": "it", "image": "web:1", **parts}]}


REFERENCES = {
    "env": ({}, "configmap/app#mode"),
    "envFrom": (in_container(envFrom=[{"configMapRef": {"name": "app"}}]), "configmap/app#mode"),
    "secret env": (
        in_container(env=[{"name": "X", "valueFrom": {"secretKeyRef": {"name": "app", "key": "mode"}}}]),
        "secret/app#mode",
    ),
    "volume": ({"containers": [{"name": "main"}], **volume(configMap={"name": "app"})}, "configmap/app#mode"),
    "secret volume": ({"containers": [{"name": "main"}], **volume(secret={"secretName": "app"})}, "secret/app#mode"),
    "projected": (
        {
            "containers": [{"name": "main"}],
            **volume(projected={"sources": [{"secret": {"name": "app", "items": [{"key": "mode", "path": "m"}]}}]}),
        },
        "secret/app#mode",
    ),
    "subPath": (
        {
            "containers": [
                {"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/etc/mode", "subPath": "mode"}]}
            ],
            **volume(configMap={"name": "app"}),
        },
        "configmap/app#mode",
    ),
    "csi": (
        {
            "containers": [{"name": "main"}],
            **volume(csi={"driver": "d.example.org", "nodePublishSecretRef": {"name": "app"}}),
        },
        "secret/app#mode",
    ),
    "pull secret": ({"containers": [{"name": "main"}], "imagePullSecrets": [{"name": "app"}]}, "secret/app#mode"),
    "init container": (in_container("initContainers", env=[ENV]), "configmap/app#mode"),
    "sidecar": (in_container("initContainers", env=[ENV], restartPolicy="Always"), "configmap/app#mode"),
}


@pytest.mark.parametrize("reference", REFERENCES)
async def test_every_kind_of_reference_restarts(site, reference):
    pod, told = REFERENCES[reference]
    for kind in ("ConfigMap", "Secret"):
        await site.source(kind=kind, mode="a")
    await site.workload(pod=pod)
    async with site.running():
        await site.seeded()
        assert await site.restarts() == 0
        for kind in ("ConfigMap", "Secret"):
            await site.source(kind=kind, mode="b")
        await site.restarted_for(told)
        assert await site.restarts() == 1


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "CronJob"])
async def test_every_kind_of_workload_restarts(site, kind):
    await site.source(mode="a")
    await site.workload(kind=kind)
    async with site.running(kinds=[kind]):
        await site.seeded(kind=kind)
        await site.source(mode="b")
        await site.restarted_for("configmap/app#mode", kind=kind)
        assert await site.restarts(kind=kind) == 1


@pytest.mark.parametrize(
    ("kind", "spec", "note"),
    [
        ("Deployment", {"paused": True}, "it is paused"),
        ("StatefulSet", {"updateStrategy": {"type": "OnDelete"}}, "its update strategy is OnDelete"),
        (
            "StatefulSet",
            {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}},
            "pods below ordinal 2 keep what they have",
        ),
        ("DaemonSet", {"updateStrategy": {"type": "OnDelete"}}, "its update strategy is OnDelete"),
        ("CronJob", {"suspend": True}, "it is suspended"),
    ],
)
async def test_a_restart_that_does_not_reach_the_pods_yet_says_so_and_is_made_once(site, kind, spec, note):
    await site.source(mode="a")
    await site.workload(kind=kind, **spec)
    async with site.running(kinds=[kind]):
        await site.seeded(kind=kind)
        await site.source(mode="b")
        await site.restarted_for("configmap/app#mode", kind=kind)
        (event,) = await eventually(lambda: site.events("Restarted"))
        assert note in event
        assert await site.restarts(kind=kind) == 1


def job(name, namespace, **spec):
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "web:1", "env": [ENV]}]}
    meta = {"name": name, "namespace": namespace, "labels": {"team": "a"}, "annotations": {RELOAD: "auto"}}
    shape = {"template": {"metadata": {"labels": {"team": "a"}}, "spec": pod}, "backoffLimit": 3, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": shape}


@pytest.mark.parametrize("suspend", [False, True])
async def test_a_job_is_recreated_as_it_was_and_its_stand_in_goes(site, suspend):
    await site.source(mode="a")
    await site.client.create(job("sums", site.namespace, suspend=suspend))
    before = await site.get("sums", "Job")
    async with site.running(kinds=["Job"]):
        await site.seeded("sums", "Job")
        await site.source(mode="b")

        async def recreated():
            found = await site.client.list(KINDS["Job"], namespace=site.namespace)
            assert [one["metadata"]["name"] for one in found.items] == ["sums"]
            return found.items[0]["metadata"]["uid"] != before["metadata"]["uid"] and found.items[0]

        after = await eventually(recreated, "the Job is a new one")
    assert after["spec"]["suspend"] == suspend
    assert after["spec"]["backoffLimit"] == 3
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert template(after)[RESTARTED_FOR] == "configmap/app#mode"
    assert after["spec"]["template"]["spec"] == before["spec"]["template"]["spec"]


async def test_a_job_whose_recreation_was_cut_off_at_any_step_is_there_again(site):
    for step in range(5):
        name = f"sums-{step}"
        await site.source(mode="a")
        await site.client.create(job(name, site.namespace))
        manifest = await site.get(name, "Job")
        helper = stand_in(manifest, '{"v":1}', {RESTARTED_FOR: "configmap/app#mode"})
        if step >= 1:
            await mark(site, manifest, mark_of(helper))
        if step >= 2:
            made = await site.client.create(helper)
        if step >= 3:
            await site.client.delete(KINDS["Job"], name, namespace=site.namespace, propagation="Background")
            await eventually(lambda name=name: _gone(site, name))
        if step >= 4:
            await site.client.create(successor(made, Intent(name, manifest["metadata"]["uid"])))
    async with site.running(kinds=["Job"]):

        async def complete():
            found = await site.client.list(KINDS["Job"], namespace=site.namespace)
            return sorted(one["metadata"]["name"] for one in found.items) == [f"sums-{step}" for step in range(5)]

        await eventually(complete, "every Job is there, and no stand-in")


async def mark(site, manifest, by):
    """Have a Job say who stands in for it, as the operator does."""
    patch = {"metadata": {"annotations": {RECREATED_BY: msgspec.json.encode(by).decode()}}}
    await site.client.patch(KINDS["Job"], manifest["metadata"]["name"], patch, namespace=site.namespace)


@pytest.mark.parametrize("known", [False, True])
async def test_a_job_that_claims_to_stand_in_for_another_neither_deletes_nor_replaces_it(site, known):
    await site.client.create(job("important", site.namespace))
    victim = await site.get("important", "Job")
    forged = stand_in(victim, '{"v":1}', {})
    if known:  # a stand-in was made, and somebody put another in its place
        await mark(site, victim, mark_of(forged))
    forged["spec"]["template"]["spec"]["containers"][0]["image"] = "evil:1"
    await site.client.create(forged)
    async with site.running(kinds=["Job"]):
        await eventually(lambda: site.events("NotAStandIn"), "somebody is told")
    after = await site.get("important", "Job")
    assert after["metadata"]["uid"] == victim["metadata"]["uid"]
    assert after["metadata"].get("deletionTimestamp") is None


async def test_a_job_with_the_annotation_of_a_stand_in_and_another_name_is_a_job_like_any_other(site):
    await site.source(mode="a")
    await site.client.create(job("important", site.namespace))
    victim = await site.get("important", "Job")
    other = job("mine", site.namespace, suspend=True)
    intent = Intent("important", victim["metadata"]["uid"])
    other["metadata"]["annotations"][RECREATES] = msgspec.json.encode(intent).decode()
    await site.client.create(other)
    async with site.running(kinds=["Job"]):
        await site.seeded("mine", "Job")
    assert (await site.get("important", "Job"))["metadata"]["uid"] == victim["metadata"]["uid"]


async def test_a_job_whose_stand_in_cannot_be_made_says_so_and_stays(site):
    await site.source(mode="a")
    await site.client.create(job("sums", site.namespace))
    before = await site.get("sums", "Job")
    squatter = stand_in(before, "", {})
    del squatter["metadata"]["annotations"]
    squatter["spec"]["template"]["spec"]["containers"][0]["image"] = "evil:1"
    await site.client.create(squatter)
    async with site.running(kinds=["Job"]):
        await site.seeded("sums", "Job")
        await site.source(mode="b")
        (told,) = await eventually(lambda: site.events("RestartRefused"), "somebody is told")
    assert squatter["metadata"]["name"] in told
    assert (await site.get("sums", "Job"))["metadata"]["uid"] == before["metadata"]["uid"]


async def _gone(site, name):
    try:
        await site.get(name, "Job")
    except NotFound:
        return True
    return False


async def test_a_kind_that_only_the_configuration_knows_restarts_by_its_template_and_by_a_field(site, api, install):
    for plural, kind in (("podsets", "PodSet"), ("cases", "Case")):
        group = f"{site.namespace}.example.org"
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
        spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
        await install(
            api,
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.{group}"},
                "spec": spec,
            },
        )
        KINDS[kind] = Kind(group=group, version="v1", kind=kind, plural=plural)
    pod = {"spec": {"containers": [{"name": "main", "env": [ENV]}]}}
    for kind in ("PodSet", "Case"):
        meta = {"name": "web", "namespace": site.namespace, "annotations": {RELOAD: "auto"}}
        body = {"apiVersion": KINDS[kind].api_version, "kind": kind, "metadata": meta, "spec": {"pods": {"shape": pod}}}
        await site.client.create(body)
    await site.source(mode="a")
    rows = [
        KindConfig(kind="PodSet", group=group, version="v1", template="spec.pods.shape"),
        KindConfig(kind="Case", group=group, version="v1", template="spec.pods.shape", restart="spec.bounce.at"),
    ]
    async with site.running(kinds=rows):
        for kind in ("PodSet", "Case"):
            await site.seeded(kind=kind)
        await site.source(mode="b")

        async def stamped():
            podset, case = await site.get(kind="PodSet"), await site.get(kind="Case")
            shape = podset["spec"]["pods"]["shape"]
            assert shape.get("metadata", {}) != {}
            assert shape["metadata"]["annotations"][RESTARTED_FOR] == "configmap/app#mode"
            assert shape["spec"] == pod["spec"]
            return case["spec"].get("bounce", {}).get("at", "").endswith("Z")

        await eventually(stamped)


async def test_a_rollout_that_uses_the_template_of_a_deployment_is_restarted_by_its_own_field(site, api, install):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "rollouts", "singular": "rollout", "kind": "Rollout", "listKind": "RolloutList"}
    spec = {"group": "argoproj.io", "scope": "Namespaced", "names": names, "versions": [version]}
    meta = {"name": "rollouts.argoproj.io"}
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec}
    await install(api, crd)
    KINDS["Rollout"] = Kind(group="argoproj.io", version="v1alpha1", kind="Rollout", plural="rollouts")
    await site.source(mode="a")
    await site.workload(annotations={})
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    meta = {"name": "web", "namespace": site.namespace, "annotations": {RELOAD: "auto"}}
    await site.client.create(
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": meta, "spec": {"workloadRef": ref}}
    )
    async with site.running(kinds=["Rollout"]):
        await site.seeded(kind="Rollout")
        await site.source(mode="b")

        async def restarted():
            return (await site.get(kind="Rollout"))["spec"].get("restartAt", "").endswith("Z")

        await eventually(restarted)
        assert RESTARTED_FOR not in template(await site.get())


async def test_sources_that_change_in_one_window_are_one_rollout_and_nothing_waits_beyond_the_limit(site):
    uses = {"containers": [{"name": "main", "envFrom": [{"configMapRef": {"name": f"app-{n}"}} for n in range(5)]}]}
    for number in range(5):
        await site.source(f"app-{number}", mode="a")
    await site.workload(pod=uses)
    async with site.running(window=Window(quiet=timedelta(seconds=1), limit=timedelta(seconds=30))):
        await site.seeded()
        for number in range(5):
            await site.source(f"app-{number}", mode="b")
        await site.restarted_for(" ".join(f"configmap/app-{number}#mode" for number in range(5)))
        assert await site.restarts() == 1


async def test_a_change_costs_one_patch_per_workload_and_one_event_and_no_read(site):
    await site.source(mode="a", other="x")
    for name in ("web", "shop"):
        await site.workload(name)
    async with site.running() as manager:
        for name in ("web", "shop"):
            await site.seeded(name)
        await idle(manager)
        with RequestLog(site.client) as log:
            await site.source(mode="b", other="x")
            for name in ("web", "shop"):
                await site.restarted_for("configmap/app#mode", name)
            await eventually(lambda: len([write for write in log.writes if write.endswith("/events")]) == 2)
            await idle(manager)
        base = f"PATCH /apis/apps/v1/namespaces/{site.namespace}/deployments"
        edit = f"PATCH /api/v1/namespaces/{site.namespace}/configmaps/app"  # the test's own
        assert sorted(write for write in log.writes if "/events" not in write) == [edit, f"{base}/shop", f"{base}/web"]


async def test_what_changes_no_used_key_costs_no_request_at_all(site):
    await site.source(mode="a", other="x")
    await site.source("marker", mode="a")
    marker = {"containers": [{"name": "main", "envFrom": [{"configMapRef": {"name": "marker"}}]}]}
    await site.workload()
    await site.workload("marker", pod=marker)
    async with site.running() as manager:
        for name in ("web", "marker"):
            await site.seeded(name)
        await idle(manager)
        with RequestLog(site.client) as log:
            await site.source(mode="a", other="y", annotations={"somebody": "edited"})
            await site.source("marker", mode="b")  # comes after it on the same watch
            await site.restarted_for("configmap/marker#mode", "marker")
            await idle(manager)
        assert _patches(log) == [f"PATCH /apis/apps/v1/namespaces/{site.namespace}/deployments/marker"]
        assert await site.restarts() == 0
        assert await site.events("Restarted") == ["restarted for configmap/marker#mode"]


async def idle(manager):
    await eventually(
        lambda: all(engine.queue.processing == 0 and len(engine.queue) == 0 for engine in manager.runners.values()),
        "the controllers have nothing to do",
    )


async def test_a_namespace_can_enrol_everybody_and_a_workload_can_stay_out(site):
    await site.source(mode="a")
    await site.workload(annotations={})
    await site.workload("out", annotations={RELOAD: "off"})
    async with site.running(everywhere=True):
        await site.client.patch(KINDS["Namespace"], site.namespace, {"metadata": {"annotations": {RELOAD: "auto"}}})
        await site.seeded()
        await site.source(mode="b")
        await site.restarted_for("configmap/app#mode")
        assert APPLIED not in (await site.get("out"))["metadata"]["annotations"]


async def test_one_workload_that_the_server_refuses_blocks_nothing_else(site):
    await site.source(mode="a")
    for number in range(20):
        await site.workload(f"web-{number}")
    full = {RELOAD: "auto", "padding": "x" * (256 * 1024 - len(RELOAD) - len("autopadding"))}
    await site.workload("full", annotations=full)
    async with site.running():
        for number in range(20):
            await site.seeded(f"web-{number}")
        await site.source(mode="b")
        for number in range(20):
            await site.restarted_for("configmap/app#mode", f"web-{number}")
        (message,) = set(await eventually(lambda: site.events("RestartRefused")))
        assert "metadata.annotations" in message
        assert await site.restarts("full") == 0


async def test_a_wrong_annotation_is_reported_with_its_name_and_the_others_proceed(site):
    await site.source(mode="a")
    await site.workload(annotations={RELOAD: "auto", "steersman.dev/quiet-period": "5 sec", APPLIED: "[]"})
    async with site.running():
        messages = await eventually(lambda: all_of(site.events("ReloadMisconfigured"), 2))
        assert sorted(messages) == [
            "steersman.dev/applied: invalid state annotation; reset",
            'steersman.dev/quiet-period: "5 sec" is not a duration (try 5s)',
        ]
        await site.source(mode="b")
        await site.restarted_for("configmap/app#mode")


async def all_of(events, number):
    found = await events
    return found if len(found) == number else None


async def test_a_used_up_budget_is_reported_with_the_keys_and_survives_a_new_process(site):
    await site.source(mode="0")
    await site.workload()
    budget = RestartBudget(restarts=2, per=timedelta(hours=1))
    async with site.running(budget=budget):
        await site.seeded()
        for number in ("1", "2"):
            await site.source(mode=number)
            await eventually(lambda expected=int(number): _is(site.restarts(), expected))
    await site.source(mode="3")
    async with site.running(budget=budget):
        (message,) = await eventually(lambda: site.events("RestartBudgetUsed"))
        assert message == (
            "the restart for configmap/app#mode waits: budget used up (2 restarts in 1h); "
            "configmap/app#mode is written by test"
        )
        assert await site.restarts() == 2


async def _is(awaitable, value):
    return await awaitable == value


async def test_a_change_while_no_operator_runs_is_found_at_the_next_start(site):
    await site.source(mode="a")
    await site.workload()
    async with site.running():
        await site.seeded()
    await site.source(mode="b")
    async with site.running():
        await site.restarted_for("configmap/app#mode")
        assert await site.restarts() == 1


async def test_killed_at_any_moment_nothing_is_lost_and_nothing_is_done_twice(site):
    seed = random.randrange(1_000_000)
    print("seed", seed)  # noqa: T201  # shown when the test fails
    chance = random.Random(seed)  # a test
    names = [f"web-{number}" for number in range(5)]
    await site.source(mode="0")
    for name in names:
        await site.workload(name)
    async with site.running():
        for name in names:
            await site.seeded(name)
    changes = 15
    for number in range(1, changes + 1):
        manager = Manager(site.client, site.controllers(), registry=CollectorRegistry(), grace_seconds=0)
        task = asyncio.create_task(manager.run())
        await site.source(mode=str(number))
        for _ in range(chance.randrange(400)):
            await asyncio.sleep(0)  # not a time: a number of steps, after which the process dies
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with site.running() as manager:
        states = set()
        for name in names:
            await eventually(lambda name=name: _applied_is_current(site, name), "the last change is applied")
            states.add((await site.get(name))["metadata"]["annotations"][APPLIED].partition('"r"')[0])
            assert 1 <= await site.restarts(name) <= changes
        assert len(states) == 1
        await idle(manager)
        before = [await site.restarts(name) for name in names]
    async with site.running() as manager:
        await idle(manager)
        assert [await site.restarts(name) for name in names] == before


async def _applied_is_current(site, name):
    """Whether a fresh operator would find nothing to do; told by a workload that starts with the same sources."""
    probe = f"{name}-probe"
    try:
        other = await site.get(probe)
    except Exception:  # noqa: BLE001  # not there yet
        await site.workload(probe)
        return False
    theirs = other["metadata"]["annotations"].get(APPLIED)
    ours = (await site.get(name))["metadata"]["annotations"][APPLIED]
    return theirs is not None and theirs.partition(',"r"')[0].rstrip("}") == ours.partition(',"r"')[0].rstrip("}")


async def test_one_source_that_many_workloads_use_takes_one_patch_each(site):
    number = 2 * CONCURRENCY
    await site.source(mode="a")
    names = [f"web-{n}" for n in range(number)]
    await asyncio.gather(*(site.workload(name) for name in names))
    async with site.running() as manager:
        (engine,) = manager.runners.values()
        await eventually(lambda: _all_are(site, APPLIED, None, number), "all are seeded")
        await idle(manager)
        with RequestLog(site.client) as log:
            await site.source(mode="b")
            await eventually(lambda: engine.queue.processing == 0 and len(_patches(log)) >= number)
            await idle(manager)
        assert len(_patches(log)) == len(set(_patches(log))) == number
        assert [request for request in log.requests if request.startswith("GET ") and "/deployments" in request] == []
        assert await _all_are(site, None, "configmap/app#mode", number)


def _patches(log):
    return [request for request in log.requests if request.startswith("PATCH ") and "/deployments/" in request]


async def _all_are(site, annotation, told, number):
    found = (await site.client.list(KINDS["Deployment"], namespace=site.namespace)).items
    marked = [obj for obj in found if annotation is None or annotation in obj["metadata"]["annotations"]]
    return number == len([obj for obj in marked if told is None or template(obj).get(RESTARTED_FOR) == told])


async def test_a_source_that_stands_for_more_than_can_be_parsed_is_compared_by_its_bytes_at_every_start(site):
    bomb = f"a: &a {'x' * 60_000}\nb: [{','.join(['*a'] * 2_000)}]"
    compare = {"steersman.dev/compare": "*=yaml"}
    await site.source(mode=bomb, annotations=compare)
    await site.workload()

    async def told():
        events = await site.client.list(Event, namespace=site.namespace)
        return any("mode: too large to parse; compared byte by byte" in (event.message or "") for event in events.items)

    async with site.running():
        await site.seeded()
        await eventually(told, "people are told")
    await site.source(mode=f"{bomb} # another byte", annotations=compare)  # while nobody runs
    async with site.running():
        await site.restarted_for("configmap/app#mode")
        await site.source(mode="a: 1", annotations=compare)  # a value that can be parsed again
        await eventually(lambda: has_restarts(site, 2), "it is restarted for that too")
        await site.source(mode="a:   1 # the same", annotations=compare)
        await site.source(mode="a: 2", annotations=compare)
        await eventually(lambda: has_restarts(site, 3), "and for what follows, but not for a comment")


async def has_restarts(site, number):
    return await site.restarts() == number


class LaggingClient:
    """Sees ConfigMaps as they were, as a process whose watch is held: until it is released."""

    def __init__(self, client, pages):
        self._client, self._pages = client, pages
        self.released, self.asked = asyncio.Event(), 0

    def __getattr__(self, name):
        return getattr(self._client, name)

    def guarded(self, guard):
        self._client = self._client.guarded(guard)
        return self

    async def list(self, target, **options):
        self.asked += "field_selector" in options
        return await self._client.list(target, **options)

    async def pages(self, target, **options):
        found = self._client.pages(target, **options) if target is not ConfigMapSource else _each(self._pages)
        async for page in found:
            yield page

    @contextlib.asynccontextmanager
    async def watch(self, target, **options):
        if target is ConfigMapSource:
            if options["send_initial_events"]:
                raise Invalid("sendInitialEvents: Forbidden", code=422)
            await self.released.wait()
        async with self._client.watch(target, **options) as events:
            yield events


async def _each(pages):
    for page in pages:
        yield page


async def test_a_process_that_lags_behind_what_its_predecessor_applied_restarts_nothing(site):
    await site.source(mode="1")
    await site.workload()
    async with site.running():
        await site.seeded()
        old = [page async for page in site.client.pages(ConfigMapSource, namespace=site.namespace)]
        await site.source(mode="2")
        await site.restarted_for("configmap/app#mode")
    client = LaggingClient(site.client, old)
    async with running(client, *site.controllers()):

        async def evaluated():
            return client.asked or await site.restarts() > 1

        await eventually(evaluated, "it has looked at the workload")
        assert await site.restarts() == 1
        client.released.set()
        await site.source(mode="3")
        await eventually(lambda: has_restarts(site, 2), "a real change restarts it")
