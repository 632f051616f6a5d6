"""`steersman why`: what a workload restarts for, what it waits for, and why it did not restart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kubeoptions import complete_workload, kube_options
from steersman.cli.output import output_option

if TYPE_CHECKING:
    from rich.console import Console

    from steersman.kube.client import Client
    from steersman.operators.reload.answers import Answer

__all__ = ["command"]

_SHOWN = 5


@click.command()
@click.argument("workload", metavar="KIND/NAME", shell_complete=complete_workload)
@click.option("--config", type=click.Path(path_type=Path), envvar="STEERSMAN_CONFIG", help="Read settings from FILE.")
@kube_options
@output_option()
def command(
    workload: str,
    config: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    output: str,
) -> None:
    """Say what a workload restarts for, what is pending, and which rule stands against a restart.

    Only what concerns this workload is read: the workload, its sources, its namespace and its Events. When a change
    waits, that takes the other workloads of its namespace and their sources as well, those elsewhere that use what
    changed, and all when a limit of the cluster counts them. What may not be read is told.

    \b
    Examples:
      steersman why deploy/web -n shop
      steersman why statefulset/db -o json
    """
    import asyncio

    from steersman.cli.output import show
    from steersman.cli.settings import load_settings
    from steersman.cli.surveying import connected, workload_word

    options = load_settings(config).sections["reload"].options()
    kind, name = workload_word(workload)
    made = asyncio.run(_ask(connected(kubeconfig, context), options, kind, name, namespace))
    show(made, output, lambda console: _draw(console, made))


async def _ask(connecting: Client, options: Any, kind: str, name: str, namespace: str | None) -> Answer:
    import time

    from steersman.cli.surveying import among_others, events_of, looked_at, pods_told
    from steersman.operators.reload.answers import answer
    from steersman.operators.reload.look import SnapshotSources

    async with connecting as client:
        survey, rule, look, raw = await looked_at(client, options, kind, name, namespace)
        unseen: list[str] = []
        if look.plan.changes:
            look, unseen = await among_others(client, survey, rule, look)
        events = await events_of(client, look.workload.namespace, rule.kind.kind, name)
    sources = SnapshotSources(survey, survey.keeper(rule).source_kinds)
    unseen += survey.unseen
    now = time.time()
    return answer(look, survey.dialects, sources, events=events, status=pods_told(raw), unseen=unseen, now=now)


def _draw(console: Console, made: Answer) -> None:
    from steersman.cli.output import print_fields, print_table

    name = made.workload.name
    rows: list[tuple[str, str]] = []
    if made.edges:
        told = [one.source + (f"#{','.join(one.keys)}" if one.keys else "") for one in made.edges]
        rows.append((f"{name} restarts when", "  ".join(told)))
    else:
        rows.append((f"{name} restarts", f"for nothing: {made.verdict.removeprefix('no restart: ')}"))
    if made.restarts:
        rows.append(("last restart", _last(made.restarts[0])))
    else:
        rows.append(("last restart", "none that is written down"))
    rows.append(("pending", _pending(made)))
    if made.told:
        rows.append(("the operator says", made.told))
    if made.edges and made.pending is None:
        rows += [("a change would wait", text) for text in made.closed]
    if made.circuit != "closed":
        rows.append(("circuit", made.circuit))
    if made.edges and not made.told:  # it knows more than can be seen from here: other workloads, its own settings
        rows.append(("now", made.verdict))
    rows += [("not watched", f"{one.source} ({one.rule})") for one in made.not_watched]
    rows += [("problem", text) for text in made.problems]
    print_fields(console, rows)
    if made.edges:
        console.print()
        _edges(console, made)
    if len(made.restarts) > 1:
        console.print()
        rows_ = [(one.at, one.cause, one.outcome) for one in made.restarts[:_SHOWN]]
        print_table(console, ["restarted", "for", "outcome"], rows_)


def _last(restart: Any) -> str:
    what = f"{restart.at} for {restart.cause}" if restart.cause else restart.at
    return f"{what}{';' if restart.cause else ''} {restart.outcome}" if restart.outcome else what


def _pending(made: Answer) -> str:
    if made.pending is None:
        return "none"
    sources = " ".join(made.pending.sources)
    due = f", due {made.pending.due}" if made.pending.due else ""
    return f"{sources}{due}" if made.told else f"{sources}: {made.pending.reason}{due}"


def _edges(console: Console, made: Answer) -> None:
    from steersman.cli.output import print_table

    compared = any(one.compared for one in made.edges)
    rows = [
        (
            one.source,
            "all" if one.keys is None else ",".join(one.keys),
            one.digest or "missing",
            one.applied if one.applied is not None else "not yet",
            ",".join(one.dialects),
            "; ".join(one.rules),
            *(["; ".join(one.compared)] if compared else []),
        )
        for one in made.edges
    ]
    columns = ["source", "keys", "now", "applied", "dialect", "rule", *(["compared"] if compared else [])]
    print_table(console, columns, rows)
