"""Other means than a restart: nothing, a call to each pod, eviction. Who asks for one gets that and no rollout."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from aiohttp import web

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import FormatError
from steersman.kube.objects import ObjectMeta
from steersman.kube.times import format_time
from steersman.kube.types.pods import Pod, PodCondition, PodSpec, PodStatus
from steersman.operators.reload.calls import call_pods
from steersman.operators.reload.eviction import next_step
from steersman.operators.reload.means import Means, parse_means
from steersman.operators.reload.podkeeper import CALLING, PodKeeper
from steersman.operators.reload.types import ReloadConfig
from steersman.testing.reloading import START, World, configmap, env_from, workload


def annotated(action):
    return {"steersman.dev/reload": "auto", "steersman.dev/action": action}


def changed_world(action, **config):
    world = World(ReloadConfig(**config).options())
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env_from("app")], annotations=annotated(action)))
    world.run()
    world.put(configmap("app", mode="b"))
    world.run()
    return world


def template(world):
    return world.get("Deployment", "web")["spec"]["template"].get("metadata")


def state(world):
    return json.loads(world.get("Deployment", "web")["metadata"]["annotations"]["steersman.dev/applied"])


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("restart", Means()),
        ("none", Means(kind="none")),
        ("evict", Means(kind="evict")),
        ("http port=8080", Means(kind="http", port=8080)),
        (
            " http  port=1 path=/x method=get tries=2 scheme=https",
            Means(kind="http", port=1, path="/x", method="GET", tries=2, scheme="https"),
        ),
    ],
)
def test_an_action_is_read_with_its_options(text, means):
    assert parse_means(text) == means


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no action"),
        ("reboot", "is no action (try restart, none, http, evict)"),
        ("none port=1", "none takes no options"),
        ("http", "http needs a port"),
        ("http port=0", "is not a port"),
        ("http port=99999999999999999999", "is not a port"),
        ("http port=80 path=x", "is not a path"),
        ("http port=80 host=example.org", "is no option of http"),
        ("http port=80 method=DELETE", "is not one of POST, GET, PUT"),
        ("http port=80 timeout=10m", "must be between 0 and 30s"),
        ("http port=80 tries=1000", "is not a number from 1 to 10"),
        ("http port=80 tries=00019999", "is not a number from 1 to 10"),
        (f"http port=000001{'9' * 5000}", "is not a port"),
        ("http port=80 after=soon", "is not a duration"),
    ],
)
def test_an_action_that_makes_no_sense_says_what_would(text, said):
    with pytest.raises(FormatError) as caught:
        parse_means(text)
    assert said in str(caught.value)


def test_with_none_a_change_is_written_down_and_nothing_restarts():
    world = changed_world("none")
    assert world.run(after=60) == {"deployment/web": "track"}
    assert (template(world), world.run(after=60)) == (None, {})


def test_a_call_waits_until_kubelets_have_brought_the_change():
    world = changed_world("http port=8080 after=90s", actions=("http",))
    assert world.run(after=60) == {"deployment/web": "wait"}
    assert "kubelets bring a change" in world.look("Deployment", "web").plan.reason
    assert world.run(after=31) == {"deployment/web": "call"}
    assert (template(world), world.run(after=60)) == (None, {})


def test_an_eviction_is_written_down_with_the_second_before_which_pods_are_old():
    world = changed_world("evict", actions=("evict",))
    assert world.run(after=60) == {"deployment/web": "evict"}
    assert state(world)["e"] == int(world.now) + 1
    assert len(state(world)["r"]) == 1
    assert (template(world), world.run(after=60)) == (None, {})
    assert state(world)["e"]


def test_an_eviction_that_was_not_finished_is_known_after_a_crash_and_through_other_writes():
    world = changed_world("evict", actions=("evict",))
    world.run(after=60)
    since = state(world)["e"]
    world.crash()
    world.put(configmap("more", x="1"))
    world.put(workload("web", uses=[env_from("app"), env_from("more")], annotations=annotated("evict")))
    assert world.run(after=60) == {"deployment/web": "seed"}
    assert state(world)["e"] == since


@pytest.mark.parametrize("action", ["http port=8080 after=0s", "evict"])
def test_an_action_that_is_not_switched_on_waits_and_says_how_to_switch_it_on(action):
    world = changed_world(action)
    assert world.run(after=60) == {"deployment/web": "wait"}
    plan = world.look("Deployment", "web").plan
    assert plan.gate == "action"
    assert f"reload.actions: [{action.split()[0]}]" in plan.reason


# ------------------------------------------------------------------------------------------------------------ eviction
def pod(name, created, *, ready=True, deleting=False, ip="", host_network=False):
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="shop",
            uid=name,
            creation_timestamp=format_time(created),
            deletion_timestamp=format_time(created) if deleting else None,
        ),
        spec=PodSpec(host_network=host_network),
        status=PodStatus(
            phase="Running", pod_ip=ip, conditions=[PodCondition(type="Ready", status="True" if ready else "False")]
        ),
    )


OLD, SINCE, NEW = START - 100, START, START + 1


@pytest.mark.parametrize(
    ("pods", "evicted", "waits", "finished"),
    [
        ([], "", "", True),
        ([pod("web-0", NEW)], "", "", True),
        ([pod("web-0", OLD), pod("web-1", OLD), pod("web-10", OLD)], "web-10", "", False),
        ([pod("web-0", OLD, ready=False), pod("web-1", OLD)], "web-0", "", False),
        ([pod("web-0", OLD), pod("web-1", NEW, ready=False)], "", "for pod web-1 to be ready", False),
        ([pod("web-0", OLD), pod("web-1", OLD, deleting=True)], "", "for pod web-1 to go", False),
        ([pod("web-0", OLD), pod("web-1", NEW)], "web-0", "", False),
    ],
)
def test_pods_are_replaced_one_by_one(pods, evicted, waits, finished):
    step = next_step(pods, SINCE, SINCE + 10)
    assert (step.evict, step.waits, step.finished) == (evicted, waits, finished)


def test_nothing_is_evicted_before_a_new_pod_would_look_new():
    assert next_step([pod("web-0", OLD)], SINCE, SINCE - 0.5).waits == "for the clock"


# --------------------------------------------------------------------------------------------------------------- calls
class NoTime:
    """The system's clock, without its pauses."""

    def __getattr__(self, name):
        return getattr(SYSTEM_CLOCK, name)

    async def sleep(self, seconds):
        """At once."""


@pytest.fixture
async def app():
    """A server that fails for a while: `app.answers` are the statuses to come, then 200."""
    seen, answers = [], []

    async def handle(request):
        seen.append(f"{request.method} {request.path}")
        return web.Response(status=answers.pop(0) if answers else 200)

    runner = web.AppRunner(web.Application())
    runner.app.router.add_route("*", "/{tail:.*}", handle)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    try:
        yield port, seen, answers
    finally:
        await runner.cleanup()


async def test_every_pod_is_called_until_it_takes_it(app):
    port, seen, answers = app
    answers += [500, 302]
    means = Means(kind="http", port=port, path="/-/reload")
    made = await call_pods([pod("web-0", OLD, ip="127.0.0.1")], means, clock=NoTime())
    assert (made.called, made.failed) == (("web-0",), ())
    assert seen == ["POST /-/reload"] * 3


async def test_a_pod_that_does_not_take_it_is_named_and_the_others_are_still_called(app):
    port, _, answers = app
    answers += [503, 503]
    means = Means(kind="http", port=port, tries=2)
    pods = [
        pod("a", OLD, ip="127.0.0.1"),
        pod("b", OLD),
        pod("c", OLD, ip="127.0.0.1", host_network=True),
    ]
    made = await call_pods(pods, means, clock=NoTime())
    assert made.called == ()
    assert [text.partition(":")[0] for text in made.failed] == ["pod a", "pod b", "pod c"]
    assert "answered 503" in made.failed[0]
    assert "nodes are not called" in made.failed[2]


async def test_a_pod_that_cannot_be_reached_is_tried_as_often_as_it_may_be(app):
    port, *_ = app
    means = Means(kind="http", port=port, scheme="https", tries=2)
    made = await call_pods([pod("a", OLD, ip="127.0.0.1")], means, clock=NoTime())
    assert "cannot be reached" in made.failed[0]


async def test_calls_that_take_long_leave_workers_for_everybody_else():
    over, asked = asyncio.Event(), []

    class Hanging:
        async def list(self, *_what, **_where):
            asked.append(1)
            await over.wait()
            return SimpleNamespace(items=[])

    world = World(ReloadConfig().options())
    world.put(workload("web"))
    world.edit("Deployment", "web", {"spec": {"selector": {"matchLabels": {"app": "web"}}}})
    look = world.look("Deployment", "web")
    told = SimpleNamespace(info=lambda *_, **__: None)
    ctx = SimpleNamespace(client=Hanging(), clock=SYSTEM_CLOCK, log=told, event=lambda *_, **__: None)
    keeper = PodKeeper()
    calls = [asyncio.create_task(keeper.call(ctx, look)) for _ in range(CALLING)]
    try:
        while len(asked) < CALLING:  # noqa: ASYNC110  # of tasks that only have to begin
            await asyncio.sleep(0)
        assert await keeper.call(ctx, look) is False
    finally:
        over.set()
    assert await asyncio.gather(*calls) == [True] * CALLING
    assert await keeper.call(ctx, look) is True
