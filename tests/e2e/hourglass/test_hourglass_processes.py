"""Processes that come and go: adoption, deletion while nobody looks, failover, kill -9, and what a run leaves behind.

No operator runs here unless the test starts one.
"""

from __future__ import annotations

import base64
import random
import signal

import aiohttp
import msgspec
import pytest

from steersman.kube.api.errors import NotFound
from steersman.kube.api.gvk import Kind
from steersman.kube.api.types import Deployment, Event, Lease, Pod, Secret, Service
from steersman.operators.hourglass.api.types import ADOPTED, TEMPLATE_HASH, StoredExecutor, StoredPerformer
from steersman.operators.hourglass.controllers.setup import rules
from steersman.testing import eventually
from tests.support.hourglass import (
    executor,
    executor_pods,
    gone,
    performer,
    ready_performer,
    running_executor,
    upstream_executor,
    upstream_performer,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def on(node):
    return {"nodeSelector": {"pool": node}}


async def test_objects_of_both_upstream_versions_are_adopted_without_deleting_a_pod(
    admin, alone, pool, namespace, full
):
    """What the original leaves behind: owned children, upstream labels, no hash; then the operator takes over."""
    node = await pool()
    made = {}
    for name, head in (("seed", False), ("head", True)):
        owner = await admin.create(performer(name, namespace, scheduling={"nodeSelector": {"pool": node}}))
        made[name] = await upstream_performer(admin, owner, node, head=head)
    theirs = await admin.create(executor("e", namespace, nodeSelector={"pool": node}))
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    await admin.create({**account, "metadata": {"name": "hourglass-executor", "namespace": namespace}})
    await upstream_executor(admin, theirs, node)

    async def up():
        pods = await executor_pods(admin, "e", namespace)
        return [pod.metadata.uid for pod in pods if pod.status.phase == "Running"]

    executors_pods = await eventually(up, "the original's executor runs", timeout=90)
    await alone.start(namespace=namespace)
    for name, uid in made.items():
        status = await ready_performer(admin, name, namespace)
        pod = await admin.get(Pod, f"performer-{name}", namespace=namespace)
        assert pod.metadata.uid == uid
        assert pod.annotations[TEMPLATE_HASH] == status["templateHash"]
        assert status["recreations"] == 0
    await running_executor(admin, "e", namespace)
    assert await up() == executors_pods
    live = await admin.get(Deployment, "e", namespace=namespace)
    assert ADOPTED in live.annotations
    await admin.patch(StoredExecutor, "e", {"spec": {"config": {"logLevel": "debug"}}}, namespace=namespace)

    async def ours():
        found = await admin.get(Deployment, "e", namespace=namespace)
        return TEMPLATE_HASH in found.annotations and ADOPTED not in found.annotations

    await eventually(ours, "the template is ours after a change", timeout=90)


async def test_a_performer_deleted_while_no_operator_runs_goes_when_one_does(admin, alone, pool, namespace, full):
    node = await pool()
    await admin.create(performer("p", namespace, scheduling=on(node)))
    process = await alone.start(namespace=namespace)
    await ready_performer(admin, "p", namespace)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    await admin.delete(StoredPerformer, "p", namespace=namespace)
    assert (await admin.get(StoredPerformer, "p", namespace=namespace)).deleting
    await alone.start(namespace=namespace)
    await eventually(lambda: gone(admin, StoredPerformer, "p", namespace), timeout=120)
    assert await gone(admin, Pod, "performer-p", namespace)
    assert await gone(admin, Service, "performer-p", namespace)


async def test_of_two_processes_one_works_and_the_other_takes_over(admin, alone, pool, namespace, full):
    node = await pool()
    lease = ("--leader-elect", "--lease", f"{namespace}/hourglass")
    leader = await alone.start(*lease, namespace=namespace)

    async def holder():
        try:
            return (await admin.get(Lease, "hourglass", namespace=namespace)).spec.holder_identity
        except NotFound:
            return None

    first = await eventually(holder, timeout=120)
    await alone.start(*lease, namespace=namespace)
    await admin.create(performer("p", namespace, scheduling=on(node)))
    await ready_performer(admin, "p", namespace)
    pod = await admin.get(Pod, "performer-p", namespace=namespace)
    leader.kill()
    await leader.wait()
    await admin.patch(StoredPerformer, "p", {"spec": {"image": "avs:2"}}, namespace=namespace)
    await ready_performer(admin, "p", namespace, observedImage="avs:2")
    assert await holder() != first
    assert (await admin.get(Pod, "performer-p", namespace=namespace)).metadata.uid != pod.metadata.uid


async def test_killed_again_and_again_while_specs_change_it_ends_as_the_last_specs_ask(
    admin, alone, pool, namespace, full
):
    seed = random.randrange(1_000_000)
    print("seed", seed)  # noqa: T201  # shown when the test fails
    chance, node = random.Random(seed), await pool()
    names = [f"p{number}" for number in range(4)]
    for name in names:
        strategy = chance.choice(["Recreate", "BlueGreen"])
        await admin.create(performer(name, namespace, scheduling=on(node), strategy=strategy))
    await admin.create(executor("e", namespace, **on(node)))
    for number in range(1, 5):
        process = await alone.start(namespace=namespace)
        for name in names:
            await admin.patch(StoredPerformer, name, {"spec": {"image": f"avs:{number}"}}, namespace=namespace)
        level = {"spec": {"config": {"logLevel": f"level-{number}"}}}
        await admin.patch(StoredExecutor, "e", level, namespace=namespace)
        await eventually(lambda image=f"avs:{number}": _some_pod(admin, namespace, image), "it has begun", timeout=120)
        for _ in range(chance.randrange(20)):
            await admin.get(
                StoredPerformer, names[0], namespace=namespace
            )  # not a time: so many requests, then it dies
        process.kill()
        await process.wait()
    await alone.start(namespace=namespace)
    for name in names:
        await ready_performer(admin, name, namespace, observedImage="avs:4")
        listing = await admin.list(Pod, namespace=namespace, label_selector=f"hourglass.eigenlayer.io/performer={name}")
        assert [pod.spec.containers[0].image for pod in listing.items if not pod.deleting] == ["avs:4"]
    await running_executor(admin, "e", namespace)


async def _some_pod(client, namespace, image):
    pods = (await client.list(Pod, namespace=namespace, label_selector="app=hourglass-performer")).items
    return any(pod.spec.containers[0].image == image for pod in pods)


KEYS = {"ecdsa": "0x5ec2e7e1a0c0ffee", "bls": "quite-a-secret-bls-key"}
PASSWORD = "environment-password-4711"


async def test_least_rights_are_enough_and_nothing_a_run_produces_holds_key_material(
    admin, alone, pool, namespace, full
):
    node = await pool()
    alone.kubeconfig = await full.service_account(
        "hourglass-operator", _granted(), namespace=namespace, everywhere=True
    )
    config = {"operatorKeys": KEYS}
    environment = {"environment": {"PASSWORD": PASSWORD}}
    await alone.start(namespace=namespace)
    await admin.create(executor("e", namespace, config=config, replicas=2, **on(node)))
    full_house = {"strategy": "BlueGreen", "replicas": 2, "networkPolicy": "ExecutorOnly", "executorRef": "e"}
    await admin.create(performer("p", namespace, scheduling=on(node), config=environment, **full_house))
    await admin.create(performer("bad", namespace, config=environment, scheduling={"nodeSelector": {"a": "b c"}}))
    await running_executor(admin, "e", namespace)
    await ready_performer(admin, "p", namespace)
    await admin.patch(StoredPerformer, "p", {"spec": {"image": "avs:2"}}, namespace=namespace)
    await ready_performer(admin, "p", namespace, observedImage="avs:2")
    await admin.create(performer("short-lived", namespace, scheduling=on(node)))
    await ready_performer(admin, "short-lived", namespace)
    await admin.delete(StoredPerformer, "short-lived", namespace=namespace)
    await eventually(lambda: gone(admin, StoredPerformer, "short-lived", namespace), timeout=120)
    address = await eventually(lambda: _listening(alone.log), "the listener's address is logged", timeout=60)
    produced = [alone.log.read_text()]
    async with aiohttp.ClientSession() as session:
        for path in ("/metrics", "/readyz", "/healthz", "/api/status", "/api/tables"):
            async with session.get(f"http://{address}{path}") as answer:
                produced.append(await answer.text())
    assert "steersman_hourglass_performers" in produced[1]
    for kind in (StoredExecutor, StoredPerformer):
        produced += [str(one.status) for one in (await admin.list(kind, namespace=namespace)).items]
    events = await eventually(lambda: _events(admin, namespace), "events are recorded", timeout=60)
    produced += [f"{event.reason} {event.message}" for event in events]
    for plural, name in (("configmaps", "ConfigMap"), ("pods", "Pod"), ("services", "Service")):
        listing = await admin.list(Kind(version="v1", kind=name, plural=plural), namespace=namespace)
        produced += [str(one) for one in listing.items if name != "Pod" or "executor" in str(one["metadata"]["labels"])]
    secret = await admin.get(Secret, "e-keys", namespace=namespace)
    assert set(secret.data) == set(KEYS)
    hidden = [*KEYS.values(), *(base64.b64encode(value.encode()).decode() for value in KEYS.values())]
    for text in produced:
        assert not [one for one in hidden if one in text], text[:500]
        assert PASSWORD not in text, text[:500]
    assert "orbidden" not in produced[0]


async def _events(client, namespace):
    return (await client.list(Event, namespace=namespace)).items


def _listening(log):
    whole = log.read_bytes().rpartition(b"\n")[0]  # the last line may be half written
    lines = [msgspec.json.decode(line) for line in whole.splitlines() if line.startswith(b"{")]
    return next((f"127.0.0.1:{line['port']}" for line in lines if line["event"] == "listening"), None)


async def test_an_idle_operator_writes_nothing(admin, alone, pool, namespace, full):
    """By the audit log: when everything is ready, changes that are no concern of ours cause no write of ours."""
    node = await pool()
    names = [f"p{number}" for number in range(3)]
    alone.kubeconfig = await full.service_account(
        "hourglass-operator", _granted(), namespace=namespace, everywhere=True
    )
    await alone.start(namespace=namespace)
    for name in names:
        await admin.create(performer(name, namespace, scheduling=on(node)))
        await ready_performer(admin, name, namespace)
    await admin.create(executor("e", namespace, **on(node)))
    await running_executor(admin, "e", namespace)
    rounds = iter(range(1000))

    async def quiet():
        number, before = next(rounds), _writes(full, namespace)
        foreign = {"metadata": {"annotations": {"foreign": f"x{number}"}}}
        for name in names:
            await admin.patch(Pod, f"performer-{name}", foreign, namespace=namespace)
        await admin.create(performer(f"barrier-{number}", namespace, scheduling=on(node)))
        await ready_performer(admin, f"barrier-{number}", namespace)  # made after it has seen all of the above
        return before and _writes(full, namespace) == before

    await eventually(quiet, "nothing is written when nothing is to be done", timeout=180)


def _granted():
    return [msgspec.to_builtins(rule) for rule in rules(None)]


def _writes(full, namespace):
    entries = full.audit.entries(user=f"system:serviceaccount:{namespace}:hourglass-operator", namespace=namespace)
    verbs = {"create", "update", "patch", "delete"}
    return sum(
        entry.verb in verbs and entry.resource != "events" and "barrier" not in f"{entry.name}{entry.uri}"
        for entry in entries
        if not (entry.verb == "create" and entry.resource == "pods")
    )
