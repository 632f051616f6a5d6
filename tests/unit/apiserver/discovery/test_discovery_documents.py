from __future__ import annotations

from typing import Any

import pytest

from steersman.apiserver.discovery import documents
from steersman.apiserver.resources.registry import Registry

NOW = "2026-01-01T00:00:00Z"


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    served = {"served": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    scale = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}
    definition: dict[str, Any] = {
        "metadata": {"name": "widgets.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {
                "plural": "widgets",
                "singular": "widget",
                "kind": "Widget",
                "listKind": "WidgetList",
                "shortNames": ["wd"],
                "categories": ["all"],
            },
            "versions": [
                {"name": "v1beta1", "storage": False, **served},
                {"name": "v1", "storage": True, "subresources": {"scale": scale, "status": {}}, **served},
            ],
        },
    }
    registry.install(definition, now=NOW)
    return registry


# The four documents below are what a real server answered for this definition.
CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]


def test_a_group_lists_its_versions_with_the_preferred_one_first(registry: Registry) -> None:
    v1, beta = ({"groupVersion": f"example.org/{version}", "version": version} for version in ("v1", "v1beta1"))
    expected = {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": "example.org",
        "versions": [v1, beta],
        "preferredVersion": v1,
    }
    assert documents.group(registry, "example.org") == expected
    assert documents.group_list(registry)["groups"][-1] == {
        k: v for k, v in expected.items() if k not in {"kind", "apiVersion"}
    }


def test_the_resources_of_a_custom_version_are_listed_as_the_real_server_lists_them(registry: Registry) -> None:
    scale = {"group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"]}
    assert documents.resource_list(registry, "example.org", "v1") == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "example.org/v1",
        "resources": [
            {
                "name": "widgets",
                "singularName": "widget",
                "namespaced": True,
                "kind": "Widget",
                "verbs": CUSTOM_VERBS,
                "shortNames": ["wd"],
                "categories": ["all"],
                "storageVersionHash": "UBpgYKpyMCc=",
            },
            {
                "name": "widgets/status",
                "singularName": "",
                "namespaced": True,
                "kind": "Widget",
                "verbs": ["get", "patch", "update"],
            },
            {"name": "widgets/scale", "singularName": "", "namespaced": True, **scale},
        ],
    }


def test_the_aggregated_document_says_the_same_in_its_own_form(registry: Registry) -> None:
    mine = {"group": "example.org", "version": "v1", "kind": "Widget"}
    scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    group = documents.aggregated(registry, core=False)["items"][-1]
    assert group["metadata"] == {"name": "example.org"}
    assert [version["version"] for version in group["versions"]] == ["v1", "v1beta1"]
    assert group["versions"][0] == {
        "version": "v1",
        "resources": [
            {
                "resource": "widgets",
                "responseKind": mine,
                "scope": "Namespaced",
                "singularResource": "widget",
                "verbs": CUSTOM_VERBS,
                "shortNames": ["wd"],
                "categories": ["all"],
                "subresources": [
                    {"subresource": "status", "responseKind": mine, "verbs": ["get", "patch", "update"]},
                    {"subresource": "scale", "responseKind": scale, "verbs": ["get", "patch", "update"]},
                ],
            }
        ],
        "freshness": "Current",
    }


def test_the_core_group_is_alone_at_its_own_endpoint_and_nameless() -> None:
    (core,) = documents.aggregated(Registry(), core=True)["items"]
    assert core["metadata"] == {}
    pods = next(row for row in core["versions"][0]["resources"] if row["resource"] == "pods")
    assert pods["responseKind"] == {"group": "", "version": "", "kind": "Pod"}
    eviction = next(row for row in pods["subresources"] if row["subresource"] == "eviction")
    assert eviction["responseKind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
    assert documents.core_versions("127.0.0.1:1")["versions"] == ["v1"]


def test_core_resources_are_listed_without_an_api_version_as_the_real_server_does() -> None:
    listed = documents.resource_list(Registry(), "", "v1")
    assert listed is not None
    assert "apiVersion" not in listed
    assert listed["groupVersion"] == "v1"


def test_what_is_not_served_is_not_found(registry: Registry) -> None:
    assert documents.group(registry, "nowhere.org") is None
    assert documents.group(registry, "") is None
    assert documents.resource_list(registry, "example.org", "v2") is None


def test_every_group_that_is_listed_can_be_looked_up(registry: Registry) -> None:
    for group in documents.group_list(registry)["groups"]:
        for version in group["versions"]:
            assert documents.resource_list(registry, group["name"], version["version"]) is not None


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("application/json", False),
        ("*/*", False),
        ("", False),
        (documents.AGGREGATED_TYPE, True),
        (f"{documents.AGGREGATED_TYPE},application/json", True),
        (f"application/vnd.kubernetes.protobuf,{documents.AGGREGATED_TYPE}", True),
        (f"{documents.AGGREGATED_TYPE};profile=nopeer,application/json", True),
        (f"application/json,{documents.AGGREGATED_TYPE}", False),
        ("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json", False),
    ],
)
def test_the_aggregated_document_is_sent_to_those_who_ask_for_it_first(accept: str, wanted: bool) -> None:
    assert documents.wants_aggregated(accept) is wanted


def test_equal_documents_have_equal_tags_and_a_change_shows(registry: Registry) -> None:
    before = documents.aggregated_etag(documents.aggregated(registry, core=False))
    assert before == documents.aggregated_etag(documents.aggregated(registry, core=False))
    registry.uninstall("widgets.example.org", now=NOW)
    assert before != documents.aggregated_etag(documents.aggregated(registry, core=False))


def test_the_version_is_the_one_that_is_modelled() -> None:
    found = documents.version()
    assert (found["major"], found["minor"], found["gitVersion"]) == ("1", "36", "v1.36.3")
