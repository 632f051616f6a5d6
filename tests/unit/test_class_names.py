"""A class name stands for one class, so that a reader who meets it knows which."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import steersman

ROOT = Path(steersman.__file__).parent


def test_every_public_class_name_exists_once():
    places = defaultdict(list)
    for path in ROOT.rglob("*.py"):
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE):
            places[name].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
