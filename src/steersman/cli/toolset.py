"""`steersman toolset`: what the toolset operator sees, would write, and found different."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kubeoptions import kube_options
from steersman.cli.output import output_option, print_hanging, print_table, show
from steersman.cli.toolset_files import merge, render, settings_from, validate

if TYPE_CHECKING:
    from rich.console import Console

    from steersman.kube.client import Client
    from steersman.operators.toolset.look import Look
    from steersman.operators.toolset.objects import ServiceLook
    from steersman.operators.toolset.stand import Stand
    from steersman.operators.toolset.types import Settings

__all__ = ["MANAGER", "command", "look_now"]

MANAGER = "steersman-toolset"
_CONFIG = click.option(
    "--config", type=click.Path(path_type=Path), envvar="STEERSMAN_CONFIG", help="Read settings from FILE."
)
_PROBE = click.option("--probe/--no-probe", default=False, help="Ask the services; they must be reachable from here.")


@click.group()
def command() -> None:
    """Show, render, check and restore what the toolset operator keeps."""


command.add_command(render)
command.add_command(validate)
command.add_command(merge)


@command.command()
@_CONFIG
@_PROBE
@output_option()
@kube_options
def discover(config: Path | None, probe: bool, output: str, **cluster: Any) -> None:
    """List the services that are tools, as the operator would find them now.

    Without --probe, a service counts as well when a label says what it is.

    \b
    Examples:
      steersman toolset discover --probe
    """
    settings = settings_from(config, namespaces=cluster["namespace"])
    look, _ = asyncio.run(look_now(settings, cluster, probe=probe))
    from steersman.operators.toolset.views import services_of

    found = services_of(look)

    def table(to: Console) -> None:
        if not found:
            to.print("no Service is a tool")
            return
        columns = ("service", "namespace", "type", "endpoint", "state", "matched by", "message")
        rows = [(one.name, one.namespace, one.type, one.endpoint, one.state, one.reason, one.message) for one in found]
        print_table(to, columns, rows)

    show({"services": found, "total": len(found)}, output, table)


@command.command()
@_CONFIG
@_PROBE
@output_option()
@kube_options
def diff(config: Path | None, probe: bool, output: str, **cluster: Any) -> int:
    """Compare the ConfigMaps with what they should be; exit code 3 when they differ.

    \b
    Examples:
      steersman toolset diff
    """
    settings = settings_from(config, namespaces=None)
    look, stand = asyncio.run(look_now(settings, cluster, probe=probe))
    from steersman.operators.toolset.steps import drift_of, plan_target

    steps = plan_target(look, stand, settings, manager=MANAGER, now="")
    drift = drift_of(steps)

    def table(to: Console) -> None:
        if not drift:
            to.print(f"no drift in {settings.namespace}/{settings.name}")
            return
        rows = [(step.desired.name, step.plan.operation.value, one) for step in steps for one in step.plan.counted]
        print_table(to, ("configmap", "operation", "drift"), rows)

    show({"drift": drift}, output, table)
    return 3 if drift else 0


@command.command()
@click.argument("service", metavar="[NAMESPACE/]SERVICE")
@click.option(
    "-f", "--filename", "files", multiple=True, type=click.Path(path_type=Path), help="Look at manifests instead."
)
@_CONFIG
@output_option()
@kube_options
def explain(service: str, files: tuple[Path, ...], config: Path | None, output: str, **cluster: Any) -> int:
    """Say why a Service is a tool, or why it is not; exit code 3 when it is not.

    \b
    Examples:
      steersman toolset explain monitoring/prometheus
    """
    from steersman.errors import ConfigError
    from steersman.kube.resources import ObjectRef
    from steersman.operators.toolset.detection import detect

    settings = settings_from(config, namespaces=None)
    namespace, _, name = service.rpartition("/")
    if files:
        from steersman.cli.toolset_files import services_in

        ref = ObjectRef(name, namespace or cluster["namespace"] or "default")
        found = next((one for one in services_in(files) if one.ref == ref), None)
        if found is None:
            raise ConfigError(f"there is no Service {ref}", where=", ".join(map(str, files)))
    else:
        found = asyncio.run(_service(cluster, name, namespace))
    verdict = detect(found, settings)
    value: dict[str, Any] = {
        "service": str(found.ref),
        "reason": verdict.reason,
        "message": verdict.message,
        "problems": list(verdict.problems),
        "candidate": None
        if verdict.candidate is None
        else {
            "type": verdict.candidate.type,
            "confidence": verdict.candidate.confidence.name.lower(),
            "endpoint": verdict.candidate.url,
            "health": verdict.candidate.health_url,
            "identity": verdict.candidate.identity_url if verdict.candidate.needs_identity else None,
            "credentials": bool(verdict.candidate.auth_env),
            "priority": verdict.candidate.priority,
        },
    }

    def table(to: Console) -> None:
        to.print(f"{value['service']}: {verdict.reason}: {verdict.message}")
        words = {None: "-", True: "yes", False: "no"}
        for label, said in (value["candidate"] or {}).items():
            print_hanging(to, f"  {label:<12} ", words[said] if said is None or isinstance(said, bool) else str(said))
        for problem in verdict.problems:
            print_hanging(to, "  problem      ", problem)

    show(value, output, table)
    return 0 if verdict.candidate is not None else 3


@command.command()
@_CONFIG
@kube_options
def restore(config: Path | None, **cluster: Any) -> None:
    """Give overrides.yaml and other people's keys back from the copy that the operator keeps.

    \b
    Examples:
      steersman toolset restore
    """
    settings = settings_from(config, namespaces=None)
    restored = asyncio.run(_restore(settings, cluster))
    click.echo(f"gave back {', '.join(restored)}" if restored else "nothing to give back")


# -- the cluster -------------------------------------------------------------------------------------------------------


def _connect(cluster: dict[str, Any]) -> Client:
    from steersman.cli.kubeoptions import cluster_config
    from steersman.kube.client import Client

    return Client.connect(cluster_config(cluster["kubeconfig"], cluster["context"]))


async def _service(cluster: dict[str, Any], name: str, namespace: str) -> ServiceLook:
    from steersman.operators.toolset.objects import ServiceLook, service_look

    async with _connect(cluster) as client:
        found = await client.get(ServiceLook, name, namespace=namespace or cluster["namespace"])
    return service_look(found)


async def look_now(settings: Settings, cluster: dict[str, Any], *, probe: bool) -> tuple[Look, Stand]:
    """One look at a cluster, as the operator takes it."""
    from msgspec.structs import replace

    from steersman.operators.toolset.health import Observed
    from steersman.operators.toolset.layout import size_of
    from steersman.operators.toolset.look import Standing, look_at
    from steersman.operators.toolset.objects import ServiceLook, service_look

    async with _connect(cluster) as client:
        scopes: list[str | None] = [None] if settings.namespaces is None else [*sorted(settings.namespaces)]
        services = [
            service_look(one) for scope in scopes for one in (await client.list(ServiceLook, namespace=scope)).items
        ]
        stand = await _stand(client, settings)
    standing = Standing(
        text=stand.text,
        overrides=stand.overrides,
        last_valid=stand.backup.last_valid,
        others=size_of(stand.foreign),
        places=stand.places,
    )
    if not probe:
        settings = replace(settings, health=replace(settings.health, enabled=False))
        return look_at(services, settings, standing=standing), stand
    from steersman.operators.toolset.detection import detect
    from steersman.operators.toolset.probe import Prober

    prober, limit = Prober(), asyncio.Semaphore(10)
    candidates = [one.candidate for one in (detect(service, settings) for service in services) if one.candidate]

    async def ask(candidate: Any) -> Observed:
        async with limit:
            result = await prober.probe(candidate, timeout=settings.health.timeout, attempts=1, strict=settings.strict)
        return Observed(result=result, failures=0 if result.reachable else 1)

    answers = dict(zip(candidates, await asyncio.gather(*map(ask, candidates)), strict=True))
    return look_at(services, settings, observed=answers.get, standing=standing), stand


async def _stand(client: Client, settings: Settings) -> Stand:
    from steersman.kube.errors import NotFound
    from steersman.kube.resources import ObjectRef
    from steersman.operators.toolset.backup import backup_ref, read_backup
    from steersman.operators.toolset.layout import part_name
    from steersman.operators.toolset.objects import TargetMap, target_look
    from steersman.operators.toolset.stand import is_ours, stand_of

    async def get(name: str) -> TargetMap | None:
        try:
            return target_look(await client.get(TargetMap, name, namespace=settings.namespace))
        except NotFound:
            return None

    async def own(name: str) -> TargetMap | None:
        found = await get(name)
        return found if found is not None and is_ours(found, MANAGER) else None

    base = await get(settings.name)
    copy = await own(backup_ref(ObjectRef(settings.name, settings.namespace)).name)
    parts: dict[int, TargetMap] = {}
    for number in itertools.count(1):
        found = await get(part_name(settings.name, number))
        if found is None:
            break
        if is_ours(found, MANAGER):
            parts[number] = found
    return stand_of(base, parts, read_backup(copy), last=None, backup_object=copy, settings=settings)


async def _restore(settings: Settings, cluster: dict[str, Any]) -> list[str]:
    from steersman.errors import ConfigError
    from steersman.kube.objects import OwnedMeta
    from steersman.operators.toolset.objects import TargetMap

    async with _connect(cluster) as client:
        stand = await _stand(client, settings)
        if stand.backup_object is None:
            raise ConfigError(
                f"there is no copy of {settings.namespace}/{settings.name}; the operator makes one of overrides",
                field="restore",
            )
        there = (stand.base.data or {}) if stand.base is not None else {}
        missing = {key: value for key, value in stand.backup.foreign.items() if there.get(key) != value}
        if missing:
            meta = OwnedMeta(name=settings.name, namespace=settings.namespace)
            await client.apply(
                TargetMap(metadata=meta, data=dict(stand.backup.foreign)),
                field_manager=f"{MANAGER}-restore",
                force=True,
            )
        return sorted(missing)
