"""`steersman hourglass …`: what would happen to executors and performers, and why a performer is not running."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kubeoptions import kube_options
from steersman.cli.output import output_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from steersman.kube.client import Client
    from steersman.operators.hourglass.forecast import Line

__all__ = ["command", "live_objects"]


@click.group("hourglass")
def command() -> None:
    """Plan executors and performers, and ask why one is pending."""


@command.command("plan")
@click.option("-f", "--filename", "names", multiple=True, required=True, metavar="DIR|FILE|-", help="Manifests.")
@click.option("--live", is_flag=True, help="Compare with the cluster.")
@click.option("--config", type=click.Path(path_type=Path), envvar="STEERSMAN_CONFIG", help="Read settings from FILE.")
@kube_options
@output_option()
@click.pass_context
def plan(
    ctx: click.Context,
    names: tuple[str, ...],
    live: bool,
    config: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    output: str,
) -> None:
    """Say which objects manifests of executors and performers would become, and what is wrong with them.

    Without --live nothing is asked of a cluster, and everything counts as new.
    Exit code 0: nothing would change; 3: something would; 1: something is invalid.

    \b
    Examples:
      steersman hourglass plan -f performers/
      steersman hourglass plan -f performer.yaml --live -o json
    """
    import asyncio

    from steersman.cli.manifestfiles import read_manifests
    from steersman.cli.output import show
    from steersman.cli.settings import load_settings
    from steersman.operators.hourglass.forecast import forecast

    options = load_settings(config).sections["hourglass"].options()
    found = read_manifests(names)
    for where, problem in found.problems:
        click.echo(f"error: {where}: {problem}", err=True)
    manifests = [one for _, one in found.objects]
    if live:
        home, known = asyncio.run(_live(kubeconfig, context, namespace, manifests))
    else:
        home, known = namespace or "default", None
    lines = forecast(manifests, options, namespace=home, live=known)
    show(lines, output, lambda console: _draw_plan(console, lines))
    wrong = bool(found.problems) or any(line.action == "invalid" for line in lines)
    ctx.exit(1 if wrong else 3 if any(line.action != "keep" for line in lines) else 0)


async def _live(
    kubeconfig: Path | None, context: str | None, namespace: str | None, manifests: Sequence[dict[str, Any]]
) -> tuple[str, dict[tuple[str, str, str], Any]]:
    """What the cluster has of everything a plan may name, in the namespaces of the manifests."""
    from steersman.cli.kubeoptions import cluster_config
    from steersman.kube.client import Client

    settings = cluster_config(kubeconfig, context)
    home = namespace or settings.namespace
    async with Client.connect(settings) as client:
        return home, await live_objects(client, {str(one["metadata"].get("namespace") or home) for one in manifests})


async def live_objects(client: Client, namespaces: Iterable[str]) -> dict[tuple[str, str, str], Any]:
    """What namespaces have of everything a plan may name, by kind, namespace and name."""
    from steersman.kube.types.apps import Deployment
    from steersman.kube.types.pods import Pod
    from steersman.operators.hourglass import watched
    from steersman.operators.hourglass.types import StoredExecutor

    kinds: list[Any] = [Deployment, Pod, StoredExecutor, watched.ServiceView, watched.ConfigMapMeta]
    kinds += [watched.BudgetMeta, watched.PolicyMeta, watched.AccountMeta, watched.RoleMeta, watched.RoleBindingMeta]
    known: dict[tuple[str, str, str], Any] = {}
    for space in sorted(namespaces):
        for kind in kinds:
            for one in (await client.list(kind, namespace=space)).items:
                known[kind.KIND.kind, space, one.name] = one
        for name in await _secret_names(client, space):
            known["Secret", space, name] = True
    return known


async def _secret_names(client: Client, namespace: str) -> list[str]:
    """Only names: what Secrets hold is never asked for."""
    from steersman.kube.objects import PartialObjectMetadata
    from steersman.kube.types.core import Secret

    listing = await client.list(Secret.KIND, namespace=namespace, into=PartialObjectMetadata)
    return [one.name for one in listing.items]


def _draw_plan(console: Console, lines: Sequence[Line]) -> None:
    from collections import Counter

    from steersman.cli.output import print_table

    counts = Counter(line.action for line in lines)
    console.print(", ".join(f"{number} to {action}" for action, number in sorted(counts.items())) or "nothing to do")
    if lines:
        rows = [(line.resource, line.namespace, line.object, line.action, line.why) for line in lines]
        print_table(console, ["for", "namespace", "object", "action", "why"], rows)


@command.command("why")
@click.argument("target", metavar="performer/NAME|executor/NAME")
@kube_options
@output_option()
@click.pass_context
def why(
    ctx: click.Context, target: str, kubeconfig: Path | None, context: str | None, namespace: str | None, output: str
) -> None:
    """Say how a performer or executor is doing, and for a pod without a node what each node lacks.

    Exit code 0: it is available; 3: it is not.

    \b
    Examples:
      steersman hourglass why performer/gpu-performer -n avs
    """
    import asyncio

    from steersman.cli.kubeoptions import cluster_config
    from steersman.cli.output import show
    from steersman.errors import ConfigError

    kind, _, name = target.partition("/")
    if kind not in ("performer", "executor", "hourglassexecutor") or not name:
        raise ConfigError(f'"{target}" is neither performer/NAME nor executor/NAME', field="why")
    settings = cluster_config(kubeconfig, context)
    answer = asyncio.run(_why(settings, kind == "performer", name, namespace or settings.namespace))
    show(answer, output, lambda console: _draw_why(console, answer))
    ctx.exit(0 if answer["available"] else 3)


async def _why(settings: Any, performer: bool, name: str, namespace: str) -> dict[str, Any]:
    from steersman.kube.client import Client
    from steersman.kube.types.core import Node
    from steersman.kube.types.pods import Pod
    from steersman.operators.hourglass.placement import verdicts
    from steersman.operators.hourglass.types import NAME, PERFORMER, StoredExecutor, StoredPerformer

    async with Client.connect(settings) as client:
        found: Any = await client.get(StoredPerformer if performer else StoredExecutor, name, namespace=namespace)
        label = f"{PERFORMER if performer else NAME}={name}"
        mine = (await client.list(Pod, namespace=namespace, label_selector=label)).items
        waiting = [pod for pod in mine if not pod.spec.node_name and not pod.deleting]
        nodes = (await client.list(Node)).items if waiting else []
        everybody = (await client.list(Pod, namespace=None)).items if waiting else []
    status = found.status or {}
    conditions = [one for one in status.get("conditions") or () if isinstance(one, dict)]
    available = any(one.get("type") == "Available" and one.get("status") == "True" for one in conditions)
    return {
        "name": name,
        "namespace": namespace,
        "phase": status.get("phase") or "New",
        "available": available,
        "conditions": conditions,
        "pods": [
            {"name": pod.name, "phase": pod.status.phase, "node": pod.spec.node_name, "deleting": pod.deleting}
            for pod in mine
        ],
        "nodes": [
            {"pod": pod.name, "node": verdict.node, "lacks": list(verdict.lacks)}
            for pod in waiting
            for verdict in verdicts(pod, nodes, everybody)
        ],
    }


def _draw_why(console: Console, answer: dict[str, Any]) -> None:
    from steersman.cli.output import print_table

    summary = answer["conditions"][-1] if answer["conditions"] else {"message": "no operator has looked at it yet"}
    console.print(f"{answer['namespace']}/{answer['name']} is {answer['phase']}: {summary.get('message') or 'fine'}")
    for one in answer["conditions"]:
        if one["type"] == "Degraded" and one["status"] == "True" and one.get("message") != summary.get("message"):
            console.print(f"{one['reason']}: {one['message']}")
        if one["type"] == "Progressing" and one["status"] == "True":
            console.print(f"{one['reason']}: {one['message']}")
    if answer["pods"]:
        rows = [(pod["name"], pod["phase"], pod["node"] or "none") for pod in answer["pods"]]
        print_table(console, ["pod", "phase", "node"], rows)
    if answer["nodes"]:
        rows = [
            (row["pod"], row["node"], "; ".join(row["lacks"]) or "nothing that can be told") for row in answer["nodes"]
        ]
        print_table(console, ["pod", "node", "lacks"], rows)
