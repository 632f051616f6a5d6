"""Which notices become Events, and which were reported before."""

from __future__ import annotations

from types import SimpleNamespace

from steersman.operators.reload.controllers.report import report_notices
from steersman.operators.reload.planning.plan import Notice, Observed

WAITS = Notice("EvictionWaits", "a disruption budget allows no eviction")


class Recorder:
    """Keeps the reasons of Events."""

    def __init__(self):
        self.reasons = []
        self.log = SimpleNamespace(warning=lambda *_, **__: None)

    def event(self, _workload, reason, _message, *, warning):
        self.reasons.append(reason)


async def passes(*rounds):
    """The reasons of all Events of some passes, each given by its notices and whether evictions are under way."""
    ctx, workload, observed = Recorder(), SimpleNamespace(title="deployment/web"), Observed()
    for notices, is_under_way in rounds:
        observed = await report_notices(ctx, workload, notices, observed, is_under_way=is_under_way)
    return ctx.reasons


async def test_an_eviction_that_waits_again_is_reported_once():
    assert await passes(([WAITS], True), ([], True), ([WAITS], True)) == ["EvictionWaits"]


async def test_the_next_eviction_that_waits_is_reported_again():
    assert await passes(([WAITS], True), ([], False), ([WAITS], True)) == ["EvictionWaits"] * 2


async def test_a_gate_that_blocks_again_is_reported_again():
    frozen = Notice("RestartFrozen", "frozen by deployment/web")
    assert await passes(([frozen], True), ([], True), ([frozen], True)) == ["RestartFrozen"] * 2
