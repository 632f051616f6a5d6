from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
import yaml

from steersman.testing import eventually
from steersman.testing.controlplane.binaries import find_program

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user of their own, who shares only the built programs."""
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(find_program("kubectl").parent))
    monkeypatch.setenv("STEERSMAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "cache" / "programs").mkdir(parents=True)
    for folder in find_program("kubectl").parent.parent.glob("controlplane-*"):
        (tmp_path / "cache" / "programs" / folder.name).symlink_to(folder)
    return tmp_path


async def steersman(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("steersman"),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(*paths: str) -> bool:
    return not any(Path(path).exists() for path in paths)


async def test_up_returns_when_it_is_usable_and_down_leaves_nothing(home):
    assert (await steersman("controlplane", "status"))[0] == 3
    config = home / "my.kubeconfig"
    code, out, err = await steersman("controlplane", "up", "--kubeconfig-out", str(config))
    assert (code, err) == (0, "")
    assert f"export KUBECONFIG={config}" in out
    assert config.stat().st_mode & 0o077 == 0
    kubectl = await asyncio.create_subprocess_exec(find_program("kubectl"), "--kubeconfig", config, "get", "ns")
    assert await kubectl.wait() == 0

    code, out, _ = await steersman("controlplane", "status", "-o", "json")
    running = json.loads(out)
    assert code == 0
    assert set(running["processes"]) == {"etcd", "kube-apiserver", "kube-controller-manager"}
    assert yaml.safe_load((await steersman("controlplane", "status", "-o", "yaml"))[1]) == running

    code, out, err = await steersman("controlplane", "up")
    assert (code, running["url"] in out) == (0, True)
    assert "already running" in err

    assert (await steersman("controlplane", "down"))[0] == 0
    assert not any(alive(pid) for pid in running["processes"].values())
    assert gone(running["folder"], running["kubeconfig"])
    assert (await steersman("controlplane", "down"))[1] == "no control plane is running\n"


async def test_a_killed_supervisor_takes_everything_with_it_and_up_starts_afresh(home):
    assert (await steersman("controlplane", "up"))[0] == 0
    running = json.loads((await steersman("controlplane", "status", "-o", "json"))[1])
    os.kill(running["pid"], signal.SIGKILL)
    await eventually(lambda: not any(alive(pid) for pid in running["processes"].values()))
    assert (await steersman("controlplane", "status"))[0] == 3
    assert (await steersman("controlplane", "up"))[0] == 0
    assert gone(running["folder"])
    assert (await steersman("controlplane", "down"))[0] == 0


async def test_when_a_program_ends_the_supervisor_ends_the_rest(home):
    assert (await steersman("controlplane", "up"))[0] == 0
    running = json.loads((await steersman("controlplane", "status", "-o", "json"))[1])
    os.kill(running["processes"]["etcd"], signal.SIGKILL)
    await eventually(lambda: not alive(running["pid"]))
    assert not any(alive(pid) for pid in running["processes"].values())
    assert "etcd ended with code -9" in (home / "cache" / "controlplane" / "supervisor.log").read_text()


async def test_a_control_plane_that_does_not_start_says_why(home):
    code, _, err = await steersman("controlplane", "up", "--apiserver-flag=--nonsense")
    assert code == 1
    assert err.startswith("error: kube-apiserver ended with code 1")
    assert "unknown flag: --nonsense" in err


async def test_build_says_where_the_programs_are(home):
    code, out, _ = await steersman("controlplane", "build")
    assert code == 0
    assert (Path(out.strip()) / "kubectl").exists()
