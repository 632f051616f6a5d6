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
      cd cache-operator && make setup && make test
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
    count = _write(folder, contents, names)
    click.echo(f"{folder}: an operator for {names.kind} ({names.group}), {count} files")
    click.echo(f"\nTo try it:\n  cd {folder}\n  make setup\n  make test")
    click.echo("  make run    # against the cluster of your kubeconfig")


def _write(folder: Path, contents: dict[Path, str], names: ProjectNames) -> int:
    """Make the project beside its place, and move it there when it is whole: an interruption leaves nothing.

    Returns the number of files.
    """
    import tempfile

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent)
    except OSError as error:
        raise ConfigError(f"cannot be made: {error.strerror}", where=str(folder)) from error
    with beside as scratch:
        made = Path(scratch) / folder.name
        _put(made, contents)
        generated = _chart(made, names)
        _put(made, generated)
        if not folder.exists():
            made.rename(folder)
            return len(contents) + len(generated)
        for path in (*contents, *generated):
            if (folder / path).exists():
                raise ConfigError(f"{folder / path} exists already: choose another folder", where=str(folder))
        for path in (*contents, *generated):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (made / path).rename(folder / path)
    return len(contents) + len(generated)


def _put(folder: Path, contents: dict[Path, str]) -> None:
    for path, text in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def rendered(names: ProjectNames) -> dict[Path, str]:
    """Every file of the project by its path, but for the chart, which follows from them."""
    found: dict[Path, str] = {}
    _collect(files("steersman.cli.develop") / "scaffold", Path(), names, found)
    return dict(sorted(found.items()))


def _collect(folder: Traversable, at: Path, names: ProjectNames, found: dict[Path, str]) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            folder_name = ".github" if entry.name == "github" else names.put_into(entry.name)
            _collect(entry, at / folder_name, names, found)
        elif entry.name.endswith(".in"):
            name = entry.name.removesuffix(".in")
            found[at / (".gitignore" if name == "gitignore" else name)] = names.put_into(entry.read_text())


def _chart(folder: Path, names: ProjectNames) -> dict[Path, str]:
    """The chart that `make chart` writes for the project in `folder`."""
    import sys

    from steersman.cli.install.chart import chart_files

    source = str(folder / "src")
    sys.path.insert(0, source)
    try:
        made = chart_files([f"{names.package}.controller"], name=names.project, image=names.project)
    finally:
        sys.path.remove(source)
        for module in [name for name in sys.modules if name.partition(".")[0] == names.package]:
            del sys.modules[module]
    return {Path("chart") / path: text for path, text in made.items()}
