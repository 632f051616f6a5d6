"""The toolset operator on both API servers: what it writes, what it leaves alone, and what survives."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
import yaml
from prometheus_client import CollectorRegistry

from steersman.kube.errors import NotFound
from steersman.kube.objects import ObjectMeta
from steersman.kube.patches import PatchType
from steersman.kube.types import ConfigMap, Event, Service
from steersman.kube.types.discovery import EndpointSlice
from steersman.operators.toolset.joining import join_files
from steersman.operators.toolset.objects import TargetMap, target_look
from steersman.operators.toolset.types import BACKUP_SUFFIX, Credential, ExtraKeys, HealthConfig, ToolsetSection
from steersman.testing import eventually
from steersman.testing.states import every_state
from steersman.testing.toolsetting import keeping, service

NAME = "kubernaut-toolset-config"
UNPROBED = HealthConfig(enabled=False, empty_after="0s")
PROMETHEUS = {"labels": {"app": "prometheus"}, "ports": [("web", 9090)]}
OVERRIDES = "# mine\nprometheus:\n  url:   http://elsewhere.example:9090\n"


class Site:
    """A namespace with a target in it, and an operator that can be started and stopped."""

    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace
        self.registry = CollectorRegistry()

    @asynccontextmanager
    async def running(self, **section):
        self.registry = CollectorRegistry()
        options = {
            "namespace": self.namespace,
            "namespaces": [self.namespace],
            "health_check": UNPROBED,
            **section,
        }
        async with keeping(self.client, ToolsetSection(**options), registry=self.registry) as manager:
            yield manager

    async def add(self, name, **options):
        return await self.client.create(service(name, namespace=self.namespace, **options))

    async def remove(self, name):
        await self.client.delete(Service, name, namespace=self.namespace)

    async def target(self, name=NAME):
        return target_look(await self.client.get(TargetMap, name, namespace=self.namespace))

    async def data(self, name=NAME):
        return (await self.target(name)).data or {}

    async def has(self, *keys, without=(), name=NAME):
        async def fact():
            data = await self.data(name)
            return data if {*keys} <= data.keys() and not {*without} & data.keys() else None

        return await eventually(fact, f"{keys} are there and {without} are not", timeout=90)

    async def patch(self, patch, name=NAME, manager="somebody"):
        await self.client.patch(ConfigMap, name, patch, namespace=self.namespace, field_manager=manager)

    async def events(self):
        return {one.reason for one in (await self.client.list(Event, namespace=self.namespace)).items}

    async def told(self, reason):
        async def fact():
            return reason in await self.events()

        await eventually(fact, f"an Event {reason}", timeout=90)

    def count(self, name, **labels):
        return self.registry.get_sample_value(name, labels) or 0

    async def is_gone(self, name):
        try:
            await self.target(name)
        except NotFound:
            return True
        return False

    async def counted(self, name, **labels):
        """Counters move after the write they count."""
        await eventually(lambda: self.count(name, **labels) >= 1, f"{name} {labels} is counted", timeout=90)

    def host(self, name, port=9090):
        return f"http://{name}.{self.namespace}.svc.cluster.local:{port}"


@pytest.fixture
def site(cluster, client, namespace):
    return Site(client, namespace)


async def test_services_come_and_go_and_the_configmap_follows(site):
    async with site.running():
        data = await site.has("kubernetes-toolset.yaml", "custom_toolset.yaml")
        assert set(yaml.safe_load(data["custom_toolset.yaml"])["toolsets"]) == {"kubernetes/core", "kubernetes/logs"}
        await site.add("prometheus-server", **PROMETHEUS)
        data = await site.has("prometheus-toolset.yaml")
        assert yaml.safe_load(data["prometheus-toolset.yaml"])["config"]["url"] == site.host("prometheus-server")
        await site.add("second", **PROMETHEUS)
        await site.has("prometheus-toolset.yaml", f"prometheus-{site.namespace}-second-toolset.yaml")
        await site.remove("second")
        await site.remove("prometheus-server")
        await site.has("kubernetes-toolset.yaml", without=["prometheus-toolset.yaml"])
        await site.told("ServiceAdded")
        await site.told("ServiceRemoved")


async def test_an_edited_a_missing_and_an_extra_key_are_put_right_and_other_peoples_stay(site):
    await site.add("prometheus-server", **PROMETHEUS)
    async with site.running():
        good = await site.has("prometheus-toolset.yaml")
        await site.patch(
            {
                "metadata": {"labels": {"team": "sre"}, "annotations": {"note": "mine"}},
                "data": {
                    "prometheus-toolset.yaml": "broken",
                    "kubernetes-toolset.yaml": None,
                    "old-toolset.yaml": "left over",
                    "notes.txt": "mine",
                    "overrides.yaml": OVERRIDES,
                },
            }
        )

        async def right():
            target = await site.target()
            data = target.data
            assert data["prometheus-toolset.yaml"] == good["prometheus-toolset.yaml"]
            assert data["kubernetes-toolset.yaml"] == good["kubernetes-toolset.yaml"]
            assert "old-toolset.yaml" not in data
            assert "elsewhere.example" in data["custom_toolset.yaml"]
            return target

        target = await eventually(right, timeout=90)
        assert target.data["notes.txt"] == "mine"
        assert target.data["overrides.yaml"] == OVERRIDES
        assert target.labels["team"] == "sre"
        assert target.annotations["note"] == "mine"
        assert "overrides.yaml" not in {key for keys in target.owners.values() for key in keys}
        drift = "toolset_configmap_drift_detected_total"
        for kind in ("modified_value", "missing_key", "extra_key"):
            await site.counted(drift, drift_type=kind)


async def test_a_deleted_configmap_comes_back_with_its_overrides(site):
    await site.add("prometheus-server", **PROMETHEUS)
    async with site.running():
        await site.has("prometheus-toolset.yaml")
        await site.patch({"data": {"overrides.yaml": OVERRIDES, "notes.txt": "mine"}})
        await site.has("overrides.yaml", name=f"{NAME}-overrides-backup")
        before = await site.target()
        await site.client.delete(ConfigMap, NAME, namespace=site.namespace)

        async def back():
            after = await site.target()
            return after if after.metadata.uid != before.metadata.uid and "notes.txt" in after.data else None

        after = await eventually(back, timeout=90)
        await site.has("prometheus-toolset.yaml", "overrides.yaml")
        assert after.data["overrides.yaml"] == OVERRIDES
        await site.told("OverridesRestored")
        await site.counted("toolset_configmap_reconcile_total", operation="update", status="success")


async def test_overrides_survive_a_deletion_that_nobody_watched(site):
    async with site.running():
        await site.has("kubernetes-toolset.yaml")
        await site.patch({"data": {"overrides.yaml": OVERRIDES}})
        await site.has("overrides.yaml", name=f"{NAME}-overrides-backup")
    await site.client.delete(ConfigMap, NAME, namespace=site.namespace)
    async with site.running():
        data = await site.has("kubernetes-toolset.yaml", "overrides.yaml")
        assert data["overrides.yaml"] == OVERRIDES


async def test_overrides_that_nobody_can_read_keep_their_bytes_and_the_last_good_ones_stay_in_force(site):
    rows = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))]
    bomb, error = "\n".join(rows), "kubernaut.io/override-error"
    await site.add("prometheus-server", **PROMETHEUS)
    async with site.running():
        await site.has("prometheus-toolset.yaml")
        await site.patch({"data": {"overrides.yaml": OVERRIDES}})
        await site.has("overrides.yaml", name=f"{NAME}-overrides-backup")
        for bad in (bomb, "prometheus: {}\nprometheus: {}\n", "[not, a, map]", "x: ["):
            before = (await site.target()).annotations.get(error)
            await site.patch({"data": {"overrides.yaml": bad}})

            async def told(bad=bad, before=before):
                target = await site.target()
                assert target.data["overrides.yaml"] == bad
                return target.annotations.get(error) not in (None, before)  # each of them is wrong in its own way

            await eventually(told, timeout=90)
        assert "elsewhere.example" in (await site.data())["custom_toolset.yaml"]
        await site.told("OverridesInvalid")
    async with site.running():  # a new process knows the last good ones too
        await site.counted("toolset_override_errors_total")
        assert "elsewhere.example" in (await site.data())["custom_toolset.yaml"]
        await site.patch({"data": {"overrides.yaml": "{}"}})

        async def cleared():
            target = await site.target()
            gone = error not in target.annotations
            return gone and "elsewhere.example" not in target.data["custom_toolset.yaml"]

        await eventually(cleared, timeout=90)


async def test_an_immutable_configmap_is_told_about_and_made_again_only_when_that_is_allowed(site):
    async with site.running():
        await site.has("kubernetes-toolset.yaml")
        await site.patch({"immutable": True, "data": {"overrides.yaml": OVERRIDES}})
        before = (await site.target()).metadata.uid
        await site.add("prometheus-server", **PROMETHEUS)
        await site.told("Immutable")
        assert (await site.target()).metadata.uid == before
    async with site.running(allow_recreate=True):
        data = await site.has("prometheus-toolset.yaml", "overrides.yaml")
        assert data["overrides.yaml"] == OVERRIDES
        assert (await site.target()).metadata.uid != before


async def test_a_key_that_another_manager_takes_is_taken_back(site):
    async with site.running():
        await site.has("kubernetes-toolset.yaml")
        rival = TargetMap(metadata=(await site.target()).metadata, data={"kubernetes-toolset.yaml": "taken"})
        rival.metadata.resource_version = ""
        await site.client.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": NAME, "namespace": site.namespace},
                "data": rival.data,
            },
            field_manager="rival",
            force=True,
        )

        async def back():
            target = await site.target()
            ours = target.owners.get("steersman-toolset", [])
            return target.data["kubernetes-toolset.yaml"] != "taken" and "kubernetes-toolset.yaml" in ours

        await eventually(back, timeout=90)
        await site.counted("toolset_configmap_drift_detected_total", drift_type="ownership")


async def test_a_stale_key_that_somebody_else_owns_too_is_pruned(site):
    await site.add("prometheus-server", **PROMETHEUS)
    async with site.running():
        data = await site.has("prometheus-toolset.yaml")
        await site.client.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": NAME, "namespace": site.namespace},
                "data": {"prometheus-toolset.yaml": data["prometheus-toolset.yaml"]},
            },
            field_manager="rival",
        )
        await site.remove("prometheus-server")
        await site.has("kubernetes-toolset.yaml", without=["prometheus-toolset.yaml"])


@pytest.mark.parametrize(("policy", "left"), [("prune-all", set()), ("keep", {"old-toolset.yaml", "notes.txt"})])
async def test_extra_keys_go_or_stay_as_configured_but_overrides_always_stay(site, policy, left):
    await site.client.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": site.namespace},
            "data": {"old-toolset.yaml": "x", "notes.txt": "y", "overrides.yaml": OVERRIDES},
        }
    )
    async with site.running(extra_keys=ExtraKeys(policy)):
        wanted = {"kubernetes-toolset.yaml", "custom_toolset.yaml", "overrides.yaml"} | left

        async def settled():
            return set(await site.data()) == wanted

        await eventually(settled, timeout=90)
        assert (await site.data())["overrides.yaml"] == OVERRIDES


async def test_endpoints_decide_without_a_request_to_the_service(site):
    await site.add("prometheus-server", **PROMETHEUS)
    piece = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "prometheus-1",
            "namespace": site.namespace,
            "labels": {"kubernetes.io/service-name": "prometheus-server"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": True}}],
        "ports": [{"port": 9090}],
    }
    await site.client.create(piece)
    async with site.running():
        await site.has("prometheus-toolset.yaml")
        for ready in (False, True):
            change = {"endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": ready}}]}
            await site.client.patch(
                EndpointSlice, "prometheus-1", change, type=PatchType.MERGE, namespace=site.namespace
            )
            if ready:
                await site.has("prometheus-toolset.yaml")
            else:
                await site.has("kubernetes-toolset.yaml", without=["prometheus-toolset.yaml"])


async def test_a_configmap_splits_grows_and_joins_again_and_no_key_is_ever_missing(site):
    names = [f"prometheus-{number}" for number in range(8)]
    for name in names[:2]:
        await site.add(name, **PROMETHEUS)

    def keys_of(state):
        found = {key for one in state.values() for key in one.data or ()}
        return {key for key in found if key.startswith("prometheus-") and key.endswith("-toolset.yaml")}

    async def until(passing, count, *, split):
        """Read states until there are so many toolsets; meanwhile those of services that stay are in all of them."""
        async for everything in passing:
            ours = {NAME, *(f"{NAME}-{number}" for number in range(1, 10))}
            state = {name: one for name, one in everything.items() if name in ours}
            keys, base = keys_of(state), state[NAME]
            assert stay <= keys, stay - keys
            parts = yaml.safe_load(base.data["index.yaml"])["parts"] if "index.yaml" in base.data else []
            for part in parts:
                assert {*part["keys"]} <= (state[f"{NAME}-{part['part']}"].data or {}).keys()
            if len(keys) == count and bool(parts) == split and len(state) == 1 + len(parts):
                return [base, *(state[f"{NAME}-{part['part']}"] for part in parts)]
        raise AssertionError("the watch ended")

    async with site.running(max_bytes=3000):
        stay = {*await site.has("prometheus-toolset.yaml")} - {"kubernetes-toolset.yaml", "custom_toolset.yaml"}
        assert len(stay) == 2
        async with every_state(site.client, ConfigMap, namespace=site.namespace) as passing:
            for name in names[2:]:
                await site.add(name, **PROMETHEUS)
            files = [one.data["custom_toolset.yaml"] for one in await until(passing, 8, split=True)]
            joined = yaml.safe_load(join_files(files))
            assert len(joined["toolsets"]["prometheus/metrics"]["config"]["instances"]) == 8
            await site.told("Split")
            for name in names[1:]:
                await site.remove(name)
            stay = {"prometheus-toolset.yaml"}
            await until(passing, 1, split=False)


async def test_configmaps_that_only_have_the_names_of_a_part_and_a_copy_stay_as_they_are(site):
    names = [f"{NAME}-1", f"{NAME}{BACKUP_SUFFIX}"]
    for name in names:
        meta = ObjectMeta(name=name, namespace=site.namespace)
        await site.client.create(ConfigMap(metadata=meta, data={"mine": "1"}), field_manager="somebody")
    before = [await site.target(name) for name in names]
    async with site.running():
        await site.has("kubernetes-toolset.yaml")
        await site.told("NameTaken")
    assert [await site.target(name) for name in names] == before


async def test_a_name_that_somebody_takes_before_a_part_needs_it_is_left_to_them(site):
    names = [f"prometheus-{number}" for number in range(8)]
    for name in names[:2]:
        await site.add(name, **PROMETHEUS)
    async with site.running(max_bytes=3000):
        await site.has("prometheus-toolset.yaml")  # it has looked for parts, and found none
        meta = ObjectMeta(name=f"{NAME}-1", namespace=site.namespace)
        await site.client.create(ConfigMap(metadata=meta, data={"mine": "1"}), field_manager="somebody")
        before = await site.target(f"{NAME}-1")
        for name in names[2:]:
            await site.add(name, **PROMETHEUS)

        async def complete():
            parts = [one["part"] for one in yaml.safe_load((await site.data())["index.yaml"])["parts"]]
            keys = {key for part in parts for key in await site.data(f"{NAME}-{part}")}
            assert len([key for key in keys if key.startswith("prometheus-")]) == 8, keys
            return parts

        async def split():
            return "index.yaml" in await site.data() and await complete()

        parts = await eventually(split, "all of them are in other parts", timeout=90)
        assert 1 not in parts
        await site.told("NameTaken")
    async with site.running(max_bytes=3000):  # a new process finds its parts behind the foreign one
        await site.counted("toolset_configmap_reconcile_total", operation="noop", status="success")
        for name in names[1:]:
            await site.remove(name)
        for part in parts:
            await eventually(lambda part=part: site.is_gone(f"{NAME}-{part}"), "the part is gone", timeout=90)
    assert await site.target(f"{NAME}-1") == before


async def test_names_and_keys_of_the_greatest_length_work(site):
    longest = "n" * (253 - len(BACKUP_SUFFIX))
    asked = {"toolset": "true", "toolset-type": "t" * 63, "toolset-name": "i" * 253}
    for name in ("s" * 63, "r" * 63):
        await site.add(name, annotations=asked, ports=[80])
    key = "k" * 248 + ".yaml"
    meta = ObjectMeta(name=longest, namespace=site.namespace)
    await site.client.create(ConfigMap(metadata=meta, data={key: "mine", "overrides.yaml": f"{'o' * 253}: {{}}\n"}))
    async with site.running(name=longest, max_bytes=1500):

        async def split():
            data = await site.data(longest)
            parts = yaml.safe_load(data["index.yaml"])["parts"] if "index.yaml" in data else []
            keys = {one for part in parts for one in await site.data(f"{longest}-{part['part']}")}
            found = {one for one in keys if one.startswith("t" * 63)}
            return data if len(found) == 2 else None

        data = await eventually(split, "both have a key each", timeout=90)
        assert data[key] == "mine"
        await site.told("UnmappableOverride")
        await site.has(key, name=f"{longest}{BACKUP_SUFFIX}")


async def test_a_paused_configmap_is_left_alone_and_not_recreated(site):
    async with site.running():
        await site.has("kubernetes-toolset.yaml")
        await site.patch({"metadata": {"annotations": {"kubernaut.io/paused": "true"}}})
        await site.add("prometheus-server", **PROMETHEUS)
        await site.told("Paused")
        assert "prometheus-toolset.yaml" not in await site.data()
        await site.patch({"metadata": {"annotations": {"kubernaut.io/paused": None}}})
        await site.has("prometheus-toolset.yaml")


async def test_nothing_is_written_when_nothing_differs(site):
    await site.add("prometheus-server", **PROMETHEUS)
    async with site.running():
        await site.has("prometheus-toolset.yaml")
        revision = (await site.target()).metadata.resource_version
    async with site.running() as manager:
        engine = manager.engine("toolset")
        await eventually(lambda: engine.tally.results["requeue_after"] >= 1, timeout=90)
        assert (await site.target()).metadata.resource_version == revision
        assert site.count("toolset_configmap_reconcile_total", operation="noop", status="success") >= 1


async def test_a_rogue_grafana_gets_no_token(site):
    await site.add("grafana", labels={"app": "grafana"}, ports=[3000])
    credentials = {"grafana": Credential(env="GRAFANA_API_KEY")}
    async with site.running(credentials=credentials):
        data = await site.has("grafana-toolset.yaml")
        assert "GRAFANA_API_KEY" not in "".join(data.values())
    async with site.running(credentials=credentials, trusted_namespaces=[site.namespace]):

        async def trusted():
            data = await site.data()
            return "{{ env.GRAFANA_API_KEY }}" in data["custom_toolset.yaml"]

        await eventually(trusted, timeout=90)


async def test_an_edit_of_the_overrides_in_the_middle_of_a_write_is_never_lost(site):
    await site.add("prometheus-server", **PROMETHEUS)
    async with site.running():
        await site.has("prometheus-toolset.yaml")

        async def edit():
            for number in range(20):
                await site.patch({"data": {"overrides.yaml": f"prometheus: {{url: 'http://n{number}.example:1'}}\n"}})

        async def churn():
            for number in range(5):
                await site.add(f"loki-{number}", labels={"app": "loki"}, ports=[3100])

        await asyncio.gather(edit(), churn())

        async def settled():
            data = await site.data()
            return "n19.example" in data["overrides.yaml"] and "n19.example" in data["custom_toolset.yaml"]

        await eventually(settled, timeout=90)
        await site.has(f"loki-{site.namespace}-loki-4-toolset.yaml")
