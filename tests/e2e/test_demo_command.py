from __future__ import annotations

import asyncio
import base64
import os
import pty
import re
import signal
import sys
from pathlib import Path

import yaml

from steersman.testing import RawApi
from steersman.testing.rawapi import ssl_context

STEERSMAN = Path(sys.executable).with_name("steersman")


async def test_away_from_a_terminal_the_demo_tells_its_story_and_ends():
    process = await asyncio.create_subprocess_exec(
        STEERSMAN, "demo", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    story = re.sub(r" +", " ", out.decode())
    for line in (
        "⟵ ADDED configmap/app with mode=quiet",
        "⟵ MODIFIED configmap/app with mode=loud",
        "→ 409 Conflict: the second write is refused",
        "⟵ MODIFIED configmap/app with mode=silent",
        "⟵ DELETED configmap/app with mode=silent",
        '→ 409 Conflict: .spec.replicas: conflict with "platform"',
        "→ spec.replicas now belongs to capacity",
        "→ 422 Invalid: metadata.name",
    ):
        assert line in story


async def test_on_a_terminal_the_server_stays_up_until_it_is_told_to_end():
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(STEERSMAN, "demo", stdin=theirs, stdout=theirs)
    os.close(theirs)
    seen = ""
    while "Ctrl-C ends it" not in seen:
        seen += (await asyncio.to_thread(os.read, ours, 65536)).decode()
    config = Path(re.search(r"export KUBECONFIG=(\S+)", seen)[1])
    access = access_in(config)
    async with RawApi(access["server"], token=access["token"], ssl_context=ssl_context(access["ca"])) as api:
        answer = await api.get("/apis/apps/v1/namespaces/default/deployments/web")
        assert answer.body["spec"]["replicas"] == 5
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 0
    os.close(ours)
    assert gone(config)


def access_in(config: Path) -> dict[str, str]:
    document = yaml.safe_load(config.read_text())
    cluster = document["clusters"][0]["cluster"]
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return {"server": cluster["server"], "ca": ca, "token": document["users"][0]["user"]["token"]}


def gone(path: Path) -> bool:
    return not path.exists()
