"""One message per change, with its outcome, in the form each receiver takes; tried again and counted."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from steersman.errors import ConfigError
from steersman.kube.api.errors import Invalid
from steersman.operators.reload.api.config import ReceiverConfig, ReloadConfig, SourceKind, SourceRef, WorkloadId
from steersman.operators.reload.notify.message import AffectedWorkload, Notification, body_of, check_template
from steersman.operators.reload.notify.sender import LONGEST_SECONDS, SETTLE_SECONDS, NotificationSender
from steersman.operators.reload.planning.diff import SourceChange
from steersman.operators.reload.planning.plan import Action
from steersman.operators.reload.planning.restart_order import RestartCoordinator
from steersman.runtime.reconcile.write_guard import NOT_LEADER, NotLeading, WriteGuard
from steersman.testing.clock import VirtualClock
from tests.support.reload.miniature import World, configmap, env_from, workload

APP = SourceRef(SourceKind.CONFIGMAP, "shop", "app")
WEB, API = WorkloadId("Deployment", "shop", "web"), WorkloadId("Deployment", "shop", "api")
NOTICE = Notification(
    id="1",
    at=1_700_000_000.0,
    changes=(SourceChange(APP, ("mode",)),),
    workloads=(
        AffectedWorkload(workload=WEB, action="restart", outcome="available", seconds=14),
        AffectedWorkload(workload=API, action="restart", outcome="failed", reason="pod api-1: CrashLoopBackOff"),
    ),
)


def test_the_text_says_outcome_sources_and_workloads():
    assert NOTICE.text() == (
        "failed: configmap/shop/app#mode restarted 2 workloads: deployment/shop/web, deployment/shop/api"
        "; failed: deployment/shop/api: pod api-1: CrashLoopBackOff"
    )
    assert NOTICE.text("$$ $time $count") == "$ 2023-11-14T22:13:20Z 2 workloads"


def test_a_cloud_event_has_everything_a_program_wants():
    kind, body = body_of(NOTICE, ReceiverConfig(url="http://x"))
    event = json.loads(body)
    assert kind == "application/cloudevents+json"
    assert (event["specversion"], event["type"]) == ("1.0", "dev.steersman.reload.change.failed")
    assert event["data"]["sources"] == [{"kind": "configmap", "namespace": "shop", "name": "app", "keys": ["mode"]}]
    assert [one["outcome"] for one in event["data"]["workloads"]] == ["available", "failed"]


@pytest.mark.parametrize("form", ["slack", "googlechat", "teams", "text"])
def test_every_receiver_gets_the_text_in_its_form(form):
    _, body = body_of(NOTICE, ReceiverConfig(url="http://x", format=form, template="it is $outcome"))
    assert b"it is failed" in body
    if form in ("slack", "googlechat"):
        assert json.loads(body) == {"text": "it is failed"}
    if form == "teams":
        assert json.loads(body)["attachments"][0]["content"]["body"][0]["text"] == "it is failed"


@pytest.mark.parametrize("template", ["$value", "${", "$outcome $secret"])
def test_a_template_that_names_what_there_is_not_is_reported_at_the_start(template):
    with pytest.raises(ConfigError, match=r"reload\.notify\[0\]\.template"):
        check_template(template, "reload.notify[0].template")


def test_an_address_may_come_from_the_environment(monkeypatch):
    sink = ReceiverConfig(url_from="HOOK_URL")
    monkeypatch.delenv("HOOK_URL", raising=False)
    with pytest.raises(ConfigError, match="HOOK_URL does not hold a URL"):
        NotificationSender([sink], RestartCoordinator(), registry=CollectorRegistry())
    monkeypatch.setenv("HOOK_URL", "https://example.org/secret")
    NotificationSender([sink], RestartCoordinator(), registry=CollectorRegistry())


def changed(*names):
    """Looks at workloads whose restart for one source has just been written."""
    world = World()
    world.put(configmap("app", mode="a"))
    for name in names:
        world.put(workload(name, uses=[env_from("app")]))
    world.run()
    world.put(configmap("app", mode="top secret"))
    world.run()
    world.now += 60
    return [world.evaluate("Deployment", name) for name in names]


async def test_all_workloads_of_one_change_are_one_message_once_they_have_settled():
    clock = VirtualClock()
    notifier = NotificationSender(
        [ReceiverConfig(url="http://x")], RestartCoordinator(), registry=CollectorRegistry(), clock=clock
    )
    for look in changed("web", "api"):
        notifier.evaluated(look, written=True)
    assert notifier.collect() == []
    await clock.advance(SETTLE_SECONDS)
    (notice,) = notifier.collect()
    assert [one.workload.name for one in notice.workloads] == ["api", "web"]
    assert (notice.outcome, notice.sources) == ("finished", ["configmap/shop/app#mode"])
    assert b"top secret" not in body_of(notice, ReceiverConfig(url="http://x"))[1]
    assert notifier.collect() == []


async def test_a_message_waits_for_the_rollouts_and_names_the_failed_one():
    clock, coordinator = VirtualClock(), RestartCoordinator()
    notifier = NotificationSender(
        [ReceiverConfig(url="http://x")], coordinator, registry=CollectorRegistry(), clock=clock
    )
    (look,) = changed("web")
    coordinator.rollouts.claim(WEB, now=clock.time(), cause="configmap/app#mode", sources=[APP], deadline_seconds=600)
    notifier.evaluated(look, written=True)
    await clock.advance(60)
    assert notifier.collect() == []
    coordinator.rollouts.set_issue(WEB, "pod web-1: ImagePullBackOff")
    (notice,) = notifier.collect()
    assert (notice.outcome, notice.workloads[0].reason) == ("failed", "pod web-1: ImagePullBackOff")


async def test_a_restart_that_is_refused_again_and_again_is_one_message_per_change():
    at_once = ReloadConfig(quiet_period="0s", max_delay="0s").options()
    clock, world = VirtualClock(), World(at_once)
    notifier = NotificationSender(
        [ReceiverConfig(url="http://x")], RestartCoordinator(), registry=CollectorRegistry(), clock=clock
    )
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env_from("app")]))
    world.run()
    told = []
    for mode in ("b", "c"):
        world.put(configmap("app", mode=mode))
        look = world.evaluate("Deployment", "web")
        assert look.plan.action == "restart"
        for _ in range(10):
            notifier.failed(look, Invalid("no"))
            await clock.advance(LONGEST_SECONDS)
            told += notifier.collect()
    assert [notice.outcome for notice in told] == ["failed", "failed"]


async def test_what_was_not_written_is_not_an_event():
    notifier = NotificationSender(
        [ReceiverConfig(url="http://x")], RestartCoordinator(), registry=CollectorRegistry(), clock=VirtualClock()
    )
    for look in changed("web"):
        notifier.evaluated(look, written=False)
    assert notifier.collect() == []


class NoPauses(VirtualClock):
    """Time in which pauses take none."""

    async def sleep(self, seconds):
        """At once."""


@pytest.mark.parametrize(
    ("answers", "arrived", "counts"),
    [
        ([], True, {"delivered": 1, "retried": 0, "failed": 0}),
        ([500, 503], True, {"delivered": 1, "retried": 2, "failed": 0}),
        ([500] * 9, False, {"delivered": 0, "retried": 4, "failed": 1}),
        ([404], False, {"delivered": 0, "retried": 0, "failed": 1}),
    ],
)
async def test_a_message_is_tried_again_and_counted(answers, arrived, counts):
    left = list(answers)

    async def handle(_request):
        return web.Response(status=left.pop(0) if left else 200)

    application = web.Application()
    application.router.add_post("/", handle)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    registry = CollectorRegistry()
    sink = ReceiverConfig(url=f"http://127.0.0.1:{runner.addresses[0][1]}/", format="slack")
    try:
        notifier = NotificationSender([sink], RestartCoordinator(), registry=registry, clock=NoPauses())
        async with aiohttp.ClientSession() as session:
            assert await notifier.deliver(session, NOTICE, sink, sink.url) is arrived
    finally:
        await runner.cleanup()
    name = "steersman_reload_notifications_total"
    assert {count: registry.get_sample_value(name, {"format": "slack", "result": count}) for count in counts} == counts


class Untouched:
    """A session that nobody may use."""

    def post(self, *_arguments, **_options):
        raise AssertionError("a message was sent")


async def test_a_message_is_an_effect_that_a_dry_run_leaves_out_and_a_lost_lease_refuses():
    sink = ReceiverConfig(url="http://x/secret-path", format="slack")
    notifier = NotificationSender([sink], RestartCoordinator(), registry=CollectorRegistry(), clock=NoPauses())
    with WriteGuard(dry_run=True).acting_for(None), capture_logs() as logs:
        assert await notifier.deliver(Untouched(), NOTICE, sink, sink.url) is False
    assert [(line["effect"], line["target"]) for line in logs] == [("notification", "x")], "and no more of the address"
    deposed = WriteGuard()
    deposed.fence = lambda _key: NOT_LEADER
    with deposed.acting_for(None), pytest.raises(NotLeading):
        await notifier.deliver(Untouched(), NOTICE, sink, sink.url)


async def test_a_receiver_that_does_not_answer_holds_up_no_other():
    arrived, over = asyncio.Event(), asyncio.Event()

    async def slow(_request):
        await over.wait()
        return web.Response()

    async def fine(_request):
        arrived.set()
        return web.Response()

    application = web.Application()
    application.router.add_post("/slow", slow)
    application.router.add_post("/fine", fine)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sinks = [ReceiverConfig(url=f"http://127.0.0.1:{runner.addresses[0][1]}/{path}") for path in ("slow", "fine")]
    clock = VirtualClock()
    notifier = NotificationSender(sinks, RestartCoordinator(), registry=CollectorRegistry(), clock=clock)
    task = asyncio.create_task(notifier.run())
    try:
        for look in changed("web"):
            notifier.evaluated(look, written=True)
        await clock.advance(SETTLE_SECONDS + 2)
        await asyncio.wait_for(arrived.wait(), 60)
    finally:
        over.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await runner.cleanup()


async def test_a_message_goes_through_the_proxy_of_its_receiver():
    asked = []

    async def forward(request):
        asked.append(str(request.url))
        return web.Response()

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sink = ReceiverConfig(url="http://hooks.invalid/x", proxy=f"http://127.0.0.1:{runner.addresses[0][1]}", attempts=1)
    notifier = NotificationSender([sink], RestartCoordinator(), registry=CollectorRegistry(), clock=NoPauses())
    try:
        async with aiohttp.ClientSession() as session:
            assert await notifier.deliver(session, NOTICE, sink, sink.url) is True
    finally:
        await runner.cleanup()
    assert asked == ["http://hooks.invalid/x"]


async def test_an_address_that_is_impossible_is_a_message_not_delivered_and_breaks_nothing():
    sink = ReceiverConfig(url=f"http://{'a' * 64}.example/hook", attempts=1)
    registry, clock = CollectorRegistry(), VirtualClock()
    notifier = NotificationSender([sink], RestartCoordinator(), registry=registry, clock=clock)
    async with aiohttp.ClientSession() as session:
        assert await notifier.deliver(session, NOTICE, sink, sink.url) is False
    name = "steersman_reload_notifications_total"
    assert registry.get_sample_value(name, {"format": sink.format, "result": "failed"}) == 1


async def test_a_notifier_that_is_started_again_goes_on():
    clock = VirtualClock(time=1000.0)
    notifier = NotificationSender([], RestartCoordinator(), registry=CollectorRegistry(), clock=clock)
    for _ in range(2):
        task = asyncio.create_task(notifier.run())
        await clock.advance(3)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Shop:
    """Workloads that use one ConfigMap."""

    def __init__(self, *names, options=None, **annotations):
        self.names = names
        self.world = World(options)
        self.world.put(configmap("app", mode="a"))
        for name in names:
            marks = {"steersman.dev/reload": "auto", **annotations}
            self.world.put(workload(name, uses=[env_from("app")], annotations=marks))
        self.world.run()
        self.clock = VirtualClock(time=self.world.now)

    async def restart(self, action=Action.RESTART):
        """Change the ConfigMap, and give the looks that restart for it."""
        self.world.put(configmap("app", mode="b"))
        self.world.run()
        self.world.now += 60
        await self.clock.advance(60)
        looks = [self.world.evaluate("Deployment", name) for name in self.names]
        assert {look.plan.action for look in looks} == {action}
        self.world.run()
        return looks


@pytest.mark.parametrize(("chosen", "told"), [(None, [["web"], ["web"]]), ("shop", [[], ["web"]]), ("none", [[], []])])
async def test_a_workload_chooses_who_is_notified_of_it(chosen, told):
    shop = Shop("web", **({} if chosen is None else {"steersman.dev/notify": chosen}))
    sinks = [ReceiverConfig(url="http://x", name="ops"), ReceiverConfig(url="http://y", name="shop")]
    notifier = NotificationSender(sinks, shop.world.coordinator, registry=CollectorRegistry(), clock=shop.clock)
    for look in await shop.restart():
        notifier.evaluated(look, written=True)
    shop.world.roll("web")
    await shop.clock.advance(SETTLE_SECONDS)
    notifier.collect()
    heard = [
        [one.workload.name for _ in range(box.qsize()) for one in box.get_nowait().workloads]
        for box in notifier._queues
    ]
    assert heard == told
