"""How tables and lines fit the terminal."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from steersman.cli.migrate.commands import _draw as draw_migration
from steersman.cli.migrate.originals import ORIGINALS, report_on
from steersman.cli.operate.status import _tables as draw_tables
from steersman.cli.output import LEAST, fitted, print_fields, print_hanging, print_table, stacked
from steersman.runtime.manager.operator_bundle import Row, RowState, Table
from steersman.runtime.manager.operator_report import report_of

COLUMNS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=9)


def drawn(draw, width=80):
    stream = io.StringIO()
    draw(Console(file=stream, width=width, highlight=False, markup=False, emoji=False))
    return stream.getvalue().splitlines()


@given(COLUMNS, st.integers(20, 200))
def test_a_row_fits_or_every_column_is_at_its_least(columns, width):
    natural, words = [max(pair) for pair in columns], [min(pair) for pair in columns]
    made, gap = fitted(natural, words, width)
    fits = sum(made) + gap * (len(made) - 1) <= width
    assert fits or all(got <= LEAST for got in made)
    assert all(got <= wanted for got, wanted in zip(made, natural, strict=True))


@given(COLUMNS, st.integers(20, 200))
def test_words_break_only_where_they_cannot_stand_side_by_side(columns, width):
    natural, words = [max(pair) for pair in columns], [min(pair) for pair in columns]
    made, _ = fitted(natural, words, width)
    if sum(words) + len(words) - 1 <= width:
        assert all(got >= word for got, word in zip(made, words, strict=True))


def test_names_in_a_table_stay_whole_on_80_columns():
    headings = ("controller", "running", "ready", "waiting", "done", "failed", "retries", "reconcile")
    lines = drawn(lambda to: print_table(to, headings, [("reload-clusterreloadpolicies", "0/8", 0, 0, 0, 0, 0, "")]))
    assert len(lines) == 2
    assert lines[1].startswith("reload-clusterreloadpolicies 0/8 ")
    assert max(map(len, lines)) <= 80


def test_a_long_cell_goes_on_below_itself_and_loses_nothing():
    told = "container main: env MODE (steersman.dev/reload: auto on the workload) " * 3
    lines = drawn(lambda to: print_table(to, ("source", "rule"), [("configmap/app", told)]))
    assert max(map(len, lines)) <= 80
    assert all(line.startswith(" " * 16) for line in lines[2:])
    assert " ".join(line[16:] for line in lines[1:]).split() == told.split()


@given(
    st.lists(st.lists(st.text("pqrstuvw ", max_size=90), min_size=4, max_size=4), min_size=1, max_size=4),
    st.sampled_from([60, 80, 120]),
)
def test_a_table_fits_and_loses_nothing(rows, width):
    lines = drawn(lambda to: print_table(to, ("a", "b", "c", "d"), rows), width=width)
    assert max(map(len, lines)) <= width
    shown = "".join(lines).translate(str.maketrans("", "", " abcdABCD"))  # without headings and labels
    assert sorted(shown) == sorted("".join("".join(row) for row in rows).replace(" ", ""))


def test_columns_that_would_become_narrow_stand_below_their_row():
    why = "deployment/catalog failed for the same change: not available after 1 s"
    rows = [("deployment/shop/orders", "secret/shop/database#password", why, ""), ("deployment/shop/web", "", "", "x")]
    assert drawn(lambda to: print_table(to, ("workload", "for", "why", ""), rows)) == [
        "WORKLOAD                 FOR",
        "deployment/shop/orders   secret/shop/database#password",
        "    why  deployment/catalog failed for the same change: not available after 1 s",
        "deployment/shop/web                                      x",
    ]


@given(COLUMNS, st.integers(40, 200))
def test_beside_each_other_stand_only_columns_that_can_be_read(columns, width):
    natural, words = [max(pair) for pair in columns], [min(pair) for pair in columns]
    below = stacked(natural, words, width)
    beside = [place for place in range(len(natural)) if place not in below]
    assert beside[0] == 0
    made, gap = fitted([natural[place] for place in beside], [words[place] for place in beside], width)
    if len(beside) > 1:
        assert sum(made) + gap * (len(made) - 1) <= width
        assert all(got >= words[place] for got, place in zip(made, beside, strict=True))


def test_a_column_with_neither_heading_nor_content_is_not_there():
    rows = [("a", "good", ""), ("b", None, "")]
    assert drawn(lambda to: print_table(to, ("what", "state", ""), rows)) == ["WHAT   STATE", "a      good", "b"]


def test_a_field_goes_on_below_its_text():
    fields = [("now", "no restart: everything it uses is applied"), ("last restart", "none")]
    assert drawn(lambda to: print_fields(to, fields), width=40) == [
        "now            no restart: everything it",
        "               uses is applied",
        "last restart   none",
    ]


def test_a_line_goes_on_below_its_text():
    assert drawn(lambda to: print_hanging(to, "  → ", "one two three four"), width=14) == [
        "  → one two",
        "    three four",
    ]


def test_a_note_that_a_cell_says_already_is_not_shown_again():
    rows = [Row(["web", "frozen"], RowState.BAD, "frozen"), Row(["db", "rolling"], RowState.GOOD)]
    shown = report_of("reload", [Table("Held", ["workload", "why"], rows)])
    assert drawn(lambda to: draw_tables(to, shown))[2:] == [
        "WORKLOAD   WHY       STATE",
        "web        frozen    Failing",
        "db         rolling   Ready",
    ]


@pytest.mark.parametrize("name", ORIGINALS)
def test_the_steps_of_a_migration_are_whole_lines_to_copy(name):
    report = report_on(ORIGINALS[name], None)
    lines = drawn(lambda to: draw_migration(report, None, to))
    assert set(lines) >= {f"  {number}. {step}" for number, step in enumerate(report.steps, 1)}


def test_settings_that_carry_over_are_reported_as_people_write_them():
    said = " ".join(report_on(ORIGINALS["reloader"], None).same)
    assert "budget: restarts 0, per 1h" in said
    assert "namespaceSettings: false" in said


def test_untrusted_text_cannot_steer_the_terminal_from_a_cell():
    lines = drawn(lambda to: print_table(to, ("name",), [(f"a{chr(27)}[2Jb{chr(0x202E)}c",)]))
    assert lines[1] == r"a\x1b[2Jb\u202ec"
