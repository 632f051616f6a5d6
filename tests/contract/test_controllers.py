"""Controllers at work, on the embedded and the real server."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from steersman.errors import ConfigError
from steersman.kube.api.errors import Conflict, Invalid
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta, Resource, Struct
from steersman.kube.api.patches import PatchType
from steersman.kube.api.types.coordination import Lease
from steersman.kube.api.types.core import Event
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.runtime.controller.builder import Controller
from steersman.runtime.controller.result import done, requeue
from steersman.runtime.manager.manager import Manager
from steersman.runtime.manager.run import serve
from steersman.runtime.reconcile.conditions import Condition, new_condition, set_conditions
from steersman.testing import eventually


class ConfigMap(Resource, version="v1"):
    data: dict[str, str] | None = None


class ContainerPort(Struct):
    container_port: int


class DeploymentSpec(Struct):
    replicas: int | None = None
    paused: bool | None = None
    selector: dict[str, Any] | None = None
    template: dict[str, Any] | None = None


class DeploymentStatus(Struct):
    observed_generation: int = 0
    ready_replicas: int = 0
    replicas: int = 0


class Deployment(Resource, group="apps", version="v1"):
    spec: DeploymentSpec | None = None
    status: DeploymentStatus | None = None


@pytest.fixture
async def client(cluster, tmp_path):
    cluster.write_kubeconfig(tmp_path / "kubeconfig")
    async with Client.connect(load_config(tmp_path / "kubeconfig")) as connected:
        yield connected


class Writes:
    """A client that keeps a list of what it wrote."""

    def __init__(self, client: Client) -> None:
        self.made: list[str] = []
        original = client.transport.request

        async def request(method: str, path: str, **options: Any) -> Any:
            if method != "GET":
                self.made.append(f"{method} {path.partition('/namespaces/')[2].partition('/')[2] or path}")
            return await original(method, path, **options)

        client.transport.request = request  # type: ignore[method-assign]


@asynccontextmanager
async def running(client: Client, *controllers: Controller, **options: Any):
    manager = Manager(client, controllers, registry=CollectorRegistry(), **options)
    task = asyncio.create_task(manager.run())
    try:
        await eventually(lambda: manager.working.is_set() or task.done())
        yield manager
    finally:
        manager.stop()
        await asyncio.wait_for(task, 90)


def parent(namespace: str, name: str = "parent", **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, labels={"role": "parent"}), data=data or None)


def child_of(app: ConfigMap, **data: str) -> ConfigMap:
    meta = ObjectMeta(name=f"{app.name}-child", namespace=app.namespace, labels={"role": "child"})
    return ConfigMap(metadata=meta, data=data)


class Child(Resource, version="v1", kind="ConfigMap", plural="configmaps"):
    """The same kind under another class, so that parents and children are selected apart."""

    data: dict[str, str] | None = None


def copying(namespace: str, runs: list[str] | None = None) -> Controller:
    """Keeps a child ConfigMap with the parent's data."""

    async def reconcile(ctx, app):
        if runs is not None:
            runs.append(app.name)
        meta = ObjectMeta(name=f"{app.name}-child", namespace=app.namespace, labels={"role": "child"})
        await ctx.apply(Child(metadata=meta, data={"copy": (app.data or {}).get("value", "")}))
        return done

    return (
        Controller(ConfigMap, reconcile, "copy")
        .select(namespaces=[namespace], label_selector="role=parent")
        .owns(Child, namespaces=[namespace], label_selector="role=child")
    )


async def child(client: Client, namespace: str, name: str = "parent-child") -> ConfigMap | None:
    found = await client.list(ConfigMap, namespace=namespace, field_selector=f"metadata.name={name}")
    return found.items[0] if found.items else None


async def test_a_controller_makes_its_child_and_repairs_it_when_it_is_changed_or_deleted(client, namespace):
    made = await client.create(parent(namespace, value="one"))
    async with running(client, copying(namespace)):
        live = await eventually(lambda: child(client, namespace))
        assert live.data == {"copy": "one"}
        [owner] = live.metadata.owner_references
        assert (owner.kind, owner.uid, owner.controller) == ("ConfigMap", made.metadata.uid, True)

        await client.patch(ConfigMap, "parent-child", {"data": {"copy": "tampered"}}, namespace=namespace)

        async def repaired():
            found = await child(client, namespace)
            return found is not None and found.data == {"copy": "one"}

        await eventually(repaired)
        await client.delete(ConfigMap, "parent-child", namespace=namespace)
        await eventually(repaired)


async def test_at_rest_nothing_is_written(client, namespace):
    for number in range(5):
        await client.create(parent(namespace, f"p{number}", value="x"))
    runs: list[str] = []
    async with running(client, copying(namespace, runs)) as manager:
        writes = Writes(client)
        await eventually(lambda: _all_children(client, namespace, 5))
        queue = manager.runner("copy").queue
        await eventually(lambda: not queue.dirty and not queue.processing)
        writes.made.clear()
        before = len(runs)
        manager.runner("copy").add_all()
        await eventually(lambda: len(runs) >= before + 5 and not queue.dirty and not queue.processing)
        assert writes.made == []


async def _all_children(client, namespace, count):
    return len((await client.list(ConfigMap, namespace=namespace, label_selector="role=child")).items) == count


async def test_status_updates_of_a_child_cause_no_applies_but_changes_of_its_spec_do(client, namespace):
    runs: list[int] = []

    async def reconcile(ctx, app):
        runs.append(1)
        labels = {"app": app.name}
        spec = DeploymentSpec(
            replicas=1,
            paused=True,
            selector={"matchLabels": labels},
            template={"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        )
        await ctx.apply(Deployment(metadata=ObjectMeta(name=app.name), spec=spec))

    await client.create(parent(namespace))
    controller = Controller(ConfigMap, reconcile, "deploy").select(namespaces=[namespace], label_selector="role=parent")
    async with running(client, controller.owns(Deployment, namespaces=[namespace])) as manager:
        queue = manager.runner("deploy").queue

        async def at_rest():
            return not queue.dirty and not queue.processing and runs

        await eventually(at_rest)
        await asyncio.gather(*(eventually(at_rest) for _ in range(3)))
        writes = Writes(client)
        for ready in range(1, 4):
            seen = len(runs)
            patch = {"status": {"observedGeneration": 1, "replicas": ready, "readyReplicas": ready}}
            await client.patch(Deployment, "parent", patch, namespace=namespace, subresource="status")
            await eventually(lambda seen=seen: len(runs) > seen)
            await eventually(at_rest)
        assert [write for write in writes.made if "status" not in write] == []
        await client.patch(Deployment, "parent", {"spec": {"replicas": 7}}, namespace=namespace)

        async def restored():
            return (await client.get(Deployment, "parent", namespace=namespace)).spec.replicas == 1

        await eventually(restored)


async def test_a_status_is_patched_only_when_it_differs(client, namespace):
    answers: list[bool] = []

    async def reconcile(ctx, deployment):
        answers.append(await ctx.status(deployment, ready_replicas=3, replicas=3))

    labels = {"app": "x"}
    spec = DeploymentSpec(
        paused=True,
        replicas=3,
        selector={"matchLabels": labels},
        template={"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    )
    await client.create(Deployment(metadata=ObjectMeta(name="d", namespace=namespace), spec=spec))
    controller = Controller(Deployment, reconcile).select(namespaces=[namespace])
    async with running(client, controller) as manager:
        await eventually(lambda: len(answers) >= 2)  # its own write brought it back once
        manager.runner("deployment").queue.add(NamespacedName("d", namespace))
        await eventually(lambda: len(answers) >= 3)
    assert answers[0] is True
    assert not any(answers[1:])
    live = await client.get(Deployment, "d", namespace=namespace)
    assert live.status.ready_replicas == 3
    assert live.spec.replicas == 3


async def test_a_reconcile_sees_its_own_writes_and_so_does_the_next_one(client, namespace):
    seen: list[tuple[str | None, str | None]] = []

    async def reconcile(ctx, app):
        ref = NamespacedName("counter", namespace)
        before = ctx.cache[Child].get(ref)
        number = int((before.data or {}).get("n", "0")) + 1 if before else 1
        await ctx.apply(Child(metadata=ObjectMeta(name="counter", labels={"role": "child"}), data={"n": str(number)}))
        after = ctx.cache[Child].get(ref)
        seen.append(((before.data or {})["n"] if before else None, (after.data or {})["n"] if after else None))
        return requeue(after=0.001) if number < 20 else done

    await client.create(parent(namespace))
    controller = (
        Controller(ConfigMap, reconcile, "count")
        .select(namespaces=[namespace], label_selector="role=parent")
        .reads(Child, namespaces=[namespace], label_selector="role=child")
    )
    async with running(client, controller):
        await eventually(lambda: len(seen) >= 20)
    expected = [(str(n - 1) if n > 1 else None, str(n)) for n in range(1, 21)]
    assert seen == expected


async def test_a_finalizer_holds_an_object_back_until_it_has_been_cleaned_up(client, namespace):
    steps: list[str] = []
    may_go = asyncio.Event()

    async def reconcile(ctx, app):
        steps.append(f"reconcile {app.metadata.finalizers}")

    async def cleanup(ctx, app):
        steps.append("cleanup")
        return done if may_go.is_set() else requeue(after=0.01)

    controller = (
        Controller(ConfigMap, reconcile, "final")
        .select(namespaces=[namespace], label_selector="role=parent")
        .finalizer("example.org/cleanup", cleanup)
        .on_missing(lambda ctx, key: steps.append(f"gone {key.name}"))
    )
    await client.create(parent(namespace))
    async with running(client, controller):
        await eventually(lambda: bool(steps))
        assert steps[0] == "reconcile ['example.org/cleanup']"
        await client.delete(ConfigMap, "parent", namespace=namespace)
        await eventually(lambda: steps.count("cleanup") >= 3)
        assert (await child(client, namespace, "parent")).metadata.deletion_timestamp is not None
        may_go.set()

        async def is_gone():
            return await child(client, namespace, "parent") is None

        await eventually(is_gone)
        await eventually(lambda: steps[-1] == "gone parent")
        assert "reconcile None" not in steps


async def test_a_finalizer_that_another_client_adds_meanwhile_is_not_lost(client, namespace):
    """The list is written as a whole: only the revision it was read at tells that it is still the whole."""
    theirs = {"metadata": {"finalizers": ["other.example.org/theirs"]}}
    outcomes: list[str] = []

    async def reconcile(ctx, obj):
        if not outcomes:
            await client.patch(ConfigMap, "a", theirs, type=PatchType.MERGE, namespace=namespace)
        try:
            await ctx.add_finalizer(obj, "example.org/ours")
        except Conflict:
            outcomes.append("conflict")
            raise
        outcomes.append("added")

    await client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace=namespace)))
    selected = Controller(ConfigMap, reconcile).select(namespaces=[namespace], field_selector="metadata.name=a")
    async with running(client, selected):
        await eventually(lambda: "added" in outcomes)
    live = await client.get(ConfigMap, "a", namespace=namespace)
    await client.patch(
        ConfigMap, "a", {"metadata": {"finalizers": None}}, type=PatchType.MERGE, namespace=namespace
    )  # so that the namespace can go
    assert outcomes[0] == "conflict"
    assert sorted(live.metadata.finalizers) == ["example.org/ours", "other.example.org/theirs"]


async def test_a_status_never_reaches_another_object_of_the_same_name(client, namespace):
    """Between the look and the report, the object is deleted and made anew."""
    outcomes: list[str] = []

    def made() -> Deployment:
        labels = {"app": "a"}
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = DeploymentSpec(replicas=1, selector={"matchLabels": labels}, template=pod)
        return Deployment(metadata=ObjectMeta(name="a", namespace=namespace), spec=spec)

    async def reconcile(ctx, obj):
        if outcomes:
            return
        await client.delete(Deployment, "a", namespace=namespace)
        await client.create(made())
        outcomes.append("replaced")
        try:
            await ctx.status(obj, replicas=7)
        except (Conflict, Invalid):
            outcomes.append("refused")

    await client.create(made())
    async with running(client, Controller(Deployment, reconcile).select(namespaces=[namespace])):
        await eventually(lambda: "refused" in outcomes)
    live = await client.get(Deployment, "a", namespace=namespace)
    assert live.status is None or live.status.replicas == 0


class ServiceStatus(Struct):
    conditions: list[Condition] | None = None


class Service(Resource, version="v1"):
    spec: dict[str, Any] | None = None
    status: ServiceStatus | None = None


async def test_conditions_that_several_programs_write_at_one_moment_are_all_there_in_the_end(client, namespace):
    """All have read the object before the first of them writes; nobody may read it otherwise, and nobody fails."""
    kinds = ["Alpha", "Beta", "Gamma"]
    read = asyncio.Barrier(len(kinds))

    def telling(kind: str) -> Controller:
        looked: list[str] = []

        async def reconcile(ctx, service):
            if looked:
                return  # what is lost the first time is lost
            looked.append(kind)
            await read.wait()
            known = service.status.conditions if service.status else None
            new = set_conditions(known, new_condition(kind, True, "Told"), now=ctx.clock.time())
            await ctx.status(service, conditions=new)

        return Controller(Service, reconcile, kind.lower()).select(namespaces=[namespace])

    async def told() -> bool:
        live = await client.get(Service, "s", namespace=namespace)
        return live.status is not None and len(live.status.conditions or ()) == len(kinds)

    spec = {"clusterIP": "None", "ports": [{"port": 80}]}
    await client.create(Service(metadata=ObjectMeta(name="s", namespace=namespace), spec=spec))
    async with AsyncExitStack() as stack:
        managers = [await stack.enter_async_context(running(client, telling(kind))) for kind in kinds]
        await eventually(told)
    failures = [
        manager.runner(kind.lower()).tally.results["error"] for manager, kind in zip(managers, kinds, strict=True)
    ]
    assert failures == [0, 0, 0]


async def test_a_deleted_child_is_gone_for_the_reconcile_that_deleted_it_and_a_new_one_is_spared(client, namespace):
    seen: list[Any] = []

    async def reconcile(ctx, app):
        ref = NamespacedName("doomed", namespace)
        doomed = ctx.cache[Child].get(ref)
        if doomed is not None:
            seen.append(await ctx.delete(doomed))
            seen.append(ctx.cache[Child].get(ref))
            seen.append(await ctx.delete(Child, ref))

    meta = ObjectMeta(name="doomed", namespace=namespace, labels={"role": "child"})
    await client.create(ConfigMap(metadata=meta))
    await client.create(parent(namespace))
    controller = (
        Controller(ConfigMap, reconcile, "reap")
        .select(namespaces=[namespace], label_selector="role=parent")
        .reads(Child, namespaces=[namespace], label_selector="role=child")
    )
    async with running(client, controller):
        await eventually(lambda: len(seen) == 3)
    assert seen == [True, None, False]


async def test_a_reconciler_that_raises_hangs_or_returns_nonsense_harms_nothing_else(client, namespace):
    good: list[str] = []

    async def reconcile(ctx, app):
        match (app.data or {}).get("do"):
            case "raise":
                raise ZeroDivisionError("oops")
            case "hang":
                await asyncio.Event().wait()
            case "nonsense":
                return "whatever"
            case "cancel":
                raise asyncio.CancelledError
        good.append(app.name)
        return None

    for what in ("raise", "hang", "nonsense", "cancel"):
        await client.create(parent(namespace, what, do=what))
    controller = (
        Controller(ConfigMap, reconcile, "mixed")
        .select(namespaces=[namespace], label_selector="role=parent")
        .with_options(concurrency=2, timeout_seconds=0.1)
    )
    async with running(client, controller) as manager:
        tally = manager.runner("mixed").tally
        await eventually(lambda: tally.results["error"] >= 8 and tally.timeouts >= 1)
        for number in range(10):
            await client.create(parent(namespace, f"good{number}"))
        await eventually(lambda: len(good) >= 10)
        assert tally.panics >= 3
        assert manager.runner("mixed").queue.num_requeues(NamespacedName("raise", namespace)) > 0
    assert sorted(good) == [f"good{number}" for number in range(10)]


async def test_a_blocking_reconciler_runs_in_a_thread_and_can_do_everything(client, namespace):
    seen: list[Any] = []

    def reconcile(ctx, app):
        ctx.apply(Child(metadata=ObjectMeta(name="made", labels={"role": "child"}), data={"by": "thread"}))
        seen.append(ctx.cache[Child].get(NamespacedName("made", namespace)).data)
        seen.append(len(ctx.cache[Child].list(namespace=namespace)))
        seen.append(ctx.delete(Child, NamespacedName("made", namespace)))
        ctx.event(app, "Threaded", "it worked")
        return done

    await client.create(parent(namespace))
    controller = (
        Controller(ConfigMap, reconcile, "threads")
        .select(namespaces=[namespace], label_selector="role=parent")
        .reads(Child, namespaces=[namespace], label_selector="role=child")
    )
    async with running(client, controller):
        await eventually(lambda: len(seen) == 3)
    assert seen == [{"by": "thread"}, 1, True]


async def test_events_are_recorded_once_and_counted(client, namespace):
    async def reconcile(ctx, app):
        for _ in range(3):
            ctx.event(app, "Looked", "saw it again")
        ctx.event(app, "Broken", "no luck", warning=True)

    await client.create(parent(namespace))
    controller = Controller(ConfigMap, reconcile, "telling").select(
        namespaces=[namespace], label_selector="role=parent"
    )
    async with running(client, controller):

        async def recorded():
            events = (await client.list(Event, namespace=namespace)).items
            mine = {(e.type, e.reason, e.message): e.count for e in events if e.involved_object.name == "parent"}
            return mine == {("Normal", "Looked", "saw it again"): 3, ("Warning", "Broken", "no luck"): 1}

        await eventually(recorded)


async def test_objects_mapped_to_others_are_noticed_by_the_one_they_leave_and_the_one_they_join(client, namespace):
    runs: list[str] = []

    async def reconcile(ctx, app):
        runs.append(app.name)

    def parent_named_in(obj):
        return [NamespacedName(obj.data["of"], namespace)]

    for name in ("a", "b"):
        await client.create(parent(namespace, name))
    meta = ObjectMeta(name="link", namespace=namespace, labels={"role": "child"})
    await client.create(ConfigMap(metadata=meta, data={"of": "a"}))
    controller = (
        Controller(ConfigMap, reconcile, "links")
        .select(namespaces=[namespace], label_selector="role=parent")
        .watches(Child, to=parent_named_in, namespaces=[namespace], label_selector="role=child")
    )
    async with running(client, controller):
        await eventually(lambda: {"a", "b"} <= set(runs))
        runs.clear()
        patch = [{"op": "replace", "path": "/data/of", "value": "b"}]
        await client.patch(ConfigMap, "link", patch, type=PatchType.JSON, namespace=namespace)
        await eventually(lambda: {"a", "b"} <= set(runs))


async def test_plain_dicts_work_like_classes(client, namespace):
    kind = ConfigMap.KIND
    seen: list[Any] = []

    async def reconcile(ctx, obj):
        meta = {"name": "made", "labels": {"role": "child"}}
        made = await ctx.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"x": "1"}})
        again = await ctx.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"x": "1"}})
        same = made["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]
        seen.append((made["metadata"]["ownerReferences"][0]["name"], same))
        seen.append("managedFields" in ctx.cache[kind].get(NamespacedName("made", namespace))["metadata"])
        await ctx.delete(ctx.cache[kind].get(NamespacedName("made", namespace)))
        seen.append(ctx.cache[kind].get(NamespacedName("made", namespace)))

    await client.create(parent(namespace))
    controller = (
        Controller(Parent, reconcile, "dicts")
        .select(namespaces=[namespace], label_selector="role=parent")
        .owns(kind, namespaces=[namespace], label_selector="role=child")
    )
    async with running(client, controller):
        await eventually(lambda: len(seen) >= 3)
    assert seen[:3] == [("parent", True), False, None]


class Parent(Resource, version="v1", kind="ConfigMap", plural="configmaps"):
    data: dict[str, str] | None = None


async def test_an_object_that_lingers_after_its_deletion_is_seen_as_terminating_at_once(client, namespace):
    seen: list[Any] = []

    async def reconcile(ctx, obj):
        ref = NamespacedName("held", namespace)
        held = ctx.cache[Child].get(ref)
        if held is not None and held.metadata.deletion_timestamp is None:
            await ctx.delete(held)
            after = ctx.cache[Child].get(ref)
            seen.append(after is not None and after.metadata.deletion_timestamp is not None)
            seen.append(after.data)

    meta = ObjectMeta(name="held", namespace=namespace, labels={"role": "child"}, finalizers=["example.org/held"])
    await client.create(ConfigMap(metadata=meta, data={"kept": "yes"}))
    await client.create(parent(namespace))
    controller = (
        Controller(ConfigMap, reconcile, "linger")
        .select(namespaces=[namespace], label_selector="role=parent")
        .reads(Child, namespaces=[namespace], label_selector="role=child")
    )
    async with running(client, controller):
        await eventually(lambda: len(seen) == 2)
    await client.patch(ConfigMap, "held", {"metadata": {"finalizers": None}}, namespace=namespace)
    assert seen == [True, {"kept": "yes"}]


async def test_fields_that_are_no_longer_applied_are_removed_and_foreign_entries_stay(client, namespace):
    wanted = {"a": "1", "b": "2"}

    async def reconcile(ctx, obj):
        await ctx.apply(Child(metadata=ObjectMeta(name="made", labels={"role": "child"}), data=dict(wanted)))

    await client.create(parent(namespace))
    controller = (
        Controller(ConfigMap, reconcile, "fields")
        .select(namespaces=[namespace], label_selector="role=parent")
        .owns(Child, namespaces=[namespace], label_selector="role=child")
    )
    async with running(client, controller) as manager:

        def holds(data: dict[str, str]) -> Any:
            async def check() -> bool:
                found = await child(client, namespace, "made")
                return found is not None and found.data == data

            return check

        await eventually(holds({"a": "1", "b": "2"}))
        await client.patch(ConfigMap, "made", {"data": {"theirs": "x"}}, namespace=namespace)
        del wanted["b"]
        manager.runner("fields").queue.add(NamespacedName("parent", namespace))
        await eventually(holds({"a": "1", "theirs": "x"}))


async def test_an_owner_in_another_namespace_is_refused_with_a_way_out(client, namespace):
    problems: list[str] = []

    async def reconcile(ctx, obj):
        try:
            await ctx.apply(Child(metadata=ObjectMeta(name="x", namespace="default")))
        except ConfigError as error:
            problems.append(str(error))
        with pytest.raises(TypeError, match="needs the name"):
            await ctx.delete(Child)

    await client.create(parent(namespace))
    controller = (
        Controller(ConfigMap, reconcile, "far")
        .select(namespaces=[namespace], label_selector="role=parent")
        .owns(Child, namespaces=[namespace], label_selector="role=child")
    )
    async with running(client, controller):
        await eventually(lambda: bool(problems))
    assert "an owner must be in the same namespace (apply with owner=None" in problems[0]


async def test_a_controller_may_read_and_write_in_another_cluster(client, namespace):
    async def reconcile(ctx, obj):
        far = ctx.clusters["far"]
        meta = ObjectMeta(name="mirror", namespace=namespace, labels={"role": "child"})
        await far.apply(Child(metadata=meta, data=obj.data))

    def back(obj):
        return [NamespacedName("parent", namespace)]

    await client.create(parent(namespace, value="one"))
    controller = (
        Controller(ConfigMap, reconcile, "mirror")
        .select(namespaces=[namespace], label_selector="role=parent")
        .watches(Child, to=back, namespaces=[namespace], label_selector="role=child", cluster="far")
    )
    async with running(client, controller, clusters={"far": client}):

        async def mirrored():
            found = await child(client, namespace, "mirror")
            return found is not None and found.data == {"value": "one"} and not found.metadata.owner_references

        await eventually(mirrored)
        await client.delete(ConfigMap, "mirror", namespace=namespace)
        await eventually(mirrored)


async def test_a_program_ends_gracefully_on_a_signal(cluster, client, namespace, tmp_path):
    began, ended = asyncio.Event(), []

    async def reconcile(ctx, obj):
        began.set()
        await asyncio.sleep(0.2)
        ended.append(obj.name)

    await client.create(parent(namespace))
    controller = Controller(ConfigMap, reconcile, "program").select(
        namespaces=[namespace], label_selector="role=parent"
    )
    config = load_config(tmp_path / "kubeconfig")
    program = serve(controller, config=config, lease=f"{namespace}/lease", registry=CollectorRegistry())
    task = asyncio.create_task(program)
    await began.wait()
    signal.raise_signal(signal.SIGTERM)
    await asyncio.wait_for(task, 90)
    assert ended == ["parent"]
    lease = await client.get(Lease, "lease", namespace=namespace)
    assert not lease.spec.holder_identity
