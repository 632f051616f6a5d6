"""`steersman rbac`: the rights of the operators that are asked for, and of no other."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from steersman.cli.main import _run
from steersman.operators import OPERATORS


def groups(capsys, *arguments):
    """The API groups that some rule names."""
    assert _run(["rbac", *arguments]) == 0
    objects = [obj for obj in yaml.safe_load_all(capsys.readouterr().out) if obj]
    return {group for obj in objects for rule in obj.get("rules") or () for group in rule.get("apiGroups") or ()}


def test_only_the_operators_that_are_named_get_rights(capsys):
    every = groups(capsys, "--operators", "all")
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
def test_every_command_has_the_default_operator_of_the_chart(command, capsys):
    def printed(*arguments):
        assert _run([command, *arguments]) == 0
        return capsys.readouterr().out

    chart = yaml.safe_load((Path(__file__).parents[4] / "charts/steersman/values.yaml").read_text())
    assert printed() == printed("--operators", ",".join(chart["operators"]))
    assert printed("--operators", "all") == printed("--operators", ",".join(sorted(OPERATORS))) != printed()
