"""`steersman crds`: the CustomResourceDefinitions of operators, or of a Python file: printed, checked or explained."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click

from steersman.cli.exit_codes import exit_code
from steersman.cli.install.rbac import operators_option
from steersman.cli.install.webhooks import client_config, default_name
from steersman.cli.kube_options import check_namespaces

if TYPE_CHECKING:
    from rich.console import Console

    from steersman.crd import DefinitionFinding

DEFINITION: Final = "CustomResourceDefinition"


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE.py|MODULE]...")
@operators_option
@click.option("--check", is_flag=True, help="Report what to correct before a release, instead of printing.")
@click.option(
    "--against", metavar="PATH", help="With --check: report changes that break users of the definitions in PATH."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json", "markdown", "table"]),
    help="yaml, json or markdown; with --check table, yaml or json.  [default: yaml; with --check table]",
)
@click.option(
    "--host",
    metavar="HOST[:PORT]",
    help="What the API server calls to convert versions.  [default: that of `steersman webhooks`]",
)
@click.option(
    "-n", "--namespace", callback=check_namespaces, default="default", show_default=True, help="Where the process runs."
)
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    operators: str,
    check: bool,
    against: str | None,
    output: str | None,
    host: str | None,
    namespace: str,
) -> None:
    """Print CustomResourceDefinitions.

    With -o markdown, print the reference of the kinds. With --check, report fields without a description, and what API
    servers reject. With --against, the definitions of the last release in a file or a folder, also report incompatible
    changes. The exit code is 3 when there is something to correct.

    A kind with a hub and spokes is converted by the webhook server of `steersman run FILE --webhooks`, at --host.

    \b
    Examples:
      steersman crds | kubectl apply -f -
      steersman crds examples/webapp.py | kubectl apply -f -
      steersman crds examples/webapp.py --check --against released/crds
    """
    if against is not None and not check:
        raise click.UsageError("--against needs --check")
    if output == ("markdown" if check else "table"):
        raise click.UsageError(f"-o {output} is for {'definitions' if check else '--check'} only")
    address = host or f"{default_name(files) if files else 'steersman'}.{namespace}.svc"
    if check:
        found = _findings(files, operators, against, address)
        _print_findings(found, output or "table")
        ctx.exit(exit_code(found=bool(found)))
    manifests = definitions(files, operators, address)
    if output == "markdown":
        from steersman.crd.reference import reference_page

        click.echo("\n".join(map(reference_page, manifests)), nl=False)
        return
    from steersman.cli.install.rbac import print_manifests

    print_manifests(manifests, output or "yaml")


def definitions(files: tuple[str, ...], operators: str, host: str = "127.0.0.1") -> list[dict[str, Any]]:
    """The definitions of the kinds in files and of operators; of all operators when neither is named.

    `host` is what the API server calls to convert versions.
    """
    from steersman.crd import crd_manifest

    return [crd_manifest(*versions, conversion=client_config(host)) for versions in _kinds(files, operators)]


def _kinds(files: tuple[str, ...], operators: str) -> list[list[Any]]:
    """The classes of every kind, one list per definition."""
    from steersman.cli.install.rbac import operator_names
    from steersman.cli.python_files import kinds_in, load_python
    from steersman.errors import ConfigError
    from steersman.operators import load_operator

    kinds = [kind for name in files for kind in kinds_in(load_python(name))]
    if files and not kinds:
        raise ConfigError(
            "defines no kind: derive a class from Resource with group= and version=",
            where=", ".join(files),
        )
    if operators or not files:
        kinds += [kind for name in operator_names(operators) for kind in load_operator(name).kinds]
    by_name: dict[str, list[Any]] = {}
    for kind in kinds:
        by_name.setdefault(kind.KIND.qualified, []).append(kind)
    return list(by_name.values())


def _findings(files: tuple[str, ...], operators: str, against: str | None, host: str) -> list[DefinitionFinding]:
    from steersman.crd import DefinitionFinding, SchemaError, crd_manifest, incompatible_changes, undescribed

    earlier = {} if against is None else _earlier(against)
    found, made = [], []
    for versions in _kinds(files, operators):
        try:
            made.append(crd_manifest(*versions, conversion=client_config(host)))
        except SchemaError as error:
            earlier.pop(versions[-1].KIND.qualified, None)
            kind = f"{versions[-1].KIND.kind} {versions[-1].KIND.version}"
            way_out = "use a type that a structural schema can express, or Any"
            field = error.path.partition(".")[2]
            found.append(DefinitionFinding(kind=kind, field=field, problem=error.problem, solution=way_out))
    for manifest in made:
        found += [*undescribed(manifest), *_rejections(manifest)]
    return [*found, *incompatible_changes(earlier.values(), made)]


def _earlier(path: str) -> dict[str, dict[str, Any]]:
    """The definitions in a file or folder, by name."""
    from steersman.cli.manifest_files import read_manifests
    from steersman.errors import ConfigError

    read = read_manifests([path])
    for where, problem in read.problems:
        raise ConfigError(problem, where=where)
    found = {value["metadata"]["name"]: value for _, value in read.objects if value["kind"] == DEFINITION}
    if not found:
        raise ConfigError(f"holds no {DEFINITION} (steersman crds > FILE writes them)", where=path, field="--against")
    return found


def _rejections(manifest: dict[str, Any]) -> list[DefinitionFinding]:
    """What an API server does not accept in a definition: its schema is not structural, a rule does not compile."""
    from steersman.apiserver.crd.definition_rules import default_definition, store_versions, validate_definition
    from steersman.crd import DefinitionFinding

    spec = manifest["spec"]
    complete = default_definition(manifest)
    complete["status"] = store_versions(complete, None)
    found = []
    for cause in validate_definition(complete):
        place = _PLACE.search(cause.field)
        version = spec["versions"][int(place["number"] or 0) if place else -1]["name"]
        found.append(
            DefinitionFinding(
                kind=f"{spec['names']['kind']} {version}",
                field=_STEP.sub(_step, place["path"]).removeprefix(".") if place else cause.field,
                problem=f"is rejected: {cause.message}",
                solution="change the annotations of the field until API servers accept it",
            )
        )
    return found


# Causes name places in a definition as the API server does: spec.validation.openAPIV3Schema.properties[spec].items.type
_PLACE: Final = re.compile(r"^spec\.(validation|versions\[(?P<number>\d+)\]\.schema)\.openAPIV3Schema(?P<path>.*)$")
_STEP: Final = re.compile(r"\.properties\[(?P<name>[^\]]*)\]|\.items(?=\.|$)|\.additionalProperties(?=\.|$)")


def _step(found: re.Match[str]) -> str:
    if found["name"] is not None:
        return f".{found['name']}"
    return "[]" if found[0] == ".items" else ".*"


def _print_findings(found: list[DefinitionFinding], output: str) -> None:
    from steersman.cli.output import print_table, show

    def table(to: Console) -> None:
        if found:
            rows = [(row.kind, row.field, row.problem, row.solution) for row in found]
            print_table(to, ["kind", "field", "problem", "solution"], rows)
        else:
            to.print("nothing to correct")

    show(found, output, table)
