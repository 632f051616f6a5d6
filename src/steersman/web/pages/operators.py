"""The operators: whatever each shows of itself, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.runtime.parts import State
from steersman.web import views
from steersman.web.markup import Element, h
from steersman.web.pages.layout import document
from steersman.web.pages.pieces import empty, grid, moment, row_state

if TYPE_CHECKING:
    from datetime import datetime

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
            h("h2", {"class": "operator", "id": one.name}, one.name),
            [_table(table, one.name, found.at) for table in one.tables]
            or h("p", {"class": "quiet"}, "It has nothing to show yet."),
        )
        for one in found.operators
    ]
    return document(
        "operators",
        "Operators",
        h("h1", {}, "Operators"),
        h("p", {"class": "jumps"}, [h("a", {"href": f"#{one.name}"}, one.name) for one in found.operators])
        if len(found.operators) > 1
        else None,
        shown or empty("No operator has tables to show.", "Zones, performers and toolsets are listed here."),
        observer=observer,
        refresh="change beat",
    )


def _table(table: Table, operator: str, now: datetime) -> Element:
    stated = any(row.state is not State.GOOD or row.note for row in table.rows)
    columns = [*table.columns, *(["State"] if stated else [])]
    return h(
        "div",
        {"class": "table", "data-key": table.title},
        h("h3", {}, table.title, h("span", {"class": "count"}, len(table.rows)))
        if table.title.lower() != operator  # the heading above says it
        else None,
        grid(table.title, columns, [_row(row, now, stated=stated) for row in table.rows[:MOST]])
        if table.rows
        else h("p", {"class": "quiet"}, "None."),
        h("p", {"class": "quiet"}, f"and {len(table.rows) - MOST} more") if len(table.rows) > MOST else None,
    )


def _row(row: Row, now: datetime, *, stated: bool) -> list[Element]:
    said = row.note and row.note not in row.cells  # a cell may say it already
    state = h("td", {}, row_state(row.state), h("span", {"class": "note"}, row.note) if said else None)
    cells = [
        h("td", {"class": "number" if isinstance(cell, int | float) else None}, _cell(cell, now)) for cell in row.cells
    ]
    return [*cells, state] if stated else cells


def _cell(cell: object, now: datetime) -> object:
    if cell is None or cell == "":
        return "-"
    return moment(cell, now) if isinstance(cell, str) else cell
