"""Other action than a restart: nothing, a call to each pod, eviction. Who asks for one gets that and no rollout."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from aiohttp import web

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import FormatError
from steersman.kube.api.objects import ObjectMeta, OwnerReference
from steersman.kube.api.times import format_time
from steersman.kube.api.types.pods import Pod, PodCondition, PodSpec, PodStatus
from steersman.operators.reload.actions.evict import continue_eviction, next_step
from steersman.operators.reload.actions.http_reload import call_pods, call_workload
from steersman.operators.reload.actions.recreate_job import intent_of
from steersman.operators.reload.api.action import ReloadAction, parse_action
from steersman.operators.reload.api.annotations import RECREATES
from steersman.operators.reload.api.config import KindConfig, ReloadConfig
from steersman.operators.reload.controllers.reconciler import CALLS_AT_ONCE, PassEnded
from steersman.operators.reload.inspect.offline import OfflineInspection
from steersman.operators.reload.planning.state import Applied, AppliedSource, write_state
from steersman.operators.reload.workloads.kinds import kind_rules
from steersman.runtime.reconcile.write_guard import NOT_LEADER, NotLeading, WriteGuard
from tests.support.reload.miniature import START, World, configmap, env_from, workload


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


@pytest.mark.parametrize("text", ["x", '{"name": "a", "deep": ' + "[" * 100_000])
def test_a_job_whose_annotation_of_a_stand_in_cannot_be_read_is_named(text):
    with pytest.raises(FormatError, match=rf"job/migrate: {RECREATES}: "):
        intent_of(SimpleNamespace(name="migrate", annotations={RECREATES: text}))


def template(world):
    return world.get("Deployment", "web")["spec"]["template"].get("metadata")


def state(world):
    return json.loads(world.get("Deployment", "web")["metadata"]["annotations"]["steersman.dev/applied"])


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("restart", ReloadAction()),
        ("none", ReloadAction(kind="none")),
        ("evict", ReloadAction(kind="evict")),
        ("http port=8080", ReloadAction(kind="http", port=8080)),
        (
            " http  port=1 path=/x method=get tries=2 scheme=https",
            ReloadAction(kind="http", port=1, path="/x", method="GET", tries=2, scheme="https"),
        ),
    ],
)
def test_an_action_is_read_with_its_options(text, action):
    assert parse_action(text) == action


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", 'unknown action ""'),
        ("reboot", 'unknown action "reboot" (known: restart, none, http, evict)'),
        ("none port=1", "none takes no options"),
        ("http", "http needs a port"),
        ("http port=0", "is not a port"),
        ("http port=99999999999999999999", "is not a port"),
        ("http port=80 path=x", "is not a path"),
        ("http port=80 host=example.org", 'unknown option "host=example.org" of http'),
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
        parse_action(text)
    assert said in str(caught.value)


def test_with_none_a_change_is_written_down_and_nothing_restarts():
    world = changed_world("none")
    assert world.run(after=60) == {"deployment/web": "track"}
    assert (template(world), world.run(after=60)) == (None, {})


def test_a_call_waits_until_kubelets_have_brought_the_change():
    world = changed_world("http port=8080 after=90s", actions=("http",))
    assert world.run(after=60) == {"deployment/web": "wait"}
    assert "for the kubelet to update" in world.evaluate("Deployment", "web").plan.reason
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
    plan = world.evaluate("Deployment", "web").plan
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


def test_nothing_is_evicted_before_a_new_pod_would_see_the_change():
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
    action = ReloadAction(kind="http", port=port, path="/-/reload")
    made = await call_pods([pod("web-0", OLD, ip="127.0.0.1")], action, clock=NoTime())
    assert (made.called, made.failed) == (("web-0",), ())
    assert seen == ["POST /-/reload"] * 3


async def test_a_term_that_ends_while_a_pod_is_being_connected_to_keeps_it_from_being_called(app):
    port, seen, _ = app
    guard, answers = WriteGuard(), iter(["", NOT_LEADER])
    guard.fence = lambda _key: next(answers)
    with guard.acting_for(None), pytest.raises(NotLeading):
        await call_pods([pod("web-0", OLD, ip="127.0.0.1")], ReloadAction(kind="http", port=port), clock=NoTime())
    assert seen == []


async def test_a_pod_that_does_not_take_it_is_named_and_the_others_are_still_called(app):
    port, _, answers = app
    answers += [503, 503]
    action = ReloadAction(kind="http", port=port, tries=2)
    pods = [
        pod("a", OLD, ip="127.0.0.1"),
        pod("b", OLD),
        pod("c", OLD, ip="127.0.0.1", host_network=True),
    ]
    made = await call_pods(pods, action, clock=NoTime())
    assert made.called == ()
    assert [text.partition(":")[0] for text in made.failed] == ["pod a", "pod b", "pod c"]
    assert "answered 503" in made.failed[0]
    assert "nodes are not called" in made.failed[2]


async def test_a_pod_that_cannot_be_reached_is_tried_as_often_as_it_may_be(app):
    port, *_ = app
    action = ReloadAction(kind="http", port=port, scheme="https", tries=2)
    made = await call_pods([pod("a", OLD, ip="127.0.0.1")], action, clock=NoTime())
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
    look = world.evaluate("Deployment", "web")
    told = SimpleNamespace(info=lambda *_, **__: None)
    ctx = SimpleNamespace(client=Hanging(), clock=SYSTEM_CLOCK, log=told, dry_run=False, event=lambda *_, **__: None)
    reconciler = world.reconcilers["Deployment"]
    calls = [asyncio.create_task(reconciler._call(ctx, look)) for _ in range(CALLS_AT_ONCE)]
    try:
        while len(asked) < CALLS_AT_ONCE:  # noqa: ASYNC110  # of tasks that only have to begin
            await asyncio.sleep(0)
        with pytest.raises(PassEnded):
            await reconciler._call(ctx, look)
    finally:
        over.set()
    await asyncio.gather(*calls)
    await reconciler._call(ctx, look)


# ----------------------------------------------------------------------------------------------- in the order of gates
@pytest.mark.parametrize("action", ["http port=8080", "evict"])
@pytest.mark.parametrize(
    "marks",
    [
        {"steersman.dev/freeze": "true"},
        {"steersman.dev/windows": "0 2 29 2 * for 1h"},
        {"steersman.dev/quiet-period": "1h"},
    ],
)
def test_an_action_that_is_switched_off_is_reported_before_any_gate_that_comes_later(action, marks):
    world = World(ReloadConfig(quiet_period="0s", max_delay="0s").options())
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env_from("app")], annotations={**annotated(action), **marks}))
    world.run()
    world.put(configmap("app", mode="b"))
    plan = world.evaluate("Deployment", "web").plan
    assert (plan.gate, plan.due) == ("action", None)
    assert "reload.actions" in plan.reason


def test_what_pods_cannot_start_without_is_reported_before_an_action_that_is_switched_off():
    world = changed_world("evict")
    world.put(workload("web", uses=[env_from("app"), env_from("gone")], annotations=annotated("evict")))
    assert world.evaluate("Deployment", "web").plan.gate == "missing"


def test_a_call_waits_for_kubelets_before_it_waits_for_room():
    options = ReloadConfig(quiet_period="0s", max_delay="0s", max_concurrent=1, actions=("http",)).options()
    world = World(options)
    world.put(configmap("app", mode="a"))
    world.put(workload("db", uses=[env_from("app")]))
    world.put(workload("web", uses=[env_from("app")], annotations=annotated("http port=8080 after=90s")))
    world.run()
    world.put(configmap("app", mode="b"))
    world.run()
    plan = world.evaluate("Deployment", "web").plan
    assert (plan.gate, "kubelet" in plan.reason) == ("window", True)


# ------------------------------------------------------------------------------------------- pods that cannot be found
@pytest.mark.parametrize("action", ["http port=8080 after=0s", "evict"])
@pytest.mark.parametrize("kind", ["CronJob", "Deployment"])
def test_an_action_on_pods_that_no_selector_finds_is_refused_and_the_change_is_kept(action, kind):
    world = World(ReloadConfig(quiet_period="0s", max_delay="0s", actions=("http", "evict")).options())
    world.put(configmap("app", mode="a"))
    world.put(workload("web", kind=kind, uses=[env_from("app")], annotations=annotated(action), selector=None))
    world.run()
    before = world.get(kind, "web")["metadata"]["annotations"]["steersman.dev/applied"]
    world.put(configmap("app", mode="b"))
    for _ in range(3):
        assert set(world.run(after=60).values()) <= {"wait"}
    plan = world.evaluate(kind, "web").plan
    assert (plan.gate, [change.seen_from("shop") for change in plan.changes]) == ("action", ["configmap/app#mode"])
    assert "has no selector that finds them" in plan.reason
    assert world.get(kind, "web")["metadata"]["annotations"]["steersman.dev/applied"] == before


class Told:
    """Stands for a context: pods that a selector finds, and what is written, said and evicted."""

    dry_run = False

    def __init__(self, *pods):
        self.client, self.clock, self.log = self, SYSTEM_CLOCK, SimpleNamespace(info=self._log, warning=self._log)
        self.pods, self.events, self.patches = list(pods), [], []

    def _log(self, *_, **__):
        pass

    async def list(self, *_what, **_where):
        return SimpleNamespace(items=self.pods)

    async def patch(self, _workload, patch):
        self.patches.append(patch)

    def event(self, _workload, reason, message, **_):
        self.events.append((reason, message))


def owned(name, kind, owner, *, labels=None):
    mark = OwnerReference(api_version="x/v1", kind=kind, name=owner, uid="other", controller=True)
    meta = ObjectMeta(name=name, namespace="shop", uid=name, labels=labels, owner_references=[mark])
    return Pod(metadata=meta, status=PodStatus(phase="Running", pod_ip="127.0.0.1"))


APPLICATION = KindConfig(
    kind="Application", group="example.org", version="v1", plural="applications", template="spec.template"
)


def of_application(action, **spec):
    """A look at a workload of a kind of the configuration, whose pods its operator's StatefulSet controls."""
    rule = kind_rules((APPLICATION,))[0]
    state = write_state(Applied(sources={"configmap/app": AppliedSource(digest="x")}, evict=int(START)))
    template = {"spec": env_from("app")}
    manifest = {
        "apiVersion": "example.org/v1",
        "kind": "Application",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "annotations": {**annotated(action), "steersman.dev/applied": state},
        },
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template, **spec},
    }
    inspection = OfflineInspection(ReloadConfig(kinds=(APPLICATION,), actions=("http", "evict")).options())
    return inspection.evaluate(rule, inspection.add(manifest), START)


async def test_an_eviction_whose_pods_are_not_known_is_not_finished_and_says_so():
    ctx = Told(owned("web-0", "StatefulSet", "web-servers"))
    progress = await continue_eviction(ctx, of_application("evict").workload)
    assert progress.after_seconds is not None
    assert ctx.patches == []
    (notice,) = progress.notices
    assert notice.reason == "EvictionFailed"
    assert "controls none of the 1 pods that its selector finds" in notice.message


async def test_an_eviction_whose_workload_lost_its_selector_is_not_finished_and_a_call_did_not_succeed():
    """As a kind of the configuration may: the decision was written when there still was one."""
    ctx = Told()
    progress = await continue_eviction(ctx, of_application("evict", selector=None).workload)
    assert progress.after_seconds is not None
    assert ctx.patches == []
    look = of_application("http port=1", selector=None)
    assert not (await call_workload(ctx, look.workload, look.policy.action)).succeeded


async def test_a_call_to_pods_that_are_not_known_did_not_succeed():
    ctx = Told(owned("web-0", "StatefulSet", "web-servers"))
    look = of_application("http port=1")
    assert not (await call_workload(ctx, look.workload, look.policy.action)).succeeded
    with pytest.raises(PassEnded):
        await World().reconcilers["Deployment"]._call(ctx, look)
    assert [reason for reason, _ in ctx.events] == ["ReloadCallFailed"]


async def test_with_no_replicas_there_is_nothing_to_evict_or_call_and_that_is_what_is_reported():
    nothing = "no pods"
    ctx = Told()
    await World().reconcilers["Deployment"]._call(ctx, of_application("http port=1", replicas=0))
    progress = await continue_eviction(ctx, of_application("evict", replicas=0).workload)
    assert progress.after_seconds is None
    assert [reason for reason, message in ctx.events if nothing in message] == ["Reloaded", "Evicted"]
    assert len(ctx.patches) == 1
