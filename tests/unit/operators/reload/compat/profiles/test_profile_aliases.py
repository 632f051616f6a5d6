"""The metrics, log lines and paths of the originals, as their alerts, dashboards and probes expect them."""

from __future__ import annotations

import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry, generate_latest

from steersman.kube.api.errors import ServerError
from steersman.kube.api.selectors import Selector
from steersman.operators.reload.api.config import LabelScope, ReloadOptions, RestartBudget
from steersman.operators.reload.compat.dialects.shipshape import Shipshape
from steersman.operators.reload.compat.dialects.xing import Xing
from steersman.operators.reload.compat.profiles import read_profile
from steersman.operators.reload.compat.profiles.logs import redacted, shipshape_line
from steersman.operators.reload.compat.profiles.metric_aliases import ProcessMetrics, aliases_for
from steersman.operators.reload.compat.profiles.process import routes_for
from steersman.operators.reload.controllers.change_tracker import ChangeTracker, PendingChanges
from steersman.operators.reload.controllers.reconciler import NO_WINDOW
from tests.support.reload.miniature import World, configmap, env_from, workload

SHIPSHAPE = [
    "configmap_reload_restarts_total",
    "configmap_reload_errors_total",
    "configmap_reload_debounced_total",
    "configmap_reload_watch_errors_total",
    "configmap_reload_watch_reconnects_total",
    "configmap_reload_leader_transitions_total",
    "configmap_reload_leader_state",
    "configmap_reload_leader_acquire_latency_seconds_bucket",
    "configmap_reload_pending_restarts",
    "configmap_reload_retry_total",
    "configmap_reload_dropped_restarts_total",
    "configmap_reload_info",
]
XING = [
    f"deployment_restart_controller_{name}_total"
    for name in (
        "resource_versions",
        "configs",
        "deployments",
        "deployment_annotation_updates",
        "deployment_restarts",
        "changes_processed",
        "changes_waiting",
    )
]
RELOADER = [
    "reloader_reload_executed_total",
    "reloader_reconcile_total",
    "reloader_action_total",
    "reloader_skipped_total",
    "reloader_workqueue_depth",
    "reloader_workqueue_adds_total",
    "reloader_errors_total",
    "reloader_retries_total",
    "reloader_events_received_total",
    "reloader_events_processed_total",
    "reloader_reconcile_duration_seconds_bucket",
    "reloader_action_latency_seconds_bucket",
    "reloader_workqueue_latency_seconds_bucket",
    "reloader_workloads_scanned_total",
    "reloader_workloads_matched_total",
    "reloader_reload_executed_total_by_namespace",
]
LABELS = {"app": "web", "env": "test"}


class Shown:
    """What a profile shows after some looks."""

    def __init__(self, name, dialect, options, annotations=None):
        self.registry = CollectorRegistry()
        self.pending = PendingChanges()
        profile = read_profile(name, (), {"METRICS_COUNT_BY_NAMESPACE": "enabled"})
        standing = ProcessMetrics(
            leading=lambda: True,
            watches=lambda: (3, 1, 7),
            sources=lambda: 5,
            queue=lambda: (1, 2, 3),
            evaluations=lambda: ([("0.1", 3), ("+Inf", 4)], 2.5),
            queued=lambda: ([("0.001", 5), ("+Inf", 6)], 1.5),
            tick=lambda: self.world.now + 3,
        )
        self.aliases = aliases_for(profile, self.pending, standing, self.registry)
        self.world = World(options, dialects=[dialect])
        source = configmap("app", mode="a")
        source["metadata"]["labels"] = LABELS
        self.source = source
        self.world.put(source)
        self.world.put(workload("web", uses=[env_from("app")], labels=LABELS, annotations=annotations))
        self.pending.trackers["reload-deployments"] = self.world.reconcilers["Deployment"].tracker

    def step(self):
        look = self.world.step("Deployment", "web")
        self.aliases.evaluated(look, written=look.plan.state is not None)
        return look

    def change(self, mode):
        self.world.put({**self.source, "data": {"mode": mode}})

    def value(self, name, **labels):
        return self.registry.get_sample_value(name, labels)

    def names(self):
        return {line.split(" ")[0].split("{")[0] for line in generate_latest(self.registry).decode().splitlines()}


def options(**more):
    return ReloadOptions(budget=RestartBudget(restarts=0), **more)


def shipshape(window=NO_WINDOW):
    scope = LabelScope(namespace="shop", selector=Selector.parse("app=web"))
    return Shown("shipshape", Shipshape([scope]), options(window=window, scopes=(scope,)), annotations={"x": "y"})


def xing():
    return Shown("xing", Xing(), options(window=NO_WINDOW), annotations={"com.xing.deployment-restart": "enabled"})


def test_every_metric_of_shipshape_is_there_from_the_start_on():
    shown = shipshape()
    look = shown.step()
    shown.aliases.failed(look, ServerError("boom"))
    shown.change("b")
    shown.step()
    shown.world.reconcilers["Deployment"].options = options(scopes=shown.world.options.scopes)
    shown.change("c")
    shown.step()
    shown.step()  # waits as before, and is counted once
    assert set(SHIPSHAPE) <= shown.names()
    assert shown.value("configmap_reload_restarts_total", env="test") == 1
    assert shown.value("configmap_reload_errors_total", env="test") == 1
    assert shown.value("configmap_reload_retry_total", env="test") == 1
    assert shown.value("configmap_reload_debounced_total", env="test") == 1
    assert shown.value("configmap_reload_pending_restarts") == 1
    assert shown.value("configmap_reload_watch_errors_total") == 1
    assert shown.value("configmap_reload_watch_reconnects_total") == 2
    assert shown.value("configmap_reload_leader_state") == 1
    assert shown.value("configmap_reload_dropped_restarts_total") == 0
    assert shown.value("configmap_reload_info", version="0.2.2", revision="unknown") == 1


def test_the_election_of_shipshape_counts_transitions_and_how_long_it_took():
    shown = shipshape()
    assert shown.value("configmap_reload_leader_transitions_total", transition="acquired") == 0
    shown.aliases.elected(3.0)
    shown.aliases.deposed()
    assert shown.value("configmap_reload_leader_transitions_total", transition="acquired") == 1
    assert shown.value("configmap_reload_leader_transitions_total", transition="lost") == 1
    assert shown.value("configmap_reload_leader_acquire_latency_seconds_bucket", le="5.0") == 1
    assert shown.value("configmap_reload_leader_acquire_latency_seconds_bucket", le="2.0") == 0


def test_every_metric_of_xing_is_there_and_counts_attempts_restarts_and_what_waits():
    shown = xing()
    look = shown.step()
    shown.change("b")
    shown.step()
    shown.aliases.failed(look, ServerError("boom"))
    assert set(XING) <= shown.names()
    assert shown.value("deployment_restart_controller_deployment_annotation_updates_total") == 3
    assert shown.value("deployment_restart_controller_deployment_restarts_total") == 1
    assert shown.value("deployment_restart_controller_deployments_total") == 1
    assert shown.value("deployment_restart_controller_configs_total") == 5
    assert shown.value("deployment_restart_controller_resource_versions_total") == 7
    assert shown.value("deployment_restart_controller_changes_waiting_total") == 0


def test_a_workload_that_is_deleted_takes_no_part_in_the_counts_of_xing():
    shown = xing()
    look = shown.step()
    tracker = shown.pending.trackers["reload-deployments"] = ChangeTracker()
    tracker.keep(look.workload.ref, look.plan.observed)
    assert shown.value("deployment_restart_controller_deployments_total") == 1
    tracker.forget(look.workload.ref)
    assert shown.value("deployment_restart_controller_deployments_total") == 0


def test_every_metric_of_reloader_is_there_and_success_is_distinguished_from_failure():
    shown = Shown("reloader", Xing(), options(window=NO_WINDOW))
    shown.step()
    shown.change("b")
    look = shown.step()
    shown.aliases.saw("configmaps", None, look)
    shown.aliases.failed(look, ServerError("boom"))
    assert set(RELOADER) <= shown.names()
    assert shown.value("reloader_reload_executed_total", success="true") == 1
    assert shown.value("reloader_reload_executed_total", success="false") == 1
    assert shown.value("reloader_reload_executed_total_by_namespace", success="true", namespace="shop") == 1
    assert shown.value("reloader_action_total", workload_kind="Deployment", result="success") == 1


def test_the_histograms_of_reloader_say_how_long_reconciles_restarts_and_the_queue_take():
    shown = Shown("reloader", Xing(), options(window=NO_WINDOW))
    shown.step()
    assert shown.value("reloader_action_latency_seconds_count", workload_kind="Deployment") is None
    shown.change("b")
    shown.step()
    assert shown.value("reloader_action_latency_seconds_sum", workload_kind="Deployment") == 3
    assert shown.value("reloader_action_latency_seconds_bucket", workload_kind="Deployment", le="2.5") == 0
    assert shown.value("reloader_action_latency_seconds_bucket", workload_kind="Deployment", le="5.0") == 1
    assert shown.value("reloader_reconcile_duration_seconds_bucket", result="success", le="0.1") == 3
    assert shown.value("reloader_reconcile_duration_seconds_sum", result="success") == 2.5
    assert shown.value("reloader_workqueue_latency_seconds_count") == 6


def test_reloader_s_events_are_counted_by_what_happened_to_which_kind_and_what_came_of_it():
    shown = Shown("reloader", Xing(), options(window=NO_WINDOW))
    for old, new in ((None, 1), (1, 2), (2, 3), (3, None)):
        shown.aliases.saw("configmaps", old, new)
    counts = {
        one: shown.value("reloader_events_received_total", event_type=one, resource_type="configmaps")
        for one in ("add", "update", "delete")
    }
    assert counts == {"add": 1, "update": 2, "delete": 1}
    shown.step()
    shown.change("b")
    look = shown.step()
    shown.aliases.failed(look, ServerError("boom"))
    for result in ("success", "error"):
        labels = {"event_type": "unknown", "resource_type": "configmaps", "result": result}
        assert shown.value("reloader_events_processed_total", **labels) == 1


# ----------------------------------------------------------------------------------------------------------- endpoints
async def answers(name, paths, *, ready, leading):
    app = web.Application()
    app.add_routes(routes_for(name, ready=lambda: ready, leading=lambda: leading))
    async with TestClient(TestServer(app)) as client:
        found = []
        for path in paths:
            answer = await client.get(path)
            found.append((answer.status, await answer.text()))
        return found


@pytest.mark.parametrize(
    ("ready", "leading", "expected"),
    [
        (True, True, [(200, "ready=true leader=true"), (200, "ok")]),
        (True, False, [(503, "ready=true leader=false"), (503, "not leader")]),
        (False, True, [(503, "ready=false leader=true"), (200, "ok")]),
    ],
)
async def test_shipshape_answers_whether_it_is_ready_and_leads(ready, leading, expected):
    assert await answers("shipshape", ["/readyz", "/leadz"], ready=ready, leading=leading) == expected


async def test_reloader_says_that_it_lives_and_nothing_is_served_that_its_original_does_not():
    assert await answers("reloader", ["/live"], ready=False, leading=False) == [(200, "ok")]
    assert [status for status, _ in await answers("xing", ["/leadz"], ready=True, leading=True)] == [404]


# ----------------------------------------------------------------------------------------------------------------- log
def test_a_line_of_shipshape_s_log_is_one_json_object_with_the_names_of_the_original():
    line = shipshape_line(None, "", {"event": "workload\nrestarted", "level": "info", "timestamp": "t", "sources": "x"})
    assert "\n" not in line
    assert json.loads(line) == {
        "ts": "t",
        "level": "INFO",
        "logger": "steersman",
        "msg": "workload\nrestarted sources=x",
    }


def test_an_error_is_in_the_line_only_when_there_is_one():
    assert "error" not in json.loads(shipshape_line(None, "", {"event": "x"}))
    line = json.loads(shipshape_line(None, "", {"event": "x", "exception": "Boom: token=abc"}))
    assert line["error"] == "Boom: token=[REDACTED]"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abc.def-1", "Authorization: Bearer [REDACTED]"),
        ("password=hunter2 user=x", "password=[REDACTED] user=x"),
        ("api-key: k123", "api-key: [REDACTED]"),
        ("https://x.example.org/?access_token=abc&a=1", "https://x.example.org/?access_token=[REDACTED]&a=1"),
        ("secret/db changed", "secret/db changed"),
    ],
)
def test_what_looks_like_a_credential_is_not_logged(text, shown):
    assert redacted(text) == shown
