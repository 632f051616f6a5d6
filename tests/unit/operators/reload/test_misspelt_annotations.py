"""Annotations of ours that are none, on workloads, sources and namespaces."""

from __future__ import annotations

import pytest

from steersman.operators.reload.compat.dialects.reloader import Reloader
from steersman.operators.reload.compat.dialects.wave import Wave
from steersman.operators.reload.compat.dialects.xing import Xing
from tests.support.reload.miniature import World, configmap, env, workload

AUTO = {"steersman.dev/reload": "auto"}


@pytest.mark.parametrize("where", ["workload", "source", "namespace"])
def test_a_misspelt_annotation_is_reported_with_the_one_that_was_meant(where):
    world, wrong = World(), {"steersman.dev/quiet-perod": "5s"}
    world.put(configmap("app", mode="a", annotations={"steersman.dev/urgnt": "true"} if where == "source" else None))
    world.put(workload("web", uses=[env("app", "mode")], annotations=AUTO | (wrong if where == "workload" else {})))
    spaced = {"name": "shop", "annotations": wrong if where == "namespace" else {}}
    world.put({"apiVersion": "v1", "kind": "Namespace", "metadata": spaced})
    (told,) = world.evaluate("Deployment", "web").plan.problems
    meant = "urgent" if where == "source" else "quiet-period"
    assert told.endswith(f"unknown annotation (did you mean steersman.dev/{meant}?)")


def test_an_annotation_of_another_owner_is_not_a_mistake():
    world = World()
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env("app", "mode")], annotations=AUTO | {"steersman.dev/zone": "example.org"}))
    assert world.evaluate("Deployment", "web").plan.problems == ()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("reloader.stakater.com/autos", "reloader.stakater.com/auto"),
        ("configmaps.reloader.stakater.com/reload", "configmap.reloader.stakater.com/reload"),
        ("secret.reloader.stakater.com/relaod", "secret.reloader.stakater.com/reload"),
        ("wave.pusher.com/update-on-config-changes", "wave.pusher.com/update-on-config-change"),
        ("com.xing.deployment-restarts", "com.xing.deployment-restart"),
    ],
)
@pytest.mark.parametrize("where", ["workload", "template", "source"])
def test_a_misspelt_annotation_of_a_dialect_is_reported_with_the_one_that_was_meant(written, meant, where):
    world, wrong = World(dialects=[Reloader(), Wave(), Xing()]), {written: "true"}
    world.put(configmap("app", mode="a", annotations=wrong if where == "source" else None))
    web = workload("web", uses=[env("app", "mode")], annotations=AUTO | (wrong if where == "workload" else {}))
    if where == "template":
        web["spec"]["template"].setdefault("metadata", {})["annotations"] = wrong
    world.put(web)
    (problem,) = world.evaluate("Deployment", "web").plan.problems
    assert problem.endswith(f"{written}: unknown annotation (did you mean {meant}?)")


@pytest.mark.parametrize(
    "written", ["reloader.stakater.com/owner", "kubectl.kubernetes.io/restartedAt", "wave.pusher.com/team", "checksum"]
)
def test_an_annotation_that_resembles_none_of_a_dialect_is_not_a_mistake(written):
    world = World(dialects=[Reloader(), Wave(), Xing()])
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env("app", "mode")], annotations=AUTO | {written: "true"}))
    assert world.evaluate("Deployment", "web").plan.problems == ()
