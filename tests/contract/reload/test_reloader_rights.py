"""The profile of Reloader with exactly the rights that Reloader's own chart grants, on both API servers.

Workloads may be listed, read and patched, and not watched; CronJobs may only be read, and Jobs read, created and
deleted. Complete lists are an hour apart here, so whatever happens sooner happens because a source changed.
"""

from __future__ import annotations

import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from steersman.cache import list_watch_state
from steersman.kube.api.gvk import Kind
from steersman.operators.reload.api.config import SourceKind
from steersman.operators.reload.compat.dialects.hashes import ReloaderHash
from steersman.testing import RequestLog, client_as, eventually
from tests.support.rbac import rule
from tests.support.reload.profiles import station

pytestmark = pytest.mark.timeout(300)

LONG = 120.0  # seconds a fact may take on a busy machine
CSI = ("secretproviderclasspodstatuses", "secretproviderclasses")
CHART = (
    rule(["secrets", "configmaps"], "list", "get", "watch"),
    rule("rollouts.argoproj.io", "list", "get", "update", "patch"),
    rule(["deployments.apps", "daemonsets.apps", "statefulsets.apps"], "list", "get", "update", "patch"),
    rule("cronjobs.batch", "list", "get"),
    rule("jobs.batch", "create", "delete", "list", "get"),
    rule(
        [
            "secretproviderclasspodstatuses.secrets-store.csi.x-k8s.io",
            "secretproviderclasses.secrets-store.csi.x-k8s.io",
        ],
        "list",
        "get",
        "watch",
    ),
    rule("events", "create", "patch"),
)
KINDS = {
    kind: Kind(group=group, version="v1", kind=kind, plural=f"{kind.lower()}s")
    for kind, group in (
        ("Deployment", "apps"),
        ("StatefulSet", "apps"),
        ("DaemonSet", "apps"),
        ("CronJob", "batch"),
        ("Job", "batch"),
    )
}
CONFIGMAP = Kind(version="v1", kind="ConfigMap", plural="configmaps")
SECRET = Kind(version="v1", kind="Secret", plural="secrets")
ROLLOUT = Kind(group="argoproj.io", version="v1alpha1", kind="Rollout", plural="rollouts")
STORE = "secrets-store.csi.x-k8s.io"
MOUNTED = Kind(group=STORE, version="v1", kind="SecretProviderClassPodStatus", plural="secretproviderclasspodstatuses")
PROVIDER = Kind(group=STORE, version="v1", kind="SecretProviderClass", plural="secretproviderclasses")
AUTO = {"reloader.stakater.com/auto": "true"}
VARIABLE = "STAKATER_APP_CONFIGMAP"
LAST = "reloader.stakater.com/last-reloaded-from"


@pytest.fixture(autouse=True)
def rare_lists(monkeypatch):
    """Lists that stand in for a watch are an hour apart."""
    monkeypatch.setattr(list_watch_state, "BACKOFF_FIRST", 3600.0)
    monkeypatch.setattr(list_watch_state, "LISTING_LIMIT", 3600.0)


@pytest.fixture
async def reloader(cluster, namespace):
    """A client with the rights of Reloader's chart."""
    async with client_as(cluster, "reloader", *CHART, namespace=namespace) as client:
        yield client


class Shop:
    """A namespace whose workloads read ConfigMap `app`."""

    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace

    async def source(self, name="app", **data):
        meta = {"name": name, "namespace": self.namespace}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
        await self.client.apply(body, field_manager="test", force=True)

    async def workload(self, kind="Deployment", name="web", *, reads=("app",), **annotations):
        sources = [{"configMapRef": {"name": source}} for source in reads]
        container = {"name": "main", "image": "web:1", "envFrom": sources}
        meta = {"name": name, "namespace": self.namespace, "annotations": {**AUTO, **annotations}}
        template = {"metadata": {"labels": {"pod": name}}, "spec": {"containers": [container]}}
        group = KINDS[kind].group
        spec = {"selector": {"matchLabels": {"pod": name}}, "template": template}
        if group == "batch":
            template["spec"]["restartPolicy"] = "Never"
            spec = {"template": template}
        if kind == "StatefulSet":
            spec["serviceName"] = name
        if kind == "CronJob":
            spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": spec}}
        await self.client.create({"apiVersion": f"{group}/v1", "kind": kind, "metadata": meta, "spec": spec})

    async def get(self, kind="Deployment", name="web"):
        return await self.client.get(KINDS[kind], name, namespace=self.namespace)

    async def jobs(self):
        return list((await self.client.list(KINDS["Job"], namespace=self.namespace)).items)

    async def variable(self, kind="Deployment", name="web", wanted=VARIABLE):
        return variable_of((await self.get(kind, name))["spec"]["template"], wanted)

    async def reloaded(self, kind="Deployment", name="web", **data):
        """Wait until the workload carries the hash of this content."""
        wanted = ReloaderHash()(SourceKind.CONFIGMAP, data, None)

        async def carries():
            return await self.variable(kind, name) == wanted

        await eventually(carries, f"{name} runs with {data}", timeout=LONG)


def variable_of(template, wanted=VARIABLE):
    rows = template["spec"]["containers"][0].get("env") or ()
    return next((row["value"] for row in rows if row["name"] == wanted), None)


@pytest.fixture
def shop(cluster, client, namespace):
    return Shop(client, namespace)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
async def test_a_workload_that_no_list_has_shown_yet_restarts_as_soon_as_its_source_changes(shop, reloader, kind):
    await shop.source(mode="a")
    async with station(reloader, shop.namespace, "reloader"):
        await shop.workload(kind)
        await shop.source(mode="b")
        await shop.reloaded(kind, mode="b")
        await shop.source(mode="c")
        await shop.reloaded(kind, mode="c")


async def test_in_all_namespaces_one_is_listed_and_only_those_that_the_selector_of_the_chart_names_take_part(
    cluster, shop
):
    namespaces = rule("namespaces", "get", "list", "watch")
    labels = {"metadata": {"labels": {"test": shop.namespace}}}
    await shop.client.patch(
        Kind(version="v1", kind="Namespace", plural="namespaces", namespaced=False), shop.namespace, labels
    )
    await shop.source(mode="a")
    argv = [f'--namespace-selector="test={shop.namespace}"']
    async with (
        client_as(cluster, "global", *CHART, namespaces, namespace=shop.namespace, everywhere=True) as client,
        station(client, shop.namespace, "reloader", argv, everywhere=True),
    ):
        await shop.workload()
        with RequestLog(client) as log:
            await shop.source(mode="b")
            await shop.reloaded(mode="b")
    assert f"GET /apis/apps/v1/namespaces/{shop.namespace}/deployments" in log.requests


async def test_a_workload_that_changed_since_the_last_list_restarts_all_the_same(shop, reloader):
    await shop.source(mode="a")
    await shop.workload()
    async with station(reloader, shop.namespace, "reloader"):
        merge = {"metadata": {"labels": {"changed": "since"}}}
        await shop.client.patch(KINDS["Deployment"], "web", merge, namespace=shop.namespace)
        await shop.source(mode="b")
        await shop.reloaded(mode="b")


async def test_a_cronjob_starts_a_job_of_its_template_at_once_and_one_more_for_the_next_change(shop, reloader):
    await shop.source(mode="a")
    async with station(reloader, shop.namespace, "reloader"):
        await shop.workload("CronJob")
        for number, mode in enumerate("bcb", start=1):
            await shop.source(mode=mode)

            async def started(number=number):
                return len(await shop.jobs()) == number

            await eventually(started, f"{number} Jobs are started", timeout=LONG)
        jobs = await shop.jobs()
        hashes = [ReloaderHash()(SourceKind.CONFIGMAP, {"mode": mode}, None) for mode in "bcb"]
        assert sorted(variable_of(job["spec"]["template"]) for job in jobs) == sorted(hashes)
        owner = (await shop.get("CronJob"))["metadata"]["uid"]
        assert {job["metadata"]["ownerReferences"][0]["uid"] for job in jobs} == {owner}
        assert {job["metadata"]["annotations"]["cronjob.kubernetes.io/instantiate"] for job in jobs} == {"manual"}


async def test_a_suspended_cronjob_starts_nothing_and_one_that_is_resumed_starts_its_next_change(shop, reloader):
    await shop.source(mode="a")
    async with station(reloader, shop.namespace, "reloader"):
        await shop.workload("CronJob")
        merge = {"spec": {"suspend": True}}
        await shop.client.patch(KINDS["CronJob"], "web", merge, namespace=shop.namespace)
        await shop.workload()
        await shop.source(mode="b")
        await shop.reloaded(mode="b")
        await shop.client.patch(KINDS["CronJob"], "web", {"spec": {"suspend": False}}, namespace=shop.namespace)
        await shop.source(mode="c")
        await eventually(shop.jobs, "a Job is started", timeout=LONG)
        (job,) = await shop.jobs()
        assert variable_of(job["spec"]["template"]) == ReloaderHash()(SourceKind.CONFIGMAP, {"mode": "c"}, None)


async def test_a_job_is_recreated_and_recreated_again(shop, reloader):
    await shop.source(mode="a")
    async with station(reloader, shop.namespace, "reloader"):
        await shop.workload("Job")
        uids = {(await shop.get("Job"))["metadata"]["uid"]}
        for mode in "bc":
            await shop.source(mode=mode)
            wanted = ReloaderHash()(SourceKind.CONFIGMAP, {"mode": mode}, None)

            async def recreated(wanted=wanted):
                jobs = await shop.jobs()  # among them the stand-in, until everything is done
                found = [(job["metadata"]["name"], variable_of(job["spec"]["template"])) for job in jobs]
                return found == [("web", wanted)]

            await eventually(recreated, f"the Job runs with {mode}", timeout=LONG)
            (job,) = await shop.jobs()
            assert not job["spec"].get("suspend")
            uids.add(job["metadata"]["uid"])
        assert len(uids) == 3


# ------------------------------------------------------------------------------------------------------ Argo Rollouts
@pytest.fixture
async def others(cluster, client):
    """The kinds of Argo Rollouts and of the secrets store CSI driver."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for kind in (ROLLOUT, MOUNTED, PROVIDER):
        version = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"plural": kind.plural, "kind": kind.kind, "listKind": f"{kind.kind}List"}
        spec = {"group": kind.group, "scope": "Namespaced", "names": names, "versions": [version]}
        meta = {"name": f"{kind.plural}.{kind.group}"}
        crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta}
        await client.apply({**crd, "spec": spec}, field_manager="test", force=True)

        async def answers(kind=kind):
            await client.list(kind)
            return True

        await eventually(answers, f"{kind.kind} is served", timeout=LONG)


def rollout(namespace, **pod):
    containers = [{"name": "first", "image": "a:1", "env": [{"name": "KEPT", "value": "x"}]}, {"name": "main", **pod}]
    volumes = [
        {"name": "app", "configMap": {"name": "app"}},
        {"name": "db", "secret": {"secretName": "db"}},
        {"name": "vault", "csi": {"driver": STORE, "volumeAttributes": {"secretProviderClass": "vault"}}},
    ]
    containers[1]["volumeMounts"] = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]
    template = {"metadata": {"labels": {"pod": "web"}}, "spec": {"containers": containers, "volumes": volumes}}
    meta = {"name": "web", "namespace": namespace, "annotations": AUTO}
    spec = {"replicas": 1, "selector": {"matchLabels": {"pod": "web"}}, "template": template}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": meta, "spec": spec}


async def mount(client, namespace, version):
    """The CSI driver notes which version of a secret a pod has mounted."""
    meta = {"name": "web-1", "namespace": namespace}
    status = {"secretProviderClassName": "vault", "objects": [{"id": "password", "version": version}]}
    body = {"apiVersion": f"{STORE}/v1", "kind": MOUNTED.kind, "metadata": meta, "status": status}
    await client.apply(body, field_manager="test", force=True)


async def test_a_rollout_gets_the_variable_of_each_kind_of_source_and_keeps_everything_else(shop, reloader, others):
    client, namespace = shop.client, shop.namespace
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": namespace}}
    await shop.source(mode="a")
    await client.apply({**secret, "stringData": {"user": "a"}}, field_manager="test", force=True)
    await mount(client, namespace, "1")
    argv = ["--is-Argo-Rollouts=true", "--enable-csi-integration", "--reload-strategy=env-vars"]
    async with station(reloader, namespace, "reloader", argv):
        await client.create(rollout(namespace, image="web:1", env=[{"name": "ALSO", "value": "y"}]))
        found = {}
        for wanted in ("STAKATER_APP_CONFIGMAP", "STAKATER_DB_SECRET", "STAKATER_VAULT_SECRETPROVIDERCLASS"):
            if wanted.endswith("CONFIGMAP"):
                await shop.source(mode="b")
            elif wanted.endswith("SECRET"):
                await client.apply({**secret, "stringData": {"user": "b"}}, field_manager="test", force=True)
            else:
                await mount(client, namespace, "2")

            async def carried(wanted=wanted):
                live = await client.get(ROLLOUT, "web", namespace=namespace)
                found.update(live)
                return any(row["name"] == wanted for row in live["spec"]["template"]["spec"]["containers"][1]["env"])

            await eventually(carried, f"the Rollout has {wanted}", timeout=LONG)
    first, main = found["spec"]["template"]["spec"]["containers"]
    assert first == rollout(namespace)["spec"]["template"]["spec"]["containers"][0]
    assert main["image"] == "web:1"
    assert main["env"][0] == {"name": "ALSO", "value": "y"}
    assert len(main["env"]) == 4
    assert len(main["volumeMounts"]) == 3


# -------------------------------------------------------------------------------------------------------- pause-period
PERIOD, PAUSED_AT = "deployment.reloader.stakater.com/pause-period", "deployment.reloader.stakater.com/paused-at"


async def test_a_pause_period_pauses_a_deployment_with_the_restart_and_resumes_it(shop, reloader):
    await shop.source(mode="a")
    async with station(reloader, shop.namespace, "reloader"):
        await shop.workload(**{PERIOD: "10h"})
        await shop.source(mode="b")
        await shop.reloaded(mode="b")
        paused = await shop.get()
        assert paused["spec"]["paused"] is True
        began = paused["metadata"]["annotations"][PAUSED_AT]
        await shop.source(mode="c")  # joins the rollout that the end of the pause begins
        await shop.reloaded(mode="c")
        assert (await shop.get())["metadata"]["annotations"][PAUSED_AT] == began
        merge = {"metadata": {"annotations": {PERIOD: "1s"}}}
        await shop.client.patch(KINDS["Deployment"], "web", merge, namespace=shop.namespace)
        await shop.source(mode="d")

        async def resumed():
            live = await shop.get()
            return not live["spec"].get("paused") and PAUSED_AT not in live["metadata"]["annotations"]

        await shop.reloaded(mode="d")
        await eventually(resumed, "it is resumed", timeout=LONG)


async def test_the_next_process_resumes_what_the_last_one_paused_and_leaves_what_a_user_paused(shop, reloader):
    await shop.source(mode="a")
    await shop.workload(**{PERIOD: "1h", PAUSED_AT: "2026-01-01T00:00:00Z"})
    await shop.workload(name="theirs", **{PERIOD: "1s"})
    for name in ("web", "theirs"):
        await shop.client.patch(KINDS["Deployment"], name, {"spec": {"paused": True}}, namespace=shop.namespace)
    async with station(reloader, shop.namespace, "reloader"):

        async def resumed():
            return not (await shop.get())["spec"].get("paused")

        await eventually(resumed, "it is resumed", timeout=LONG)
        await shop.source(mode="b")
        await shop.reloaded(name="theirs", mode="b")
    theirs = await shop.get(name="theirs")
    assert theirs["spec"]["paused"] is True
    assert PAUSED_AT not in theirs["metadata"]["annotations"]


# ------------------------------------------------------------------------------------ sources that appear and disappear
def last_of(manifest):
    return json.loads((manifest["spec"]["template"]["metadata"].get("annotations") or {}).get(LAST, "{}"))


@pytest.mark.parametrize("kind", [CONFIGMAP, SECRET], ids=["configmap", "secret"])
async def test_with_reload_on_delete_a_deleted_source_restarts_as_the_original_does(shop, reloader, kind):
    meta = {"name": "late", "namespace": shop.namespace}
    await shop.source(mode="a")
    await shop.client.create({"apiVersion": "v1", "kind": kind.kind, "metadata": meta})
    async with station(
        reloader, shop.namespace, "reloader", ["--reload-on-delete=true", "--reload-strategy=annotations"]
    ):
        await shop.workload(**{f"{kind.kind.lower()}.reloader.stakater.com/reload": "late"})
        await shop.source(mode="b")

        async def reloaded_for(name, digest=None):
            last = last_of(await shop.get())
            return last.get("name") == name and digest in (None, last["hash"])

        await eventually(lambda: reloaded_for("app"), "it restarts for a change", timeout=LONG)
        await shop.client.delete(kind, "late", namespace=shop.namespace)
        empty = "aae45badef99284e4dae01d6046154ea9d99532f"
        await eventually(lambda: reloaded_for("late", empty), "it restarts for the deletion", timeout=LONG)


@pytest.mark.parametrize("kind", [CONFIGMAP, SECRET], ids=["configmap", "secret"])
async def test_with_reload_on_delete_a_workload_that_no_list_has_shown_yet_restarts_once(shop, reloader, kind):
    meta = {"name": "late", "namespace": shop.namespace}
    await shop.client.create({"apiVersion": "v1", "kind": kind.kind, "metadata": meta})
    async with station(
        reloader, shop.namespace, "reloader", ["--reload-on-delete=true", "--reload-strategy=annotations"]
    ):
        await shop.workload(reads=(), **{f"{kind.kind.lower()}.reloader.stakater.com/reload": "late"})
        await shop.client.delete(kind, "late", namespace=shop.namespace)

        async def reloaded_for(name):
            return last_of(await shop.get()).get("name") == name

        await eventually(lambda: reloaded_for("late"), "it restarts for the deletion", timeout=LONG)
        restarted = (await shop.get())["spec"]
        named = {"configmap.reloader.stakater.com/reload": "sign"}
        await shop.source("sign", mode="a")
        await shop.workload(name="other", reads=(), **named)
        await shop.source("sign", mode="b")

        async def other_reloaded():
            return last_of(await shop.get(name="other")).get("name") == "sign"

        await eventually(other_reloaded, "a later change is seen", timeout=LONG)
        assert (await shop.get())["spec"] == restarted


async def test_with_reload_on_delete_the_variable_of_a_deleted_source_is_removed(shop, reloader):
    await shop.source(mode="a")
    await shop.source("other", mode="a")
    async with station(reloader, shop.namespace, "reloader", ["--reload-on-delete=true"]):
        await shop.workload(**{"configmap.reloader.stakater.com/reload": "other"})
        await shop.source(mode="b")
        await shop.source("other", mode="b")

        async def carries():
            return await shop.variable(wanted="STAKATER_OTHER_CONFIGMAP") is not None

        await eventually(carries, "it carries the variable", timeout=LONG)
        await shop.client.delete(CONFIGMAP, "other", namespace=shop.namespace)

        async def removed():
            return not await carries()

        await eventually(removed, "the variable is gone", timeout=LONG)
        await shop.reloaded(mode="b")


@pytest.mark.parametrize("reload_on_create", [True, False])
async def test_a_source_that_appears_restarts_only_with_reload_on_create(shop, reloader, reload_on_create):
    argv = ["--reload-on-create=true"] if reload_on_create else []
    named = {"configmap.reloader.stakater.com/reload": "app"}
    await shop.source("sign", mode="a")
    async with station(reloader, shop.namespace, "reloader", argv):
        await shop.workload(reads=(), **named)
        await shop.workload(name="other", reads=(), **{"configmap.reloader.stakater.com/reload": "sign"})
        await shop.source("sign", mode="b")  # once it has restarted for this, both workloads are known

        async def signed(value):
            wanted = ReloaderHash()(SourceKind.CONFIGMAP, {"mode": value}, None)
            return await shop.variable(name="other", wanted="STAKATER_SIGN_CONFIGMAP") == wanted

        await eventually(lambda: signed("b"), "workloads are known", timeout=LONG)
        await shop.source(mode="a")
        if reload_on_create:
            await shop.reloaded(mode="a")
        else:
            await shop.source("sign", mode="c")
            await eventually(lambda: signed("c"), "a later change is applied", timeout=LONG)
            assert await shop.variable() is None


# ------------------------------------------------------------------------------------------------------------- webhook
@pytest.fixture
async def receiver():
    """Receives what is sent; refuses the first request, as a receiver that starts does."""
    received = []

    async def receive(request):
        received.append((request.headers["Content-Type"], await request.read()))
        return web.Response(status=503 if len(received) == 1 else 200)

    app = web.Application()
    app.router.add_post("/hook", receive)
    async with TestServer(app) as server:
        yield str(server.make_url("/hook")), received


async def test_with_a_webhook_a_change_is_a_call_and_nothing_restarts(shop, reloader, receiver):
    url, received = receiver
    sent = ("application/json", b'{"webhook":"update successful"}')
    await shop.source(mode="a")
    await shop.workload()
    argv = ["--webhook-url", url, "--reload-on-delete=true"]
    async with station(reloader, shop.namespace, "reloader", argv) as process:
        await shop.source(mode="b")
        await eventually(lambda: received == [sent] * 2, "it is called until it answers", timeout=LONG)
        await shop.source("unused", mode="a")  # without --reload-on-create its appearance is not a change
        await shop.source("unused", mode="b")
        await eventually(lambda: received == [sent] * 3, "a source that no workload uses counts", timeout=LONG)
        await shop.client.delete(CONFIGMAP, "unused", namespace=shop.namespace)
        await eventually(lambda: received == [sent] * 4, "a deletion counts", timeout=LONG)
        assert {informer.kind.plural for informer in process.manager.cluster().caches} == {"configmaps", "secrets"}
    assert await shop.variable() is None
    assert "steersman.dev/applied" not in (await shop.get())["metadata"]["annotations"]
