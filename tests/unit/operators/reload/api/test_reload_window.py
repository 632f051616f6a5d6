"""When a change is due: after a quiet period, and never later than its limit."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.operators.reload.api.config import Features, ReloadConfig, ReloadOptions, RestartBudget, Window
from tests.support.reload.miniature import World, configmap, env, workload

SECONDS = st.integers(0, 600).map(lambda number: timedelta(seconds=number))
FREE = RestartBudget(restarts=0)


def shop(made=None, **annotations):
    """A workload that waits to be told of a change."""
    world = World(made)
    marks = {"steersman.dev/reload": "auto"} | {f"steersman.dev/{name}": text for name, text in annotations.items()}
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env("app", "mode")], annotations=marks))
    world.run()
    return world


@given(
    quiet=SECONDS,
    limit=SECONDS,
    after=SECONDS,
    interval=SECONDS,
    first=st.integers(0, 1000),
    more=st.integers(0, 1000),
    restarted=st.none() | st.integers(0, 2000),
)
def test_a_change_is_never_due_later_than_its_limit(quiet, limit, after, interval, first, more, restarted):
    due = Window(quiet=quiet, limit=limit, interval=interval).due(
        first=first, last=first + more, after=after, restarted=restarted
    )
    latest = first + (limit + after).total_seconds()
    assert due >= first
    assert due <= (latest if restarted is None else max(latest, restarted + interval.total_seconds()))
    if restarted is not None:
        assert due >= restarted + interval.total_seconds()


@pytest.mark.parametrize(
    ("annotations", "seconds"),
    [
        ({}, 5),
        ({"max-delay": "0"}, 0),
        ({"max-delay": "0s"}, 0),
        ({"max-delay": "2s"}, 2),
        ({"quiet-period": "10s", "max-delay": "2s"}, 2),
        ({"quiet-period": "0"}, 0),
        ({"quiet-period": "1m"}, 60),  # who asks for a longer quiet period and nothing else gets it
        ({"quiet-period": "1m", "max-delay": "40s"}, 40),
    ],
)
def test_what_a_workload_says_about_its_delay_is_kept(annotations, seconds):
    world = shop(**annotations)
    world.put(configmap("app", mode="b"))
    due = world.evaluate("Deployment", "web").plan.due
    assert (due or world.now) - world.now == seconds


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, "5s quiet, at most 30s"),
        ({"max_delay": "2s"}, "2s quiet, at most 2s"),
        ({"max_delay": "0s"}, "0s quiet, at most 0s"),
        ({"quiet_period": "1m"}, "1m quiet, at most 1m"),
        ({"quiet_period": "1m", "max_delay": "30s"}, "30s quiet, at most 30s"),
    ],
)
def test_what_the_configuration_says_about_the_delay_is_kept(config, told):
    assert str(ReloadConfig(**config).options().window) == told


def test_a_limit_from_further_out_gives_way_to_a_longer_quiet_period_and_comes_back_with_a_limit():
    window = Window().inner(None, timedelta(seconds=2)).inner(timedelta(seconds=9), None)
    assert str(window) == "9s quiet, at most 9s"
    assert str(window.inner(None, timedelta(seconds=20))) == "9s quiet, at most 20s"


def test_pods_are_called_while_sources_keep_changing_and_once_more_for_the_last_change():
    made = ReloadOptions(budget=FREE, features=Features(actions=frozenset({"http"})))
    world = shop(made, action="http port=8080 after=90s")
    calls = []
    for minute in range(20):
        world.put(configmap("app", mode=str(minute)))
        calls += [minute] * (world.run(after=60) == {"deployment/web": "call"})
    assert calls, "never called in twenty minutes"
    assert max(late - early for early, late in zip([0, *calls], calls, strict=False)) <= 3
    assert "for the kubelet" in world.evaluate("Deployment", "web").plan.reason, (
        "the last change has not reached the pods yet"
    )
    assert world.run(after=120) == {"deployment/web": "call"}
    assert world.run(after=600) == {}


def test_a_restart_of_a_clock_that_was_ahead_holds_nothing_back():
    apart = Window(quiet=timedelta(0), limit=timedelta(0), interval=timedelta(seconds=5))
    world = shop(ReloadOptions(window=apart, budget=FREE))
    world.put(configmap("app", mode="b"))
    world.now += 86400
    world.run()
    world.now -= 86400
    world.put(configmap("app", mode="c"))
    world.run(after=60)
    assert world.restarts == {"deployment/web": 2}
