"""`steersman run` with TLS, tokens, plain probes and profiles: the options reach the listener of the process."""

from __future__ import annotations

import json
import ssl
import sys
from pathlib import Path

import aiohttp
import pytest

from steersman.certificates import Authority
from steersman.testing import eventually
from steersman.testing.controlplane.processes import Child

EXAMPLE = Path(__file__).parents[2] / "examples" / "webapp.py"


@pytest.fixture
async def process(embedded, authority, tmp_path):
    pair = authority.server("127.0.0.1")
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    embedded.write_kubeconfig(tmp_path / "kubeconfig")
    where = ["--kubeconfig", tmp_path / "kubeconfig", "--listen", "127.0.0.1:0", "--probe-listen", "127.0.0.1:0"]
    options = ["--tls-certs", tmp_path, "--metrics", "token", "--profiling", "--log-format", "json"]
    child = Child([sys.executable, "-m", "steersman", "run", EXAMPLE, *where, *options], log=tmp_path / "log")
    yield child
    await child.stop(deadline=30)


@pytest.fixture
def authority() -> Authority:
    return Authority("test")


async def test_the_process_asks_for_tokens_over_tls_and_answers_probes_without(process, authority, embedded):
    def listening():
        lines = [json.loads(line) for line in process.log.read_text().splitlines()]
        return next((line for line in lines if line["event"] == "listening"), None)

    ports = await eventually(listening)
    trust = ssl.create_default_context(cadata=authority.pem.decode())
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:

        async def status(path: str, **headers: str) -> int:
            async with session.get(f"https://127.0.0.1:{ports['port']}{path}", headers=headers) as answer:
                return answer.status

        assert await status("/metrics") == 401
        assert await status("/metrics", Authorization=f"Bearer {embedded.token}") == 200
        assert await status("/debug/heap") == 200
        async with session.get(f"http://127.0.0.1:{ports['probes']}/livez") as probe:
            assert probe.status == 200
