"""A control plane on which Deployments become pods, and a kubelet that runs them as processes."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

import steersman
from steersman.kube.api.types import Pod
from steersman.testing.plugin import unavailable
from tests.support.dns.pod_servers import Pods
from tests.support.dns.zones import Site
from tests.support.programs import crates

LIMIT = timedelta(seconds=5)  # for one exchange where addresses vanish, as in production
STEERSMAN, BINDCAR = "steersman:test", "bindcar:test"  # the images of this program and of the original sidecar
PYTHON = tuple(
    dict.fromkeys([Path(sys.prefix), Path(sys.base_prefix), Path(steersman.__file__).resolve().parent.parent])
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def real():
    """A control plane on which Deployments become pods; nobody but the test's kubelet takes care of those."""
    from steersman.testing.controlplane.binaries import BinariesError
    from steersman.testing.controlplane.launcher import LIFECYCLE_CONTROLLERS, ControlPlane

    try:
        controllers = (*LIFECYCLE_CONTROLLERS, "deployment-controller", "replicaset-controller")
        async with ControlPlane(controllers=controllers) as plane:
            yield plane
    except BinariesError as error:
        unavailable(error)


@pytest.fixture
async def kubelet(real, client, namespace, named, tmp_path):
    from tests.support.pods.kubelet import Image, ProcessKubelet
    from tests.support.pods.network import PodsUnavailable

    folder = tmp_path / "pods"
    folder.mkdir()
    own = Image((str(Path(sys.executable).with_name("steersman")),), PYTHON)
    images = {STEERSMAN: own}
    if (program := crates.BINDCAR.built()) is not None:
        images[BINDCAR] = Image((str(program),), (program.parent,))
    kubelet = ProcessKubelet(client, namespace, folder, images=images)
    try:
        await kubelet.__aenter__()
    except PodsUnavailable as error:
        unavailable(error)
    try:
        yield kubelet
    finally:
        await _show(client, namespace, kubelet)
        await kubelet.__aexit__()


async def _show(client, namespace, kubelet):
    """Everything that says why a test failed, if it did; the operator's own log is captured beside it."""
    from steersman.operators.dns.controllers.setup import KINDS

    lines = [f"kubelet: {line}" for line in kubelet.journal]
    logs = sorted([*kubelet.folder.glob("*/bind9.log"), *kubelet.folder.glob("*/api.log")])
    lines += [f"--- {log.parent.name}/{log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in logs]
    for kind in (Pod, *KINDS):
        if kind.KIND.namespaced:
            for one in (await client.list(kind, namespace=namespace)).items:
                rows = (one.status.conditions if one.status is not None else None) or ()
                said = "; ".join(f"{row.type}={row.status} {row.reason} {row.message}" for row in rows)
                lines.append(f"{kind.KIND.kind} {one.name}: {said}")
    lines += [str(task) for task in asyncio.all_tasks()]
    print("\n".join(lines))  # noqa: T201  # shown when the test fails


@pytest.fixture
def site(real, client, dns_kinds, namespace):
    return Site(client, namespace, [])


@pytest.fixture
def pods(site):
    return Pods(site)
