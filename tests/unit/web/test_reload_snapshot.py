"""Under which heading of the page a workload stands."""

from __future__ import annotations

import pytest

from steersman.operators.reload.inspect.restart_state import RestartState
from steersman.web.model import WorkloadView
from steersman.web.reload_snapshot import _standing as standing_of
from steersman.web.reload_snapshot import as_far_as_known
from tests.support.reload.miniature import World, configmap, env, workload
from tests.unit.web.conftest import node


@pytest.mark.parametrize(
    ("text", "standing"), [("at night", RestartState.HELD), ("0 2 * * * for 2h", RestartState.PENDING)]
)
def test_windows_that_cannot_be_read_hold_a_restart_back_and_do_not_let_it_wait_for_now(text, standing):
    world, marks = World(), {"steersman.dev/reload": "auto", "steersman.dev/windows": text}
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env("app", "mode")], annotations=marks))
    world.run()
    world.put(configmap("app", mode="b"))
    assert standing_of(world.evaluate("Deployment", "web"), None) is standing


@pytest.mark.parametrize("standing", list(RestartState))
def test_what_was_last_seen_is_unknown_while_sources_cannot_be_read(standing):
    view = WorkloadView(workload=node("web", standing, reason="x"))
    assert as_far_as_known(view, "") == view
    found = as_far_as_known(view, "configmaps: connection refused").workload
    if standing in {RestartState.CURRENT, RestartState.ROLLING}:
        assert found.standing is RestartState.UNKNOWN
        assert found.reason == f"last seen {standing.value}; configmaps: connection refused"
    else:
        assert found.standing is standing
