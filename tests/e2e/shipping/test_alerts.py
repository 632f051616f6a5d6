"""Every alert fires when it should and is quiet when it should be, judged by promtool; each has a runbook."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from steersman.testing.plugin import unavailable

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
    "SteersmanDnsServerFailing": Case(
        {'steersman_dns_server_errors_total{server="dns/primary-0"}': "0x30 0+1x30"},
        {'steersman_dns_server_errors_total{server="dns/primary-0"}': "4x60"},
    ),
    "SteersmanDnsZoneNotReady": Case(
        {'steersman_dns_zone_ready{namespace="dns",zone="example.org"}': "1x10 0x50"},
        {'steersman_dns_zone_ready{namespace="dns",zone="example.org"}': "1x50 0x10"},
    ),
    "SteersmanDnsSecondariesBehind": Case(
        {'steersman_dns_secondaries_behind{zone="example.org"}': "0x30 1x30"},
        {'steersman_dns_secondaries_behind{zone="example.org"}': "1x50 0x10"},
    ),
    "SteersmanDnsDriftKeepsComing": Case(
        {"steersman_dns_drift_found_total": "0x30 2x60 3x60"},
        {"steersman_dns_drift_found_total": "0x100 9x50"},
        at="140m",
    ),
    "SteersmanHourglassExecutorNotRunning": Case(
        {'steersman_hourglass_executors{namespace="hg",phase="Pending"}': "1x60"},
        {'steersman_hourglass_executors{namespace="hg",phase="Pending"}': "1x10 stale"},
    ),
    "SteersmanHourglassPerformerNotRunning": Case(
        {
            'steersman_hourglass_performers{namespace="hg",phase="Pending"}': "1x50 stale",
            'steersman_hourglass_performers{namespace="hg",phase="Failed"}': "_x50 1x10",
        },
        {'steersman_hourglass_performers{namespace="hg",phase="Running"}': "4x60"},
    ),
    "SteersmanHourglassPerformerStuck": Case(
        {'steersman_hourglass_performers{namespace="hg",phase="Upgrading"}': "1x100"},
        {
            'steersman_hourglass_performers{namespace="hg",phase="Upgrading"}': "1x30 stale",
            'steersman_hourglass_performers{namespace="hg",phase="Terminating"}': "_x60 1x40",
        },
        at="95m",
    ),
    "SteersmanHourglassPodsFailing": Case(
        {'steersman_hourglass_pod_removals_total{reason="Failed"}': "0+1x60"},
        {
            'steersman_hourglass_pod_removals_total{reason="Replaced"}': "0+1x60",
            'steersman_hourglass_pod_removals_total{reason="Failed"}': "0x30 1x30",
        },
    ),
    "SteersmanHourglassRefused": Case(
        {'steersman_hourglass_refusals_total{reason="Forbidden"}': "_x30 1x5 2x5 3x20"},
        {'steersman_hourglass_refusals_total{reason="Forbidden"}': "3x60"},
    ),
    "SteersmanToolsetWritesFailing": Case(
        {'toolset_configmap_reconcile_total{operation="update",status="failure"}': "0x30 0+1x30"},
        {
            'toolset_configmap_reconcile_total{operation="update",status="failure"}': "2x60",
            'toolset_configmap_reconcile_total{operation="update",status="success"}': "0+1x60",
        },
    ),
    "SteersmanToolsetFought": Case(
        {'toolset_configmap_drift_detected_total{drift_type="ownership"}': "0x50 0+1x10"},
        {
            'toolset_configmap_drift_detected_total{drift_type="modified_value"}': "0+1x60",
            'toolset_configmap_drift_detected_total{drift_type="deleted"}': "0x30 1x30",
        },
    ),
    "SteersmanToolsetOverridesInvalid": Case(
        {'toolset_problems{reason="OverridesInvalid"}': "0x50 1x10"},
        {'toolset_problems{reason="OverridesInvalid"}': "1x50 0x10", 'toolset_problems{reason="NotLoadable"}': "1x60"},
    ),
    "SteersmanToolsetServicesLeftOut": Case(
        {'toolset_unhealthy_services{service_type="prometheus"}': "1x90"},
        {'toolset_unhealthy_services{service_type="prometheus"}': "1x50 0x1 1x39"},
        at="85m",
    ),
    "SteersmanToolsetDetectorFailing": Case(
        {'toolset_detectors_health_status{detector_type="loki"}': "1x30 0x30"},
        {'toolset_detectors_health_status{detector_type="loki"}': "0x30 1x30"},
    ),
    "SteersmanToolsetConsumerNotTold": Case(
        {'toolset_notifications_total{status="failure"}': "0x30 0+2x30"},
        {
            'toolset_notifications_total{status="failure"}': "3x60",
            'toolset_notifications_total{status="success"}': "0+1x60",
        },
    ),
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """What promtool says about all the series that should fire, and about all that should not."""
    promtool = shutil.which("promtool")
    if promtool is None:
        unavailable("promtool is not installed (Debian: prometheus)")
    said = {}
    for name in Case._fields[:2]:
        tests = [
            {
                "interval": "1m",
                "input_series": [
                    {"series": one, "values": values} for one, values in getattr(CASES[alert], name).items()
                ],
                "alert_rule_test": [{"alertname": alert, "eval_time": CASES[alert].at, "exp_alerts": []}],
            }
            for alert in CASES
        ]
        test = {"rule_files": [str(path) for path in FILES], "evaluation_interval": "1m", "tests": tests}
        written = tmp_path_factory.mktemp("alerts") / f"{name}.yaml"
        written.write_text(yaml.safe_dump(test))
        ended = subprocess.run([promtool, "test", "rules", str(written)], capture_output=True, text=True, check=False)
        said[name] = ended.stdout + ended.stderr
        assert "SUCCESS" in said[name] or "alertname: " in said[name], said[name]  # else the file itself is wrong
    return said


def test_every_alert_is_tried():
    assert set(CASES) == set(RULES)


@pytest.mark.slow
@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_when_it_should_and_only_then(alert, judged):
    assert f'alertname="{alert}"' in judged["fires"], f"{alert} did not fire: {RULES[alert][1]['expr']}"
    assert f'alertname="{alert}"' not in judged["quiet"], judged["quiet"]


@pytest.mark.slow
def test_every_summary_has_its_values(judged):
    assert "<no value>" not in judged["fires"]


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_has_a_severity_and_a_runbook_page(alert):
    _, rule = RULES[alert]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    page = ROOT / "docs" / "runbooks" / f"{alert}.md"
    text = page.read_text()
    assert text.startswith(f"# {alert}\n")
    assert "## What to do" in text
