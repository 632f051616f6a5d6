"""`steersman rbac`: the rights of the operators that are asked for, and of no other."""

from __future__ import annotations

import pytest
import yaml

from steersman.cli.main import _run
from steersman.operators import OPERATORS


def groups(capsys, *arguments):
    """The API groups that some rule names."""
    assert _run(["rbac", *arguments]) == 0
    objects = [obj for obj in yaml.safe_load_all(capsys.readouterr().out) if obj]
    return {group for obj in objects for rule in obj.get("rules") or () for group in rule.get("apiGroups") or ()}


def test_only_the_operators_that_are_named_get_rights_and_without_names_all_do(capsys):
    every = groups(capsys)
    assert {"bindy.firestoned.io", "hourglass.eigenlayer.io"} <= every
    chosen = groups(capsys, "--operators", "dns")
    assert "bindy.firestoned.io" in chosen
    assert "hourglass.eigenlayer.io" not in chosen


def test_the_file_names_the_operators_where_the_command_does_not(capsys, tmp_path):
    settings = tmp_path / "steersman.yaml"
    settings.write_text("operators: [dns]\n")
    assert "hourglass.eigenlayer.io" not in groups(capsys, "--config", str(settings))
    assert "hourglass.eigenlayer.io" in groups(capsys, "--config", str(settings), "--operators", "hourglass")


@pytest.mark.parametrize("command", ["crds", "rbac", "manifests"])
def test_every_command_prints_for_all_operators_where_none_is_named(command, capsys):
    def printed(*arguments):
        assert _run([command, *arguments]) == 0
        return capsys.readouterr().out

    assert printed() == printed("--operators", ",".join(sorted(OPERATORS))) != printed("--operators", "reload")
