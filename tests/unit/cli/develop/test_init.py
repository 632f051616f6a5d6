"""`steersman init`: a project that passes its own tests."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from steersman.cli.develop.init import ProjectNames, rendered
from steersman.cli.main import _run


@pytest.fixture
def project(tmp_path, capsys):
    folder = tmp_path / "cache-operator"
    assert _run(["init", str(folder), "--kind", "Proxy", "--group", "cache.example.org"]) == 0
    said = capsys.readouterr().out
    assert "an operator for Proxy (cache.example.org)" in said
    assert "make setup\n  make test\n  make run" in said
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
    assert "5 passed" in ran.stdout  # the controller on both servers


def test_the_chart_of_a_new_project_has_the_definition(project):
    assert "name: proxies.cache.example.org" in (project / "chart" / "crds" / "proxies.yaml").read_text()


def test_the_chart_has_the_derived_rights_and_a_lease_of_its_own(project):
    roles = list(
        yaml.safe_load_all(re.sub(r"{{.*?}}", "x", (project / "chart" / "templates" / "rbac.yaml").read_text()))
    )
    (granted,) = [role["rules"] for role in roles if role["kind"] == "ClusterRole"]
    deployments = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list", "watch", "create", "patch"]}
    assert deployments in granted
    (lease,) = [role["rules"] for role in roles if role["metadata"]["name"] == "x-lease" and "rules" in role]
    assert [rule.get("resourceNames") for rule in lease] == [None, ["x"]]
    assert '"{{ .Release.Namespace }}/{{ .Release.Name }}"' in (project / "chart/templates/deployment.yaml").read_text()


def test_make_and_the_workflow_do_the_same(project):
    (job,) = yaml.safe_load((project / ".github" / "workflows" / "test.yml").read_text())["jobs"].values()
    targets = [step["run"].split()[1] for step in job["steps"] if "run" in step]
    assert targets == ["setup", "check", "test"]
    for target in (*targets, "chart", "test-embedded", "run", "image"):
        subprocess.run(["make", "-n", target], cwd=project, check=True, capture_output=True)


def test_the_package_is_not_left_behind_in_this_process(project):
    assert not [name for name in sys.modules if name.startswith("cache_operator")]


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
