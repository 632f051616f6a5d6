"""`steersman toolset`: what the toolset operator discovers and would write, and what differs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.exit_codes import exit_code
from steersman.cli.kube_options import config_option, kube_options, selector_option
from steersman.cli.output import output_option, print_hanging, print_table, show
from steersman.cli.suggestions import SuggestingGroup
from steersman.cli.toolset.files import merge, render, settings_from, validate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from steersman.cli.plan_options import PlanOptions
    from steersman.kube.client.client import Client
    from steersman.operators.toolset.api.config import TargetSettings
    from steersman.operators.toolset.api.crd import ServiceSummary
    from steersman.operators.toolset.discovery.matching import Candidate
    from steersman.operators.toolset.reconcile.current import CurrentState
    from steersman.operators.toolset.reconcile.desired import DesiredState
    from steersman.operators.toolset.reconcile.plan import KeyChange

MANAGER = "steersman-toolset"
_PROBE = click.option("--probe/--no-probe", default=False, help="Probe the services; they must be reachable from here.")


@click.group(cls=SuggestingGroup)
def command() -> None:
    """Show, render, check and restore the toolset ConfigMaps."""


command.add_command(render)
command.add_command(validate)
command.add_command(merge)


@command.command()
@config_option
@_PROBE
@selector_option
@output_option("name")
@kube_options
def discover(config: Path | None, probe: bool, selector: str, output: str, **cluster: Any) -> None:
    """List the services that match a toolset, as the operator would find them now.

    Without --probe, a service that a label identifies counts as healthy.

    \b
    Examples:
      steersman toolset discover --probe
    """
    settings = settings_from(config, namespaces=cluster["namespace"])
    desired, _ = asyncio.run(inspect_cluster(settings, cluster, probe=probe, selector=selector))
    from steersman.operators.toolset.reconcile.status import services_of

    services = services_of(desired.discovery)

    def table(to: Console) -> None:
        if not services:
            to.print("no Service matches a toolset")
            return
        columns = ("service", "namespace", "type", "endpoint", "state", "matched by", "message")
        rows = [
            (view.name, view.namespace, view.type, view.endpoint, view.state, view.reason, view.message)
            for view in services
        ]
        print_table(to, columns, rows)

    names = [f"service/{view.name}" for view in services]
    show({"services": services, "total": len(services)}, output, table, names=lambda: names)


@command.command()
@config_option
@_PROBE
@output_option()
@kube_options
def diff(config: Path | None, probe: bool, output: str, **cluster: Any) -> int:
    """Compare the ConfigMaps with their desired state; exit code 3 when they differ.

    \b
    Examples:
      steersman toolset diff
    """
    settings = settings_from(config, namespaces=None)
    desired, current = asyncio.run(inspect_cluster(settings, cluster, probe=probe))
    from steersman.operators.toolset.reconcile.plan import plan_target

    plan = plan_target(desired, current, settings, manager=MANAGER, now="")
    drift = plan.drift

    def table(to: Console) -> None:
        if not drift:
            to.print(f"no drift in {settings.namespace}/{settings.name}")
            return
        rows = [
            (step.desired.name, step.plan.operation.value, item) for step in plan.steps for item in step.plan.counted
        ]
        print_table(to, ("configmap", "operation", "drift"), rows)

    show({"drift": drift}, output, table)
    return exit_code(found=bool(drift))


@command.command()
@click.argument("service", metavar="[NAMESPACE/]SERVICE")
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Read these manifests.",
)
@config_option
@output_option()
@kube_options
def explain(service: str, files: tuple[Path, ...], config: Path | None, output: str, **cluster: Any) -> int:
    """Explain why a Service matches a toolset, or why not; exit code 3 when it does not.

    \b
    Examples:
      steersman toolset explain monitoring/prometheus
    """
    from steersman.errors import ConfigError
    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.toolset.discovery.matching import detect

    settings = settings_from(config, namespaces=None)
    namespace, _, name = service.rpartition("/")
    if files:
        from steersman.cli.toolset.files import read_documents, services_in

        ref = NamespacedName(name, namespace or cluster["namespace"] or "default")
        found = next((item for item in services_in(read_documents(files)) if item.ref == ref), None)
        if found is None:
            raise ConfigError(f"Service {ref} not found", where=", ".join(map(str, files)))
    else:
        found = asyncio.run(_service(cluster, name, namespace))
    match = detect(found, settings)
    value: dict[str, Any] = {
        "service": str(found.ref),
        "reason": match.reason,
        "message": match.message,
        "problems": list(match.problems),
        "candidate": None
        if match.candidate is None
        else {
            "type": match.candidate.type,
            "confidence": match.candidate.confidence.name.lower(),
            "endpoint": match.candidate.url,
            "health": match.candidate.health_url,
            "identity": match.candidate.identity_url if match.candidate.needs_identity else None,
            "credentials": bool(match.candidate.auth_env),
            "priority": match.candidate.priority,
        },
    }

    def table(to: Console) -> None:
        to.print(f"{value['service']}: {match.reason}: {match.message}")
        words = {None: "-", True: "yes", False: "no"}
        for label, field in (value["candidate"] or {}).items():
            print_hanging(
                to, f"  {label:<12} ", words[field] if field is None or isinstance(field, bool) else str(field)
            )
        for problem in match.problems:
            print_hanging(to, "  problem      ", problem)

    show(value, output, table)
    return exit_code(found=match.candidate is None)


@command.command()
@config_option
@kube_options
def restore(config: Path | None, **cluster: Any) -> None:
    """Restore overrides.yaml and the keys of other owners from the operator's backup.

    \b
    Examples:
      steersman toolset restore
    """
    settings = settings_from(config, namespaces=None)
    restored = asyncio.run(_restore(settings, cluster))
    click.echo(f"restored {', '.join(restored)}" if restored else "nothing to restore")


# -- the top-level plan ------------------------------------------------------------------------------------------------


def plan_of(manifests: Sequence[tuple[str, dict[str, Any]]], options: PlanOptions) -> list[KeyChange]:
    """The keys of the toolset ConfigMaps that would change if these manifests were applied.

    Only Services with the labels of -l are applied. Without the cluster, the ConfigMaps are those of a cluster
    without Services.
    """
    from msgspec.structs import replace

    from steersman.cli.kube_options import cluster_config
    from steersman.cli.toolset.files import overrides_in, services_in
    from steersman.kube.api.selectors import Selector
    from steersman.operators.toolset.reconcile.current import CurrentState
    from steersman.operators.toolset.reconcile.desired import desired_state
    from steersman.operators.toolset.reconcile.plan import changed_keys

    settings = settings_from(options.config, namespaces=None)
    settings = replace(settings, health=replace(settings.health, enabled=False))
    documents, chosen = [(Path(where), manifest) for where, manifest in manifests], Selector.parse(options.selector)
    home = options.namespace
    if home is None:
        home = cluster_config(options.kubeconfig, options.context).namespace if options.live else "default"
    applied = {
        service.ref: service for service in services_in(documents, home) if chosen.matches(service.metadata.labels)
    }
    overrides = {} if options.selector else overrides_in(documents, settings)
    if not applied and not overrides:
        return []
    before = CurrentState()
    if options.live:
        cluster = {"kubeconfig": options.kubeconfig, "context": options.context, "namespace": None}
        _, before = asyncio.run(inspect_cluster(settings, cluster, probe=False))
    services = {service.ref: service for service in before.services} | applied
    after = replace(before, services=tuple(services.values()), foreign={**before.foreign, **overrides})
    return changed_keys(desired_state(before, settings), desired_state(after, settings), settings)


def draw_plan(to: Console, rows: Sequence[KeyChange]) -> None:
    """One key per row."""
    to.print(f"{len(rows)} key{'' if len(rows) == 1 else 's'} of the toolset would change")
    columns = ("configmap", "namespace", "key", "action", "for")
    print_table(to, columns, [(row.configmap, row.namespace, row.key, row.action, row.why) for row in rows])


# -- the cluster -------------------------------------------------------------------------------------------------------


def _connect(cluster: dict[str, Any]) -> Client:
    from steersman.cli.kube_options import cluster_config
    from steersman.kube.client.client import Client

    return Client.connect(cluster_config(cluster["kubeconfig"], cluster["context"]))


async def _service(cluster: dict[str, Any], name: str, namespace: str) -> ServiceSummary:
    from steersman.operators.toolset.api.crd import ServiceSummary, summarize_service

    async with _connect(cluster) as client:
        found = await client.get(ServiceSummary, name, namespace=namespace or cluster["namespace"])
    return summarize_service(found)


async def inspect_cluster(
    settings: TargetSettings, cluster: dict[str, Any], *, probe: bool, selector: str = ""
) -> tuple[DesiredState, CurrentState]:
    """The current and the desired state, as the operator computes them; of Services with these labels only."""
    from msgspec.structs import replace

    from steersman.operators.toolset.api.crd import ServiceSummary, summarize_service
    from steersman.operators.toolset.discovery.health import HealthRecord
    from steersman.operators.toolset.reconcile.desired import desired_state, match_services

    async with _connect(cluster) as client:
        scopes: list[str | None] = [None] if settings.namespaces is None else [*sorted(settings.namespaces)]
        services = [
            summarize_service(service)
            for scope in scopes
            for service in (await client.list(ServiceSummary, namespace=scope, label_selector=selector or None)).items
        ]
        current = replace(await _read_configmaps(client, settings), services=tuple(services))
    if not probe:
        unprobed = replace(settings, health=replace(settings.health, enabled=False))
        return desired_state(current, unprobed), current
    from steersman.operators.toolset.discovery.probe import Prober

    prober, limit = Prober(), asyncio.Semaphore(10)
    matches = match_services(current, settings)
    candidates = {ref: match.candidate for ref, match in matches.items() if match.candidate is not None}

    async def record(candidate: Candidate) -> HealthRecord:
        async with limit:
            result = await prober.probe(candidate, timeout=settings.health.timeout, attempts=1, strict=settings.strict)
        return HealthRecord(result=result, failures=0 if result.reachable else 1)

    records = await asyncio.gather(*map(record, candidates.values()))
    return desired_state(current, settings, health=dict(zip(candidates, records, strict=True))), current


async def _read_configmaps(client: Client, settings: TargetSettings) -> CurrentState:
    from steersman.kube.api.errors import NotFound
    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.toolset.api.crd import TargetConfigMap, with_key_owners
    from steersman.operators.toolset.reconcile.current import read_configmaps

    async def get(ref: NamespacedName) -> TargetConfigMap | None:
        try:
            return with_key_owners(await client.get(TargetConfigMap, ref.name, namespace=ref.namespace))
        except NotFound:
            return None

    return await read_configmaps(get, NamespacedName(settings.name, settings.namespace), settings, manager=MANAGER)


async def _restore(settings: TargetSettings, cluster: dict[str, Any]) -> list[str]:
    from steersman.errors import ConfigError
    from steersman.kube.api.objects import OwnedMeta
    from steersman.operators.toolset.api.crd import TargetConfigMap

    async with _connect(cluster) as client:
        current = await _read_configmaps(client, settings)
        if current.backup_object is None:
            message = (
                f"no backup of {settings.namespace}/{settings.name}; the operator makes one when there are overrides"
            )
            raise ConfigError(message, field="restore")
        present = (current.base.data or {}) if current.base is not None else {}
        missing = {key: value for key, value in current.backup.foreign.items() if present.get(key) != value}
        if missing:
            meta = OwnedMeta(name=settings.name, namespace=settings.namespace)
            await client.apply(
                TargetConfigMap(metadata=meta, data=dict(current.backup.foreign)),
                field_manager=f"{MANAGER}-restore",
                force=True,
            )
        return sorted(missing)
