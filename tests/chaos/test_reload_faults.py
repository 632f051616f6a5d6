"""The reload operator behind a connection that breaks: every change is applied, and none of them twice."""

from __future__ import annotations

import random
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry

from steersman.kube.api.types import Deployment
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.operators.reload.api.annotations import APPLIED
from steersman.operators.reload.api.config import (
    KindConfig,
    ReloadOptions,
    RestartBudget,
    SourceKind,
    SourceRef,
    Window,
)
from steersman.operators.reload.controllers.setup import controllers
from steersman.operators.reload.planning.state import read_state
from steersman.operators.reload.sources.digest import key_digest, short_digest
from steersman.testing import FaultProxy, eventually, running

pytestmark = pytest.mark.slow  # many rounds; make test runs them, make check does not

AT_ONCE = Window(quiet=timedelta(0), limit=timedelta(0))
CHANGES = 12


def configmap(namespace, mode):
    meta = {"name": "app", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"mode": mode}}


def deployment(name, namespace):
    container = {"name": "main", "image": "web:1", "envFrom": [{"configMapRef": {"name": "app"}}]}
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    meta = {"name": name, "namespace": namespace, "annotations": {"steersman.dev/reload": "auto"}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


async def state(client, name, namespace):
    found = await client.get(Deployment, name, namespace=namespace)
    return read_state(found.annotations.get(APPLIED)).applied


async def test_broken_connections_neither_lose_nor_double_a_restart(cluster, client, namespace, tmp_path):
    seed = random.randrange(1_000_000)
    print("seed", seed)  # noqa: T201  # shown when the test fails
    chance = random.Random(seed)  # a test
    names = [f"web-{number}" for number in range(8)]
    await client.apply(configmap(namespace, "0"), field_manager="test")
    for name in names:
        await client.create(deployment(name, namespace))
    options = ReloadOptions(
        window=AT_ONCE,
        budget=RestartBudget(restarts=0),
        kinds=(KindConfig(kind="Deployment"),),
        namespaces=frozenset({namespace}),
    )
    address = urlsplit(cluster.url)
    async with FaultProxy(address.hostname, address.port) as proxy:
        (tmp_path / "proxied").write_text(cluster.kubeconfig().replace(address.netloc, proxy.address))
        async with (
            Client.connect(load_config(tmp_path / "proxied")) as through,
            running(through, *controllers(options, registry=CollectorRegistry())),
        ):
            for name in names:
                await eventually(lambda name=name: state(client, name, namespace))
            for number in range(1, CHANGES + 1):
                await client.apply(configmap(namespace, str(number)), field_manager="test")
                for _ in range(chance.randrange(20)):
                    await state(client, names[0], namespace)  # not a time: a number of requests
                await chance.choice([proxy.cut, proxy.reset])()
            app = SourceRef(SourceKind.CONFIGMAP, namespace, "app")
            last = short_digest(app, "mode", key_digest(str(CHANGES).encode()))

            async def converged():
                found = [await state(client, name, namespace) for name in names]
                return all(applied.sources["configmap/app"].keys["mode"] == last for applied in found)

            await eventually(converged, "every workload runs the last change")
            await client.create(deployment("fresh", namespace))
            await eventually(lambda: state(client, "fresh", namespace))
    for name in names:
        assert 1 <= len((await state(client, name, namespace)).restarts) <= CHANGES
    assert not (await state(client, "fresh", namespace)).restarts
