"""kopf, with its default settings. See bench/contenders.py."""

from __future__ import annotations

import base64
import json
import os
import signal
import ssl
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import yaml

GROUP = "bench.example.org"


def say(**facts: Any) -> None:
    """Tell the benchmark."""
    print(json.dumps(facts), flush=True)


def sync(count: int) -> None:
    """Objects in a dict, by a handler. Its indexes are no alternative: see docs/performance.md."""
    held: dict[str, Any] = {}

    @kopf.on.event("configmaps")
    async def seen(namespace, name, body, **_):
        if namespace == "bench":
            held[name] = body
            if len(held) == count:
                say(synced=count)


def events() -> None:
    """How late each update arrives; kopf gives handlers the newest of what came within its batch window.

    A watch too far behind is ended by the server; kopf lists then, and the last change may never come as one.
    So it also says what it has handled when it is sent SIGUSR1.
    """
    lags: list[float] = []
    known: set[str] = set()

    def report(*_: Any) -> None:
        handled = sorted(lags) or [0.0]
        say(events=len(lags), p50=handled[len(handled) // 2], p99=handled[int(0.99 * (len(handled) - 1))])

    signal.signal(signal.SIGUSR1, report)

    @kopf.on.event(GROUP, "v1", "ticks")
    async def seen(name, spec, type, **_):  # noqa: A002  kopf passes arguments by name
        if type is None:
            known.add(name)
            if len(known) == int(os.environ["BENCH_OBJECTS"]):
                say(synced=True)
        elif name == "end":
            report()
        else:
            lags.append((time.time_ns() - int(spec["sent"])) / 1e9)


def controllers() -> None:
    """One child per Gadget, applied with a bare HTTP client, which is the cheapest there is for kopf."""
    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=ca)
    sessions: list[aiohttp.ClientSession] = []

    @kopf.on.startup()
    async def configure(settings, **_):
        settings.posting.enabled = False
        settings.scanning.disabled = True
        sessions.append(
            aiohttp.ClientSession(
                headers={
                    "Authorization": f"Bearer {user['token']}",
                    "Content-Type": "application/apply-patch+yaml",
                    "User-Agent": "kopf-bench",
                },
                connector=aiohttp.TCPConnector(ssl=context, limit=16),
            )
        )

    @kopf.on.create(GROUP, "v1", "gadgets")
    @kopf.on.update(GROUP, "v1", "gadgets")
    @kopf.on.resume(GROUP, "v1", "gadgets")
    async def reconcile(body, name, namespace, **_):
        child = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace},
            "data": {"of": name},
        }
        kopf.append_owner_reference(child, owner=body)
        url = f"{cluster['server']}/api/v1/namespaces/{namespace}/configmaps/{name}"
        async with sessions[0].patch(url, params={"fieldManager": "bench", "force": "true"}, json=child) as answer:
            answer.raise_for_status()


def main() -> None:
    """Do what the benchmark asks for."""
    if sys.argv[1] == "sync":
        sync(int(sys.argv[2]))
    else:
        {"events": events, "controllers": controllers}[sys.argv[1]]()
    kopf.run(clusterwide=True, standalone=True)


if __name__ == "__main__":
    main()
