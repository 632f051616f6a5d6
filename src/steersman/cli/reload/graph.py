"""`steersman graph`: which workloads restart for which sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from steersman.cli.kube_options import kube_options, selector_option
from steersman.cli.reload.inspection import settings_options

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from steersman.operators.reload.inspect.graph import Graph


@click.command()
@click.option("-f", "--filename", "names", multiple=True, metavar="DIR|FILE|-", help="Manifests instead of a cluster.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Inspect every namespace.")
@selector_option
@settings_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "name", "json", "yaml", "dot", "svg", "mermaid"]),
    default="table",
    show_default=True,
    help="How to print: as a table, as names of workloads, as data, or as a drawing.",
)
@kube_options
def command(
    *,
    names: tuple[str, ...],
    all_namespaces: bool,
    selector: str,
    config: Path | None,
    dialects: tuple[str, ...],
    output: str,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Draw which workloads restart when which sources change.

    \b
    Examples:
      steersman graph -n shop -o svg > shop.svg
      steersman graph -f deploy/ -o mermaid
      steersman graph -A -o dot | dot -Tpdf > cluster.pdf
    """
    import time

    from steersman.cli.output import show
    from steersman.cli.reload.inspection import note_dialects_off, open_inspection, reload_options
    from steersman.kube.api.selectors import Selector
    from steersman.operators.reload.inspect import graph as drawing

    options = reload_options(config, dialects)
    inspection = open_inspection(options, names, kubeconfig, context, namespace, all_namespaces=all_namespaces)
    note_dialects_off(inspection)
    unseen = [*inspection.unread, *inspection.unseen]
    for text in unseen:
        click.echo(f"warning: {text}", err=True)
    chosen = Selector.parse(selector)
    graph = drawing.graph_of(
        inspection.evaluate(rule, workload, time.time())
        for rule, workload in inspection.workloads()
        if chosen.matches(workload.metadata.labels)
    )
    if output in ("dot", "svg", "mermaid"):
        click.echo(getattr(drawing, output)(graph), nl=False)
    else:
        import msgspec

        answer = {**msgspec.to_builtins(graph), "unseen": unseen} if unseen else graph
        show(
            answer,
            output,
            lambda console: _draw(console, graph, complete=not unseen),
            names=lambda: ["/".join(edge.workload.split("/")[::2]) for edge in graph.edges],
        )


def _draw(console: Console, graph: Graph, *, complete: bool) -> None:
    from steersman.cli.output import print_table

    if not graph.edges:
        known = "" if complete else " among what could be read (see above)"
        console.print(f"no workload restarts for any source here{known}")
        return
    sources, workloads = len({edge.source for edge in graph.edges}), len({edge.workload for edge in graph.edges})
    who = "1 workload restarts" if workloads == 1 else f"{workloads} workloads restart"
    console.print(f"{who} for {sources} source{'' if sources == 1 else 's'}")
    rows = [
        (edge.source, "all" if edge.keys is None else ",".join(edge.keys), edge.workload, "; ".join(edge.rules))
        for edge in graph.edges
    ]
    print_table(console, ["source", "keys", "workload", "rule"], rows)
