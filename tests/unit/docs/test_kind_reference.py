"""The reference of our kinds is what their definitions say now."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "reference" / "kinds"


def test_the_pages_are_what_the_definitions_say():
    made = runpy.run_path(str(ROOT / "tools" / "kind_reference.py"))["pages"]()
    kept = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert kept == made, "out of date: run .venv/bin/python tools/kind_reference.py"


def test_every_link_on_a_page_leads_to_a_heading_of_it():
    for path in FOLDER.iterdir():
        text = path.read_text()
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert len(anchors) == len(headings), f"{path.name}: two headings have the same anchor"
        assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= anchors, path.name
