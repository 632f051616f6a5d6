"""ToolsetConfig: every field has an effect, the status is bounded, and nobody reaches beyond their namespace."""

from __future__ import annotations

import pytest
import yaml

from steersman.crd import crd_manifest
from steersman.kube.errors import NotFound
from steersman.kube.types import ConfigMap
from steersman.operators.toolset.objects import MAX_STATUS_SERVICES, ToolsetConfig
from steersman.operators.toolset.types import HealthConfig, ToolsetSection
from steersman.testing import eventually
from steersman.testing.toolsetting import keeping, service


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


async def test_a_toolsetconfig_keeps_a_configmap_of_its_own_and_tells_how_it_is(defined, client, namespace):
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
    async with keeping(client, section, served=served):

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

    async with keeping(client, section(), served=served):
        await holds("nosy", "kubernetes", "loki")

        async def refused():
            found = (await client.get(ToolsetConfig, "bold", namespace=namespace)).status
            return found.phase == "Refused" and found.conditions[0].reason == "UntrustedNamespace"

        await eventually(refused, timeout=90)
        with pytest.raises(NotFound):
            await client.get(ConfigMap, "bold", namespace=namespace)
    async with keeping(client, section(trusted_namespaces=[namespace]), served=served):
        await holds("nosy", "kubernetes", "loki", "grafana")
        await holds("bold", "kubernetes", "grafana")
