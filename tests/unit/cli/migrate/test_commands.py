"""`steersman migrate from`: read from the original's own Deployment, and true."""

from __future__ import annotations

import json

import msgspec
import pytest
import yaml

from steersman.cli.config import load_settings
from steersman.cli.main import _run
from steersman.cli.migrate.commands import NAMES
from steersman.cli.migrate.originals import ORIGINALS, find_original, report_on, still_running
from steersman.operators import load_operator
from steersman.operators.reload.api.config import ReloadConfig, Strategy
from steersman.operators.reload.compat.dialects import dialects_for
from steersman.operators.reload.compat.dialects.reloader import Reloader


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


def test_how_its_dialect_is_read_and_written_is_carried_over():
    flags = ["--auto-reload-all=true", "--reload-strategy=annotations"]
    made = report("reloader", deployment("stakater/reloader:1", flags))
    assert made.left == ()
    assert section(made)["reloader"] == {"autoReloadAll": True, "reloadStrategy": "annotations"}
    (dialect,) = dialects_for(msgspec.convert(section(made), ReloadConfig).options())
    assert vars(dialect) == vars(Reloader(strategy=Strategy.ANNOTATIONS, auto_all=True))


def test_values_and_report_have_no_empty_fields():
    made = report("reloader", deployment("stakater/reloader:1", env=ALERTS))
    assert section(made)["kinds"][3] == {"kind": "CronJob", "restart": "run"}
    assert "kinds: Deployment, StatefulSet, DaemonSet, CronJob (restart run), Job" in made.same


def test_rights_that_the_settings_need_beyond_the_charts_come_with_the_values():
    # It recreates Jobs, and starts those of CronJobs: both are off by default.
    made = report("reloader", deployment("stakater/reloader:1"))
    verbs = {resource: rule["verbs"] for rule in made.values["rbac"]["extraRules"] for resource in rule["resources"]}
    assert verbs.keys() == {"jobs", "cronjobs"}
    assert {"create", "delete", "get"} <= {*verbs["jobs"]}
    assert verbs["cronjobs"] == ["get"]
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


SLACK = "https://hooks.slack.example/services/T0/B0/secret"
ALERTS = [
    {"name": "ALERT_ON_RELOAD", "value": "true"},
    {"name": "ALERT_SINK", "value": "slack"},
    {"name": "ALERT_WEBHOOK_URL", "value": SLACK},
]


def section(made):
    return made.values["config"]["reload"]


@pytest.mark.parametrize(
    ("flags", "label"),
    [
        (["--webhook-url=ftp://example.org/x"], "--webhook-url"),
        (["--webhook-url", "ftp://example.org/x"], "--webhook-url"),
        (["--no-such-flag=1"], "--no-such-flag"),
        (["--no-such-flag", "value"], "--no-such-flag"),
        (["-z"], "-z"),
        (["--log-level=loud"], "--log-level"),
        (["--resources-to-ignore=pods"], "--resources-to-ignore"),
        (["--namespace-selector=a b c"], "--namespace-selector"),
    ],
)
def test_a_flag_that_cannot_be_carried_over_is_named_and_costs_no_other_setting(flags, label):
    args = ["--namespaces-to-ignore=lab", *flags, "--resource-label-selector=team=web"]
    made = report("reloader", deployment("stakater/reloader:1", args, env=ALERTS))
    assert [line.partition(":")[0] for line in made.left] == [label]
    assert section(made)["dialects"] == ["reloader"]
    assert section(made)["ignoreNamespaces"] == ["lab"]
    assert section(made)["sourceSelector"] == "team=web"
    assert section(made)["notify"][0]["format"] == "slack"


def test_several_that_cannot_be_carried_over_are_named_one_by_one():
    flags = ["--webhook-url=example.org", "--first=1", "--log-level=loud", "--second"]
    made = report("reloader", deployment("stakater/reloader:1", flags))
    assert {line.partition(":")[0] for line in made.left} == {"--webhook-url", "--first", "--log-level", "--second"}


@pytest.mark.parametrize(
    ("args", "env", "label"),
    [
        (["--auto-annotation=example.org/auto"], [], "--auto-annotation"),
        (["--metrics-addr=:9999"], [], "--metrics-addr"),
        ([], [{"name": "METRICS_COUNT_BY_NAMESPACE", "value": "enabled"}], "METRICS_COUNT_BY_NAMESPACE"),
    ],
)
def test_a_setting_that_the_chart_has_no_place_for_is_named_with_what_to_do(args, env, label):
    made = report("reloader", deployment("stakater/reloader:1", args, env=env))
    assert [line.partition(":")[0] for line in made.left] == [label]
    assert section(made)["dialects"] == ["reloader"]


def test_a_renamed_annotation_of_shipshape_is_named_and_what_has_a_place_beside_it_is_not():
    env = [{"name": "WATCH_NAMESPACE", "value": "shop"}, {"name": "ROLLOUT_ANNOTATION_KEY", "value": "example.org/at"}]
    made = report("shipshape", deployment("example.org/helloworld-controller:1", env=env))
    assert [line.partition(":")[0] for line in made.left] == ["ROLLOUT_ANNOTATION_KEY"]


def test_nothing_is_left_of_a_deployment_whose_settings_all_have_a_place():
    env = [*ALERTS, {"name": "GOMEMLIMIT", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}}]
    made = report("reloader", deployment("stakater/reloader:1", ["--enable-ha=true", "--log-level=debug"], env=env))
    assert made.left == ()
    shipshape = [{"name": "WATCH_NAMESPACE", "value": "shop"}, {"name": "APP_SELECTOR", "value": "app=web"}]
    assert report("shipshape", deployment("example.org/helloworld-controller:1", env=shipshape)).left == ()
    assert made.values["logLevel"] == "debug"


@pytest.mark.parametrize("by", ["variable", "flag"])
def test_an_address_that_is_a_secret_goes_to_a_secret_and_nowhere_else(by, tmp_path, capsys):
    args = [] if by == "variable" else [f"--alert-webhook-url={SLACK}"]
    env = ALERTS if by == "variable" else ALERTS[:2]
    paths = {name: tmp_path / f"{name}.yaml" for name in ("old", "values", "config", "secret")}
    paths["old"].write_text(yaml.safe_dump(deployment("stakater/reloader:1", args, env=env)))
    options = [word for name in ("values", "config", "secret") for word in (f"--{name}", str(paths[name]))]
    for output in ("json", "table"):
        assert _run(["migrate", "from", "reloader", "-f", str(paths["old"]), *options, "-o", output]) == 0
    said = capsys.readouterr()
    for text in (said.out, said.err, paths["values"].read_text(), paths["config"].read_text()):
        assert SLACK not in text
    secret, values = (yaml.safe_load(paths[name].read_text()) for name in ("secret", "values"))
    (variable,) = values["env"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": secret["metadata"]["name"], "key": variable["name"]}
    assert secret["stringData"] == {variable["name"]: SLACK}
    assert values["config"]["reload"]["notify"][0]["urlFrom"] == variable["name"]
    assert paths["secret"].stat().st_mode & 0o077 == 0
    assert load_settings(paths["config"]).sections["reload"].notify[0].url_from == variable["name"]


def test_the_address_of_a_webhook_goes_to_the_same_secret(tmp_path):
    paths = {name: tmp_path / f"{name}.yaml" for name in ("old", "values", "config", "secret")}
    called = "https://example.org/hook?token=hidden"
    paths["old"].write_text(yaml.safe_dump(deployment("stakater/reloader:1", ["--webhook-url", called], env=ALERTS)))
    options = [word for name in ("values", "config", "secret") for word in (f"--{name}", str(paths[name]))]
    assert _run(["migrate", "from", "reloader", "-f", str(paths["old"]), *options]) == 0
    secret, values = (yaml.safe_load(paths[name].read_text()) for name in ("secret", "values"))
    assert secret["stringData"] == {"ALERT_WEBHOOK_URL": SLACK, "RELOADER_WEBHOOK_URL": called}
    assert {row["name"] for row in values["env"]} == secret["stringData"].keys()
    assert values["config"]["reload"]["webhook"] == {"urlFrom": "RELOADER_WEBHOOK_URL"}
    for name in ("values", "config"):
        assert "hidden" not in paths[name].read_text()


def test_an_address_from_a_secret_of_the_original_stays_a_reference():
    reference = {"secretKeyRef": {"name": "alerts", "key": "url"}}
    env = [*ALERTS[:2], {"name": "ALERT_WEBHOOK_URL", "valueFrom": reference}]
    made = report("reloader", deployment("stakater/reloader:1", env=env))
    assert made.values["env"] == [{"name": "ALERT_WEBHOOK_URL", "valueFrom": reference}]
    assert section(made)["notify"][0]["urlFrom"] == "ALERT_WEBHOOK_URL"
    assert [line.partition(":")[0] for line in made.left] == ["Secret alerts, key url"]


def test_a_proxy_with_a_password_is_not_carried_over_and_never_shown():
    env = [*ALERTS, {"name": "ALERT_WEBHOOK_PROXY", "value": "http://me:hidden@proxy:3128"}]
    made = report("reloader", deployment("stakater/reloader:1", env=env))
    assert [line.partition(":")[0] for line in made.left] == ["ALERT_WEBHOOK_PROXY"]
    assert "hidden" not in json.dumps(msgspec.to_builtins(made))


def test_variables_from_elsewhere_are_named_and_the_namespace_of_the_pod_is_known():
    env = [
        {"name": "KUBERNETES_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "ALERT_SINK", "valueFrom": {"configMapKeyRef": {"name": "sinks", "key": "sink"}}},
    ]
    body = deployment("stakater/reloader:1", env=env)
    body["spec"]["template"]["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "more"}}]
    made = report("reloader", body)
    assert made.values["namespaces"] == ["infra"]
    assert {line.partition(":")[0] for line in made.left} == {"ALERT_SINK", "envFrom Secret more"}


def test_a_flag_of_another_program_is_left_out_in_the_same_way():
    made = report("wave", deployment("wave-k8s/wave:1", ["--enable-webhooks", "--namespaces=shop", "--nonsense"]))
    assert {line.partition(":")[0] for line in made.left} == {"--enable-webhooks", "--nonsense"}
    assert section(made)["dialects"] == ["wave"]
    assert made.values["namespaces"] == ["shop"]


def test_settings_that_are_not_carried_over_end_with_exit_code_3(tmp_path, capsys):
    (tmp_path / "old.yaml").write_text(yaml.safe_dump(deployment("stakater/reloader:1", ["--webhook-url=x"])))
    assert _run(["migrate", "from", "reloader", "-f", str(tmp_path / "old.yaml")]) == 3
    assert "--webhook-url" in capsys.readouterr().out


def test_manifests_without_the_original_are_an_error(tmp_path, capsys):
    (tmp_path / "old.yaml").write_text(yaml.safe_dump(deployment("example.org/web:1")))
    assert _run(["migrate", "from", "reloader", "-f", str(tmp_path / "old.yaml")]) == 1
    assert "no Deployment of reloader" in capsys.readouterr().err


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
