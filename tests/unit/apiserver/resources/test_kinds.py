from __future__ import annotations

from typing import Any

import pytest

from steersman.apiserver.resources.kinds import BUILTINS, CRUD, ResourceInfo


def builtin(plural: str, group: str = "") -> ResourceInfo:
    return next(info for info in BUILTINS if info.kind.plural == plural and info.kind.group == group)


def test_no_two_builtins_share_a_path_or_a_kind() -> None:
    assert len({info.kind.path("ns") for info in BUILTINS}) == len(BUILTINS)
    assert len({(info.kind.api_version, info.kind.kind) for info in BUILTINS}) == len(BUILTINS)


@pytest.mark.parametrize(
    ("plural", "group", "expected"),
    [
        ("configmaps", "", "qFsyl6wFWjQ="),
        ("deployments", "apps", "8aSe+NMegvE="),
        ("horizontalpodautoscalers", "autoscaling", "qwQve8ut294="),
        ("events", "events.k8s.io", "r2yiGXH7wu8="),
    ],
)
def test_the_storage_hash_is_the_one_a_real_server_publishes(plural: str, group: str, expected: str) -> None:
    assert builtin(plural, group).storage_hash == expected


def test_versions_of_one_resource_share_their_storage() -> None:
    stored = {info.storage for info in BUILTINS if info.kind.plural == "horizontalpodautoscalers"}
    assert len(stored) == 1
    assert builtin("events").storage == builtin("events", "events.k8s.io").storage


def test_namespaces_cannot_be_deleted_as_a_collection() -> None:
    assert set(CRUD) - set(builtin("namespaces").verbs) == {"deletecollection"}


def _deployment(**change: Any) -> dict[str, Any]:
    return {"metadata": {"generation": 4, **change.pop("metadata", {})}, "spec": {"replicas": 1}, **change}


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (_deployment(), 4),
        (_deployment(status={"replicas": 1}), 4),
        (_deployment(metadata={"labels": {"a": "b"}}), 4),
        (_deployment(metadata={"annotations": {}}), 4),
        (_deployment(metadata={"annotations": {"a": "b"}}), 5),
        (_deployment(spec={"replicas": 2}), 5),
    ],
)
def test_a_deployments_generation_follows_its_spec_and_annotations(new: dict[str, Any], expected: int) -> None:
    assert builtin("deployments", "apps").next_generation(_deployment(), new) == expected


def test_generation_starts_at_one_and_is_absent_where_a_kind_keeps_none() -> None:
    obj: dict[str, Any] = {"metadata": {}, "data": {"a": "b"}}
    assert builtin("deployments", "apps").next_generation(None, obj) == 1
    assert builtin("configmaps").next_generation(None, obj) is None


def test_a_priority_class_stays_at_generation_one() -> None:
    old = {"metadata": {"generation": 1}, "value": 1}
    assert builtin("priorityclasses", "scheduling.k8s.io").next_generation(old, {"metadata": {}, "value": 2}) == 1
