"""Annotations of ours that are none, on workloads, sources and namespaces."""

from __future__ import annotations

import pytest

from tests.support.reload.miniature import World, configmap, env, workload

AUTO = {"steersman.dev/reload": "auto"}


@pytest.mark.parametrize("where", ["workload", "source", "namespace"])
def test_a_misspelt_annotation_is_told_with_the_one_that_was_meant(where):
    world, wrong = World(), {"steersman.dev/quiet-perod": "5s"}
    world.put(configmap("app", mode="a", annotations={"steersman.dev/urgnt": "true"} if where == "source" else None))
    world.put(workload("web", uses=[env("app", "mode")], annotations=AUTO | (wrong if where == "workload" else {})))
    spaced = {"name": "shop", "annotations": wrong if where == "namespace" else {}}
    world.put({"apiVersion": "v1", "kind": "Namespace", "metadata": spaced})
    (told,) = world.evaluate("Deployment", "web").plan.problems
    meant = "urgent" if where == "source" else "quiet-period"
    assert told.endswith(f"unknown annotation (did you mean steersman.dev/{meant}?)")


def test_an_annotation_of_somebody_else_is_no_mistake():
    world = World()
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env("app", "mode")], annotations=AUTO | {"steersman.dev/zone": "example.org"}))
    assert world.evaluate("Deployment", "web").plan.problems == ()
