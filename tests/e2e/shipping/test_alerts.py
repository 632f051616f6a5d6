"""Every alert fires when it should and is quiet when it should be, judged by promtool; each has a runbook."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from steersman.testing.absence import not_here

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "charts" / "steersman" / "files" / "alerts").glob("*.yaml"))
RULES = {
    rule["alert"]: (path, rule)
    for path in FILES
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
}


class Case(NamedTuple):
    """Series of a minute's steps, in promtool's notation, and when to look."""

    fires: dict[str, str]
    quiet: dict[str, str]
    at: str = "60m"


FAILED = 'controller_runtime_reconcile_errors_total{controller="c"}'


def leading(pod: str) -> str:
    return f'leader_election_master_status{{name="steersman",pod="{pod}"}}'


def ended(result: str) -> str:
    return f'controller_runtime_reconcile_total{{controller="c",result="{result}"}}'


CASES = {
    "SteersmanAbsent": Case(
        {'controller_runtime_max_concurrent_reconciles{controller="other"}': "1x60"},
        {'controller_runtime_max_concurrent_reconciles{controller="reload-deployments"}': "1x60"},
    ),
    "SteersmanNoLeader": Case(
        {leading("a"): "0x60", leading("b"): "0x60"},
        {leading("a"): "0x60", leading("b"): "1x60"},
    ),
    "SteersmanSourceFailing": Case(
        {'steersman_cache_failures_total{source="secrets",reason="Forbidden"}': "0+4x60"},
        {'steersman_cache_failures_total{source="secrets",reason="Gone"}': "0x50 1x10"},
    ),
    "SteersmanObjectsUnreadable": Case(
        {'steersman_cache_undecodable_total{source="dnszones"}': "0x50 1x10"},
        {'steersman_cache_undecodable_total{source="dnszones"}': "3x60"},
    ),
    "SteersmanReconcilesFailing": Case(
        {FAILED: "0+5x60", ended("error"): "0+5x60", ended("success"): "0+5x60"},
        {FAILED: "0+1x60", ended("error"): "0+1x60", ended("success"): "0+9x60"},
    ),
    "SteersmanReconcileStuck": Case(
        {'workqueue_longest_running_processor_seconds{controller="c"}': "0+60x60"},
        {'workqueue_longest_running_processor_seconds{controller="c"}': "20x60"},
    ),
    "SteersmanQueueGrowing": Case(
        {'workqueue_depth{controller="c",priority="0"}': "100+10x60"},
        {'workqueue_depth{controller="c",priority="0"}': "700-10x60"},
    ),
    "SteersmanTaskRestarting": Case(
        {'steersman_restarts_total{task="source secrets"}': "0+1x60"},
        {'steersman_restarts_total{task="source secrets"}': "1x60"},
    ),
    "SteersmanReloadRefused": Case(
        {'steersman_reload_refusals_total{kind="Deployment"}': "0x40 1x20"},
        {'steersman_reload_refusals_total{kind="Deployment"}': "4x60"},
    ),
    "SteersmanReloadCircuitOpen": Case(
        {'steersman_reload_held_total{kind="Deployment",gate="budget"}': "0+1x60"},
        {'steersman_reload_held_total{kind="Deployment",gate="window"}': "0+1x60"},
    ),
    "SteersmanReloadMisconfigured": Case(
        {'steersman_reload_problems_total{kind="Deployment"}': "0x50 1x10"},
        {'steersman_reload_problems_total{kind="Deployment"}': "2x60"},
    ),
    "SteersmanReloadPendingLong": Case(
        {'steersman_reload_pending{kind="Deployment"}': "3x300"},
        {'steersman_reload_pending{kind="Deployment"}': "0x150 3x150"},
        at="290m",
    ),
    "SteersmanReloadStalePods": Case(
        {'steersman_reload_stale_pods{namespace="shop"}': "2x60"},
        {'steersman_reload_stale_pods{namespace="shop"}': "2x10 0x50"},
    ),
    "ConfigMapReloadErrors": Case(
        {'configmap_reload_errors_total{env="prod"}': "0+1x60"},
        {'configmap_reload_errors_total{env="prod"}': "1x60"},
    ),
    "ConfigMapReloadWatchDown": Case(
        {"configmap_reload_watch_errors_total": "0+6x60"},
        {"configmap_reload_watch_errors_total": "0+1x60"},
    ),
    "ConfigMapReloadMetricsAbsent": Case(
        {"configmap_reload_leader_state": "1x10 stale"},
        {"configmap_reload_leader_state": "0x60"},
    ),
    "ConfigMapReloadHighRestartRate": Case(
        {'configmap_reload_restarts_total{env="prod"}': "0+120x60"},
        {'configmap_reload_restarts_total{env="prod"}': "0+30x60"},
    ),
    "ConfigMapReloadLeaderFlapping": Case(
        {'configmap_reload_leader_transitions_total{transition="acquired"}': "0+1x60"},
        {'configmap_reload_leader_transitions_total{transition="acquired"}': "1x60"},
    ),
    "ConfigMapReloadNoActiveLeader": Case(
        {'configmap_reload_leader_state{pod="a"}': "0x60", 'configmap_reload_leader_state{pod="b"}': "0x60"},
        {'configmap_reload_leader_state{pod="a"}': "0x60", 'configmap_reload_leader_state{pod="b"}': "1x60"},
    ),
    "ConfigMapReloadPendingRestartsStuck": Case(
        {"configmap_reload_pending_restarts": "2x60", 'configmap_reload_restarts_total{env="prod"}': "7x60"},
        {"configmap_reload_pending_restarts": "2x60", 'configmap_reload_restarts_total{env="prod"}': "0+1x60"},
    ),
    "ConfigMapReloadDroppedRestarts": Case(
        {"configmap_reload_dropped_restarts_total": "0+1x60"},
        {"configmap_reload_dropped_restarts_total": "2x60"},
    ),
}


@pytest.fixture(scope="module")
def promtool():
    found = shutil.which("promtool")
    if found is None:
        not_here("promtool is not installed (Debian: prometheus)")
    return found


def test_every_alert_is_tried():
    assert set(CASES) == set(RULES)


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_when_it_should_and_only_then(alert, promtool, tmp_path):
    path, rule = RULES[alert]
    case = CASES[alert]
    said = {}
    for name, series in (("fires", case.fires), ("quiet", case.quiet)):
        test = {
            "rule_files": [str(path)],
            "evaluation_interval": "1m",
            "tests": [
                {
                    "interval": "1m",
                    "input_series": [{"series": one, "values": values} for one, values in series.items()],
                    "alert_rule_test": [{"alertname": alert, "eval_time": case.at, "exp_alerts": []}],
                }
            ],
        }
        written = tmp_path / f"{name}.yaml"
        written.write_text(yaml.safe_dump(test))
        said[name] = subprocess.run(
            [promtool, "test", "rules", str(written)], capture_output=True, text=True, check=False
        )
    assert said["quiet"].returncode == 0, said["quiet"].stdout + said["quiet"].stderr
    assert said["fires"].returncode != 0, f"{alert} did not fire: {rule['expr']}"
    assert f'alertname="{alert}"' in said["fires"].stderr + said["fires"].stdout
    assert "<no value>" not in said["fires"].stderr + said["fires"].stdout


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_has_a_severity_and_a_runbook_page(alert):
    _, rule = RULES[alert]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    page = ROOT / "docs" / "runbooks" / f"{alert}.md"
    text = page.read_text()
    assert text.startswith(f"# {alert}\n")
    assert "## What to do" in text
