"""What the page says of workloads while the API server does not answer: that it does not know."""

from __future__ import annotations

from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.operators.reload.api.config import KindConfig, ReloadOptions
from steersman.operators.reload.controllers.setup import controllers
from steersman.operators.reload.inspect.restart_state import RestartState
from steersman.testing import FaultProxy, eventually, running
from steersman.web.health import HealthReader
from steersman.web.markup import text_of
from steersman.web.pages import now, workload
from steersman.web.reload_snapshot import reload_snapshot
from steersman.web.snapshot_cache import SnapshotCache


def deployment(namespace):
    container = {"name": "main", "image": "web:1", "envFrom": [{"configMapRef": {"name": "app"}}]}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    meta = {"name": "web", "namespace": namespace, "annotations": {"steersman.dev/reload": "auto"}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


async def test_a_workload_is_unknown_while_the_api_server_is_away_and_current_when_it_is_back(
    cluster, client, namespace, tmp_path
):
    meta = {"name": "app", "namespace": namespace}
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"mode": "a"}})
    await client.create(deployment(namespace))
    options = ReloadOptions(kinds=(KindConfig(kind="Deployment"),), namespaces=frozenset({namespace}))
    address = urlsplit(cluster.url)
    async with FaultProxy(address.hostname, address.port) as proxy:
        (tmp_path / "proxied").write_text(cluster.kubeconfig().replace(address.netloc, proxy.address))
        async with (
            Client.connect(load_config(tmp_path / "proxied")) as through,
            running(through, *controllers(options, registry=CollectorRegistry())) as manager,
        ):
            cache = SnapshotCache(manager, HealthReader(manager), lambda: reload_snapshot(manager))

            def standing():
                return [view.workload.standing for view in cache.snapshot().workloads]

            def drawn():
                path = {"kind": "deployment", "namespace": namespace, "name": "web"}
                return text_of(now.page(cache, {}, {})), text_of(workload.page(cache, path, {}))

            await eventually(lambda: standing() == [RestartState.CURRENT])
            assert "Everything is all right." in drawn()[0]
            assert "1● Current" in drawn()[0]
            proxy.refuse()
            await proxy.reset()
            await eventually(lambda: standing() == [RestartState.UNKNOWN])
            first, own = drawn()
            assert "1? Unknown" in first
            assert "cannot be read; last seen: " in first
            assert "Current" not in first
            assert "all right" not in first
            assert "Nothing is waiting" not in first
            assert "last seen current" in own
            assert "applied" not in own
            proxy.accept()
            await eventually(lambda: standing() == [RestartState.CURRENT])
