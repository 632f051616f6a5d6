"""An older release and this one, one after the other and side by side: nothing is lost, nothing is restarted twice."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from steersman.kube.api.types import Deployment, Lease, ReplicaSet
from steersman.testing import eventually
from steersman.testing.controlplane.processes import Child
from steersman.testing.plugin import unavailable

ROOT = Path(__file__).parents[3]
OLDER = "b81626ec848f"  # the first commit whose reload operator was released to main

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def older(tmp_path_factory):
    """The sources of the older release."""
    archived = subprocess.run(["git", "archive", OLDER, "src"], cwd=ROOT, capture_output=True, check=False)
    if archived.returncode:
        unavailable(f"commit {OLDER} is not here: {archived.stderr.decode().strip()} (git fetch --unshallow)")
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


class Releases:
    """Starts processes of either release in one namespace."""

    def __init__(self, folder, namespace, older):
        self.folder = folder
        self.namespace = namespace
        self.sources = {"older": str(older), "newer": str(ROOT / "src")}
        self.running = []
        section = {"quietPeriod": "0s", "maxDelay": "0s", "budget": {"restarts": 0}, "kinds": ["Deployment"]}
        section["namespaces"] = [namespace]
        (folder / "steersman.yaml").write_text(yaml.safe_dump({"reload": section}))

    def start(self, release, *options):
        program = "import sys; from steersman.cli.main import main; main(sys.argv[1:])"
        command = [sys.executable, "-c", program, "run", "--operators", "reload", "--listen", "127.0.0.1:0"]
        child = Child(
            [*command, "--config", str(self.folder / "steersman.yaml"), *options],
            log=self.folder / f"{release}-{len(self.running)}.log",
            environment={
                "KUBECONFIG": str(self.folder / "kubeconfig"),
                "PYTHONPATH": self.sources[release],
                "PATH": os.environ["PATH"],
                "HOME": str(self.folder),
            },
        )
        self.running.append(child)
        return child

    async def stop(self, child):
        await child.stop(deadline=60)

    async def close(self):
        for child in self.running:
            if child.exit_code is None:
                child.kill()
                await child.wait()
            print(child.tail(20))  # noqa: T201  # shown when the test fails


@pytest.fixture
async def releases(full, namespace, older, tmp_path):
    full.write_kubeconfig(tmp_path / "kubeconfig")
    made = Releases(tmp_path, namespace, older)
    yield made
    await made.close()


class Shop:
    """A ConfigMap, and Deployments that use it."""

    def __init__(self, client, namespace, names):
        self.client = client
        self.namespace = namespace
        self.names = names

    async def configure(self, mode):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app", "namespace": self.namespace}}
        await self.client.apply({**body, "data": {"mode": mode}}, field_manager="test", force=True)

    async def create(self):
        source = {"configMapKeyRef": {"name": "app", "key": "mode"}}
        container = {"name": "main", "image": "web:1", "env": [{"name": "MODE", "valueFrom": source}]}
        for name in self.names:
            labels = {"app": name}
            meta = {"name": name, "namespace": self.namespace, "annotations": {"steersman.dev/reload": "auto"}}
            template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
            spec = {
                "replicas": 0,
                "revisionHistoryLimit": 50,
                "selector": {"matchLabels": labels},
                "template": template,
            }
            await self.client.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})

    async def deployments(self):
        return [await self.client.get(Deployment, name, namespace=self.namespace) for name in self.names]

    async def all_seeded(self):
        """Known to the operator, and the first template is a ReplicaSet: else a change would come before it."""
        known = all("steersman.dev/applied" in found.annotations for found in await self.deployments())
        return known and await self.templates() == [1] * len(self.names)

    async def templates(self):
        """How many templates each has had: every one is a ReplicaSet that is kept."""
        found = (await self.client.list(ReplicaSet, namespace=self.namespace)).items
        return [sum(item.labels.get("app") == name for item in found) for name in self.names]

    def restarted(self, times):
        async def so_often():
            assert await self.templates() == [1 + times] * len(self.names)
            return True

        return so_often


async def test_upgrade_and_downgrade_restart_once_per_change_and_never_without_one(client, namespace, releases):
    shop = Shop(client, namespace, ["web-0", "web-1"])
    await shop.configure("a")
    await shop.create()
    process = releases.start("older")
    await eventually(shop.all_seeded)
    await shop.configure("b")
    await eventually(shop.restarted(1))
    await releases.stop(process)

    process = releases.start("newer")  # the upgrade; nothing changed meanwhile
    await shop.configure("c")
    await eventually(shop.restarted(2))
    await releases.stop(process)

    await shop.configure("d")  # while nobody runs
    process = releases.start("older")  # the downgrade
    await eventually(shop.restarted(3))
    await releases.stop(process)

    process = releases.start("newer")
    await shop.configure("e")
    await eventually(shop.restarted(4))
    await releases.stop(process)
    await shop.restarted(4)()


async def test_side_by_side_during_a_rolling_upgrade_only_one_of_them_acts(client, namespace, releases):
    shop = Shop(client, namespace, [f"web-{number}" for number in range(5)])
    await shop.configure("a")
    await shop.create()
    lease = ("--leader-elect", "--lease", f"{namespace}/reload")
    first = releases.start("older", *lease)

    async def holder():
        return (await client.get(Lease, "reload", namespace=namespace)).spec.holder_identity

    before = await eventually(holder)
    await eventually(shop.all_seeded)
    second = releases.start("newer", *lease)
    await shop.configure("b")
    await eventually(shop.restarted(1))
    await shop.configure("c")
    await releases.stop(first)  # in the middle of it, perhaps

    async def taken_over():
        return await holder() not in (before, "", None)

    await eventually(taken_over)
    await eventually(shop.restarted(2))
    await releases.stop(second)
    await shop.restarted(2)()
