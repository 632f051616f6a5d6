"""`steersman reload trigger`: one restart by hand, written as the operator writes its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kube_options import complete_workload, config_option, kube_options

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.kube.client.client import Client


@click.command()
@click.argument("workload", metavar="KIND/NAME", shell_complete=complete_workload)
@config_option
@click.option("--dry-run", is_flag=True, help="Only let the server check it.")
@kube_options
def trigger(
    workload: str,
    config: Path | None,
    dry_run: bool,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Restart a workload now, whatever holds its changes back; its sources as they are now count as applied.

    The restart is one patch with the state and the stamps that the operator writes, so the operator sees it as its
    own: it counts into the budget and nothing restarts twice.

    \b
    Example:
      steersman reload trigger deployment/web -n shop
    """
    import asyncio

    from steersman.cli.config import load_settings
    from steersman.cli.reload.inspection import connected, workload_word

    options = load_settings(config).sections["reload"].options()
    kind, name = workload_word(workload)
    title, cause = asyncio.run(
        _restart(connected(kubeconfig, context), options, kind, name, namespace, dry_run=dry_run)
    )
    click.echo(f"{title} {'would restart' if dry_run else 'restarts'} for {cause}")


async def _restart(
    connecting: Client, options: Any, kind: str, name: str, namespace: str | None, *, dry_run: bool
) -> tuple[str, str]:
    import time

    from steersman.cli.reload.inspection import evaluate_workload
    from steersman.operators.reload.actions.patch import patch_for, patch_type, read_containers
    from steersman.operators.reload.api.annotations import APPLIED
    from steersman.operators.reload.inspect.trigger import triggered, with_cause
    from steersman.operators.reload.planning.diff import describe
    from steersman.operators.reload.planning.plan import unknown_keys
    from steersman.operators.reload.planning.state import read_state
    from steersman.operators.reload.workloads.kinds import RECREATE, RUN

    async with connecting as client:
        inspection, rule, evaluation, _ = await evaluate_workload(client, options, kind, name, namespace)
        if rule.restart == RECREATE:
            raise click.UsageError(f"{rule.kind.kind} {name} is recreated, not restarted: delete and create it.")
        if rule.restart == RUN:
            raise click.UsageError(f"{rule.kind.kind} {name} is run: kubectl create job --from cronjob/{name} NAME.")
        now = time.time()
        plan = triggered(evaluation, inspection, now)
        marks = inspection.reconciler(rule).marks(evaluation, now)
        containers = await read_containers(client, rule, evaluation.workload, marks)
        patch: Any = patch_for(rule, evaluation.workload, plan, at=now, marks=marks, containers=containers)
        await client.patch(
            rule.kind,
            name,
            with_cause(patch, rule),
            type=patch_type(rule, marks),
            namespace=evaluation.workload.namespace,
            dry_run=dry_run,
        )
    if evaluation.keys.unreadable and unknown_keys(
        read_state(evaluation.workload.annotations.get(APPLIED)).applied, evaluation.keys
    ):
        warning = "its sources are not recorded, so the operator may restart it once more"
        click.echo(f"warning: {warning}: {evaluation.keys.unreadable}", err=True)
    cause = describe(plan.changes, evaluation.workload.namespace) or "a user who requested it"
    if not evaluation.edges.tracked:
        cause = f"{cause}; the operator never would: {evaluation.edges.reason}"
    return evaluation.workload.title, cause
