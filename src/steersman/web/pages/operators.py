"""The operators: whatever each shows of itself, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.runtime.parts import State
from steersman.web import views
from steersman.web.markup import Element, h
from steersman.web.pages.layout import document
from steersman.web.pages.pieces import empty, row_state

if TYPE_CHECKING:
    from steersman.runtime.parts import Row, Table
    from steersman.web.observer import Observer

__all__ = ["page"]

MOST = 500  # rows of one table


def page(observer: Observer, _path: dict[str, str], _query: Any) -> Element:
    """Draw it."""
    found = views.operators_of(observer.tables(), observer.now())
    shown = [
        h(
            "section",
            {"data-key": one.name},
            h("h2", {"class": "operator"}, one.name),
            [_table(table) for table in one.tables] or h("p", {"class": "quiet"}, "It has nothing to show yet."),
        )
        for one in found.operators
    ]
    return document(
        "operators",
        "Operators",
        h("h1", {}, "Operators"),
        shown or empty("No operator has tables to show.", "Zones, performers and toolsets are listed here."),
        observer=observer,
        refresh="change beat",
    )


def _table(table: Table) -> Element:
    stated = any(row.state is not State.GOOD or row.note for row in table.rows)
    columns = [*table.columns, *(["State"] if stated else [])]
    return h(
        "div",
        {"class": "table", "data-key": table.title},
        h("h3", {}, table.title, h("span", {"class": "count"}, len(table.rows))),
        h(
            "div",
            {"class": "scroll card", "tabindex": "0", "role": "region", "aria-label": table.title},
            h(
                "table",
                {},
                h("thead", {}, h("tr", {}, [h("th", {"scope": "col"}, column) for column in columns])),
                h("tbody", {}, [_row(row, stated=stated) for row in table.rows[:MOST]]),
            ),
        )
        if table.rows
        else h("p", {"class": "quiet"}, "None."),
        h("p", {"class": "quiet"}, f"and {len(table.rows) - MOST} more") if len(table.rows) > MOST else None,
    )


def _row(row: Row, *, stated: bool) -> Element:
    said = row.note and row.note not in row.cells  # a cell may say it already
    state = h("td", {}, row_state(row.state), h("span", {"class": "note"}, row.note) if said else None)
    cells = [
        h("td", {"class": "number" if isinstance(cell, int | float) else None}, "-" if cell is None else cell)
        for cell in row.cells
    ]
    return h("tr", {}, *cells, state if stated else None)
