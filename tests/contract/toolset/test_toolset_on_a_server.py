"""The toolset operator on both API servers: what it writes, what it leaves alone, and what survives."""

from __future__ import annotations

import asyncio

import pytest
import yaml

from steersman.kube.api.patches import PatchType
from steersman.kube.api.types import ConfigMap, Service
from steersman.kube.api.types.discovery import EndpointSlice
from steersman.operators.toolset.api.config import Credential, ExtraKeys
from steersman.operators.toolset.api.crd import TargetConfigMap
from steersman.testing import RequestLog, eventually

NAME = "kubernaut-toolset-config"
PROMETHEUS = {"labels": {"app": "prometheus"}, "ports": [("web", 9090)]}
OVERRIDES = "# mine\nprometheus:\n  url:   http://elsewhere.example:9090\n"


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


@pytest.mark.parametrize("where", ["annotations", "labels"])
async def test_a_foreign_label_or_annotation_on_a_service_writes_nothing(site, where):
    def passes():
        return site.count("controller_runtime_reconcile_time_seconds_count", controller="toolset")

    await site.add("prometheus-server", **PROMETHEUS)
    async with site.running():
        await site.has("prometheus-toolset.yaml")
        await site.has("steersman-known-services", name=f"{NAME}-overrides-backup")
        await site.told("Created")
        await site.told("ServiceAdded")
        with RequestLog(site.client) as log:
            for value in ("morning", "evening", None):
                before = passes()
                patch = {"metadata": {where: {"deploy.example.org/at": value}}}
                await site.client.patch(Service, "prometheus-server", patch, namespace=site.namespace)
                await eventually(lambda before=before: passes() > before, "the change is reconciled", timeout=90)
    assert [write for write in log.writes if "/services/" not in write] == []


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


async def test_bytes_that_a_user_wrote_come_back_too(site):
    async with site.running():
        await site.has("kubernetes-toolset.yaml")
        await site.patch({"binaryData": {"logo.png": "AAEC"}})
        before = await site.target()
        await site.client.delete(ConfigMap, NAME, namespace=site.namespace)

        async def back():
            after = await site.target()
            return after.metadata.uid != before.metadata.uid and (after.binary_data or {}).get("logo.png") == "AAEC"

        await eventually(back, timeout=90)
        await site.has("kubernetes-toolset.yaml")


async def test_overrides_survive_a_deletion_that_was_not_watched(site):
    async with site.running():
        await site.has("kubernetes-toolset.yaml")
        await site.patch({"data": {"overrides.yaml": OVERRIDES}})
        await site.has("overrides.yaml", name=f"{NAME}-overrides-backup")
    await site.client.delete(ConfigMap, NAME, namespace=site.namespace)
    async with site.running():
        data = await site.has("kubernetes-toolset.yaml", "overrides.yaml")
        assert data["overrides.yaml"] == OVERRIDES


async def test_overrides_that_cannot_be_read_keep_their_bytes_and_the_last_good_ones_stay_in_force(site):
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


async def test_an_immutable_configmap_is_reported_and_made_again_only_when_that_is_allowed(site):
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
        rival = TargetConfigMap(metadata=(await site.target()).metadata, data={"kubernetes-toolset.yaml": "taken"})
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


async def test_a_stale_key_that_another_manager_owns_too_is_pruned(site):
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
        engine = manager.runner("toolset")
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
