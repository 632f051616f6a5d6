from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from steersman.testing import ControlPlane, ControlPlaneError, Program, RawApi, eventually
from steersman.testing.controlplane.binaries import CONTROL_PLANE
from steersman.testing.raw_api import ssl_context
from steersman.testing.service_accounts import IdentityError

PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}

pytestmark = pytest.mark.real


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_the_server_says_which_version_it_is(real, kubectl):
    output = await kubectl("version")
    assert real.version == CONTROL_PLANE.version
    assert f"Server Version: {real.version}" in output.out
    assert f"Client Version: {real.version}" in output.out


async def test_a_namespace_exists_for_the_test_and_has_its_default_account(real, namespace, kubectl):
    async with real.api() as api:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        assert (await api.eventually(path, lambda answer: answer.status == 200)).name == "default"
    output = await kubectl("get", "configmaps", "-n", namespace, "-o", "name")
    assert output.out == "configmap/kube-root-ca.crt\n"


async def test_a_user_may_do_what_its_rules_say_and_nothing_else(real, namespace, kubectl, tmp_path):
    config = await real.user(f"{namespace}-user", [PODS], namespace=namespace)
    as_user = Program(kubectl.path, config, home=tmp_path)
    await as_user("get", "pods", "-n", namespace)
    refused = await as_user("get", "secrets", "-n", namespace, check=False)
    assert f'User "{namespace}-user" cannot list resource "secrets"' in refused.err
    elsewhere = await as_user("get", "pods", "-n", "default", check=False)
    assert elsewhere.code == 1


async def test_a_service_account_may_do_what_its_rules_say_in_its_namespace_or_everywhere(
    real, namespace, kubectl, tmp_path
):
    narrow = Program(kubectl.path, await real.service_account("narrow", [PODS], namespace=namespace), home=tmp_path)
    wide = await real.service_account("wide", [PODS], namespace=namespace, everywhere=True)
    wide = Program(kubectl.path, wide, home=tmp_path)
    await narrow("get", "pods")  # its kubeconfig names its namespace
    assert (await narrow("get", "pods", "-A", check=False)).code == 1
    await wide("get", "pods", "-A")


async def test_rights_that_the_server_rejects_are_an_error_that_names_the_request(real, namespace):
    with pytest.raises(IdentityError, match=rf"POST /apis/rbac.*/namespaces/{namespace}/roles: 422: .*verbs"):
        await real.user(f"{namespace}-wrong", [{**PODS, "verbs": []}], namespace=namespace)


async def test_a_wrong_token_is_refused(real):
    async with RawApi(real.url, token="wrong", ssl_context=ssl_context(real.ca_pem)) as api:
        assert (await api.get("/api/v1/namespaces")).status == 401


async def test_the_audit_log_counts_what_a_user_agent_asked_for(real, namespace):
    mark = real.audit.mark()
    async with real.api(user_agent=f"probe-{namespace}") as api:
        for _ in range(3):
            await api.get(f"/api/v1/namespaces/{namespace}/configmaps")
        await api.get(f"/api/v1/namespaces/{namespace}/secrets/none")
    probe = {"user_agent": f"probe-{namespace}", "since": mark}
    await eventually(lambda: real.audit.count(**probe) == 4)
    assert real.audit.count(**probe, verb="list", resource="configmaps", namespace=namespace) == 3
    (missing,) = real.audit.entries(**probe, verb="get")
    assert (missing.name, missing.status, missing.user) == ("none", 404, "admin")


async def test_the_audit_log_never_holds_a_body(real, namespace):
    async with real.api() as api:
        secret = {"metadata": {"name": "s"}, "stringData": {"password": f"hidden-{namespace}"}}
        await api.post(f"/api/v1/namespaces/{namespace}/secrets", secret)
    await eventually(lambda: real.audit.count(resource="secrets", namespace=namespace) == 1)
    assert f"hidden-{namespace}" not in (real.folder / "audit.log").read_text()


async def test_two_control_planes_run_side_by_side_and_share_nothing(real, namespace):
    async with ControlPlane() as other, other.api() as api:
        assert other.url != real.url
        assert (await api.get(f"/api/v1/namespaces/{namespace}")).status == 404
        async with RawApi(other.url, token=real.token, ssl_context=ssl_context(other.ca_pem)) as stranger:
            assert (await stranger.get("/api/v1/namespaces")).status == 401
        folder, processes = other.folder, other.processes
    assert not folder.exists()
    assert not any(alive(pid) for pid in processes.values())


async def test_old_resource_versions_can_be_made_to_expire_quickly():
    flags = ["--watch-cache=false", "--etcd-compaction-interval=2s"]
    async with ControlPlane(apiserver_flags=flags) as plane, plane.api() as api:
        old = (await api.get("/api/v1/namespaces")).revision

        async def gone() -> bool:
            await api.post("/api/v1/namespaces/default/configmaps", {"metadata": {"generateName": "tick-"}})
            query = {"resourceVersion": old, "resourceVersionMatch": "Exact"}
            return (await api.get("/api/v1/namespaces", **query)).status == 410

        await eventually(gone, "the first revision is compacted")


async def test_a_program_that_refuses_its_flags_is_an_error_with_the_end_of_its_log(tmp_path):
    with pytest.raises(ControlPlaneError, match=r"(?s)kube-apiserver ended with code 1.*unknown flag: --nonsense"):
        async with ControlPlane(apiserver_flags=["--nonsense"], folder=tmp_path):
            pass
    assert list(tmp_path.iterdir()) == []


async def test_a_program_that_never_becomes_ready_is_an_error_and_leaves_nothing_running(tmp_path):
    with pytest.raises(ControlPlaneError, match=r"(etcd|kube-apiserver) is not ready after 0\.2 s"):
        async with ControlPlane(patience=0.2, folder=tmp_path):
            pass
    assert list(tmp_path.iterdir()) == []


async def test_a_program_that_dies_is_named_with_the_end_of_its_log(tmp_path):
    async with ControlPlane(folder=tmp_path) as plane:
        plane.check()
        kill = await asyncio.create_subprocess_exec("kill", "-9", str(plane.processes["etcd"]))
        await kill.wait()
        await eventually(lambda: "etcd" not in plane.processes)
        with pytest.raises(ControlPlaneError, match="etcd ended with code -9; its last lines:"):
            plane.check()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
async def test_nothing_outlives_a_test_run_that_is_killed(tmp_path):
    program = (
        "import asyncio, pathlib\n"
        "from steersman.testing import LIFECYCLE_CONTROLLERS, ControlPlane\n"
        "async def main():\n"
        f"    folder = pathlib.Path({str(tmp_path)!r})\n"
        "    async with ControlPlane(controllers=LIFECYCLE_CONTROLLERS, folder=folder) as plane:\n"
        "        print(*plane.processes.values(), flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    run = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=subprocess.PIPE)
    assert run.stdout is not None
    processes = [int(pid) for pid in (await run.stdout.readline()).split()]
    assert len(processes) == 3
    assert all(alive(pid) for pid in processes)
    run.kill()
    await run.wait()
    await eventually(lambda: not any(alive(pid) for pid in processes), "every program has ended")


@pytest.mark.slow
async def test_the_whole_control_plane_rolls_out_a_deployment_on_simulated_nodes(full, namespace, kubectl):
    await full.add_nodes(f"{namespace}-a", f"{namespace}-b")
    await kubectl("create", "deployment", "web", "--image=web:1", "--replicas=3", "-n", namespace)
    await kubectl("rollout", "status", "deployment/web", "--timeout=120s", "-n", namespace)
    pods = await kubectl("get", "pods", "-n", namespace, "-o", "jsonpath={.items[*].status.phase}")
    assert pods.out == "Running Running Running"
    await kubectl("create", "job", "once", "--image=job:1", "-n", namespace)
    await kubectl("wait", "job/once", "--for=condition=complete", "--timeout=120s", "-n", namespace)
    await kubectl("delete", "deployment", "web", "--cascade=foreground", "--timeout=120s", "-n", namespace)


@pytest.mark.slow
async def test_helm_installs_a_chart(real, namespace, helm, tmp_path):
    chart = tmp_path / "hello"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: hello\nversion: 1.0.0\n")
    (chart / "templates" / "config.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  greeting: hello\n"
    )
    await helm("install", "greeter", str(chart), "--namespace", namespace)
    async with real.api() as api:
        made = await api.get(f"/api/v1/namespaces/{namespace}/configmaps/greeter")
    assert made.body["data"] == {"greeting": "hello"}
