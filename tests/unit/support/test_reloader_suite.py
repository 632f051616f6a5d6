"""The table of passed specs on the page about Reloader: what `make reloader --record` writes."""

from __future__ import annotations

import re

import pytest

from tests.support.reloader_suite.__main__ import PAGE, record
from tests.support.reloader_suite.suites import SUITES

BEFORE = "| `core` | - | - | - |\n| `csi` | 12 | 12 | 11 |\n"


def test_a_run_writes_its_own_column_and_leaves_the_other_program_and_the_other_suites_alone():
    assert record(BEFORE, "csi", total=12, steersman=12) == BEFORE.replace("| 11 |", "| 12 |")
    assert record(BEFORE, "core", total=80, reloader=79).startswith("| `core` | 80 | 79 | - |\n| `csi` | 12 ")


@pytest.mark.parametrize("suite", SUITES)
def test_the_page_has_numbers_for_every_suite_of_which_none_is_larger_than_the_number_of_specs(suite):
    row = re.search(rf"^\| `{suite}` \| (\d+) \| (\d+) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE)
    assert row, f"{suite} has not been recorded"
    total, reloader, steersman = map(int, row.groups())
    assert max(reloader, steersman) <= total
