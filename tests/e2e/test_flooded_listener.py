"""A process with few descriptors and many callers that send half a request."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from pathlib import Path

import aiohttp
import pytest

from steersman.apiserver import EmbeddedServer
from steersman.testing.controlplane.processes import Child
from steersman.testing.waiting import eventually

STEERSMAN = Path(sys.executable).with_name("steersman")
RUN = ("run", "--operators", "reload", "--listen", "127.0.0.1:0", "--log-format", "json")
DESCRIPTORS = 128
CALLERS = 300
LOG_BYTES = 16 * 1024

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


@pytest.fixture
async def process(tmp_path):
    """`steersman run` with few descriptors, and the address it listens on."""
    async with EmbeddedServer() as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        command = f'ulimit -n {DESCRIPTORS}; exec "$0" "$@"'
        child = Child(
            ["/bin/sh", "-c", command, STEERSMAN, *RUN],
            log=tmp_path / "log",
            environment={**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig")},
        )
        try:
            await eventually(lambda: port_in(child.log) is not None, timeout=60)
            await eventually(lambda: ask(port_in(child.log), "/readyz"), timeout=60)
            yield child
        finally:
            await child.stop(deadline=30)


def port_in(log: Path) -> int | None:
    lines = [json.loads(line) for line in log.read_text().splitlines() if '"listening"' in line]
    return lines[0]["port"] if lines else None


async def ask(port: int | None, path: str) -> bool:
    """Whether a probe is answered, and well."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status == 200


@pytest.fixture
async def flood(process):
    """Open connections that never send a complete header."""
    held: list[asyncio.StreamWriter] = []
    port = port_in(process.log)

    async def open_one() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        held.append(writer)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half")

    async def open_many(number: int) -> None:
        await asyncio.gather(*(open_one() for _ in range(number)))

    yield open_many
    for writer in held:
        writer.transport.abort()


def lines_of(process: Child) -> list[dict[str, object]]:
    """The log, which is small and all JSON whatever callers do."""
    text = process.log.read_text()
    assert len(text) < LOG_BYTES
    return [json.loads(line) for line in text.splitlines()]


async def test_probes_are_answered_and_the_log_stays_small_while_callers_send_half_a_request(process, flood):
    port = port_in(process.log)
    async with asyncio.timeout(120):
        for _ in range(CALLERS // 10):
            await flood(10)
            assert await ask(port, "/livez")
        assert await ask(port, "/healthz")
        assert await ask(port, "/readyz")
    told = [line for line in lines_of(process) if str(line["event"]).startswith("too many connections")]
    assert len(told) == 1


async def test_probes_are_answered_while_the_system_gives_no_descriptor_and_one_line_says_so(process, flood):
    port = port_in(process.log)
    taken = {int(name) for name in os.listdir(f"/proc/{process.pid}/fd")}  # noqa: PTH208  not a disk: never blocks
    left = next(number for number in range(len(taken) + 1) if number not in taken)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (left, left))
    async with asyncio.timeout(120):
        for _ in range(20):
            await flood(5)
            assert await ask(port, "/livez")
    told = [line for line in lines_of(process) if line["event"] == "connections cannot be accepted"]
    assert [line["why"] for line in told] == ["Too many open files"]
