"""`steersman hourglass …`: plan executors and performers, and explain why one is not running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from steersman.cli.exit_codes import exit_code
from steersman.cli.kube_options import kube_options
from steersman.cli.output import output_option
from steersman.cli.plan_options import PlanOptions, plan_options
from steersman.cli.suggestions import SuggestingGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rich.console import Console

    from steersman.kube.client.client import Client
    from steersman.operators.hourglass.inspect.plan import PlanLine


@click.group("hourglass", cls=SuggestingGroup)
def command() -> None:
    """Plan executors and performers, and explain why one is pending."""


@command.command("plan")
@plan_options(live="Compare with the cluster.", dialects=False)
def plan(ctx: click.Context, options: PlanOptions) -> None:
    """Show which objects manifests of executors and performers would become, and their problems.

    Without --live no cluster is read, and every object counts as new.
    Exit code 0: nothing would change; 3: something would; 1: something is invalid.

    \b
    Examples:
      steersman hourglass plan -f performers/
      steersman hourglass plan -f performer.yaml --live -o json
    """
    from steersman.cli.manifest_files import read_manifests
    from steersman.cli.output import show

    found = read_manifests(options.names)
    for where, problem in found.problems:
        click.echo(f"error: {where}: {problem}", err=True)
    manifests = [manifest for _, manifest in found.objects]
    lines = plan_of(manifests, options)
    show(
        lines,
        options.output,
        lambda console: draw_plan(console, lines, complete=not found.problems),
        names=lambda: names_of(lines),
    )
    wrong = bool(found.problems) or any(line.action == "invalid" for line in lines)
    ctx.exit(exit_code(found=any(line.action != "keep" for line in lines), error=bool(wrong)))


def plan_of(manifests: list[dict[str, Any]], options: PlanOptions) -> list[PlanLine]:
    """The objects that manifests with these labels would become, compared with the cluster when it is asked."""
    import asyncio

    from steersman.cli.config import load_settings
    from steersman.operators.hourglass.inspect.plan import plan_manifests

    settings = load_settings(options.config).sections["hourglass"].options()
    home, known = options.namespace or "default", None
    if options.live:
        home, known = asyncio.run(_live(options, manifests))
    return plan_manifests(manifests, settings, namespace=home, live=known, selector=options.selector)


def names_of(lines: Sequence[PlanLine]) -> list[str]:
    """The objects that would change, for -o name."""
    return [f"{kind.lower()}/{name}" for kind, _, name in (line.object.partition("/") for line in lines)]


async def _live(
    options: PlanOptions, manifests: Sequence[dict[str, Any]]
) -> tuple[str, dict[tuple[str, str, str], Any]]:
    """The objects a plan may name, in the namespaces of the manifests."""
    from steersman.cli.kube_options import cluster_config
    from steersman.kube.client.client import Client

    settings = cluster_config(options.kubeconfig, options.context)
    home = options.namespace or settings.namespace
    async with Client.connect(settings) as client:
        spaces = {str(manifest["metadata"].get("namespace") or home) for manifest in manifests}
        return home, await live_objects(client, spaces)


async def live_objects(client: Client, namespaces: Iterable[str]) -> dict[tuple[str, str, str], Any]:
    """The objects of some namespaces that a plan may name, by kind, namespace and name."""
    from steersman.kube.api.types.apps import Deployment
    from steersman.kube.api.types.pods import Pod
    from steersman.operators.hourglass.api.types import StoredExecutor
    from steersman.operators.hourglass.controllers import views

    kinds: list[Any] = [Deployment, Pod, StoredExecutor, views.PerformerService, views.ConfigMapMeta]
    kinds += [views.BudgetMeta, views.PolicyMeta, views.AccountMeta, views.RoleMeta, views.RoleBindingMeta]
    known: dict[tuple[str, str, str], Any] = {}
    for space in sorted(namespaces):
        for kind in kinds:
            for obj in (await client.list(kind, namespace=space)).items:
                known[kind.KIND.kind, space, obj.name] = obj
        for name in await _secret_names(client, space):
            known["Secret", space, name] = True
    return known


async def _secret_names(client: Client, namespace: str) -> list[str]:
    """The names of Secrets; their data is never read."""
    from steersman.kube.api.objects import PartialObjectMetadata
    from steersman.kube.api.types.core import Secret

    listing = await client.list(Secret.KIND, namespace=namespace, into=PartialObjectMetadata)
    return [secret.name for secret in listing.items]


def draw_plan(console: Console, lines: Sequence[PlanLine], *, complete: bool) -> None:
    """How many of which action, then every object."""
    from collections import Counter

    from steersman.cli.output import print_table

    counts = Counter(line.action for line in lines)
    none = "no changes" if complete else "no changes among what could be read (see above)"
    console.print(", ".join(f"{number} to {action}" for action, number in sorted(counts.items())) or none)
    if lines:
        rows = [(line.object, line.namespace, line.action, line.resource, line.why) for line in lines]
        print_table(console, ["object", "namespace", "action", "for", "why"], rows)


@command.command("why")
@click.argument("target", metavar="performer/NAME|executor/NAME")
@kube_options
@output_option()
@click.pass_context
def why(
    ctx: click.Context, target: str, kubeconfig: Path | None, context: str | None, namespace: str | None, output: str
) -> None:
    """Show the state of a performer or executor, and what each node lacks for a pod that is not scheduled.

    Exit code 0: it is available; 3: it is not.

    \b
    Examples:
      steersman hourglass why performer/gpu-performer -n avs
    """
    import asyncio

    from steersman.cli.kube_options import cluster_config
    from steersman.cli.output import show
    from steersman.errors import ConfigError

    kind, _, name = target.partition("/")
    if kind not in ("performer", "executor", "hourglassexecutor") or not name:
        raise ConfigError(f'"{target}" is neither performer/NAME nor executor/NAME', field="why")
    settings = cluster_config(kubeconfig, context)
    answer = asyncio.run(_why(settings, kind == "performer", name, namespace or settings.namespace))
    show(answer, output, lambda console: _draw_why(console, answer))
    ctx.exit(exit_code(found=not answer["available"]))


async def _why(settings: Any, performer: bool, name: str, namespace: str) -> dict[str, Any]:
    from steersman.kube.api.types.core import Node
    from steersman.kube.api.types.pods import Pod
    from steersman.kube.client.client import Client
    from steersman.operators.hourglass.api.types import NAME, PERFORMER, StoredExecutor, StoredPerformer
    from steersman.operators.hourglass.inspect.why_pending import fit_on_nodes

    async with Client.connect(settings) as client:
        found: Any = await client.get(StoredPerformer if performer else StoredExecutor, name, namespace=namespace)
        label = f"{PERFORMER if performer else NAME}={name}"
        mine = (await client.list(Pod, namespace=namespace, label_selector=label)).items
        waiting = [pod for pod in mine if not pod.spec.node_name and not pod.deleting]
        nodes = (await client.list(Node)).items if waiting else []
        all_pods = (await client.list(Pod, namespace=None)).items if waiting else []
    status = found.status or {}
    conditions = [item for item in status.get("conditions") or () if isinstance(item, dict)]
    available = any(item.get("type") == "Available" and item.get("status") == "True" for item in conditions)
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
            {"pod": pod.name, "node": fit.node, "lacks": list(fit.lacks)}
            for pod in waiting
            for fit in fit_on_nodes(pod, nodes, all_pods)
        ],
    }


def _draw_why(console: Console, answer: dict[str, Any]) -> None:
    from steersman.cli.output import print_table

    unknown = {"message": "not reconciled yet; is the operator running?"}
    summary = answer["conditions"][-1] if answer["conditions"] else unknown
    message = summary.get("message") or "no message"
    console.print(f"{answer['namespace']}/{answer['name']} is {answer['phase']}: {message}")
    for condition in answer["conditions"]:
        is_true, repeated = condition["status"] == "True", condition.get("message") == summary.get("message")
        if is_true and (condition["type"] == "Progressing" or (condition["type"] == "Degraded" and not repeated)):
            console.print(f"{condition['reason']}: {condition['message']}")
    if answer["pods"]:
        rows = [(pod["name"], pod["phase"], pod["node"] or "none") for pod in answer["pods"]]
        print_table(console, ["pod", "phase", "node"], rows)
    if answer["nodes"]:
        rows = [(row["pod"], row["node"], "; ".join(row["lacks"]) or "nothing known") for row in answer["nodes"]]
        print_table(console, ["pod", "node", "lacks"], rows)
