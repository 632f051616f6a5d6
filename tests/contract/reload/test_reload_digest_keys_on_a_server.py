"""Keyed digests by the operator at work: created once, rotated and lost without a restart, and read by commands."""

from __future__ import annotations

import asyncio
import json
import secrets
from base64 import b64encode
from contextlib import asynccontextmanager, contextmanager, nullcontext

import pytest
from prometheus_client import CollectorRegistry

from steersman.cli.manifest_files import Manifests
from steersman.cli.reload.plan import _live
from steersman.cli.reload.why import _ask
from steersman.kube.api.errors import Forbidden
from steersman.kube.api.types import Deployment, Secret
from steersman.operators.reload.api.config import ReloadConfig
from steersman.operators.reload.controllers.digest_key_store import KeyStore
from steersman.operators.reload.controllers.reconciler import SharedContext
from steersman.operators.reload.controllers.setup import operator
from steersman.operators.reload.sources.digest_keys import KEY_BYTES, keys_in
from steersman.testing import eventually, running

pytestmark = pytest.mark.timeout(300)
KEYS, LONG = "digests", 60.0


def pin(namespace, value):
    data = {"pin": b64encode(value.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "door", "namespace": namespace}, "data": data}


def deployment(namespace):
    container = {"name": "main", "image": "web:1", "envFrom": [{"secretRef": {"name": "door"}}]}
    labels = {"app": "web"}
    meta = {"name": "web", "namespace": namespace, "annotations": {"steersman.dev/reload": "auto"}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


async def state(client, namespace):
    found = await client.get(Deployment, "web", namespace=namespace)
    text = found.annotations.get("steersman.dev/applied")
    return None if text is None else json.loads(text)


async def stored(client, namespace):
    return keys_in((await client.get(Secret, KEYS, namespace=namespace)).data)


def config(namespace):
    return ReloadConfig(
        quiet_period="0s",
        max_delay="0s",
        namespaces=(namespace,),
        kinds=("Deployment",),
        digest_secret=f"{namespace}/{KEYS}",
    )


@asynccontextmanager
async def at_work(client, namespace):
    """A process of the operator, from its start on."""
    keys = KeyStore(namespace, KEYS)
    await keys.refresh(client)
    async with running(
        client, *operator(config(namespace), registry=CollectorRegistry(), shared=SharedContext(keys=keys))
    ):
        yield keys


async def named(client, namespace, identifier):
    """Wait until the state names this key, and no other."""

    async def rewritten():
        found = await state(client, namespace)
        return found is not None and found.get("k") == [identifier]

    await eventually(rewritten, "the state names the key", timeout=LONG)


@pytest.fixture
async def keyed(cluster, client, namespace):
    """A workload that a process has looked at, and the key that this made."""
    await client.create(pin(namespace, "493027"))
    await client.create(deployment(namespace))
    async with at_work(client, namespace) as keys:
        await named(client, namespace, keys.ring.newest.id)
    return keys.ring.newest


async def restarts(client, namespace):
    found = await client.get(Deployment, "web", namespace=namespace)
    stamped = "steersman.dev/restarted-at" in (found.spec.template.metadata.annotations or {})
    return len((await state(client, namespace)).get("r", ())), stamped


async def test_the_key_is_in_a_secret_and_counts_for_the_next_process(client, namespace, keyed):
    assert await stored(client, namespace) == (keyed,)
    before = await state(client, namespace)
    async with at_work(client, namespace) as keys:
        assert keys.ring.keys == (keyed,)
        await client.apply(pin(namespace, "118264"), field_manager="test", force=True)

        async def restarted():
            return await restarts(client, namespace) == (1, True)

        await eventually(restarted, "it restarts", timeout=LONG)
    assert (await state(client, namespace))["x"] != before["x"]


async def test_of_replicas_that_store_at_once_all_take_the_key_of_one(cluster, client, namespace):
    stores = [KeyStore(namespace, KEYS) for _ in range(4)]
    for keys in stores:
        await keys.refresh(client)
    same = await asyncio.gather(*(keys.store(client) for keys in stores))
    assert sorted(same) == [False] * 3 + [True]
    assert {keys.ring.keys for keys in stores} == {await stored(client, namespace)}


async def test_a_key_that_is_added_while_the_process_runs_rewrites_states_and_restarts_nothing(
    client, namespace, keyed
):
    async with at_work(client, namespace) as keys:
        more = {"data": {"key-2": b64encode(secrets.token_bytes(KEY_BYTES)).decode()}}
        await client.patch(Secret.KIND, KEYS, more, namespace=namespace)
        await keys.refresh(client)
        assert keys.ring.keys[1:] == (keyed,)
        await named(client, namespace, keys.ring.newest.id)
    assert await restarts(client, namespace) == (0, False)


async def test_a_secret_that_was_deleted_while_no_process_ran_restarts_nothing(client, namespace, keyed):
    await client.delete(Secret, KEYS, namespace=namespace)
    async with at_work(client, namespace) as keys:
        assert keys.ring.newest != keyed
        await named(client, namespace, keys.ring.newest.id)
    assert await stored(client, namespace) == keys.ring.keys
    assert await restarts(client, namespace) == (0, False)


async def test_a_state_of_before_there_were_keys_is_compared_and_rewritten(cluster, client, namespace):
    await client.create(pin(namespace, "1"))
    await client.create(deployment(namespace))
    async with running(client, *operator(config(namespace), registry=CollectorRegistry())):
        await eventually(lambda: state(client, namespace), "it is seeded", timeout=LONG)
    assert "k" not in await state(client, namespace)
    async with at_work(client, namespace) as keys:
        await named(client, namespace, keys.ring.newest.id)
    assert await restarts(client, namespace) == (0, False)


@contextmanager
def without(client, name):
    """As one who may not read that Secret."""
    transport = client.transport
    forward = transport.request

    async def request(verb, path, **options):
        if path.endswith(f"/secrets/{name}"):
            raise Forbidden(f"{verb} {path} is forbidden", code=403)
        return await forward(verb, path, **options)

    transport.request = request
    try:
        yield
    finally:
        del transport.request


async def why(client, namespace):
    return await _ask(nullcontext(client), config(namespace).options(), "deployment", "web", namespace)


async def foretold(client, namespace, *manifests):
    given = Manifests(tuple((f"file:{place}", one) for place, one in enumerate(manifests)))
    return await _live(nullcontext(client), config(namespace).options(), given, namespace, 1_900_000_000.0)


async def test_commands_with_the_key_compare_and_without_it_say_unknown(client, namespace, keyed):
    (edge,) = (await why(client, namespace)).edges
    assert edge.digest == edge.applied
    changed = await foretold(client, namespace, pin(namespace, "118264"))
    assert [change.workload.name for change in changed.changes] == ["web"]
    with without(client, KEYS):
        told = await why(client, namespace)
        blind = await foretold(client, namespace, pin(namespace, "118264"))
    assert (told.edges[0].digest, told.pending) == ("unknown", None)
    assert told.verdict.startswith("unknown: ")
    assert any(f"secret/{namespace}/{KEYS} cannot be read" in problem for problem in told.problems)
    assert (blind.changes, [workload.reason for workload in blind.unaffected]) == ((), [told.verdict])
    assert any("unknown" in problem.message for problem in blind.problems)
