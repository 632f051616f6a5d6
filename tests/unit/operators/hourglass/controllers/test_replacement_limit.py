"""Which performers may be replaced at the same time."""

from __future__ import annotations

from steersman.operators.hourglass.controllers.replacement_limit import ReplacementLimiter

AGE = float.__neg__  # as if it were the first second of all times


def test_not_more_than_the_limit_are_replaced_at_once(performer):
    limiter = ReplacementLimiter(2)
    a, b, c = (performer(name) for name in "abc")
    ask = {"upgrading": (), "siblings": (), "max_unavailable": None, "surge": False, "age": AGE}
    assert [limiter.acquire(performer, **ask) == "" for performer in (a, b, c)] == [True, True, False]
    assert limiter.next_waiting() == [c.ref]
    limiter.release(a.ref, upgrading=True)
    a.status = {"phase": "Upgrading"}
    assert "2 other replacements" in limiter.acquire(c, **ask | {"upgrading": (a,)})
    limiter.release(b.ref, upgrading=False)
    assert limiter.acquire(c, **ask | {"upgrading": (a,)}) == ""
    assert limiter.next_waiting() == []


def test_of_one_executor_never_more_are_unavailable_than_it_allows(performer):
    limiter = ReplacementLimiter(None)
    ready = {"ready": True, "phase": "Running"}
    a, b, c = (performer(name, status=dict(ready)) for name in "abc")
    ask = {"upgrading": (), "siblings": (a, b, c), "max_unavailable": 1, "surge": False, "age": AGE}
    assert limiter.acquire(a, **ask) == ""
    assert "1 performers of its executor are unavailable (a), 1 may be" in limiter.acquire(b, **ask)
    assert limiter.acquire(b, **ask | {"surge": True}) == "", "no pod becomes unavailable in blue/green"
    c.status = {"ready": False}
    assert limiter.acquire(c, **ask) == "", "one that is unavailable already makes nothing worse"


def test_a_replacement_that_is_stuck_does_not_block_the_others(performer):
    stuck = performer("stuck")
    since = {"type": "Progressing", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    stuck.status = {"phase": "Upgrading", "conditions": [since]}
    ask = {"upgrading": (stuck,), "siblings": (), "max_unavailable": None, "surge": False}
    began = 1767225600.0
    assert ReplacementLimiter(1).acquire(performer("p"), **ask, age=lambda stamp: began + 60 - stamp) != ""
    assert ReplacementLimiter(1).acquire(performer("p"), **ask, age=lambda stamp: began + 601 - stamp) == ""


def test_an_invalid_time_blocks_no_replacement(performer):
    broken = performer("broken")
    since = {"type": "Progressing", "status": "True", "lastTransitionTime": "yesterday"}
    broken.status = {"phase": "Upgrading", "conditions": [since]}
    ask = {"upgrading": (broken,), "siblings": (), "max_unavailable": None, "surge": False}
    assert ReplacementLimiter(1).acquire(performer("p"), **ask, age=AGE) == ""
