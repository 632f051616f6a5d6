"""What others rely on stays: names in the cluster, metrics, settings, commands, and the shape of answers.

CustomResourceDefinitions, rules and the kustomize base are compared by the tests of the chart.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).parents[3]
RECORDED = Path(__file__).parent / "recorded"
AGAIN = "if this is meant, run: .venv/bin/python tools/record_contracts.py and read the difference"

_spec = importlib.util.spec_from_file_location("record_contracts", ROOT / "tools" / "record_contracts.py")
record_contracts = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(record_contracts)


def leaves(value, at=""):
    """Every value of a document with its path; texts in a list count by what they say, wherever they are."""
    if isinstance(value, dict):
        return {leaf for key, one in value.items() for leaf in leaves(one, f"{at}/{key}")} | {at}
    if isinstance(value, list):
        named = {str(item.get("names") or item.get("name")): item for item in value if isinstance(item, dict)}
        parts = named if len(named) == len(value) else {str(place): one for place, one in enumerate(value)}
        if all(isinstance(item, str) for item in value):
            return {f"{at}: {item}" for item in value} | {at}
        return {leaf for key, one in parts.items() for leaf in leaves(one, f"{at}[{key}]")} | {at}
    return {f"{at}: {value}"}


def test_nothing_that_was_promised_is_gone_and_nothing_new_is_unrecorded():
    before = leaves({path.name: json.loads(path.read_text()) for path in RECORDED.iterdir()})
    after = leaves({name: json.loads(text) for name, text in record_contracts.contracts().items()})
    assert sorted(before - after) == [], f"gone; {AGAIN}"
    assert sorted(after - before) == [], f"new; {AGAIN}"
