"""What a context sends to the server, and what it shows of the answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from steersman.clock import SYSTEM_CLOCK
from steersman.kube.api.errors import Conflict
from steersman.kube.api.objects import ObjectMeta, Resource, Struct
from steersman.kube.api.times import format_time
from steersman.runtime.cluster import Cluster, ClusterSnapshot, WatchedResource
from steersman.runtime.controller.watches import WatchSelection, WatchSpec
from steersman.runtime.reconcile.conditions import Condition, merge_condition, new_condition, set_conditions
from steersman.runtime.reconcile.context import PATIENCE_SECONDS, ClusterContext
from steersman.runtime.reconcile.status_patch import as_conditions, conditions_of, status_patch
from steersman.testing.clock import settle


class ThingStatus(Struct):
    conditions: list[Condition] | None = None
    ready: bool = False


class Thing(Resource, group="example.org", version="v1"):
    data: dict[str, str] | None = None
    status: ThingStatus = ThingStatus()


def thing(revision: str = "1", **fields: Any) -> Thing:
    known = {"name": "a", "namespace": "shop", "uid": "uid-a", "resource_version": revision, "generation": 1}
    meta = {name: fields.pop(name) for name in ("annotations", "finalizers", "uid") if name in fields}
    return Thing(metadata=ObjectMeta(**{**known, **meta}), **fields)


class Server:
    """One object, as a server keeps it: preconditions hold, revisions count."""

    field_manager = "test"

    def __init__(self, held: Thing) -> None:
        self.held = held
        self.patches: list[dict[str, Any]] = []
        self.applies = 0

    def guarded(self, _guard: Any) -> Server:
        return self

    async def get(self, *_: Any, **__: Any) -> Thing:
        return self.held

    async def apply(self, *_: Any, **__: Any) -> Thing:
        self.applies += 1
        return self.held

    async def patch(self, _target: Any, _name: str, patch: dict[str, Any], **_: Any) -> Thing:
        self.patches.append(patch)
        meta = self.held.metadata
        asked = patch["metadata"].get("resourceVersion", meta.resource_version), patch["metadata"].get("uid", meta.uid)
        if asked != (meta.resource_version, meta.uid):
            raise Conflict("the object has been modified", code=409)
        self.held = replace(self.held, metadata=replace(meta, resource_version=str(int(meta.resource_version) + 1)))
        status = patch.get("status", {})
        if "conditions" in status:
            listed = [Condition(**_python(entry)) for entry in status["conditions"]]
            self.held = replace(self.held, status=replace(self.held.status, conditions=listed))
        return self.held

    @property
    def conditions(self) -> list[str]:
        return [condition.type for condition in self.held.status.conditions or ()]


def _python(entry: dict[str, Any]) -> dict[str, Any]:
    names = {"lastTransitionTime": "last_transition_time", "observedGeneration": "observed_generation"}
    return {names.get(name, name): value for name, value in entry.items()}


class Bench:
    """Contexts of controllers that know the object of the server, each as of when it was opened."""

    def __init__(self, caches: Any, transform: Any = None, clock: Any = SYSTEM_CLOCK) -> None:
        self.server = Server(thing())
        self.cluster = Cluster(self.server, caches, clock=clock)
        self.shelf = WatchedResource.of(
            WatchSpec(target=Thing, role="for", selection=WatchSelection(transform=transform)), caches
        )

    def context(self, manager: str = "test") -> ClusterContext:
        return ClusterContext(self.cluster, ClusterSnapshot([self.shelf], user=manager), field_manager=manager)


def with_condition(obj: Thing, name: str) -> list[Condition]:
    return set_conditions(obj.status.conditions, new_condition(name, True, "Known"), now=0.0)


async def test_what_has_a_single_owner_is_written_whatever_the_resource_version(caches):
    bench = Bench(caches)
    bench.server.held = thing("7")
    caches[Thing].sync(thing("1"))
    assert await bench.context().status(thing("1"), ready=True)
    assert bench.server.patches == [{"metadata": {"uid": "uid-a"}, "status": {"ready": True}}]


@pytest.mark.parametrize("fields", [{"ready": True}, {"conditions": with_condition(thing(), "Ready")}], ids=list)
async def test_a_status_is_never_written_to_another_object_of_that_name(caches, fields):
    bench = Bench(caches)
    bench.server.held = thing("7", uid="another")
    caches[Thing].sync(thing())
    writing = asyncio.ensure_future(bench.context().status(thing(), **fields))
    await settle()
    caches[Thing].set(bench.server.held)
    with pytest.raises(Conflict):
        await writing
    assert bench.server.held == thing("7", uid="another")


# -- conditions, which several write -----------------------------------------------------------------------------------


def told(revision: str, *kinds: str, time: float = 0.0) -> Thing:
    listed = set_conditions(None, *(new_condition(kind, True, "Known") for kind in kinds), now=time)
    return thing(revision, status=ThingStatus(conditions=listed))


async def test_a_condition_that_another_client_wrote_since_is_kept_and_costs_one_request_more(caches):
    bench = Bench(caches)
    caches[Thing].sync(thing())
    bench.server.held = told("2", "Theirs")
    writing = asyncio.ensure_future(bench.context().status(thing(), conditions=with_condition(thing(), "Ours")))
    await settle()
    assert not writing.done()  # nothing is asked of the server while the watch has nothing new
    caches[Thing].set(bench.server.held)
    assert await writing
    assert bench.server.conditions == ["Theirs", "Ours"]
    assert len(bench.server.patches) == 2


async def test_conditions_are_written_with_one_request_to_what_the_cache_knows_last(caches):
    bench = Bench(caches)
    caches[Thing].sync(thing())
    context = bench.context()  # from before the others wrote
    bench.server.held = told("5", "Theirs")
    caches[Thing].set(bench.server.held)
    assert await context.status(thing(), conditions=with_condition(thing(), "Ours"))
    assert bench.server.conditions == ["Theirs", "Ours"]
    assert [patch["metadata"]["resourceVersion"] for patch in bench.server.patches] == ["5"]


async def test_a_condition_that_was_taken_away_is_taken_away_and_no_other(caches):
    bench = Bench(caches)
    bench.server.held = told("2", "Ours", "Theirs")
    caches[Thing].sync(bench.server.held)
    assert await bench.context().status(told("1", "Ours"), conditions=[])
    assert bench.server.conditions == ["Theirs"]


async def test_a_status_set_twice_after_one_read_is_written_once(caches):
    bench = Bench(caches)
    caches[Thing].sync(thing())
    context, early = bench.context(), thing()
    bench.server.held = told("1", "Ours", time=60.0)
    caches[Thing].set(replace(bench.server.held, metadata=replace(early.metadata, resource_version="2")))
    again = set_conditions(None, new_condition("Ours", True, "Known"), now=120.0)
    assert not await context.status(early, conditions=again)
    assert bench.server.patches == []


async def test_a_watch_that_delivers_nothing_does_not_hold_a_reconcile_for_ever(caches, clock):
    bench = Bench(caches, clock=clock)
    caches[Thing].sync(thing())
    bench.server.held = told("2", "Theirs")
    writing = asyncio.ensure_future(bench.context().status(thing(), conditions=with_condition(thing(), "Ours")))
    await clock.advance(PATIENCE_SECONDS + 1)
    with pytest.raises(Conflict):
        await writing
    assert bench.server.conditions == ["Theirs"]


# -- set_condition -----------------------------------------------------------------------------------------------------


def written(bench: Bench) -> list[tuple[str, str, str, str, int]]:
    listed = bench.server.held.status.conditions or ()
    return [(c.type, c.status, c.reason, c.last_transition_time, c.observed_generation) for c in listed]


async def test_a_condition_is_set_with_its_generation_and_other_fields_in_one_write(caches, clock):
    bench = Bench(caches, clock=clock)
    caches[Thing].sync(thing())
    assert await bench.context().set_condition(thing(), "Ready", False, reason="Starting", message="wait", ready=True)
    (patch,) = bench.server.patches
    (condition,) = patch["status"]["conditions"]
    since = format_time(clock.time())
    assert condition == {
        "type": "Ready",
        "status": "False",
        "reason": "Starting",
        "message": "wait",
        "lastTransitionTime": since,
        "observedGeneration": 1,
    }
    assert patch["status"]["ready"] is True


async def test_a_condition_that_says_the_same_is_not_written_again(caches, clock):
    bench = Bench(caches, clock=clock)
    caches[Thing].sync(thing())
    context = bench.context()
    assert await context.set_condition(thing(), "Ready", True, reason="Up")
    await clock.advance(60)
    assert not await context.set_condition(thing(), "Ready", True, reason="Up")
    assert len(bench.server.patches) == 1


async def test_the_transition_time_of_a_condition_moves_with_its_status_and_not_with_its_reason(caches, clock):
    bench = Bench(caches, clock=clock)
    caches[Thing].sync(thing())
    context, start = bench.context(), format_time(clock.time())
    await context.set_condition(thing(), "Ready", False, reason="Starting")
    await clock.advance(60)
    await context.set_condition(thing(), "Ready", False, reason="Pulling")
    assert written(bench) == [("Ready", "False", "Pulling", start, 1)]
    await context.set_condition(thing(), "Ready", None, reason="Lost")
    assert written(bench) == [("Ready", "Unknown", "Lost", format_time(clock.time()), 1)]


async def test_of_two_values_for_one_condition_the_last_stays_also_when_it_is_what_was_read(caches):
    bench = Bench(caches)
    read = told("1", "Ready")
    bench.server.held = read
    caches[Thing].sync(read)
    context = bench.context()
    await context.set_condition(read, "Ready", False, reason="Known")
    await context.set_condition(read, "Ready", True, reason="Known")
    assert [(entry[0], entry[1]) for entry in written(bench)] == [("Ready", "True")]
    assert len(bench.server.patches) == 2


async def test_setting_a_condition_keeps_foreign_entries_also_when_they_come_meanwhile(caches):
    bench = Bench(caches)
    caches[Thing].sync(thing())
    bench.server.held = told("2", "Theirs")
    writing = asyncio.ensure_future(bench.context().set_condition(thing(), "Ours", True, reason="Up"))
    await settle()
    caches[Thing].set(bench.server.held)
    assert await writing
    assert bench.server.conditions == ["Theirs", "Ours"]


class Short(Struct):
    type: str
    status: str


class OddStatus(Struct):
    conditions: list[Short] | None = None


class Odd(Resource, group="example.org", version="v1"):
    status: OddStatus | None = None


def test_a_field_that_the_type_of_a_condition_does_not_have_is_never_a_difference():
    odd = Odd(status=OddStatus(conditions=[Short(type="Ready", status="True")]))
    merged = merge_condition(conditions_of(odd), new_condition("Ready", True, "Up"), now=0.0)
    assert status_patch(odd, None, {"conditions": as_conditions(odd, merged)}) == {}


async def test_finalizers_are_written_only_to_the_resource_version_they_were_read_at(caches):
    bench = Bench(caches)
    bench.server.held = thing("7", finalizers=["theirs"])
    caches[Thing].sync(thing())
    with pytest.raises(Conflict):
        await bench.context().add_finalizer(thing(), "example.org/ours")
    with pytest.raises(Conflict):
        await bench.context().remove_finalizer(thing(finalizers=["example.org/ours"]), "example.org/ours")
    assert bench.server.held.metadata.finalizers == ["theirs"]


# -- where the cache keeps less than the server ------------------------------------------------------------------------


def strip(obj: Thing) -> Thing:
    obj.data = None
    obj.metadata.annotations = None
    return obj


def explode(_obj: Thing) -> Thing:
    raise RuntimeError("transform")


async def test_what_apply_returns_is_what_the_server_answered_whatever_the_cache_keeps(caches):
    bench = Bench(caches, transform=strip)
    bench.server.held = thing(data={"k": "v"})
    context = bench.context()
    assert (await context.apply(thing())).data == {"k": "v"}
    assert context.cache[Thing].get(thing().ref).data is None


async def test_a_transform_that_fails_concerns_the_cache_and_not_who_writes(caches):
    context = Bench(caches, transform=explode).context()
    assert await context.apply(thing()) == thing()
    assert context.cache[Thing].get(thing().ref) is None


async def test_nothing_is_sent_twice_though_the_cache_keeps_less_than_the_answer(caches):
    bench = Bench(caches, transform=strip)
    bench.server.held = thing(annotations={"example.org/revision": "1"})
    for _ in range(5):
        await bench.context().apply(thing())
    assert bench.server.applies == 1
