"""The first view: what waits, what is under way, what is stuck."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.web import views
from steersman.web.markup import Element, h
from steersman.web.model import Standing
from steersman.web.pages.layout import document
from steersman.web.pages.pieces import STANDINGS, age, bar, countdown, empty, entry_row, node_row, sign

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from steersman.web.model import Now, WorkloadNode
    from steersman.web.observer import Observer

__all__ = ["page"]


def page(observer: Observer, _path: dict[str, str], _query: Any) -> Element:
    """Draw it."""
    scene = observer.scene()
    now = views.now_of(scene, observer.vitals(), observer.now())
    lists = [
        _list("Failed rollouts", "bad", now.failed, lambda node: [_progress(node)]),
        _list("Open circuits", "bad", now.circuits, lambda node: [_reason(node), _closes(node, now)]),
        _list("Waiting for approval", "waiting", now.approvals, _approval),
        _list("Pending", "waiting", now.pending, lambda node: [_countdown(node, now), _reason(node)]),
        _list("Rolling out", "busy", now.rollouts, lambda node: [_progress(node), _since(node, now)]),
        _list("Held back", "waiting", now.held, lambda node: [_reason(node), _until(node, now)]),
    ]
    shown = [one for one in lists if one is not None]
    return document(
        "now",
        "Now",
        h("h1", {"class": "sentence"}, _sentence(now, running=scene.running)),
        _overview(now) if scene.running else None,
        _problems(now),
        h("div", {"class": "columns"}, shown) if shown else None,
        _calm(now) if scene.running and not shown else None,
        _recent(now) if scene.running else None,
        observer=observer,
    )


def _sentence(now: Now, *, running: bool) -> str:
    """The state of everything in one line."""
    if not running:
        return "This process does not run the reload operator."
    total, off = sum(now.counts.values()), now.counts.get(Standing.OFF.value, 0)
    watched = total - off
    told = [
        _count(len(now.failed), "rollout failed", "rollouts failed"),
        _count(len(now.circuits), "circuit open", "circuits open"),
        _count(len(now.approvals), "waits for approval", "wait for approval"),
        _count(len(now.rollouts), "rolling out", "rolling out"),
        _count(len(now.pending), "restart pending", "restarts pending"),
        _count(len(now.held), "held back", "held back"),
    ]
    if any(told):
        return f"{', '.join(filter(None, told))}."
    if not watched:
        return "No workload takes part yet."
    return "The workload runs what it should." if watched == 1 else f"All {watched} workloads run what they should."


def _count(number: int, one: str, many: str) -> str:
    return "" if not number else f"{number} {one if number == 1 else many}"


def _overview(now: Now) -> Element:
    total = sum(now.counts.values())
    present = [(one, now.counts.get(one.value, 0)) for one in STANDINGS]
    return h(
        "section",
        {"class": "overview", "aria-label": "Workloads by state"},
        bar([(f"{STANDINGS[one][0]} {one.value}", count) for one, count in present], total),
        h(
            "ul",
            {"class": "legend"},
            [
                h(
                    "li",
                    {"title": STANDINGS[one][2]},
                    h("a", {"href": f"/map?standing={one.value}"}, h("b", {}, count), sign(*STANDINGS[one][:2])),
                )
                for one, count in present
                if count
            ],
        ),
    )


def _problems(now: Now) -> Element | None:
    if now.ready:
        return None
    return h(
        "section",
        {"class": "alert", "role": "alert"},
        h("h2", {}, "This process is not ready"),
        h("ul", {}, [h("li", {}, h("b", {}, one.name), f": {one.problem}") for one in now.problems[:6]]),
        h("p", {}, h("a", {"href": "/vitals"}, "Health")),
    )


def _list(
    title: str, tone: str, nodes: Sequence[WorkloadNode], end: Callable[[WorkloadNode], Sequence[object]]
) -> Element | None:
    if not nodes:
        return None
    return h(
        "section",
        {"class": f"card {tone}", "data-key": title},
        h("h2", {}, title, h("span", {"class": "count"}, len(nodes))),
        h("ul", {"class": "entries"}, [node_row(node, *end(node)) for node in nodes[:50]]),
        h("p", {"class": "quiet"}, f"and {len(nodes) - 50} more") if len(nodes) > 50 else None,
    )


def _reason(node: WorkloadNode) -> Element:
    return h("span", {"class": "note"}, node.reason)


def _countdown(node: WorkloadNode, now: Now) -> object:
    return countdown(node.due, now.at) if node.due is not None else h("span", {"class": "countdown"}, "now")


def _closes(node: WorkloadNode, now: Now) -> Element:
    return h("span", {"class": "quiet"}, "closes ", countdown(node.due, now.at))


def _until(node: WorkloadNode, now: Now) -> Element | None:
    if node.due is None:
        return None
    return h("span", {"class": "quiet"}, "looked at again ", countdown(node.due, now.at))


def _approval(node: WorkloadNode) -> list[object]:
    assert node.approval is not None
    return [
        h("span", {"class": "note"}, node.approval.reason or node.reason),
        h("code", {"class": "command"}, node.approval.command or f"digest {node.approval.digest}"),
    ]


def _progress(node: WorkloadNode) -> Element | None:
    if node.rollout is None:
        return None
    return h(
        "span",
        {"class": "progress"},
        h(
            "progress",
            {"value": node.rollout.ready, "max": max(1, node.rollout.wanted), "aria-label": f"{node.name} pods ready"},
        ),
        h("span", {"class": "quiet"}, f"{node.rollout.ready} of {node.rollout.wanted} ready"),
        h("span", {"class": "note"}, node.rollout.note) if node.rollout.note else None,
    )


def _since(node: WorkloadNode, now: Now) -> object:
    return h("span", {"class": "quiet"}, age(node.rollout.since if node.rollout else None, now.at, ""))


def _calm(now: Now) -> Element:
    watched = sum(now.counts.values()) - now.counts.get(Standing.OFF.value, 0)
    if watched:
        return empty("Nothing waits.", "Change a ConfigMap or Secret that a workload uses, and it shows here at once.")
    return empty(
        "Nothing takes part yet.",
        "Annotate a Deployment with steersman.dev/reload: auto, and it is restarted when what it uses changes.",
    )


def _recent(now: Now) -> Element | None:
    if not now.recent:
        return None
    return h(
        "section",
        {"class": "recent"},
        h("h2", {}, "Recent restarts"),
        h("ol", {"class": "entries timeline"}, [entry_row(entry, now.at) for entry in now.recent]),
        h("p", {}, h("a", {"href": "/history"}, "All of the history")),
    )
