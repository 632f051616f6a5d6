"""One message per change, with its outcome, in the form each receiver takes; tried again and counted."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import web
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from steersman.errors import ConfigError
from steersman.kube.errors import Invalid, ServerError
from steersman.kube.types.coordination import Lease
from steersman.operators.reload.changes import Change
from steersman.operators.reload.features import NotifyConfig
from steersman.operators.reload.fleet import Fleet
from steersman.operators.reload.notices import Member, Notice, body_of, check_template
from steersman.operators.reload.notifier import LONGEST_SECONDS, SETTLE_SECONDS, Notifier
from steersman.operators.reload.plan import Action
from steersman.operators.reload.types import ReloadConfig, SourceKind, SourceRef, WorkloadId
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


async def test_a_restart_that_is_refused_again_and_again_is_one_message_per_change():
    at_once = ReloadConfig(quiet_period="0s", max_delay="0s").options()
    clock, world = VirtualClock(), World(at_once)
    notifier = Notifier([NotifyConfig(url="http://x")], Fleet(), registry=CollectorRegistry(), clock=clock)
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env_from("app")]))
    world.run()
    told = []
    for mode in ("b", "c"):
        world.put(configmap("app", mode=mode))
        look = world.look("Deployment", "web")
        assert look.plan.action == "restart"
        for _ in range(10):
            notifier.failed(look, Invalid("no"))
            await clock.advance(LONGEST_SECONDS)
            told += notifier.collect()
    assert [notice.outcome for notice in told] == ["failed", "failed"]


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
    sink = NotifyConfig(url="http://hooks.invalid/x", proxy=f"http://127.0.0.1:{runner.addresses[0][1]}", attempts=1)
    notifier = Notifier([sink], Fleet(), registry=CollectorRegistry(), clock=NoPauses())
    try:
        async with aiohttp.ClientSession() as session:
            assert await notifier.deliver(session, NOTICE, sink, sink.url) is True
    finally:
        await runner.cleanup()
    assert asked == ["http://hooks.invalid/x"]


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
            return Lease()

        async def patch(self, _target, _name, patch, **_options):
            self.written += patch["metadata"]["annotations"].values()

    cluster, clock = SimpleNamespace(client=Leases(), caches=[]), VirtualClock(time=1000.0)
    notifier = Notifier([], Fleet(), registry=CollectorRegistry(), clock=clock, lease="ops/steersman")
    for _ in range(2):
        task = asyncio.create_task(notifier.run(cluster))
        await clock.advance(3)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert cluster.client.written == ["999"]


@pytest.mark.parametrize(("chosen", "told"), [(None, [["web"], ["web"]]), ("shop", [[], ["web"]]), ("none", [[], []])])
async def test_a_workload_chooses_who_is_told_of_it(chosen, told):
    shop = Shop("web", **({} if chosen is None else {"steersman.dev/notify": chosen}))
    sinks = [NotifyConfig(url="http://x", name="ops"), NotifyConfig(url="http://y", name="shop")]
    notifier = Notifier(sinks, shop.world.fleet, registry=CollectorRegistry(), clock=shop.clock)
    for look in await shop.restart():
        notifier.looked(look, written=True)
    shop.world.roll("web")
    await shop.clock.advance(SETTLE_SECONDS)
    notifier.collect()
    heard = [
        [one.workload.name for _ in range(box.qsize()) for one in box.get_nowait().members]
        for box in notifier._outboxes
    ]
    assert heard == told


# ------------------------------------------------------------------------------------------------ after a crash
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

    def looks(self):
        """What a process sees that starts now."""
        self.world.crash()
        return [self.world.look("Deployment", name) for name in self.names]

    async def restart(self, action=Action.RESTART):
        """Change the ConfigMap, and give the looks that restart for it."""
        self.world.put(configmap("app", mode="b"))
        self.world.run()
        self.world.now += 60
        await self.clock.advance(60)
        looks = [self.world.look("Deployment", name) for name in self.names]
        assert {look.plan.action for look in looks} == {action}
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
        self.notifier.account.resume(mark, clock.time())

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
    after.notifier.sweep(look.workload for look in shop.looks())
    for look in shop.looks():
        after.notifier.looked(look, written=False)
    (again,) = await after.settled()
    assert ([one.workload.name for one in again.members], again.sources) == (["api", "web"], notice.sources)
    assert again.id == notice.id
    after.delivered(again)

    third = Station(shop.clock, after.notifier.mark)
    third.notifier.sweep(look.workload for look in shop.looks())
    assert await third.settled() == []


async def test_the_mark_does_not_move_before_the_past_of_every_workload_is_read():
    """Otherwise a leader that tells one message and dies takes with it what the one before had not told of others."""
    shop = Shop("web", "api")
    mark = int(shop.world.now)
    await shop.restart()  # by a process that dies at once
    station = Station(shop.clock, mark)
    web, api = shop.looks()
    station.notifier.looked(web, written=False)
    (notice,) = await station.settled()
    station.delivered(notice)
    assert station.notifier.mark == mark
    station.notifier.sweep([web.workload, api.workload])
    (notice,) = await station.settled()
    assert [one.workload.name for one in notice.members] == ["api"]
    at = mark + 60
    assert station.notifier.mark < at
    station.delivered(notice)
    assert station.notifier.mark >= at


async def test_the_mark_stays_behind_a_restart_that_is_under_way_until_the_workload_shows_what_became_of_it():
    shop = Shop("web")
    station = Station(shop.clock, int(shop.world.now))
    station.notifier.sweep([])
    (look,) = await shop.restart()
    begun = station.notifier.begins(look)
    at = begun.plan.state.history[-1].at
    other = WorkloadId("Deployment", "shop", "other")
    await shop.clock.advance(100)
    station.notifier.account.made(other, at + 50)
    station.notifier._join((), Member(workload=other, action="restart", outcome="available"), at + 50)
    for notice in await station.settled():
        station.delivered(notice)
    assert station.notifier.mark == at - 1
    station.notifier.failed(begun, ServerError("no answer", code=504))
    assert station.notifier.mark == at - 1  # it may have been made
    station.notifier.looked(replace(look, plan=replace(look.plan, state=None)), written=False)
    assert station.notifier.mark == at - 1  # and the cache has not moved yet
    for notice in await station.settled():
        station.delivered(notice)
    (shown,) = shop.looks()
    station.notifier.looked(shown, written=False)
    (notice,) = await station.settled()
    assert [(one.workload.name, one.outcome) for one in notice.members] == [("web", "available")]
    station.delivered(notice)
    assert station.notifier.mark > at


async def test_no_restart_is_dated_before_what_has_been_told_whatever_the_clock_says():
    shop = Shop("web")
    ahead = int(shop.world.now) + 3600  # the clock of the leader before us
    station = Station(shop.clock, ahead)
    station.notifier.sweep([])
    (look,) = await shop.restart()
    begun = station.notifier.begins(look)
    assert begun.plan.state.history[-1].at == ahead + 1
    station.notifier.looked(begun, written=True)
    assert station.notifier.mark == ahead
    (notice,) = await station.settled()
    station.delivered(notice)
    assert station.notifier.mark == ahead + 1


async def test_what_has_been_told_is_not_remembered_for_ever():
    shop = Shop("web", "api")
    station = Station(shop.clock, int(shop.world.now))
    station.notifier.sweep([])
    for look in await shop.restart():
        station.notifier.looked(station.notifier.begins(look), written=True)
    (notice,) = await station.settled()
    assert len(station.notifier.account) == 2
    station.delivered(notice)
    station.notifier.account.marked(station.notifier.mark)
    assert len(station.notifier.account) == 0


@pytest.mark.parametrize(("action", "told"), [("none", Action.TRACK), ("evict", Action.EVICT)])
async def test_what_was_done_in_the_place_of_a_restart_is_told_by_the_next_process_too(action, told):
    shop = Shop("web", options=ReloadConfig(actions=("evict",)).options(), **{"steersman.dev/action": action})
    mark = int(shop.world.now)
    await shop.restart(told)
    station = Station(shop.clock, mark)
    station.notifier.sweep(look.workload for look in shop.looks())
    (notice,) = await station.settled()
    assert [(one.action, one.outcome) for one in notice.members] == [(told, "applied")]
    assert notice.sources == ["configmap/shop/app#mode"]


async def test_without_a_mark_nothing_of_the_past_is_told():
    shop = Shop("web")
    await shop.restart()
    await shop.clock.advance(1)
    station = Station(shop.clock, None)
    station.notifier.sweep(look.workload for look in shop.looks())
    assert await station.settled() == []


async def test_the_mark_stays_behind_the_oldest_message_that_somebody_has_not_got():
    shop = Shop("web")
    station = Station(shop.clock, int(shop.world.now) - 100)
    station.notifier.sweep([])
    for look in await shop.restart():
        station.notifier.looked(look, written=True)
    first = station.notifier._groups[0].first
    assert station.notifier.mark == first - 1
    (notice,) = await station.settled()
    assert station.notifier.mark == first - 1
    station.delivered(notice)
    assert station.notifier.mark == first
