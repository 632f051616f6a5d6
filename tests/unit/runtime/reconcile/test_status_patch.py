from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.kube.api.objects import ObjectMeta, Resource, Struct
from steersman.kube.api.patches import apply_merge_patch
from steersman.runtime.reconcile.conditions import Condition, new_condition, set_conditions
from steersman.runtime.reconcile.status_patch import status_patch


class Summary(Struct):
    total: int = 0
    failed: int = 0


class AppStatus(Struct):
    ready: bool = False
    ready_pods: int = 0
    message: str | None = None
    summary: Summary | None = None
    conditions: list[Condition] | None = None


class App(Resource, group="example.org", version="v1"):
    status: AppStatus | None = None


def app(status: AppStatus | None = None) -> App:
    return App(metadata=ObjectMeta(name="a"), status=status)


def test_only_what_differs_is_written() -> None:
    live = app(AppStatus(ready=True, ready_pods=3))
    assert status_patch(live, None, {"ready": True, "ready_pods": 3}) == {}
    assert status_patch(live, None, {"ready": True, "ready_pods": 4}) == {"readyPods": 4}


def test_fields_may_be_named_as_in_python_or_as_on_the_wire() -> None:
    assert status_patch(app(AppStatus()), None, {"readyPods": 2}) == {"readyPods": 2}
    assert status_patch({"status": {"readyPods": 2}}, None, {"readyPods": 2}) == {}


def test_the_first_status_is_written_even_when_it_says_nothing_special() -> None:
    assert status_patch(app(None), None, {"ready": False}) == {"ready": False}
    assert status_patch(app(AppStatus(ready_pods=1)), None, {"ready": False}) == {}


class Widget(Resource, group="example.org", version="v1"):
    status: AppStatus = AppStatus()


class Gadget(Resource, group="example.org", version="v1"):
    status: AppStatus = msgspec.field(default_factory=AppStatus)


@pytest.mark.parametrize("kind", [Widget, Gadget])
def test_a_status_that_a_class_makes_by_default_is_absent_until_the_server_has_one(kind) -> None:
    absent = msgspec.json.decode(b'{"metadata": {"name": "a"}}', type=kind)
    empty = msgspec.json.decode(b'{"metadata": {"name": "a"}, "status": {}}', type=kind)
    assert absent == empty
    assert status_patch(absent, None, {"ready": False}) == {"ready": False}
    assert status_patch(empty, None, {"ready": False}) == {}
    assert status_patch(kind(), None, {"ready": False}) == {"ready": False}
    assert status_patch(kind(status=AppStatus()), None, {"ready": False}) == {}


def test_a_value_that_returns_to_its_default_is_written() -> None:
    assert status_patch(app(AppStatus(ready=True)), None, {"ready": False}) == {"ready": False}
    assert status_patch(app(AppStatus(ready=True, ready_pods=2)), AppStatus(), {}) == {"ready": False, "readyPods": 0}


def test_none_removes_a_field_and_is_nothing_when_there_is_none() -> None:
    assert status_patch(app(AppStatus(message="x")), None, {"message": None}) == {"message": None}
    assert status_patch(app(AppStatus()), None, {"message": None}) == {}


def test_nested_values_that_return_to_their_default_do_not_stay_behind() -> None:
    live = app(AppStatus(summary=Summary(total=3, failed=2)))
    assert status_patch(live, None, {"summary": Summary(total=3)}) == {"summary": {"failed": None}}


def test_equal_conditions_are_no_difference() -> None:
    conditions = set_conditions(None, new_condition("Ready", True, "Up"), now=0)
    live = app(AppStatus(conditions=conditions))
    again = set_conditions(live.status.conditions, new_condition("Ready", True, "Up"), now=500)  # type: ignore[union-attr]
    assert status_patch(live, None, {"conditions": again}) == {}


def test_a_field_that_the_status_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="the status of App has no field raedy; it has ready"):
        status_patch(app(), None, {"raedy": True})

    class Bare(Resource, version="v1"):
        pass

    with pytest.raises(TypeError, match="Bare has no field status"):
        status_patch(Bare(), None, {"ready": True})


statuses = st.builds(
    AppStatus,
    ready=st.booleans(),
    ready_pods=st.integers(0, 3),
    message=st.none() | st.sampled_from(["a", "b"]),
    summary=st.none() | st.builds(Summary, total=st.integers(0, 2), failed=st.integers(0, 2)),
)


@given(st.none() | statuses, statuses)
def test_applying_the_patch_gives_the_status_and_then_nothing_is_left_to_do(
    before: AppStatus | None, after: AppStatus
) -> None:
    import msgspec

    document: dict[str, Any] = {} if before is None else msgspec.to_builtins(before)
    patched = msgspec.convert(apply_merge_patch(document, status_patch(app(before), after, {})), AppStatus)
    assert patched == after
    assert status_patch(app(patched), after, {}) == {}


def test_a_tuple_and_the_list_it_becomes_are_the_same() -> None:
    assert status_patch({"status": {"names": ["a", "b"]}}, None, {"names": ("a", "b")}) == {}
    assert status_patch({"status": {"names": ["a", "b"]}}, {"names": ("a", "b")}, {}) == {}
    assert status_patch({"status": {"names": ["a"]}}, {"names": ("a", "b")}, {}) == {"names": ["a", "b"]}


def conditions(*kinds: str) -> list[Condition]:
    return set_conditions(None, *(new_condition(kind, True, "Up") for kind in kinds), now=0)


def test_a_condition_that_another_writer_added_meanwhile_stays_and_one_that_we_removed_goes() -> None:
    read = app(AppStatus(conditions=conditions("Ready", "Old")))
    live = app(AppStatus(conditions=conditions("Ready", "Old", "Theirs")))
    wanted = conditions("Ready", "Ours")
    patch = status_patch(live, None, {"conditions": wanted}, read=read)
    assert [entry["type"] for entry in patch["conditions"]] == ["Ready", "Theirs", "Ours"]
