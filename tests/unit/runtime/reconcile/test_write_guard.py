"""What passes the write guard: in a dry run, behind a closed fence, and for which key the fence is asked."""

from __future__ import annotations

import asyncio

import pytest

from steersman.kube.transport.write_requests import WriteRequest
from steersman.runtime.reconcile.write_guard import NOT_LEADER, NotLeading, WriteGuard, effect

WRITE = WriteRequest("POST", "/api/v1/namespaces/shop/configmaps", {}, b"{}")


class Fence:
    """Closed for some keys; keeps what it was asked."""

    def __init__(self, *closed):
        self.closed, self.asked = closed, []

    def __call__(self, key):
        self.asked.append(key)
        return NOT_LEADER if key in self.closed or "all" in self.closed else ""


@pytest.mark.parametrize("dry_run", [False, True])
def test_behind_a_closed_fence_neither_writes_nor_effects_happen(dry_run):
    guard = WriteGuard(dry_run=dry_run)
    guard.fence = Fence("all")
    for attempt in (lambda: guard.prepare(WRITE), lambda: guard.admit(WRITE), lambda: guard.effect("http reload")):
        with pytest.raises(NotLeading):
            attempt()
    assert guard.withheld[NOT_LEADER] == 3


def test_an_effect_is_left_out_of_a_dry_run():
    assert WriteGuard().effect("http reload")
    assert not WriteGuard(dry_run=True).effect("http reload")


async def test_the_fence_is_asked_for_the_key_of_the_reconcile_also_in_the_tasks_it_starts():
    guard = WriteGuard()
    guard.fence = fence = Fence("mine")

    async def task() -> None:
        effect("http reload")

    with guard.acting_for("mine"), pytest.raises(NotLeading):
        await asyncio.create_task(task())
    with guard.acting_for("other"):
        await asyncio.create_task(task())
    assert fence.asked == ["mine", "other"]


def test_a_write_of_one_manager_is_never_judged_by_the_key_of_another():
    ours, theirs = WriteGuard(), WriteGuard()
    theirs.fence = fence = Fence("mine")
    with ours.acting_for("mine"):
        assert theirs.effect("http reload")
    assert fence.asked == [None]


def test_a_guard_that_is_bound_to_a_key_asks_for_it_wherever_it_is_used():
    guard = WriteGuard()
    guard.fence = fence = Fence("mine")
    with guard.acting_for("other"), pytest.raises(NotLeading):
        guard.bound_to("mine").effect("http reload")
    assert fence.asked == ["mine"]
