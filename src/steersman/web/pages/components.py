"""Components that several views share: states, names, changes, times. No state is shown by colour alone."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from steersman.web.markup import Element, h, text_of
from steersman.web.model import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.operators.reload.inspect.restart_state import RestartState
    from steersman.runtime.manager.operator_bundle import RowState
    from steersman.web.model import ChangedSource, HistoryEntry, Rollout, WorkloadNode

_OUTCOMES: Final = {
    Outcome.SUCCEEDED: ("good", "Succeeded"),
    Outcome.ROLLING: ("busy", "Rolling out"),
    Outcome.FAILED: ("bad", "Failed"),
    Outcome.REPLACED: ("off", "Replaced"),
    Outcome.UNKNOWN: ("off", "Restarted"),
}
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")
_SIGNS: Final = {"good": "●", "busy": "◐", "waiting": "◔", "bad": "▲", "off": "○", "unknown": "?"}


def sign(tone: str, word: str) -> Element:
    """A state: a sign, a colour and a word."""
    return h("span", {"class": f"state {tone}"}, h("span", {"aria-hidden": "true"}, _SIGNS[tone]), f" {word}")


def standing(state: RestartState) -> Element:
    """The state of a workload."""
    return sign(state.row_state.value, state.word)


def outcome(result: Outcome) -> Element:
    """The outcome of a restart."""
    return sign(*_OUTCOMES[result])


def row_state(state: RowState, word: str = "") -> Element:
    """The state of a row of an operator's table, of an operator or of a problem."""
    return sign(state.value, word or state.word)


def command(text: str) -> Element:
    """A command, with a button that copies it; the button shows only where JavaScript runs."""
    button = h("button", {"class": "icon copy", "type": "button", "data-copy": text, "title": "Copy"}, "Copy")
    return h("span", {"class": "copied"}, h("code", {"class": "command"}, text), button)


def pods_of(rollout: Rollout) -> str:
    """How far a rollout is: pods of the new template, of all that are wanted."""
    return f"{rollout.updated} of {rollout.wanted} pods updated"


def workload_path(ident: str) -> str:
    """Where a workload's own page is."""
    return "/workloads/" + "/".join(quote(part, safe="") for part in ident.split("/", 2))


def workload_link(ident: str) -> Element:
    """A workload's name, leading to its page."""
    kind, namespace, name = ident.split("/", 2)
    return h(
        "a",
        {"class": "workload", "href": workload_path(ident)},
        h("span", {"class": "where"}, f"{namespace} / {kind} / "),
        h("span", {"class": "name"}, name),
    )


def source_name(ident: str, namespace_of_page: str = "") -> Element:
    """A source's name; without its namespace where the page shows that namespace."""
    kind, namespace, name = ident.split("/", 2)
    text = f"{kind}/{name}" if namespace == namespace_of_page else ident
    return h("code", {"class": f"source {kind}"}, text)


def changes(shown: Sequence[ChangedSource], namespace: str) -> Element | None:
    """Which sources and keys, and who changed them."""
    if not shown:
        return None
    return h("span", {"class": "changes"}, [_change(change, namespace) for change in shown])


def _change(change: ChangedSource, namespace: str) -> Element:
    return h(
        "span",
        {"class": "change"},
        source_name(change.source, namespace),
        [h("code", {"class": "key"}, key) for key in change.keys[:6]],
        h("span", {"class": "quiet"}, f"and {len(change.keys) - 6} more") if len(change.keys) > 6 else None,
        h("span", {"class": "by"}, f"by {', '.join(change.by)}") if change.by else None,
    )


def grid(label: str, columns: Sequence[str], rows: Iterable[Sequence[Element]]) -> Element:
    """A table of `td`s. Each knows the name of its column, for screens on which rows become paragraphs."""
    return h(
        "div",
        {"class": "scroll card", "tabindex": "0", "role": "region", "aria-label": label},
        h(
            "table",
            {},
            h("thead", {}, h("tr", {}, [h("th", {"scope": "col"}, column) for column in columns])),
            h("tbody", {}, [_grid_row(columns, row) for row in rows]),
        ),
    )


def _grid_row(columns: Sequence[str], cells: Sequence[Element]) -> Element:
    return h(
        "tr",
        {"data-key": text_of(cells[0]) if cells else None},
        [
            h(cell.tag, {**cell.attributes, "data-label": column[:1].upper() + column[1:]}, *cell.children)
            for column, cell in zip(columns, cells, strict=False)
        ],
    )


def moment(text: str, now: datetime) -> Element | str:
    """A time of an operator's table, in words; any other text as it is."""
    if not _TIME.fullmatch(text):
        return text
    at = datetime.fromisoformat(text)
    return age(at, now) if at <= now else countdown(at, now)


def age(at: datetime | None, now: datetime, missing: str = "never") -> Element | str:
    """How long ago."""
    if at is None:
        return missing
    return h(
        "time",
        {"datetime": at.isoformat(timespec="seconds"), "data-age": True, "title": f"{at:%Y-%m-%d %H:%M:%S} UTC"},
        f"{duration((now - at).total_seconds())} ago",
    )


def countdown(due: datetime | None, now: datetime) -> Element | str:
    """How long until."""
    if due is None:
        return h("span", {"class": "quiet"}, "when something changes")
    left = (due - now).total_seconds()
    return h(
        "time",
        {
            "datetime": due.isoformat(timespec="milliseconds"),
            "data-due": True,
            "class": "countdown",
            "title": f"{due:%Y-%m-%d %H:%M:%S} UTC",
        },
        f"in {duration(left)}" if left > 0 else "now",
    )


def duration(seconds: float) -> str:
    """A length of time in one or two units.

    >>> [duration(seconds) for seconds in (0.4, 42, 90, 3700, 90_000)]
    ['0 s', '42 s', '1 min 30 s', '1 h 1 min', '1 d 1 h']
    """
    whole = max(0, int(seconds))
    units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")]
    for place, (size, name) in enumerate(units):
        if whole >= size:
            first, rest = divmod(whole, size)
            if place + 1 < len(units) and (second := rest // units[place + 1][0]):
                return f"{first} {name} {second} {units[place + 1][1]}"
            return f"{first} {name}"
    return "0 s"


def entry_row(entry: HistoryEntry, now: datetime) -> Element:
    """One line of the history."""
    namespace = entry.workload.split("/")[1]
    took = f"after {duration(entry.seconds)}" if entry.seconds is not None else None
    return h(
        "li",
        {"class": "entry", "data-key": entry.id},
        h("a", {"class": "when", "href": f"/history/{quote(entry.id, safe='')}"}, age(entry.at, now)),
        h("div", {"class": "what"}, workload_link(entry.workload), changes(entry.changes, namespace)),
        h(
            "div",
            {"class": "end"},
            outcome(entry.outcome),
            h("span", {"class": "quiet"}, took) if took else None,
            h("span", {"class": "note"}, entry.note) if entry.note else None,
        ),
    )


def empty(title: str, text: str) -> Element:
    """Shown where a list is empty."""
    return h("div", {"class": "empty"}, h("p", {"class": "lead"}, title), h("p", {}, text))


def bar(parts: Iterable[tuple[str, int]], total: int) -> Element:
    """Shares of a whole, as a band."""
    x, rects = 0.0, []
    for tone, count in parts:
        width = 1000 * count / total if total else 0
        rects.append(h("rect", {"class": tone, "x": round(x, 1), "y": 0, "width": round(width, 1), "height": 10}))
        x += width
    return h(
        "svg", {"class": "band", "viewBox": "0 0 1000 10", "preserveAspectRatio": "none", "aria-hidden": "true"}, rects
    )


def node_row(node: WorkloadNode, *end: object) -> Element:
    """One workload of a list."""
    return h(
        "li",
        {"class": "entry", "data-key": node.id},
        h("div", {"class": "what"}, workload_link(node.id), changes(node.changes, node.namespace)),
        h("div", {"class": "end"}, *end),
    )


def search_form(action: str, text: str, placeholder: str, *filters: Element, button: str) -> Element:
    """A field to search in a page, with filters beside it."""
    field = {
        "id": "text",
        "name": "text",
        "type": "search",
        "value": text,
        "maxlength": 253,
        "placeholder": placeholder,
    }
    return h(
        "form",
        {"class": "filters", "method": "get", "action": action, "role": "search", "data-live": True},
        h("label", {"for": "text"}, "Search"),
        h("input", {**field, "placeholder": placeholder}),
        *filters,
        h("button", {"type": "submit", "class": "button"}, button),
    )


def select(name: str, label: str, options: Iterable[tuple[str, str]], chosen: str) -> tuple[Element, Element]:
    """A filter of a search form, with its label; options are values and what is shown for them."""
    shown = [h("option", {"value": value, "selected": value == chosen}, text) for value, text in options]
    return h("label", {"for": name}, label), h("select", {"id": name, "name": name}, shown)
