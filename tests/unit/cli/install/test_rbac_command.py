"""`steersman rbac`: the rights of the operators that are asked for, and of no other."""

from __future__ import annotations

import pytest
import yaml

from steersman.cli.main import _run


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


@pytest.mark.parametrize(("settings", "reviews"), [("{}", False), ("page: token", True), ("metrics: token", True)])
def test_tokens_are_reviewed_only_where_a_setting_asks_for_them(capsys, tmp_path, settings, reviews):
    path = tmp_path / "steersman.yaml"
    path.write_text(settings)
    asked = groups(capsys, "--operators", "reload", "--config", str(path))
    assert ({"authentication.k8s.io", "authorization.k8s.io"} <= asked) is reviews
