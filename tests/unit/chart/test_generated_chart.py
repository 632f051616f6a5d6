"""The chart carries what the package says: rules, definitions, and a README of its values."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "steersman"

_spec = importlib.util.spec_from_file_location("generate_chart", ROOT / "tools" / "generate_chart.py")
generate_chart = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate_chart)

generated = cache(generate_chart.generated)


def test_every_generated_file_is_what_the_package_says_now():
    made = generated()
    live = {name: (CHART / name).read_text() for name in made if (CHART / name).is_file()}
    assert [name for name in made if live.get(name) != made[name]] == [], "run: make chart"


def test_nothing_generated_is_left_over():
    held = {
        str(path.relative_to(CHART)) for folder in ("rules", "crds") for path in CHART.glob(f"files/{folder}/**/*.yaml")
    }
    assert held <= set(generated())


def test_every_value_is_in_the_schema_and_every_part_of_the_schema_is_a_value():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}
    for name, part in schema["properties"].items():
        if part.get("additionalProperties") is False and name != "config":
            assert set(values[name]) == set(part["properties"]), name


@pytest.mark.parametrize(
    ("config", "refused"),
    [
        ({}, ""),
        ({"reload": {"quietPeriod": "10s", "dialects": ["native", "reloader"], "budget": {"restarts": 3}}}, ""),
        ({"workers": 2, "dns": {}, "hourglass": {}, "toolset": {"healthCheck": {"enabled": False}}}, ""),
        ({"reload": {"quietperiod": "10s"}}, "quietperiod"),
        ({"reload": {"budget": {"restart": 3}}}, "restart"),
        ({"toolset": {"healthCheck": {"enable": False}}}, "enable"),
        ({"relaod": {}}, "relaod"),
    ],
)
def test_the_chart_refuses_settings_that_do_not_exist(config, refused):
    schema = json.loads((CHART / "values.schema.json").read_text())
    errors = list(jsonschema.Draft7Validator(schema).iter_errors({"config": config}))
    assert bool(errors) is bool(refused)
    assert all(f"'{refused}' was unexpected" in str(error) for error in errors)
