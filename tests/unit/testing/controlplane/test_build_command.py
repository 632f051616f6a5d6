from __future__ import annotations

import pytest
from click.testing import CliRunner

from steersman.cli.main import cli
from steersman.testing import BinariesError


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The command, for a user whose cache is empty."""
    monkeypatch.setenv("STEERSMAN_CACHE", str(tmp_path / "cache"))
    return lambda *arguments: CliRunner().invoke(cli, ["controlplane", *arguments])


def test_a_first_build_shows_progress_and_says_where_the_programs_are(run, go, tmp_path):
    result = run("build", "kwok")
    assert result.exit_code == 0
    version = "kwok v0.8.0"
    assert result.stderr.splitlines() == [
        f"{version}: fetching Go modules",
        f"{version}: compiling 50 %",
        f"{version}: compiling 100 %",
        f"{version}: built 100 %",
    ]
    assert result.stdout.startswith(str(tmp_path / "cache" / "programs" / "kwok-"))


def test_a_build_that_is_there_already_is_silent(run, go):
    first = run("build", "kwok", "helm")
    again = run("build", "kwok", "helm")
    assert again.stdout == first.stdout
    assert again.stderr == ""


def test_an_unknown_program_is_a_usage_error_that_names_the_known_ones(run):
    result = run("build", "kubelet")
    assert result.exit_code == 2
    assert "'controlplane', 'helm', 'kwok'" in result.stderr


def test_without_go_the_error_reaches_the_user(run, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert isinstance(run("build").exception, BinariesError)


def test_nothing_runs_until_it_is_started(run):
    assert run("status").stdout == "no control plane is running\n"
    assert run("status", "-o", "json").stdout == "null\n"
    assert run("down").stdout == "no control plane is running\n"
