from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from steersman.runtime.manager.operator_bundle import Row, RowState, Table
from steersman.runtime.manager.operator_report import report_of
from steersman.web import views
from steersman.web.api import ENDPOINTS, BadParameter, HistoryParameters, read_parameters
from steersman.web.model import Check, Outcome
from steersman.web.openapi import openapi
from steersman.web.views import Filters


def test_what_is_due_first_comes_first(snapshot, vitals, at):
    now = views.now_of(snapshot, vitals, [], at)
    assert [node.name for node in now.pending] == ["api", "web"]
    assert now.counts == {"off": 1, "pending": 2}


def test_a_failed_check_makes_the_process_not_ready(snapshot, vitals, at):
    broken = msgspec.structs.replace(vitals, checks=[Check(name="caches"), Check(name="loop", problem="late")])
    assert views.now_of(snapshot, vitals, [], at).ready
    assert not views.now_of(snapshot, broken, [], at).ready
    assert not views.health_of(broken, at).ready


def test_one_lost_connection_is_one_problem_however_many_sources_it_has(snapshot, vitals, at):
    lost = "connection refused (GET https://10.0.0.1/api/v1/{})"
    checks = [Check(name=f"source {name}", problem=lost.format(name)) for name in ("pods", "secrets", "nodes")]
    broken = msgspec.structs.replace(vitals, checks=checks)
    (problem,) = views.now_of(snapshot, broken, [], at).problems
    assert problem.objects == ["source pods", "source secrets", "source nodes"]
    assert (problem.message, problem.runbook) == ("connection refused", "SteersmanSourceFailing")


@pytest.mark.parametrize(
    ("message", "command"),
    [
        ("secrets is forbidden: cannot list", "steersman rbac --operators dns,reload | kubectl apply -f -"),
        ("the server has no such kind", "steersman crds --operators dns,reload | kubectl apply -f -"),
        ("connection refused", ""),
    ],
)
def test_a_source_that_cannot_be_read_names_the_next_step(vitals, message, command):
    broken = msgspec.structs.replace(vitals, checks=[Check(name="source secrets", problem=message)])
    (problem,) = views.process_problems(broken, ["dns", "reload", "webapp"])
    assert problem.command == command


def test_every_runbook_that_a_problem_names_is_on_the_page(vitals):
    from steersman.web.assets import runbooks

    text = "".join(path.read_text() for path in Path(views.__file__).parents[1].rglob("*.py"))
    named = set(re.findall(r'"(Steersman[A-Z]\w+)"', text)) & {name for name in runbooks() if name} | set(
        re.findall(r'runbook="(\w+)"', text)
    )
    assert named
    assert named <= runbooks().keys()


def test_the_landing_page_names_every_operator_and_one_problem_per_cause(snapshot, vitals, at):
    bad = [Row([name], RowState.BAD, "no primary answers") for name in ("a.example", "b.example")]
    dns = report_of("dns", [Table("Zones", ["zone"], [*bad, Row(["c.example"])])])
    apps = report_of("webapp", [Table("webapps", ["name"], [Row(["web"])])])
    now = views.now_of(snapshot, vitals, [dns, apps], at)
    assert [(operator.name, operator.state, operator.headline) for operator in now.operators] == [
        ("dns", RowState.BAD, "1 of 3 zones ready, 2 failing"),
        ("webapp", RowState.GOOD, "1 webapp ready"),
    ]
    (problem,) = now.problems
    assert (problem.objects, problem.message) == (["a.example", "b.example"], "no primary answers")


def test_the_map_leaves_out_who_takes_no_part(snapshot, at):
    found = views.map_of(snapshot, at)
    assert [workload.name for workload in found.workloads] == ["web", "api"]
    assert {(edge.source, edge.workload) for edge in found.edges} == {
        ("configmap/shop/app", "deployment/shop/web"),
        ("configmap/shop/app", "deployment/shop/api"),
    }


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        (Filters(), ["1-web", "2-web", "3-lamp"]),
        (Filters(namespace="lab"), ["3-lamp"]),
        (Filters(outcome=Outcome.FAILED), ["1-web"]),
        (Filters(text="LAMP"), ["3-lamp"]),
        (Filters(text="kubectl-edit"), ["1-web", "2-web", "3-lamp"]),
        (Filters(text="nobody"), []),
        (Filters(before="1-web"), ["2-web", "3-lamp"]),
        (Filters(before="gone"), []),
    ],
)
def test_history_is_filtered_by_namespace_outcome_and_text(snapshot, at, filters, ids):
    assert [entry.id for entry in views.history_of(snapshot, filters, at).entries] == ids


def test_a_page_of_history_says_where_the_next_begins(snapshot, at):
    first = views.history_of(snapshot, Filters(limit=2), at)
    assert (first.total, first.next) == (3, "2-web")
    last = views.history_of(snapshot, Filters(limit=2, before=first.next), at)
    assert ([entry.id for entry in last.entries], last.next) == (["3-lamp"], None)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"limit": ["0"]}, "limit"),
        ({"limit": ["many"]}, "limit"),
        ({"limit": ["1", "2"]}, "limit: given more than once"),
        ({"outcome": ["great"]}, "outcome"),
        ({"colour": ["red"]}, "colour"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_named(given, told):
    with pytest.raises(BadParameter, match=told):
        read_parameters(HistoryParameters, given)


def test_every_path_is_in_the_document_with_its_answers():
    document = openapi()
    for endpoint in ENDPOINTS:
        operation = document["paths"][f"/api/v1{endpoint.path}"]["get"]
        assert set(operation["responses"]) >= {"200", "400", "401", "403"}
    msgspec.json.encode(document)


def test_no_type_of_the_api_has_a_place_for_values():
    for name, schema in openapi()["components"]["schemas"].items():
        assert not {"data", "value", "values", "stringData"} & set(schema.get("properties", {})) - (
            {"values"} if name == "Series" else set()
        ), name
