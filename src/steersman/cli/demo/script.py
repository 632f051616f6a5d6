"""The steps that `steersman demo` shows: a small shop, and what happens when its configuration changes.

Every line that follows a `→` was read from the API server or from the operator, and every scene that does not end as
announced ends the demo with an error.
"""

from __future__ import annotations

import asyncio
import copy
import shutil
import signal
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from steersman.cli.demo.data import NAMESPACE, SHOP, configmap, secret
from steersman.cli.demo.environment import Stage, restarts_of, wait_for
from steersman.cli.exit_codes import ExitCode
from steersman.cli.output import print_hanging
from steersman.errors import SteersmanError
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types.apps import Deployment
from steersman.kube.api.types.core import Namespace
from steersman.kube.api.types.events import ReportedEvent
from steersman.kube.api.types.pods import Pod
from steersman.operators.reload.api.annotations import APPLIED, QUIET_PERIOD, RESTARTED_FOR, ROLLOUT_DEADLINE
from steersman.simulate.annotations import FAIL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from steersman.web.model import WorkloadNode

WIDTH: Final = 100  # of what a command prints, away from a terminal
FRAGILE: Final = "catalog"  # its new pods crash, whatever they are started for


async def play(out: Console, *, stay: bool, quiet: str = "500ms") -> None:
    """Run it; with `stay`, keep everything up until interrupted. `quiet` is how long two changes count as one."""
    story = Story(out, quiet)
    ending = asyncio.current_task()
    assert ending is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.cancel)
    async with Stage.open() as stage:
        await story.run(stage)
        if stay:
            await story.stay(stage)


class Story:
    """The scenes, in order."""

    def __init__(self, out: Console, quiet: str) -> None:
        self._out = out
        self._quiet = quiet
        self._began = time.perf_counter()

    async def run(self, stage: Stage) -> None:
        """All of them."""
        for scene in (
            self._opening,
            self._two_sources,
            self._unused_key,
            self._while_away,
            self._flapping,
            self._wave,
        ):
            await scene(stage)
        seconds = time.perf_counter() - self._began
        self._out.print()
        self._out.print(
            f"Done in {seconds:.1f} s with {len(stage.server.requests)} requests. No cluster was harmed.", style="bold"
        )

    # -- scenes ------------------------------------------------------------------------------------------------------

    async def _opening(self, stage: Stage) -> None:
        self._title(f"A cluster in memory, at {stage.server.url}")
        await stage.client.create(Namespace(metadata=ObjectMeta(name=NAMESPACE)))
        workloads = [manifest for manifest in SHOP if "spec" in manifest]
        starting = asyncio.create_task(stage.start())
        try:
            for manifest in SHOP:
                await stage.apply(self._staged(manifest), by="demo")
        finally:
            await starting
        self._answer(f"a shop: {len(workloads)} workloads, {len(SHOP) - len(workloads)} ConfigMaps and Secrets")
        await wait_for(lambda: self._seeded(stage), "the operator knows every workload")
        await self._heal(stage)
        changed = [name for name, number in (await stage.restarts()).items() if number]
        _expect(not changed, f"nothing restarts at first, but {', '.join(changed)} did")
        self._answer("the operator has recorded what each runs with, without a restart")
        self._answer(f"its page: {stage.page}")

    async def _two_sources(self, stage: Stage) -> None:
        self._title("Two sources change, one rollout follows")
        features = configmap("features", checkout="classic", banner="sale", recommendations="on")
        session = secret("session", key="rotated")
        code, text = await stage.command("plan", "-f", "-", "--live", text=_yaml(features, session), width=self._width)
        _expect(
            code == ExitCode.FOUND and "frontend" in text, f"plan foresees the restart of frontend, but says: {text}"
        )
        self._run("steersman plan -f change.yaml --live", text, lines=11)
        before = restarts_of(await stage.deployment("frontend"))
        self._step("apply configmap/features and secret/session")
        await asyncio.gather(stage.apply(features), stage.apply(session))
        live = await wait_for(lambda: _restarted(stage, "frontend", before), "frontend restarts")
        await wait_for(lambda: stage.caught_up(live.metadata.resource_version, "deployments.apps"), "all is applied")
        live = await stage.deployment("frontend")
        cause = (live.spec.template.metadata.annotations or {}).get(RESTARTED_FOR, "")
        rollouts = restarts_of(live) - before
        _expect(
            rollouts == 1 and "features" in cause and "session" in cause,
            f"one rollout for both, but there were {rollouts}, the last for {cause}",
        )
        self._answer(f"deployment/frontend: one rollout, for {cause}")
        code, text = await stage.command("why", "deployment/frontend", "-n", NAMESPACE, width=self._width)
        _expect(code == ExitCode.OK and "session" in text, f"why names the cause, but says: {text}")
        self._run("steersman why deployment/frontend -n shop", text, lines=5)

    async def _unused_key(self, stage: Stage) -> None:
        self._title("A key that no workload uses changes, and nothing happens")
        before = await stage.restarts()
        self._step("apply configmap/mail with one more key: footer")
        written = await stage.apply(configmap("mail", host="smtp.example", sender="shop@example.org", footer="Bye"))
        revision = written["metadata"]["resourceVersion"]
        await wait_for(lambda: stage.caught_up(revision), "the operator has seen it")
        moved = [name for name, number in (await stage.restarts()).items() if number != before[name]]
        _expect(not moved, f"no workload uses that key, but {', '.join(moved)} restarted")
        self._answer("the operator has seen it; 0 restarts, 0 writes")

    async def _while_away(self, stage: Stage) -> None:
        self._title("The operator is killed, and something changes while it is down")
        before = await stage.restarts()
        pid = await stage.kill()
        self._step(f"kill -9 {pid}; apply configmap/currencies")
        await stage.apply(configmap("currencies", default="EUR", accepted="EUR,USD,SEK,NOK"))
        self._step("start it again")
        await stage.start()
        for name in ("checkout", "payments"):
            await wait_for(partial(_restarted, stage, name, before[name]), f"{name} restarts")
        after = await stage.restarts()
        _expect(after["cart"] == before["cart"], "cart uses another key, and must not restart")
        self._answer("deployment/checkout and deployment/payments were restarted: nothing is lost")
        self._answer("deployment/cart uses another key of it and was not restarted")

    async def _flapping(self, stage: Stage) -> None:
        self._title("Two programs fight over a key, and the budget stops the restarts")
        self._step("apply configmap/search-index as helm and as index-tool, in turn")
        for number in range(4):
            before = restarts_of(await stage.deployment("search"))
            by = ("helm", "index-tool")[number % 2]
            await stage.apply(configmap("search-index", shards=str(5 + number % 2), language="en"), by=by)
            if number < 3:
                await wait_for(partial(_restarted, stage, "search", before), "search restarts")
        circuit = await wait_for(lambda: _found(stage, "circuits", "search"), "the circuit of search opens")
        self._answer(f"deployment/search: circuit open, {circuit.reason}")
        event = await wait_for(lambda: _event(stage, "search", "RestartBudgetUsed"), "an Event reports it")
        self._answer(f"Event: {event}")

    async def _wave(self, stage: Stage) -> None:
        self._title("A password is rotated wave by wave, and the first wave fails")
        before = await stage.restarts()
        self._step("apply secret/database; catalog is in wave 1, orders, payments and recommendations are in wave 2")
        await stage.apply(secret("database", username="shop", password="rotated"))  # noqa: S106  # of a shop that sells nothing
        failed = await wait_for(lambda: _found(stage, "failed", FRAGILE), "the rollout of catalog fails")
        note = failed.rollout.note if failed.rollout is not None else ""
        self._answer(f"deployment/{FRAGILE}: rollout failed, {note}")
        for name in ("orders", "payments", "recommendations"):
            held = await wait_for(partial(_halted, stage, name), f"{name} waits")
        after = await stage.restarts()
        moved = [name for name in ("orders", "payments", "recommendations") if after[name] != before[name]]
        _expect(not moved, f"the second wave must wait, but {', '.join(moved)} restarted")
        self._answer(f"wave 2 waits: {held.reason}")
        self._answer("three services still run with what works")

    # -- how a scene is set ------------------------------------------------------------------------------------------

    def _staged(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """The manifest with what the story needs: a longer window, no window, pods that will crash."""
        name, made = manifest["metadata"]["name"], copy.deepcopy(manifest)
        if "spec" not in manifest:
            return made
        marks = made["metadata"]["annotations"]
        if name in ("frontend", "cart", "sessions"):
            marks[QUIET_PERIOD] = self._quiet
        if name == FRAGILE:
            marks[ROLLOUT_DEADLINE] = "1s"
            made["spec"]["template"]["metadata"]["annotations"] = {FAIL: "crash"}
        return made

    async def _heal(self, stage: Stage) -> None:
        """The pods that run now are well; those that come later will crash."""

        async def pods() -> Sequence[Pod]:
            found = await stage.client.list(Pod, namespace=NAMESPACE, label_selector=f"app={FRAGILE}")
            return found.items if len(found.items) == 2 else ()

        for pod in await wait_for(pods, "catalog has its pods"):
            await stage.client.patch(Pod, pod.name, {"metadata": {"annotations": {FAIL: None}}}, namespace=NAMESPACE)
        await wait_for(lambda: _available(stage, FRAGILE, 2), "catalog is well")

    async def _seeded(self, stage: Stage) -> bool:
        live = (await stage.client.list(Deployment, namespace=NAMESPACE)).items
        return all(APPLIED in found.annotations for found in live if found.name != "legacy-erp")

    # -- words -------------------------------------------------------------------------------------------------------

    def _ways(self, stage: Stage) -> None:
        self._out.print(f"\npage        {stage.page}", soft_wrap=True)
        self._out.print(f"kubeconfig  {stage.kubeconfig}", soft_wrap=True)

    async def stay(self, stage: Stage) -> None:
        """Wait for an interrupt."""
        self._ways(stage)
        self._title("Everything stays up. In another terminal:")
        self._out.print(f"  export KUBECONFIG={stage.kubeconfig}", soft_wrap=True)
        if shutil.which("steersman") is None:
            self._out.print(f"  export PATH={sys.prefix}/bin:$PATH", soft_wrap=True)
        for command in (
            f"steersman status --url {stage.page}",
            f"steersman why deployment/payments -n {NAMESPACE}",
            f"kubectl -n {NAMESPACE} get deployments,events",
        ):
            self._out.print(f"  {command}", soft_wrap=True)
        if shutil.which("kubectl") is None:
            self._out.print("  # `steersman controlplane build` makes a kubectl, if you have Go")
        self._out.print("\nCtrl-C ends it.")
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        await ended.wait()

    def _title(self, text: str) -> None:
        self._out.print()
        self._out.print(Text(text, style="bold"), soft_wrap=True)

    def _step(self, text: str) -> None:
        print_hanging(self._out, "  ", text)

    def _answer(self, text: str) -> None:
        print_hanging(self._out, Text.assemble("  ", ("→ ", "green")), text)

    @property
    def _width(self) -> int:
        return self._out.width - 4 if self._out.is_terminal else WIDTH

    def _run(self, command: str, text: str, *, lines: int) -> None:
        self._out.print(Text.assemble("  ", ("$ ", "cyan"), (command, "bold")), soft_wrap=True)
        for line in text.splitlines()[:lines]:
            self._out.print(Text(f"    {line}".rstrip(), style="dim"), soft_wrap=True)


def _expect(holds: bool, expected: str) -> None:
    """A scene must end as announced."""
    if not holds:
        raise SteersmanError(f"the demo did not go as expected: {expected}")


def _yaml(*manifests: dict[str, Any]) -> str:
    import yaml

    return yaml.safe_dump_all(manifests)


async def _restarted(stage: Stage, name: str, before: int) -> Deployment | None:
    live = await stage.deployment(name)
    return live if restarts_of(live) > before else None


async def _available(stage: Stage, name: str, replicas: int) -> bool:
    live = await stage.deployment(name)
    return (live.status.available_replicas or 0) == replicas


async def _found(stage: Stage, part: str, name: str) -> WorkloadNode | None:
    nodes: list[WorkloadNode] = getattr((await stage.status()).now, part)
    return next((node for node in nodes if node.name == name), None)


async def _halted(stage: Stage, name: str) -> WorkloadNode | None:
    node = await _found(stage, "held", name)
    return node if node is not None and node.gate == "halt" else None


async def _event(stage: Stage, name: str, reason: str) -> str:
    found = await stage.client.list(ReportedEvent, namespace=NAMESPACE)
    return next(
        (
            event.note
            for event in found.items
            if event.reason == reason and event.regarding and event.regarding.name == name
        ),
        "",
    )
