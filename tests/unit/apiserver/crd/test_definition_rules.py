"""Answers recorded from the real server: tools/record_cases.py writes them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from steersman.apiserver.crd.definition_rules import (
    default_definition,
    store_versions,
    terminating,
    validate_definition,
    warnings,
)
from steersman.apiserver.resources.kinds import BUILTINS
from steersman.apiserver.validation.metadata_rules import validate_meta

RECORDED = json.loads((Path(__file__).parents[1] / "recorded" / "definitions.json").read_text())
KIND = next(info for info in BUILTINS if info.kind.kind == "CustomResourceDefinition")
GOOD = next(case["definition"] for case in RECORDED["cases"] if case["name"] == "ok")


def complete(definition: dict[str, Any]) -> dict[str, Any]:
    filled = default_definition(copy.deepcopy(definition))
    return {**filled, "status": store_versions(filled, None)}


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: case["name"])
def test_a_definition_is_validated_as_the_real_server_does(case: dict[str, Any]) -> None:
    definition = complete(case["definition"])
    found = validate_meta(KIND, definition) + validate_definition(definition)
    assert {(cause.field, cause.reason) for cause in found} == {(field, reason) for field, reason, _ in case["causes"]}


def test_names_and_conversion_have_defaults() -> None:
    spec = default_definition(GOOD)["spec"]
    assert spec["names"] == {"plural": "gizmos", "kind": "Gizmo", "singular": "gizmo", "listKind": "GizmoList"}
    assert spec["conversion"] == {"strategy": "None"}


@pytest.mark.parametrize(
    ("path", "value", "established", "refused"),
    [
        (("group",), "other.org", False, ["spec.group"]),
        (("names", "plural"), "others", False, ["spec.names.plural"]),
        (("names", "kind"), "Other", False, []),
        (("names", "kind"), "Other", True, ["spec.names.kind"]),
        (("scope",), "Cluster", True, ["spec.scope"]),
        (("scope",), "Cluster", False, []),
    ],
)
def test_what_an_established_definition_promised_stays(
    path: tuple[str, ...], value: str, established: bool, refused: list[str]
) -> None:
    old = complete(GOOD)
    if established:
        old["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    new = copy.deepcopy(old)
    target = new["spec"]
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    assert [c.field for c in validate_definition(new, old) if c.message.endswith("field is immutable")] == refused


def test_a_version_that_was_ever_stored_cannot_be_removed() -> None:
    definition = complete(GOOD)
    definition["status"]["storedVersions"] = ["v0", "v1"]
    (cause,) = validate_definition(definition, definition)
    assert cause.field == "status.storedVersions[0]"
    assert cause.message.startswith(
        'Invalid value: "v0": missing from spec.versions; v0 was previously a storage version'
    )


def test_the_storage_version_joins_those_that_were_stored_before() -> None:
    assert store_versions(GOOD, {"storedVersions": ["v0"]})["storedVersions"] == ["v0", "v1"]
    assert store_versions(GOOD, {"storedVersions": ["v1"]})["storedVersions"] == ["v1"]


def _with_schema(**field: Any) -> dict[str, Any]:
    definition = copy.deepcopy(GOOD)
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["x"] = field
    return definition


def test_unknown_formats_are_warned_about_once() -> None:
    odd = _with_schema(type="string", format="zipcode")
    assert warnings(odd) == ['unrecognized format "zipcode"']
    assert warnings(odd, old=odd) == []


def test_a_definition_that_goes_keeps_the_moment_it_began_to_go() -> None:
    first = terminating({"storedVersions": ["v1"]}, now="2026-01-01T00:00:00Z")
    second = terminating(first, now="2026-01-01T00:00:09Z", reason="InstanceDeletionInProgress")
    (condition,) = second["conditions"]
    assert condition["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert condition["message"] == "CustomResource deletion is in progress"
