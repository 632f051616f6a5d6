"""`steersman reload why`: what a workload restarts for, what it waits for, and why it did not restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kube_options import complete_workload, kube_options
from steersman.cli.output import output_option
from steersman.cli.reload.inspection import settings_options

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from steersman.kube.client.client import Client
    from steersman.operators.reload.inspect.explain import Answer

_SHOWN = 5


@click.command()
@click.argument("workload", metavar="KIND/NAME", shell_complete=complete_workload)
@settings_options
@kube_options
@output_option()
def command(
    workload: str,
    config: Path | None,
    dialects: tuple[str, ...],
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    output: str,
) -> None:
    """Show what a workload restarts for, what is pending, and which rule prevents a restart.

    Only what concerns this workload is read: the workload, its sources, its namespace and its Events. When a change
    waits, that takes the other workloads of its namespace and their sources as well, those elsewhere that use what
    changed, and all when a limit of the cluster counts them. What may not be read is reported.

    \b
    Examples:
      steersman reload why deploy/web -n shop
      steersman reload why statefulset/db -o json
    """
    import asyncio

    from steersman.cli.output import show
    from steersman.cli.reload.inspection import connected, reload_options, workload_word

    options = reload_options(config, dialects)
    kind, name = workload_word(workload)
    made = asyncio.run(_ask(connected(kubeconfig, context), options, kind, name, namespace))
    show(made, output, lambda console: _draw(console, made))


async def _ask(connecting: Client, options: Any, kind: str, name: str, namespace: str | None) -> Answer:
    import time

    from steersman.cli.reload.inspection import among_others, describe_pods, evaluate_workload, events_of, off_hints
    from steersman.operators.reload.inspect.explain import answer
    from steersman.operators.reload.planning.snapshot import SnapshotSources

    async with connecting as client:
        inspection, rule, evaluation, raw = await evaluate_workload(client, options, kind, name, namespace)
        unseen = off_hints(inspection)  # before other workloads are read
        if evaluation.plan.changes:
            evaluation, others = await among_others(client, inspection, rule, evaluation)
            unseen += others
        events = await events_of(client, evaluation.workload.namespace, rule.kind.kind, name, unseen=unseen)
    sources = SnapshotSources(inspection, inspection.reconciler(rule).source_kinds)
    unseen += inspection.unseen
    now = time.time()
    return answer(
        evaluation, inspection.dialects, sources, events=events, status=describe_pods(raw), unseen=unseen, now=now
    )


def _draw(console: Console, made: Answer) -> None:
    from steersman.cli.output import print_fields, print_table

    name = made.workload.name
    rows: list[tuple[str, str]] = []
    if made.edges:
        names = [edge.source + (f"#{','.join(edge.keys)}" if edge.keys else "") for edge in made.edges]
        rows.append((f"{name} restarts when", "  ".join(names)))
    else:
        rows.append((f"{name} restarts", f"for nothing: {made.verdict.removeprefix('no restart: ')}"))
    if made.restarts:
        rows.append(("last restart", _last(made.restarts[0])))
    else:
        rows.append(("last restart", "none recorded"))
    rows.append(("pending", _pending(made)))
    if made.reported:
        rows.append(("the operator reports", made.reported))
    if made.edges and made.pending is None:
        rows += [("a change would wait", text) for text in made.closed]
    if made.circuit != "closed":
        rows.append(("circuit", made.circuit))
    if made.edges and not made.reported:  # the operator knows more than this command: other workloads, its own settings
        rows.append(("now", made.verdict))
    rows += [("not watched", f"{unwatched.source} ({unwatched.rule})") for unwatched in made.not_watched]
    rows += [("problem", text) for text in made.problems]
    print_fields(console, rows)
    if made.edges:
        console.print()
        _edges(console, made)
    if len(made.restarts) > 1:
        console.print()
        rows_ = [(restart.at, restart.cause, restart.outcome) for restart in made.restarts[:_SHOWN]]
        print_table(console, ["restarted", "for", "outcome"], rows_)


def _last(restart: Any) -> str:
    what = f"{restart.at} for {restart.cause}" if restart.cause else restart.at
    return f"{what}{';' if restart.cause else ''} {restart.outcome}" if restart.outcome else what


def _pending(made: Answer) -> str:
    if made.pending is None:
        return "none"
    sources = " ".join(made.pending.sources)
    due = f", due {made.pending.due}" if made.pending.due else ""
    return f"{sources}{due}" if made.reported else f"{sources}: {made.pending.reason}{due}"


def _edges(console: Console, made: Answer) -> None:
    from steersman.cli.output import print_table

    compared = any(edge.compared for edge in made.edges)
    rows = [
        (
            edge.source,
            "all" if edge.keys is None else ",".join(edge.keys),
            edge.digest or "missing",
            edge.applied if edge.applied is not None else "not yet",
            ",".join(edge.dialects),
            "; ".join(edge.rules),
            *(["; ".join(edge.compared)] if compared else []),
        )
        for edge in made.edges
    ]
    columns = ["source", "keys", "now", "applied", "dialect", "rule", *(["compared"] if compared else [])]
    print_table(console, columns, rows)
