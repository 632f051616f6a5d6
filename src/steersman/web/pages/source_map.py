"""The map: sources and workloads, and which uses which.

On the server it is a list, searchable by a form; `static/map.js` draws the same as a picture and keeps the list beside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from steersman.operators.reload.inspect.restart_state import RestartState
from steersman.web import views
from steersman.web.markup import Element, h
from steersman.web.pages.components import empty, search_form, select, source_name, standing, workload_link
from steersman.web.pages.layout import document

if TYPE_CHECKING:
    from steersman.web.model import Map, WorkloadNode
    from steersman.web.snapshot_cache import SnapshotCache

_STATES: Final = msgspec.json.encode({state: [state.row_state, state.word] for state in RestartState}).decode()
MOST = 200  # workloads of the list; the picture shows all of them


def page(cache: SnapshotCache, _path: dict[str, str], query: dict[str, list[str]]) -> Element:
    """Draw it."""
    text, wanted = query.get("text", [""])[0].strip(), query.get("standing", [""])[0]
    if wanted not in tuple(RestartState):
        wanted = ""
    snapshot = cache.snapshot()
    found = views.map_of(snapshot, cache.now())
    if wanted == RestartState.OFF.value:
        nodes = [view.workload for view in snapshot.workloads if view.workload.standing is RestartState.OFF]
        chosen = [node for node in nodes if text.casefold() in node.id.casefold()]
    else:
        uses = _uses(found)
        chosen = [node for node in found.workloads if _chosen(node, uses, text, wanted)]
    return document(
        "map",
        "Map",
        h(
            "div",
            {"class": "heading"},
            h("h1", {}, "Map"),
            h(
                "p",
                {"class": "quiet"},
                f"{len(found.sources)} sources, {len(found.workloads)} workloads, {len(found.edges)} edges",
            ),
        ),
        _form(text, wanted),
        h("div", {"id": "picture", "data-keep": True, "hidden": True, "data-states": _STATES}),
        _list(chosen, found) if chosen else empty("No match.", "No workload with reload enabled matches."),
        cache=cache,
    )


def _uses(found: Map) -> dict[str, list[str]]:
    uses: dict[str, list[str]] = {}
    for edge in found.edges:
        uses.setdefault(edge.workload, []).append(edge.source)
    return uses


def _chosen(node: WorkloadNode, uses: dict[str, list[str]], text: str, wanted: str) -> bool:
    if wanted and node.standing.value != wanted:
        return False
    return not text or any(text.casefold() in name.casefold() for name in (node.id, *uses.get(node.id, ())))


def _form(text: str, wanted: str) -> Element:
    states = [("", "any"), *((state.value, state.word) for state in RestartState)]
    filters = select("standing", "State", states, wanted)
    return search_form("/map", text, "workload, source or namespace", *filters, button="Search")


def _list(chosen: list[WorkloadNode], found: Map) -> Element:
    uses = _uses(found)
    return h(
        "section",
        {"id": "list"},
        h("h2", {}, "Workloads and what they use", h("span", {"class": "count"}, len(chosen))),
        h(
            "ul",
            {"class": "entries card"},
            [
                h(
                    "li",
                    {"class": "entry", "data-key": node.id},
                    h(
                        "div",
                        {"class": "what"},
                        workload_link(node.id),
                        h(
                            "span",
                            {"class": "changes"},
                            [source_name(source, node.namespace) for source in uses.get(node.id, ())],
                        ),
                    ),
                    h("div", {"class": "end"}, standing(node.standing)),
                )
                for node in chosen[:MOST]
            ],
        ),
        h("p", {"class": "quiet"}, f"and {len(chosen) - MOST} more: search to narrow it down")
        if len(chosen) > MOST
        else None,
    )
