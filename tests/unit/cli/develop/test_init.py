"""`steersman init`: a project that passes its own tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from steersman.cli.develop.init import ProjectNames, rendered
from steersman.cli.main import _run


@pytest.fixture
def project(tmp_path, capsys):
    folder = tmp_path / "cache-operator"
    assert _run(["init", str(folder), "--kind", "Proxy", "--group", "cache.example.org"]) == 0
    said = capsys.readouterr().out
    assert "an operator for Proxy (cache.example.org)" in said
    assert "pip install -e '.[testing]'\n  pytest\n" in said
    return folder


@pytest.mark.slow
def test_a_new_project_passes_its_own_tests(project):
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 passed" in ran.stdout


def test_the_chart_of_a_new_project_has_the_definition(project):
    assert "name: proxies.cache.example.org" in (project / "chart" / "crds" / "proxies.yaml").read_text()


def test_no_placeholder_is_left(project):
    names = ProjectNames.of("cache-operator", kind="Proxy", group="cache.example.org", version="1")
    left = [
        (path, word)
        for path, text in rendered(names).items()
        for word in ("__kind__", "__package__", "__plural__", "__group__", "__project__", "__name__", "__version__")
        if word in f"{path}{text}"
    ]
    assert left == []


def test_nothing_that_exists_is_overwritten(project, capsys):
    (project / "README.md").write_text("mine")
    assert _run(["init", str(project), "--kind", "Proxy", "--group", "cache.example.org"]) == 1
    assert "exists already: choose another folder" in capsys.readouterr().err
    assert (project / "README.md").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Shop"], '"Shop" cannot be a project'),
        (["shop", "--kind", "lower-case"], '--kind: "lower-case" cannot be a kind (try LowerCase)'),
        (["shop", "--kind", "3rd"], "(try Rd)"),
        (["shop", "--kind", "-"], "(try Cache)"),
        (["shop", "--group", "shop"], "--group"),
    ],
)
def test_a_name_that_cannot_be_used_is_named_and_nothing_is_written(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert _run(["init", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert list(Path().iterdir()) == []
