"""A snapshot for views: two workloads, and two restarts of one of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from steersman.operators.reload.inspect.restart_state import RestartState
from steersman.web.model import (
    ChangedSource,
    Check,
    Edge,
    HistoryEntry,
    Leadership,
    Outcome,
    PageSnapshot,
    SourceNode,
    Vitals,
    WorkloadNode,
    WorkloadView,
)

AT = datetime(2026, 11, 16, 12, tzinfo=UTC)
APP = "configmap/shop/app"
MODE = ChangedSource(source=APP, keys=["mode"], by=["kubectl-edit"])


def node(name: str, standing: RestartState = RestartState.CURRENT, namespace: str = "shop", **more) -> WorkloadNode:
    return WorkloadNode(
        id=f"deployment/{namespace}/{name}",
        kind="deployment",
        namespace=namespace,
        name=name,
        standing=standing,
        **more,
    )


def entry(name: str, minutes: int, outcome: Outcome = Outcome.SUCCEEDED, namespace: str = "shop") -> HistoryEntry:
    at = AT - timedelta(minutes=minutes)
    return HistoryEntry(
        id=f"{minutes}-{name}", at=at, workload=f"deployment/{namespace}/{name}", changes=[MODE], outcome=outcome
    )


@pytest.fixture
def at() -> datetime:
    return AT


@pytest.fixture
def vitals() -> Vitals:
    return Vitals(
        version="1",
        started=AT,
        leadership=Leadership(elected=False, leading=True),
        checks=[Check(name="loop")],
    )


@pytest.fixture
def snapshot() -> PageSnapshot:
    edge = Edge(source=APP, keys=["mode"], changed=True)
    return PageSnapshot(
        workloads=[
            WorkloadView(
                workload=node("web", RestartState.PENDING, due=AT + timedelta(seconds=5), changes=[MODE]), edges=[edge]
            ),
            WorkloadView(workload=node("api", RestartState.PENDING, due=AT + timedelta(seconds=1)), edges=[edge]),
            WorkloadView(workload=node("idle", RestartState.OFF)),
        ],
        sources=[SourceNode(id=APP, kind="configmap", namespace="shop", name="app", keys=["mode"], changed=True)],
        history=[entry("web", 1, Outcome.FAILED), entry("web", 2), entry("lamp", 3, namespace="lab")],
        running=True,
    )
