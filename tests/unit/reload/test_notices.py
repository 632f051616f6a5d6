"""One message per change, with its outcome, in the form each receiver takes; tried again and counted."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from steersman.errors import ConfigError
from steersman.kube.errors import NotFound
from steersman.operators.reload.changes import Change
from steersman.operators.reload.features import NotifyConfig
from steersman.operators.reload.fleet import Fleet
from steersman.operators.reload.notices import Member, Notice, body_of, check_template
from steersman.operators.reload.notifier import SETTLE_SECONDS, Notifier
from steersman.operators.reload.plan import Action
from steersman.operators.reload.types import SourceKind, SourceRef, WorkloadId
from steersman.testing.clock import VirtualClock
from steersman.testing.reloading import World, configmap, env_from, workload

APP = SourceRef(SourceKind.CONFIGMAP, "shop", "app")
WEB, API = WorkloadId("Deployment", "shop", "web"), WorkloadId("Deployment", "shop", "api")
NOTICE = Notice(
    id="1",
    at=1_700_000_000.0,
    changes=(Change(APP, ("mode",)),),
    members=(
        Member(workload=WEB, action="restart", outcome="available", seconds=14),
        Member(workload=API, action="restart", outcome="failed", reason="pod api-1: CrashLoopBackOff"),
    ),
)


def test_the_text_says_outcome_sources_and_workloads():
    assert NOTICE.text() == (
        "failed: configmap/shop/app#mode restarted 2 workloads: deployment/shop/web, deployment/shop/api"
        "; failed: deployment/shop/api: pod api-1: CrashLoopBackOff"
    )
    assert NOTICE.text("$$ $time $count") == "$ 2023-11-14T22:13:20Z 2 workloads"


def test_a_cloud_event_has_everything_a_program_wants():
    kind, body = body_of(NOTICE, NotifyConfig(url="http://x"))
    event = json.loads(body)
    assert kind == "application/cloudevents+json"
    assert (event["specversion"], event["type"]) == ("1.0", "dev.steersman.reload.change.failed")
    assert event["data"]["sources"] == [{"kind": "configmap", "namespace": "shop", "name": "app", "keys": ["mode"]}]
    assert [one["outcome"] for one in event["data"]["workloads"]] == ["available", "failed"]


@pytest.mark.parametrize("form", ["slack", "googlechat", "teams", "text"])
def test_every_receiver_gets_the_text_in_its_form(form):
    _, body = body_of(NOTICE, NotifyConfig(url="http://x", format=form, template="it is $outcome"))
    assert b"it is failed" in body
    if form in ("slack", "googlechat"):
        assert json.loads(body) == {"text": "it is failed"}
    if form == "teams":
        assert json.loads(body)["attachments"][0]["content"]["body"][0]["text"] == "it is failed"


@pytest.mark.parametrize("template", ["$value", "${", "$outcome $secret"])
def test_a_template_that_names_what_there_is_not_is_told_at_the_start(template):
    with pytest.raises(ConfigError, match=r"reload\.notify\[0\]\.template"):
        check_template(template, "reload.notify[0].template")


def test_an_address_may_come_from_the_environment(monkeypatch):
    sink = NotifyConfig(url_from="HOOK_URL")
    monkeypatch.delenv("HOOK_URL", raising=False)
    with pytest.raises(ConfigError, match="HOOK_URL does not hold an address"):
        Notifier([sink], Fleet(), registry=CollectorRegistry())
    monkeypatch.setenv("HOOK_URL", "https://example.org/secret")
    Notifier([sink], Fleet(), registry=CollectorRegistry())


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
    return [world.look("Deployment", name) for name in names]


async def test_all_workloads_of_one_change_are_one_message_once_they_have_settled():
    clock = VirtualClock()
    notifier = Notifier([NotifyConfig(url="http://x")], Fleet(), registry=CollectorRegistry(), clock=clock)
    for look in changed("web", "api"):
        notifier.looked(look, written=True)
    assert notifier.collect() == []
    await clock.advance(SETTLE_SECONDS)
    (notice,) = notifier.collect()
    assert [one.workload.name for one in notice.members] == ["api", "web"]
    assert (notice.outcome, notice.sources) == ("finished", ["configmap/shop/app#mode"])
    assert b"top secret" not in body_of(notice, NotifyConfig(url="http://x"))[1]
    assert notifier.collect() == []


async def test_a_message_waits_for_the_rollouts_and_tells_the_one_that_failed():
    clock, fleet = VirtualClock(), Fleet()
    notifier = Notifier([NotifyConfig(url="http://x")], fleet, registry=CollectorRegistry(), clock=clock)
    (look,) = changed("web")
    fleet.rollouts.claim(WEB, now=clock.time(), told="configmap/app#mode", sources=[APP], deadline_seconds=600)
    notifier.looked(look, written=True)
    await clock.advance(60)
    assert notifier.collect() == []
    fleet.rollouts.troubled(WEB, "pod web-1: ImagePullBackOff")
    (notice,) = notifier.collect()
    assert (notice.outcome, notice.members[0].reason) == ("failed", "pod web-1: ImagePullBackOff")


async def test_what_was_not_written_is_no_news():
    notifier = Notifier([NotifyConfig(url="http://x")], Fleet(), registry=CollectorRegistry(), clock=VirtualClock())
    for look in changed("web"):
        notifier.looked(look, written=False)
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
    sink = NotifyConfig(url=f"http://127.0.0.1:{runner.addresses[0][1]}/", format="slack")
    try:
        notifier = Notifier([sink], Fleet(), registry=registry, clock=NoPauses())
        async with aiohttp.ClientSession() as session:
            assert await notifier.deliver(session, NOTICE, sink, sink.url) is arrived
    finally:
        await runner.cleanup()
    name = "steersman_reload_notifications_total"
    assert {one: registry.get_sample_value(name, {"format": "slack", "result": one}) for one in counts} == counts


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
    sinks = [NotifyConfig(url=f"http://127.0.0.1:{runner.addresses[0][1]}/{path}") for path in ("slow", "fine")]
    clock = VirtualClock()
    notifier = Notifier(sinks, Fleet(), registry=CollectorRegistry(), clock=clock)
    task = asyncio.create_task(notifier.run())
    try:
        for look in changed("web"):
            notifier.looked(look, written=True)
        await clock.advance(SETTLE_SECONDS + 2)
        await asyncio.wait_for(arrived.wait(), 60)
    finally:
        over.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await runner.cleanup()


async def test_an_address_that_nobody_can_have_is_a_message_not_delivered_and_breaks_nothing():
    sink = NotifyConfig(url=f"http://{'a' * 64}.example/hook", attempts=1)
    registry, clock = CollectorRegistry(), VirtualClock()
    notifier = Notifier([sink], Fleet(), registry=registry, clock=clock)
    async with aiohttp.ClientSession() as session:
        assert await notifier.deliver(session, NOTICE, sink, sink.url) is False
    name = "steersman_reload_notifications_total"
    assert registry.get_sample_value(name, {"format": sink.format, "result": "failed"}) == 1


async def test_a_notifier_that_is_started_again_goes_on():
    class Leases:
        written: list[str] = []  # noqa: RUF012

        async def get(self, *_args, **_options):
            raise NotFound("no lease", code=404)

        async def patch(self, _target, _name, patch, **_options):
            self.written += patch["metadata"]["annotations"].values()

    cluster, clock = SimpleNamespace(client=Leases()), VirtualClock(time=1000.0)
    notifier = Notifier([], Fleet(), registry=CollectorRegistry(), clock=clock, lease="ops/steersman")
    for _ in range(2):
        task = asyncio.create_task(notifier.run(cluster))
        await clock.advance(3)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert cluster.client.written == ["999"]


# ------------------------------------------------------------------------------------------------ after a crash
class Shop:
    """Workloads that use one ConfigMap."""

    def __init__(self, *names):
        self.names = names
        self.world = World()
        self.world.put(configmap("app", mode="a"))
        for name in names:
            self.world.put(workload(name, uses=[env_from("app")]))
        self.world.run()
        self.clock = VirtualClock(time=self.world.now)

    def looks(self):
        """What a process sees that starts now."""
        self.world.crash()
        return [self.world.look("Deployment", name) for name in self.names]

    async def restart(self):
        """Change the ConfigMap, and give the looks that restart for it."""
        self.world.put(configmap("app", mode="b"))
        self.world.run()
        self.world.now += 60
        await self.clock.advance(60)
        looks = [self.world.look("Deployment", name) for name in self.names]
        assert {look.plan.action for look in looks} == {Action.RESTART}
        self.world.run()
        return looks


class Station:
    """A process with a notifier: what it hears, and what the one after it goes on with."""

    def __init__(self, clock, mark):
        self.clock = clock
        self.fleet = Fleet()
        self.notifier = Notifier(
            [NotifyConfig(url="http://x")], self.fleet, registry=CollectorRegistry(), clock=clock, lease="ops/steersman"
        )
        self.notifier.resume(mark)

    async def settled(self):
        await self.clock.advance(SETTLE_SECONDS)
        return self.notifier.collect()

    def delivered(self, notice):
        self.notifier._done_with(notice)


async def test_what_a_process_did_not_deliver_is_told_by_the_next_one_and_only_that():
    shop = Shop("web", "api")
    before = Station(shop.clock, None)
    for look in await shop.restart():
        before.notifier.looked(look, written=True)
    (notice,) = await before.settled()
    lost = before.notifier.mark  # it dies here: the message was on its way

    after = Station(shop.clock, lost)
    for look in shop.looks():
        after.notifier.looked(look, written=False)
        after.notifier.looked(look, written=False)
    (again,) = await after.settled()
    assert ([one.workload.name for one in again.members], again.sources) == (["api", "web"], notice.sources)
    assert again.id == notice.id
    after.delivered(again)

    third = Station(shop.clock, after.notifier.mark)
    for look in shop.looks():
        third.notifier.looked(look, written=False)
    assert await third.settled() == []


async def test_looks_that_come_before_the_mark_is_read_are_not_forgotten():
    shop = Shop("web")
    mark = int(shop.world.now)
    await shop.restart()
    notifier = Notifier(
        [NotifyConfig(url="http://x")], Fleet(), registry=CollectorRegistry(), clock=shop.clock, lease="ops/steersman"
    )
    for look in shop.looks():
        notifier.looked(look, written=False)
    notifier.resume(mark)
    await shop.clock.advance(SETTLE_SECONDS)
    (notice,) = notifier.collect()
    assert [one.workload.name for one in notice.members] == ["web"]


async def test_without_a_mark_nothing_of_the_past_is_told():
    shop = Shop("web")
    await shop.restart()
    await shop.clock.advance(1)
    station = Station(shop.clock, None)
    for look in shop.looks():
        station.notifier.looked(look, written=False)
    assert await station.settled() == []


async def test_the_mark_stays_behind_the_oldest_message_that_somebody_has_not_got():
    shop = Shop("web")
    station = Station(shop.clock, int(shop.world.now) - 100)
    for look in await shop.restart():
        station.notifier.looked(look, written=True)
    first = station.notifier._groups[0].first
    assert station.notifier.mark == first - 1
    (notice,) = await station.settled()
    assert station.notifier.mark == first - 1
    station.delivered(notice)
    assert station.notifier.mark == first
