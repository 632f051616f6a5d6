"""The real program on the real control plane: rollouts happen, and killing the program loses and doubles nothing."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from pathlib import Path

import pytest

from steersman.kube.api.errors import NotFound
from steersman.kube.api.types import ConfigMap, Deployment, Lease, Pod, ReplicaSet
from steersman.testing import eventually

pytestmark = pytest.mark.timeout(600)

STEERSMAN = Path(sys.executable).with_name("steersman")
KILLS = 100  # a process takes about half a second to start on an idle machine, and several on a busy one
CONFIG = """
reload:
  quietPeriod: 0s
  maxDelay: 0s
  budget: {restarts: 0}
  kinds: [Deployment]
  namespaces: [%s]
"""


@pytest.fixture
async def program(full, tmp_path, namespace):
    """`await program()` starts one more process that runs the operator; what is left is killed at the end."""
    full.write_kubeconfig(tmp_path / "kubeconfig")
    (tmp_path / "steersman.yaml").write_text(CONFIG % namespace)
    processes = []
    log = (tmp_path / "log").open("ab")

    async def start(*options):
        process = await asyncio.create_subprocess_exec(
            STEERSMAN,
            *("run", "--operators", "reload", "--config", str(tmp_path / "steersman.yaml"), "--listen", "127.0.0.1:0"),
            *options,
            env={"KUBECONFIG": str(tmp_path / "kubeconfig"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=log,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.returncode is None:
            process.kill()
            await process.wait()
    log.close()
    print((tmp_path / "log").read_text()[-3000:])  # noqa: T201  # shown when the test fails


async def configure(client, namespace, mode):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app", "namespace": namespace}}
    await client.apply({**body, "data": {"mode": mode}}, field_manager="test", force=True)


def deployment(name, namespace, replicas=1):
    labels = {"app": name}
    source = {"configMapKeyRef": {"name": "app", "key": "mode"}}
    container = {"name": "main", "image": "web:1", "env": [{"name": "MODE", "valueFrom": source}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "annotations": {"steersman.dev/reload": "auto"}},
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 100,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


async def seeded(client, name, namespace):
    """Whether the operator knows it, and its first template is a ReplicaSet (else a change would come before it)."""
    found = await client.get(Deployment, name, namespace=namespace)
    return "steersman.dev/applied" in found.annotations and await rollouts(client, name, namespace) >= 0


async def rollouts(client, name, namespace):
    """How often the pods were replaced: every template that the Deployment ever had is a ReplicaSet."""
    listing = await client.list(ReplicaSet, namespace=namespace, label_selector=f"app={name}")
    return len(listing.items) - 1


async def told(client, name, namespace):
    found = await client.get(Deployment, name, namespace=namespace)
    return (found.spec.template.metadata.annotations or {}).get("steersman.dev/restarted-at")


async def test_a_change_rolls_out_new_pods_once(full, client, namespace, program):
    await full.add_nodes(f"{namespace}-node")
    await configure(client, namespace, "a")
    await client.create(deployment("web", namespace, replicas=2))
    await program()
    await eventually(lambda: seeded(client, "web", namespace))

    async def complete():
        return (await client.get(Deployment, "web", namespace=namespace)).status.ready_replicas == 2

    await eventually(complete)
    before = {pod.name for pod in (await client.list(Pod, namespace=namespace)).items}
    await configure(client, namespace, "b")

    async def rolled():
        found = await client.get(Deployment, "web", namespace=namespace)
        pods = {pod.name for pod in (await client.list(Pod, namespace=namespace)).items if not pod.deleting}
        assert found.status.updated_replicas == found.status.ready_replicas == 2
        return not pods & before and len(pods) == 2 and await rollouts(client, "web", namespace) == 1

    await eventually(rolled, "both pods are new")


@pytest.mark.slow
@pytest.mark.timeout(1500)
async def test_killed_a_hundred_times_while_sources_change_it_ends_with_the_last_change_applied(
    full, client, namespace, program
):
    seed = random.randrange(1_000_000)
    print("seed", seed)  # noqa: T201  # shown when the test fails
    chance = random.Random(seed)  # a test
    names = [f"web-{number}" for number in range(8)]
    await configure(client, namespace, "0")
    for name in names:
        await client.create(deployment(name, namespace))
    process = await program()
    for name in names:
        await eventually(lambda name=name: seeded(client, name, namespace))
    killed = 0
    for changes in range(1, KILLS + 1):
        await configure(client, namespace, str(changes))
        for _ in range(chance.randrange(800)):
            await client.get(ConfigMap, "app", namespace=namespace)  # not a time: a number of requests, then it dies
        process.kill()
        killed += await process.wait() == -signal.SIGKILL  # and not ended before, by itself
        process = await program()
    assert killed == KILLS
    fresh = "fresh"  # seeded with what the source says at the end
    await client.create(deployment(fresh, namespace))

    async def converged():
        states = [
            (await client.get(Deployment, name, namespace=namespace)).annotations.get("steersman.dev/applied", "")
            for name in (*names, fresh)
        ]
        return states[-1] and len({state.split(',"r"')[0].rstrip("}") for state in states}) == 1

    await eventually(converged, "every workload runs the last change")
    for name in names:
        await eventually(lambda name=name: _within(rollouts(client, name, namespace), 2, changes))
    await eventually(lambda: _within(rollouts(client, fresh, namespace), 0, 0))
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


async def test_a_leader_that_dies_in_the_middle_of_many_restarts_is_replaced_and_nothing_is_restarted_twice(
    full, client, namespace, program, tmp_path
):
    names = [f"web-{number}" for number in range(40)]
    with (tmp_path / "steersman.yaml").open("a") as config:
        config.write("  maxConcurrent: 2\n")
    await configure(client, namespace, "a")
    for name in names:
        await client.create(deployment(name, namespace, replicas=0))
    lease = ("--leader-elect", "--lease", f"{namespace}/reload")
    leader = await program(*lease)

    async def held():
        try:
            return (await client.get(Lease, "reload", namespace=namespace)).spec.holder_identity
        except NotFound:
            return None

    await eventually(held)
    await program(*lease)
    for name in names:
        await eventually(lambda name=name: seeded(client, name, namespace))
    await configure(client, namespace, "b")

    async def restarted():
        return [name for name in names if await told(client, name, namespace)]

    await eventually(restarted, "some are restarted")
    leader.kill()
    await leader.wait()
    assert 0 < len(await restarted()) < len(names), "it died in the middle"
    for name in names:
        await eventually(lambda name=name: told(client, name, namespace), f"{name} is restarted", timeout=240)
    for name in names:
        await eventually(lambda name=name: _within(rollouts(client, name, namespace), 1, 1))


async def _within(awaitable, least, most):
    return least <= await awaitable <= most
