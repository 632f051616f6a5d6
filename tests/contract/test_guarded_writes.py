"""One guard for every write of a manager: what a reconcile may not write is not stored, whichever verb it takes.

Judged by the server: every verb has an object of its own, which is compared before and after. Without a guard all of
them leave a trace, so none is refused for another reason.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, suppress
from inspect import getsource, iscoroutinefunction
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import ClientSession, web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from structlog.testing import capture_logs

from steersman.errors import SteersmanError
from steersman.kube.api.errors import NotFound
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta, Resource, Struct
from steersman.kube.api.types.coordination import Lease
from steersman.kube.api.types.core import ConfigMap, Event
from steersman.kube.api.types.pods import Pod
from steersman.kube.client.client import Client
from steersman.runtime.controller.builder import Controller
from steersman.runtime.leaderelection.elector import LeaderElector, LeaseLock
from steersman.runtime.manager.manager import Manager
from steersman.runtime.manager.run import serve
from steersman.runtime.reconcile.write_guard import effect
from steersman.runtime.sharding.member import KubeShards
from steersman.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Callable


class DeploymentStatus(Struct):
    observed_generation: int = 0


class Workload(Resource, group="apps", version="v1", kind="Deployment", plural="deployments"):
    status: DeploymentStatus = DeploymentStatus()


def configmap(name: str, namespace: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, labels={"for": name}), data=data)


def deployment(name: str, namespace: str) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    spec = {"replicas": 0, "paused": True, "selector": {"matchLabels": labels}, "template": template}
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def pod(name: str, namespace: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "none"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def edit(found: ConfigMap) -> ConfigMap:
    return ConfigMap(metadata=found.metadata, data={"by": "modify"})


class Verbs:
    """Every way to write, and to have an effect outside; a method may answer with something to await.

    `spell-like-this` is the name of the object that the method `spell_like_this` writes to.
    """

    def __init__(self, ctx: Any, namespace: str, outside: list[str]) -> None:
        self.ctx, self.namespace, self.outside = ctx, namespace, outside

    def _mine(self, name: str, target: Any = ConfigMap) -> Any:
        return self.ctx.cache[target].get(NamespacedName(name, self.namespace))

    # -- a context: the same for reconcilers that block ----------------------------------------------------------------

    def apply(self) -> Any:
        return self.ctx.apply(configmap("apply", self.namespace, by="apply"))

    def create(self) -> Any:
        return self.ctx.create(configmap("create", self.namespace))

    def patch(self) -> Any:
        return self.ctx.patch(self._mine("patch"), {"data": {"by": "patch"}})

    def status(self) -> Any:
        return self.ctx.status(self._mine("status", Workload), observed_generation=7)

    def delete(self) -> Any:
        return self.ctx.delete(self._mine("delete"))

    def finalizer(self) -> Any:
        return self.ctx.add_finalizer(self._mine("finalizer"), "example.org/mine")

    def event(self) -> Any:
        return self.ctx.event(self._mine("event"), "Tried", "to say something")

    def effect(self) -> Any:
        if self.ctx.effect("http call", "example.org"):
            self.outside.append("effect")

    # -- the raw client ------------------------------------------------------------------------------------------------

    def raw_create(self) -> Any:
        return self.ctx.client.create(configmap("raw-create", self.namespace))

    def raw_replace(self) -> Any:
        return self.ctx.client.replace(configmap("raw-replace", self.namespace, by="replace"))

    def raw_modify(self) -> Any:
        return self.ctx.client.update_with_retry(ConfigMap, "raw-modify", edit, namespace=self.namespace)

    def raw_patch(self) -> Any:
        return self.ctx.client.patch(ConfigMap, "raw-patch", {"data": {"by": "patch"}}, namespace=self.namespace)

    def raw_apply(self) -> Any:
        return self.ctx.client.apply(configmap("raw-apply", self.namespace, by="apply"), force=True)

    def raw_delete(self) -> Any:
        return self.ctx.client.delete(ConfigMap, "raw-delete", namespace=self.namespace)

    def raw_delete_collection(self) -> Any:
        mine = "for=raw-delete-collection"
        return self.ctx.client.delete_collection(ConfigMap, namespace=self.namespace, label_selector=mine)

    def raw_scale(self) -> Any:
        return self.ctx.client.scale(Workload, "raw-scale", 3, namespace=self.namespace)

    def raw_evict(self) -> Any:
        return self.ctx.client.evict("raw-evict", namespace=self.namespace, grace_period_seconds=0)

    def raw_status(self) -> Any:
        options = {"namespace": self.namespace, "subresource": "status"}
        return self.ctx.client.patch(Workload, "raw-status", {"status": {"observedGeneration": 7}}, **options)

    def raw_post(self) -> Any:
        body = {"metadata": {"name": "raw-post"}, "apiVersion": "v1", "kind": "ConfigMap"}
        return self.ctx.client.raw_post(f"{ConfigMap.KIND.path(self.namespace)}?fieldManager=raw", body)

    def raw_request(self) -> Any:
        transport = self.ctx.client.with_options(retry=False).transport
        return transport.request("DELETE", ConfigMap.KIND.path(self.namespace, "raw-request"))

    # -- what follows a reconcile --------------------------------------------------------------------------------------

    async def task(self) -> None:
        await asyncio.create_task(self.ctx.client.delete(ConfigMap, "task", namespace=self.namespace))

    async def driver(self) -> None:
        """An effect of code that has no context at hand."""
        if effect("rndc addzone", "ns1"):
            self.outside.append("driver")

    async def token(self) -> None:
        await self.ctx.client.create_token("default", namespace=self.namespace)
        self.outside.append("token")


OUTSIDE = ("effect", "driver", "token")
BLOCKING = ("apply", "create", "patch", "status", "delete", "finalizer", "event", "effect")
VERBS = tuple(name for name in vars(Verbs) if not name.startswith("_"))
ABSENT = ("create", "raw_create", "raw_post")
WORKLOADS = ("status", "raw_scale", "raw_status")


class Scene:
    """An object for every verb, and what became of it."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.outside: list[str] = []
        self.errors: dict[str, str] = {}
        self.before: dict[str, str] = {}
        self.ended = asyncio.Event()
        self.interfere: Callable[[], None] = lambda: None  # called in the middle of the reconcile

    async def prepare(self) -> Scene:
        for verb in VERBS:
            if verb in ABSENT or verb in OUTSIDE:
                continue
            kind = deployment if verb in WORKLOADS else pod if verb == "raw_evict" else configmap
            await self.client.create(kind(verb.replace("_", "-"), self.namespace), field_manager="setup")
        self.before = {verb: await self.trace(verb) for verb in VERBS}
        return self

    async def trace(self, verb: str) -> str:
        """What a verb leaves behind."""
        if verb in OUTSIDE:
            return str(self.outside.count(verb))
        if verb == "event":
            events = await self.client.list(Event, namespace=self.namespace)
            return str([event.reason for event in events.items if event.reason == "Tried"])
        kind = Workload if verb in WORKLOADS else Pod if verb == "raw_evict" else ConfigMap
        try:
            found = await self.client.get(kind, verb.replace("_", "-"), namespace=self.namespace)
        except NotFound:
            return "absent"
        return found.metadata.resource_version

    async def written(self) -> set[str]:
        return {verb for verb in VERBS if await self.trace(verb) != self.before[verb]}

    async def reconcile(self, ctx: Any, _key: Any) -> None:
        if self.ended.is_set():
            return
        self.interfere()
        for verb in VERBS:
            try:
                answer = getattr(Verbs(ctx, self.namespace, self.outside), verb)()
                if answer is not None:
                    await answer
            except SteersmanError as error:
                self.errors[verb] = type(error).__name__
        self.ended.set()

    def reconcile_blocking(self, loop: asyncio.AbstractEventLoop) -> Any:
        def reconcile(ctx: Any, _key: Any) -> None:
            if self.ended.is_set():
                return
            self.interfere()
            for verb in BLOCKING:
                try:
                    getattr(Verbs(ctx, self.namespace, self.outside), verb)()
                except SteersmanError as error:
                    self.errors[verb] = type(error).__name__
            loop.call_soon_threadsafe(self.ended.set)

        return reconcile

    def controller(self, *, blocking: bool) -> Controller:
        reconcile = self.reconcile_blocking(asyncio.get_running_loop()) if blocking else self.reconcile
        return Controller(None, reconcile, "guarded").reads(ConfigMap, Workload).within([self.namespace])


@pytest.fixture
async def scene(cluster, client, namespace):
    return await Scene(client, namespace).prepare()


@asynccontextmanager
async def at_work(manager: Manager, scene: Scene):
    """A manager whose one key has been reconciled once."""
    task = asyncio.create_task(manager.run())
    try:
        manager.runner("guarded").add(NamespacedName("once", scene.namespace))
        await eventually(lambda: task.done() or scene.ended.is_set())
        yield
    finally:
        manager.stop()
        await asyncio.wait([task])


def managed(scene: Scene, *, blocking: bool = False, **options: Any) -> Manager:
    options = {"registry": CollectorRegistry(), "grace_seconds": 0, **options}
    return Manager(scene.client, [scene.controller(blocking=blocking)], **options)


@pytest.mark.parametrize("blocking", [False, True])
async def test_without_a_reason_to_withhold_it_every_verb_writes(scene, blocking):
    async with at_work(managed(scene, blocking=blocking), scene):
        expected = set(BLOCKING if blocking else VERBS)

        async def all_written() -> bool:
            return await scene.written() == expected

        await eventually(all_written, "every verb leaves a trace")
    assert not scene.errors


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_dry_run_stores_nothing_whichever_verb_is_used(scene, blocking):
    with capture_logs() as logs:
        async with at_work(managed(scene, blocking=blocking, dry_run=True), scene):
            assert scene.ended.is_set()
    assert await scene.written() == set()
    assert scene.errors == ({} if blocking else {"token": "NotInDryRun"})  # the rest was answered, as dry runs are
    told = [entry for entry in logs if entry["event"] == "dry run"]
    assert {"http call"} == {entry["effect"] for entry in told if "effect" in entry} - {"rndc addzone"}
    assert {entry["sent"] for entry in told} <= {"no", "with dryRun=All, so nothing is stored"}
    events = [entry["write"] for entry in told if entry.get("write", "").startswith("Event ")]
    assert len(events) == 1  # people read in the log what they would have been told


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_process_that_lost_its_lease_in_the_middle_of_a_reconcile_stores_nothing(
    scene, clock, namespace, blocking
):
    elector = LeaderElector(LeaseLock(scene.client, "lead", namespace), identity="me", clock=clock)
    scene.interfere = lambda: clock.pause(60)
    registry = CollectorRegistry()
    manager = managed(scene, blocking=blocking, elector=elector, registry=registry)
    with capture_logs() as logs:
        async with at_work(manager, scene):
            await eventually(lambda: manager.cluster().recorder.dropped == 1, "the event is not sent either")
            shown = generate_latest(registry).decode()
    assert await scene.written() == set()
    refused = set(BLOCKING if blocking else VERBS)
    assert scene.errors == dict.fromkeys(refused - {"event"}, "NotLeading")
    lines = [entry for entry in logs if entry["event"] == "write refused"]
    assert {entry["reason"] for entry in lines} == {"not_leader"}
    assert len(lines) == len(refused)
    assert f'steersman_writes_withheld_total{{reason="not_leader"}} {len(refused)}.0' in shown


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_member_that_lost_its_shard_in_the_middle_of_a_reconcile_stores_nothing(
    scene, clock, namespace, blocking
):
    manager = managed(scene, blocking=blocking, clock=clock)
    member = manager.share(KubeShards(scene.client, "group", namespace), identity="me")
    scene.interfere = lambda: clock.pause(60)
    async with at_work(manager, scene):
        await eventually(lambda: manager.cluster().recorder.dropped == 1, "the event is not sent either")
        assert not member.owns(namespace)
    assert await scene.written() == set()
    refused = set(BLOCKING if blocking else VERBS) - {"event"}
    assert scene.errors == dict.fromkeys(refused, "NotLeading")


async def test_a_thread_that_a_reconcile_starts_writes_for_the_key_of_the_reconcile(embedded, client, namespace):
    owned, refused = {namespace}, asyncio.Queue[BaseException | None]()

    async def reconcile(ctx: Any, _key: Any) -> None:
        loop = asyncio.get_running_loop()
        owned.clear()

        def work() -> None:  # with the context variables of a new thread: none
            written = asyncio.run_coroutine_threadsafe(ctx.client.create(configmap("late", namespace)), loop)
            loop.call_soon_threadsafe(refused.put_nowait, written.exception())
            problem: BaseException | None = None
            try:
                ctx.effect("http call")
            except SteersmanError as error:
                problem = error
            loop.call_soon_threadsafe(refused.put_nowait, problem)

        threading.Thread(target=work).start()

    controller = Controller(None, reconcile, "starts-threads")
    manager = Manager(client, [controller], permit=owned.__contains__, registry=CollectorRegistry())
    running = asyncio.create_task(manager.run())
    await manager.working.wait()
    manager.runner("starts-threads").add(NamespacedName("once", namespace))
    errors = [await refused.get(), await refused.get()]
    manager.stop()
    await running
    assert [type(error).__name__ for error in errors] == ["NotLeading", "NotLeading"]
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "late", namespace=namespace)


def lost(clock: Any, client: Client, namespace: str) -> dict[str, Any]:
    return {"elector": LeaderElector(LeaseLock(client, "lead", namespace), identity="me", clock=clock)}


@pytest.mark.parametrize("options", [lambda *_: {"dry_run": True}, lost], ids=["dry run", "lost lease"])
async def test_what_is_written_to_another_cluster_passes_the_same_guard(embedded, client, clock, namespace, options):
    done: list[str] = []

    async def reconcile(ctx: Any, _key: Any) -> None:
        other = ctx.clusters["other"]
        clock.pause(60)
        for verb, write in (("context", other.apply), ("client", other.client.create)):
            with suppress(SteersmanError):
                await write(configmap(verb, namespace))
            done.append(verb)

    controller = Controller(None, reconcile, "guarded").reads(ConfigMap, cluster="other", namespaces=[namespace])
    made = {"clusters": {"other": client}, "registry": CollectorRegistry(), **options(clock, client, namespace)}
    manager = Manager(client, [controller], grace_seconds=0, **made)
    running = asyncio.create_task(manager.run())
    await manager.working.wait()
    manager.runner("guarded").add(NamespacedName("once", namespace))
    await eventually(lambda: {"context", "client"} <= {*done})
    manager.stop()
    await asyncio.wait([running])
    held = await client.list(ConfigMap, namespace=namespace)
    assert {"context", "client"}.isdisjoint(obj.name for obj in held.items)


READS = {"get", "list", "pages", "watch", "can_i", "server_version", "api_resources", "openapi", "close", "logs"}
NO_TRACE = {"exec"}  # on a server without a kubelet: tests/contract/test_pod_streams.py tries it


def test_every_verb_of_the_client_is_tried():
    verbs = {name for name, method in vars(Client).items() if iscoroutinefunction(method)} - READS - NO_TRACE
    tried = getsource(Verbs)
    assert {verb for verb in verbs if not verb.startswith("_") and f"ctx.client.{verb}(" not in tried} == set()


async def test_code_without_a_context_passes_the_guard_in_routes_and_mappings_too(embedded, client, namespace):
    allowed: dict[str, bool] = {}

    def mapping(obj: ConfigMap) -> list[NamespacedName]:
        allowed["mapping"] = effect("http call")
        return []

    async def route(_request: web.Request) -> web.Response:
        allowed["route"] = effect("http call")
        return web.Response()

    async def reconcile(_ctx: Any, _key: Any) -> None:
        pass

    controller = Controller(None, reconcile, "maps").watches(ConfigMap, to=mapping, namespaces=[namespace])
    options = {"listen": "127.0.0.1:0", "routes": [web.post("/act", route)], "registry": CollectorRegistry()}
    manager = Manager(client, [controller], dry_run=True, **options)
    running = asyncio.create_task(manager.run())
    await manager.working.wait()
    await client.create(configmap("seen", namespace))
    assert manager.health is not None
    async with ClientSession() as session, session.post(f"http://127.0.0.1:{manager.health.port}/act") as answer:
        assert answer.status == 200
    await eventually(lambda: len(allowed) == 2)
    manager.stop()
    await running
    assert allowed == {"route": False, "mapping": False}


async def test_a_manager_in_a_dry_run_stands_for_no_lease_however_it_is_made(embedded, scene, client, namespace):
    elector = LeaderElector(LeaseLock(client, "lead", namespace), identity="me")
    leading = managed(scene, dry_run=True, elector=elector)
    sharing = managed(scene, dry_run=True)
    sharing.share(KubeShards(client, "group", namespace), identity="me")
    for manager in (leading, sharing):
        scene.ended.clear()
        async with at_work(manager, scene):
            assert scene.ended.is_set()
    assert await scene.written() == set()
    assert (await client.list(Lease, namespace=namespace)).items == []


@pytest.mark.parametrize("place", ["lease", "share"])
async def test_a_program_in_a_dry_run_stands_for_no_lease(scene, client, namespace, place):
    managers: list[Manager] = []
    options = {place: f"{namespace}/program", "prepare": managers.append, "registry": CollectorRegistry()}
    program = asyncio.create_task(
        serve(scene.controller(blocking=False), config=client.transport.config, dry_run=True, **options)
    )
    await eventually(lambda: managers, "it is about to start")
    managers[0].runner("guarded").add(NamespacedName("once", namespace))
    await eventually(scene.ended.is_set, "it works without one")
    managers[0].stop()
    await program
    assert await scene.written() == set()
    assert (await client.list(Lease, namespace=namespace)).items == []
