"""`steersman reload trigger`: one restart by hand, written as the operator writes its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kubeoptions import complete_workload, kube_options

if TYPE_CHECKING:
    from steersman.kube.client import Client

__all__ = ["trigger"]


@click.command()
@click.argument("workload", metavar="KIND/NAME", shell_complete=complete_workload)
@click.option("--config", type=click.Path(path_type=Path), envvar="STEERSMAN_CONFIG", help="Read settings from FILE.")
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
    """Restart a workload now, whatever holds its changes back; what its sources say now counts as applied.

    The restart is one patch with the state and the stamps that the operator writes, so the operator sees it as its
    own: it counts into the budget and nothing restarts twice.

    \b
    Example:
      steersman reload trigger deployment/web -n shop
    """
    import asyncio

    from steersman.cli.settings import load_settings
    from steersman.cli.surveying import connected, workload_word

    options = load_settings(config).sections["reload"].options()
    kind, name = workload_word(workload)
    title, told = asyncio.run(_restart(connected(kubeconfig, context), options, kind, name, namespace, dry_run=dry_run))
    click.echo(f"{title} {'would restart' if dry_run else 'restarts'} for {told}")


async def _restart(
    connecting: Client, options: Any, kind: str, name: str, namespace: str | None, *, dry_run: bool
) -> tuple[str, str]:
    import time

    from steersman.cli.surveying import looked_at
    from steersman.operators.reload.apply import describe, patch_for
    from steersman.operators.reload.kinds import RECREATE
    from steersman.operators.reload.triggers import signed, triggered

    async with connecting as client:
        survey, rule, look, _ = await looked_at(client, options, kind, name, namespace)
        if rule.restart == RECREATE:
            raise click.UsageError(f"{rule.kind.kind} {name} is recreated, not restarted: delete and create it.")
        now = time.time()
        plan = triggered(look, survey, now)
        marks = survey.keeper(rule).marks(look, now)
        patch: Any = patch_for(rule, look.workload, plan, at=now, marks=marks)
        await client.patch(rule.kind, name, signed(patch, rule), namespace=look.workload.namespace, dry_run=dry_run)
    told = describe(plan.changes, look.workload.namespace) or "a person who asked for it"
    if not look.edges.tracked:
        told = f"{told}; by itself it never would: {look.edges.reason}"
    return look.workload.title, told
