"""What a dialect may say, and what the engine makes of it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from steersman.operators.reload.api.annotations import APPLIED
from steersman.operators.reload.api.config import ReloadOptions, SourceKind, SourceRef, Window
from steersman.operators.reload.compat.dialect import CompatAnnotations, SourceClaim
from tests.support.reload.miniature import World, configmap, env, workload

if TYPE_CHECKING:
    from steersman.operators.reload.sources.digest import Hash

AT_ONCE = ReloadOptions(window=Window(quiet=timedelta(0), limit=timedelta(0)))


class Whole:
    """Another program's hash: all there is to know, in plain sight."""

    name = "whole"

    def __call__(self, kind, data, binary):
        return "&".join(f"{key}={value}" for key, value in sorted((data or {}).items()))


class Other:
    """A dialect: `other: NAME` uses a ConfigMap, `other-hash` says which data was applied."""

    name = "other"
    annotations = frozenset({"other", "other-hash"})
    hashes: tuple[Hash, ...] = (Whole(),)
    total = None

    def claims(self, workload, sources):
        if name := workload.annotations.get("other"):
            yield SourceClaim(source=SourceRef(SourceKind.CONFIGMAP, workload.namespace, name), rule="other")

    def window(self, workload):
        return None

    def pause(self, workload):
        return None

    def known(self, workload, edge, source):
        mark = workload.annotations.get("other-hash")
        return None if mark is None else mark == source.hashes["whole"]

    def problems(self, workload):
        return ["other: must not be empty"] if workload.annotations.get("other") == "" else []

    def marks(self, workload, edges, sources, *, changed, restart_at):
        applied = "".join(source.hashes["whole"] for source in sources.values())
        if workload.annotations.get("other-hash") == applied or (changed and restart_at is None):
            return CompatAnnotations()
        return CompatAnnotations(
            metadata={"other-hash": applied}, template={"other-at": str(restart_at)} if restart_at else {}
        )


@pytest.fixture
def world():
    world = World(AT_ONCE, dialects=[Other()])
    world.put(configmap("app", mode="a"))
    return world


def adopted(**marks):
    return workload("web", annotations={"other": "app", **{n.replace("_", "-"): v for n, v in marks.items()}})


def test_a_claim_makes_an_edge_like_any_other(world):
    world.put(adopted())
    assert world.evaluate("Deployment", "web").edges.tracked[0].rules == ("other",)
    assert world.run() == {"deployment/web": "seed"}
    world.put(configmap("app", mode="b"))
    assert world.run() == {"deployment/web": "restart"}


def test_what_the_original_applied_is_taken_over_without_a_restart(world):
    world.put(adopted(other_hash="mode=a"))
    assert world.run() == {"deployment/web": "seed"}
    assert world.run() == {}


def test_what_the_original_had_not_applied_yet_is_a_change(world):
    world.put(adopted(other_hash="mode=before"))
    assert world.run() == {"deployment/web": "restart"}


def test_an_annotation_of_a_dialect_that_makes_no_sense_is_reported(world):
    world.put(workload("web", annotations={"other": ""}))
    assert world.evaluate("Deployment", "web").plan.problems == ("other: must not be empty",)


def test_our_own_state_counts_before_the_marks_of_another(world):
    world.put(adopted(other_hash="mode=a"))
    world.run()
    world.edit("Deployment", "web", {"metadata": {"annotations": {"other-hash": "mode=zzz"}}})
    assert world.run() == {}


def test_an_edge_of_two_dialects_is_one_restart(world):
    marks = {"other": "app", "steersman.dev/reload": "auto"}
    world.put(workload("web", uses=[env("app", "mode")], annotations=marks))
    world.run()
    world.put(configmap("app", mode="b"))
    assert world.run() == {"deployment/web": "restart"}
    assert world.restarts == {"deployment/web": 1}


def test_the_marks_are_written_in_the_same_patch(world):
    world.put(adopted())
    world.run()
    meta = world.get("Deployment", "web")["metadata"]["annotations"]
    assert meta["other-hash"] == "mode=a"
    assert APPLIED in meta
    world.put(configmap("app", mode="b"))
    world.run()
    found = world.get("Deployment", "web")
    assert found["metadata"]["annotations"]["other-hash"] == "mode=b"
    assert "other-at" in found["spec"]["template"]["metadata"]["annotations"]
    assert world.patches == 2
