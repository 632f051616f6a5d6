"""`steersman reload history`: the restarts that the cluster still knows of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kube_options import config_option, kube_options, selector_option
from steersman.cli.output import output_option

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.operators.reload.inspect.explain import WorkloadRestartRecord

_SHOWN = 50  # in a table; programs get all


@click.command()
@click.argument("workload", required=False, metavar="[KIND/NAME]")
@click.option("-A", "--all-namespaces", is_flag=True, help="Inspect every namespace.")
@click.option(
    "--limit", type=click.IntRange(min=1), help="Show the latest so many.  [default: 50; all of them for programs]"
)
@selector_option
@config_option
@kube_options
@output_option("name", "jsonl")
def history(
    *,
    workload: str | None,
    all_namespaces: bool,
    limit: int | None,
    selector: str,
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

    from steersman.cli.config import load_settings
    from steersman.cli.output import print_table, show

    options = load_settings(config).sections["reload"].options()
    unseen: list[str] = []
    found = asyncio.run(_read(options, workload, namespace, all_namespaces, kubeconfig, context, unseen, selector))
    for text in unseen:
        click.echo(f"warning: {text}", err=True)
    found = found[: limit or (_SHOWN if output in ("table", "wide") else None)]
    if output == "jsonl":
        for entry in found:
            click.echo(msgspec.json.encode(entry).decode())
        return
    rows = [(entry.at, str(entry.workload), entry.workload.namespace, entry.cause, entry.outcome) for entry in found]
    columns = ["at", "workload", "namespace", "for", "outcome"]
    show(
        found,
        output,
        lambda to: print_table(to, columns, rows) if rows else to.print("no restarts recorded on these workloads"),
        names=lambda: [str(entry.workload) for entry in found],
    )


async def _read(
    options: Any,
    workload: str | None,
    namespace: str | None,
    all_namespaces: bool,
    kubeconfig: Path | None,
    context: str | None,
    unseen: list[str],
    selector: str = "",
) -> list[WorkloadRestartRecord]:
    """The restarts; what could not be read about them is added to `unseen`."""
    import time

    from steersman.cli.reload.inspection import (
        connected,
        describe_pods,
        evaluate_workload,
        events_of,
        inspect_cluster,
        workload_word,
    )
    from steersman.kube.api.selectors import Selector
    from steersman.operators.reload.inspect.explain import history_of

    async with connected(kubeconfig, context) as client:
        if workload is not None:
            kind, name = workload_word(workload)
            _, rule, evaluation, raw = await evaluate_workload(client, options, kind, name, namespace)
            events = await events_of(client, evaluation.workload.namespace, rule.kind.kind, name, unseen=unseen)
            return history_of(evaluation, events, describe_pods(raw))
        spaces = None if all_namespaces else [namespace or client.namespace]
        (inspection,) = await inspect_cluster(client, options, spaces, compares=False)
        events = await events_of(client, None if spaces is None else spaces[0], unseen=unseen)
    about: dict[tuple[str, str, str], list[Any]] = {}
    for event in events:
        who = event.get("involvedObject") or {}
        about.setdefault((who.get("kind", ""), who.get("namespace", ""), who.get("name", "")), []).append(event)
    found, chosen = [], Selector.parse(selector)
    for rule, listed in inspection.workloads():
        if not chosen.matches(listed.metadata.labels or {}):
            continue
        evaluation = inspection.evaluate(rule, listed, time.time())
        found += history_of(evaluation, about.get((rule.kind.kind, listed.namespace, listed.name), ()))
    return sorted(found, key=lambda entry: (entry.at, entry.workload), reverse=True)
