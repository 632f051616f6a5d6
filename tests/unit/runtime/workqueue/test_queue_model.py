"""The queue against a model that is too simple to be wrong: plain dictionaries, looked through from end to end."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from steersman.kube.api.gvk import NamespacedName
from steersman.runtime.workqueue.queue import Debounce, QueueClosed, WorkQueue
from steersman.runtime.workqueue.rate_limiters import ExponentialBackoff
from steersman.runtime.workqueue.ready_queue import TURN
from steersman.testing import VirtualClock
from steersman.testing.clock import settle

PATIENCE = 30.0
KEYS = st.builds(NamespacedName, st.sampled_from("123"), st.sampled_from(["a", "b", "c"]))
PRIORITIES = st.sampled_from([-100, 0, 5])


@dataclass
class Wish:
    """What the model knows of a dirty key."""

    priority: int
    at: float = math.inf
    quiet: float = math.inf
    asked: float | None = None
    order: tuple[float, int] | None = None  # its place in its lane; set when ready
    since: float = 0.0

    @property
    def due(self) -> float:
        return min(self.at, self.quiet)


@dataclass
class Model:
    dirty: dict[NamespacedName, Wish] = field(default_factory=dict)
    running: dict[NamespacedName, int] = field(default_factory=dict)
    # (priority, waiting namespace) -> how often each other namespace was served meanwhile
    overtaken: dict[tuple[int, str], dict[str, int]] = field(default_factory=dict)

    def ready(self) -> dict[NamespacedName, Wish]:
        return {key: wish for key, wish in self.dirty.items() if wish.order is not None}

    def waiting(self) -> dict[NamespacedName, Wish]:
        return {k: w for k, w in self.dirty.items() if w.order is None and k not in self.running}


class QueueMachine(RuleBasedStateMachine):
    @initialize(debounce=st.sampled_from([None, Debounce(quiet_seconds=2, limit_seconds=5)]))
    def start(self, debounce: Debounce | None) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = VirtualClock()
        self.debounce = debounce
        self.queue: WorkQueue[NamespacedName] = WorkQueue(
            clock=self.clock, debounce=debounce, limiter=ExponentialBackoff(jitter=0), patience_seconds=PATIENCE
        )
        self.model = Model()
        self.getters: list[asyncio.Task[NamespacedName]] = []
        self.picks = 0
        self.steps = 0

    # -- the model's view -------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self.clock.monotonic()

    def model_ready(self, key: NamespacedName, at: float | None = None) -> None:
        wish = self.model.dirty[key]
        self.steps += 1
        wish.since = self.now() if wish.order is None else wish.since
        wish.order = (self.now(), 0 if at is not None else self.steps)
        self.model.overtaken.setdefault((wish.priority, key.namespace), {})

    def model_add(self, key: NamespacedName, priority: int, after: float | None) -> None:
        wish = self.model.dirty.setdefault(key, Wish(priority))
        if priority > wish.priority:
            before, wish.priority = wish.priority, priority
            if wish.order is not None:
                self.model_ready(key)
                self.model_lane_changed(before, key.namespace)
        if wish.order is not None:
            return
        if after is None and self.debounce is not None:
            wish.asked = self.now() if wish.asked is None else wish.asked
            wish.quiet = min(self.now() + self.debounce.quiet_seconds, wish.asked + self.debounce.limit_seconds)
        else:
            wish.at = min(wish.at, self.now() + (after or 0))
        if key not in self.model.running and wish.due <= self.now():
            self.model_ready(key)

    def model_lane_changed(self, priority: int, namespace: str) -> None:
        if not any(w.priority == priority and k.namespace == namespace for k, w in self.model.ready().items()):
            self.model.overtaken.pop((priority, namespace), None)

    def check_pick(self, key: NamespacedName) -> None:
        self.picks += 1
        ready = self.model.ready()
        assert key in ready, "handed out a key that was not ready"
        assert key not in self.model.running, "handed out a running key"
        wish = ready[key]
        top = max(w.priority for w in ready.values())
        if wish.priority != top:
            assert self.picks % TURN == 0, "a lower priority was let in out of turn"
            assert self.now() - wish.since > PATIENCE, "a lower priority was let in too early"
        lane = [w for k, w in ready.items() if k.namespace == key.namespace and w.priority == wish.priority]
        assert wish.order == min(w.order for w in lane if w.order), "not the first of its lane"
        for (priority, namespace), others in self.model.overtaken.items():
            if priority == wish.priority and namespace != key.namespace:
                others[key.namespace] = others.get(key.namespace, 0) + 1
                assert others[key.namespace] <= 1, f"{key.namespace} was served twice while {namespace} waited"
        del self.model.dirty[key]
        self.model.running[key] = wish.priority
        self.model.overtaken.pop((wish.priority, key.namespace), None)
        if len(lane) > 1:
            self.model.overtaken[wish.priority, key.namespace] = {}

    def rest(self) -> None:
        """Let the loop come to rest, and check what waiting getters were given."""
        self.loop.run_until_complete(settle())
        for getter in [getter for getter in self.getters if getter.done()]:
            self.getters.remove(getter)
            self.check_pick(getter.result())

    # -- what can happen --------------------------------------------------------------------------------------------

    @rule(key=KEYS, priority=PRIORITIES, after=st.sampled_from([None, None, 0, 1, 4, 50]))
    def add(self, key: NamespacedName, priority: int, after: float | None) -> None:
        self.queue.add(key, priority=priority, after=after)
        self.model_add(key, priority, after)
        self.rest()

    @rule(key=KEYS)
    def retry(self, key: NamespacedName) -> None:
        priority = self.model.running.get(key, 0)
        delay = self.queue.add_rate_limited(key)
        self.model_add(key, priority, delay)
        self.rest()

    @rule()
    def get(self) -> None:
        self.getters.append(self.loop.create_task(self.queue.get()))
        self.rest()

    @precondition(lambda self: self.getters)
    @rule(data=st.data())
    def cancel_a_getter(self, data: st.DataObject) -> None:
        getter = data.draw(st.sampled_from(self.getters))
        self.getters.remove(getter)
        getter.cancel()
        self.rest()
        assert getter.cancelled()

    @precondition(lambda self: self.getters)
    @rule(data=st.data(), key=KEYS)
    def cancel_a_getter_while_a_key_becomes_ready(self, data: st.DataObject, key: NamespacedName) -> None:
        getter = data.draw(st.sampled_from(self.getters))
        self.getters.remove(getter)
        self.queue.add(key, after=0)
        self.model_add(key, 0, 0)
        getter.cancel()
        self.rest()
        assert getter.cancelled()

    @precondition(lambda self: self.model.running)
    @rule(data=st.data(), forget=st.booleans())
    def done(self, data: st.DataObject, forget: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.model.running)))
        if forget:
            self.queue.forget(key)
        self.queue.done(key)
        del self.model.running[key]
        wish = self.model.dirty.get(key)
        if wish is not None and wish.due <= self.now():
            self.model_ready(key)
        self.rest()

    @rule(seconds=st.sampled_from([0.004, 0.5, 1, 3, 29, 60]))
    def time_passes(self, seconds: float) -> None:
        end = self.now() + seconds
        while True:
            due = min((w.due for w in self.model.waiting().values()), default=math.inf)
            self.loop.run_until_complete(self.clock.advance(min(due, end) - self.now()))
            for key, wish in self.model.waiting().items():
                if wish.due <= self.now():
                    self.model_ready(key, at=wish.due)
            self.rest()
            if due >= end:
                return

    # -- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def the_queue_and_the_model_agree(self) -> None:
        ready = self.model.ready()
        assert len(self.queue) == len(ready)
        assert sum(self.queue.depths().values()) == len(ready)
        for priority, depth in self.queue.depths().items():
            assert depth == sum(w.priority == priority for w in ready.values())
        assert self.queue.processing == len(self.model.running)
        assert all(self.queue.priority(key) == priority for key, priority in self.model.running.items())

    @invariant()
    def a_key_is_ready_exactly_when_it_is_dirty_and_due_and_not_running(self) -> None:
        for key, wish in self.model.dirty.items():
            assert (wish.order is not None) == (key not in self.model.running and wish.due <= self.now())
        assert not (self.getters and self.model.ready()), "a worker waits although a key is ready"

    @invariant()
    def one_timer_is_set_when_something_waits(self) -> None:
        assert self.clock.pending <= 1
        assert not self.model.waiting() or self.clock.pending == 1

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        try:
            self.loop.run_until_complete(self.end())
        finally:
            self.loop.close()

    async def end(self) -> None:
        """Nothing is lost: with time and workers, every dirty key is handed out, and then the queue ends."""
        for getter in self.getters:
            getter.cancel()
        await asyncio.gather(*self.getters, return_exceptions=True)
        for key in list(self.model.running):
            self.queue.done(key)
        await self.clock.advance(5000)
        handed_out = [await self.queue.get() for _ in range(len(self.queue))]
        assert sorted(handed_out) == sorted(self.model.dirty)
        self.queue.close()
        with pytest.raises(QueueClosed):
            await self.queue.get()
        assert self.clock.pending == 0


TestQueueAgainstItsModel = QueueMachine.TestCase
TestQueueAgainstItsModel.settings = settings(
    max_examples=2 * settings().max_examples, stateful_step_count=50, deadline=None
)
