"""Every promise of docs/promises.md names a page that makes it and a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")


PAGE = re.compile(r"\[[^\]]+\]\(([\w/.-]+\.md)\)")
WORDS = ("dry run", "no longer leads", "ctx.apply", "foreign", "forged")  # of what a reader must find here


def promises():
    return [row for row in (ROOT / "docs/promises.md").read_text().splitlines() if row.startswith("| ")][1:]


def test_every_promise_is_made_on_a_page_that_exists():
    for row in promises():
        pages = PAGE.findall(row)
        assert pages, f"no page: {row}"
        for page in pages:
            assert (ROOT / "docs" / page).is_file(), page


def test_the_readme_leads_to_the_promises_and_none_of_the_great_ones_is_missing():
    assert "(docs/promises.md)" in (ROOT / "README.md").read_text()
    text = "\n".join(promises()).lower()
    assert [word for word in WORDS if word.lower() not in text] == []


def test_every_promise_names_tests_that_exist():
    rows = promises()
    assert rows
    for row in rows:
        found = NAMED.findall(row)
        assert found, f"no test: {row}"
        for path, name in found:
            assert (ROOT / path).is_file(), path
            assert not name or re.search(rf"def {name}\b", (ROOT / path).read_text()), f"{path}::{name}"
