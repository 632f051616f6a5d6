"""Spans of reconciles, requests and queues; and that there is nothing of it without a provider."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from steersman.errors import DriverError
from steersman.kube.api.errors import NotFound
from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.kube.client.client import Client
from steersman.kube.config.config import Config
from steersman.kube.transport.tracing import active_tracer
from steersman.runtime.controller.builder import Controller
from steersman.runtime.controller.runner import ControllerRunner
from steersman.testing.clock import settle
from tests.support.docs.pages import blocks_of
from tests.support.wire_server import Wire, reply


class App(Resource, group="example.org", version="v1"):
    pass


class Cm(Resource, version="v1", kind="ConfigMap", plural="configmaps"):
    pass


@pytest.fixture
def spans(monkeypatch):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter.get_finished_spans


def app() -> App:
    return App(metadata=ObjectMeta(name="a", namespace="shop", uid="u", resource_version="1"))


async def run(controller: Controller, caches: Any, cluster: Any, clock: Any, *, late: float = 0.0) -> None:
    runner = ControllerRunner(controller, {"": cluster}, clock=clock)
    runner.start_sources()
    caches[App].sync(app())
    await clock.advance(late)
    task = asyncio.create_task(runner.run())
    await settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_reconcile_is_a_span_from_when_its_key_was_ready_with_the_time_in_the_queue(
    spans, caches, memory_cluster, clock
):
    async def reconcile(ctx, obj):
        with trace.get_tracer_provider().get_tracer("own").start_as_current_span("own work"):
            pass

    await run(Controller(App, reconcile), caches, memory_cluster, clock, late=3.0)
    queue, own, root = spans()
    assert (root.name, root.status.status_code) == ("reconcile app", StatusCode.UNSET)
    assert dict(root.attributes) == {
        "steersman.controller": "app",
        "steersman.object": "shop/a",
        "steersman.queue_seconds": 3.0,
    }
    assert queue.name == "queue"
    assert queue.end_time - queue.start_time == pytest.approx(3e9)
    assert root.start_time == queue.start_time
    assert {queue.parent.span_id, own.parent.span_id} == {root.context.span_id}


async def test_a_reconcile_that_fails_is_a_failed_span(spans, caches, memory_cluster, clock):
    async def reconcile(ctx, obj):
        raise DriverError("down", server="bind")

    await run(Controller(App, reconcile), caches, memory_cluster, clock)
    root = spans()[-1]
    assert (root.status.status_code, root.status.description) == (StatusCode.ERROR, "bind: down")
    assert root.attributes["error.type"] == "DriverError"


async def test_each_attempt_of_a_request_is_a_span_that_the_server_continues(spans):
    answers = [
        reply(503, {"kind": "Status", "code": 503, "message": "busy"}, Retry_After="0"),
        reply(404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": "no"}),
    ]
    async with Wire(answers) as server, Client.connect(Config(server=server.url)) as client:
        with pytest.raises(NotFound):
            await client.get(Cm, "a", namespace="shop", resource_version="0")
        received = server.requests
    found = spans()
    assert [(span.name, span.attributes["http.response.status_code"]) for span in found] == [("GET", 503), ("GET", 404)]
    assert {span.attributes["url.path"] for span in found} == {"/api/v1/namespaces/shop/configmaps/a"}
    assert [span.status.status_code for span in found] == [StatusCode.ERROR] * 2
    sent = [request.headers["traceparent"].split("-")[2] for request in received]
    assert sent == [format(span.context.span_id, "016x") for span in found]


async def test_the_spans_of_requests_are_children_of_their_reconcile(spans, caches, memory_cluster, clock):
    finished = asyncio.Event()
    async with (
        Wire([reply(200, {"metadata": {"name": "a"}})]) as server,
        Client.connect(Config(server=server.url)) as client,
    ):

        async def reconcile(ctx, obj):
            await client.get(Cm, "a", namespace="shop")
            finished.set()

        runner = ControllerRunner(Controller(App, reconcile), {"": memory_cluster}, clock=clock)
        runner.start_sources()
        caches[App].sync(app())
        task = asyncio.create_task(runner.run())
        await finished.wait()
        await settle()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    _, request, root = spans()
    assert (request.name, request.parent.span_id) == ("GET", root.context.span_id)


def test_without_a_provider_there_is_no_tracer():
    assert active_tracer() is None


def test_nothing_imports_opentelemetry_but_the_program_itself():
    program = (
        "import sys, steersman as sm; from steersman.kube.transport import tracing;"
        "sm.Manager; sm.Client; tracing.active_tracer(); tracing.record_error(ValueError());"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


async def test_the_example_of_the_documentation_works(monkeypatch, caches, memory_cluster, clock):
    page = Path(__file__).parents[4] / "docs" / "howto" / "index.md"
    (block,) = [block for block in blocks_of(page, page.parents[2]) if "TracerProvider" in block.text]
    shown: dict[str, Any] = {}
    exec(block.text, shown)
    monkeypatch.setattr(
        trace, "set_tracer_provider", lambda made: monkeypatch.setattr(trace, "get_tracer_provider", lambda: made)
    )
    exporter = InMemorySpanExporter()
    provider = shown["trace_to"](exporter)

    async def reconcile(ctx, obj): ...

    await run(Controller(App, reconcile), caches, memory_cluster, clock)
    provider.shutdown()
    assert [span.name for span in exporter.get_finished_spans()] == ["queue", "reconcile app"]
