"""Paths, query parameters, media types and bodies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.apiserver.http.requests import ListOptions, Media, Query, negotiate, route, verb_of
from steersman.apiserver.resources.kinds import BUILTINS
from steersman.apiserver.resources.registry import Registry
from steersman.apiserver.status_errors import StatusError
from steersman.apiserver.storage.selection import Selection
from steersman.apiserver.storage.store import Record
from steersman.apiserver.write.decoding import duplicate_fields, parse_json, parse_yaml

REGISTRY = Registry()


@pytest.mark.parametrize(
    ("path", "plural", "namespace", "name", "subresource"),
    [
        ("/api/v1/configmaps", "configmaps", "", "", ""),
        ("/api/v1/namespaces/shop/configmaps", "configmaps", "shop", "", ""),
        ("/api/v1/namespaces/shop/configmaps/", "configmaps", "shop", "", ""),
        ("/api/v1/namespaces/shop/configmaps/a%3Ab", "configmaps", "shop", "a:b", ""),
        ("/api/v1/namespaces", "namespaces", "", "", ""),
        ("/api/v1/namespaces/shop", "namespaces", "", "shop", ""),
        ("/api/v1/namespaces/shop/status", "namespaces", "", "shop", "status"),
        ("/api/v1/namespaces/shop/finalize", "namespaces", "", "shop", "finalize"),
        ("/apis/apps/v1/namespaces/shop/deployments/web/scale", "deployments", "shop", "web", "scale"),
        ("/api/v1/watch/namespaces/shop/pods/a", "pods", "shop", "a", ""),
    ],
)
def test_a_path_names_a_resource(path: str, plural: str, namespace: str, name: str, subresource: str):
    found = route(REGISTRY, path)
    assert (found.info.kind.plural, found.namespace, found.name, found.subresource) == (
        plural,
        namespace,
        name,
        subresource,
    )
    assert found.watch is ("/watch/" in path)


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/api/v1/namespaces/shop/foos", False),
        ("/api/v1/configmaps/a", False),
        ("/api/v1/namespaces/shop/nodes", False),
        ("/api/v1/namespaces/shop/configmaps/a/scale", False),
        ("/apis/apps/v1/namespaces/shop/deployments/a/b/c", False),
        ("/apis/apps/v9/deployments", False),
        ("/apis/nope.example.org/v1/things", True),
    ],
)
def test_a_path_of_nothing_is_404_as_a_status_where_the_group_is_served_and_as_text_elsewhere(path: str, plain: bool):
    with pytest.raises(StatusError) as error:
        route(REGISTRY, path)
    assert error.value.code == 404
    assert (error.value.text is not None) is plain


@pytest.mark.parametrize(
    ("method", "path", "query", "verb"),
    [
        ("GET", "/api/v1/pods", "", "list"),
        ("GET", "/api/v1/pods", "watch=1", "watch"),
        ("GET", "/api/v1/pods", "watch=anything", "watch"),
        ("GET", "/api/v1/pods", "watch=0", "list"),
        ("GET", "/api/v1/pods", "watch=False", "list"),
        ("GET", "/api/v1/namespaces/a/pods/b", "watch=1", "get"),
        ("GET", "/api/v1/watch/pods", "", "watch"),
        ("POST", "/api/v1/namespaces/a/pods", "", "create"),
        ("DELETE", "/api/v1/namespaces/a/pods", "", "deletecollection"),
        ("DELETE", "/api/v1/namespaces/a/pods/b", "", "delete"),
        ("PATCH", "/api/v1/namespaces/a/pods/b", "", "patch"),
        ("TRACE", "/api/v1/namespaces/a/pods/b", "", ""),
    ],
)
def test_method_path_and_query_make_the_verb(method: str, path: str, query: str, verb: str):
    assert verb_of(method, route(REGISTRY, path), Query(query)) == verb


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("", Media()),
        ("*/*", Media()),
        ("application/json", Media()),
        ("application/vnd.kubernetes.protobuf,application/json", Media()),
        ("application/yaml", Media(yaml=True)),
        ("application/yaml;q=0.5,application/json", Media()),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Media(view="Table")),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Media()),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Media(view="PartialObjectMetadataList")),
    ],
)
def test_the_first_usable_media_type_wins(accept: str, media: Media):
    assert negotiate(accept) == media


@pytest.mark.parametrize("accept", ["text/html", "application/vnd.kubernetes.protobuf", "application/json;as=Foo"])
def test_a_client_that_accepts_nothing_we_support_gets_406(accept: str):
    with pytest.raises(StatusError) as error:
        negotiate(accept)
    assert error.value.code == 406


@pytest.mark.parametrize(
    ("query", "watch", "fields"),
    [
        ("resourceVersionMatch=Exact", False, ["resourceVersionMatch"]),
        ("resourceVersionMatch=Exact&resourceVersion=0", False, ["resourceVersionMatch"]),
        ("resourceVersionMatch=Odd&resourceVersion=5", False, ["resourceVersionMatch"]),
        ("sendInitialEvents=true", False, ["sendInitialEvents"]),
        ("sendInitialEvents=true", True, ["resourceVersionMatch"]),
        ("resourceVersionMatch=NotOlderThan", True, ["resourceVersionMatch"]),
    ],
)
def test_options_that_contradict_each_other_are_invalid(query: str, watch: bool, fields: list[str]):
    with pytest.raises(StatusError) as error:
        ListOptions.parse(Query(query), watch=watch)
    assert error.value.code == 422
    assert [cause["field"] for cause in error.value.status()["details"]["causes"]] == fields


# Bodies


@pytest.mark.parametrize(
    "text", [b"", b"{bad", b"x", b'{"a" 1}', b"[1 2]", b'{"a":"\n"}', b"{}}", b'{"a":', b"[" * 5000]
)
def test_what_is_not_json_is_refused_with_a_reason(text: bytes):
    with pytest.raises(ValueError, match="the body is "):
        parse_json(text)


texts = st.text('ab":\\\n{é', max_size=4)  # what could be taken for syntax
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(texts, json_values, max_size=4), st.booleans())
def test_a_body_without_repeated_keys_has_none_however_it_is_written(value: dict[str, Any], spaced: bool):
    text = json.dumps(value, indent=1 if spaced else None, separators=(" , ", " : ") if spaced else (",", ":"))
    assert duplicate_fields(text.encode(), json.loads(text)) == []


def test_repeated_keys_are_named_by_their_paths():
    text = b'{"a":1,"a":2,"b":{"c":1,"c":2},"d":[{"e":1,"e":1}]}'
    assert duplicate_fields(text, json.loads(text)) == ["a", "b.c", "d[0].e"]


def test_yaml_is_read_as_json_would_hold_it():
    assert parse_yaml(b"a: 2024-01-02\n2: x\ntrue: y\n") == {"a": "2024-01-02", "2": "x", "true": "y"}


# Selections


def _record(**more: Any) -> Record:
    metadata = {"name": "a", "namespace": "ns", "labels": {"app": "web"}}
    return Record("ns/a", 5, {"metadata": metadata, **more})


@pytest.mark.parametrize(
    ("plural", "fields", "obj", "matches"),
    [
        ("pods", "spec.nodeName=n1", {"spec": {"nodeName": "n1"}}, True),
        ("pods", "spec.nodeName!=n1", {"spec": {}}, True),
        ("pods", "spec.nodeName=", {"spec": {}}, True),
        ("pods", "spec.hostNetwork=false", {"spec": {}}, True),
        ("pods", "status.phase=Running,metadata.name=a", {"status": {"phase": "Running"}}, True),
        ("secrets", "type=Opaque", {"type": "kubernetes.io/tls"}, False),
        ("events", "involvedObject.name=x", {"involvedObject": {"name": "x"}}, True),
        ("events", "source=kubelet", {"source": {"component": "kubelet"}}, True),
        ("configmaps", "metadata.namespace=ns", {}, True),
    ],
)
def test_fields_select(plural: str, fields: str, obj: dict[str, Any], matches: bool):
    info = next(info for info in BUILTINS if info.kind.plural == plural)
    assert Selection.parse(info, "", "", fields).matches(_record(**obj)) is matches


@pytest.mark.parametrize(
    ("plural", "fields", "message"),
    [
        ("pods", "spec.x=1", "field label not supported: spec.x (supported: metadata.name, metadata.namespace, spec."),
        ("jobs", "spec.x=1", "field label not supported: spec.x"),
        ("configmaps", "data.a=1", "field label not supported: data.a (supported: metadata.name, metadata.namespace)"),
        ("nodes", "metadata.namespace=a", "field label not supported: metadata.namespace"),
        ("configmaps", "xx", "invalid selector: 'xx'; can't understand 'xx'"),
    ],
)
def test_fields_that_cannot_be_selected_by_are_refused_with_those_that_can(plural: str, fields: str, message: str):
    info = next(info for info in BUILTINS if info.kind.plural == plural)
    with pytest.raises(StatusError) as error:
        Selection.parse(info, "", "", fields)
    assert error.value.code == 400
    assert error.value.message.startswith(message)


def test_equal_questions_have_equal_labels_and_others_do_not():
    info = next(info for info in BUILTINS if info.kind.plural == "pods")
    one = Selection.parse(info, "ns", "a=b,c=d", "")
    same = Selection.parse(info, "ns", "c=d,a=b", "")
    other = Selection.parse(info, "ns", "a=b", "")
    assert one.label == same.label != other.label
