"""The operators: whatever each shows of itself, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.runtime.manager.operator_bundle import RowState
from steersman.web import views
from steersman.web.markup import Element, h
from steersman.web.pages.components import empty, grid, moment, row_state
from steersman.web.pages.layout import document

if TYPE_CHECKING:
    from datetime import datetime

    from steersman.runtime.manager.operator_bundle import Row, Table
    from steersman.web.snapshot_cache import SnapshotCache

MOST = 500  # rows of one table
LONG = 32  # characters of a word that may break


def page(cache: SnapshotCache, _path: dict[str, str], _query: Any) -> Element:
    """Draw it."""
    found = views.operators_of(cache.reports(), cache.now())
    names = [operator.name for operator in found.operators]
    shown = [
        h(
            "section",
            {"data-key": operator.name},
            h(
                "div",
                {"class": "heading"},
                h("h2", {"class": "operator", "id": operator.name}, operator.name),
                row_state(operator.state),
                h("span", {"class": "quiet"}, operator.headline),
            ),
            [_table(table, operator.name, found.at) for table in operator.tables]
            or h("p", {"class": "quiet"}, "Nothing to show yet."),
        )
        for operator in found.operators
    ]
    return document(
        "operators",
        "Operators",
        h("h1", {}, "Operators"),
        h(
            "p",
            {"class": "jumps"},
            [h("a", {"href": f"#{operator.name}"}, operator.name) for operator in found.operators],
        )
        if len(names) > 1
        else None,
        shown or empty("No operator has tables to show.", "Zones, performers and toolsets are listed here."),
        cache=cache,
        refresh="change beat",
    )


def _table(table: Table, operator: str, now: datetime) -> Element:
    stated = table.counted or any(row.state is not RowState.GOOD or row.note for row in table.rows)
    columns = [*table.columns, *(["State"] if stated else [])]
    rest = max(len(table.rows), table.total or 0) - len(table.rows[:MOST])
    return h(
        "div",
        {"class": "table", "data-key": table.title},
        h("h3", {}, table.title, h("span", {"class": "count"}, len(table.rows) if table.total is None else table.total))
        if table.title.lower() != operator  # the heading above says it
        else None,
        grid(table.title, columns, [_row(row, now, stated=stated) for row in table.rows[:MOST]])
        if table.rows
        else h("p", {"class": "quiet"}, f"All {table.total} {table.good}." if table.total else "None."),
        h("p", {"class": "quiet"}, f"and {rest} {table.good if table.total else 'more'}")
        if rest and table.rows
        else None,
    )


def _row(row: Row, now: datetime, *, stated: bool) -> list[Element]:
    said = row.note and row.note not in row.cells  # a cell may say it already
    state = h("td", {}, row_state(row.state, row.word), h("span", {"class": "note"}, row.note) if said else None)
    cells = [h("td", {"class": _class(cell)}, _cell(cell, now)) for cell in row.cells]
    return [*cells, state] if stated else cells


def _class(cell: object) -> str | None:
    if isinstance(cell, str) and any(len(word) > LONG for word in cell.split()):
        return "long"  # an address breaks anywhere rather than push the state out of sight
    return "number" if isinstance(cell, int | float) else None


def _cell(cell: object, now: datetime) -> object:
    if cell is None or cell == "":
        return "-"
    return moment(cell, now) if isinstance(cell, str) else cell
