from __future__ import annotations

import copy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.kube.api.objects import Resource, Struct
from steersman.kube.client.three_way import explicit, rebase_change


class Port(Struct):
    container_port: int
    name: str | None = None


class Container(Struct):
    name: str
    image: str = ""
    tty: bool = False
    ports: list[Port] | None = None


class Spec(Struct):
    containers: list[Container] = msgspec.field(default_factory=list)
    replicas: int = 1
    args: list[str] | None = None


class Thing(Resource, group="example.org", version="v1"):
    spec: Spec = msgspec.field(default_factory=Spec)


WHOLE = {
    "apiVersion": "example.org/v1",
    "kind": "Thing",
    "metadata": {"name": "t", "labels": {"a": "1"}, "selfLink": "kept"},
    "spec": {
        "replicas": 3,
        "paused": True,
        "args": ["x", "y"],
        "containers": [
            {"name": "a", "image": "a:1", "resources": {"cpu": 1}, "ports": [{"containerPort": 80, "hostPort": 8080}]},
            {"name": "b", "image": "b:1", "resources": {"cpu": 2}},
        ],
    },
}


def changed(change):
    thing = msgspec.convert(WHOLE, Thing)
    before = explicit(thing)
    change(thing)
    given = copy.deepcopy(WHOLE)
    result = rebase_change(given, before, explicit(thing))
    assert given == WHOLE, "the whole object is not changed in place"
    return result


def expected(change):
    whole = copy.deepcopy(WHOLE)
    change(whole)
    return whole


CHANGES = {
    "nothing": (lambda t: None, lambda w: None),
    "a value": (lambda t: setattr(t.spec, "replicas", 5), lambda w: w["spec"].update(replicas=5)),
    "a value set to the struct's default is written out, not removed": (
        lambda t: setattr(t.spec, "replicas", 1),
        lambda w: w["spec"].update(replicas=1),
    ),
    "a value set to None is removed": (lambda t: setattr(t.spec, "args", None), lambda w: w["spec"].pop("args")),
    "a field in a list element keeps its neighbours": (
        lambda t: setattr(t.spec.containers[0], "image", "a:2"),
        lambda w: w["spec"]["containers"][0].update(image="a:2"),
    ),
    "a reordered list takes its elements along": (
        lambda t: t.spec.containers.reverse(),
        lambda w: w["spec"]["containers"].reverse(),
    ),
    "a removed element": (lambda t: t.spec.containers.pop(0), lambda w: w["spec"]["containers"].pop(0)),
    "a new element in front": (
        lambda t: t.spec.containers.insert(0, Container(name="n", image="n:1")),
        lambda w: w["spec"]["containers"].insert(0, {"name": "n", "image": "n:1", "tty": False}),
    ),
    "a list in a list element": (
        lambda t: setattr(t.spec.containers[0].ports[0], "name", "http"),
        lambda w: w["spec"]["containers"][0]["ports"][0].update(name="http"),
    ),
    "a list of plain values": (lambda t: t.spec.args.append("z"), lambda w: w["spec"]["args"].append("z")),
    "an entry of a map": (
        lambda t: t.metadata.labels.update(b="2"),
        lambda w: w["metadata"]["labels"].update(b="2"),
    ),
    "an entry removed from a map": (
        lambda t: t.metadata.labels.pop("a"),
        lambda w: w["metadata"]["labels"].pop("a"),
    ),
    "a map that was not there": (
        lambda t: setattr(t.metadata, "annotations", {"k": "v"}),
        lambda w: w["metadata"].update(annotations={"k": "v"}),
    ),
}


@pytest.mark.parametrize(("change", "same"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_carried_over_and_nothing_else_moves(change, same):
    assert changed(change) == expected(same)


def test_elements_without_a_name_are_distinguished_by_their_place():
    whole = [{"path": "/a", "secret": 1}, {"path": "/b", "secret": 2}]
    before, after = [{"path": "/a"}, {"path": "/b"}], [{"path": "/a"}, {"path": "/c"}]
    assert rebase_change(whole, before, after) == [{"path": "/a", "secret": 1}, {"path": "/c", "secret": 2}]


def test_elements_without_a_name_that_only_moved_keep_what_is_theirs():
    whole = [{"path": "/a", "secret": 1}, {"path": "/b", "secret": 2}]
    before, after = [{"path": "/a"}, {"path": "/b"}], [{"path": "/b"}]
    assert rebase_change(whole, before, after) == [{"path": "/b", "secret": 2}]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_no_change_is_not_a_change(value):
    assert rebase_change(value, value, value) == value


@given(values, values)
def test_when_everything_is_named_the_result_is_what_was_asked_for(before, after):
    assert rebase_change(copy.deepcopy(before), before, after) == after
