"""`steersman rbac`: the rights operators need, as manifests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kube_options import check_namespaces

if TYPE_CHECKING:
    from steersman.operators import Operator

__all__ = ["command", "configured_operators", "names_in", "print_manifests"]


@click.command("rbac")
@click.option("--operators", default="", help="Names of operators, separated by commas.  [default: all]")
@click.option("--config", type=click.Path(path_type=Path), envvar="STEERSMAN_CONFIG", help="Read settings from FILE.")
@click.option("--name", default="steersman", show_default=True, help="Name of the ServiceAccount and of its roles.")
@click.option(
    "-n",
    "--namespace",
    callback=check_namespaces,
    default="steersman",
    show_default=True,
    help="Where the ServiceAccount is.",
)
@click.option(
    "--namespaces", callback=check_namespaces, default="", help="Grant in these namespaces only, separated by commas."
)
@click.option("--lease", default="steersman", show_default=True, help='Name of the leader\'s Lease; "" for none.')
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="How to print."
)
def command(
    operators: str, config: Path | None, name: str, namespace: str, namespaces: str, lease: str, output: str
) -> None:
    """Print the least rights that operators need with their settings.

    A feature that is off asks for nothing. With --namespaces, everything that can be granted in a namespace is granted
    in those only.

    \b
    Examples:
      steersman rbac --operators reload | kubectl apply -f -
      steersman rbac --operators reload --config steersman.yaml --namespaces shop
    """
    from steersman.operators import permissions_of

    rights = permissions_of(configured_operators(operators, config))
    print_manifests(rights.manifests(name, namespace, namespaces=names_in(namespaces), lease=lease), output)


def names_in(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def configured_operators(names: str, config: Path | None) -> list[tuple[Operator, Any]]:
    """The operators that are named, else those the file names, else all; each with its section."""
    from steersman.cli.config import load_settings
    from steersman.operators import OPERATORS, load_operator

    settings = load_settings(config)
    chosen = names_in(names) or settings.operators or sorted(OPERATORS)
    return [(load_operator(name), settings.sections[name]) for name in chosen]


def print_manifests(manifests: list[dict[str, Any]], output: str) -> None:
    """As YAML documents, or as one List in JSON."""
    if output == "json":
        import msgspec

        listing = {"apiVersion": "v1", "kind": "List", "items": manifests}
        click.echo(msgspec.json.format(msgspec.json.encode(listing)).decode())
    else:
        import yaml

        click.echo("---\n".join(yaml.safe_dump(manifest, sort_keys=False) for manifest in manifests), nl=False)
