"""`steersman crds`: the CustomResourceDefinitions of operators, or of a Python file, as YAML."""

from __future__ import annotations

import click

__all__ = ["command"]


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE.py|MODULE]...")
@click.option("--operators", default="", help="Names of operators, separated by commas.  [default: all]")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def command(files: tuple[str, ...], operators: str, output: str) -> None:
    """Print CustomResourceDefinitions.

    \b
    Examples:
      steersman crds | kubectl apply -f -
      steersman crds examples/webapp.py | kubectl apply -f -
    """
    from steersman.cli.pythonfiles import kinds_in, load_python
    from steersman.cli.rbac import print_manifests
    from steersman.crd import crd_manifest
    from steersman.errors import ConfigError
    from steersman.operators import OPERATORS, load_operator

    kinds = [kind for name in files for kind in kinds_in(load_python(name))]
    if files and not kinds:
        raise ConfigError(
            "there is no kind in it: a class with Resource as base, group= and version= makes one",
            where=", ".join(files),
        )
    if operators or not files:
        names = [name.strip() for name in operators.split(",") if name.strip()] or sorted(OPERATORS)
        kinds += [kind for name in names for kind in load_operator(name).kinds]
    by_name: dict[str, list[type]] = {}
    for kind in kinds:
        by_name.setdefault(kind.KIND.qualified, []).append(kind)
    print_manifests([crd_manifest(*versions) for versions in by_name.values()], output)
