"""The graph of sources and workloads as a value, and as dot, mermaid or SVG. Pure.

The same graph gives the same text, byte for byte, so that it can be committed and compared.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.reload.api.config import SourceRef
    from steersman.operators.reload.planning.evaluate import Evaluation


class GraphNode(msgspec.Struct, frozen=True, order=True):
    """A source or a workload."""

    id: str
    type: str  # source or workload
    kind: str
    namespace: str
    name: str


class GraphEdge(msgspec.Struct, frozen=True, kw_only=True):
    """A workload restarts when a source changes."""

    source: str  # id of the source…
    workload: str  # …and of the workload
    keys: tuple[str, ...] | None = None  # None: every key
    rules: tuple[str, ...] = ()


class Graph(msgspec.Struct, frozen=True):
    """Who depends on what."""

    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[GraphEdge, ...] = ()


def graph_of(evaluations: Iterable[Evaluation]) -> Graph:
    """The graph of all edges that these evaluations found; what has no edge is left out."""
    nodes: set[GraphNode] = set()
    edges: list[GraphEdge] = []
    for evaluation in evaluations:
        workload = evaluation.workload
        kind = type(workload).KIND.kind.lower()
        mine = GraphNode(
            f"{kind}/{workload.namespace}/{workload.name}", "workload", kind, workload.namespace, workload.name
        )
        for edge in evaluation.edges.tracked:
            nodes |= {mine, _source_node(edge.source)}
            keys = None if edge.keys is None else tuple(sorted(filter(edge.uses, edge.keys)))
            edges.append(GraphEdge(source=str(edge.source), workload=mine.id, keys=keys, rules=edge.rules))
    return Graph(tuple(sorted(nodes)), tuple(sorted(edges, key=lambda edge: (edge.source, edge.workload))))


def _source_node(source: SourceRef) -> GraphNode:
    return GraphNode(str(source), "source", source.kind.value, source.namespace, source.name)


def dot(graph: Graph) -> str:
    """For Graphviz."""
    lines = ["digraph reload {", "  rankdir=LR;", '  node [fontname="sans-serif"];']
    spaces = sorted({node.namespace for node in graph.nodes})
    for place, space in enumerate(spaces):
        lines += [f"  subgraph cluster_{place} {{", f"    label={_quoted(space)};"]
        for node in graph.nodes:
            if node.namespace == space:
                shape = "note" if node.type == "source" else "box"
                lines.append(f"    {_quoted(node.id)} [label={_quoted(f'{node.kind}/{node.name}')}, shape={shape}];")
        lines.append("  }")
    for edge in graph.edges:
        label = "" if edge.keys is None else f" [label={_quoted(', '.join(edge.keys))}]"
        lines.append(f"  {_quoted(edge.source)} -> {_quoted(edge.workload)}{label};")
    return "\n".join([*lines, "}", ""])


def mermaid(graph: Graph) -> str:
    """For Markdown."""
    ids = {node.id: f"n{place}" for place, node in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    for place, space in enumerate(sorted({node.namespace for node in graph.nodes})):
        lines.append(f'  subgraph s{place}["{_entities(space)}"]')
        for node in graph.nodes:
            if node.namespace == space:
                text = _entities(f"{node.kind}/{node.name}")
                lines.append(
                    f'    {ids[node.id]}(["{text}"])' if node.type == "source" else f'    {ids[node.id]}["{text}"]'
                )
        lines.append("  end")
    for edge in graph.edges:
        label = "" if edge.keys is None else f'|"{_entities(", ".join(edge.keys))}"|'
        lines.append(f"  {ids[edge.source]} -->{label} {ids[edge.workload]}")
    return "\n".join([*lines, ""])


_ROW, _GAP, _CHARACTER, _PADDING = 34, 140, 7.2, 12


def svg(graph: Graph) -> str:
    """A drawing that needs no other program: sources on the left, workloads on the right."""
    columns = [[node for node in graph.nodes if node.type == word] for word in ("source", "workload")]
    texts = {node.id: f"{node.namespace}/{node.kind}/{node.name}" for node in graph.nodes}
    widths = [
        max((len(texts[node.id]) * _CHARACTER for node in column), default=0.0) + 2 * _PADDING for column in columns
    ]
    left = [float(_PADDING), _PADDING + widths[0] + _GAP]
    place = {
        node.id: (left[side], _PADDING + row * _ROW)
        for side, column in enumerate(columns)
        for row, node in enumerate(column)
    }
    width = left[1] + widths[1] + _PADDING
    height = 2 * _PADDING + _ROW * max(1, *map(len, columns))
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
            f'viewBox="0 0 {width:.0f} {height}" role="img" font-family="ui-monospace, monospace" font-size="12">'
        ),
        "  <title>sources and the workloads that restart when they change</title>",
    ]
    for edge in graph.edges:
        x1, y1 = left[0] + widths[0], place[edge.source][1] + 12
        x2, y2 = place[edge.workload][0], place[edge.workload][1] + 12
        bend = (x1 + x2) / 2
        label = "every key" if edge.keys is None else ", ".join(edge.keys)
        lines.append(
            f'  <path d="M{x1:.0f} {y1:.0f} C{bend:.0f} {y1:.0f} {bend:.0f} {y2:.0f} {x2:.0f} {y2:.0f}" fill="none" '
            f'stroke="#8a8f98"><title>{escape(label)}</title></path>'
        )
    for side, column in enumerate(columns):
        fill = "#e7f0fb" if side == 0 else "#eaf6ea"
        for node in column:
            x, y = place[node.id]
            lines.append(
                f'  <rect x="{x:.0f}" y="{y:.0f}" width="{widths[side]:.0f}" height="24" rx="{12 if side == 0 else 3}" '
                f'fill="{fill}" stroke="#5c6370"/>'
            )
            lines.append(
                f'  <text x="{x + _PADDING:.0f}" y="{y + 16:.0f}" fill="#1d2127">{escape(texts[node.id])}</text>'
            )
    return "\n".join([*lines, "</svg>", ""])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _entities(text: str) -> str:
    return text.replace("#", "#35;").replace('"', "#quot;")
