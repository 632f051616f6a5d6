"""Warnings of the API server: parsed, logged once, collected."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from steersman.kube.transport.server_warnings import REMEMBERED, WarningLog, _resource, collect_warnings, parse_warnings


@pytest.mark.parametrize(
    ("header", "texts"),
    [
        ('299 - "one"', ["one"]),
        ('299 - "one", 299 kube "two, and more"', ["one", "two, and more"]),
        (r'299 - "say \"hi\" and \\"', ['say "hi" and \\']),
        ('299 - "dated" "Tue, 15 Nov 1994 08:12:31 GMT"', ["dated"]),
        ('110 - "stale"', []),
        ("299", []),
        ("", []),
    ],
)
def test_warnings_are_parsed_as_http_writes_them(header, texts):
    assert parse_warnings([header]) == texts


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/api/v1/namespaces/shop/configmaps/app", "configmaps"),
        ("/api/v1/namespaces/shop/pods/web/status?x=y", "pods/status"),
        ("/apis/apps/v1/namespaces/shop/deployments", "deployments.apps"),
        ("/api/v1/namespaces/shop", "namespaces"),
        ("/api/v1/namespaces/shop/status", "namespaces/status"),
        ("/version", "/version"),
    ],
)
def test_the_kind_of_a_request_has_no_names_in_it(path, resource):
    assert _resource(path) == resource


def test_a_text_is_logged_once_for_each_kind_of_request():
    warnings = WarningLog()
    with capture_logs() as lines:
        for name in ("a", "b"):
            warnings.note(['299 - "old"'], "POST", f"/api/v1/namespaces/shop/configmaps/{name}")
        warnings.note(['299 - "old"'], "PATCH", "/api/v1/namespaces/shop/configmaps/a")
        warnings.note(['299 - "new"'], "POST", "/api/v1/namespaces/shop/configmaps")
    assert [(line["warning"], line["request"]) for line in lines] == [
        ("old", "POST configmaps"),
        ("old", "PATCH configmaps"),
        ("new", "POST configmaps"),
    ]


def test_memory_of_what_was_logged_is_bounded():
    warnings = WarningLog()
    with capture_logs() as lines:
        for number in range(REMEMBERED + 1):
            warnings.note([f'299 - "{number}"'], "GET", "/api/v1/pods")
        warnings.note(['299 - "0"'], "GET", "/api/v1/pods")
    assert len(lines) == REMEMBERED + 2
    assert len(warnings._logged) == REMEMBERED


async def test_callers_collect_the_warnings_of_their_own_requests_however_often_they_come():
    warnings = WarningLog()

    async def request(text):
        warnings.note([f'299 - "{text}"'], "GET", "/api/v1/pods")

    with capture_logs(), collect_warnings() as collected:
        await asyncio.gather(request("a"), request("a"))
        with collect_warnings() as inner:
            await request("b")
    await request("c")
    assert [warning.text for warning in collected] == ["a", "a"]
    assert [warning.text for warning in inner] == ["b"]
