"""The chart carries what the package says: rules, definitions, and a README of its values."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "steersman"

_spec = importlib.util.spec_from_file_location("generate_chart", ROOT / "tools" / "generate_chart.py")
generate_chart = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate_chart)

MADE = generate_chart.generated()


@pytest.mark.parametrize("name", MADE)
def test_a_generated_file_is_what_the_package_says_now(name):
    path = CHART / name
    assert path.is_file(), "run: make chart"
    assert path.read_text() == MADE[name], "run: make chart"


def test_nothing_generated_is_left_over():
    held = {
        str(path.relative_to(CHART)) for folder in ("rules", "crds") for path in CHART.glob(f"files/{folder}/**/*.yaml")
    }
    assert held <= set(MADE)


def test_every_value_is_in_the_schema_and_every_part_of_the_schema_is_a_value():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}
    for name, part in schema["properties"].items():
        if part.get("additionalProperties") is False and name != "config":
            assert set(values[name]) == set(part["properties"]), name
