"""Logs, commands and ports of pods on both servers, as far as servers without a kubelet answer.

What comes after the upgrade (channels, exit codes, the end of stdin) is in tests/unit/kube/client/test_pod_streams.py,
against a server that speaks the protocol of a kubelet.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from steersman.kube.api.errors import BadRequest, Forbidden, NotFound
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types.core import ConfigMap
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.runtime.controller.builder import Controller
from steersman.runtime.rbac import rule
from steersman.runtime.reconcile.write_guard import NotInDryRun
from steersman.testing import eventually, running


@pytest.fixture
async def connected(cluster, tmp_path):
    cluster.write_kubeconfig(tmp_path / "kubeconfig")
    async with Client.connect(load_config(tmp_path / "kubeconfig")) as made:
        yield made


async def open_port(client: Client, name: str, namespace: str) -> None:
    async with client.port_forward(name, 80, namespace=namespace) as local, local.open():
        pass


def ways(client: Client, namespace: str, name: str = "web") -> list[Any]:
    return [
        partial(client.exec, name, ["true"], namespace=namespace),
        partial(open_port, client, name, namespace),
        partial(client.logs, name, namespace=namespace),
    ]


async def test_a_pod_that_does_not_exist_is_not_found(connected, namespace):
    for way in ways(connected, namespace):
        with pytest.raises(NotFound):
            await way()


async def test_a_client_is_told_which_right_it_lacks(steersman_client_as, cluster, namespace):
    reader = await steersman_client_as("reader", rule("pods", "get"))
    for way, subresource in zip(ways(reader, namespace), ("exec", "portforward", "log"), strict=True):
        with pytest.raises(Forbidden) as caught:
            await way()
        assert f"pods/{subresource}" in str(caught.value)


async def test_a_pod_without_a_node_is_a_bad_request_with_the_servers_words(real, client, namespace):
    spec = {"containers": [{"name": "main", "image": "none"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": namespace}, "spec": spec}
    await client.create(pod)
    for way in ways(client, namespace)[:2]:
        with pytest.raises(BadRequest, match="does not have a host assigned"):
            await way()
    with pytest.raises(BadRequest, match="container other is not valid for pod web"):
        await client.exec("web", ["true"], namespace=namespace, container="other")


async def test_in_a_dry_run_a_reconcile_reads_logs_and_runs_no_command(connected, namespace):
    outcomes: asyncio.Queue[Any] = asyncio.Queue()

    async def reconcile(ctx, obj):
        async def forward():
            async with ctx.port_forward(obj, 80):
                pass

        for way in (partial(ctx.exec, obj, ["true"]), forward, partial(ctx.logs, obj)):
            try:
                await way()
            except (NotInDryRun, NotFound) as error:
                outcomes.put_nowait(type(error))

    meta = ObjectMeta(name="parent", namespace=namespace, labels={"role": "parent"})
    await connected.create(ConfigMap(metadata=meta))
    controller = Controller(ConfigMap, reconcile, "logs").select(namespaces=[namespace], label_selector="role=parent")
    async with running(connected, controller, dry_run=True):
        await eventually(lambda: outcomes.qsize() >= 3)
    assert [outcomes.get_nowait() for _ in range(3)] == [NotInDryRun, NotInDryRun, NotFound]
