from __future__ import annotations

import msgspec
import pytest

from steersman.web import views
from steersman.web.api import ENDPOINTS, BadParameter, HistoryParameters, read_parameters
from steersman.web.model import Check, Outcome
from steersman.web.openapi import openapi
from steersman.web.views import Filters


def test_what_is_due_first_comes_first(scene, vitals, at):
    now = views.now_of(scene, vitals, at)
    assert [node.name for node in now.pending] == ["api", "web"]
    assert now.counts == {"off": 1, "pending": 2}


def test_a_failed_check_makes_the_process_not_ready(scene, vitals, at):
    broken = msgspec.structs.replace(vitals, checks=[Check(name="loop", problem="late")])
    assert views.now_of(scene, vitals, at).ready
    assert not views.now_of(scene, broken, at).ready
    assert not views.health_of(broken, at).ready


def test_the_map_leaves_out_who_takes_no_part(scene, at):
    found = views.map_of(scene, at)
    assert [one.name for one in found.workloads] == ["web", "api"]
    assert {(one.source, one.workload) for one in found.edges} == {
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
def test_history_is_filtered_by_namespace_outcome_and_text(scene, at, filters, ids):
    assert [entry.id for entry in views.history_of(scene, filters, at).entries] == ids


def test_a_page_of_history_says_where_the_next_begins(scene, at):
    first = views.history_of(scene, Filters(limit=2), at)
    assert (first.total, first.next) == (3, "2-web")
    last = views.history_of(scene, Filters(limit=2, before=first.next), at)
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
