"""`steersman chart` and `steersman manifests` for the operator in a file."""

from __future__ import annotations

import json

import pytest

from steersman.cli.main import _run


@pytest.fixture
def chart(tmp_path, capsys):
    folder = tmp_path / "chart"
    assert _run(["chart", "examples/database.py", "-d", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder}: 10 of 10 files written\n"
    return folder


def test_files_of_the_author_stay_and_the_others_follow_the_code(chart, capsys):
    (chart / "values.yaml").write_text("mine: 1\n")
    (chart / "templates" / "rbac.yaml").write_text("old\n")
    assert _run(["chart", "examples/database.py", "-d", str(chart)]) == 0
    assert "1 of 10 files written" in capsys.readouterr().out
    assert (chart / "values.yaml").read_text() == "mine: 1\n"
    assert "databases/status" in (chart / "templates" / "rbac.yaml").read_text()


def test_check_says_what_is_behind_the_code_and_writes_nothing(chart, capsys):
    assert _run(["chart", "examples/database.py", "-d", str(chart), "--check"]) == 0
    (chart / "templates" / "rbac.yaml").write_text("old\n")
    assert _run(["chart", "examples/database.py", "-d", str(chart), "--check"]) == 3
    assert capsys.readouterr().out == f"{chart}/templates/rbac.yaml differs from the code\n"
    assert (chart / "templates" / "rbac.yaml").read_text() == "old\n"


def test_the_source_of_a_file_is_read_by_helm_and_not_a_template(chart):
    assert (chart / "files" / "database.py").read_text().startswith('"""An operator with everything')
    assert '{{ .Files.Get "files/database.py" | toJson }}' in (chart / "templates" / "source.yaml").read_text()


def test_a_module_has_to_be_in_the_image(capsys):
    assert _run(["manifests", "examples.webapp"]) == 2
    assert "--image is missing: examples.webapp is a module" in capsys.readouterr().err
    assert _run(["manifests", "examples/webapp.py", "--operators", "dns"]) == 2
    assert "name files, or operators" in capsys.readouterr().err


def test_manifests_of_a_file_for_single_namespaces(capsys):
    assert _run(["manifests", "examples/webapp.py", "--namespaces", "shop", "--page", "off", "-o", "json"]) == 0
    objects = json.loads(capsys.readouterr().out)["items"]
    kinds = {obj["kind"] for obj in objects}
    assert not kinds & {"Namespace", "ClusterRole"}  # the namespace default exists
    (config,) = [obj for obj in objects if obj["kind"] == "ConfigMap"]
    assert config["data"]["steersman.yaml"] == "namespaces:\n- shop\n"
    (deployment,) = [obj for obj in objects if obj["kind"] == "Deployment"]
    assert "/etc/operator/steersman.yaml" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]


def test_a_call_that_cannot_be_read_is_named_above_the_rights(tmp_path, capsys):
    file = tmp_path / "shop.py"
    file.write_text(
        "import steersman as sm\n\n\n@sm.controller(sm.ConfigMap)\nasync def shop(ctx, config):\n"
        "    await ctx.client.get(config.anything, f'{{x}}')\n"
    )
    assert _run(["chart", str(file), "-d", str(tmp_path / "chart")]) == 0
    first = (tmp_path / "chart" / "templates" / "rbac.yaml").read_text().splitlines()[0]
    assert first.startswith(f"# {file}:6: cannot tell what ctx.client.get(config.anything, f'{{ {{x}}}}') needs")
