"""`steersman reload history`: the restarts that the cluster still knows of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kubeoptions import kube_options
from steersman.cli.output import output_option

if TYPE_CHECKING:
    from steersman.operators.reload.answers import HistoryEntry

__all__ = ["history"]

_SHOWN = 50  # of people; programs get all, since none of them would notice


@click.command()
@click.argument("workload", required=False, metavar="[KIND/NAME]")
@click.option("-A", "--all-namespaces", is_flag=True, help="Look at every namespace.")
@click.option(
    "--limit", type=click.IntRange(min=1), help="Show the latest so many.  [default: 50; all of them for programs]"
)
@click.option("--config", type=click.Path(path_type=Path), envvar="STEERSMAN_CONFIG", help="Read settings from FILE.")
@kube_options
@output_option("jsonl")
def history(
    workload: str | None,
    all_namespaces: bool,
    limit: int | None,
    config: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    output: str,
) -> None:
    """List restarts, the latest first, with cause and outcome.

    They are read from the workloads themselves and from their Events; causes of older restarts go when Events expire.

    \b
    Examples:
      steersman reload history -n shop
      steersman reload history deployment/web -o json
      steersman reload history -A -o jsonl > history.jsonl
    """
    import asyncio

    import msgspec

    from steersman.cli.output import print_table, show
    from steersman.cli.settings import load_settings

    options = load_settings(config).sections["reload"].options()
    found = asyncio.run(_read(options, workload, namespace, all_namespaces, kubeconfig, context))
    found = found[: limit or (_SHOWN if output == "table" else None)]
    if output == "jsonl":
        for one in found:
            click.echo(msgspec.json.encode(one).decode())
        return
    rows = [(one.at, str(one.workload), one.workload.namespace, one.cause, one.outcome) for one in found]
    columns = ["at", "workload", "namespace", "for", "outcome"]
    show(
        found,
        output,
        lambda to: print_table(to, columns, rows) if rows else to.print("no workload here says that it was restarted"),
    )


async def _read(
    options: Any,
    workload: str | None,
    namespace: str | None,
    all_namespaces: bool,
    kubeconfig: Path | None,
    context: str | None,
) -> list[HistoryEntry]:
    import time

    from steersman.cli.surveying import connected, events_of, looked_at, pods_told, surveyed, workload_word
    from steersman.operators.reload.answers import history_of

    async with connected(kubeconfig, context) as client:
        if workload is not None:
            kind, name = workload_word(workload)
            _, rule, look, raw = await looked_at(client, options, kind, name, namespace)
            events = await events_of(client, look.workload.namespace, rule.kind.kind, name)
            return history_of(look, events, pods_told(raw))
        spaces = None if all_namespaces else [namespace or client.namespace]
        (survey,) = await surveyed(client, options, spaces)
        events = await events_of(client, None if spaces is None else spaces[0])
    about: dict[tuple[str, str, str], list[Any]] = {}
    for event in events:
        who = event.get("involvedObject") or {}
        about.setdefault((who.get("kind", ""), who.get("namespace", ""), who.get("name", "")), []).append(event)
    found = []
    for rule, one in survey.workloads():
        look = survey.look(rule, one, time.time())
        found += history_of(look, about.get((rule.kind.kind, one.namespace, one.name), ()))
    return sorted(found, key=lambda entry: (entry.at, entry.workload), reverse=True)
