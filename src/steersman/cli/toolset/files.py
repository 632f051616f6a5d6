"""The commands of `steersman toolset` that need no cluster: render, validate and merge."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.exit_codes import exit_code
from steersman.cli.kube_options import config_option
from steersman.cli.output import manifest_output_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from steersman.operators.toolset.api.config import TargetSettings
    from steersman.operators.toolset.api.crd import ServiceSummary


def settings_from(config: Path | None, *, namespaces: str | None) -> TargetSettings:
    """The settings of the section `toolset:`; a namespace on the command line narrows them."""
    from msgspec.structs import replace

    from steersman.cli.config import load_settings

    settings: TargetSettings = load_settings(config).sections["toolset"].settings()
    return settings if namespaces is None else replace(settings, namespaces=frozenset({namespaces}))


def read_documents(files: Iterable[Path]) -> list[tuple[Path, dict[str, Any]]]:
    """The objects of manifest files and folders, each with its file; `-` is standard input."""
    return [(path, value) for path in files for value in _documents(path)]


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    import yaml

    from steersman.bounded_parsing import FILE, BudgetError, load_yaml
    from steersman.errors import ConfigError

    if path.is_dir():
        for file in sorted(path.iterdir()):
            if file.suffix in (".yaml", ".yml", ".json"):
                yield from _documents(file)
        return
    try:
        found = load_yaml(_text_of(path), FILE)
    except BudgetError as error:
        raise ConfigError(str(error), where=str(path)) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ConfigError("is not valid YAML", where=str(path)) from None
    for value in found:
        if isinstance(value, dict) and str(value.get("kind", "")).endswith("List"):
            yield from (item for item in value.get("items") or () if isinstance(item, dict))
        elif isinstance(value, dict):
            yield value


def _text_of(path: Path) -> str:
    from steersman.errors import ConfigError

    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None


def services_in(documents: Iterable[tuple[Path, dict[str, Any]]]) -> list[ServiceSummary]:
    """The Services in manifests, each once."""
    import msgspec

    from steersman.errors import ConfigError
    from steersman.operators.toolset.api.crd import ServiceSummary, summarize_service

    found: dict[Any, ServiceSummary] = {}
    for path, value in documents:
        if value.get("apiVersion") != "v1" or value.get("kind") != "Service":
            continue
        try:
            service = msgspec.convert(value, ServiceSummary)
        except msgspec.ValidationError as error:
            raise ConfigError(f"Service: {error}", where=str(path)) from None
        if not service.metadata.name:
            raise ConfigError("a Service needs a name", where=str(path), field="metadata.name")
        service.metadata.namespace = service.metadata.namespace or "default"
        found[service.ref] = summarize_service(service)
    return list(found.values())


def _overrides_in(documents: Iterable[tuple[Path, dict[str, Any]]], settings: TargetSettings) -> dict[str, str]:
    """The overrides of the target ConfigMap, when it is among the manifests."""
    from steersman.operators.toolset.api.config import OVERRIDES_KEY

    for _, value in documents:
        named = (value.get("metadata") or {}).get("name") == settings.name
        text = (value.get("data") or {}).get(OVERRIDES_KEY)
        if value.get("kind") == "ConfigMap" and named and isinstance(text, str):
            return {OVERRIDES_KEY: text}
    return {}


@click.command()
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="Manifests of Services; - reads standard input.",
)
@config_option
@manifest_output_option
def render(files: tuple[Path, ...], config: Path | None, output: str) -> None:
    """Print the ConfigMaps for Services given as manifests, without a cluster and without probes.

    Services that match by name or port only are left out, because they cannot be probed. If the target ConfigMap is
    among the manifests, its overrides.yaml is merged in.

    \b
    Examples:
      steersman toolset render -f services.yaml
    """
    from msgspec.structs import replace

    from steersman.operators.toolset.reconcile.current import CurrentState
    from steersman.operators.toolset.reconcile.desired import desired_state
    from steersman.operators.toolset.reconcile.plan import plan_target

    settings = settings_from(config, namespaces=None)
    settings = replace(settings, health=replace(settings.health, enabled=False))
    documents = read_documents(files)
    current = CurrentState(services=tuple(services_in(documents)), foreign=_overrides_in(documents, settings))
    desired = desired_state(current, settings)
    for problem in desired.problems:
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
        for step in plan_target(desired, current, settings, manager="", now="").steps
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
    dumped = [yaml.dump(obj, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1000) for obj in objects]
    click.echo("---\n".join(dumped), nl=False)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), metavar="OVERRIDES.yaml|custom_toolset.yaml")
@config_option
def validate(file: Path, config: Path | None) -> int:
    """Check overrides, or a rendered custom_toolset.yaml; exit code 3 when a problem is found.

    \b
    Examples:
      steersman toolset validate overrides.yaml
    """
    from steersman.errors import FormatError
    from steersman.operators.toolset.api.config import HOLMES_KEY
    from steersman.operators.toolset.render.conformance import check_holmes
    from steersman.operators.toolset.render.holmes import HolmesProfile, entries_of
    from steersman.operators.toolset.render.model import build_model
    from steersman.operators.toolset.render.overrides import merge_overrides, parse_overrides

    settings = settings_from(config, namespaces=None)
    text = _text_of(file)
    problems: list[str] = []
    if file.name == HOLMES_KEY:
        problems += check_holmes(text)
    else:
        try:
            overrides = parse_overrides(text)
        except FormatError as error:
            problems.append(str(error))
        else:
            profile = HolmesProfile(settings.profile)
            entries, _ = entries_of(build_model((), settings), profile)
            problems += [*overrides.warnings, *merge_overrides(entries, overrides, profile).unmappable]
    for problem in problems:
        click.echo(f"{file}: {problem}")
    if not problems:
        click.echo(f"{file}: valid")
    return exit_code(found=bool(problems))


@click.command()
@click.argument(
    "sources", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="FOLDER|FILE..."
)
@click.option("--to", "target", type=click.Path(path_type=Path), help="Write FILE atomically instead of printing.")
def merge(sources: tuple[Path, ...], target: Path | None) -> None:
    """Join the custom_toolset.yaml of a base and its parts into one file, for a consumer that reads one.

    A FOLDER is a mounted ConfigMap. Run it before the consumer, in an init container.

    \b
    Examples:
      steersman toolset merge parts/base parts/1 --to custom_toolset.yaml
    """
    from steersman.errors import ConfigError, FormatError
    from steersman.operators.toolset.api.config import HOLMES_KEY
    from steersman.operators.toolset.render.merge import join_files

    files = [source / HOLMES_KEY if source.is_dir() else source for source in sources]
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
    scratch.replace(target)  # atomic: readers never see half a file
