"""What an author set is sent, though it is the default; what was never mentioned is not."""

from __future__ import annotations

import copy
import pickle
import sys

import msgspec
import pytest

import steersman as sm
from steersman.kube.api.field_presence import replace, set_to_default
from steersman.kube.api.objects import ObjectMeta, Resource, Struct, decode, to_wire


class Probe(Struct):
    period: int = 10
    path: str = "/"


class Limits(Struct, frozen=True):
    cpu: str = "1"


class Spec(Struct):
    image: str
    replicas: int = 1
    paused: bool = False
    strategy: str = "RollingUpdate"
    size: int | None = None
    args: list[str] = msgspec.field(default_factory=list)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    names: tuple[str, ...] = ()
    weights: list[int] = msgspec.field(default_factory=lambda: [1, 2])
    probe: Probe = Probe()
    slow: Probe = Probe(period=60)
    probes: dict[str, Probe] | None = None
    steps: list[Probe] | None = None
    limits: Limits = Limits()


class App(Resource, group="example.org", version="v1"):
    spec: Spec | None = None
    status: Probe = msgspec.field(default_factory=Probe)


class Sized(Spec):
    disk: int = 5


def sent(**fields):
    return to_wire(App(metadata=ObjectMeta(name="a"), spec=Spec(image="web", **fields)))["spec"]


def test_a_field_that_was_never_mentioned_is_not_sent():
    assert sent() == {"image": "web"}
    assert to_wire(App(metadata=ObjectMeta(name="a"))) == {
        "apiVersion": "example.org/v1",
        "kind": "App",
        "metadata": {"name": "a"},
    }


@pytest.mark.parametrize(
    ("fields", "wire"),
    [
        ({"replicas": 1}, {"replicas": 1}),
        ({"paused": False}, {"paused": False}),
        ({"args": []}, {"args": []}),
        ({"labels": {}}, {"labels": {}}),
        ({"names": ()}, {"names": []}),
        ({"weights": [1, 2]}, {"weights": [1, 2]}),
        ({"probe": Probe()}, {"probe": {}}),
        ({"probe": Probe(period=10)}, {"probe": {"period": 10}}),
        ({"slow": Probe(period=60)}, {"slow": {"period": 60}}),
        ({"probes": {"live": Probe(path="/")}}, {"probes": {"live": {"path": "/"}}}),
        ({"steps": [Probe(), Probe(period=10)]}, {"steps": [{}, {"period": 10}]}),
        ({"limits": Limits(cpu="1")}, {"limits": {"cpu": "1"}}),
        ({"size": None}, {}),
    ],
)
def test_a_field_that_was_set_is_sent_though_it_is_the_default(fields, wire):
    assert msgspec.json.decode(msgspec.json.encode(sent(**fields))) == {"image": "web", **wire}


def test_an_assignment_sets_a_field_as_the_constructor_does():
    spec = Spec(image="web", paused=False)
    spec.replicas = 1
    spec.probe.path = "/"
    spec.paused = True
    spec.size = None
    assert to_wire(App(spec=spec))["spec"] == {
        "image": "web",
        "replicas": 1,
        "paused": True,
        "probe": {"path": "/"},
    }
    spec.paused = False
    assert to_wire(App(spec=spec))["spec"]["paused"] is False


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda spec: pickle.loads(pickle.dumps(spec))])
def test_a_copy_has_set_what_its_original_has(copied):
    made = copied(Spec(image="web", replicas=1, probe=Probe(period=10)))
    assert to_wire(App(spec=made))["spec"] == {"image": "web", "replicas": 1, "probe": {"period": 10}}


def test_replacing_a_field_keeps_what_was_set_and_sets_what_is_replaced():
    spec = replace(Spec(image="web", replicas=1), paused=False)
    assert to_wire(App(spec=spec))["spec"] == {"image": "web", "replicas": 1, "paused": False}
    assert to_wire(App(spec=replace(spec, replicas=3)))["spec"] == {"image": "web", "replicas": 3, "paused": False}
    assert sm.replace is replace


def test_a_subclass_remembers_its_own_fields_and_those_it_inherits():
    assert to_wire(App(spec=Sized(image="web", disk=5, replicas=1)))["spec"] == {
        "image": "web",
        "replicas": 1,
        "disk": 5,
    }


def test_what_a_manifest_mentions_is_set():
    manifest = {"metadata": {"name": "a"}, "spec": {"image": "web", "replicas": 1, "steps": [{"period": 10}, {}]}}
    assert to_wire(decode(msgspec.json.encode(manifest), App)) == {
        "apiVersion": "example.org/v1",
        "kind": "App",
        **manifest,
    }


def test_what_was_set_is_neither_compared_nor_shown():
    assert Spec(image="web", replicas=1) == Spec(image="web")
    assert repr(Spec(image="web", replicas=1)) == repr(Spec(image="web"))
    assert hash(Limits(cpu="1")) == hash(Limits())


def test_an_empty_name_in_metadata_is_none():
    meta = ObjectMeta(name="a", namespace="", uid="", resource_version="", generation=0)
    assert to_wire(App(metadata=meta))["metadata"] == {"name": "a"}


def test_a_frozen_struct_stays_frozen_and_an_unknown_field_an_error():
    with pytest.raises(AttributeError, match="immutable"):
        Limits().cpu = "2"
    with pytest.raises(AttributeError, match="replcias"):
        Spec(image="web").replcias = 3  # type: ignore[attr-defined]


def test_a_decoded_struct_remembers_nothing_and_costs_one_pointer():
    class Plain(msgspec.Struct, kw_only=True, gc=False):
        period: int = 10
        path: str = "/"

    decoded = msgspec.json.decode(b'{"period": 10}', type=Probe)
    assert set_to_default(decoded) == ()
    assert sys.getsizeof(decoded) - sys.getsizeof(Plain()) == 8
