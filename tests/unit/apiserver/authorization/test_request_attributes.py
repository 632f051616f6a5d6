"""Which verb, resource and name a request asks for, before it is known what the server serves."""

from __future__ import annotations

import pytest

from steersman.apiserver.authorization.request_attributes import RequestAttributes, request_attributes
from steersman.apiserver.http.requests import Query


@pytest.mark.parametrize(
    ("request_line", "expected"),
    [
        ("GET /api/v1/pods", {"verb": "list", "resource": "pods"}),
        ("GET /api/v1/pods?watch=1", {"verb": "watch", "resource": "pods"}),
        ("GET /api/v1/watch/pods", {"verb": "watch", "resource": "pods"}),
        ("GET /api/v1/namespaces/a/pods", {"verb": "list", "resource": "pods", "namespace": "a"}),
        ("GET /api/v1/namespaces/a/pods/b", {"verb": "get", "resource": "pods", "namespace": "a", "name": "b"}),
        ("POST /api/v1/namespaces/a/pods", {"verb": "create", "resource": "pods", "namespace": "a"}),
        (
            "POST /api/v1/namespaces/a/pods/b/eviction",
            {"verb": "create", "resource": "pods", "subresource": "eviction", "namespace": "a", "name": "b"},
        ),
        ("GET /api/v1/namespaces", {"verb": "list", "resource": "namespaces"}),
        ("GET /api/v1/namespaces/a", {"verb": "get", "resource": "namespaces", "namespace": "a", "name": "a"}),
        (
            "PUT /api/v1/namespaces/a/finalize",
            {"verb": "update", "resource": "namespaces", "subresource": "finalize", "namespace": "a", "name": "a"},
        ),
        ("DELETE /api/v1/pods", {"verb": "deletecollection", "resource": "pods"}),
        ("PATCH /apis/apps/v1/x/y", {"verb": "patch", "group": "apps", "resource": "x", "name": "y"}),
        ("GET /api/v1/pods?fieldSelector=metadata.name=b", {"verb": "list", "resource": "pods", "name": "b"}),
        ("GET /api/v1/pods?watch=1&fieldSelector=metadata.name==b", {"verb": "watch", "resource": "pods", "name": "b"}),
        ("GET /api/v1/pods?fieldSelector=metadata.name!=b", {"verb": "list", "resource": "pods"}),
        ("DELETE /api/v1/pods?fieldSelector=metadata.name=b", {"verb": "deletecollection", "resource": "pods"}),
        ("GET /api/v1/x/a%2Fb", {"verb": "get", "resource": "x", "name": "a/b"}),
        ("GET /apis/apps/v1", {"verb": "get", "path": "/apis/apps/v1"}),
        ("GET /api/v1", {"verb": "get", "path": "/api/v1"}),
        ("POST /version", {"verb": "post", "path": "/version"}),
        ("GET /", {"verb": "get", "path": "/"}),
    ],
)
def test_method_path_and_query_say_what_is_asked_for(request_line, expected):
    method, _, target = request_line.partition(" ")
    path, _, query = target.partition("?")
    assert request_attributes(method, path, Query(query)) == RequestAttributes(**expected)
