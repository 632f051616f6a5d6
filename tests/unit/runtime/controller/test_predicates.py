from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import ConfigError
from steersman.kube.api.objects import ObjectMeta, OwnerReference, Resource, Struct, to_wire
from steersman.kube.api.selectors import Selector
from steersman.runtime.controller.predicates import (
    Predicate,
    always,
    annotation,
    created,
    deleted,
    deletion_started,
    finalizers,
    generation,
    label,
    labels,
    owners,
    resource_version,
    selected,
    spec,
    status,
)


class Template(Struct):
    image: str = ""
    pull_policy: str = ""


class AppSpec(Struct):
    replicas: int = 1
    template: Template | None = None
    extra: dict[str, Any] | None = None


class AppStatus(Struct):
    ready_pods: int = 0


class App(Resource, group="example.org", version="v1"):
    spec: AppSpec | None = None
    status: AppStatus | None = None


def app(*, spec: AppSpec | None = None, status: AppStatus | None = None, **meta: Any) -> App:
    fields = {"name": "web", "uid": "u1", "generation": 1, "resource_version": "7", **meta}
    return App(metadata=ObjectMeta(**fields), spec=spec, status=status)


CHANGES = [
    (generation, {"generation": 2}),
    (generation, {"deletion_timestamp": "2026-01-01T00:00:00Z"}),
    (resource_version, {"resource_version": "8"}),
    (labels, {"labels": {"a": "1"}}),
    (label("a"), {"labels": {"a": "1"}}),
    (annotation("a"), {"annotations": {"a": "1"}}),
    (annotation(), {"annotations": {"a": "1"}}),
    (finalizers, {"finalizers": ["example.org/x"]}),
    (owners, {"owner_references": [OwnerReference(api_version="v1", kind="Pod", name="p", uid="u9")]}),
    (deletion_started, {"deletion_timestamp": "2026-01-01T00:00:00Z"}),
    (spec(), {"spec": AppSpec(replicas=2)}),
    (spec("replicas"), {"spec": AppSpec(replicas=2)}),
    (spec("template.image"), {"spec": AppSpec(template=Template(image="b"))}),
    (spec("template.pullPolicy"), {"spec": AppSpec(template=Template(pull_policy="Always"))}),
    (status("readyPods"), {"status": AppStatus(ready_pods=1)}),
]
IDS = [f"{predicate} {[*change]}" for predicate, change in CHANGES]


@pytest.mark.parametrize(("predicate", "change"), CHANGES, ids=IDS)
def test_a_predicate_notices_its_own_change_and_no_other(predicate: Predicate, change: dict[str, Any]) -> None:
    assert predicate(app(), app(**change))
    assert not predicate(app(), app())
    unrelated = {"generate_name": "x-", "creation_timestamp": "2026-01-01T00:00:00Z"}
    assert not predicate(app(), app(**unrelated))


@pytest.mark.parametrize(("predicate", "change"), CHANGES, ids=IDS)
def test_plain_dicts_and_structs_get_the_same_answers(predicate: Predicate, change: dict[str, Any]) -> None:
    def untyped(obj: App) -> dict[str, Any]:
        wire = to_wire(obj)
        return {**wire, "status": wire.get("status") or {}}

    assert predicate(untyped(app()), untyped(app(**change)))
    assert not predicate(untyped(app()), untyped(app()))


@pytest.mark.parametrize("predicate", [p for p, _ in CHANGES if p is not deletion_started], ids=str)
def test_creations_and_deletions_are_changes(predicate: Predicate) -> None:
    assert predicate(None, app())
    assert predicate(app(), None)


@pytest.mark.parametrize("predicate", [p for p, _ in CHANGES if p is not deletion_started], ids=str)
def test_an_object_recreated_with_the_same_generation_is_a_change(predicate: Predicate) -> None:
    assert predicate(app(), app(uid="u2"))


def test_kinds_without_a_generation_change_with_their_resource_version() -> None:
    assert generation(app(generation=0), app(generation=0, resource_version="8"))
    assert not generation(app(generation=0), app(generation=0))
    assert not generation(app(), app(resource_version="8"))


def test_only_the_named_labels_and_annotations_count() -> None:
    assert not label("b")(app(labels={"a": "1"}), app(labels={"a": "2"}))
    assert label("b")(app(labels={"b": "1"}), app())
    assert not annotation("b")(app(annotations={"a": "1"}), app())
    assert annotation("a", "b")(app(annotations={"b": "1"}), app())


def test_missing_and_empty_labels_are_the_same() -> None:
    assert not labels(app(labels={}), app(labels=None))
    assert not annotation()(app(annotations=None), app(annotations={}))


@pytest.mark.parametrize(
    ("old", "new", "answer"),
    [
        (None, app(), False),
        (None, app(deletion_timestamp="t"), True),
        (app(), None, True),
        (app(deletion_timestamp="t"), app(deletion_timestamp="t"), False),
        (app(deletion_timestamp="t"), None, False),
    ],
)
def test_deletion_starts_once(old: App | None, new: App | None, answer: bool) -> None:
    assert deletion_started(old, new) is answer


def test_created_and_deleted_say_exactly_that() -> None:
    for old, new in itertools.product([None, app()], repeat=2):
        assert created(old, new) is (old is None and new is not None)
        assert deleted(old, new) is (old is not None and new is None)
        assert always(old, new)


def test_an_object_that_enters_or_leaves_a_selection_is_noticed() -> None:
    web = selected(Selector.parse("app=web"))
    assert web(app(), app(labels={"app": "web"}))
    assert web(app(labels={"app": "web"}), app())
    assert web(app(labels={"app": "web"}), None)
    assert not web(app(), app(labels={"app": "db"}))
    assert not web(None, app())


@given(st.booleans(), st.booleans(), st.booleans())
def test_combinations_follow_logic(a: bool, b: bool, c: bool) -> None:
    p, q, r = (Predicate(name, lambda _o, _n, value=value: value) for name, value in zip("pqr", (a, b, c), strict=True))
    assert (p | q & r)(None, None) is (a or (b and c))
    assert (~(p | q))(None, None) is (not a and not b)
    assert (~p & ~q)(None, None) is (~(p | q))(None, None)


def test_a_predicate_prints_as_it_is_written() -> None:
    assert str(generation | labels | annotation("x")) == "generation | labels | annotation(x)"
    assert str(generation & (labels | status("a", "b"))) == "generation & (labels | status(a, b))"
    assert str(~(generation | labels)) == "~(generation | labels)"
    assert repr(~generation) == "<Predicate ~generation>"
    assert str(selected(Selector.parse("app=web"))) == "selected(app=web)"


@pytest.mark.parametrize(
    ("predicate", "hint"),
    [
        (status("readyPod"), "App has no field status.readyPod (did you mean readyPods?)"),
        (generation | ~spec("template.imagee"), "App has no field spec.template.imagee (did you mean image?)"),
        (labels & status("zzz"), "App has no field status.zzz (it has readyPods)"),
    ],
)
def test_a_path_that_no_object_can_have_is_refused_with_a_hint(predicate: Predicate, hint: str) -> None:
    with pytest.raises(ConfigError, match="has no field") as error:
        predicate.check(App)
    assert error.value.message == hint


def test_paths_that_could_exist_are_accepted() -> None:
    for predicate in (generation, spec("extra.anything.below"), status("ready_pods"), spec("template.image"), ~labels):
        predicate.check(App)
    status("whatever").check(App.KIND)
