"""One workload: why it restarts, why it does not, what waits, what happened. The same as `steersman why`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.operators.reload.inspect.restart_state import RestartState
from steersman.web import views
from steersman.web.markup import Element, h
from steersman.web.pages.components import (
    age,
    changes,
    command,
    countdown,
    duration,
    empty,
    grid,
    outcome,
    pods_of,
    sign,
    source_name,
    standing,
)
from steersman.web.pages.layout import document

if TYPE_CHECKING:
    from datetime import datetime

    from steersman.web.model import Edge, WorkloadNode, WorkloadView
    from steersman.web.snapshot_cache import SnapshotCache


def page(cache: SnapshotCache, path: dict[str, str], _query: Any) -> Element | None:
    """Draw it."""
    view = views.workload_of(cache.snapshot(), path["kind"], path["namespace"], path["name"])
    if view is None:
        return None
    node, now = view.workload, cache.now()
    return document(
        "workload",
        node.name,
        h("p", {"class": "crumbs"}, h("a", {"href": f"/map?text={node.namespace}"}, node.namespace), f" / {node.kind}"),
        h("div", {"class": "heading"}, h("h1", {}, node.name), standing(node.standing)),
        h(
            "dl",
            {"class": "facts card"},
            [[h("dt", {}, name), h("dd", {}, value)] for name, value in _facts(view, now)],
        ),
        _problems(view),
        _edges(view),
        _unwatched(view),
        _restarts(view, now),
        cache=cache,
    )


def _facts(view: WorkloadView, now: datetime) -> list[tuple[str, object]]:
    node = view.workload
    waits = node.standing in {RestartState.PENDING, RestartState.HELD, RestartState.OPEN}
    rows: list[tuple[str, object]] = [("Enabled by", view.enrolled or "nothing")]
    if waits:
        rows += [
            ("Pending", changes(node.changes, node.namespace)),
            ("Waiting for", node.reason),
            ("Next evaluation", countdown(node.due, now)),
        ]
    else:
        rows.append(("Now", node.reason))
    if node.approval is not None:
        rows.append(("Approve with", command(node.approval.command or node.approval.digest)))
    if node.rollout is not None:
        rows.append(("Rollout", f"{pods_of(node.rollout)} {node.rollout.note}".rstrip()))
    if node.wave is not None:
        rows.append(("Wave", node.wave))
    rows.append(("Last restart", age(node.last_restart, now)))
    return rows


def _problems(view: WorkloadView) -> Element | None:
    if not view.problems:
        return None
    return h(
        "section",
        {"class": "alert"},
        h("h2", {}, "Invalid settings"),
        h("ul", {}, [h("li", {}, problem) for problem in view.problems]),
    )


def _edges(view: WorkloadView) -> Element:
    if not view.edges:
        return empty("No sources watched.", view.enrolled or view.workload.reason)
    return h(
        "section",
        {},
        h("h2", {}, "Restarts when these change"),
        grid(
            "Sources",
            ("Source", "Keys", "Digest", "Rule", "State"),
            [_edge(edge, view.workload) for edge in view.edges],
        ),
    )


def _edge(edge: Edge, node: WorkloadNode) -> list[Element]:
    keys: object = h("span", {"class": "quiet"}, "all of them")
    if edge.keys is not None:
        keys = [h("code", {"class": "key"}, key) for key in edge.keys]
    state = sign("waiting", "Changed") if edge.changed else sign("good", "Current")
    if not edge.digest:
        state = sign("off", "Absent, optional") if edge.optional else sign("bad", "Missing")
    if node.standing is RestartState.UNKNOWN:
        state = sign("unknown", "Unknown")
    return [
        h("td", {}, source_name(edge.source, node.namespace)),
        h("td", {}, keys, [h("code", {"class": "key ignored"}, f"not {pattern}") for pattern in edge.ignored]),
        h("td", {}, h("code", {}, edge.digest or "-")),
        h("td", {}, ", ".join(edge.rules)),
        h("td", {}, state),
    ]


def _unwatched(view: WorkloadView) -> Element | None:
    if not view.unwatched:
        return None
    return h(
        "section",
        {},
        h("h2", {}, "Used, but not watched"),
        h(
            "ul",
            {"class": "entries card"},
            [
                h(
                    "li",
                    {"class": "entry", "data-key": unwatched.source},
                    h("div", {"class": "what"}, source_name(unwatched.source, view.workload.namespace)),
                    h("div", {"class": "end"}, h("span", {"class": "note"}, unwatched.rule)),
                )
                for unwatched in view.unwatched
            ],
        ),
    )


def _restarts(view: WorkloadView, now: datetime) -> Element:
    if not view.restarts:
        return empty("Never restarted by Steersman.", "Its restarts, with cause and outcome, will be listed here.")
    return h(
        "section",
        {},
        h("h2", {}, "Restarts"),
        h(
            "ol",
            {"class": "entries timeline card"},
            [
                h(
                    "li",
                    {"class": "entry", "data-key": restart.at.isoformat()},
                    h("span", {"class": "when"}, age(restart.at, now)),
                    h(
                        "div",
                        {"class": "what"},
                        changes(restart.changes, view.workload.namespace)
                        or h("span", {"class": "quiet"}, "cause not recorded"),
                    ),
                    h(
                        "div",
                        {"class": "end"},
                        outcome(restart.outcome),
                        h("span", {"class": "quiet"}, f"after {duration(restart.seconds)}")
                        if restart.seconds is not None
                        else None,
                        h("span", {"class": "note"}, restart.note) if restart.note else None,
                    ),
                )
                for restart in view.restarts
            ],
        ),
    )
