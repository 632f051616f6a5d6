"""Policies of the reload operator on both API servers: order, limits, failures, approvals, windows, and their kinds.

No controller rolls Deployments out here: the tests write their status themselves, so that each state stays.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from steersman.crd import crd_manifest
from steersman.kube.api.errors import NotFound
from steersman.kube.api.gvk import Kind
from steersman.kube.api.patches import PatchType
from steersman.kube.api.types import Event
from steersman.operators.reload.api.config import Guard, KindConfig, ReloadOptions, RestartBudget, Window, WorkloadId
from steersman.operators.reload.api.policy import ClusterReloadPolicy, ReloadPolicy
from steersman.operators.reload.api.windows import parse_windows
from steersman.operators.reload.controllers.reconciler import SharedContext
from steersman.operators.reload.controllers.setup import controllers
from steersman.operators.reload.inspect.live_status import view_of
from steersman.operators.reload.planning.hooks import HookRunner
from steersman.testing import eventually, running

DEPLOYMENT = Kind(group="apps", version="v1", kind="Deployment", plural="deployments")
CONFIGMAP = Kind(version="v1", kind="ConfigMap", plural="configmaps")
AT_ONCE = Window(quiet=timedelta(0), limit=timedelta(0))
LIMIT = 90  # seconds that a fact may take on a busy machine
ENV = {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "app", "key": "mode"}}}


class Shop:
    """Deployments that share one ConfigMap, and an operator."""

    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace
        self.coordinator = None

    def running(self, *, served=(), everywhere=False, judge=None, **options):
        shared = SharedContext(hook=judge)
        self.coordinator = shared.coordinator
        where = None if everywhere else frozenset({self.namespace})
        rows = (KindConfig(kind="Deployment"),)
        made = ReloadOptions(
            **{"window": AT_ONCE, "budget": RestartBudget(restarts=0), "kinds": rows, "namespaces": where, **options}
        )
        return running(self.client, *controllers(made, served=served, registry=CollectorRegistry(), shared=shared))

    async def config(self, mode, **annotations):
        meta = {"name": "app", "namespace": self.namespace, "annotations": annotations}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"mode": mode}}
        await self.client.apply(body, field_manager="test", force=True)

    async def deploy(self, name, *, volumes=(), **annotations):
        labels = {"app": name, "shop": self.namespace}
        pod = {"containers": [{"name": "main", "image": "web:1", "env": [ENV]}], "volumes": list(volumes)}
        spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
        marks = {"steersman.dev/reload": "auto", **annotations}
        meta = {"name": name, "namespace": self.namespace, "annotations": marks, "labels": labels}
        await self.client.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})

    async def annotate(self, name, **annotations):
        patch = {"metadata": {"annotations": annotations}}
        await self.client.patch(DEPLOYMENT, name, patch, type=PatchType.MERGE, namespace=self.namespace)

    async def roll(self, name, *, available=True):
        """What the controller of Deployments would write at the end."""
        found = await self.client.get(DEPLOYMENT, name, namespace=self.namespace)
        counts = {
            "replicas": 1,
            "updatedReplicas": 1,
            "readyReplicas": int(available),
            "availableReplicas": int(available),
        }
        reason = "NewReplicaSetAvailable" if available else "ProgressDeadlineExceeded"
        conditions = [{"type": "Progressing", "status": str(available), "reason": reason}]
        status = {"observedGeneration": found["metadata"]["generation"], **counts, "conditions": conditions}
        patch = {"status": status}
        await self.client.patch(
            DEPLOYMENT, name, patch, type=PatchType.MERGE, namespace=self.namespace, subresource="status"
        )

    async def seeded(self, *names):
        for name in names:
            await eventually(lambda name=name: self._has(name, "steersman.dev/applied"), timeout=LIMIT)

    async def _has(self, name, mark):
        found = await self.client.get(DEPLOYMENT, name, namespace=self.namespace)
        return mark in found["metadata"]["annotations"]

    async def restarted(self):
        """The names of those that were restarted."""
        listing = await self.client.list(DEPLOYMENT, namespace=self.namespace)
        marked = [
            one["metadata"]["name"]
            for one in listing.items
            if "steersman.dev/restarted-at" in (one["spec"]["template"]["metadata"].get("annotations") or {})
        ]
        return sorted(marked)

    async def become(self, *names):
        async def there():
            assert await self.restarted() == sorted(names)
            return True

        await eventually(there, f"restarted: {names}", timeout=LIMIT)

    async def waits(self, name, gate):
        async def there():
            mine = [(me, one) for me, one in self.coordinator.states() if me.namespace == self.namespace]
            standings = {me.name: standing for me, standing in mine}
            assert name in standings, "it has not been looked at"
            assert standings[name].gate == gate, standings[name]
            return True

        await eventually(there, f"{name} waits for {gate}", timeout=LIMIT)

    async def told(self, reason):
        async def there():
            listing = await self.client.list(Event, namespace=self.namespace)
            return [event.message for event in listing.items if event.reason == reason]

        return await eventually(there, reason, timeout=LIMIT)


@pytest.fixture
def shop(client, cluster, namespace):
    return Shop(client, namespace)


async def test_waves_follow_each_other_also_under_a_new_leader(shop):
    await shop.config("a")
    for wave, name in enumerate(("db", "api", "web")):
        await shop.deploy(name, **{"steersman.dev/wave": str(wave)})
    async with shop.running():
        await shop.seeded("db", "api", "web")
        await shop.config("b")
        await shop.become("db")
        await shop.waits("api", "wave")
    async with shop.running():
        await shop.waits("web", "wave")
        assert await shop.restarted() == ["db"]
        await shop.roll("db")
        await shop.become("api", "db")
        await shop.waits("web", "wave")
        await shop.roll("api")
        await shop.become("api", "db", "web")


async def test_dependencies_and_limits_hold_restarts_back_until_others_are_available(shop):
    await shop.config("a")
    await shop.deploy("db")
    await shop.deploy("app", **{"steersman.dev/depends-on": "deployment/db"})
    await shop.deploy("web", **{"steersman.dev/wave": "1"})
    async with shop.running(max_concurrent=1):
        await shop.seeded("db", "app", "web")
        await shop.config("b")
        await shop.become("db")
        await shop.waits("app", "depends-on")
        await shop.roll("db")
        await shop.become("app", "db")
        await shop.roll("app")
        await shop.become("app", "db", "web")


async def test_the_jobs_of_a_cronjob_and_those_with_junk_on_them_hold_up_no_wave(shop):
    await shop.config("a")
    await shop.deploy("web", **{"steersman.dev/wave": "1"})
    pod = {"containers": [{"name": "main", "image": "sums:1", "env": [ENV]}], "restartPolicy": "Never"}
    spec = {"template": {"spec": pod}}
    batch = {"apiVersion": "batch/v1", "metadata": {"name": "nightly", "namespace": shop.namespace}}
    shape = {"schedule": "0 2 * * *", "suspend": True, "jobTemplate": {"spec": spec}}
    nightly = await shop.client.create({**batch, "kind": "CronJob", "spec": shape})
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "controller": True}
    owned = {"ownerReferences": [{**owner, "uid": nightly["metadata"]["uid"]}]}
    junk = {"annotations": {"steersman.dev/recreates": "[junk"}}
    for name, marks in {"owned": owned, "junk": junk}.items():
        meta = {"name": name, "namespace": shop.namespace, **marks}
        await shop.client.create({**batch, "kind": "Job", "metadata": meta, "spec": spec})
    async with shop.running(kinds=(KindConfig(kind="Deployment"), KindConfig(kind="Job"))):
        await shop.seeded("web")
        await shop.config("b")
        await shop.become("web")


@pytest.fixture
def thinking():
    """A hook that thinks until it is let go, and how often it was asked."""
    let_go, asked = threading.Event(), []

    def decide(change):
        asked.append(change.workload.name)
        assert let_go.wait(LIMIT)

    yield SimpleNamespace(judge=HookRunner(decide, timeout=LIMIT), let_go=let_go, asked=asked)
    let_go.set()


async def test_a_limit_is_kept_while_a_hook_thinks(shop, thinking):
    await shop.config("a")
    names = ("a", "b", "c", "d")
    for name in names:
        await shop.deploy(name)
    async with shop.running(max_concurrent=1, judge=thinking.judge):
        await shop.seeded(*names)
        await shop.config("b")
        await eventually(lambda: thinking.asked, timeout=LIMIT)
        thinking.let_go.set()
        (first,) = await eventually(shop.restarted, timeout=LIMIT)
        for name in set(names) - {first}:
            await shop.waits(name, "concurrency")
        assert await shop.restarted() == [first]


async def test_a_freeze_of_a_source_while_a_hook_thinks_holds(shop, thinking):
    await shop.config("a")
    await shop.deploy("web")
    async with shop.running(judge=thinking.judge):
        await shop.seeded("web")
        await shop.config("b")
        await eventually(lambda: thinking.asked, timeout=LIMIT)
        web = WorkloadId("Deployment", shop.namespace, "web")
        before = shop.coordinator.mark_of(web)
        await shop.config("b", **{"steersman.dev/freeze": "true"})
        await eventually(lambda: shop.coordinator.mark_of(web) != before, "the operator has heard of it", timeout=LIMIT)
        thinking.let_go.set()
        await shop.waits("web", "freeze")
        assert await shop.restarted() == []


async def test_a_failed_rollout_is_reported_and_halts_the_others_until_it_recovers(shop):
    await shop.config("a")
    for name in ("a", "b"):
        await shop.deploy(name)
    async with shop.running(max_concurrent=1):
        await shop.seeded("a", "b")
        await shop.config("b")
        (first,) = await eventually(shop.restarted, timeout=LIMIT)
        other = "b" if first == "a" else "a"
        await shop.roll(first, available=False)
        (failed,) = await shop.told("RolloutFailed")
        assert failed == "the restart for configmap/app#mode failed: its progress deadline passed"
        (halted,) = await shop.told("RestartHalted")
        assert f"deployment/{first} failed for the same change" in halted
        await shop.waits(other, "halt")
        await shop.roll(first)
        await shop.become("a", "b")


async def test_a_change_that_affects_too_many_waits_for_its_digest_to_be_approved(shop):
    await shop.config("a")
    for name in ("a", "b", "c"):
        await shop.deploy(name)
    async with shop.running(guard=Guard(workloads=2)):
        await shop.seeded("a", "b", "c")
        await shop.config("b")
        for name in ("a", "b", "c"):
            await shop.waits(name, "approval")
        (approval,) = view_of(shop.coordinator, 0.0).approvals
        assert await shop.restarted() == []
        (message, *_) = await shop.told("RestartNeedsApproval")
        assert f"steersman.dev/approve: {approval.digest}" in message
        await shop.config("b", **{"steersman.dev/approve": approval.digest})
        await shop.become("a", "b", "c")


async def test_outside_of_its_windows_a_change_waits_with_a_due_time_and_an_urgent_one_does_not(shop):
    await shop.config("a")
    await shop.deploy("web", **{"steersman.dev/windows": "0 0 29 2 * for 1m in Europe/Berlin"})
    async with shop.running():
        await shop.seeded("web")
        await shop.config("b")
        await shop.waits("web", "schedule")
        (pending,) = view_of(shop.coordinator, 0.0).pending
        assert pending.due > 1_800_000_000
        await shop.told("RestartScheduled")
        assert await shop.restarted() == []
        await shop.config("c", **{"steersman.dev/urgent": "true"})
        await shop.become("web")


async def test_windows_of_the_configuration_that_are_open_hold_nothing_back(shop):
    await shop.config("a")
    await shop.deploy("web")
    async with shop.running(maintenance_windows=parse_windows("* * * * * for 2m")):
        await shop.seeded("web")
        await shop.config("b")
        await shop.become("web")


# --------------------------------------------------------------------------------------------------------- policy kinds
SERVED = (ReloadPolicy.KIND, ClusterReloadPolicy.KIND)


@pytest.fixture
async def installed(client, cluster):
    for kind in (ReloadPolicy, ClusterReloadPolicy):
        await client.apply(crd_manifest(kind), field_manager="test", force=True)

        async def answers(kind=kind):
            await client.list(kind)
            return True

        await eventually(answers, f"{kind.__name__} is served", timeout=LIMIT)


def policy(shop, name, *, cluster=False, **spec):
    kind = "ClusterReloadPolicy" if cluster else "ReloadPolicy"
    meta = {"name": name} if cluster else {"name": name, "namespace": shop.namespace}
    return {"apiVersion": "steersman.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}


async def says(shop, name, kind, status, *, reason, cls=ReloadPolicy):
    """The message of a condition of a policy, once it is there."""

    async def there():
        namespace = None if cls is ClusterReloadPolicy else shop.namespace
        found = await shop.client.get(cls, name, namespace=namespace)
        condition = next((condition for condition in found.status.conditions or () if condition.type == kind), None)
        assert condition is not None, "nobody has said anything yet"
        assert (condition.status, condition.reason) == (status, reason), condition
        assert found.status.observed_generation == found.metadata.generation
        return condition, found.status.workloads

    return await eventually(there, f"{name} says {kind}={status}", timeout=LIMIT)


async def test_a_policy_holds_for_those_it_selects_and_lets_go_when_it_changes(shop, installed):
    await shop.config("a")
    for name in ("web", "job"):
        await shop.deploy(name)
    await shop.client.create(policy(shop, "calm", selector={"matchLabels": {"app": "web"}}, freeze="true"))
    async with shop.running(served=SERVED):
        await shop.seeded("web", "job")
        _, selected = await says(shop, "calm", "Accepted", "True", reason="Accepted")
        assert selected == 1
        await shop.config("b")
        await shop.become("job")
        await shop.waits("web", "freeze")
        await shop.client.apply(policy(shop, "calm", freeze="false"), field_manager="test", force=True)
        await shop.become("job", "web")
        _, selected = await says(shop, "calm", "Accepted", "True", reason="Accepted")
        assert selected in (1, 2)  # 2 where the new owner of the field dropped the selector


async def test_what_is_wrong_with_a_policy_is_reported_on_it_and_the_rest_counts(shop, installed):
    await shop.config("a")
    await shop.deploy("web")
    night = {"cron": "0 2 * * *", "duration": "1h", "timeZone": "Europe/Atlantis"}
    await shop.client.create(policy(shop, "broken", windows=[night], quietPeriod="0s"))
    await shop.client.create(policy(shop, "circular", dependsOn=["deployment/web"]))
    async with shop.running(served=SERVED, window=Window(quiet=timedelta(hours=1), limit=timedelta(hours=1))):
        await shop.seeded("web")
        condition, _ = await says(shop, "broken", "Accepted", "False", reason="InvalidField")
        assert condition.message.startswith('spec.windows[0]: "Europe/Atlantis" is not a time zone')
        condition, _ = await says(shop, "circular", "Accepted", "False", reason="SelfReference")
        assert condition.message.startswith("spec.dependsOn[0]: the policy selects deployment/web itself")
        condition, _ = await says(shop, "broken", "Overlapping", "True", reason="SharedWorkloads")
        assert "circular" in condition.message
        await shop.config("b")
        await shop.waits("web", "schedule")  # a window that cannot be read stays shut


async def test_the_policy_of_a_cluster_counts_where_no_nearer_setting_exists(shop, installed):
    await shop.config("a")
    for name in ("web", "own"):
        await shop.deploy(
            name, **({"steersman.dev/max-delay": "0s", "steersman.dev/quiet-period": "0s"} if name == "own" else {})
        )
    spec = {"selector": {"matchLabels": {"shop": shop.namespace}}, "quietPeriod": "10h", "maxDelay": "10h"}
    name = f"slow-{shop.namespace}"
    await shop.client.create(policy(shop, name, cluster=True, **spec))
    try:
        async with shop.running(served=SERVED, everywhere=True):
            await shop.seeded("web", "own")
            _, selected = await says(shop, name, "Accepted", "True", reason="Accepted", cls=ClusterReloadPolicy)
            assert selected == 2
            await shop.config("b")
            await shop.become("own")
            await shop.waits("web", "window")
            await shop.client.delete(ClusterReloadPolicy, name)
            await shop.become("own", "web")
    finally:
        with suppress(NotFound):
            await shop.client.delete(ClusterReloadPolicy, name)


LAYOUTS = ('{"x": 1, "y": 2}', '{"y":2, "x":1}', '{"x":1,"y":2}')
AS_JSON = {"steersman.dev/compare": "mode=json"}


async def compared(shop, name, *rules, restarts):
    """The state says that its source is compared by these rules, after so many restarts."""

    async def there():
        found = await shop.client.get(DEPLOYMENT, name, namespace=shop.namespace)
        state = msgspec.json.decode(found["metadata"]["annotations"]["steersman.dev/applied"])
        assert (tuple(state.get("w", ())), len(state.get("h", ()))) == (rules, restarts), state
        return True

    await eventually(there, f"{name} is compared by {rules}, {restarts} restarts", timeout=LIMIT)


async def test_a_rule_on_the_source_says_how_it_is_compared_and_no_rule_restarts_anything(shop, installed):
    await shop.config(LAYOUTS[0])
    await shop.deploy("web")
    async with shop.running(served=SERVED):
        await shop.seeded("web")
        await shop.config(LAYOUTS[0], **AS_JSON)
        await compared(shop, "web", "mode=json", restarts=0)
        await shop.config(LAYOUTS[1], **AS_JSON)
        await shop.config('{"x": 1, "y": 3}', **AS_JSON)
        await compared(shop, "web", "mode=json", restarts=1)
        await shop.config('{"x": 1, "y": 3}')
        await compared(shop, "web", restarts=1)
        await shop.config('{"x":1, "y":3}')
        await compared(shop, "web", restarts=2)


async def test_a_change_behind_a_new_rule_is_found_by_the_next_process_and_the_rule_alone_is_none(shop, installed):
    await shop.config(LAYOUTS[0])
    await shop.deploy("web")
    async with shop.running(served=SERVED):
        await shop.seeded("web")
    await shop.config(LAYOUTS[0], **AS_JSON)
    async with shop.running(served=SERVED):
        await compared(shop, "web", "mode=json", restarts=0)
    await shop.config('{"x": 7}')
    async with shop.running(served=SERVED):
        await compared(shop, "web", restarts=1)


async def test_values_and_rules_that_change_at_once_while_processes_die_restart_once_per_value(shop, installed):
    await shop.config('{"v": 0}')
    await shop.deploy("web")
    forms = ["json", "bytes", "yaml", "properties", "json", "yaml"]
    rule = {}
    for number, form in enumerate(forms, 1):
        before, rule = rule, {"steersman.dev/compare": f"mode={form}"}
        async with shop.running(served=SERVED):
            await shop.seeded("web")
            text = f'{{"v": {number}}}'
            if number % 2:  # the rule first, and then the value
                await shop.config(f'{{"v": {number - 1}}}', **rule)
            else:
                await shop.config(text, **before)
            await shop.config(text, **rule)
            if number % 3:  # every third one dies before it has restarted anything
                await compared(shop, "web", f"mode={form}", restarts=number)
        async with shop.running(served=SERVED):
            await compared(shop, "web", f"mode={form}", restarts=number)


async def test_a_receiver_that_does_not_exist_is_reported_on_the_policy(shop, installed):
    await shop.client.create(policy(shop, "deaf", notify=["nobody"]))
    async with shop.running(served=SERVED):
        condition, _ = await says(shop, "deaf", "Accepted", "False", reason="InvalidField")
        assert condition.message.startswith('spec.notify[0]: unknown receiver "nobody"')


# ------------------------------------------------------------------------------------- the secrets store CSI driver
MOUNTED = Kind(
    group="secrets-store.csi.x-k8s.io",
    version="v1",
    kind="SecretProviderClassPodStatus",
    plural="secretproviderclasspodstatuses",
)


@pytest.fixture
async def driver(client, cluster):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"kind": MOUNTED.kind, "plural": MOUNTED.plural, "singular": "secretproviderclasspodstatus"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": MOUNTED.group, "names": names, "scope": "Namespaced", "versions": [version]}
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
    crd["metadata"] = {"name": f"{MOUNTED.plural}.{MOUNTED.group}"}
    await client.apply(crd, field_manager="test", force=True)

    async def answers():
        await client.list(MOUNTED)
        return True

    await eventually(answers, "the driver's kind is served", timeout=LIMIT)


async def test_a_rotated_secret_of_a_provider_restarts_once_and_its_first_mount_does_not(shop, driver):
    async def mount(pod, version):
        said = {"secretProviderClassName": "vault", "podName": pod, "objects": [{"id": "db", "version": version}]}
        meta = {"name": f"{pod}-vault", "namespace": shop.namespace}
        body = {"apiVersion": "secrets-store.csi.x-k8s.io/v1", "kind": MOUNTED.kind, "metadata": meta, "status": said}
        await shop.client.apply(body, field_manager="test", force=True)

    await shop.config("a")
    csi = {"driver": "secrets-store.csi.k8s.io", "volumeAttributes": {"secretProviderClass": "vault"}}
    volume = {"name": "v", "csi": csi}
    await shop.deploy("web", volumes=[volume])
    async with shop.running(served=(MOUNTED,)):
        await shop.seeded("web")
        await mount("web-1", "1")
        await mount("web-2", "1")

        async def known():
            found = await shop.client.get(DEPLOYMENT, "web", namespace=shop.namespace)
            return "secretproviderclass/vault" in found["metadata"]["annotations"]["steersman.dev/applied"]

        await eventually(known, "what is mounted is written down", timeout=LIMIT)
        assert await shop.restarted() == []
        await mount("web-1", "2")
        await shop.become("web")
        await mount("web-2", "2")
        await mount("web-3", "2")
        await shop.config("b")

        async def both():
            found = [standing for me, standing in shop.coordinator.states() if me.name == "web"]
            return bool(found) and len(found[0].history) == 2 and found[0].history

        history = await eventually(both, "restarted for the ConfigMap", timeout=LIMIT)
        assert [past.cause for past in history] == ["secretproviderclass/vault#db", "configmap/app#mode"]
