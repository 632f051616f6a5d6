"""`steersman audit`: pods that started before the last change of a key they use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from steersman.cli.exit_codes import exit_code
from steersman.cli.kube_options import kube_options, selector_option
from steersman.cli.output import output_option
from steersman.cli.reload.inspection import settings_options

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from steersman.kube.client.client import Client
    from steersman.operators.reload.api.config import ReloadOptions
    from steersman.operators.reload.inspect.audit import StalePod


@click.command()
@click.option("-A", "--all-namespaces", is_flag=True, help="Inspect every namespace.")
@selector_option
@settings_options
@kube_options
@output_option("name")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    all_namespaces: bool,
    selector: str,
    config: Path | None,
    dialects: tuple[str, ...],
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
      steersman audit -A -l app=web -o json
    """
    import asyncio

    from steersman.cli.output import show
    from steersman.cli.reload.inspection import connected, reload_options

    options = reload_options(config, dialects)
    found, unseen = asyncio.run(
        _read(connected(kubeconfig, context), options, namespace, selector, all_namespaces=all_namespaces)
    )
    for text in unseen:
        click.echo(f"warning: {text}", err=True)
    answer = {"stale": found, **({"unseen": unseen} if unseen else {})}
    show(
        answer,
        output,
        lambda console: _draw(console, found, complete=not unseen),
        names=lambda: [f"pod/{stale.pod}" for stale in found],
    )
    ctx.exit(exit_code(found=bool(found)))


async def _read(
    connecting: Client, options: ReloadOptions, namespace: str | None, selector: str = "", *, all_namespaces: bool
) -> tuple[list[StalePod], list[str]]:
    """The stale pods, and what could not be read that may hide others."""
    import time

    from steersman.cli.reload.inspection import inspect_cluster, note_dialects_off
    from steersman.kube.api.types.pods import Pod
    from steersman.operators.reload.inspect.audit import stale_pods

    async with connecting as client:
        space = None if all_namespaces else namespace or client.namespace
        (inspection,) = await inspect_cluster(client, options, None if space is None else [space])
        pods = (await client.list(Pod.KIND, namespace=space, label_selector=selector or None)).items
    note_dialects_off(inspection)
    return stale_pods(inspection, pods, time.time()), list(inspection.unseen)


def _draw(console: Console, found: list[StalePod], *, complete: bool) -> None:
    from steersman.cli.output import print_table

    if not found:
        console.print("no pod is stale" if complete else "no stale pod found among what could be read (see above)")
        return
    console.print(f"{len(found)} pod{'s' if len(found) > 1 else ''} may run an old configuration")
    rows = [
        (
            stale.pod,
            stale.namespace,
            str(stale.workload),
            stale.started,
            "  ".join(f"{source.source}#{','.join(source.keys)} at {source.changed}" for source in stale.sources),
            "enrolled" if stale.enrolled else "not enrolled",
        )
        for stale in found
    ]
    print_table(console, ["pod", "namespace", "workload", "started", "changed since", "reload"], rows)
