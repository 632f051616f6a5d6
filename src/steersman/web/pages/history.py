"""The history: who changed which keys, which workloads restarted, when, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec

from steersman.web import views
from steersman.web.api import filters_of
from steersman.web.markup import Element, h
from steersman.web.model import Outcome
from steersman.web.pages.components import (
    age,
    changes,
    duration,
    empty,
    entry_row,
    outcome,
    search_form,
    select,
    workload_link,
)
from steersman.web.pages.layout import document

if TYPE_CHECKING:
    from steersman.web.api import HistoryParameters
    from steersman.web.model import History
    from steersman.web.snapshot_cache import SnapshotCache


def page(cache: SnapshotCache, _path: dict[str, str], query: HistoryParameters) -> Element:
    """Draw the list."""
    found = views.history_of(cache.snapshot(), filters_of(query), cache.now())
    filtered = bool(query.namespace or query.text or query.outcome)
    return document(
        "history",
        "History",
        h("h1", {}, "History"),
        _form(found, query),
        h("p", {"class": "quiet", "aria-live": "polite"}, _summary(found, filtered=filtered)),
        h("ol", {"class": "entries timeline card"}, [entry_row(entry, found.at) for entry in found.entries])
        if found.entries
        else _nothing(filtered=filtered),
        _more(found, query),
        cache=cache,
    )


def _summary(found: History, *, filtered: bool) -> str:
    restarts = "1 restart" if found.total == 1 else f"{found.total} restarts"
    return f"{restarts} {'match' if found.total != 1 else 'matches'}" if filtered else restarts


def _form(found: History, query: HistoryParameters) -> Element:
    spaces = sorted({*found.namespaces, *([query.namespace] if query.namespace else [])})
    outcomes = [("", "any"), *((option.value, option.value) for option in Outcome)]
    return search_form(
        "/history",
        query.text,
        "workload, source, key or person",
        *select("namespace", "Namespace", [("", "all"), *((space, space) for space in spaces)], query.namespace),
        *select("outcome", "Outcome", outcomes, query.outcome or ""),
        button="Filter",
    )


def _nothing(*, filtered: bool) -> Element:
    if filtered:
        return empty("Nothing matches.", "Try fewer filters.")
    return empty("No restarts yet.", "As soon as a source changes and a workload restarts, it is written down here.")


def _more(found: History, query: HistoryParameters) -> Element | None:
    if found.next is None:
        return None
    asked = {name: value for name, value in msgspec.to_builtins(query).items() if value and name != "before"}
    return h(
        "p", {}, h("a", {"class": "button", "href": f"/history?{urlencode({**asked, 'before': found.next})}"}, "Older")
    )


def entry_page(cache: SnapshotCache, path: dict[str, str], _query: Any) -> Element | None:
    """Draw one entry."""
    entry, now = views.entry_of(cache.snapshot(), path["id"]), cache.now()
    if entry is None:
        return None
    namespace = entry.workload.split("/")[1]
    rows: list[tuple[str, object]] = [
        ("Workload", workload_link(entry.workload)),
        ("When", [f"{entry.at:%Y-%m-%d %H:%M:%S} UTC, ", age(entry.at, now)]),
        ("For", changes(entry.changes, namespace) or h("span", {"class": "quiet"}, "not written down")),
        ("Outcome", outcome(entry.outcome)),
        ("Took", duration(entry.seconds) if entry.seconds is not None else h("span", {"class": "quiet"}, "unknown")),
        *([("Note", entry.note)] if entry.note else []),
    ]
    return document(
        "history",
        "Restart",
        h("p", {"class": "crumbs"}, h("a", {"href": "/history"}, "History")),
        h("h1", {}, f"Restart of {entry.workload.split('/', 2)[2]}"),
        h("dl", {"class": "facts card"}, [[h("dt", {}, name), h("dd", {}, value)] for name, value in rows]),
        cache=cache,
    )
