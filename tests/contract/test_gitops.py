"""A GitOps tool that syncs again and again does not fight the reload operator, whichever way it writes."""

from __future__ import annotations

from datetime import timedelta

import pytest
import yaml
from prometheus_client import CollectorRegistry

import steersman as sm
from steersman.operators.reload.api.annotations import APPLIED, RESTARTED_AT
from steersman.operators.reload.api.config import KindConfig, ReloadOptions, RestartBudget, Window
from steersman.operators.reload.controllers.setup import controllers
from steersman.testing import eventually, running

AT_ONCE = Window(quiet=timedelta(0), limit=timedelta(0))


def config_map(mode):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app"}, "data": {"mode": mode}}


def deployment():
    env = {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "app", "key": "mode"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "annotations": {"steersman.dev/reload": "auto"}},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "web:1", "env": [env]}]},
            },
        },
    }


WAYS = {
    "Argo CD, Flux by server-side apply": ["apply", "--server-side", "--force-conflicts", "--field-manager=gitops"],
    "Argo CD's default, kubectl apply": ["apply"],
}


def at_once(namespace):
    """The reload operator for the Deployments of a namespace, without a window or a budget."""
    kinds = (KindConfig(kind="Deployment"),)
    options = ReloadOptions(
        window=AT_ONCE, budget=RestartBudget(restarts=0), kinds=kinds, namespaces=frozenset({namespace})
    )
    return controllers(options, registry=CollectorRegistry())


async def a_sync_after_a_restart_changes_nothing(client, namespace, sync):
    """Sync, let the operator restart for a change of the source, and sync the same again."""

    async def live():
        return await client.get(sm.Deployment, "web", namespace=namespace)

    async def seeded():
        return APPLIED in ((await live()).metadata.annotations or {})

    async def restarted():
        return RESTARTED_AT in ((await live()).spec.template.metadata.annotations or {})

    await sync("a")
    async with running(client, *at_once(namespace)):
        await eventually(seeded)
        await sync("b")
        await eventually(restarted)
        after = await live()
        await sync("b")
        await sync("b")
        synced = await live()
    assert synced.metadata.generation == after.metadata.generation
    assert synced.spec.template.metadata.annotations == after.spec.template.metadata.annotations
    assert synced.metadata.annotations[APPLIED] == after.metadata.annotations[APPLIED]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
async def test_a_sync_of_the_same_manifests_changes_nothing_after_a_restart(cluster, client, kubectl, namespace, way):
    async def sync(mode):
        text = yaml.safe_dump_all([config_map(mode), deployment()])
        await kubectl(*way, "--namespace", namespace, "-f", "-", stdin=text)

    await a_sync_after_a_restart_changes_nothing(client, namespace, sync)


async def test_an_upgrade_of_an_unchanged_chart_changes_nothing_after_a_restart(
    real, client, helm, namespace, tmp_path
):
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: shop\nversion: 1.0.0\n")
    (tmp_path / "templates" / "web.yaml").write_text(yaml.safe_dump(deployment()))
    text = yaml.safe_dump(config_map("MODE")).replace("MODE", "{{ .Values.mode }}")
    (tmp_path / "templates" / "app.yaml").write_text(text)

    async def sync(mode):
        await helm("upgrade", "--install", "shop", str(tmp_path), "--namespace", namespace, "--set", f"mode={mode}")

    await a_sync_after_a_restart_changes_nothing(client, namespace, sync)


async def test_a_replaced_workload_gets_its_state_again_and_no_second_rollout(cluster, client, kubectl, namespace):
    async def live():
        return await client.get(sm.Deployment, "web", namespace=namespace)

    async def seeded():
        return APPLIED in ((await live()).metadata.annotations or {})

    text = yaml.safe_dump_all([config_map("a"), deployment()])
    await kubectl("create", "--namespace", namespace, "-f", "-", stdin=text)
    async with running(client, *at_once(namespace)):
        await eventually(seeded)
        await kubectl("replace", "--namespace", namespace, "-f", "-", stdin=text)
        await eventually(seeded)
    assert not (await live()).spec.template.metadata.annotations  # a Deployment's generation counts annotations too
