"""What an operator says about itself follows from its tables; without tables, from the conditions of its objects."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import steersman as sm
from steersman.kube.api.objects import ObjectMeta
from steersman.runtime.cluster import Cluster
from steersman.runtime.controller.builder import Controller
from steersman.runtime.manager.manager import Manager
from steersman.runtime.manager.operator_bundle import OperatorBundle, Row, RowProblem, RowState, Table
from steersman.runtime.manager.operator_report import report_of


class Lamp(sm.Resource, group="example.org", version="v1"):
    """A kind with conditions, as an author of another operator writes it."""

    class Status(sm.Struct):
        """How it is."""

        conditions: list[sm.Condition] | None = None
        ready: bool | None = None

    status: Status | None = None


def build(clock: Any, caches: Any) -> Manager:
    client: Any = SimpleNamespace(field_manager="test", guarded=lambda _guard: client)

    class Tested(Manager):
        def _cluster(self, name: str, client: Any, component: str) -> Cluster:
            return Cluster(client, caches, name=name)

    return Tested(client, clock=clock, registry=CollectorRegistry())


def lamps(*states: RowState) -> Table:
    return Table("Lamps", ["name"], [Row([f"lamp-{place}"], state) for place, state in enumerate(states)])


@pytest.mark.parametrize(
    ("table", "headline"),
    [
        (lamps(), "no lamps"),
        (lamps(RowState.GOOD), "1 lamp ready"),
        (lamps(RowState.GOOD, RowState.GOOD), "2 lamps ready"),
        (lamps(RowState.GOOD, RowState.BAD, RowState.BAD), "1 of 3 lamps ready, 2 failing"),
        (Table("Workloads", ["name"], [Row(["a"], RowState.BAD, word="Circuit open")], total=9, good="current"),
         "8 of 9 workloads current, 1 circuit open"),
    ],
)  # fmt: skip
def test_the_headline_counts_the_rows_by_state(table: Table, headline: str):
    assert report_of("op", [table]).headline == headline


def test_an_operator_may_say_its_headline_itself():
    assert report_of("op", [lamps()], headline=lambda tables: f"{len(tables)} rooms lit").headline == "1 rooms lit"


def test_the_state_is_the_worst_of_the_rows_and_a_history_does_not_count():
    history = Table("Past", ["name"], [Row(["x"], RowState.BAD, "burnt out")], counted=False)
    report = report_of("op", [lamps(RowState.GOOD, RowState.BUSY), history])
    assert (report.state, list(report.problems)) == (RowState.BUSY, [])


def test_rows_with_one_cause_are_one_problem_that_says_the_next_step():
    def row(name: str) -> Row:
        problem = RowProblem(
            objects=[name], message=f"{name}: no power", cause="fuse 3", command="flip 3", runbook="Fuse"
        )
        return Row([name], RowState.BAD, problem=problem)

    alone = Row(["hall"], RowState.BAD, "bulb missing")
    first, second = report_of("op", [Table("Lamps", ["name"], [row("kitchen"), alone, row("bath")])]).problems
    assert (first.objects, first.command, first.runbook) == (["kitchen", "bath"], "flip 3", "Fuse")
    assert (second.objects, second.message, second.word) == (["hall"], "bulb missing", "Failing")


def test_what_cannot_be_read_is_unknown_and_never_ready():
    report = report_of("op", [lamps(RowState.GOOD)], unreadable="lamps cannot be read")
    assert (report.state, report.headline) == (
        RowState.UNKNOWN,
        "unknown: lamps cannot be read; last seen: 1 lamp ready",
    )


def condition(kind: str, status: str, reason: str = "Because", message: str = "") -> sm.Condition:
    return sm.Condition(type=kind, status=status, reason=reason, message=message)  # type: ignore[arg-type]


STATUSES: dict[str, tuple[Lamp.Status | None, RowState]] = {
    "new": (None, RowState.GOOD),
    "ready": (Lamp.Status(conditions=[condition("Ready", "True")]), RowState.GOOD),
    "broken": (Lamp.Status(conditions=[condition("Ready", "False", "NoPower", "fuse 3")]), RowState.BAD),
    "degraded": (
        Lamp.Status(conditions=[condition("Available", "True"), condition("Degraded", "True")]),
        RowState.BAD,
    ),
    "moving": (
        Lamp.Status(conditions=[condition("Ready", "False"), condition("Progressing", "True")]),
        RowState.BUSY,
    ),
    "asked": (Lamp.Status(conditions=[condition("Ready", "Unknown")]), RowState.BUSY),
    "by-field": (Lamp.Status(ready=False), RowState.BUSY),
}


async def test_a_controller_without_tables_shows_its_objects_by_their_conditions(clock: Any, caches: Any):
    manager = build(clock, caches)
    manager.add(Controller(Lamp, print))
    caches[Lamp].sync(
        *(Lamp(metadata=ObjectMeta(name=name, namespace="home"), status=was) for name, (was, _) in STATUSES.items())
    )
    report = manager.reports["lamp"]()
    assert {row.cells[0]: row.state for row in report.tables[0].rows} == {
        name: state for name, (_, state) in STATUSES.items()
    }
    assert report.headline == "2 of 7 lamps ready, 2 failing, 3 progressing"
    problem = next(problem for problem in report.problems if problem.message == "NoPower: fuse 3")
    assert problem.objects == ["lamp/home/broken"]
    assert problem.command == "kubectl describe lamps.example.org broken -n home"


async def test_objects_of_a_source_that_cannot_be_read_are_unknown(clock: Any, caches: Any):
    manager = build(clock, caches)
    manager.add(Controller(Lamp, print))
    caches[Lamp].sync(Lamp(metadata=ObjectMeta(name="hall", namespace="home")))
    caches[Lamp].problem = "connection refused"
    assert manager.reports["lamp"]().state is RowState.UNKNOWN


async def test_controllers_of_an_operator_are_not_shown_twice(clock: Any, caches: Any):
    manager = build(clock, caches)
    manager.include("lights", OperatorBundle(controllers=[Controller(Lamp, print)]))
    assert list(manager.reports) == ["lights"]
