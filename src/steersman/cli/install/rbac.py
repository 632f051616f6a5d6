"""`steersman rbac`: the rights that operators need, or the controllers of a Python file, as manifests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kube_options import check_namespaces, config_option
from steersman.cli.output import manifest_output_option
from steersman.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import ModuleType

    from steersman.operators import Operator
    from steersman.runtime.rbac import Permissions

operators_option = click.option(
    "--operators",
    default="",
    help="Names of operators, separated by commas.  [default: those of the settings, else all]",
)


@click.command("rbac")
@click.argument("files", nargs=-1, metavar="[FILE.py|MODULE]...")
@operators_option
@config_option
@click.option("--name", help="Name of the ServiceAccount and of its roles.  [default: steersman, or the file's]")
@click.option(
    "-n",
    "--namespace",
    callback=check_namespaces,
    help="Where the ServiceAccount is.  [default: steersman; of a file: default]",
)
@click.option(
    "--namespaces", callback=check_namespaces, default="", help="Grant in these namespaces only, separated by commas."
)
@click.option("--lease", help='Name of the Lease; "" for none.  [default: steersman, or that of the file]')
@click.option("--shard", is_flag=True, help="The processes of a file share the namespaces, instead of electing one.")
@click.option("--cluster", metavar="NAME", default="", help="The rights of a file in the other cluster of that name.")
@manifest_output_option
def command(
    files: tuple[str, ...],
    operators: str,
    config: Path | None,
    *,
    name: str | None,
    namespace: str | None,
    namespaces: str,
    lease: str | None,
    shard: bool,
    cluster: str,
    output: str,
) -> None:
    """Print the least rights that operators need, or the controllers of a file.

    Of operators, a feature that is off asks for nothing. Of a file, rights follow from what its controllers watch and
    own, and from what their functions ask of the context; a comment names every call that cannot be read, to be
    declared with Controller.needs. With --namespaces, everything that can be granted in a namespace is granted in those
    only.

    \b
    Examples:
      steersman rbac examples/database.py -n ops | kubectl apply -f -
      steersman rbac --operators reload --config steersman.yaml --namespaces shop
    """
    from steersman.cli.config import load_settings
    from steersman.cli.install.webhooks import default_name
    from steersman.cli.python_files import load_python
    from steersman.operators import permissions_of

    if files and operators:
        raise click.UsageError("name files, or operators with --operators, not both")
    if not files and (shard or cluster):
        raise click.UsageError("--shard and --cluster are for the controllers of a file: name one")
    name = name or (default_name(files) if files else "steersman")
    namespace = namespace or ("default" if files else "steersman")
    if files:
        rights, unread = file_permissions([load_python(file) for file in files], name, shard=shard, cluster=cluster)
        lease = "" if shard or cluster else name if lease is None else lease
    else:
        rights, unread = permissions_of(configured_operators(operators, config)), []
        lease = "steersman" if lease is None else lease
    settings = load_settings(config)
    rights = with_reviews(rights, settings.page, settings.metrics)
    for line in unread:
        click.echo(f"# {line}", err=output == "json")
    print_manifests(rights.manifests(name, namespace, namespaces=names_in(namespaces), lease=lease), output)


def file_permissions(
    modules: Sequence[ModuleType], name: str, *, shard: bool = False, cluster: str = ""
) -> tuple[Permissions, list[str]]:
    """The rights of the controllers and webhooks in modules, and a line for each call that cannot be read."""
    from steersman.cli.install.webhooks import webhook_permissions
    from steersman.cli.python_files import controllers_in, hooks_in
    from steersman.runtime.controller.permissions import derive_rules
    from steersman.runtime.rbac import Permissions, shard_rules

    controllers = [controller for module in modules for controller in controllers_in(module)]
    hooks = [] if cluster else hooks_in(modules)
    if not controllers and not hooks:
        raise ConfigError(
            "defines neither a controller nor a webhook", where=", ".join(str(module.__file__) for module in modules)
        )
    derived = derive_rules(controllers, cluster=cluster)
    rights = derived.permissions()
    hooked = webhook_permissions(name, hooks) if hooks else Permissions()
    rights = Permissions(
        namespace=rights.namespace,
        cluster=[*rights.cluster, *hooked.cluster],
        own=[*hooked.own, *(shard_rules() if shard else ())],
    )
    return rights, [str(request) for request in derived.unresolved]


def names_in(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def with_reviews(rights: Permissions, *access: str) -> Permissions:
    """These rights, and those to review tokens when a way of access asks for them."""
    import msgspec

    from steersman.runtime.rbac import REVIEWS

    if "token" not in access:
        return rights
    return msgspec.structs.replace(rights, cluster=[*rights.cluster, *REVIEWS])


def configured_operators(names: str, config: Path | None) -> list[tuple[Operator, Any]]:
    """The operators that are named, else those the file names, else all; each with its section."""
    from steersman.cli.config import load_settings
    from steersman.operators import load_operator

    settings = load_settings(config)
    return [(load_operator(name), settings.sections[name]) for name in operator_names(names, settings.operators)]


def operator_names(text: str, settings: Sequence[str] = ()) -> Sequence[str]:
    """The operators that --operators names, else those of the settings, else all."""
    from steersman.operators import OPERATORS

    return names_in(text) or settings or sorted(OPERATORS)


def print_manifests(manifests: list[dict[str, Any]], output: str) -> None:
    """As YAML documents, or as one List in JSON."""
    if output == "json":
        import msgspec

        listing = {"apiVersion": "v1", "kind": "List", "items": manifests}
        click.echo(msgspec.json.format(msgspec.json.encode(listing)).decode())
    else:
        import yaml

        click.echo("---\n".join(yaml.safe_dump(manifest, sort_keys=False) for manifest in manifests), nl=False)
