"""`steersman graph`: which workloads restart for which sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from steersman.cli.kubeoptions import kube_options

if TYPE_CHECKING:
    from rich.console import Console

    from steersman.operators.reload.drawing import Graph

__all__ = ["command"]


@click.command()
@click.option("-f", "--filename", "names", multiple=True, metavar="DIR|FILE|-", help="Manifests instead of a cluster.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Look at every namespace.")
@click.option("--config", type=click.Path(path_type=Path), envvar="STEERSMAN_CONFIG", help="Read settings from FILE.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml", "dot", "svg", "mermaid"]),
    default="table",
    show_default=True,
)
@kube_options
def command(
    names: tuple[str, ...],
    all_namespaces: bool,
    config: Path | None,
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
    from steersman.cli.settings import load_settings
    from steersman.cli.surveying import survey_of
    from steersman.operators.reload import drawing

    options = load_settings(config).sections["reload"].options()
    survey = survey_of(options, names, kubeconfig, context, namespace, all_namespaces=all_namespaces)
    for text in (*survey.unread, *survey.unseen):
        click.echo(f"warning: {text}", err=True)
    graph = drawing.graph_of(survey.look(rule, workload, time.time()) for rule, workload in survey.workloads())
    if output in ("dot", "svg", "mermaid"):
        click.echo(getattr(drawing, output)(graph), nl=False)
    else:
        show(graph, output, lambda console: _draw(console, graph))


def _draw(console: Console, graph: Graph) -> None:
    from steersman.cli.output import print_table

    if not graph.edges:
        console.print("no workload restarts for any source here")
        return
    sources, workloads = len({edge.source for edge in graph.edges}), len({edge.workload for edge in graph.edges})
    who = "1 workload restarts" if workloads == 1 else f"{workloads} workloads restart"
    console.print(f"{who} for {sources} source{'' if sources == 1 else 's'}")
    rows = [
        (edge.source, "all" if edge.keys is None else ",".join(edge.keys), edge.workload, "; ".join(edge.rules))
        for edge in graph.edges
    ]
    print_table(console, ["source", "keys", "workload", "rule"], rows)
