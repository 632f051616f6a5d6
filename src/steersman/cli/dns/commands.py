"""`steersman dns`: import an existing zone, plan changes, check what servers serve, and explain a name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.dns.sidecar import sidecar
from steersman.cli.exit_codes import exit_code
from steersman.cli.kube_options import check_namespaces, kube_options, selector_option
from steersman.cli.output import output_option
from steersman.cli.suggestions import SuggestingGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from steersman.operators.dns.inspect.offline import ZoneInspection


@click.group("dns", cls=SuggestingGroup)
def command() -> None:
    """Import, plan and check zones, explain a name, and run the sidecar."""


command.add_command(sidecar)


@command.command("import")
@click.argument("zone", metavar="ZONE@SERVER[:PORT]")
@click.option(
    "--key-file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A key as rndc.key has it."
)
@click.option("--selector", default="dns=primary", show_default=True, help="Labels of the instances that serve it.")
@click.option(
    "-n",
    "--namespace",
    callback=check_namespaces,
    default="default",
    show_default=True,
    help="Namespace of the manifests.",
)
@click.pass_context
def import_(ctx: click.Context, zone: str, key_file: Path | None, selector: str, namespace: str) -> None:
    """Print manifests that publish the data of an existing zone, read by a zone transfer.

    Data without a matching record kind is left out with a warning and stays on the server: the annotation
    steersman.dev/dns-drift-ignore of the zone lists it.

    Exit code 0: the manifests are complete; 3: data was left out.

    \b
    Examples:
      steersman dns import example.org@192.0.2.53 --key-file my.key > zone.yaml
    """
    import asyncio

    import yaml

    from steersman.errors import ConfigError
    from steersman.kube.api.selectors import Selector
    from steersman.operators.dns.inspect.import_zone import manifests_of
    from steersman.operators.dns.zone.names import name_of

    title, separator, place = zone.partition("@")
    host, _, port = place.partition(":")
    if not (separator and title and host and (port or "53").isdecimal()):
        raise ConfigError(f'"{zone}" is not ZONE@SERVER[:PORT] (try example.org@192.0.2.53)', field="ZONE")
    labels = {row.key: row.values[0] for row in Selector.parse(selector).requirements if row.values}
    key = None if key_file is None else _key_in(key_file)
    soa, rrsets = asyncio.run(_transfer(name_of(title), host, int(port or 53), key))
    manifests, left = manifests_of(name_of(title), soa, rrsets, namespace=namespace, selector=labels)
    click.echo(
        "---\n".join(yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True) for manifest in manifests), nl=False
    )
    for row in left:
        click.echo(f"warning: {row}", err=True)
    ctx.exit(exit_code(found=bool(left)))


def _key_in(path: Path) -> Any:
    """The first key of a file with key statements of named."""
    from steersman.errors import ConfigError, FormatError
    from steersman.operators.dns.bind.statements import read_keys

    try:
        return next(iter(read_keys(path.read_text()).values()))
    except FormatError as error:
        raise ConfigError(str(error), where=str(path)) from None


async def _transfer(zone: bytes, host: str, port: int, key: Any) -> Any:
    from steersman.clock import SYSTEM_CLOCK
    from steersman.operators.dns.wire.client import DnsClient

    client = DnsClient(host, port, clock=SYSTEM_CLOCK, timeout=10.0)
    try:
        return await client.transfer(zone, key, frozenset())
    finally:
        client.close()


@command.command("plan")
@click.option(
    "-f",
    "--filename",
    "names",
    multiple=True,
    metavar="DIR|FILE|-",
    help="Manifests to apply on top of the cluster's objects, without writing them.",
)
@click.option("--zone", "zones", multiple=True, help="Only this zone; may be repeated.")
@selector_option
@kube_options
@output_option("name")
@click.pass_context
def plan(
    ctx: click.Context,
    names: tuple[str, ...],
    zones: tuple[str, ...],
    selector: str,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    output: str,
) -> None:
    """Show which RRsets would change on which server. Nothing is written.

    Rows with "keep" stay unchanged: the zone has foreign data and is not adopted (steersman.dev/dns-adopt).

    Exit code 0: no changes; 3: changes; 1: an object is invalid or unknown, or a server does not answer.

    \b
    Examples:
      steersman dns plan -f zones/
      steersman dns plan --zone example.org -o json
    """
    from steersman.cli.manifest_files import read_manifests
    from steersman.cli.output import show

    found = read_manifests(names) if names else None
    for where, problem in found.problems if found is not None else ():
        click.echo(f"error: {where}: {problem}", err=True)
    manifests = [manifest for _, manifest in found.objects] if found is not None else []

    seen, rows, problems = differences_of(zones, manifests, kubeconfig, context, namespace, selector)
    for problem in problems:
        click.echo(f"error: {problem}", err=True)
    is_complete = not (problems or (found is not None and found.problems))

    def draw(console: Console) -> None:
        if not rows:
            none = "no changes" if seen else "no zones"
            console.print(none if is_complete else f"{none} among what could be read (see above)")
            return
        draw_plan(console, rows)

    show(rows, output, draw, names=lambda: [row.zone for row in rows])
    wrong = not is_complete or any(row.action in {"invalid", "unreachable"} for row in rows)
    ctx.exit(exit_code(found=any(row.action != "keep" for row in rows), error=wrong))


def differences_of(
    zones: tuple[str, ...],
    manifests: list[dict[str, Any]],
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    selector: str = "",
) -> tuple[list[Any], list[Any], list[str]]:
    """The zones, the RRsets that would change on their servers, and what is wrong with the manifests."""
    import asyncio

    seen: list[Any] = []

    async def ask(inspection: ZoneInspection) -> Any:
        seen.extend(inspection.zones(zones, selector))
        return [row for zone in seen for row in await inspection.differences(zone)]

    rows, problems = asyncio.run(_inspect(kubeconfig, context, namespace, manifests, ask))
    return seen, rows, problems


def draw_plan(console: Console, rows: Sequence[Any]) -> None:
    """One RRset per row."""
    from steersman.cli.output import print_table

    print_table(
        console,
        ["zone", "server", "action", "name", "type", "have", "want", "from"],
        [(r.zone, r.server, r.action, r.name, r.type, ", ".join(r.have), ", ".join(r.want), r.why) for r in rows],
    )


@command.command("check")
@click.argument("zones", nargs=-1, metavar="[ZONE]...")
@selector_option
@kube_options
@output_option("name")
@click.pass_context
def check(
    ctx: click.Context,
    zones: tuple[str, ...],
    selector: str,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    output: str,
) -> None:
    """Query every server of every zone: outdated serials, drift, invalid records, servers that do not answer.

    Also checks delegations by parents that are DNSZones too, and signatures that expire soon.

    Exit code 0: no problems; 3: problems found; 1: unknown zone.

    \b
    Examples:
      steersman dns check
      steersman dns check example.org -o json
    """
    import asyncio

    from steersman.cli.output import print_table, show

    seen: list[Any] = []

    async def ask(inspection: ZoneInspection) -> Any:
        seen.extend(inspection.zones(zones, selector))
        return [row for zone in seen for row in await inspection.findings(zone)]

    rows, _ = asyncio.run(_inspect(kubeconfig, context, namespace, [], ask))

    def draw(console: Console) -> None:
        if not rows:
            console.print("no problems found" if seen else "no zones, so nothing was checked")
            return
        print_table(
            console, ["zone", "check", "server", "found"], [(r.zone, r.check, r.server, r.message) for r in rows]
        )

    show(rows, output, draw, names=lambda: [row.zone for row in rows])
    ctx.exit(exit_code(found=bool(rows)))


@command.command("why")
@click.argument("name")
@kube_options
@output_option()
@click.pass_context
def why(
    ctx: click.Context,
    name: str,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    output: str,
) -> None:
    """Show which resources contribute to a name, which are not published and why, and what each server answers.

    Exit code 0: found; 3: no resource contributes to the name.

    \b
    Examples:
      steersman dns why www.example.org
    """
    import asyncio

    from steersman.cli.output import print_table, show

    rows, _ = asyncio.run(_inspect(kubeconfig, context, namespace, [], lambda inspection: inspection.reasons(name)))

    def draw(console: Console) -> None:
        if not rows:
            console.print(f"no record contributes to {name}")
            return
        print_table(
            console,
            ["type", "from", "state", "why", "served"],
            [
                (
                    r.type,
                    r.source,
                    r.state,
                    r.message,
                    "; ".join(f"{s}: {', '.join(v) or '-'}" for s, v in r.served.items()),
                )
                for r in rows
            ],
        )

    show(rows, output, draw)
    ctx.exit(exit_code(found=not rows))


async def _inspect(
    kubeconfig: Path | None, context: str | None, namespace: str | None, manifests: list[dict[str, Any]], ask: Any
) -> tuple[list[Any], list[str]]:
    """The result of `ask` on the cluster's objects with manifests on top, and the problems of the manifests."""
    from steersman.cli.kube_options import cluster_config
    from steersman.kube.client.client import Client
    from steersman.operators.dns.inspect.offline import ZoneInspection, lay_over, objects_of

    config = cluster_config(kubeconfig, context)
    async with Client.connect(config) as client:
        objects = await objects_of(client)
        problems = lay_over(objects, manifests, namespace or config.namespace)
        inspection = ZoneInspection(objects, namespace=namespace)
        try:
            return await ask(inspection), problems
        finally:
            inspection.close()
