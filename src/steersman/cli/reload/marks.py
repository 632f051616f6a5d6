"""`steersman reload approve|freeze|thaw`: each sets or removes one annotation on one object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kube_options import complete_workload, kube_options
from steersman.cli.reload.inspection import settings_options

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.kube.api.gvk import Kind
    from steersman.kube.client.client import Client
    from steersman.operators.reload.api.config import ReloadOptions

_TARGETS = "KIND/NAME"


@click.command()
@click.argument("target", metavar=_TARGETS)
@click.argument("digest", required=False)
@settings_options
@kube_options
def approve(
    target: str,
    digest: str | None,
    config: Path | None,
    dialects: tuple[str, ...],
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Approve a change that needs approval.

    TARGET is the source (configmap/NAME, secret/NAME): then what it says now is approved, unless a DIGEST is named. On
    a workload or a namespace the DIGEST is required. What the source says later needs another approval. When no
    workload has a change of the source pending, that is said, and nothing is written; which workloads are asked depends
    on the settings of the operator (--config), and annotations of every dialect are read.

    \b
    Examples:
      steersman reload approve configmap/app -n shop
      steersman reload approve deployment/web 3f2a9c41b7de -n shop
    """
    from steersman.cli.reload.inspection import reload_options
    from steersman.operators.reload.api.annotations import APPROVE

    options = reload_options(config, dialects)

    async def run() -> None:
        async with _client(kubeconfig, context) as client:
            kind, name, home = await _target(client, target, namespace)
            value = digest or await _digest(client, kind, name, home)
            if digest is None and not await _waits(client, options, kind.kind, name, home):
                click.echo(f"{target}: no workload waits for a change of it, so there is nothing to approve")
                return
            await _annotate(client, kind, name, home, {APPROVE: value})
            click.echo(f"{target}: the change to {value} is approved")

    _run(run())


@click.command()
@click.argument("target", metavar=_TARGETS, shell_complete=complete_workload)
@click.option("--for", "duration", metavar="DURATION", help="End by itself after this long, e.g. 2h.")
@click.option("--until", metavar="TIME", help="End by itself then (RFC 3339).")
@kube_options
def freeze(
    target: str,
    duration: str | None,
    until: str | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """No restarts for a workload, a source or a namespace; changes wait and are applied afterwards.

    \b
    Examples:
      steersman reload freeze deployment/web -n shop --for 2h
      steersman reload freeze namespace/shop --until 2026-12-24T18:00:00Z
    """
    import time

    from steersman.errors import FormatError
    from steersman.kube.api.durations import parse_duration
    from steersman.kube.api.times import format_time, parse_time
    from steersman.operators.reload.api.annotations import FREEZE

    if duration and until:
        raise click.UsageError("--for and --until exclude each other.")
    end = None
    try:
        if duration:
            end = format_time(time.time() + parse_duration(duration).total_seconds())
        elif until:
            end = format_time(parse_time(until))
    except FormatError as error:
        raise click.BadParameter(str(error), param_hint="--for" if duration else "--until") from None

    async def run() -> None:
        async with _client(kubeconfig, context) as client:
            kind, name, home = await _target(client, target, namespace)
            await _annotate(client, kind, name, home, {FREEZE: f"until={end}" if end else "true"})
            click.echo(f"{target} is frozen {f'until {end}' if end else 'until it is thawed'}")

    _run(run())


@click.command()
@click.argument("target", metavar=_TARGETS, shell_complete=complete_workload)
@kube_options
def thaw(target: str, kubeconfig: Path | None, context: str | None, namespace: str | None) -> None:
    """Lift a freeze: changes that waited are applied.

    \b
    Example:
      steersman reload thaw deployment/web -n shop
    """
    from steersman.operators.reload.api.annotations import FREEZE

    async def run() -> None:
        async with _client(kubeconfig, context) as client:
            kind, name, home = await _target(client, target, namespace)
            if not await _carries(client, kind, name, home, FREEZE):
                click.echo(f"{target} was not frozen")
                return
            await _annotate(client, kind, name, home, {FREEZE: None})
            click.echo(f"{target} is thawed")

    _run(run())


def _run(work: Any) -> None:
    import asyncio

    asyncio.run(work)


def _client(kubeconfig: Path | None, context: str | None) -> Client:
    from steersman.cli.reload.inspection import connected

    return connected(kubeconfig, context)


async def _target(client: Client, target: str, namespace: str | None) -> tuple[Kind, str, str]:
    """The kind, name and namespace of a workload, a source or a namespace."""
    from steersman.cli.reload.inspection import rule_named, workload_word
    from steersman.operators.reload.api.config import ReloadOptions
    from steersman.operators.reload.inspect.offline import OfflineInspection
    from steersman.operators.reload.planning.snapshot import NamespaceSettings
    from steersman.operators.reload.sources.digest import ConfigMapSource, SecretSource

    word, name = workload_word(target)
    home = namespace or client.namespace
    for kind, words in (
        (ConfigMapSource.KIND, ("configmap", "configmaps", "cm")),
        (SecretSource.KIND, ("secret", "secrets")),
        (NamespaceSettings.KIND, ("namespace", "namespaces", "ns")),
    ):
        if word.lower() in words:
            return kind, name, home
    inspection = OfflineInspection(ReloadOptions(), served=[resource.kind for resource in await client.api_resources()])
    return rule_named(inspection, word).kind, name, home


async def _annotate(client: Client, kind: Kind, name: str, namespace: str, marks: dict[str, str | None]) -> None:
    await client.patch(kind, name, {"metadata": {"annotations": marks}}, namespace=namespace)


async def _carries(client: Client, kind: Kind, name: str, namespace: str, mark: str) -> bool:
    """Whether an object has an annotation; where that may not be read, it may have it."""
    from steersman.kube.api.errors import Forbidden

    try:
        found = await client.get(kind, name, namespace=namespace)
    except Forbidden:
        return True
    return mark in (found["metadata"].get("annotations") or {})


async def _waits(client: Client, options: ReloadOptions, kind: str, name: str, namespace: str) -> bool:
    """Whether a change of this source is pending on a workload; True where that cannot be read.

    The operator may read dialects that are off here, so the workloads are asked again with those they are written in.
    """
    import time

    from msgspec.structs import replace

    from steersman.cli.reload.inspection import inspect_cluster, users_elsewhere

    others, unasked = await users_elsewhere(client, options, {namespace})
    (inspection,) = await inspect_cluster(client, options, sorted({namespace, *others}), as_far_as_allowed=True)
    for rule, workload in inspection.workloads():
        for change in inspection.evaluate(rule, workload, time.time()).plan.changes:
            if (change.source.kind.value, change.source.namespace, change.source.name) == (
                kind.lower(),
                namespace,
                name,
            ):
                return True
    if inspection.dialects_off:
        wider = replace(options, dialects=(*options.dialects, *inspection.dialects_off))
        return await _waits(client, wider, kind, name, namespace)
    return bool(unasked or inspection.unread or inspection.unseen)


async def _digest(client: Client, kind: Kind, name: str, namespace: str) -> str:
    from steersman.operators.reload.api.config import ReloadOptions
    from steersman.operators.reload.inspect.offline import OfflineInspection
    from steersman.operators.reload.planning.gates import change_digest

    if kind.kind not in ("ConfigMap", "Secret"):
        raise click.UsageError(f"{kind.kind} {name} needs the DIGEST of a change; a source can do without.")
    found = await client.get(kind, name, namespace=namespace)
    source: Any = OfflineInspection(ReloadOptions()).add({"apiVersion": "v1", "kind": kind.kind, **found}, namespace)
    return change_digest(source)
