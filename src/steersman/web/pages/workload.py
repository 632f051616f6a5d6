"""One workload: why it restarts, why it does not, what waits, what happened. The same as `steersman why`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.web import views
from steersman.web.markup import Element, h
from steersman.web.model import Standing
from steersman.web.pages.layout import document
from steersman.web.pages.pieces import (
    age,
    changes,
    countdown,
    duration,
    empty,
    grid,
    outcome,
    sign,
    source_name,
    standing,
)

if TYPE_CHECKING:
    from datetime import datetime

    from steersman.web.model import Edge, WorkloadView
    from steersman.web.observer import Observer

__all__ = ["page"]


def page(observer: Observer, path: dict[str, str], _query: Any) -> Element | None:
    """Draw it."""
    view = views.workload_of(observer.scene(), path["kind"], path["namespace"], path["name"])
    if view is None:
        return None
    node, now = view.workload, observer.now()
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
        observer=observer,
    )


def _facts(view: WorkloadView, now: datetime) -> list[tuple[str, object]]:
    node = view.workload
    waits = node.standing in {Standing.PENDING, Standing.HELD, Standing.OPEN}
    rows: list[tuple[str, object]] = [("Takes part", view.enrolled or "no")]
    if waits:
        rows += [
            ("Pending", changes(node.changes, node.namespace)),
            ("Waits for", node.reason),
            ("Looked at again", countdown(node.due, now)),
        ]
    else:
        rows.append(("Now", node.reason))
    if node.approval is not None:
        rows.append(("Approve with", h("code", {"class": "command"}, node.approval.command or node.approval.digest)))
    if node.rollout is not None:
        rows.append(("Rollout", f"{node.rollout.ready} of {node.rollout.wanted} pods ready {node.rollout.note}"))
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
        h("h2", {}, "Something written on it makes no sense"),
        h("ul", {}, [h("li", {}, one) for one in view.problems]),
    )


def _edges(view: WorkloadView) -> Element:
    if not view.edges:
        return empty("Watches nothing.", view.enrolled or view.workload.reason)
    return h(
        "section",
        {},
        h("h2", {}, "Restarts when these change"),
        grid(
            "Sources",
            ("Source", "Keys", "Digest", "Rule", "State"),
            [_edge(edge, view.workload.namespace) for edge in view.edges],
        ),
    )


def _edge(edge: Edge, namespace: str) -> list[Element]:
    keys: object = h("span", {"class": "quiet"}, "all of them")
    if edge.keys is not None:
        keys = [h("code", {"class": "key"}, key) for key in edge.keys]
    state = sign("waiting", "changed") if edge.changed else sign("good", "applied")
    if not edge.digest:
        state = sign("off", "optional, absent") if edge.optional else sign("bad", "missing")
    return [
        h("td", {}, source_name(edge.source, namespace)),
        h("td", {}, keys, [h("code", {"class": "key ignored"}, f"not {one}") for one in edge.ignored]),
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
        h("h2", {}, "Uses, without being restarted for"),
        h(
            "ul",
            {"class": "entries card"},
            [
                h(
                    "li",
                    {"class": "entry", "data-key": one.source},
                    h("div", {"class": "what"}, source_name(one.source, view.workload.namespace)),
                    h("div", {"class": "end"}, h("span", {"class": "note"}, one.rule)),
                )
                for one in view.unwatched
            ],
        ),
    )


def _restarts(view: WorkloadView, now: datetime) -> Element:
    if not view.restarts:
        return empty("Never restarted by Steersman.", "Its restarts, their causes and their ends will be listed here.")
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
                    {"class": "entry", "data-key": one.at.isoformat()},
                    h("span", {"class": "when"}, age(one.at, now)),
                    h(
                        "div",
                        {"class": "what"},
                        changes(one.changes, view.workload.namespace)
                        or h("span", {"class": "quiet"}, "cause not kept"),
                    ),
                    h(
                        "div",
                        {"class": "end"},
                        outcome(one.outcome),
                        h("span", {"class": "quiet"}, f"after {duration(one.seconds)}")
                        if one.seconds is not None
                        else None,
                        h("span", {"class": "note"}, one.note) if one.note else None,
                    ),
                )
                for one in view.restarts
            ],
        ),
    )
