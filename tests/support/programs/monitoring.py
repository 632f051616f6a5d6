"""Real Prometheus, Alertmanager and node-exporter, each on a free port of the loopback address.

    async with prometheus(folder) as url: ...

They are Debian's packages. They choose their ports themselves and say which, so two of them never meet.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from steersman.errors import SteersmanError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

__all__ = ["MonitoringError", "alertmanager", "node_exporter", "prometheus"]

_SECONDS = 90.0
_LISTENING = re.compile(r'(?i:listening on)"?,?\s.*?address"?[=:]\s*"?(?:127\.0\.0\.1|\[::\]):(\d+)')


class MonitoringError(SteersmanError):
    """A program is not there, or does not start."""


@asynccontextmanager
async def prometheus(folder: Path) -> AsyncIterator[str]:
    """A Prometheus without targets; gives its URL."""
    config = folder / "prometheus.yml"
    config.write_text("global: {scrape_interval: 1h}\n", encoding="utf-8")
    options = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    async with _running("prometheus", *options) as url:
        yield url


@asynccontextmanager
async def alertmanager(folder: Path) -> AsyncIterator[str]:
    """An Alertmanager of its own; gives its URL."""
    config = folder / "alertmanager.yml"
    config.write_text("route: {receiver: none}\nreceivers: [{name: none}]\n", encoding="utf-8")
    options = [f"--config.file={config}", f"--storage.path={folder / 'alertmanager'}", "--cluster.listen-address="]
    async with _running("prometheus-alertmanager", *options) as url:
        yield url


@asynccontextmanager
async def node_exporter(_folder: Path) -> AsyncIterator[str]:
    """A node-exporter; gives its URL. It answers /metrics, and nothing that a Prometheus answers."""
    async with _running("prometheus-node-exporter", "--collector.disable-defaults") as url:
        yield url


@asynccontextmanager
async def _running(program: str, *options: str) -> AsyncIterator[str]:
    path = shutil.which(program)
    if path is None:
        raise MonitoringError(f"there is no `{program}`; Debian's package of that name brings it")
    process = await asyncio.create_subprocess_exec(
        path,
        *options,
        "--web.listen-address=127.0.0.1:0",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    reading: asyncio.Task[None] | None = None
    try:
        port = await _port(process, program)
        reading = asyncio.create_task(_drain(process))
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.kill()
        if reading is not None:
            await reading
        await process.communicate()


async def _port(process: asyncio.subprocess.Process, program: str) -> int:
    assert process.stderr is not None
    said: list[str] = []
    try:
        async with asyncio.timeout(_SECONDS):
            async for line in process.stderr:
                said.append(line.decode(errors="replace").rstrip())
                if found := _LISTENING.search(said[-1]):
                    return int(found[1])
    except TimeoutError:
        pass
    raise MonitoringError(f"{program} does not listen:\n  " + "\n  ".join(said[-10:]))


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Read what it says, so that it never waits for a reader."""
    assert process.stderr is not None
    while await process.stderr.read(65536):
        pass
