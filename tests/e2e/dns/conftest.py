"""Two primaries and a secondary that exist already, and the operator as a process that is easily killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.dns.zones import Site

STEERSMAN = Path(sys.executable).with_name("steersman")
CONFIG = "dns: {driftPeriod: 2s, notReadyPeriod: 2s}\nnamespaces: [%s]\n"

# Loads the program once; every line on its input starts `steersman` with those words, in a process of its own.
_NURSERY = """
import gc, os, sys
from steersman.cli.main import main
import steersman.cli.run, steersman.cli.config
import steersman.operators.dns.controllers.setup, steersman.runtime.manager.run
import steersman.web.access, steersman.web.site, structlog
gc.freeze()
for line in sys.stdin:
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        main(line.split())
    print(child, flush=True)
    os.waitpid(child, 0)
    print("ended", flush=True)
"""


class Steersman:
    """`await start()` and `await kill()` the operator, `await ask(…)` a command."""

    def __init__(self, folder, log):
        self._folder, self._log = folder, log
        self._nursery = None
        self.pid = 0

    @property
    def _environment(self):
        return {"KUBECONFIG": str(self._folder / "kubeconfig"), "PATH": "/usr/bin:/bin", "HOME": str(self._folder)}

    async def start(self):
        if self._nursery is None:
            self._nursery = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                _NURSERY,
                env=self._environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=self._log,
            )
        config = self._folder / "steersman.yaml"
        words = f"run --operators dns --config {config} --listen 127.0.0.1:0 --log-level warning --log-format text\n"
        self._nursery.stdin.write(words.encode())
        self.pid = int(await self._nursery.stdout.readline())

    async def kill(self):
        """kill -9, and return when it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        assert await self._nursery.stdout.readline() == b"ended\n"
        self.pid = 0

    async def ask(self, *arguments):
        process = await asyncio.create_subprocess_exec(
            STEERSMAN, *arguments, env=self._environment, stdout=asyncio.subprocess.PIPE, stderr=self._log
        )
        out, _ = await process.communicate()
        return process.returncode, out.decode()

    async def close(self):
        if self._nursery is not None:
            if self.pid:
                os.kill(self.pid, signal.SIGKILL)
            self._nursery.kill()
            await self._nursery.wait()


@pytest.fixture
async def site(real, client, dns_kinds, namespace, named):
    async with named("ns1") as ns1, named("ns2", secret=ns1.secret) as ns2, named("ns3", secret=ns1.secret) as ns3:
        made = Site(client, namespace, [ns1, ns2], [ns3])
        await made.instances()
        await made.zone("example.org")
        yield made


@pytest.fixture
async def steersman(real, tmp_path, namespace):
    real.write_kubeconfig(tmp_path / "kubeconfig")
    (tmp_path / "steersman.yaml").write_text(CONFIG % namespace)
    with (tmp_path / "log").open("ab") as log:
        made = Steersman(tmp_path, log)
        yield made
        await made.close()
    print((tmp_path / "log").read_text()[-6000:])  # noqa: T201  # shown when the test fails
