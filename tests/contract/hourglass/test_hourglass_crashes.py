"""The operator killed between any two writes: begun again at a hundred random points, it loses and doubles nothing.

The process is a manager whose client dies at its n-th write, before or after the server has seen it.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from steersman.kube.api.errors import Unavailable
from steersman.kube.api.types import Pod, Service
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.operators.hourglass.api.config import HourglassOptions
from steersman.operators.hourglass.api.types import StoredExecutor, StoredPerformer
from steersman.operators.hourglass.controllers.setup import controllers
from steersman.runtime.manager.manager import Manager
from steersman.testing import eventually, running
from tests.support.hourglass import executor, install, performer, ready_performer

WRITES = {"POST", "PUT", "PATCH", "DELETE"}
CRASHES = 100


class MortalClient(Client):
    """Dies at its n-th write; then nothing is answered any more."""

    def arm(self, writes, *, after):
        self.left, self.after, self.dead = writes, after, asyncio.Event()

    async def _request(self, method, path, **options):
        if self.dead.is_set():
            raise Unavailable("this process is dead")
        if method not in WRITES or "/events" in path:
            return await super()._request(method, path, **options)
        self.left -= 1
        if self.left > 0:
            return await super()._request(method, path, **options)
        if self.after:
            await super()._request(method, path, **options)
        self.dead.set()
        raise Unavailable("this process is dead")


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_killed_at_a_hundred_random_writes_it_ends_as_the_last_specs_ask(simulated, client, namespace, tmp_path):
    seed = random.randrange(1_000_000)
    print("seed", seed)  # noqa: T201  # shown when the test fails
    chance = random.Random(seed)
    await install(client)
    names = [f"p{number}" for number in range(5)]
    for number, name in enumerate(names):
        strategy = "BlueGreen" if number % 2 else "Recreate"
        await client.create(performer(name, namespace, strategy=strategy, replicas=1 + number % 3 // 2))
    await client.create(executor("e", namespace))
    config = tmp_path / "mortal.kubeconfig"
    simulated.write_kubeconfig(config)
    for crash in range(CRASHES):
        await _change(client, namespace, chance, names, crash)
        async with cast("Any", MortalClient.connect(load_config(config))) as mortal:
            mortal.arm(chance.randint(1, 6), after=chance.random() < 0.5)
            await _live_until_death(mortal, namespace)
    registry = CollectorRegistry()
    made = [controller.within([namespace]) for controller in controllers(HourglassOptions(), registry=registry)]
    async with running(client, *made, registry=registry):
        for name in names:
            wanted = (await client.get(StoredPerformer, name, namespace=namespace)).spec
            await ready_performer(client, name, namespace, observedImage=wanted["image"])
            await eventually(lambda name=name, wanted=wanted: _exact(client, namespace, name, wanted), timeout=60)
        await eventually(lambda: _phase(client, namespace), "the executor runs", timeout=60)


async def _change(client, namespace, chance, names, number):
    """Something that takes several writes to follow."""
    for name in chance.sample(names, 3):
        body = {"spec": {"image": f"avs:{chance.randint(1, 3)}", "config": {"environment": {"N": str(number)}}}}
        await client.patch(StoredPerformer, name, body, namespace=namespace)
    level = {"spec": {"config": {"logLevel": f"level-{number}"}}}
    await client.patch(StoredExecutor, "e", level, namespace=namespace)


async def _live_until_death(mortal, namespace):
    registry = CollectorRegistry()
    made = [controller.within([namespace]) for controller in controllers(HourglassOptions(), registry=registry)]
    manager = Manager(mortal, made, registry=registry, grace_seconds=0)
    task = asyncio.create_task(manager.run())
    try:
        async with asyncio.timeout(90):
            await mortal.dead.wait()
    finally:
        manager.stop()
        manager.stop()
        await task


async def _exact(client, namespace, name, wanted):
    label = f"hourglass.eigenlayer.io/performer={name}"
    pods = [
        pod for pod in (await client.list(Pod, namespace=namespace, label_selector=label)).items if not pod.deleting
    ]
    assert [pod.spec.containers[0].image for pod in pods] == [wanted["image"]] * wanted.get("replicas", 1)
    service = await client.get(Service, f"performer-{name}", namespace=namespace)
    return all(service.spec.selector.items() <= pod.labels.items() for pod in pods)


async def _phase(client, namespace):
    return (await client.get(StoredExecutor, "e", namespace=namespace)).status["phase"] == "Running"
