"""The commands of `steersman toolset` that need no cluster: render, validate and merge."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from steersman.operators.toolset.objects import ServiceLook
    from steersman.operators.toolset.types import Settings

__all__ = ["merge", "render", "services_in", "settings_from", "validate"]


def settings_from(config: Path | None, *, namespaces: str | None) -> Settings:
    """What the section `toolset:` of the file says; one namespace on the command line narrows it."""
    from msgspec.structs import replace

    from steersman.cli.settings import load_settings

    settings: Settings = load_settings(config).sections["toolset"].settings()
    return settings if namespaces is None else replace(settings, namespaces=frozenset({namespaces}))


def documents_in(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a manifest file, or of all in a folder; `-` is standard input."""
    import yaml

    from steersman.errors import ConfigError
    from steersman.kube.document import PlainLoader

    if path.is_dir():
        for one in sorted(path.iterdir()):
            if one.suffix in (".yaml", ".yml", ".json"):
                yield from documents_in(one)
        return
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        found = list(yaml.load_all(text, PlainLoader))  # the plain loader is a safe one
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ConfigError("is not valid YAML", where=str(path)) from None
    for value in found:
        if isinstance(value, dict) and str(value.get("kind", "")).endswith("List"):
            yield from (item for item in value.get("items") or () if isinstance(item, dict))
        elif isinstance(value, dict):
            yield value


def services_in(files: Iterable[Path]) -> list[ServiceLook]:
    """The Services in manifests, each once."""
    import msgspec

    from steersman.errors import ConfigError
    from steersman.operators.toolset.objects import ServiceLook, service_look

    found: dict[Any, ServiceLook] = {}
    for path in files:
        for value in documents_in(path):
            if value.get("apiVersion") != "v1" or value.get("kind") != "Service":
                continue
            try:
                service = msgspec.convert(value, ServiceLook)
            except msgspec.ValidationError as error:
                raise ConfigError(f"Service: {error}", where=str(path)) from None
            if not service.metadata.name:
                raise ConfigError("a Service needs a name", where=str(path), field="metadata.name")
            service.metadata.namespace = service.metadata.namespace or "default"
            found[service.ref] = service_look(service)
    return list(found.values())


def _configmap_in(files: Iterable[Path], settings: Settings) -> dict[str, str]:
    """The data of the target ConfigMap, when it is among the manifests: its overrides count."""
    for path in files:
        for value in documents_in(path):
            meta = value.get("metadata") or {}
            if value.get("kind") == "ConfigMap" and meta.get("name") == settings.name:
                return {key: text for key, text in (value.get("data") or {}).items() if isinstance(text, str)}
    return {}


@click.command()
@click.option(
    "-f", "--filename", "files", multiple=True, required=True, type=click.Path(path_type=Path, allow_dash=True)
)
@click.option("--config", type=click.Path(path_type=Path), envvar="STEERSMAN_CONFIG", help="Read settings from FILE.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def render(files: tuple[Path, ...], config: Path | None, output: str) -> None:
    """Print the ConfigMaps for Services given as manifests, without a cluster and without probes.

    Services that only look like a tool by name or port are left out: nobody can be asked. An overrides.yaml in the
    target ConfigMap, when that is among the manifests, is merged in.

    \b
    Examples:
      steersman toolset render -f services.yaml
    """
    from msgspec.structs import replace

    from steersman.operators.toolset.look import Standing, look_at
    from steersman.operators.toolset.stand import Stand
    from steersman.operators.toolset.steps import plan_target
    from steersman.operators.toolset.types import OVERRIDES_KEY

    settings = settings_from(config, namespaces=None)
    settings = replace(settings, health=replace(settings.health, enabled=False))
    present = _configmap_in(files, settings)
    look = look_at(services_in(files), settings, standing=Standing(overrides=present.get(OVERRIDES_KEY)))
    for problem in look.problems:
        click.echo(f"warning: {problem.message}", err=True)
    volatile = {f"{settings.prefix}{name}" for name in ("generated-at", "conflict-count")}
    objects = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": step.desired.name,
                "namespace": step.desired.namespace,
                "labels": dict(step.desired.labels),
                "annotations": {key: text for key, text in step.desired.annotations.items() if key not in volatile},
            },
            "data": {key: step.desired.data[key] for key in sorted(step.desired.data)},
        }
        for step in plan_target(look, Stand(), settings, manager="", now="")
    ]
    _print(objects, output)


def _print(objects: list[dict[str, Any]], output: str) -> None:
    if output == "json":
        import msgspec

        value = objects[0] if len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": objects}
        click.echo(msgspec.json.format(msgspec.json.encode(value)).decode())
        return
    import yaml

    class Dumper(yaml.SafeDumper):
        """Values of several lines as blocks, so that a person can read them."""

    def block(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, block)
    dumped = [yaml.dump(one, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1000) for one in objects]
    click.echo("---\n".join(dumped), nl=False)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), metavar="OVERRIDES.yaml|custom_toolset.yaml")
@click.option("--config", type=click.Path(path_type=Path), envvar="STEERSMAN_CONFIG", help="Read settings from FILE.")
def validate(file: Path, config: Path | None) -> int:
    """Check overrides, or a rendered custom_toolset.yaml; exit code 3 when something is wrong.

    \b
    Examples:
      steersman toolset validate overrides.yaml
    """
    from steersman.errors import ConfigError, FormatError
    from steersman.operators.toolset.conformance import check_holmes
    from steersman.operators.toolset.holmes import Profile, entries_of
    from steersman.operators.toolset.model import build_model
    from steersman.operators.toolset.overrides import merge_overrides, parse_overrides
    from steersman.operators.toolset.types import HOLMES_KEY

    settings = settings_from(config, namespaces=None)
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(file)) from None
    problems: list[str] = []
    if file.name == HOLMES_KEY:
        problems += check_holmes(text)
    else:
        try:
            overrides = parse_overrides(text)
        except FormatError as error:
            problems.append(str(error))
        else:
            profile = Profile(settings.profile)
            entries, _ = entries_of(build_model((), settings), profile)
            problems += [*overrides.warnings, *merge_overrides(entries, overrides, profile).unmappable]
    for problem in problems:
        click.echo(f"{file}: {problem}")
    if not problems:
        click.echo(f"{file}: fine")
    return 3 if problems else 0


@click.command()
@click.argument(
    "sources", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="FOLDER|FILE..."
)
@click.option("--to", "target", type=click.Path(path_type=Path), help="Write FILE at once, instead of printing.")
def merge(sources: tuple[Path, ...], target: Path | None) -> None:
    """Join the custom_toolset.yaml of a base and its parts into one file, for a consumer that reads one.

    A FOLDER is a mounted ConfigMap. Run it before the consumer, in an init container.

    \b
    Examples:
      steersman toolset merge parts/base parts/1 --to custom_toolset.yaml
    """
    from steersman.errors import ConfigError, FormatError
    from steersman.operators.toolset.joining import join_files
    from steersman.operators.toolset.types import HOLMES_KEY

    files = [one / HOLMES_KEY if one.is_dir() else one for one in sources]
    texts = []
    for file in files:
        try:
            texts.append(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"has no {HOLMES_KEY}", where=str(file.parent)) from None
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", where=str(file)) from None
    try:
        joined = join_files(texts)
    except FormatError as error:
        raise ConfigError(str(error), where=", ".join(map(str, files))) from None
    if target is None:
        click.echo(joined, nl=False)
        return
    scratch = target.with_name(f".{target.name}.new")
    scratch.write_text(joined, encoding="utf-8")
    scratch.replace(target)  # nobody ever reads half a file
