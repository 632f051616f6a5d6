"""Lists: pages, revisions, selectors, tables and metadata."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest

from tests.support.manifests import configmap, deployment, pod, secret

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi
    from tests.support.manifests import Space

ACCEPT_TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
ACCEPT_METADATA = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}


async def fill(api: RawApi, ns: Space, *names: str) -> None:
    """Secrets, because nobody else puts one into a new namespace."""
    for name in names:
        made = await api.post(ns.core("secrets"), secret(name, labels={"name": name}))
        assert made.status == 201


async def test_a_list_has_its_own_kind_and_resource_version_and_items_without_kind(api: RawApi, ns: Space):
    await fill(api, ns, "a")
    got = await api.get(ns.core("secrets"))
    assert (got.status, got.body["kind"], got.body["apiVersion"]) == (200, "SecretList", "v1")
    assert set(got.body["metadata"]) == {"resourceVersion"}
    (item,) = got.body["items"]
    assert set(item) == {"metadata", "type"}


async def test_an_empty_list_has_an_empty_list_of_items(api: RawApi, ns: Space):
    assert (await api.get(ns.core("secrets"))).body["items"] == []


async def test_items_come_in_the_order_of_their_names(api: RawApi, ns: Space):
    await fill(api, ns, "c", "a", "b-2", "b-10")
    assert (await api.get(ns.core("secrets"))).names == ["a", "b-10", "b-2", "c"]


async def test_all_namespaces_are_listed_together(api: RawApi, ns: Space):
    await api.post(ns.core("secrets"), secret("a", labels={"across": ns}))
    assert (await api.get("/api/v1/secrets", labelSelector=f"across={ns}")).names == ["a"]


async def test_pages_continue_where_the_last_one_ended(api: RawApi, ns: Space):
    await fill(api, ns, "a", "b", "c", "d", "e")
    first = await api.get(ns.core("secrets"), limit=2)
    assert (first.names, first.body["metadata"]["remainingItemCount"]) == (["a", "b"], 3)
    second = await api.get(ns.core("secrets"), limit=2, continue_=first.body["metadata"]["continue"])
    assert (second.names, second.body["metadata"]["remainingItemCount"]) == (["c", "d"], 1)
    third = await api.get(ns.core("secrets"), limit=2, continue_=second.body["metadata"]["continue"])
    assert third.names == ["e"]
    assert set(third.body["metadata"]) == {"resourceVersion"}


async def test_all_pages_show_the_resource_version_of_the_first(api: RawApi, ns: Space):
    await fill(api, ns, "a", "c", "d")
    first = await api.get(ns.core("secrets"), limit=1)
    await fill(api, ns, "b")
    await api.delete(ns.core("secrets/d"))
    rest = await api.get(ns.core("secrets"), continue_=first.body["metadata"]["continue"])
    assert rest.names == ["c", "d"]
    assert rest.revision == first.revision


async def test_a_selected_page_does_not_count_the_rest(api: RawApi, ns: Space):
    await fill(api, ns, "a", "b", "c")
    got = await api.get(ns.core("secrets"), limit=1, labelSelector="name!=b")
    assert got.names == ["a"]
    assert set(got.body["metadata"]) == {"resourceVersion", "continue"}


async def test_a_limit_that_holds_everything_has_no_continue(api: RawApi, ns: Space):
    await fill(api, ns, "a", "b")
    assert set((await api.get(ns.core("secrets"), limit=2)).body["metadata"]) == {"resourceVersion"}


@pytest.mark.parametrize(
    "token", ["nonsense", base64.urlsafe_b64encode(b'{"v":"meta.k8s.io/v1"}').decode().rstrip("=")]
)
async def test_a_broken_continue_token_is_a_bad_request(api: RawApi, ns: Space, token: str):
    got = await api.get(ns.core("secrets"), limit=1, continue_=token)
    assert (got.status, got.body["reason"]) == (400, "BadRequest")
    assert got.body["message"].startswith("invalid continue token: continue key is not valid: ")


async def test_a_continue_token_is_the_key_to_start_from(api: RawApi, ns: Space):
    await fill(api, ns, "a", "b")
    got = await api.get(ns.core("secrets"), limit=1)
    token = got.body["metadata"]["continue"]
    decoded = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert decoded == {"v": "meta.k8s.io/v1", "rv": int(got.revision), "start": "/a\u0000"}


async def test_continue_and_resource_version_exclude_each_other(api: RawApi, ns: Space):
    await fill(api, ns, "a", "b")
    first = await api.get(ns.core("secrets"), limit=1)
    got = await api.get(
        ns.core("secrets"), limit=1, continue_=first.body["metadata"]["continue"], resourceVersion=first.revision
    )
    assert got.status == 400
    assert got.body["message"] == "specifying resource version is not allowed when using continue"


# Revisions


async def test_an_exact_resource_version_shows_the_past(api: RawApi, ns: Space):
    await fill(api, ns, "a")
    then = await api.get(ns.core("secrets"))
    await fill(api, ns, "b")
    got = await api.get(ns.core("secrets"), resourceVersion=then.revision, resourceVersionMatch="Exact")
    assert (got.names, got.revision) == (["a"], then.revision)


async def test_not_older_than_shows_at_least_that_resource_version(api: RawApi, ns: Space):
    await fill(api, ns, "a")
    then = await api.get(ns.core("secrets"))
    await fill(api, ns, "b")
    now = await api.get(ns.core("secrets"))
    got = await api.get(ns.core("secrets"), resourceVersion=now.revision, resourceVersionMatch="NotOlderThan")
    assert got.names == ["a", "b"]
    assert int(got.revision) >= int(then.revision)


async def test_zero_shows_anything_the_server_has(api: RawApi, ns: Space):
    await fill(api, ns, "a")
    newest = await api.get(ns.core("secrets"))
    got = await api.get(ns.core("secrets"), resourceVersion="0")
    assert got.status == 200
    assert int(got.revision) <= int(newest.revision) + 1000


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            {"resourceVersionMatch": "Exact"},
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            'resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
        ),
        (
            {"resourceVersionMatch": "Nearly", "resourceVersion": "1"},
            'resourceVersionMatch: Unsupported value: "Nearly": supported values: "Exact", "NotOlderThan", ""',
        ),
        (
            {"sendInitialEvents": "true"},
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
        ),
    ],
)
async def test_wrong_list_options_are_refused(api: RawApi, ns: Space, query: dict[str, str], message: str):
    got = await api.get(ns.core("secrets"), **query)
    assert got.status == 422
    assert got.body["message"] == f'ListOptions.meta.k8s.io "" is invalid: {message}'


async def test_a_resource_version_that_is_not_a_number_is_a_bad_request(api: RawApi, ns: Space):
    got = await api.get(ns.core("secrets"), resourceVersion="abc")
    assert (got.status, got.body["reason"]) == (400, "BadRequest")
    assert got.body["message"].startswith('invalid resource version: resourceVersion: Invalid value: "abc"')


# Selectors


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=web", ["a", "b"]),
        ("app==web", ["a", "b"]),
        ("app!=web", ["c", "d"]),
        ("app", ["a", "b", "c"]),
        ("!app", ["d"]),
        ("app in (web, db)", ["a", "b", "c"]),
        ("app notin (web)", ["c", "d"]),
        ("app=web,tier=front", ["a"]),
        ("tier,app in (web)", ["a", "b"]),
        ("tier=", ["b"]),
        ("weight>3", ["a"]),
        ("weight<3", ["b"]),
        ("", ["a", "b", "c", "d"]),
        (" app = web , tier ", ["a", "b"]),
    ],
)
async def test_label_selectors_select(api: RawApi, ns: Space, selector: str, names: list[str]):
    labels = {
        "a": {"app": "web", "tier": "front", "weight": "5"},
        "b": {"app": "web", "tier": "", "weight": "1"},
        "c": {"app": "db"},
        "d": {},
    }
    for name, its in labels.items():
        await api.post(ns.core("secrets"), secret(name, labels=its))
    assert (await api.get(ns.core("secrets"), labelSelector=selector)).names == names


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("=", "found '=', expected: !, identifier, or 'end of string'"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("x/y/z=1", 'unable to parse requirement: <nil>: Invalid value: "x/y/z": a valid label key must'),
    ],
)
async def test_a_label_selector_that_cannot_be_read_is_a_bad_request(
    api: RawApi, ns: Space, selector: str, message: str
):
    got = await api.get(ns.core("secrets"), labelSelector=selector)
    assert (got.status, got.body["reason"]) == (400, "BadRequest")
    assert got.body["message"].startswith(message)


async def test_field_selectors_select_by_name_namespace_and_type(api: RawApi, ns: Space):
    await fill(api, ns, "a", "b")
    assert (await api.get(ns.core("secrets"), fieldSelector="metadata.name=b")).names == ["b"]
    assert (await api.get(ns.core("secrets"), fieldSelector="metadata.name!=b")).names == ["a"]
    assert (await api.get("/api/v1/secrets", fieldSelector=f"metadata.namespace={ns}")).names == ["a", "b"]
    assert (await api.get(ns.core("secrets"), fieldSelector="type=Opaque,metadata.name==a")).names == ["a"]


async def test_pods_are_selected_by_phase_and_node(api: RawApi, pods: Space):
    await api.post(pods.core("pods"), pod("a", spec={"nodeName": "n1"}))
    await api.post(pods.core("pods"), pod("b"))
    await api.patch(pods.core("pods/a/status"), {"status": {"phase": "Running"}})
    assert (await api.get(pods.core("pods"), fieldSelector="spec.nodeName=n1")).names == ["a"]
    assert (await api.get(pods.core("pods"), fieldSelector="status.phase!=Running")).names == ["b"]
    assert (await api.get(pods.core("pods"), fieldSelector="spec.nodeName=")).names == ["b"]


async def test_a_field_the_kind_does_not_select_by_is_a_bad_request(api: RawApi, ns: Space):
    got = await api.get(ns.core("secrets"), fieldSelector="data.key=1")
    assert got.status == 400
    assert got.body["message"].startswith("field label not supported: data.key")


async def test_a_field_selector_that_cannot_be_read_is_a_bad_request(api: RawApi, ns: Space):
    got = await api.get(ns.core("secrets"), fieldSelector="metadata.name")
    assert got.status == 400
    assert "invalid selector: 'metadata.name'; can't understand 'metadata.name'" in got.body["message"]


async def test_custom_resources_are_selected_by_name(api: RawApi, ns: Space, widgets: str):
    path = ns.at(f"{widgets}/v1", "widgets")
    for name in ("a", "b"):
        await api.post(path, {"apiVersion": f"{widgets}/v1", "kind": "Widget", "metadata": {"name": name}})
    assert (await api.get(path, fieldSelector="metadata.name=b")).names == ["b"]
    assert (await api.get(path, fieldSelector="spec.size=1")).status == 400


# Other shapes


async def test_a_list_as_metadata_has_metadata_only(api: RawApi, ns: Space):
    await api.post(ns.core("secrets"), secret("a", {"k": "v"}, labels={"x": "y"}))
    got = await api.get(ns.core("secrets"), headers=ACCEPT_METADATA)
    assert (got.body["kind"], got.body["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    (item,) = got.body["items"]
    assert (item["kind"], item["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert set(item) == {"kind", "apiVersion", "metadata"}
    assert item["metadata"]["labels"] == {"x": "y"}


async def test_a_table_has_columns_cells_and_partial_objects(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a", {"k": "v"}))
    got = await api.get(ns.core("configmaps"), headers=ACCEPT_TABLE, fieldSelector="metadata.name=a")
    assert (got.body["kind"], got.body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [column["name"] for column in got.body["columnDefinitions"]] == ["Name", "Data", "Age"]
    (row,) = got.body["rows"]
    assert row["cells"][:2] == ["a", 1]
    assert (row["object"]["kind"], row["object"]["metadata"]["name"]) == ("PartialObjectMetadata", "a")


async def test_a_table_of_deployments_has_the_columns_kubectl_shows(api: RawApi, ns: Space):
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    got = await api.get(ns.at("apps/v1", "deployments"), headers=ACCEPT_TABLE)
    assert [(column["name"], column["priority"]) for column in got.body["columnDefinitions"]] == [
        ("Name", 0),
        ("Ready", 0),
        ("Up-to-date", 0),
        ("Available", 0),
        ("Age", 0),
        ("Containers", 1),
        ("Images", 1),
        ("Selector", 1),
    ]
    cells = got.body["rows"][0]["cells"]
    assert cells[:4] + cells[5:] == ["web", "0/1", 0, 0, "main", "registry.example/app:1", "app=web"]


@pytest.mark.parametrize(("include", "has"), [("None", False), ("Object", True), ("Metadata", True)])
async def test_include_object_says_what_rows_carry(api: RawApi, ns: Space, include: str, has: bool):
    await api.post(ns.core("secrets"), secret("a", {"k": "v"}))
    got = await api.get(ns.core("secrets"), headers=ACCEPT_TABLE, includeObject=include)
    (row,) = got.body["rows"]
    assert (row["object"] is not None) is has
    if include == "Object":
        assert row["object"]["data"] == {"k": "dg=="}


async def test_a_table_of_one_object_is_a_table_too(api: RawApi, ns: Space):
    await api.post(ns.core("secrets"), secret("a", {"k": "v"}))
    got = await api.get(ns.core("secrets/a"), headers=ACCEPT_TABLE)
    assert (got.body["kind"], got.body["rows"][0]["cells"][:3]) == ("Table", ["a", "Opaque", 1])
