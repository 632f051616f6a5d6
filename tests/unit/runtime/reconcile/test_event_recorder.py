from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from steersman.kube.api.errors import Forbidden, NotFound
from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.kube.api.validation import dns_subdomain_errors
from steersman.runtime.reconcile.event_recorder import PENDING, EventRecorder, ReportedIssues
from steersman.testing.clock import settle

if TYPE_CHECKING:
    from steersman.kube.api.types.core import Event


class App(Resource, group="example.org", version="v1"):
    pass


class MemoryEvents:
    """As much of a client as the recorder uses."""

    def __init__(self) -> None:
        self.events: dict[str, Event] = {}
        self.requests: list[str] = []
        self.broken: Exception | None = None

    async def create(self, event: Event) -> Event:
        self.requests.append("create")
        if self.broken is not None:
            raise self.broken
        self.events[event.metadata.name] = event
        return event

    async def patch(self, cls: type, name: str, changes: dict[str, Any], *, namespace: str) -> Event:
        self.requests.append("patch")
        if name not in self.events:
            raise NotFound("gone")
        event = self.events[name]
        self.events[name] = replace(
            event, count=changes["count"], message=changes["message"], last_timestamp=changes["lastTimestamp"]
        )
        return self.events[name]

    def told(self) -> list[tuple[str, int]]:
        return [(event.message, event.count) for event in self.events.values()]


@pytest.fixture
def events() -> MemoryEvents:
    return MemoryEvents()


@pytest.fixture
async def recorder(events, clock):
    made = EventRecorder(events, component="test", clock=clock)
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def app(name: str = "a", namespace: str = "shop") -> App:
    return App(metadata=ObjectMeta(name=name, namespace=namespace, uid=f"uid-{name}", resource_version="5"))


async def test_an_event_says_what_happened_to_whom_and_who_says_so(recorder, events, clock):
    recorder.event(app(), App.KIND, "Scaled", "now 3", warning=True)
    await recorder.flush()
    [event] = events.events.values()
    about = event.involved_object
    assert (about.kind, about.api_version, about.name, about.uid) == ("App", "example.org/v1", "a", "uid-a")
    assert (event.type, event.reason, event.message, event.count) == ("Warning", "Scaled", "now 3", 1)
    assert event.metadata.namespace == "shop"
    assert event.source.component == event.reporting_component == "test"
    assert event.first_timestamp == event.last_timestamp == "2026-01-01T00:00:00Z"


async def test_the_same_event_again_is_counted(recorder, events, clock):
    for _ in range(5):
        recorder.event(app(), App.KIND, "Looked", "again")
        await clock.advance(1)
    assert events.told() == [("again", 5)]
    assert events.requests == ["create"] + ["patch"] * 4
    [event] = events.events.values()
    assert (event.first_timestamp, event.last_timestamp) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:04Z")


async def test_after_ten_similar_events_the_rest_become_one(recorder, events, clock):
    for number in range(15):
        recorder.event(app(), App.KIND, "Failed", f"try {number}")
    await recorder.flush()
    assert events.told() == [
        *((f"try {number}", 1) for number in range(10)),
        ("(combined from similar events): try 14", 5),
    ]
    await clock.advance(601)
    recorder.event(app(), App.KIND, "Failed", "try 15")
    await recorder.flush()
    assert events.told()[-1] == ("try 15", 1)


async def test_other_reasons_types_and_objects_are_not_similar(recorder, events):
    for number in range(10):
        recorder.event(app(), App.KIND, "Failed", f"try {number}")
    recorder.event(app(), App.KIND, "Other", "x")
    recorder.event(app(), App.KIND, "Failed", "y", warning=True)
    recorder.event(app("b"), App.KIND, "Failed", "z")
    await recorder.flush()
    assert events.told()[-3:] == [("x", 1), ("y", 1), ("z", 1)]


async def test_a_flood_about_one_object_is_cut_off_and_others_are_not(recorder, events, clock):
    for number in range(100):
        recorder.event(app(), App.KIND, f"R{number}", "x")
    recorder.event(app("b"), App.KIND, "R", "x")
    await recorder.flush()
    assert len(events.events) == 26
    assert recorder.dropped == 75
    await clock.advance(300)
    for number in range(5):
        recorder.event(app(), App.KIND, f"S{number}", "x")
    await recorder.flush()
    assert len(events.events) == 27


async def test_an_event_that_expired_in_the_cluster_is_written_again(recorder, events):
    recorder.event(app(), App.KIND, "R", "x")
    await recorder.flush()
    events.events.clear()
    recorder.event(app(), App.KIND, "R", "x")
    await recorder.flush()
    assert events.told() == [("x", 1)]


async def test_an_event_that_is_refused_is_dropped_and_the_next_one_goes_through(recorder, events):
    events.broken = Forbidden("no")
    recorder.event(app(), App.KIND, "R", "x")
    await recorder.flush()
    assert recorder.dropped == 1
    events.broken = None
    recorder.event(app(), App.KIND, "R", "x")
    await recorder.flush()
    assert events.told() == [("x", 1)]


async def test_recording_never_waits_whatever_the_sender_does(events, clock):
    recorder = EventRecorder(events, clock=clock)
    for number in range(PENDING + 10):
        recorder.event(app(f"n{number}"), App.KIND, "R", "x")
    assert recorder.dropped == 10
    await settle()
    assert events.requests == []


async def test_events_about_cluster_scoped_objects_go_to_the_default_namespace(recorder, events):
    recorder.event(app(namespace=""), App.KIND, "R", "m" * 5000)
    await recorder.flush()
    [event] = events.events.values()
    assert event.metadata.namespace == "default"
    assert event.involved_object.namespace == ""
    assert len(event.message) == 1024


@pytest.mark.parametrize("name", ["system:controller:dns", "Readers", "x" * 199 + "-" + "y" * 50])
async def test_an_event_may_be_about_an_object_whose_name_no_event_could_have(recorder, events, name):
    recorder.event(app(name), App.KIND, "Made", "it is there")
    await settle()
    [event] = events.events.values()
    assert dns_subdomain_errors(event.metadata.name) == []
    assert event.involved_object.name == name


def test_an_issue_is_new_once_and_again_when_it_comes_back():
    reported = ReportedIssues()
    first, second = ("Missing", "secret/db"), ("Invalid", "spec.image")
    assert reported.new("app", [first, second, first]) == [first, second]
    assert reported.new("app", [first]) == []
    assert reported.new("other", [first]) == [first]
    assert reported.new("app", [second]) == [second]
    assert reported.new("app", []) == []
    assert reported.new("app", [second]) == [second]
    reported.forget("app")
    assert reported.new("app", [second]) == [second]
