"""`steersman audit`: pods that started before the last change of a key they use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from steersman.cli.kubeoptions import kube_options
from steersman.cli.output import output_option

if TYPE_CHECKING:
    from rich.console import Console

    from steersman.kube.client import Client
    from steersman.operators.reload.staleness import Stale
    from steersman.operators.reload.types import Options

__all__ = ["command"]


@click.command()
@click.option("-A", "--all-namespaces", is_flag=True, help="Look at every namespace.")
@click.option("--config", type=click.Path(path_type=Path), envvar="STEERSMAN_CONFIG", help="Read settings from FILE.")
@kube_options
@output_option()
@click.pass_context
def command(
    ctx: click.Context,
    all_namespaces: bool,
    config: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    output: str,
) -> None:
    """List pods that may run an old configuration, whether or not anything restarts them.

    Needs only rights to read: workloads, ConfigMaps, Secrets and pods. Works without the operator. Exit code 0: no pod
    is stale; 3: some are.

    \b
    Examples:
      steersman audit -n shop
      steersman audit -A -o json
    """
    import asyncio

    from steersman.cli.output import show
    from steersman.cli.settings import load_settings
    from steersman.cli.surveying import connected

    options = load_settings(config).sections["reload"].options()
    found = asyncio.run(_read(connected(kubeconfig, context), options, namespace, all_namespaces=all_namespaces))
    show({"stale": found}, output, lambda console: _draw(console, found))
    ctx.exit(3 if found else 0)


async def _read(connecting: Client, options: Options, namespace: str | None, *, all_namespaces: bool) -> list[Stale]:
    import time

    from steersman.cli.surveying import surveyed
    from steersman.kube.types.pods import Pod
    from steersman.operators.reload.staleness import stale_pods

    async with connecting as client:
        space = None if all_namespaces else namespace or client.namespace
        (survey,) = await surveyed(client, options, None if space is None else [space])
        pods = (await client.list(Pod.KIND, namespace=space)).items
    for text in survey.unseen:
        click.echo(f"warning: {text}", err=True)
    return stale_pods(survey, pods, time.time())


def _draw(console: Console, found: list[Stale]) -> None:
    from steersman.cli.output import print_table

    if not found:
        console.print("no pod is stale")
        return
    console.print(f"{len(found)} pod{'s' if len(found) > 1 else ''} may run an old configuration")
    rows = [
        (
            one.pod,
            one.namespace,
            str(one.workload),
            one.started,
            "  ".join(f"{source.source}#{','.join(source.keys)} at {source.changed}" for source in one.sources),
            "" if one.enrolled else "not enrolled",
        )
        for one in found
    ]
    print_table(console, ["pod", "namespace", "workload", "started", "changed since", ""], rows)
