"""The Grafana dashboard as a table: rows of panels, each a title, a unit and queries with their legends.

`generate_chart.py` writes it into the chart. A test runs every query on a real Prometheus that scrapes a real process,
so a panel that would stay empty fails.
"""

from __future__ import annotations

import json
from typing import Any

RUNTIME = "runtime"
_TIME = "controller_runtime_reconcile_time_seconds_bucket"

# row (an operator, or the runtime) -> [(title, unit, [(query, legend)])]
ROWS: dict[str, list[tuple[str, str, list[tuple[str, str]]]]] = {
    RUNTIME: [
        ("Leads", "short", [("max by (name) (leader_election_master_status)", "{{name}}")]),
        (
            "Reconciles",
            "ops",
            [
                (
                    "sum by (controller, result) (rate(controller_runtime_reconcile_total[5m]))",
                    "{{controller}} {{result}}",
                )
            ],
        ),
        (
            "Time of a reconcile, p99",
            "s",
            [
                (
                    f"histogram_quantile(0.99, sum by (controller, le) (rate({_TIME}[5m])))",
                    "{{controller}}",
                )
            ],
        ),
        ("Keys that wait", "short", [("sum by (controller) (workqueue_depth)", "{{controller}}")]),
        (
            "Longest reconcile under way",
            "s",
            [("max by (controller) (workqueue_longest_running_processor_seconds)", "{{controller}}")],
        ),
        (
            "Requests to the API server",
            "reqps",
            [("sum by (method, code) (rate(rest_client_requests_total[5m]))", "{{method}} {{code}}")],
        ),
        (
            "Watch events",
            "ops",
            [("sum by (source) (rate(steersman_cache_watch_events_total[5m]))", "{{source}}")],
        ),
        ("Objects held", "short", [("sum by (source) (steersman_cache_objects)", "{{source}}")]),
        ("Memory", "bytes", [("process_resident_memory_bytes", "{{pod}}")]),
        ("CPU", "percentunit", [("rate(process_cpu_seconds_total[5m])", "{{pod}}")]),
    ],
    "reload": [
        ("Restarts", "short", [("sum by (kind) (increase(steersman_reload_restarts_total[1h]))", "{{kind}}")]),
        ("Changes that wait", "short", [("sum by (kind) (steersman_reload_pending)", "{{kind}}")]),
        ("Held back, by gate", "short", [("sum by (gate) (increase(steersman_reload_held_total[1h]))", "{{gate}}")]),
        ("Rollouts under way", "short", [("sum(steersman_reload_rollouts_under_way)", "under way")]),
        (
            "Trouble",
            "short",
            [
                ("sum(increase(steersman_reload_refusals_total[1h]))", "refused"),
                ("sum(increase(steersman_reload_problems_total[1h]))", "misconfigured"),
                ("sum(increase(steersman_reload_conflicts_total[1h]))", "conflicts"),
            ],
        ),
    ],
    "toolset": [
        (
            "Services in the toolset",
            "short",
            [("sum by (service_type) (toolset_services_discovered)", "{{service_type}}")],
        ),
        ("Services left out", "short", [("sum by (service_type) (toolset_unhealthy_services)", "{{service_type}}")]),
        (
            "Writes",
            "short",
            [
                (
                    "sum by (operation, status) (increase(toolset_configmap_reconcile_total[1h]))",
                    "{{operation}} {{status}}",
                )
            ],
        ),
        (
            "Drift repaired",
            "short",
            [("sum by (drift_type) (increase(toolset_configmap_drift_detected_total[1h]))", "{{drift_type}}")],
        ),
        (
            "Probes",
            "short",
            [
                (
                    "sum by (service_type, status) (increase(toolset_health_checks_total[1h]))",
                    "{{service_type}} {{status}}",
                )
            ],
        ),
        ("Problems", "short", [("sum by (reason) (toolset_problems)", "{{reason}}")]),
    ],
    "dns": [
        ("Zones that are ready", "short", [("sum by (namespace) (steersman_dns_zone_ready)", "{{namespace}}")]),
        (
            "Zones that are not",
            "short",
            [("sum by (namespace) (1 - steersman_dns_zone_ready)", "{{namespace}}")],
        ),
        ("Updates", "short", [("sum(increase(steersman_dns_updates_total[1h]))", "sent")]),
        (
            "Failures, by server",
            "short",
            [("sum by (server) (increase(steersman_dns_server_errors_total[1h]))", "{{server}}")],
        ),
        ("Secondaries behind", "short", [("sum by (zone) (steersman_dns_secondaries_behind)", "{{zone}}")]),
        (
            "Drift",
            "short",
            [
                ("sum(increase(steersman_dns_drift_found_total[1h]))", "found"),
                ("sum(increase(steersman_dns_drift_repaired_total[1h]))", "repaired"),
            ],
        ),
    ],
    "hourglass": [
        ("Executors", "short", [("sum by (phase) (steersman_hourglass_executors)", "{{phase}}")]),
        ("Performers", "short", [("sum by (phase) (steersman_hourglass_performers)", "{{phase}}")]),
        ("Pods made again", "short", [("sum(increase(steersman_hourglass_pod_recreations_total[1h]))", "made again")]),
        (
            "Pods removed",
            "short",
            [("sum by (reason) (increase(steersman_hourglass_pod_removals_total[1h]))", "{{reason}}")],
        ),
    ],
}

WIDTH, HEIGHT, COLUMNS = 8, 7, 3


def dashboard() -> str:
    """The dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row, entries in ROWS.items():
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": row, "gridPos": {"h": 1, "w": 24, "x": 0, "y": top}}
        )
        top += 1
        for number, (title, unit, queries) in enumerate(entries):
            panels.append(_panel(len(panels) + 1, title, unit, queries, number, top))
        top += HEIGHT * -(-len(entries) // COLUMNS)
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    board = {
        "uid": "steersman",
        "title": "Steersman",
        "tags": ["steersman"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    }
    return json.dumps(board, indent=1) + "\n"


def _panel(
    number: int, title: str, unit: str, queries: list[tuple[str, str]], position: int, top: int
) -> dict[str, Any]:
    down, across = divmod(position, COLUMNS)
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": across * WIDTH, "y": top + down * HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(queries)
        ],
    }
