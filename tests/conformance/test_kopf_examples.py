"""kopf's example operators, unchanged, on the embedded server with simulated workloads.

The examples come from kopf's source distribution. Each runs as `kopf run` on a server of its own, gets the objects of
the examples, and must log what kopf's own end-to-end tests want to read. Those tests sleep; this one waits for the
lines.
Not run: 12-embedded, which is not for `kopf run`; 17-admission, whose certificates need a fix of oscrypto that is not
released (see kopf's pyproject.toml); 99-all-at-once, the sum of the others, which retries only after a minute.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import Struct

from steersman.apiserver import EmbeddedServer
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.simulate import simulation
from steersman.testing.controlplane.binaries import BinariesError, find_program
from steersman.testing.plugin import unavailable
from steersman.testing.programs import Program
from tests.support.programs.python_environments import python_environment
from tests.support.programs.source_distributions import source_distribution

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LOCK = Path(__file__).with_name("clients") / "requirements.lock"
SECONDS = 180  # until a line is there, on a machine that has much else to do

CREATED = ("[default/kopf-example-1] Creation is in progress:", "[default/kopf-example-1] Creation is processed:")
DELETED = ("[default/kopf-example-1] Deleted, really deleted",)
FINALIZED = (
    "[default/kopf-example-1] Adding the finalizer",
    "[default/kopf-example-1] Deletion is in progress:",
    *DELETED,
)


class Example(Struct, frozen=True):
    """What is done with an example, and what it logs by then."""

    steps: tuple[tuple[str, tuple[str, ...]], ...]  # (a kubectl command, lines that follow)
    tracebacks: bool = False  # it shows how errors look
    ready: str = "Client is configured"
    ends: tuple[str, ...] = ()


def lives(*created: str, deleted: tuple[str, ...] = DELETED, tracebacks: bool = False) -> Example:
    """An example about the object of all examples: it comes and goes."""
    steps = (("apply -f examples/obj.yaml", created), ("delete -f examples/obj.yaml", deleted))
    return Example(steps, tracebacks=tracebacks)


EXAMPLES = {
    "01-minimal": lives(*CREATED, "And here we are! Creating:", "'create_fn' succeeded"),
    "02-children": Example(
        (
            ("apply -f examples/obj.yaml", (*CREATED, "'create_fn' succeeded")),
            ("wait pod --all --for=condition=Ready --timeout=120s", ()),
            ("delete -f examples/obj.yaml", DELETED),
            ("wait pod --all --for=delete --timeout=120s", ()),
        )
    ),
    "03-exceptions": lives(
        *CREATED,
        "'instant_failure_with_only_a_message' failed permanently",
        "'instant_failure_with_traceback' failed with an exception and will stop",
        "'eventual_failure_with_tracebacks' failed with an exception",
        "'eventual_success_with_a_few_messages' succeeded",
        tracebacks=True,
    ),
    "04-events": Example(
        (
            ("apply -f examples/obj.yaml", CREATED),
            ("wait event --all --for=jsonpath={.reason} --timeout=120s", ()),
            ("delete -f examples/obj.yaml", DELETED),
        )
    ),
    "05-handlers": lives(*CREATED, "CREATED 1st", "CREATED 2nd", deleted=("DELETED 1st", "DELETED 2nd", *FINALIZED)),
    "06-peering": lives(*CREATED),
    "07-subhandlers": lives(*CREATED, "=== Handling creation for item1. ===", "=== Handling creation for item2. ==="),
    "08-events": lives(
        "Event received: {'type': 'ADDED'", deleted=("Event received: {'type': 'DELETED'",), tracebacks=True
    ),
    "09-testing": lives(*CREATED, "Something was logged here."),
    "10-builtins": Example(
        (
            ("run guest --image=busybox", ("[default/guest] === Pod killing happens in 30s.",)),
            ("delete pod guest", ("[default/guest] === Pod killing is cancelled!",)),
        )
    ),
    "11-filtering-handlers": Example(
        (
            (
                "apply -f examples/obj.yaml",
                (
                    *CREATED,
                    *("Label is matching.", "Label is present.", "Label is absent.", "Label callback matching."),
                    *("Annotation is matching.", "Annotation is present.", "Annotation is absent."),
                    *("Filter satisfied.", "Field value is satisfied.", "Field presence is satisfied."),
                    "Field daemon is satisfied.",
                ),
            ),
            (
                'patch -f examples/obj.yaml --type merge -p {"spec":{"field":"changed"}}',
                ("Field change is satisfied.",),
            ),
            ("delete -f examples/obj.yaml", DELETED),
        )
    ),
    "13-hooks": Example(
        (("run guest --image=busybox", ("Served by the background task.",)), ("delete pod guest", ())),
        ready="Logging in in 2s...",
        ends=("Cleaning up...", "All pod-tasks are requested to stop...", "'cleanup_fn' succeeded"),
    ),
    "14-daemons": lives(
        "=> Ping from a sync daemon: field='value', retry=3",
        "=> Ping from an async daemon: field='value'",
        deleted=("[default/kopf-example-1] Daemon 'background_sync' has exited on request",),
    ),
    "15-timers": lives("Ping from a sync timer: field='value'", deleted=()),
    "16-indexing": lives("'intervalled' succeeded", deleted=()),
}
UNWANTED = ("Annotation callback mismatch.", "Filter not satisfied.", "is not satisfied.")


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", EXAMPLES)
async def test_an_example_operator_of_kopf_runs_unchanged(name: str, tmp_path: Path):
    example = EXAMPLES[name]
    try:
        python, sources = python_environment("conformance-clients", LOCK), source_distribution("kopf", LOCK)
        kubectl = Program(find_program("kubectl"), tmp_path / "kubeconfig", home=tmp_path)
    except BinariesError as error:
        unavailable(error)
    async with simulated_server(kubectl.kubeconfig):
        await kubectl("apply", "-f", str(sources / "examples/crd.yaml"))
        async with Operator(python, sources / "examples" / name / "example.py", kubectl) as operator:
            await operator.logs((example.ready,))
            for command, lines in example.steps:
                await kubectl(*(str(sources / word) if word.endswith(".yaml") else word for word in command.split()))
                await operator.logs(lines)
            code = await operator.stop()
        assert [line for line in example.ends if line not in operator.log] == []
        assert [line for line in UNWANTED if line in operator.log] == []
        assert ("Traceback (most recent call last):" in operator.log) == example.tracebacks
        assert code == 0, operator.log[-3000:]


@asynccontextmanager
async def simulated_server(kubeconfig: Path) -> AsyncIterator[None]:
    """A server like `steersman apiserver --simulate`."""
    async with EmbeddedServer() as server:
        server.write_kubeconfig(kubeconfig)
        async with Client.connect(load_config(kubeconfig)) as client, simulation(client):
            yield


class Operator:
    """`kopf run` and what it logs."""

    def __init__(self, python: Path, example: Path, kubectl: Program) -> None:
        command = ("-m", "kopf", "run", "--all-namespaces", "--standalone", "--verbose", str(example))
        self._command, self._environment = (str(python), *command), kubectl.environment
        self.log = ""
        self._more = asyncio.Condition()

    async def __aenter__(self) -> Operator:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            env=self._environment | {"PYTHONUNBUFFERED": "1"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._reading
        await self._process.wait()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while chunk := await self._process.stdout.read(65536):
            async with self._more:
                self.log += chunk.decode(errors="replace")
                self._more.notify_all()
        async with self._more:
            self._more.notify_all()

    async def logs(self, lines: tuple[str, ...]) -> None:
        """Wait until the operator has logged all of these."""
        missing = list(lines)
        try:
            async with asyncio.timeout(SECONDS), self._more:
                while missing := [line for line in lines if line not in self.log]:
                    assert not self._process.stdout.at_eof(), self.log[-3000:]  # type: ignore[union-attr]
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"{missing} missing in:\n{self.log[-5000:]}") from None

    async def stop(self) -> int:
        """Ask it to end, and say how it did."""
        os.kill(self._process.pid, signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            return await self._process.wait()
