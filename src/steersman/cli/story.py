"""The story that `steersman demo` plays: an API server in this process, and a client at work on it.

Every line that follows a `→` is what the server answered, and every line with a `⟵` came through a watch; nothing is
scripted output. On a terminal the server stays up afterwards, to be tried with kubectl; elsewhere the demo ends.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steersman.apiserver import EmbeddedServer
from steersman.errors import SteersmanError
from steersman.kube.client import Client
from steersman.kube.errors import Conflict, Invalid, KubeError, NotFound
from steersman.kube.kubeconfig import load_config
from steersman.kube.objects import LabelSelector, ObjectMeta
from steersman.kube.types.apps import Deployment, DeploymentSpec
from steersman.kube.types.core import ConfigMap
from steersman.kube.types.pods import Container, PodSpec, PodTemplateSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from steersman.kube.codec import WatchEvent

__all__ = ["play"]


async def play(*, stay: bool) -> None:
    """Tell it; with `stay`, keep the server up afterwards until interrupted."""
    started = time.perf_counter()
    async with EmbeddedServer() as server:
        ready = 1000 * (time.perf_counter() - started)
        with tempfile.TemporaryDirectory(prefix="steersman-demo-") as folder:
            config = Path(folder) / "kubeconfig"
            server.write_kubeconfig(config)
            async with Client.connect(load_config(config)) as client:
                _title(f"An API server in memory, ready in {ready:.0f} ms at {server.url}")
                _answer(f"it answers as Kubernetes {await client.server_version()}")
                await _configuration(client)
                await _ownership(client)
                await _mistakes(client)
            requests = len(server.requests)
            click.echo(f"\n{requests} requests in {time.perf_counter() - started:.1f} s. No cluster was harmed.")
            if stay:
                await _stay(config)


async def _configuration(client: Client) -> None:
    """One object through its whole life, seen by a watch."""
    _title("A ConfigMap is created, changed and deleted while a watch looks on")
    before = (await client.list(ConfigMap)).resource_version
    async with client.watch(ConfigMap, resource_version=before, namespace="default", timeout_seconds=60) as events:
        _step("create configmap/app with mode=quiet")
        app = await client.create(ConfigMap(metadata=ObjectMeta(name="app"), data={"mode": "quiet"}))
        _answer(f"created at revision {app.metadata.resource_version}")
        await _seen(events)

        _step("two people read it; the first writes mode=loud, the second writes mode=silent from the old copy")
        await client.replace(_with_mode(app, "loud"))
        await _seen(events)
        error = await _refused(client.replace(_with_mode(app, "silent")), Conflict)
        _answer(f"{error.code} {error.reason}: the second write is refused, so the first is not lost")
        _step("the second uses modify(), which reads again and repeats the change")
        await client.modify(ConfigMap, "app", lambda live: _with_mode(live, "silent"))
        await _seen(events)

        _step("delete configmap/app")
        await client.delete(ConfigMap, "app")
        await _seen(events)
        error = await _refused(client.get(ConfigMap, "app"), NotFound)
        _answer(f"{error.code} {error.reason}")


async def _ownership(client: Client) -> None:
    """Two managers apply to one Deployment, and the server knows who owns which field."""
    _title("Two teams apply to one Deployment")
    _step("platform applies deployment/web with image web:1 and 2 replicas")
    labels = {"app": "web"}
    web = Deployment(
        metadata=ObjectMeta(name="web"),
        spec=DeploymentSpec(
            replicas=2,
            selector=LabelSelector(match_labels=labels),
            template=PodTemplateSpec(
                metadata=ObjectMeta(labels=labels), spec=PodSpec(containers=[Container(name="web", image="web:1")])
            ),
        ),
    )
    live = await client.apply(web, field_manager="platform")
    _answer(f"generation {live.metadata.generation}, {live.spec.replicas} replicas")

    _step("capacity applies 5 replicas")
    five = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 5}}
    error = await _refused(client.apply(five, field_manager="capacity"), Conflict)
    _answer(f"{error.code} {error.reason}: {', '.join(map(str, error.causes))}")
    _step("capacity insists")
    taken = await client.apply(five, field_manager="capacity", force=True)
    owners = [
        entry["manager"] for entry in taken["metadata"]["managedFields"] if "f:replicas" in entry["fieldsV1"]["f:spec"]
    ]
    _answer(f"generation {taken['metadata']['generation']}, {taken['spec']['replicas']} replicas")
    _answer(f"spec.replicas now belongs to {' and '.join(owners)}")


async def _mistakes(client: Client) -> None:
    """A wrong object is refused, and the answer names every field that is wrong."""
    _title("Mistakes are named")
    _step("somebody creates a ConfigMap called Not_A_Name, with a label that is none")
    wrong = ConfigMap(metadata=ObjectMeta(name="Not_A_Name", labels={"tier": "no spaces"}))
    error = await _refused(client.create(wrong), Invalid)
    for cause in error.causes:
        _answer(f"{error.code} {error.reason}: {cause.field}: {cause.message.partition(':')[0]}")


async def _refused(request: Awaitable[object], expected: type[KubeError]) -> KubeError:
    """The error that a request must end in."""
    try:
        await request
    except expected as error:
        return error
    raise SteersmanError(f"the server accepted what it must refuse with {expected.__name__}")


def _with_mode(configuration: ConfigMap, mode: str) -> ConfigMap:
    return ConfigMap(metadata=configuration.metadata, data={"mode": mode})


async def _seen(events: AsyncIterator[WatchEvent[ConfigMap]]) -> None:
    """Show the next change that comes through the watch."""
    async for event in events:
        if event.type != "BOOKMARK" and isinstance(event.object, ConfigMap):
            data = " ".join(f"{key}={value}" for key, value in event.object.data.items())
            _line("⟵", f"{event.type:<9}configmap/{event.object.name} with {data}", "cyan")
            return


async def _stay(config: Path) -> None:
    _title("The server stays up. In another terminal:")
    click.echo(f"  export KUBECONFIG={config}")
    for arguments in (
        "get deployments -o wide",
        "explain deployment.spec.replicas",
        "scale deployment web --replicas=3",
    ):
        click.echo(f"  kubectl {arguments}")
    if shutil.which("kubectl") is None:
        click.echo("  # `steersman controlplane build` makes a kubectl, if you have Go")
    click.echo("\nCtrl-C ends it.")
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()


def _title(text: str) -> None:
    click.secho(f"\n{text}", bold=True)


def _step(text: str) -> None:
    click.echo(f"  {text}")


def _answer(text: str) -> None:
    _line("→", text, "green")


def _line(arrow: str, text: str, colour: str) -> None:
    click.echo(f"    {click.style(arrow, fg=colour)} {text}")
