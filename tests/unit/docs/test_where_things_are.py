"""The page "Where things are" is what the docstrings say now."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_page_is_what_the_docstrings_say():
    made = runpy.run_path(str(ROOT / "tools" / "where_things_are.py"))["page"]()
    page = (ROOT / "docs" / "where-things-are.md").read_text()
    assert page == made, "out of date: run .venv/bin/python tools/where_things_are.py"
