"""Under which heading of the page a workload stands."""

from __future__ import annotations

import pytest

from steersman.testing.reloading import World, configmap, env, workload
from steersman.web.model import Standing
from steersman.web.reloading import _standing as standing_of


@pytest.mark.parametrize(("text", "standing"), [("at night", Standing.HELD), ("0 2 * * * for 2h", Standing.PENDING)])
def test_windows_that_cannot_be_read_hold_a_restart_back_and_do_not_let_it_wait_for_now(text, standing):
    world, marks = World(), {"steersman.dev/reload": "auto", "steersman.dev/windows": text}
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env("app", "mode")], annotations=marks))
    world.run()
    world.put(configmap("app", mode="b"))
    assert standing_of(world.look("Deployment", "web"), None) is standing
