"""`steersman init`: a new operator project that passes its own tests.

The files under `scaffold/` are what is written, with names put in. Nothing that exists is ever overwritten, and nothing
is left half-written: everything is rendered before the first file is made.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from steersman.errors import ConfigError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["ProjectNames", "command", "rendered"]

_PROJECT = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_GROUP = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")


class ProjectNames(msgspec.Struct, frozen=True, kw_only=True):
    """What is put into the files.

    >>> names = ProjectNames.of("cache-operator", kind="Cache", group="example.org", version="1.0")
    >>> names.package, names.name, names.plural
    ('cache_operator', 'cache', 'caches')
    """

    project: str
    package: str
    kind: str
    name: str
    plural: str
    group: str
    version: str

    @classmethod
    def of(cls, project: str, *, kind: str, group: str, version: str) -> ProjectNames:
        """The names that follow from the three a person chooses; ConfigError says which cannot be used."""
        if not _PROJECT.fullmatch(project):
            raise ConfigError(f'"{project}" cannot be a project: lower case, digits and dashes (try my-operator)')
        if not _KIND.fullmatch(kind):
            raise ConfigError(f'"{kind}" cannot be a kind (try {_as_kind(kind)})', field="--kind")
        if not _GROUP.fullmatch(group):
            raise ConfigError(f'"{group}" cannot be a group: a domain of yours (try example.org)', field="--group")
        name = kind.lower()
        plural = f"{name}es" if name.endswith(("s", "x", "z", "ch", "sh")) else f"{name}s"
        plural = f"{name[:-1]}ies" if re.search("[^aeiou]y$", name) else plural
        package = project.replace("-", "_")
        return cls(project=project, package=package, kind=kind, name=name, plural=plural, group=group, version=version)

    def put_into(self, text: str) -> str:
        """`text` with every placeholder filled in."""
        for field, value in msgspec.structs.asdict(self).items():
            text = text.replace(f"__{field}__", value)
        return text


def _as_kind(text: str) -> str:
    """A kind that is as near to `text` as one can be."""
    words = re.split("[^A-Za-z0-9]+", text)
    kind = "".join(word[:1].upper() + word[1:] for word in words).lstrip("0123456789")
    return kind[:1].upper() + kind[1:] or "Cache"


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--kind", default="App", show_default=True, help="The kind your operator runs.")
@click.option("--group", default="example.org", show_default=True, help="The API group, a domain of yours.")
def command(folder: Path, kind: str, group: str) -> None:
    """Start an operator project: types, controller, tests and chart, in FOLDER.

    The folder's name becomes the project's. Nothing that exists is overwritten.

    \b
    Examples:
      steersman init cache-operator --kind Cache --group cache.example.org
      cd cache-operator && pip install -e '.[testing]' && pytest
    """
    from importlib.metadata import version

    try:
        names = ProjectNames.of(folder.resolve().name, kind=kind, group=group, version=version("steersman"))
    except ConfigError as error:
        raise click.BadParameter(error.message, param_hint=error.field or "FOLDER") from None
    contents = rendered(names)
    taken = [path for path in contents if (folder / path).exists()]
    if taken:
        raise ConfigError(f"{folder / taken[0]} exists already: choose another folder", where=str(folder))
    _write(folder, contents, names)
    click.echo(f"{folder}: an operator for {names.kind} ({names.group}), {len(contents) + 1} files")
    click.echo(f"\nTo try it:\n  cd {folder}\n  pip install -e '.[testing]'\n  pytest")
    click.echo(
        f"  steersman crds {names.package}.types | kubectl apply -f -\n  steersman run {names.package}.controller"
    )


def _write(folder: Path, contents: dict[Path, str], names: ProjectNames) -> None:
    """Make the project beside its place, and move it there when it is whole: an interruption leaves nothing."""
    import tempfile

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent)
    except OSError as error:
        raise ConfigError(f"cannot be made: {error.strerror}", where=str(folder)) from error
    with beside as scratch:
        made = Path(scratch) / folder.name
        for path, text in contents.items():
            (made / path).parent.mkdir(parents=True, exist_ok=True)
            (made / path).write_text(text)
        target = Path("chart") / "crds" / f"{names.plural}.yaml"
        (made / target).parent.mkdir(parents=True, exist_ok=True)
        (made / target).write_text(_definition(made, names))
        if not folder.exists():
            made.rename(folder)
            return
        for path in (*contents, target):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (made / path).rename(folder / path)


def rendered(names: ProjectNames) -> dict[Path, str]:
    """Every file of the project by its path, but for the generated definition."""
    found: dict[Path, str] = {}
    _collect(files("steersman.cli.develop") / "scaffold", Path(), names, found)
    return dict(sorted(found.items()))


def _collect(folder: Traversable, at: Path, names: ProjectNames, found: dict[Path, str]) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            _collect(entry, at / names.put_into(entry.name), names, found)
        elif entry.name.endswith(".in"):
            name = entry.name.removesuffix(".in")
            found[at / (".gitignore" if name == "gitignore" else name)] = names.put_into(entry.read_text())


def _definition(folder: Path, names: ProjectNames) -> str:
    import yaml

    from steersman.cli.python_files import kinds_in, load_python
    from steersman.crd import crd_manifest

    (kind,) = kinds_in(load_python(str(folder / "src" / names.package / "types.py")))
    return yaml.safe_dump(crd_manifest(kind), sort_keys=False)
