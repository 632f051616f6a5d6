"""Daemons, timers and memory of objects, on the virtual clock."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from steersman.errors import ConfigError
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta, Resource, Struct
from steersman.runtime.controller.builder import Controller
from steersman.runtime.controller.predicates import labels
from steersman.runtime.controller.runner import ControllerRunner
from steersman.testing.clock import settle


class SiteSpec(Struct):
    follow: bool = True
    image: str = ""


class Site(Resource, group="example.org", version="v1"):
    spec: SiteSpec = SiteSpec()


A, B = NamespacedName("a", "shop"), NamespacedName("b", "shop")


def site(name: str = "a", revision: int = 1, *, uid: str = "", deleted: bool = False, **spec: Any) -> Site:
    meta = ObjectMeta(
        name=name, namespace="shop", uid=uid or f"uid-{name}", resource_version=str(revision), generation=revision
    )
    meta.deletion_timestamp = "2026-01-01T00:00:00Z" if deleted else None
    return Site(metadata=meta, spec=SiteSpec(**spec))


async def idle(_ctx: Any, _obj: Any) -> None:
    """A reconciler with nothing to do."""


class Daemon:
    """Notes when it starts and ends, and by what."""

    def __init__(self, *, slow: asyncio.Event | None = None) -> None:
        self.log: list[str] = []
        self.running = 0
        self.most = 0
        self.slow = slow

    async def run(self, ctx: Any, obj: Any) -> None:
        self.log.append(f"+{obj.name}")
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.Event().wait()
        finally:
            if self.slow is not None:
                await self.slow.wait()
            self.running -= 1
            self.log.append(f"-{obj.name}")


class Bench:
    def __init__(self, clock: Any, caches: Any, cluster: Any) -> None:
        self.clock, self.caches, self.cluster = clock, caches, cluster
        self.tasks: list[asyncio.Task[None]] = []
        self.mine = {A, B}

    async def run(self, controller: Controller, *objects: Site) -> ControllerRunner:
        self.runner = ControllerRunner(
            controller, {"": self.cluster}, permit=self.mine.__contains__, clock=self.clock, random=lambda: 0.5
        )
        self.runner.start_sources()
        self.tasks.append(asyncio.create_task(self.runner.run()))
        self.caches[Site].sync(*objects)
        await settle()
        return self.runner


@pytest.fixture
async def bench(clock, caches, memory_cluster):
    made = Bench(clock, caches, memory_cluster)
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)


# -- daemons ----------------------------------------------------------------------------------------------------------


async def test_a_daemon_starts_with_its_object_and_is_cancelled_when_that_is_deleted(bench):
    daemon = Daemon()
    await bench.run(Controller(Site, idle).daemon(daemon.run), site("a"))
    assert daemon.log == ["+a"]
    bench.caches[Site].set(site("b"))
    await settle()
    assert daemon.log == ["+a", "+b"]
    bench.caches[Site].remove(site("b"))
    await settle()
    assert daemon.log == ["+a", "+b", "-b"]
    bench.caches[Site].set(site("a", 2, deleted=True))
    await settle()
    assert daemon.log[3:] == ["-a"]


async def test_a_daemon_runs_on_through_changes_and_whatever_the_predicate_says_about_them(bench):
    daemon = Daemon()
    await bench.run(Controller(Site, idle).when(labels).daemon(daemon.run), site())
    bench.caches[Site].set(site(revision=2, image="new"))
    await settle()
    assert daemon.log == ["+a"]


async def test_a_daemon_is_cancelled_and_started_as_the_spec_says(bench):
    daemon = Daemon()
    controller = Controller(Site, idle).when(labels).daemon(daemon.run, running_while=lambda obj: obj.spec.follow)
    await bench.run(controller, site(follow=False))
    assert daemon.log == []
    bench.caches[Site].set(site(revision=2))
    await settle()
    bench.caches[Site].set(site(revision=3, follow=False))
    await settle()
    assert daemon.log == ["+a", "-a"]


async def test_a_new_daemon_waits_until_the_cancelled_one_has_ended(bench):
    slow = asyncio.Event()
    daemon = Daemon(slow=slow)
    await bench.run(Controller(Site, idle).daemon(daemon.run), site())
    bench.caches[Site].set(site(revision=2, uid="another"))
    await settle()
    assert daemon.log == ["+a"]
    slow.set()
    await settle()
    assert daemon.log == ["+a", "-a", "+a"]
    assert daemon.most == 1


async def test_a_daemon_that_fails_starts_again_with_growing_pauses_and_one_that_returns_does_not(bench):
    starts: list[float] = []

    async def run(ctx, obj):
        starts.append(bench.clock.monotonic())
        if len(starts) < 4:
            raise ZeroDivisionError("oops")

    await bench.run(Controller(Site, idle).daemon(run), site())
    await bench.clock.advance(1000)
    pauses = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert len(starts) == 4
    assert pauses == sorted(pauses)
    assert pauses[2] == pytest.approx(4 * pauses[0])
    bench.caches[Site].set(site(revision=2))
    await settle()
    assert len(starts) == 4


async def test_stopping_the_runner_waits_for_daemons_to_end(bench):
    slow = asyncio.Event()
    daemon = Daemon(slow=slow)
    runner = await bench.run(Controller(Site, idle).daemon(daemon.run), site())
    runner.stop()
    await settle()
    assert not bench.tasks[0].done()
    slow.set()
    await bench.tasks[0]
    assert daemon.log == ["+a", "-a"]


async def test_nothing_runs_for_a_key_of_another_process_and_a_hand_over_waits_for_it(bench):
    slow = asyncio.Event()
    daemon = Daemon(slow=slow)
    bench.mine.discard(B)
    runner = await bench.run(Controller(Site, idle).daemon(daemon.run), site("a"), site("b"))
    assert daemon.log == ["+a"]
    bench.mine.discard(A)
    handing_over = asyncio.ensure_future(runner.wait_idle(lambda key: key == A))
    await settle()
    assert not handing_over.done()
    slow.set()
    await handing_over
    assert daemon.log == ["+a", "-a"]
    bench.mine.add(B)
    runner.add_all(where=lambda key: key == B)
    await settle()
    assert daemon.log == ["+a", "-a", "+b"]


async def test_a_daemon_reads_the_present_state_whenever_it_asks(bench):
    seen: list[str] = []

    async def run(ctx, obj):
        while True:
            with ctx.snapshot() as now:
                seen.append(now.cache[Site].get(ctx.key).spec.image)
            await ctx.sleep(10)

    await bench.run(Controller(Site, idle).daemon(run), site(image="one"))
    bench.caches[Site].set(site(revision=2, image="two"))
    await bench.clock.advance(10)
    assert seen == ["one", "two"]


def test_a_daemon_that_cannot_be_cancelled_is_refused():
    with pytest.raises(ConfigError, match="a thread cannot be cancelled"):
        Controller(Site, idle).daemon(lambda ctx, obj: None)  # type: ignore[arg-type,return-value]


# -- timers -----------------------------------------------------------------------------------------------------------


async def test_a_timer_runs_after_its_delay_and_then_with_its_interval(bench):
    times: list[float] = []

    async def run(ctx, obj):
        times.append(bench.clock.monotonic() - start)

    start = bench.clock.monotonic()
    await bench.run(Controller(Site, idle).timer(run, every="10s", initial_delay=3), site())
    await bench.clock.advance(25)
    assert times == [3.0, 13.0, 23.0]
    bench.caches[Site].remove(site())
    await bench.clock.advance(100)
    assert len(times) == 3


async def test_an_idle_timer_waits_until_the_spec_has_been_still(bench):
    times: list[float] = []

    async def run(ctx, obj):
        times.append(bench.clock.monotonic() - start)

    start = bench.clock.monotonic()
    await bench.run(Controller(Site, idle).timer(run, every=10, idle=5), site())
    await bench.clock.advance(4)
    bench.caches[Site].set(site(revision=2))
    await bench.clock.advance(4.5)
    assert times == []
    await bench.clock.advance(0.5)
    assert times == [9.0]
    status_only = site(revision=2)
    status_only.metadata.resource_version = "3"
    bench.caches[Site].set(status_only)
    await bench.clock.advance(10)
    assert times == [9.0, 19.0]


async def test_a_timer_that_fails_runs_again_and_gets_the_object_as_it_is_then(bench):
    seen: list[str] = []

    async def run(ctx, obj):
        seen.append(obj.spec.image)
        raise ZeroDivisionError("oops")

    await bench.run(Controller(Site, idle).timer(run, every=10), site(image="one"))
    bench.caches[Site].set(site(revision=2, image="two"))
    await bench.clock.advance(10)
    assert seen == ["one", "two"]


async def test_a_timer_may_block(bench):
    ran = asyncio.Event()
    loop = asyncio.get_running_loop()

    def run(ctx, obj):
        loop.call_soon_threadsafe(ran.set)

    await bench.run(Controller(Site, idle).timer(run, every=10), site())
    await ran.wait()


# -- memory -----------------------------------------------------------------------------------------------------------


async def test_memory_is_shared_by_reconciles_timers_and_daemons_and_goes_with_the_object(bench):
    seen: list[int] = []

    async def reconcile(ctx, obj):
        ctx.memory["reconciles"] = ctx.memory.get("reconciles", 0) + 1

    async def run(ctx, obj):
        seen.append(ctx.memory.get("reconciles", 0))

    async def daemon(ctx, obj):
        ctx.memory["daemon"] = True

    await bench.run(Controller(Site, reconcile).timer(run, every=10, initial_delay=1).daemon(daemon), site())
    bench.caches[Site].set(site(revision=2))
    await bench.clock.advance(1)
    assert seen == [2]
    memories = bench.runner._worker.memories
    assert memories.of(A, "uid-a")["daemon"]
    bench.caches[Site].set(site(revision=3, uid="another"))
    await bench.clock.advance(1)
    assert seen == [2, 1]
    bench.caches[Site].remove(site(uid="another"))
    await settle()
    assert memories._kept == {}


# -- fields -----------------------------------------------------------------------------------------------------------


async def test_a_field_handler_gets_the_old_and_the_new_value_also_when_the_predicate_drops_the_change(bench):
    changes: list[tuple[str, Any, Any]] = []

    async def image_changed(ctx, obj, change):
        changes.append((change.path, change.old, change.new))

    await bench.run(Controller(Site, idle).when(labels).on_field("spec.image", image_changed), site(image="one"))
    assert changes == []
    bench.caches[Site].set(site(revision=2, image="two"))
    await settle()
    bench.caches[Site].set(site(revision=3, image="two", follow=False))
    await settle()
    assert changes == [("spec.image", "one", "two")]


async def test_a_field_handler_that_fails_is_called_again_with_the_value_it_last_succeeded_for(bench):
    changes: list[tuple[Any, Any]] = []

    async def image_changed(ctx, obj, change):
        changes.append((change.old, change.new))
        if len(changes) == 1:
            raise ZeroDivisionError("oops")

    await bench.run(Controller(Site, idle).on_field("spec.image", image_changed), site(image="one"))
    bench.caches[Site].set(site(revision=2, image="two"))
    await settle()
    bench.caches[Site].set(site(revision=3, image="three"))
    await bench.clock.advance(1)
    assert changes == [("one", "two"), ("one", "three")]


def test_a_field_that_a_kind_does_not_have_is_refused():
    async def handler(ctx, obj, change): ...

    with pytest.raises(ConfigError, match="did you mean image"):
        Controller(Site, idle).on_field("spec.imag", handler)
    with pytest.raises(ConfigError, match="three arguments, the context, the object and the change"):
        Controller(Site, idle).on_field("spec.image", idle)
