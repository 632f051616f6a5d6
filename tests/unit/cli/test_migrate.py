"""`steersman migrate from`: read from the original's own Deployment, and true."""

from __future__ import annotations

import json

import pytest
import yaml

from steersman.cli.main import _run
from steersman.cli.migrate import NAMES
from steersman.cli.migration import ORIGINALS, find_original, report_on, still_running
from steersman.cli.settings import load_settings
from steersman.operators import load_operator


def deployment(image, args=(), env=(), name="other", namespace="infra", command=()):
    container = {"name": "main", "image": image, "args": list(args), "env": list(env), "command": list(command)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def report(name, *deployments):
    return report_on(ORIGINALS[name], find_original(ORIGINALS[name], deployments))


def test_every_name_of_the_command_is_known():
    assert set(NAMES) == set(ORIGINALS)


@pytest.mark.parametrize("name", NAMES)
def test_without_a_deployment_the_defaults_of_the_original_are_carried_over(name, tmp_path):
    made = report(name)
    assert made.found is None
    assert made.steps
    assert made.back
    path = tmp_path / "steersman.yaml"
    path.write_text(yaml.safe_dump(made.values.get("config", {})))
    settings = load_settings(path)  # our own schema takes what was written
    operator = load_operator(made.operator)
    assert operator.rules(settings.sections[made.operator])


@pytest.mark.parametrize(
    ("image", "found"),
    [
        ("stakater/reloader:v1.4.0", True),
        ("registry.example.org:5000/stakater/reloader:v1.4.0", True),
        ("example.org/mirror/reloader@sha256:" + "0" * 64, True),
        ("example.org/config-reloader:1", False),
        ("example.org/web:1", False),
    ],
)
def test_the_original_is_known_by_its_image_wherever_it_was_pushed(image, found):
    assert (report("reloader", deployment(image)).found is not None) == found


def test_flags_become_settings():
    made = report("reloader", deployment("stakater/reloader:1", ["--namespaces-to-ignore=kube-system"]))
    assert made.values["config"]["reload"]["ignoreNamespaces"] == ["kube-system"]


def test_rights_that_the_settings_need_beyond_the_charts_come_with_the_values():
    made = report("reloader", deployment("stakater/reloader:1"))  # recreates Jobs, which is off by default
    (rule,) = made.values["rbac"]["extraRules"]
    assert (rule["apiGroups"], rule["resources"]) == (["batch"], ["jobs"])
    assert "delete" in rule["verbs"]
    assert "rbac" not in report("wave", deployment("wave-k8s/wave:1")).values


def test_rights_end_where_the_originals_did():
    env = [{"name": "WATCH_NAMESPACE", "value": "shop"}]
    made = report("shipshape", deployment("example.org/helloworld-controller:1", env=env))
    assert made.values["namespaces"] == ["shop"]


def test_the_way_back_starts_as_many_as_there_were():
    body = deployment("stakater/reloader:1")
    body["spec"]["replicas"] = 3
    assert report("reloader", body).back[-1].endswith("--replicas 3")


@pytest.mark.parametrize(
    ("spec", "status", "runs"), [({}, {}, True), ({"replicas": 0}, {}, False), ({"replicas": 0}, {"replicas": 1}, True)]
)
def test_an_original_runs_while_it_wants_pods_or_has_some(spec, status, runs):
    body = deployment("stakater/reloader:1")
    body["spec"] |= spec
    body["status"] = status
    assert bool(still_running(ORIGINALS["reloader"], [body, deployment("example.org/web:1")])) == runs


def test_what_only_the_profile_can_do_is_said():
    made = report("reloader", deployment("stakater/reloader:1", ["--auto-reload-all=true"]))
    assert any("--auto-reload-all" in line for line in made.missing)
    assert not any("--auto-reload-all" in line for line in report("reloader").missing)


def test_a_flag_that_cannot_be_honoured_is_said_and_the_rest_of_the_report_is_there():
    made = report("reloader", deployment("stakater/reloader:1", ["--no-such-flag"]))
    assert any("no-such-flag" in line for line in made.missing)
    assert made.steps


def test_a_variable_that_comes_from_elsewhere_is_named():
    env = [{"name": "ALERT_WEBHOOK_URL", "valueFrom": {"secretKeyRef": {"name": "alerts", "key": "url"}}}]
    made = report("reloader", deployment("stakater/reloader:1", env=env))
    assert any("ALERT_WEBHOOK_URL" in line for line in made.missing)


def test_the_command_reads_manifests_and_writes_values(tmp_path, capsys):
    manifests, values, config = (tmp_path / name for name in ("old.yaml", "values.yaml", "steersman.yaml"))
    manifests.write_text(yaml.safe_dump(deployment("stakater/reloader:1", ["--namespaces-to-ignore=lab"])))
    assert (
        _run(
            [
                "migrate",
                "from",
                "reloader",
                "-f",
                str(manifests),
                "--values",
                str(values),
                "--config",
                str(config),
                "-o",
                "json",
            ]
        )
        == 0
    )
    said = json.loads(capsys.readouterr().out)
    assert said["found"].startswith("deployment/other in infra")
    assert yaml.safe_load(values.read_text()) == said["values"]
    assert load_settings(config).operators == ["reload"]
    assert load_settings(config).sections["reload"].ignore_namespaces == ("lab",)
    assert _run(["migrate", "from", "reloader", "-f", str(manifests)]) == 0
    assert "Steps" in capsys.readouterr().out
