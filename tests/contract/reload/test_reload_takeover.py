"""`steersman migrate check` about reload programs: what it finds, and that it never answers about nothing."""

from __future__ import annotations

import pytest

from steersman.cli.config import RunSettings
from steersman.cli.migrate.check import Place, forecast_takeover
from steersman.cli.migrate.originals import ORIGINALS
from steersman.errors import ConfigError
from steersman.operators.reload.api.config import ReloadConfig

RELOADER = ORIGINALS["reloader"]
AUTO = {"reloader.stakater.com/auto": "true"}


@pytest.fixture
def place(cluster, namespace, tmp_path):
    cluster.write_kubeconfig(tmp_path / "kubeconfig")
    return Place(kubeconfig=tmp_path / "kubeconfig", namespace=namespace)


@pytest.fixture
async def web(cluster, client, namespace):
    meta = {"name": "app", "namespace": namespace}
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"mode": "a"}})

    async def create(annotations):
        container = {"name": "main", "image": "web:1", "envFrom": [{"configMapRef": {"name": "app"}}]}
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
        spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
        meta = {"name": "web", "namespace": namespace, "annotations": annotations}
        await client.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})

    return create


def settings(**reload):
    return RunSettings(sections={"reload": ReloadConfig(kinds=("Deployment",), **reload)})


async def test_a_workload_with_its_annotations_is_taken_over_when_its_dialect_is_on(place, web):
    await web(AUTO)
    found = await forecast_takeover(RELOADER, settings(dialects=("reloader",)), place)
    assert (found.kept, found.effects) == (1, ())


async def test_a_workload_with_its_annotations_is_a_finding_when_its_dialect_is_off(place, web):
    await web(AUTO)
    found = await forecast_takeover(RELOADER, settings(), place)
    assert [(effect.object, effect.effect) for effect in found.effects] == [("deployment/web", "no longer restarted")]
    assert "add it to reload.dialects" in found.effects[0].why


async def test_a_workload_that_our_own_annotation_restarts_anyway_is_not_a_finding(place, web):
    await web(AUTO | {"steersman.dev/reload": "auto"})
    found = await forecast_takeover(RELOADER, settings(), place)
    assert (found.kept, found.effects) == (1, ())


async def test_none_taken_over_where_workloads_have_its_annotations_is_a_finding(place, web):
    await web({"reloader.stakater.com/search": "true"})
    found = await forecast_takeover(RELOADER, settings(dialects=("reloader",)), place)
    assert (found.kept, len(found.effects)) == (0, 1)


async def test_a_cluster_without_its_annotations_has_nothing_to_take_over(place, web):
    await web({})
    found = await forecast_takeover(RELOADER, settings(), place)
    assert (found.kept, found.effects) == (0, ())


@pytest.mark.parametrize("where", ["option", "configuration"])
async def test_a_namespace_that_does_not_exist_is_an_error(place, where):
    asked = Place(kubeconfig=place.kubeconfig, namespace="no-such-place" if where == "option" else None)
    chosen = settings(namespaces=("no-such-place",) if where == "configuration" else ())
    with pytest.raises(ConfigError, match='namespace "no-such-place" does not exist'):
        await forecast_takeover(RELOADER, chosen, asked)
