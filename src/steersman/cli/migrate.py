"""`steersman migrate from NAME`: what moving from another program means, and the values for our chart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kubeoptions import kube_options
from steersman.cli.output import output_option

if TYPE_CHECKING:
    from rich.console import Console

    from steersman.cli.migration import Report

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
@output_option()
@kube_options
def from_command(
    original: str,
    files: tuple[str, ...],
    values: Path | None,
    output: str,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Say what moving from ORIGINAL means: the same, better, not there; the steps, and the way back.

    Its Deployment is looked for in the cluster, or in the manifests given. Nothing is changed.

    \b
    Examples:
      steersman migrate from reloader --values values.yaml
      steersman migrate from shipshape -f k8s/
    """
    from steersman.cli.migration import ORIGINALS, find_original, report_on
    from steersman.cli.output import show

    known = ORIGINALS[original]
    deployments = _in_files(files) if files else _in_cluster(kubeconfig, context, namespace)
    report = report_on(known, find_original(known, deployments))
    if values is not None:
        import yaml

        values.write_text(yaml.safe_dump(report.values, sort_keys=False))
    show(report, output, lambda to: _draw(report, values, to))


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
    for title, lines in (("Steps", report.steps), ("Back", report.back)):
        to.print(f"\n{title}", style="bold")
        for number, line in enumerate(lines, 1):
            to.print(f"  {number}. {line}", soft_wrap=True)  # to copy: no line break of ours
