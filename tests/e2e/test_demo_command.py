from __future__ import annotations

import asyncio
import base64
import os
import pty
import re
import signal
import sys
from pathlib import Path

import aiohttp
import pytest
import yaml

from steersman.testing import RawApi
from steersman.testing.raw_api import ssl_context

STEERSMAN = Path(sys.executable).with_name("steersman")


pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]


@pytest.fixture
async def demo():
    """Start a program; one that a failed test leaves behind is told to end, and takes its operator with it."""
    started = []

    async def start(*arguments, **options):
        started.append(await asyncio.create_subprocess_exec(*arguments, **options))
        return started[-1]

    yield start
    for process in started:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def test_away_from_a_terminal_the_demo_shows_its_story_and_ends(demo, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = await demo(
        STEERSMAN,
        *("demo", "--quiet-period", "5s", "--record", str(tmp_path / "demo.svg")),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, (out.decode(), errors.decode())
    story = re.sub(r" +", " ", out.decode())
    for line in (
        "→ a shop: 13 workloads",
        "3 workloads would restart",
        "→ deployment/frontend: one rollout, for configmap/features#banner secret/session#key",
        "frontend restarts when",
        "→ the operator has seen it; 0 restarts, 0 writes",
        "→ deployment/checkout and deployment/payments were restarted: nothing is lost",
        "→ deployment/search: circuit open, budget used up (3 restarts in 1h)",
        "is written by",
        "→ deployment/catalog: rollout failed",
        "→ wave 2 waits: deployment/catalog failed for the same change",
        "→ its page: http://127.0.0.1:",
    ):
        assert line in story
    assert "kubeconfig" not in story  # nothing is offered that has gone
    assert "circuit open" in (tmp_path / "demo.svg").read_text().replace("&#160;", " ")
    assert not list(scratch.iterdir())


async def test_on_a_terminal_the_server_stays_up_until_it_is_asked_to_end(demo):
    ours, theirs = pty.openpty()
    process = await demo(STEERSMAN, "demo", "--quiet-period", "5s", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = ""
    while "Ctrl-C ends it" not in seen:
        seen += (await asyncio.to_thread(os.read, ours, 65536)).decode(errors="replace")
    config = Path(re.search(r"export KUBECONFIG=(\S+)", seen)[1])
    url = re.search(r"status --url (\S+)", seen)[1]
    access = access_in(config)
    async with RawApi(access["server"], token=access["token"], ssl_context=ssl_context(access["ca"])) as api:
        answer = await api.get("/apis/apps/v1/namespaces/shop/deployments/frontend")
        assert answer.body["spec"]["replicas"] == 3
    async with aiohttp.ClientSession() as session, session.get(f"{url}/api/v1/now") as told:
        assert [node["name"] for node in (await told.json())["circuits"]] == ["search"]
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 0
    os.close(ours)
    assert gone(config)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(url)


async def test_a_demo_that_is_asked_to_end_leaves_no_process_behind(demo):
    process = await demo(STEERSMAN, "demo", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE)
    seen = ""
    while "its page" not in seen:
        line = (await process.stdout.readline()).decode()
        assert line, seen
        seen += line
    url = re.search(r"its page: (\S+)", seen)[1]
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    assert process.returncode == 143
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(url)


def access_in(config: Path) -> dict[str, str]:
    document = yaml.safe_load(config.read_text())
    cluster = document["clusters"][0]["cluster"]
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return {"server": cluster["server"], "ca": ca, "token": document["users"][0]["user"]["token"]}


def gone(path: Path) -> bool:
    return not path.exists()
