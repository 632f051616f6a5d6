"""`steersman completion`: scripts for bash, zsh and fish, and the names of live resources they complete.

Completion prints no errors: when the cluster does not answer in time, nothing is offered.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from steersman.kube.client.client import Client

PATIENCE_SECONDS: Final = 2.0  # a shell that waits longer feels stuck

WORKLOADS: Final = {
    "deployment": "Deployment",
    "statefulset": "StatefulSet",
    "daemonset": "DaemonSet",
    "cronjob": "CronJob",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    Names of namespaces and workloads are completed from the cluster. `kubectl steersman …` completes by itself when
    `kubectl_complete-steersman`, installed beside this command, is on the PATH.

    \b
    Examples:
      source <(steersman completion bash)
      steersman completion zsh > "${fpath[1]}/_steersman"
      steersman completion fish > ~/.config/fish/completions/steersman.fish
    """
    from click.shell_completion import get_completion_class

    from steersman.cli.main import cli

    shape = get_completion_class(shell)
    assert shape is not None
    click.echo(shape(cli, {}, "steersman", "_STEERSMAN_COMPLETE").source())


def kubectl() -> None:
    """What kubectl runs to complete `kubectl steersman …`: candidates, then a line with what it may do with them."""
    from click.shell_completion import ShellComplete

    from steersman.cli.main import cli

    *words, incomplete = sys.argv[1:] or [""]
    found = ShellComplete(cli, {}, "steersman", "_STEERSMAN_COMPLETE").get_completions(words, incomplete)
    for item in found:
        click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(":4")  # cobra's directive: no file names


def complete_namespace(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The namespaces that begin so."""

    async def names(client: Client) -> list[str]:
        from steersman.kube.api.objects import PartialObjectMetadata
        from steersman.kube.api.types.core import Namespace

        return [namespace.name for namespace in (await client.list(Namespace.KIND, into=PartialObjectMetadata)).items]

    return _matching(_ask(ctx, names), incomplete)


def complete_workload(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """KIND/NAME of the workloads of the namespace that begin so; the kinds before there is a slash."""
    short, slash, _ = incomplete.partition("/")
    if not slash:
        return _matching([f"{kind}/" for kind in WORKLOADS], incomplete)
    kind = next((kind for kind in WORKLOADS if kind.startswith(short.lower().rstrip("s") or "?")), None)
    if kind is None:
        return []

    async def names(client: Client) -> list[str]:
        import steersman as sm
        from steersman.kube.api.objects import PartialObjectMetadata

        target = getattr(sm, WORKLOADS[kind]).KIND
        namespace = ctx.params.get("namespace") or client.namespace
        found = await client.list(target, into=PartialObjectMetadata, namespace=namespace)
        return [f"{short}/{workload.name}" for workload in found.items]

    return _matching(_ask(ctx, names), incomplete)


def _matching(names: list[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _ask(ctx: click.Context, question: Callable[[Client], Awaitable[list[str]]]) -> list[str]:
    """The cluster's answer, or nothing."""
    import asyncio

    from steersman.cli.kube_options import cluster_config
    from steersman.errors import SteersmanError
    from steersman.kube.client.client import Client

    async def ask() -> list[str]:
        config = cluster_config(ctx.params.get("kubeconfig"), ctx.params.get("context"))
        async with asyncio.timeout(PATIENCE_SECONDS), Client.connect(config) as client:
            return await question(client)

    try:
        return asyncio.run(ask())
    except (SteersmanError, TimeoutError, OSError):
        if os.environ.get("STEERSMAN_DEBUG"):
            raise
        return []
