"""`steersman dns …`: bring an existing zone along, see what would change, check what is served, and ask why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.dns_sidecar import sidecar
from steersman.cli.kubeoptions import check_namespaces, kube_options
from steersman.cli.output import output_option

if TYPE_CHECKING:
    from rich.console import Console

    from steersman.operators.dns.survey import Survey

__all__ = ["command"]


@click.group("dns")
def command() -> None:
    """Import, plan and check zones, ask why a name is answered as it is, and serve beside a named."""


command.add_command(sidecar)


@command.command("import")
@click.argument("zone", metavar="ZONE@SERVER[:PORT]")
@click.option(
    "--key-file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A key as rndc.key has it."
)
@click.option("--selector", default="dns=primary", show_default=True, help="Labels of the instances that serve it.")
@click.option("-n", "--namespace", callback=check_namespaces, default="default", show_default=True)
@click.pass_context
def import_(ctx: click.Context, zone: str, key_file: Path | None, selector: str, namespace: str) -> None:
    """Print manifests that publish what a server serves now, by a zone transfer from it.

    What records cannot say is left out with a warning, and stays on the server: the zone's annotation
    steersman.dev/dns-drift-ignore names it.

    Exit code 0: the manifests say everything; 3: something was left out.

    \b
    Examples:
      steersman dns import example.org@192.0.2.53 --key-file my.key > zone.yaml
    """
    import asyncio

    import yaml

    from steersman.errors import ConfigError
    from steersman.kube.selectors import Selector
    from steersman.operators.dns.importing import manifests_of
    from steersman.operators.dns.names import name_of

    title, separator, place = zone.partition("@")
    host, _, port = place.partition(":")
    if not (separator and title and host and (port or "53").isdecimal()):
        raise ConfigError(f'"{zone}" is not ZONE@SERVER[:PORT] (try example.org@192.0.2.53)', field="ZONE")
    labels = {row.key: row.values[0] for row in Selector.parse(selector).requirements if row.values}
    key = None if key_file is None else _key_in(key_file)
    soa, rrsets = asyncio.run(_transfer(name_of(title), host, int(port or 53), key))
    manifests, left = manifests_of(name_of(title), soa, rrsets, namespace=namespace, selector=labels)
    click.echo("---\n".join(yaml.safe_dump(one, sort_keys=False, allow_unicode=True) for one in manifests), nl=False)
    for row in left:
        click.echo(f"warning: {row}", err=True)
    ctx.exit(3 if left else 0)


def _key_in(path: Path) -> Any:
    """The first key that a file holds in named's own form."""
    from steersman.errors import ConfigError, FormatError
    from steersman.operators.dns.keyfile import keys_in

    try:
        return next(iter(keys_in(path.read_text()).values()))
    except FormatError as error:
        raise ConfigError(str(error), where=str(path)) from None


async def _transfer(zone: bytes, host: str, port: int, key: Any) -> Any:
    from steersman.clock import SYSTEM_CLOCK
    from steersman.operators.dns.dnsclient import DnsClient

    client = DnsClient(host, port, clock=SYSTEM_CLOCK, timeout=10.0)
    try:
        return await client.transfer(zone, key, frozenset())
    finally:
        client.close()


@command.command("plan")
@click.option(
    "-f", "--filename", "names", multiple=True, metavar="DIR|FILE|-", help="Manifests to lay over the cluster."
)
@click.option("--zone", "zones", multiple=True, help="Only this zone; may be repeated.")
@kube_options
@output_option()
@click.pass_context
def plan(
    ctx: click.Context,
    names: tuple[str, ...],
    zones: tuple[str, ...],
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    output: str,
) -> None:
    """Say which RRsets publishing would change on which server. Nothing is written anywhere.

    Rows with "keep" stay as they are: the zone holds data of others, and nobody has said what becomes of it.

    Exit code 0: nothing would change; 3: something would; 1: something is invalid, unknown or does not answer.

    \b
    Examples:
      steersman dns plan -f zones/
      steersman dns plan --zone example.org -o json
    """
    import asyncio

    from steersman.cli.manifestfiles import read_manifests
    from steersman.cli.output import print_table, show

    found = read_manifests(names) if names else None
    for where, problem in found.problems if found is not None else ():
        click.echo(f"error: {where}: {problem}", err=True)
    manifests = [one for _, one in found.objects] if found is not None else []

    async def ask(survey: Survey) -> Any:
        return [row for zone in survey.zones(zones) for row in await survey.differences(zone)]

    rows, problems = asyncio.run(_survey(kubeconfig, context, namespace, manifests, ask))
    for problem in problems:
        click.echo(f"error: {problem}", err=True)

    def draw(console: Console) -> None:
        if not rows:
            console.print("nothing would change")
            return
        print_table(
            console,
            ["zone", "server", "action", "name", "type", "have", "want", "from"],
            [(r.zone, r.server, r.action, r.name, r.type, ", ".join(r.have), ", ".join(r.want), r.why) for r in rows],
        )

    show(rows, output, draw)
    wrong = bool(problems) or (found is not None and found.problems)
    wrong = wrong or any(row.action in {"invalid", "unreachable"} for row in rows)
    ctx.exit(1 if wrong else 3 if any(row.action != "keep" for row in rows) else 0)


@command.command("check")
@click.argument("zones", nargs=-1, metavar="[ZONE]...")
@kube_options
@output_option()
@click.pass_context
def check(
    ctx: click.Context,
    zones: tuple[str, ...],
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    output: str,
) -> None:
    """Ask every server of every zone: serials that lag, data that drifted, records held back, servers that are away.

    Also delegations by parents that are zones here too, and signatures that are about to end.

    Exit code 0: all is well; 3: something was found; 1: no zone is called so.

    \b
    Examples:
      steersman dns check
      steersman dns check example.org -o json
    """
    import asyncio

    from steersman.cli.output import print_table, show

    async def ask(survey: Survey) -> Any:
        return [row for zone in survey.zones(zones) for row in await survey.findings(zone)]

    rows, _ = asyncio.run(_survey(kubeconfig, context, namespace, [], ask))

    def draw(console: Console) -> None:
        if not rows:
            console.print("all is well")
            return
        print_table(
            console, ["zone", "check", "server", "found"], [(r.zone, r.check, r.server, r.message) for r in rows]
        )

    show(rows, output, draw)
    ctx.exit(3 if rows else 0)


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
    """Say which resources make a name what it is, what is held back and why, and what each server answers.

    Exit code 0: found; 3: no resource says anything about the name.

    \b
    Examples:
      steersman dns why www.example.org
    """
    import asyncio

    from steersman.cli.output import print_table, show

    rows, _ = asyncio.run(_survey(kubeconfig, context, namespace, [], lambda survey: survey.reasons(name)))

    def draw(console: Console) -> None:
        if not rows:
            console.print(f"no record of any zone is called {name}")
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
    ctx.exit(0 if rows else 3)


async def _survey(
    kubeconfig: Path | None, context: str | None, namespace: str | None, manifests: list[dict[str, Any]], ask: Any
) -> tuple[list[Any], list[str]]:
    """What `ask` finds in the cluster with manifests laid over it."""
    from steersman.cli.kubeoptions import cluster_config
    from steersman.kube.client import Client
    from steersman.operators.dns.survey import Survey, lay_over, objects_of

    config = cluster_config(kubeconfig, context)
    async with Client.connect(config) as client:
        objects = await objects_of(client)
        problems = lay_over(objects, manifests, namespace or config.namespace)
        survey = Survey(objects, namespace=namespace)
        try:
            return await ask(survey), problems
        finally:
            survey.close()
