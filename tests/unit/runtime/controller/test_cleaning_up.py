"""Finalizers of a controller: when one is removed, and from which revision of the object."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from steersman.kube.api.errors import Conflict
from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.runtime.cluster import Cluster
from steersman.runtime.controller.builder import Controller
from steersman.runtime.controller.result import done, requeue
from steersman.runtime.controller.runner import ControllerRunner
from steersman.testing.clock import settle

FINALIZER = "example.org/cleanup"


class App(Resource, group="example.org", version="v1"):
    pass


class Server:
    """One object that is being deleted; a patch for another revision than the present one is a conflict."""

    field_manager = "test"

    def __init__(self) -> None:
        meta = ObjectMeta(name="a", namespace="shop", uid="a", resource_version="1", finalizers=[FINALIZER])
        self.held = App(metadata=replace(meta, deletion_timestamp="2024-01-01T00:00:00Z"))
        self.conflicts = 0

    def guarded(self, _guard: Any) -> Server:
        return self

    async def patch(self, _target: Any, _name: str, patch: dict[str, Any], **_: Any) -> App:
        meta = self.held.metadata
        if patch["metadata"].get("resourceVersion", meta.resource_version) != meta.resource_version:
            self.conflicts += 1
            raise Conflict("the object has been modified", code=409)
        changes = {key: value for key, value in patch["metadata"].items() if key in ("annotations", "finalizers")}
        version = str(int(meta.resource_version) + 1)
        self.held = replace(self.held, metadata=replace(meta, resource_version=version, **changes))
        return self.held


async def run(clock: Any, caches: Any, server: Server, cleanup: Any) -> None:
    async def reconcile(_ctx: Any, _app: App) -> None:
        raise AssertionError("an object that is being deleted is cleaned up, not reconciled")

    controller = Controller(App, reconcile).finalizer(FINALIZER, cleanup)
    runner = ControllerRunner(controller, {"": Cluster(server, caches, clock=clock)}, clock=clock, random=lambda: 0.5)
    runner.start_sources()
    task = asyncio.create_task(runner.run())
    caches[App].sync(server.held)
    await settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_cleaning_up_may_change_the_object_before_its_finalizer_is_removed(clock, caches):
    server = Server()

    async def cleanup(ctx: Any, app: App) -> Any:
        await ctx.patch(app, {"metadata": {"annotations": {"progress": "half"}}})
        return done

    await run(clock, caches, server, cleanup)
    assert server.conflicts == 0
    assert not server.held.metadata.finalizers
    assert server.held.annotations == {"progress": "half"}


async def test_a_finalizer_stays_while_cleaning_up_asks_to_come_back(clock, caches):
    server, calls = Server(), []

    async def cleanup(_ctx: Any, _app: App) -> Any:
        calls.append(1)
        return requeue(after=60)

    await run(clock, caches, server, cleanup)
    assert (len(calls), server.held.metadata.finalizers) == (1, [FINALIZER])
