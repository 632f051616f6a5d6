"""What `why` and `history` say: the newest word counts, with its age, and what has passed is told as past."""

from __future__ import annotations

import pytest

from steersman.kube.api.times import format_time
from steersman.operators.reload.api.config import SourceKind
from steersman.operators.reload.inspect.explain import answer, history_of
from steersman.operators.reload.planning.snapshot import SnapshotSources
from tests.support.reload.miniature import World, configmap, env, workload

AUTO = {"steersman.dev/reload": "auto"}


def event(world, reason, message, *, ago=0):
    return {"reason": reason, "message": message, "lastTimestamp": format_time(world.now - ago)}


def asked(world, *events):
    look = world.evaluate("Deployment", "web")
    return answer(look, (), SnapshotSources(world.caches(), SourceKind), events=events, now=world.now)


def changed(world):
    """A workload that is seeded, with a change that waits."""
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env("app", "mode")], replicas=1))
    world.run()
    world.put(configmap("app", mode="b"))


def test_the_newest_status_of_the_operator_counts_and_says_how_old_it_is():
    world = World()
    changed(world)
    old = event(world, "ActionOff", "the restart waits: http is off", ago=600)
    new = event(world, "ReloadCallFailed", "for configmap/app: refused", ago=90)
    assert asked(world, new, old).reported == "for configmap/app: refused (reported 1m30s ago)"


def test_a_restart_that_failed_and_is_well_by_now_is_reported_as_recovered():
    world = World()
    changed(world)
    world.run()
    assert world.run(after=60) == {"deployment/web": "restart"}
    failed = event(world, "RolloutFailed", "the restart for configmap/app failed: not available after 12 s")
    world.roll("web", available=False)
    assert "recovered" not in history_of(world.evaluate("Deployment", "web"), [failed])[0].outcome
    world.roll("web")
    told = history_of(world.evaluate("Deployment", "web"), [failed])[0].outcome
    assert told.startswith("the restart for configmap/app failed: not available after 12 s; recovered since: 1 of 1")
    assert asked(world, failed).restarts[0].outcome == told


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("freeze", "until=2023-11-14T23:00:00Z", "steersman.dev/freeze on the workload until 2023-11-14T23:00:00Z"),
        ("freeze", "true", "steersman.dev/freeze on the workload until it is removed"),
        (
            "windows",
            "0 2 * * * for 2h",
            "outside of its windows (0 2 * * * for 2h in UTC) until 2023-11-15T02:00:00Z",
        ),
    ],
)
def test_what_would_hold_a_change_back_is_reported_with_its_end_before_there_is_one(name, text, told):
    world = World()
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env("app", "mode")], annotations=AUTO | {f"steersman.dev/{name}": text}))
    world.run()
    found = asked(world)
    assert found.pending is None
    assert found.closed == (told,)
