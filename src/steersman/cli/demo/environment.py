"""The environment of the demo: an API server with a simulated cluster in this process, the operator in one of its own.

Nothing is scripted: the operator is `steersman run`, started and killed as a user would, and every fact that the demo
prints is read from the API server or from the operator's own API. A fact that does not come ends the demo.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import aiohttp
import msgspec

from steersman.apiserver import EmbeddedServer
from steersman.cli.demo.data import NAMESPACE
from steersman.cli.output import COLUMNS
from steersman.errors import SteersmanError
from steersman.kube.api.errors import KubeError
from steersman.kube.api.types.apps import Deployment
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.operators.reload.api.annotations import APPLIED
from steersman.operators.reload.planning.state import read_state
from steersman.simulate import simulation
from steersman.web.model import StatusReport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

T = TypeVar("T")

PATIENCE_SECONDS: Final = 90.0  # for a fact, on a machine that has other things to do
PAUSE_SECONDS: Final = 0.05
STOP_SECONDS: Final = 10.0
PROGRAM: Final = (sys.executable, "-c", "from steersman.cli.main import main; main()")

_CONFIG: Final = """\
reload:
  quietPeriod: 200ms
  maxDelay: 10s
  budget: {restarts: 3, per: 1h}
"""


class Stage:
    """Where the story plays."""

    def __init__(
        self, server: EmbeddedServer, client: Client, folder: Path, session: aiohttp.ClientSession, operators: str
    ) -> None:
        self.server = server
        self.client = client
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._session = session
        self._operators = operators
        self._process: asyncio.subprocess.Process | None = None
        self._log = folder / "operator.log"
        self._port = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, *, operators: str = "reload", config: str = "") -> AsyncIterator[Stage]:
        """A cluster without anything in it; everything is gone at the end, the operator too.

        `config` is added to its settings.
        """
        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(EmbeddedServer())
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="steersman-demo-")))
            server.write_kubeconfig(folder / "kubeconfig")
            (folder / "steersman.yaml").write_text(_CONFIG + config)
            client = await stack.enter_async_context(Client.connect(load_config(folder / "kubeconfig")))
            await stack.enter_async_context(simulation(client))
            session = await stack.enter_async_context(aiohttp.ClientSession())
            stage = cls(server, client, folder, session, operators)
            stack.push_async_callback(stage.stop)
            yield stage

    # -- the operator --------------------------------------------------------------------------------------------------

    @property
    def page(self) -> str:
        """The address of the operator's page."""
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Start the operator, and return when it is ready."""
        with self._log.open("ab") as log:
            began = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                *PROGRAM,
                *("run", "--operators", self._operators, "--config", str(self.folder / "steersman.yaml")),
                *("--listen", f"127.0.0.1:{self._port}", "--kubeconfig", str(self.kubeconfig), "--log-format", "json"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which ends it
            )
        self._port = await wait_for(lambda: self._heard(began), "the operator listens")
        await wait_for(self._ready, "the operator is ready")

    async def kill(self) -> int:
        """Kill the operator as a lost machine would; returns its process id."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()
        return self._process.pid

    async def stop(self) -> None:
        """End the operator, if it runs."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _heard(self, began: int) -> int:
        """The port that the operator's log names since then; 0: not yet."""
        text = self._log.read_bytes()[began:].decode(errors="replace")
        if self._process is not None and self._process.returncode is not None:
            last = (text.strip() or "no output").splitlines()[-1]
            raise SteersmanError(f"the operator ended with code {self._process.returncode}: {last}")
        for line in text.splitlines():
            with contextlib.suppress(msgspec.DecodeError):
                entry = msgspec.json.decode(line)
                if isinstance(entry, dict) and entry.get("event") == "listening":
                    return int(entry["port"])
        return 0

    async def _ready(self) -> bool:
        async with self._session.get(f"{self.page}/readyz") as answer:
            return answer.status == 200

    async def status(self) -> StatusReport:
        """What the operator says of itself."""
        async with self._session.get(f"{self.page}/api/v1/status") as answer:
            return msgspec.json.decode(await answer.read(), type=StatusReport)

    async def caught_up(self, revision: str, kind: str = "configmaps") -> bool:
        """Whether the operator has seen a revision of a kind, and has nothing left to do about it."""
        status = await self.status()
        watches = [watch for watch in status.health.vitals.watches if watch.name == kind]
        idle = not any(queue.ready or queue.running for queue in status.health.vitals.controllers)
        return (
            idle
            and not status.now.pending
            and any(int(watch.revision) >= int(revision) for watch in watches if watch.revision.isdecimal())
        )

    # -- the cluster -------------------------------------------------------------------------------------------------

    async def apply(self, manifest: Mapping[str, Any], *, by: str = "kubectl") -> Any:
        """Apply an object as the field manager `by`."""
        return await self.client.apply(dict(manifest), field_manager=by, force=True)

    async def deployment(self, name: str) -> Deployment:
        """A Deployment of the shop."""
        return await self.client.get(Deployment, name, namespace=NAMESPACE)

    async def restarts(self) -> dict[str, int]:
        """How often each Deployment was restarted, from its annotation."""
        found = await self.client.list(Deployment, namespace=NAMESPACE)
        return {live.name: restarts_of(live) for live in found.items}

    async def command(self, *arguments: str, text: str = "", width: int) -> tuple[int, str]:
        """Run one of our own commands on this cluster; its exit code and what it prints on a screen of this width."""
        process = await asyncio.create_subprocess_exec(
            *PROGRAM,
            *arguments,
            *("--kubeconfig", str(self.kubeconfig)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, COLUMNS: str(width)},
        )
        out, _ = await process.communicate(text.encode())
        return process.returncode or 0, out.decode(errors="replace").rstrip()


def restarts_of(live: Deployment) -> int:
    """How often a Deployment was restarted, from its annotation."""
    applied = read_state(live.annotations.get(APPLIED)).applied
    return 0 if applied is None else len(applied.restarts)


async def wait_for(fact: Callable[[], Awaitable[T | None]], what: str) -> T:
    """Ask until the answer is true, and return it; SteersmanError when it never is."""
    until, last = time.monotonic() + PATIENCE_SECONDS, ""
    while True:
        try:
            answer = await fact()
            if answer:
                return answer
        except (KubeError, aiohttp.ClientError) as error:
            last = f" ({error})"
        if time.monotonic() >= until:
            raise SteersmanError(f"the demo waited {PATIENCE_SECONDS:g} s without success: {what}{last}")
        await asyncio.sleep(PAUSE_SECONDS)
