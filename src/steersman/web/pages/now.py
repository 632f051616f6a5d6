"""The first view: is everything all right? Problems with their next steps, every operator, what waits and rolls out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.operators.reload.inspect.restart_state import RestartState
from steersman.runtime.manager.operator_bundle import RowState
from steersman.web import views
from steersman.web.markup import Element, h
from steersman.web.pages.components import (
    age,
    bar,
    command,
    countdown,
    empty,
    entry_row,
    node_row,
    pods_of,
    row_state,
    standing,
)
from steersman.web.pages.layout import document

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from steersman.runtime.manager.operator_bundle import RowProblem
    from steersman.web.model import Now, WorkloadNode
    from steersman.web.snapshot_cache import SnapshotCache

LISTED: Final = 8  # objects of one problem


def page(cache: SnapshotCache, _path: dict[str, str], _query: Any) -> Element:
    """Draw it."""
    snapshot = cache.snapshot()
    now = views.now_of(snapshot, cache.vitals(), cache.reports(), cache.now())
    stuck = [*now.failed, *now.circuits, *now.approvals, *now.held]
    nodes = {node.id: node for node in stuck}
    shown = {name for problem in now.problems for name in problem.objects}
    lists = [
        _list("Pending", "waiting", now.pending, lambda node: [_countdown(node, now), _reason(node)]),
        _list("Rolling out", "busy", now.rollouts, lambda node: [_progress(node), _since(node, now)]),
        _list(
            "Held back",
            "waiting",
            [node for node in now.held if node.id not in shown],
            lambda node: [_reason(node), _until(node, now)],
        ),
    ]
    sections = [section for section in lists if section is not None]
    return document(
        "now",
        "Now",
        h("h1", {"class": "sentence"}, _sentence(now)),
        h("div", {"class": "columns problems"}, [_problem(problem, nodes, now) for problem in now.problems])
        if now.problems
        else None,
        _operators(now),
        _overview(now) if snapshot.running else None,
        h("div", {"class": "columns"}, sections) if sections else None,
        _calm(now) if snapshot.running and not sections and not now.problems else None,
        _recent(now) if snapshot.running else None,
        cache=cache,
        refresh="change beat",
    )


def _sentence(now: Now) -> str:
    """Whether everything is all right, in one line."""
    if now.problems:
        first = _count(len(now.problems), "problem needs attention", "problems need attention")
        return f"{first}." if now.ready else f"{first}; this process is not ready."
    if not now.operators:
        return "No operator runs in this process."
    if any(operator.state is RowState.UNKNOWN for operator in now.operators):
        return "The current state is not known."
    moving = [operator.name for operator in now.operators if operator.state in (RowState.BUSY, RowState.WAITING)]
    if moving:
        return f"Nothing is failing. In progress: {', '.join(moving)}."
    return "Everything is all right."


def _problem(problem: RowProblem, nodes: Mapping[str, WorkloadNode], now: Now) -> Element:
    """One cause: what it is, what it concerns, and what to do next."""
    rest, others = len(problem.objects) - LISTED, len(problem.objects) - 1
    title = f" {problem.objects[0]}{f' and {others} more' if others else ''}"
    return h(
        "section",
        {"class": f"card problem {problem.state.value}", "data-key": problem.cause or "".join(problem.objects)},
        h("h2", {}, row_state(problem.state, problem.word), h("span", {"class": "quiet"}, title)),
        h("p", {"class": "message"}, problem.message),
        h(
            "ul",
            {"class": "entries"},
            [_concerned(name, nodes.get(name), now) for name in problem.objects[:LISTED]],
            h("li", {"class": "entry quiet"}, f"and {rest} more") if rest > 0 else None,
        )
        if len(problem.objects) > 1 or problem.objects[0] in nodes
        else None,
        h("p", {"class": "next"}, h("b", {}, "Next step "), command(problem.command)) if problem.command else None,
        h("p", {}, h("a", {"href": f"/runbooks/{problem.runbook}"}, "Runbook: what to do"))
        if problem.runbook
        else None,
    )


def _concerned(name: str, node: WorkloadNode | None, now: Now) -> Element:
    if node is None:
        return h("li", {"class": "entry", "data-key": name}, h("div", {"class": "what"}, h("code", {}, name)))
    ends: list[object] = [standing(node.standing)]
    ends += [h("span", {"class": "quiet"}, pods_of(node.rollout))] if node.rollout is not None else []
    ends += [_closes(node, now)] if node.standing is RestartState.OPEN else []
    return node_row(node, *ends)


def _operators(now: Now) -> Element | None:
    if not now.operators:
        return None
    return h(
        "section",
        {"class": "operators", "aria-label": "Operators"},
        h("h2", {}, "Operators"),
        h(
            "ul",
            {"class": "entries card"},
            [
                h(
                    "li",
                    {"class": "entry", "data-key": operator.name},
                    h("div", {"class": "when"}, row_state(operator.state)),
                    h(
                        "div",
                        {"class": "what"},
                        h("a", {"class": "workload", "href": f"/operators#{operator.name}"}, h("b", {}, operator.name)),
                        h("span", {"class": "headline"}, operator.headline),
                    ),
                )
                for operator in now.operators
            ],
        ),
    )


def _count(number: int, singular: str, plural: str) -> str:
    return "" if not number else f"{number} {singular if number == 1 else plural}"


def _overview(now: Now) -> Element:
    total = sum(now.counts.values())
    present = [(state, now.counts.get(state.value, 0)) for state in RestartState]
    return h(
        "section",
        {"class": "overview", "aria-label": "Workloads by state"},
        h("h2", {}, "Workloads"),
        bar([(f"{state.row_state.value} {state.value}", count) for state, count in present], total),
        h(
            "ul",
            {"class": "legend"},
            [
                h(
                    "li",
                    {"title": state.meaning},
                    h("a", {"href": f"/map?standing={state.value}"}, h("b", {}, count), standing(state)),
                )
                for state, count in present
                if count
            ],
        ),
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
    return h("span", {"class": "quiet"}, "next evaluation ", countdown(node.due, now.at))


def _progress(node: WorkloadNode) -> Element | None:
    if node.rollout is None:
        return None
    return h(
        "span",
        {"class": "progress"},
        h(
            "progress",
            {
                "class": "bad" if node.standing is RestartState.FAILED else None,
                "value": node.rollout.updated,
                "max": max(1, node.rollout.wanted),
                "aria-label": f"{node.name} pods updated",
            },
        ),
        h("span", {"class": "quiet"}, pods_of(node.rollout)),
        h("span", {"class": "note"}, node.rollout.note) if node.rollout.note else None,
    )


def _since(node: WorkloadNode, now: Now) -> object:
    return h("span", {"class": "quiet"}, age(node.rollout.since if node.rollout else None, now.at, ""))


def _calm(now: Now) -> Element:
    watched = sum(now.counts.values()) - now.counts.get(RestartState.OFF.value, 0)
    if watched:
        return empty("Nothing is waiting.", "Change a ConfigMap or Secret that a workload uses to see it here.")
    return empty(
        "No workload has reload enabled yet.",
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
        h("p", {}, h("a", {"href": "/history"}, "Full history")),
    )
