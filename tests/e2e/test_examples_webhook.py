"""`steersman run` serves the webhooks of a file: the real API server asks the example's validator, and obeys."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from steersman.cli.install.webhooks import secret_name
from steersman.cli.python_files import load_python
from steersman.crd import crd_manifest
from steersman.kube.api.errors import Invalid
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.patches import PatchType
from steersman.kube.api.types import Secret
from steersman.kube.config.kubeconfig import load_config
from steersman.runtime.webhook.certificate_source import CONFIGURATIONS
from steersman.testing import eventually
from steersman.testing.controlplane.processes import Child, ReservedPort

EXAMPLE = Path(__file__).parents[2] / "examples" / "database.py"
EVERYTHING = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
RULES = [
    {"apiGroups": ["example.org"], "resources": ["databases", "databases/status"], "verbs": EVERYTHING},
    {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": EVERYTHING},
    {"apiGroups": [""], "resources": ["services", "persistentvolumeclaims"], "verbs": EVERYTHING},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch", "create", "patch"]},
    {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
]


def printed(*arguments: str) -> list[dict]:
    program = [sys.executable, "-m", "steersman", "webhooks", str(EXAMPLE), *arguments, "-o", "json"]
    return json.loads(subprocess.run(program, check=True, capture_output=True, text=True).stdout)["items"]


@pytest.fixture
async def known(real, client, namespace):
    """The example's kind, and its webhook as `steersman webhooks` prints it; with the rights it prints, and no more."""
    example = load_python(str(EXAMPLE))
    await client.apply(crd_manifest(example.Database))
    name = f"database-{namespace}"
    account = await real.service_account(name, RULES, namespace=namespace)
    with ReservedPort() as port:
        address = f"127.0.0.1:{port.number}"
        for manifest in printed("--name", name, "-n", namespace, "--host", address, "--rights"):
            for webhook in manifest.get("webhooks", ()):  # other tests make databases too
                webhook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
            await client.apply(manifest)
        port.release()  # the process cannot share it
        yield example, name, address, account
    for kind in CONFIGURATIONS[1:]:
        await client.delete(kind, name)


@pytest.fixture
async def process(known, namespace, tmp_path):
    _, name, address, account = known
    arguments = ["--webhook-name", name, "--webhook-host", "127.0.0.1", "--webhook-listen", address]
    program = [sys.executable, "-m", "steersman", "run", EXAMPLE, "-n", namespace, "--kubeconfig", account]
    child = Child([*program, "--listen", "127.0.0.1:0", "--log-format", "json", *arguments], log=tmp_path / "log")
    yield child
    await child.stop(deadline=30)


def port_of(child: Child) -> int:
    lines = [json.loads(line) for line in child.log.read_text().splitlines()]
    return next(line["port"] for line in lines if line["event"] == "listening")


def database(example, namespace, name, storage):
    spec = example.Database.Spec(version="17", storage=storage)
    return example.Database(metadata=ObjectMeta(name=name, namespace=namespace), spec=spec)


async def test_the_validator_of_the_example_refuses_what_it_says_it_refuses(known, process, client, namespace):
    example, name, _, account = known
    assert load_config(account).namespace == namespace

    async def trusted():
        live = await client.get(CONFIGURATIONS[1], name)
        return all(webhook["clientConfig"].get("caBundle") for webhook in live["webhooks"])

    await eventually(trusted, "the process puts its authority into the configuration", timeout=60)
    assert (await client.get(Secret, secret_name(name), namespace=namespace)).type == "kubernetes.io/tls"

    async def asked():
        """The API server takes up a configuration a moment later; until then it asks nobody or trusts nobody."""
        try:
            await client.apply(database(example, namespace, "probe", "2Gi"))
            await client.apply(database(example, namespace, "probe", "1Gi"), force=True)
        except Invalid:
            return True
        return False

    await eventually(asked, timeout=60)
    await client.create(database(example, namespace, "orders", "2Gi"))
    shrink = {"spec": {"storage": "1Gi"}}
    with pytest.raises(Invalid, match=r"spec\.storage: cannot shrink from 2Gi to 1Gi"):
        await client.patch(example.Database, "orders", shrink, type=PatchType.MERGE, namespace=namespace)
    grow = {"spec": {"storage": "3Gi"}}
    grown = await client.patch(example.Database, "orders", grow, type=PatchType.MERGE, namespace=namespace)
    assert grown.spec.storage == "3Gi"

    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port_of(process)}/metrics") as answer,
    ):
        series = 'controller_runtime_webhook_requests_total{code="200",webhook="/validate/example.org/v1/databases/'
        assert series in await answer.text()

    async def starting():
        return (await client.get(example.Database, "orders", namespace=namespace)).status.phase == "Starting"

    await eventually(starting, "the controller of the same process works beside it")
    for one in ("orders", "probe"):
        await client.delete(example.Database, one, namespace=namespace)

    async def gone():
        return not (await client.list(example.Database, namespace=namespace)).items

    await eventually(gone, "the finalizer is removed, past the webhook")
    process.signal(signal.SIGTERM)
    assert await process.wait() == 0
