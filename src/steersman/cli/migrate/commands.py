"""`steersman migrate`: what moving from another program means, the files for it, and its visible effects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.exit_codes import exit_code
from steersman.cli.kube_options import config_option, kube_options
from steersman.cli.output import output_option
from steersman.cli.suggestions import SuggestingGroup

if TYPE_CHECKING:
    from rich.console import Console

    from steersman.cli.migrate.check import Takeover
    from steersman.cli.migrate.originals import Report

NAMES = ("reloader", "wave", "xing", "shipshape", "bindy", "hourglass", "kubernaut")


@click.group("migrate", cls=SuggestingGroup)
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
@click.option(
    "--secret", type=click.Path(path_type=Path, dir_okay=False), help="Write a Secret with what values must not hold."
)
@output_option()
@kube_options
def from_command(
    original: str,
    files: tuple[str, ...],
    values: Path | None,
    config: Path | None,
    secret: Path | None,
    output: str,
    **cluster: Any,
) -> int:
    """Say what moving from ORIGINAL means: the same, better, not there; the steps, and the way back.

    Its Deployment is searched in the cluster, or in the given manifests. Nothing is changed in the cluster. A setting
    that cannot be carried over is listed with what to do, and costs no other. Addresses that are secrets go to the file
    of --secret, and never to the others.

    Exit code 0: every setting is carried over; 3: some are not; 1: its Deployment is not in the given place.

    \b
    Examples:
      steersman migrate from reloader --values values.yaml --config steersman.yaml
      steersman migrate from shipshape -f k8s/
    """
    import yaml

    from steersman.cli.migrate.originals import ORIGINALS, carried_settings, find_original, report_on
    from steersman.cli.output import show
    from steersman.errors import ConfigError

    known = ORIGINALS[original]
    deployments = _in_files(files) if files else _in_cluster(**cluster)
    deployed = find_original(known, deployments)
    if deployed is None and (files or cluster["namespace"]):
        where = ", ".join(files) if files else f"namespace {cluster['namespace']}"
        raise ConfigError(f"no Deployment of {original} (image {' or '.join(known.images)})", where=where)
    report = report_on(known, deployed)
    for path, content in ((values, report.values), (config, report.settings)):
        if path is not None:
            path.write_text(yaml.safe_dump(content, sort_keys=False))
    manifest = carried_settings(known, deployed).secret if known.profile and deployed is not None else None
    if secret is not None and manifest is not None:
        secret.touch(mode=0o600)
        secret.write_text(yaml.safe_dump(manifest, sort_keys=False))
    show(report, output, lambda to: _draw(report, values, to))
    return exit_code(found=bool(report.left))


@command.command("check")
@click.argument("original", type=click.Choice(NAMES))
@config_option
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
    Exit code 0: no visible effect; 3: some, or workloads with the original's annotations would not be taken over.

    \b
    Examples:
      steersman migrate check reloader --config steersman.yaml
      steersman migrate check bindy -n dns
    """
    import asyncio

    from msgspec.structs import replace

    from steersman.cli.config import load_settings
    from steersman.cli.migrate.check import Place, forecast_takeover
    from steersman.cli.migrate.originals import ORIGINALS, still_running
    from steersman.cli.output import show

    known = ORIGINALS[original]
    running = still_running(known, _in_cluster(kubeconfig, context, None))
    place = Place(kubeconfig=kubeconfig, context=context, namespace=namespace)
    found = asyncio.run(forecast_takeover(known, load_settings(config), place))
    found = replace(found, running=running)
    show(found, output, lambda to: _draw_takeover(found, to))
    ctx.exit(exit_code(found=bool(found.effects)))


def _draw_takeover(found: Takeover, to: Console) -> None:
    from steersman.cli.output import print_table

    words = {"reload": "workloads", "hourglass": "executors and performers", "dns": "zones", "toolset": "keys"}
    if found.kept or found.effects:
        to.print(f"{found.kept} {words[found.operator]} would be taken over as they are")
    else:
        to.print(f"no {words[found.operator]} to take over")
    for title in found.running:
        to.print(f"{title} still runs: scale it to zero before Steersman starts", soft_wrap=True)
    if found.effects:
        rows = [(effect.object, effect.namespace, effect.effect, effect.why) for effect in found.effects]
        print_table(to, ("object", "namespace", "effect", "why"), rows)
    elif found.kept:
        to.print("nothing else would happen")


def _in_files(files: tuple[str, ...]) -> list[dict[str, Any]]:
    from steersman.cli.manifest_files import read_manifests

    found = read_manifests(files)
    for where, problem in found.problems:
        click.echo(f"warning: {where}: {problem}", err=True)
    return [manifest for _, manifest in found.objects if manifest.get("kind") == "Deployment"]


def _in_cluster(kubeconfig: Path | None, context: str | None, namespace: str | None) -> list[dict[str, Any]]:
    import asyncio

    from steersman.cli.kube_options import cluster_config
    from steersman.cli.migrate.check import check_namespaces_exist
    from steersman.kube.api.types.apps import Deployment
    from steersman.kube.client.client import Client

    async def ask() -> list[dict[str, Any]]:
        async with Client.connect(cluster_config(kubeconfig, context)) as client:
            await check_namespaces_exist(client, [namespace] if namespace else [])
            return (await client.list(Deployment.KIND, into=dict, namespace=namespace)).items

    return asyncio.run(ask())


def _draw(report: Report, written: Path | None, to: Console) -> None:
    import yaml

    from steersman.cli.output import print_fields

    to.print(f"from {report.original} to steersman's {report.operator} operator", style="bold")
    fields = [("read from", report.found or "nothing: it was not found, so these are its defaults")]
    for title, lines in (
        ("the same", report.same),
        ("better", report.better),
        ("not there", report.missing or ["-"]),
        ("NOT carried over", report.left or ["-"]),
    ):
        fields += [("" if number else title, line) for number, line in enumerate(lines)]
    print_fields(to, fields)
    to.print(f"\nvalues.yaml{f' (written to {written})' if written else ''}", style="bold")
    to.print(yaml.safe_dump(report.values, sort_keys=False).rstrip(), soft_wrap=True)
    sections = [("Steps", report.steps), ("Back", report.back)]
    if report.instead:
        sections.append(("Or in its own Deployment", report.instead))
    for title, lines in sections:
        to.print(f"\n{title}", style="bold")
        for number, line in enumerate(lines, 1):
            to.print(f"  {number}. {line}", soft_wrap=True)  # to copy: no line break of ours
