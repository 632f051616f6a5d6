"""`steersman crds`: printed, explained, and checked before a release."""

from __future__ import annotations

import json

import pytest
import yaml
from click.testing import CliRunner

from steersman.cli.main import _run, cli

CLEAN = '''
from typing import Annotated
import steersman as sm

class Boat(sm.Resource, group="example.org", version="v1"):
    """Floats."""

    class Spec(sm.Struct):
        """What to build."""

        length: Annotated[int, sm.Ge(1)] = 5
        """In metres."""

    spec: Spec
'''


def crds(*arguments: str):
    return CliRunner().invoke(cli, ["crds", *map(str, arguments)])


@pytest.fixture
def boat(tmp_path):
    """A file with a kind, and how to write another into it."""

    def write(change: tuple[str, str] = ("", "")):
        before, after = change
        assert before in CLEAN
        path = tmp_path / "boat.py"
        path.write_text(CLEAN.replace(before, after) if before else CLEAN)
        return path

    return write


def rows(result) -> list[tuple[str, str, str]]:
    return [(row["kind"], row["field"], row["problem"]) for row in json.loads(result.stdout)]


def test_a_kind_with_nothing_to_correct_exits_with_0(boat):
    result = crds(boat(), "--check")
    assert (result.exit_code, result.stdout) == (0, "nothing to correct\n")


def test_a_field_without_a_description_is_named_with_the_way_out(boat):
    result = crds(boat(change=('        """In metres."""\n', "")), "--check")
    assert result.exit_code == 3
    [line] = [line for line in result.stdout.splitlines() if "spec.length" in line]
    assert line.startswith("Boat v1")
    assert "has no description" in line
    assert "docstring below the field" in line


@pytest.mark.parametrize(
    ("annotation", "field", "problem"),
    [
        ('sm.Pattern("(?=a)")', "spec.length.pattern", "must be a valid regular expression"),
        ('sm.XValidation(("self.depth > 0", "deep"))', "spec.length.x-kubernetes-validations[0].rule", "is rejected"),
        ("sm.ListSet()", "spec.length.type", "must be array"),
    ],
)
def test_what_an_api_server_rejects_is_named(boat, annotation, field, problem):
    text = ("Annotated[int, sm.Ge(1)] = 5", f'Annotated[str, {annotation}] = "x"')
    result = crds(boat(change=text), "--check", "-o", "json")
    assert result.exit_code == 3
    assert (field, True) in [(row[1], problem in row[2]) for row in rows(result)], result.stdout


def test_a_type_without_a_structural_schema_is_named(boat):
    result = crds(boat(change=("Annotated[int, sm.Ge(1)] = 5", "bool | str = True")), "--check", "-o", "json")
    assert result.exit_code == 3
    assert [row[:2] for row in rows(result)] == [("Boat v1", "spec.length")]
    assert "a union of bool | str has no structural schema" in rows(result)[0][2]


def test_incompatible_changes_are_named_against_a_file_or_a_folder_of_the_last_release(boat, tmp_path):
    released = tmp_path / "released"
    released.mkdir()
    (released / "boats.yaml").write_text(crds(boat()).stdout)
    assert crds(boat(), "--check", "--against", released).exit_code == 0
    changed = boat(change=("sm.Ge(1)", "sm.Ge(2)"))
    for path in (released, released / "boats.yaml"):
        result = crds(changed, "--check", "--against", path, "-o", "json")
        assert result.exit_code == 3
        assert rows(result) == [("Boat v1", "spec.length", "minimum is now 2")]


def test_a_release_without_definitions_is_an_error_that_names_the_option(boat, tmp_path):
    (tmp_path / "other.yaml").write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
    result = crds(boat(), "--check", "--against", tmp_path / "other.yaml")
    assert result.exit_code == 1
    assert "--against: holds no CustomResourceDefinition" in str(result.exception or result.output)


@pytest.mark.parametrize(
    "arguments", [["--against", "x"], ["-o", "table"], ["--check", "-o", "markdown"]], ids=" ".join
)
def test_options_that_need_another_are_a_usage_error(arguments):
    assert crds(*arguments).exit_code == 2


def test_markdown_is_the_reference_of_the_kinds(boat):
    page = crds(boat(), "-o", "markdown").stdout
    assert page.startswith("# Boat\n\nFloats.\n")
    assert "| `length` | integer | In metres. At least 1. Default: `5`. |" in page


def test_yaml_is_the_default(boat):
    assert yaml.safe_load(crds(boat()).stdout)["metadata"]["name"] == "boats.example.org"


@pytest.mark.parametrize("operator", ["reload", "toolset", "hourglass", "dns"])
def test_our_own_kinds_have_nothing_to_correct(operator):
    result = crds("--operators", operator, "--check")
    assert (result.exit_code, result.stdout) == (0, "nothing to correct\n")


@pytest.mark.parametrize("example", ["backup", "database", "uptime", "webapp"])
def test_every_field_of_the_examples_has_a_description(example, capsys):
    assert _run(["crds", f"examples/{example}.py", "--check"]) == 0, capsys.readouterr().out
