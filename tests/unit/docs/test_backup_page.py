"""The listings of the tutorial are parts of the example and its tests."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import yaml

from steersman.cli.install.crds import definitions

ROOT = Path(__file__).parents[3]
SOURCES = [ROOT / "examples" / "backup.py", ROOT / "examples" / "tests" / "test_backup.py"]


def test_every_listing_is_a_part_of_a_file():
    files = "\n".join(re.sub(r"^ +", "", path.read_text(), flags=re.MULTILINE) for path in SOURCES)
    page = (ROOT / "docs" / "backup.md").read_text()
    listings = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(listings) == 10
    for listing in listings:
        assert re.sub(r"^ +", "", textwrap.dedent(listing), flags=re.MULTILINE) in files, listing


def test_operator_and_tests_stay_as_short_as_the_page_says():
    lengths = [len(path.read_text().splitlines()) for path in SOURCES]
    assert lengths[0] <= 150
    assert lengths[1] <= 80


def test_the_numbers_on_the_page_about_kopf_are_right():
    page = (ROOT / "docs" / "backup-with-kopf.md").read_text()
    [listing] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    [definition] = definitions((str(SOURCES[0]),), "")
    lines = len(yaml.safe_dump(definition, sort_keys=False).splitlines())
    assert re.findall(r"(\d+) lines", page) == [str(len(listing.splitlines())), str(lines)]
