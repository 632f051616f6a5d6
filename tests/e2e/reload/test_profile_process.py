"""The real program in the place of each original, on the real control plane: nothing restarts, then once, then back."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

from steersman.kube.api.gvk import Kind
from steersman.kube.api.types import Deployment, Lease, ReplicaSet
from steersman.testing import eventually
from tests.support.reload.originals import ORIGINALS, TIMES, put_source, put_workload

pytestmark = pytest.mark.timeout(600)

STEERSMAN = Path(sys.executable).with_name("steersman")
LONG = 120.0
REVISION = Kind(group="apps", version="v1", kind="ControllerRevision", plural="controllerrevisions")
METRIC = {
    "shipshape": 'configmap_reload_restarts_total{env="test"} 1.0',
    "xing": "deployment_restart_controller_deployment_restarts_total 2.0",
    "reloader": 'reloader_reload_executed_total{success="true"} 3.0',
    "wave": 'controller_runtime_reconcile_total{controller="reload-deployments"',
}


def told(profile, namespace):
    """Flags and variables with which the original would be run."""
    if profile == "shipshape":
        return (), {"WATCH_NAMESPACE": namespace, "APP_SELECTOR": "app=web", "HOSTNAME": "pod-a"}
    if profile == "xing":
        return ("-r", "1", "-v", "1"), {}
    if profile == "reloader":
        ha = ("--enable-ha=true", "--log-format=json")
        return ha, {"KUBERNETES_NAMESPACE": namespace, "POD_NAMESPACE": namespace, "POD_NAME": "pod-a"}
    lease = ("--leader-election=true", f"--leader-election-id=wave-{namespace}")
    return (*lease, f"--leader-election-namespace={namespace}", f"--namespaces={namespace}"), {}


@pytest.fixture
async def start(full, tmp_path):
    """`await start(profile, namespace)` starts the program; it is killed at the end if it still runs."""
    full.write_kubeconfig(tmp_path / "kubeconfig")
    processes = []

    async def start(profile, namespace, *options, flags=None):
        argv, environ = told(profile, namespace) if flags is None else (flags, {})
        base = {"KUBECONFIG": str(tmp_path / "kubeconfig"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        log = (tmp_path / "log").open("ab")
        try:
            process = await asyncio.create_subprocess_exec(
                STEERSMAN,
                *("reload", "--profile", profile, "--listen", "127.0.0.1:0", *options, *argv),
                env={**base, **environ},
                stdout=asyncio.subprocess.DEVNULL,
                stderr=log,
            )
        finally:
            log.close()
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.returncode is None:
            process.kill()
            await process.wait()
    print((tmp_path / "log").read_text()[-3000:])  # noqa: T201  # shown when the test fails


async def listening(tmp_path):
    """Where the program says it listens."""

    def found():
        text = re.sub(r"\x1b\[[0-9;]*m", "", (tmp_path / "log").read_text())
        ports = re.findall(r'port"?[=:] ?(\d+)', text)
        return ports[-1] if ports else None

    return f"http://127.0.0.1:{await eventually(found, 'it listens', timeout=LONG)}"


@pytest.mark.parametrize("program", ORIGINALS, ids=lambda one: one.dialect)
async def test_a_profile_adopts_restarts_once_and_ends_as_asked(full, client, namespace, start, tmp_path, program):
    original = program(namespace)
    await put_source(client, namespace, "a")
    for kind in program.kinds:
        await put_workload(client, original, "a", kind)

    async def web(kind):
        target = Kind(group="apps", version="v1", kind=kind, plural=f"{kind.lower()}s")
        return await client.get(target, "web", namespace=namespace)

    async def templates():
        return [(await web(kind))["spec"]["template"] for kind in program.kinds]

    before = await templates()
    process = await start(program.dialect, namespace)

    async def adopted():
        found = [await web(kind) for kind in program.kinds]
        return all("steersman.dev/applied" in item["metadata"]["annotations"] for item in found)

    await eventually(adopted, "they are taken over", timeout=LONG)
    assert await templates() == before  # nobody touched them
    await put_source(client, namespace, "b")

    async def restarted():
        return all(new != old for new, old in zip(await templates(), before, strict=True))

    await eventually(restarted, "they are restarted", timeout=LONG)
    base = await listening(tmp_path)
    async with aiohttp.ClientSession() as session:

        async def counted():
            async with session.get(f"{base}/metrics") as response:
                return METRIC[program.dialect] in await response.text()

        await eventually(counted, "its metric counts it", timeout=LONG)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    expected = {name: value for name, value in original.template("b").items() if name not in TIMES}
    for kind in program.kinds:
        after = await web(kind)
        marks = after["spec"]["template"]["metadata"]["annotations"]
        assert marks.items() >= expected.items()  # the original, put back, finds everything applied
        assert after["metadata"]["annotations"].items() >= original.metadata("b").items()
        main = after["spec"]["template"]["spec"]["containers"][1]
        assert main["env"][1:] == original.variables("b")

    async def rolled():
        sets = await client.list(ReplicaSet, namespace=namespace, label_selector="app=web")
        others = await client.list(REVISION, namespace=namespace, label_selector="app=web")
        assert len(others.items) == 2 * (len(program.kinds) - 1), "one rollout of each that is no Deployment"
        return len(sets.items) == 2

    await eventually(rolled, "there was one rollout", timeout=LONG)
    held = {"shipshape": "helloworld-controller-leader", "reloader": "stakater-reloader-lock"}
    if program.dialect in held:
        lease = await client.get(Lease, held[program.dialect], namespace=namespace)
        assert not lease.spec.holder_identity


async def test_the_role_of_shipshape_is_enough(full, client, namespace, start, tmp_path):
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "patch"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
    ]
    limited = await full.user(f"shipshape-{namespace}", rules, namespace=namespace)
    original = ORIGINALS[0](namespace)
    await put_source(client, namespace, "a")
    await put_workload(client, original, "a")
    process = await start("shipshape", namespace, "--kubeconfig", str(limited))

    async def applied():
        return "steersman.dev/applied" in (await client.get(Deployment, "web", namespace=namespace)).annotations

    await eventually(applied, "it is taken over", timeout=LONG)
    await put_source(client, namespace, "b")

    async def restarted():
        marks = (await client.get(Deployment, "web", namespace=namespace)).spec.template.metadata.annotations or {}
        return (
            marks.items()
            >= {"shipshape.io/config-hash-app": original.template("b")["shipshape.io/config-hash-app"]}.items()
        )

    await eventually(restarted, "it is restarted", timeout=LONG)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


ROLES = {  # as their manifests and charts grant them, in all namespaces
    "xing": [
        {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get", "watch", "list"]},
        {
            "apiGroups": ["apps", "extensions"],
            "resources": ["deployments", "statefulsets"],
            "verbs": ["get", "watch", "list", "patch"],
        },
    ],
    "wave": [
        {
            "apiGroups": [""],
            "resources": ["configmaps", "secrets"],
            "verbs": ["list", "get", "update", "patch", "watch"],
        },
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "update", "patch"]},
        {
            "apiGroups": ["apps"],
            "resources": ["deployments", "daemonsets", "statefulsets"],
            "verbs": ["list", "get", "update", "patch", "watch"],
        },
    ],
}


@pytest.mark.parametrize("profile", ROLES)
async def test_the_cluster_roles_of_xing_and_wave_are_enough(full, client, namespace, start, profile):
    limited = await full.user(f"{profile}-{namespace}", ROLES[profile])
    original = next(program for program in ORIGINALS if program.dialect == profile)(namespace)
    await put_source(client, namespace, "a")
    await put_workload(client, original, "a")
    process = await start(profile, namespace, "--kubeconfig", str(limited), flags=())

    async def template():
        return (await client.get(Deployment, "web", namespace=namespace)).spec.template.metadata.annotations or {}

    async def applied():
        return "steersman.dev/applied" in (await client.get(Deployment, "web", namespace=namespace)).annotations

    await eventually(applied, "it is taken over", timeout=LONG)
    before = await template()
    await put_source(client, namespace, "b")

    async def restarted():
        return await template() != before

    await eventually(restarted, "it is restarted", timeout=LONG)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


async def test_a_flag_that_is_wrong_is_one_line_and_ends_as_wrong_usage(full, namespace, tmp_path):
    process = await asyncio.create_subprocess_exec(
        STEERSMAN,
        *("reload", "--profile", "reloader", "--webhook-url=hooks.example.org"),
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        stderr=asyncio.subprocess.PIPE,
    )
    _, error = await process.communicate()
    assert process.returncode == 2
    assert error.decode().startswith("error: --webhook-url: ")
    assert error.decode().count("\n") == 1
