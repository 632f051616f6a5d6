"""ToolsetConfig: every field has an effect, the status is bounded, and nobody reaches beyond their namespace."""

from __future__ import annotations

import pytest
import yaml

from steersman.crd import crd_manifest
from steersman.kube.api.errors import NotFound
from steersman.kube.api.types import ConfigMap, Event
from steersman.operators.toolset.api.config import HealthConfig, ToolsetSection
from steersman.operators.toolset.api.crd import MAX_STATUS_SERVICES, ToolsetConfig
from steersman.testing import eventually
from tests.support.toolset.services import running_toolset, service


@pytest.fixture
async def defined(cluster, client):
    """The kind, on this server."""
    await client.apply(crd_manifest(ToolsetConfig), field_manager="test", force=True)

    async def served():
        await client.list(ToolsetConfig)
        return True

    await eventually(served, timeout=90)


def config(name, namespace, **spec):
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "steersman.dev/v1alpha1", "kind": "ToolsetConfig", "metadata": meta, "spec": spec}


async def test_a_toolsetconfig_keeps_a_configmap_of_its_own_and_reports_its_state(defined, client, namespace):
    section = ToolsetSection(name="", namespaces=[namespace], health_check=HealthConfig(enabled=False))
    served = frozenset({ToolsetConfig.KIND})
    labels = {"app": "prometheus", "team": "sre"}
    await client.create(service("prometheus", namespace=namespace, labels=labels, ports=[9090]))
    await client.create(service("grafana", namespace=namespace, labels={"app": "grafana"}, ports=[3000]))
    await client.create(
        config(
            "mine",
            namespace,
            configMap={"name": "my-tools"},
            serviceTypes={"grafana": {"enabled": False}, "prometheus": {"labels": {"team": "sre"}}},
            healthCheck={"enabled": False},
        )
    )
    await client.create(config("second", namespace, configMap={"name": "my-tools"}))
    await client.create(config("thief", namespace, configMap={"name": "x", "namespace": "default"}))
    await client.create(config("wrong", namespace, configMap={"name": "w"}, discoveryInterval="1s"))
    async with running_toolset(client, section, served=served):

        async def written():
            return (await client.get(ConfigMap, "my-tools", namespace=namespace)).data

        data = await eventually(written, timeout=90)
        assert set(data) == {"kubernetes-toolset.yaml", "prometheus-toolset.yaml", "custom_toolset.yaml"}
        assert yaml.safe_load(data["prometheus-toolset.yaml"])["enabled"] is True

        async def status(name, phase, reason):
            async def fact():
                found = (await client.get(ToolsetConfig, name, namespace=namespace)).status
                return found.phase == phase and found.conditions[0].reason == reason and found

            return await eventually(fact, f"{name} is {phase}", timeout=90)

        good = await status("mine", "Ready", "Ready")
        assert (good.toolsets, len(good.services), good.omitted) == (2, 1, 0)
        assert len(good.services) <= MAX_STATUS_SERVICES
        await status("second", "Refused", "AlreadyKept")
        await status("thief", "Refused", "UntrustedNamespace")
        await status("wrong", "Refused", "InvalidSpec")
        with pytest.raises(NotFound):
            await client.get(ConfigMap, "x", namespace="default")
        await client.patch(
            ToolsetConfig, "mine", {"spec": {"serviceTypes": {"grafana": {"enabled": True}}}}, namespace=namespace
        )

        async def follows():
            return "grafana-toolset.yaml" in await written()

        await eventually(follows, timeout=90)


async def test_a_toolsetconfig_sees_other_namespaces_only_when_its_own_is_trusted(defined, client, namespace):
    other = f"{namespace}-b"
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    await client.create(service("loki", namespace=namespace, labels={"app": "loki"}, ports=[3100]))
    await client.create(service("grafana", namespace=other, labels={"app": "grafana"}, ports=[3000]))
    await client.create(config("nosy", namespace, configMap={"name": "nosy"}, namespaces=["*"]))
    await client.create(config("bold", namespace, configMap={"name": "bold"}, namespaces=[other]))
    served = frozenset({ToolsetConfig.KIND})

    def section(**more):
        health = HealthConfig(enabled=False)
        return ToolsetSection(name="", namespaces=[namespace, other], health_check=health, **more)

    async def holds(name, *types):
        async def fact():
            data = (await client.get(ConfigMap, name, namespace=namespace)).data or {}
            return {*types} == {key.partition("-")[0] for key in data if key.endswith("-toolset.yaml")}

        await eventually(fact, f"{name} has {types}", timeout=90)

    async with running_toolset(client, section(), served=served):
        await holds("nosy", "kubernetes", "loki")

        async def refused():
            found = (await client.get(ToolsetConfig, "bold", namespace=namespace)).status
            return found.phase == "Refused" and found.conditions[0].reason == "UntrustedNamespace"

        await eventually(refused, timeout=90)
        with pytest.raises(NotFound):
            await client.get(ConfigMap, "bold", namespace=namespace)
    async with running_toolset(client, section(trusted_namespaces=[namespace]), served=served):
        await holds("nosy", "kubernetes", "loki", "grafana")
        await holds("bold", "kubernetes", "grafana")


async def test_a_toolsetconfig_that_names_a_foreign_configmap_leaves_it_alone_and_says_so(defined, client, namespace):
    section = ToolsetSection(name="", namespaces=[namespace], health_check=HealthConfig(enabled=False))
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "shop", "namespace": namespace},
        "data": {"custom_toolset.yaml": "theirs", "overrides.yaml": "their: own"},
    }
    theirs = await client.apply(body, field_manager="shop", force=True)
    await client.create(config("thief", namespace, configMap={"name": "shop"}, healthCheck={"enabled": False}))
    await client.create(config("good", namespace, configMap={"name": "tools"}, healthCheck={"enabled": False}))
    await client.create(config("helper", namespace, configMap={"name": "shop-overrides-backup"}))

    async def state(name):
        found = await client.get(ToolsetConfig, name, namespace=namespace)
        return next(((row.reason, row.message) for row in found.status.conditions or ()), ("", ""))

    async def refused():
        reason, message = await state("thief")
        return reason == "NameConflict" and "ConfigMap shop exists" in message

    async def ready():
        return (await state("good"))[0] == "Ready"

    async with running_toolset(client, section, served=frozenset({ToolsetConfig.KIND})):
        await eventually(refused, timeout=90)
        await eventually(ready, "the others are kept", timeout=90)
        reason, message = await eventually(lambda: _told(state, "helper"), timeout=90)
        assert (reason, "-overrides-backup" in message) == ("InvalidSpec", True)  # it would vouch for "shop"
        after = await client.get(ConfigMap.KIND, "shop", namespace=namespace)
        assert after["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]
        events = await client.list(Event, namespace=namespace)
        assert any(event.reason == "NameConflict" and event.involved_object.name == "thief" for event in events.items)
        with pytest.raises(NotFound):  # nor is what it holds copied elsewhere
            await client.get(ConfigMap, "shop-overrides-backup", namespace=namespace)
        await client.delete(ConfigMap, "shop", namespace=namespace)
        await eventually(lambda: _kept(client, namespace, state), "the name is free, and taken", timeout=90)


async def _told(state, name):
    found = await state(name)
    return found if found[0] else None


async def _kept(client, namespace, state):
    data = (await client.get(ConfigMap, "shop", namespace=namespace)).data
    return (await state("thief"))[0] == "Ready" and data["custom_toolset.yaml"] != "theirs"
