from __future__ import annotations

import json

import pytest

from steersman.testing import AuditLog


def line(number: int, verb: str = "get", agent: str = "steersman/1", stage: str = "ResponseComplete", **target: str):
    event = {
        "kind": "Event",
        "auditID": f"id-{number}",
        "stage": stage,
        "requestURI": f"/api/v1/{number}",
        "verb": verb,
        "user": {"username": "alice", "groups": ["a"]},
        "userAgent": agent,
        "objectRef": {"resource": "pods", "namespace": "shop", "apiVersion": "v1", **target},
        "responseStatus": {"metadata": {}, "code": 200},
    }
    return json.dumps(event) + "\n"


@pytest.fixture
def log(tmp_path):
    return AuditLog(tmp_path / "audit.log")


@pytest.fixture
def write(tmp_path):
    def append(*lines: str) -> None:
        with (tmp_path / "audit.log").open("a") as file:
            file.writelines(lines)

    return append


def test_a_log_that_is_not_there_yet_is_empty(log):
    assert log.entries() == []
    assert log.mark() == 0


def test_an_entry_says_who_asked_for_what_and_how_it_ended(log, write):
    write(line(1, "update", name="web", subresource="status", apiGroup="apps"))
    (entry,) = log.entries()
    assert (entry.verb, entry.group, entry.resource, entry.subresource) == ("update", "apps", "pods", "status")
    assert (entry.namespace, entry.name, entry.user, entry.status) == ("shop", "web", "alice", 200)
    assert (entry.user_agent, entry.uri) == ("steersman/1", "/api/v1/1")


def test_a_request_that_has_no_object_is_an_entry_too(log, write):
    event = json.loads(line(1))
    del event["objectRef"], event["responseStatus"], event["userAgent"]
    write(json.dumps(event) + "\n")
    assert log.entries()[0].resource == ""


def test_a_request_of_several_stages_counts_once(log, write):
    write(line(1, "watch", stage="ResponseStarted"), line(2), line(1, "watch"))
    assert [entry.verb for entry in log.entries()] == ["watch", "get"]


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({}, 3),
        ({"verb": "list"}, 1),
        ({"user_agent": "steersman"}, 2),
        ({"resource": "secrets"}, 1),
        ({"namespace": "shop"}, 3),
        ({"user": "bob"}, 0),
        ({"verb": "list", "user_agent": "kubectl"}, 0),
    ],
)
def test_filters_must_all_match(log, write, filters, count):
    write(line(1, "list"), line(2, agent="kubectl/v1"), line(3, resource="secrets"))
    assert log.count(**filters) == count


def test_only_what_came_after_a_mark_is_seen(log, write):
    write(line(1))
    mark = log.mark()
    write(line(2))
    assert [entry.uri for entry in log.entries(since=mark)] == ["/api/v1/2"]


def test_a_line_still_being_written_is_left_for_later(log, write):
    write(line(1), line(2)[:40])
    assert log.count() == 1
    write(line(2)[40:])
    assert log.count() == 2
