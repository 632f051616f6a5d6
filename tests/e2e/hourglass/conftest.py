"""One process of the operator for all tests of this folder, and nodes with labels, taints and GPUs."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import uuid
from pathlib import Path

import pytest
import pytest_asyncio

from steersman.kube.api.types import Node
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.testing import eventually
from tests.support.hourglass import install

STEERSMAN = Path(sys.executable).with_name("steersman")
CONFIG = """
hourglass:
  hardwareMap:
    gpu:
      nvidia-a100:
        nodeSelector: {nvidia.com/gpu.product: A100}
        tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
"""


class Operator:
    """Starts and ends processes that run the operator, and keeps what they said."""

    def __init__(self, kubeconfig, folder):
        self.kubeconfig, self.folder, self.processes = kubeconfig, folder, []
        self.log = folder / "log"
        (folder / "steersman.yaml").write_text(CONFIG)

    async def start(self, *options, namespace=None, config=None):
        where = ["--namespace", namespace] if namespace else []
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                STEERSMAN,
                *("run", "--operators", "hourglass", "--listen", "127.0.0.1:0", *where),
                *("--config", str(config or self.folder / "steersman.yaml"), *options),
                env={"KUBECONFIG": str(self.kubeconfig), "PATH": "/usr/bin:/bin", "HOME": str(self.folder)},
                stdout=asyncio.subprocess.DEVNULL,
                stderr=log,
            )
        self.processes.append(process)
        return process

    async def end(self):
        for process in self.processes:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def admin(full, tmp_path_factory):
    """Full access, with the definitions installed."""
    config = full.write_kubeconfig(tmp_path_factory.mktemp("admin") / "kubeconfig")
    async with Client.connect(load_config(config)) as client:
        await install(client)
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(full, admin, tmp_path_factory):
    """The operator at work, for every namespace."""
    folder = tmp_path_factory.mktemp("operator")
    made = Operator(full.write_kubeconfig(folder / "kubeconfig"), folder)
    await made.start()
    yield made
    await made.end()
    print(made.log.read_text()[-4000:])  # noqa: T201  # shown when a test fails


@pytest.fixture
async def alone(full, admin, tmp_path):
    """A maker of processes of the test's own; what is left is killed at the end."""
    made = Operator(full.write_kubeconfig(tmp_path / "kubeconfig"), tmp_path)
    yield made
    await made.end()
    if made.log.exists():
        print(made.log.read_text()[-4000:])  # noqa: T201  # shown when the test fails


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pool(full, admin):
    """`await pool(gpus=2, labels={…}, taints=[…])` makes a node; its name is the value of the label `pool`."""

    async def make(*, gpus=0, labels=None, taints=()):
        name = f"hg-{uuid.uuid4().hex[:8]}"
        await full.add_nodes(name)
        if taints:
            await admin.patch(Node, name, {"spec": {"taints": list(taints)}})
        if gpus:
            have = {"capacity": {"nvidia.com/gpu": str(gpus)}, "allocatable": {"nvidia.com/gpu": str(gpus)}}
            await admin.patch(Node, name, {"status": have}, subresource="status")
        await admin.patch(Node, name, {"metadata": {"labels": {"pool": name, **(labels or {})}}})
        await eventually(lambda: _ready(admin, name), f"node {name} takes pods", timeout=60)
        return name

    return make


async def _ready(client, name):
    node = await client.get(Node, name)
    taints = {taint.key for taint in node.spec.taints}
    return "node.kubernetes.io/not-ready" not in taints and any(
        condition.type == "Ready" for condition in node.status.conditions
    )
