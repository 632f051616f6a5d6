"""Rows recorded from the real server, and what custom resources print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steersman.apiserver.printing.format import human_duration
from steersman.apiserver.printing.table import columns, table
from steersman.apiserver.resources.kinds import BUILTINS, Column
from steersman.apiserver.resources.registry import Registry

RECORDED = json.loads((Path(__file__).parents[1] / "recorded" / "tables.json").read_text())
LISTED = [info for info in BUILTINS if "list" in info.verbs]
BY_NAME = {info.kind.qualified: info for info in reversed(BUILTINS)}
NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    "row", RECORDED["rows"], ids=lambda row: f"{row['resource']}/{row['object']['metadata']['name']}"
)
def test_a_built_in_object_has_the_cells_that_the_real_server_prints(row: dict[str, Any]) -> None:
    made = table(BY_NAME[row["resource"]], [row["object"]], list_meta={}, now=row["now"])
    (found,) = made["rows"]
    assert found["cells"] == row["cells"]
    assert found.get("conditions") == row.get("conditions")
    assert len(found["cells"]) == len(made["columnDefinitions"])


@pytest.mark.parametrize("info", LISTED, ids=lambda info: info.kind.qualified)
def test_an_object_with_nothing_but_a_name_has_a_cell_for_every_column(info: Any) -> None:
    made = table(info, [{"metadata": {"name": "x"}}], list_meta={}, now=NOW)
    assert len(made["rows"][0]["cells"]) == len(columns(info))
    json.dumps(made)


def test_metadata_comes_with_each_row_unless_more_or_less_is_asked_for() -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "b"}}

    def shown(include: str) -> Any:
        return table(BY_NAME["configmaps"], [obj], list_meta={}, include=include, now=NOW)["rows"][0]["object"]

    assert shown("Metadata") == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": "x"},
    }
    assert shown("Object") == obj
    assert shown("None") is None


def test_columns_are_left_out_once_they_are_known() -> None:
    made = table(BY_NAME["pods"], [], list_meta={"resourceVersion": "7"}, now=NOW, columns_known=True)
    assert made["columnDefinitions"] is None
    assert made["metadata"] == {"resourceVersion": "7"}


def custom(*printed: dict[str, Any]) -> Any:
    definition = {
        "metadata": {"name": "widgets.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                    "additionalPrinterColumns": list(printed),
                }
            ],
        },
    }
    return Registry().install(definition, now="2026-01-01T00:00:00Z").resources[0]


def test_a_custom_resource_without_columns_shows_its_age() -> None:
    info = custom()
    made = table(
        info, [{"metadata": {"name": "x", "creationTimestamp": "2025-12-31T23:00:00Z"}}], list_meta={}, now=NOW
    )
    assert [column["name"] for column in made["columnDefinitions"]] == ["Name", "Age"]
    assert made["rows"][0]["cells"] == ["x", "60m"]


@pytest.mark.parametrize(
    ("kind", "path", "cell"),
    [
        ("string", ".spec.text", "a"),
        ("string", ".spec.number", "5"),
        ("string", ".spec.fraction", "0.5"),
        ("string", ".spec.flag", "true"),
        ("string", ".spec.map", '{"k":"v"}'),
        ("string", ".spec.missing", None),
        ("string", '.status.conditions[?(@.type=="Ready")].status', "True"),
        ("string", ".status.conditions[?(@.type=='Gone')].status", None),
        ("string", ".status.conditions[*].type", "Init"),
        ("string", ".status.conditions[1].type", "Ready"),
        ("string", ".status.conditions[-1:].type", "Ready"),
        ("string", ".metadata.annotations.example\\.org/key", "noted"),
        ("string", ".metadata.annotations['example\\.org/key']", "noted"),
        ("string", ".metadata.annotations['example.org/key']", None),
        ("string", ".spec['number','text']", "5"),
        ("string", ".spec.nothing", "<no value>"),
        ("string", "..type", "Init"),
        ("string", ".status.conditions[?(@.n>1)].type", "Ready"),
        ("string", ".status.conditions[?(@.n==true)].type", None),
        ("string", ".status.conditions[?(@.type>1)].type", None),
        ("integer", ".spec.number", 5),
        ("integer", ".spec.fraction", 0),
        ("integer", ".spec.text", None),
        ("number", ".spec.number", 5.0),
        ("boolean", ".spec.flag", True),
        ("boolean", ".spec.text", None),
        ("date", ".spec.when", "2d"),
        ("date", ".spec.text", "<invalid>"),
        ("date", ".spec.missing", None),
    ],
)
def test_a_printed_column_shows_what_its_path_leads_to_in_its_type(kind: str, path: str, cell: Any) -> None:
    obj = {
        "metadata": {"name": "x", "annotations": {"example.org/key": "noted"}},
        "spec": {
            "text": "a",
            "number": 5,
            "fraction": 0.5,
            "flag": True,
            "map": {"k": "v"},
            "when": "2025-12-30T00:00:00Z",
            "nothing": None,
        },
        "status": {
            "conditions": [{"type": "Init", "status": "False", "n": 1}, {"type": "Ready", "status": "True", "n": 2}]
        },
    }
    made = table(custom({"name": "C", "type": kind, "jsonPath": path}), [obj], list_meta={}, now=NOW)
    assert made["rows"][0]["cells"] == ["x", cell]


def test_columns_end_where_a_path_cannot_be_read() -> None:
    info = custom(
        {"name": "A", "type": "string", "jsonPath": ".a"},
        {"name": "B", "type": "string", "jsonPath": ".b[script()]"},
        {"name": "C", "type": "string", "jsonPath": ".c"},
    )
    made = table(info, [{"metadata": {"name": "x"}, "a": "1"}], list_meta={}, now=NOW)
    assert [column["name"] for column in made["columnDefinitions"]] == ["Name", "A"]
    assert made["rows"][0]["cells"] == ["x", "1"]


def test_a_column_describes_itself_or_its_path() -> None:
    info = custom(
        {"name": "A", "type": "string", "jsonPath": ".a", "description": "about a", "priority": 1, "format": "byte"},
        {"name": "B", "type": "string", "jsonPath": ".b"},
    )
    assert info.columns[0] == Column(
        name="A", type="string", path=".a", description="about a", priority=1, format="byte"
    )
    _, first, second = columns(info)
    assert first == {"name": "A", "type": "string", "format": "byte", "description": "about a", "priority": 1}
    assert second["description"] == "Custom resource definition column (in JSONPath format): .b"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (599, "9m59s"),
        (601, "10m"),
        (179 * 60, "179m"),
        (180 * 60, "3h"),
        (181 * 60, "3h1m"),
        (8 * 3600 + 60, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400 + 3600, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (731 * 86400, "2y1d"),
        (8 * 365 * 86400 + 86400, "8y"),
    ],
)
def test_a_duration_is_shown_in_the_two_largest_units_that_matter(seconds: float, shown: str) -> None:
    assert human_duration(seconds) == shown
