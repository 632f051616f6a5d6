"""`steersman migrate`: what moving from another program means, the files for it, and whether anybody would notice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kubeoptions import kube_options
from steersman.cli.output import output_option

if TYPE_CHECKING:
    from rich.console import Console

    from steersman.cli.migration import Report
    from steersman.cli.takeover import Takeover

__all__ = ["command"]

NAMES = ("reloader", "wave", "xing", "shipshape", "bindy", "hourglass", "kubernaut")


@click.group("migrate")
def command() -> None:
    """Move to Steersman from another program, and back."""


@command.command("from")
@click.argument("original", type=click.Choice(NAMES))
@click.option("-f", "--filename", "files", multiple=True, metavar="DIR|FILE|-", help="Read its manifests from here.")
@click.option(
    "--values", type=click.Path(path_type=Path, dir_okay=False), help="Write the chart's values to this file."
)
@click.option(
    "--config", type=click.Path(path_type=Path, dir_okay=False), help="Write the same settings for `steersman run`."
)
@output_option()
@kube_options
def from_command(
    original: str,
    files: tuple[str, ...],
    values: Path | None,
    config: Path | None,
    output: str,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Say what moving from ORIGINAL means: the same, better, not there; the steps, and the way back.

    Its Deployment is looked for in the cluster, or in the manifests given. Nothing is changed in the cluster.

    \b
    Examples:
      steersman migrate from reloader --values values.yaml --config steersman.yaml
      steersman migrate from shipshape -f k8s/
    """
    import yaml

    from steersman.cli.migration import ORIGINALS, find_original, report_on
    from steersman.cli.output import show

    known = ORIGINALS[original]
    deployments = _in_files(files) if files else _in_cluster(kubeconfig, context, namespace)
    report = report_on(known, find_original(known, deployments))
    for path, content in ((values, report.values), (config, report.settings)):
        if path is not None:
            path.write_text(yaml.safe_dump(content, sort_keys=False))
    show(report, output, lambda to: _draw(report, values, to))


@command.command("check")
@click.argument("original", type=click.Choice(NAMES))
@click.option("--config", type=click.Path(path_type=Path), envvar="STEERSMAN_CONFIG", help="Read settings from FILE.")
@output_option()
@kube_options
@click.pass_context
def check_command(
    ctx: click.Context,
    original: str,
    config: Path | None,
    output: str,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Say what would happen if our operator took over from ORIGINAL now: restarts, pods, names, keys.

    Its plans are asked about the cluster as it is, with the settings of --config. Nothing is written.
    Exit code 0: nobody would notice; 3: somebody would.

    \b
    Examples:
      steersman migrate check reloader --config steersman.yaml
      steersman migrate check bindy -n dns
    """
    import asyncio

    from msgspec.structs import replace

    from steersman.cli.migration import ORIGINALS, still_running
    from steersman.cli.output import show
    from steersman.cli.settings import load_settings
    from steersman.cli.takeover import Place, forecast_takeover

    known = ORIGINALS[original]
    running = still_running(known, _in_cluster(kubeconfig, context, None))
    place = Place(kubeconfig=kubeconfig, context=context, namespace=namespace)
    found = asyncio.run(forecast_takeover(known.operator, load_settings(config), place))
    found = replace(found, running=running)
    show(found, output, lambda to: _draw_takeover(found, to))
    ctx.exit(3 if found.effects else 0)


def _draw_takeover(found: Takeover, to: Console) -> None:
    from steersman.cli.output import print_table

    words = {"reload": "workloads", "hourglass": "executors and performers", "dns": "zones", "toolset": "keys"}
    to.print(f"{found.kept} {words[found.operator]} would be taken over as they are")
    for title in found.running:
        to.print(f"{title} still runs: scale it to zero before Steersman starts", soft_wrap=True)
    if found.effects:
        rows = [(one.object, one.namespace, one.effect, one.why) for one in found.effects]
        print_table(to, ("object", "namespace", "effect", "why"), rows)
    else:
        to.print("nothing else would happen")


def _in_files(files: tuple[str, ...]) -> list[dict[str, Any]]:
    from steersman.cli.manifestfiles import read_manifests

    found = read_manifests(files)
    for where, problem in found.problems:
        click.echo(f"warning: {where}: {problem}", err=True)
    return [manifest for _, manifest in found.objects if manifest.get("kind") == "Deployment"]


def _in_cluster(kubeconfig: Path | None, context: str | None, namespace: str | None) -> list[dict[str, Any]]:
    import asyncio

    from steersman.cli.kubeoptions import cluster_config
    from steersman.kube.client import Client
    from steersman.kube.types.apps import Deployment

    async def ask() -> list[dict[str, Any]]:
        async with Client.connect(cluster_config(kubeconfig, context)) as client:
            return (await client.list(Deployment.KIND, into=dict, namespace=namespace)).items

    return asyncio.run(ask())


def _draw(report: Report, written: Path | None, to: Console) -> None:
    import yaml

    from steersman.cli.output import print_fields

    to.print(f"from {report.original} to steersman's {report.operator} operator", style="bold")
    fields = [("read from", report.found or "nothing: it was not found, so these are its defaults")]
    for title, lines in (("the same", report.same), ("better", report.better), ("not there", report.missing or ["-"])):
        fields += [("" if number else title, line) for number, line in enumerate(lines)]
    print_fields(to, fields)
    to.print(f"\nvalues.yaml{f' (written to {written})' if written else ''}", style="bold")
    to.print(yaml.safe_dump(report.values, sort_keys=False).rstrip(), soft_wrap=True)
    ways = [("Steps", report.steps), ("Back", report.back)]
    if report.instead:
        ways.append(("Or in its own Deployment", report.instead))
    for title, lines in ways:
        to.print(f"\n{title}", style="bold")
        for number, line in enumerate(lines, 1):
            to.print(f"  {number}. {line}", soft_wrap=True)  # to copy: no line break of ours
