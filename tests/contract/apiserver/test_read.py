"""Reading one object, and what is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.manifests import configmap, deployment

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi
    from tests.support.manifests import Space


async def test_get_returns_what_create_returned(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", {"k": "v"}, labels={"x": "y"}))
    got = await api.get(ns.core("configmaps/a"))
    assert (got.status, got.body) == (200, made.body)


async def test_a_missing_object_is_not_found(api: RawApi, ns: Space):
    got = await api.get(ns.core("configmaps/nope"))
    assert got.status == 404
    assert got.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "nope" not found',
        "reason": "NotFound",
        "details": {"name": "nope", "kind": "configmaps"},
        "code": 404,
    }


async def test_a_missing_object_of_a_group_is_not_found_with_its_group(api: RawApi, ns: Space):
    got = await api.get(ns.at("apps/v1", "deployments/nope"))
    assert got.body["message"] == 'deployments.apps "nope" not found'
    assert got.body["details"] == {"name": "nope", "group": "apps", "kind": "deployments"}


@pytest.mark.parametrize(
    "path",
    ["/api/v1/nothings", "/api/v1/namespaces/default/nothings/a", "/apis/apps/v9/deployments", "/api/v9/pods"],
)
async def test_an_unknown_resource_is_a_generic_not_found(api: RawApi, path: str):
    got = await api.get(path)
    assert got.status == 404
    assert got.body["message"] == "the server could not find the requested resource"
    assert got.body["reason"] == "NotFound"
    assert got.body["details"] == {}


@pytest.mark.parametrize("path", ["/apis/nothing.example/v1/things", "/nothing"])
async def test_an_unknown_path_is_the_plain_page_of_the_mux(api: RawApi, path: str):
    got = await api.get(path)
    assert (got.status, got.body) == (404, "404 page not found\n")
    assert got.headers["Content-Type"] == "text/plain; charset=utf-8"


async def test_an_object_is_got_only_in_its_namespace(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a"))
    assert (await api.get("/api/v1/namespaces/default/configmaps/a")).status == 404


async def test_a_namespaced_object_has_no_path_without_its_namespace(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a"))
    got = await api.get("/api/v1/configmaps/a")
    assert (got.status, got.body["message"]) == (404, "the server could not find the requested resource")


async def test_a_method_the_resource_has_not_is_not_allowed(api: RawApi, ns: Space):
    got = await api.request("PUT", ns.core("configmaps"), configmap("a"))
    assert (got.status, got.body["reason"]) == (405, "MethodNotAllowed")
    assert got.body["message"] == "the server does not allow this method on the requested resource"


async def test_answers_say_that_they_must_not_be_cached(api: RawApi, ns: Space):
    got = await api.get(ns.core("configmaps"))
    assert got.headers["Cache-Control"] == "no-cache, private"
    assert got.headers["Content-Type"] == "application/json"
    assert "Audit-Id" in got.headers


async def test_a_get_from_any_resource_version_sees_the_newest_object(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", {"k": "1"}))
    assert (await api.get(ns.core("configmaps/a"), resourceVersion="0")).status == 200
    assert (await api.get(ns.core("configmaps/a"), resourceVersion=made.revision)).body == made.body


async def test_an_unreadable_resource_version_is_a_bad_request(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a"))
    got = await api.get(ns.core("configmaps/a"), resourceVersion="abc")
    assert got.status == 500
    assert got.body["message"].startswith('resourceVersion: Invalid value: "abc": ')


async def test_a_resource_version_from_the_future_is_a_timeout_that_may_be_retried(api: RawApi, ns: Space):
    got = await api.get(ns.core("configmaps"), resourceVersion="999999999")
    assert (got.status, got.body["reason"]) == (504, "Timeout")
    assert got.body["message"].startswith("Timeout: Too large resource version: 999999999, current: ")
    assert got.body["details"]["retryAfterSeconds"] == 1
    assert got.causes == [("ResourceVersionTooLarge", "", "Too large resource version")]


async def test_one_object_may_be_asked_for_as_metadata_only(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a", {"k": "v"}, labels={"x": "y"}))
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    got = await api.get(ns.core("configmaps/a"), headers={"Accept": accept})
    assert (got.body["kind"], got.body["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert set(got.body) == {"kind", "apiVersion", "metadata"}
    assert got.body["metadata"]["labels"] == {"x": "y"}


async def test_yaml_is_used_when_asked_for(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a", {"k": "v"}))
    got = await api.get(ns.core("configmaps/a"), headers={"Accept": "application/yaml"})
    assert got.headers["Content-Type"] == "application/yaml"
    assert got.body.startswith("apiVersion: v1\ndata:\n  k: v\nkind: ConfigMap\n")


async def test_an_unknown_format_is_not_acceptable(api: RawApi, ns: Space):
    got = await api.get(ns.core("configmaps"), headers={"Accept": "text/html"})
    assert (got.status, got.body["reason"]) == (406, "NotAcceptable")
    assert got.body["message"].startswith(
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml,"
    )


async def test_a_deployment_generation_follows_its_spec_only(api: RawApi, ns: Space):
    path = ns.at("apps/v1", "deployments/web")
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    labelled = await api.patch(path, {"metadata": {"labels": {"a": "b"}}})
    assert labelled.body["metadata"]["generation"] == 1
    scaled = await api.patch(path, {"spec": {"replicas": 4}})
    assert scaled.body["metadata"]["generation"] == 2
