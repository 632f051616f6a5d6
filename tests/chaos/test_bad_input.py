"""What goes wrong in one place stays there: others keep working; health, log and metric say which and why."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry
from structlog.contextvars import merge_contextvars

from steersman.crd import crd_manifest
from steersman.kube.api.gvk import Kind
from steersman.kube.api.objects import ObjectMeta, Resource, Struct
from steersman.kube.client.client import Client, PatchType
from steersman.kube.config.kubeconfig import load_config
from steersman.runtime.controller.builder import Controller
from steersman.runtime.controller.stuck_keys import Limits
from steersman.testing import FastClock, eventually, running

SPEED = 20
pytestmark = pytest.mark.slow  # many rounds; make test runs them, make check does not

CRDS = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    namespaced=False,
)
ROLES = Kind(group="rbac.authorization.k8s.io", version="v1", kind="Role", plural="roles")


class ConfigMap(Resource, version="v1"):
    data: dict[str, str] | None = None


class Narrow(Resource, version="v1", kind="ConfigMap", plural="configmaps"):
    data: dict[str, int] | None = None  # does not fit every ConfigMap, on purpose


class Secret(Resource, version="v1"):
    pass


class GizmoSpec(Struct):
    size: int = 0


def configmap(name: str, namespace: str, role: str = "good", **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, labels={"role": role}), data=data or None)


class Notes:
    """A controller that writes down whom it was called for."""

    def __init__(self, target: Any, name: str, namespace: str, **selection: Any) -> None:
        self.seen: list[str] = []
        self.controller = Controller(target, self._reconcile, name).select(namespaces=[namespace], **selection)

    async def _reconcile(self, ctx: Any, obj: Any) -> None:
        self.seen.append(obj.name)


def metric(registry: CollectorRegistry, name: str, /, **labels: str) -> float:
    return registry.get_sample_value(name, labels) or 0.0


async def test_log_and_metrics_say_which_object_fails_and_why(client, cluster, namespace):
    async def reconcile(ctx, obj):
        match (obj.data or {}).get("do"):
            case "raise":
                raise ZeroDivisionError("no denominator")
            case "hang":
                await asyncio.Event().wait()
            case "nonsense":
                return "whatever"
        return None

    registry, others = CollectorRegistry(), Notes(ConfigMap, "others", namespace, label_selector="role=good")
    mixed = (
        Controller(ConfigMap, reconcile, "mixed")
        .select(namespaces=[namespace], label_selector="role=bad")
        .with_options(timeout_seconds=2, concurrency=3)
    )
    for what in ("raise", "hang", "nonsense"):
        await client.create(configmap(what, namespace, role="bad", do=what))

    def errors_of(name: str) -> list[str]:
        return [line.get("error", "") for line in lines if line.get("object") == f"{namespace}/{name}"]

    with structlog.testing.capture_logs(processors=[merge_contextvars]) as lines:
        async with running(client, mixed, others.controller, registry=registry, clock=FastClock(SPEED)) as manager:
            await eventually(lambda: all(errors_of(name) for name in ("raise", "hang", "nonsense")))
            await client.create(configmap("fine", namespace))
            await eventually(lambda: others.seen == ["fine"])
            await eventually(lambda: not any(manager.ready().values()), "no source minds")
            prefix, label = "controller_runtime_reconcile", {"controller": "mixed"}
            assert metric(registry, f"{prefix}_errors_total", **label) >= 3
            assert metric(registry, f"{prefix}_panics_total", **label) >= 2
            assert metric(registry, f"{prefix}_timeouts_total", **label) >= 1
            assert metric(registry, f"{prefix}_errors_total", controller="others") == 0
    assert "no denominator" in errors_of("raise")[0]
    assert "longer than 2 s" in errors_of("hang")[0]
    assert "return done, requeue(…) or nothing" in errors_of("nonsense")[0]
    assert {line["controller"] for line in lines if line["event"] == "reconcile failed"} == {"mixed"}


async def test_a_reconciler_that_writes_for_ever_is_named_and_leaves_the_others_working(client, cluster, namespace):
    served: list[str] = []

    async def reconcile(ctx, obj):
        if obj.name == "restless":
            count = int((obj.data or {}).get("count", "0")) + 1
            await ctx.patch(obj, {"data": {"count": str(count)}})
        else:
            served.append(obj.name)

    registry, others = CollectorRegistry(), Notes(ConfigMap, "others", namespace, label_selector="role=good")
    restless = (
        Controller(ConfigMap, reconcile, "restless")
        .select(namespaces=[namespace], label_selector="role=bad")
        .with_options(
            concurrency=1, limits=Limits(writes_seconds=86_400)
        )  # time is hurried here, and machines are slow
    )
    await client.create(configmap("restless", namespace, role="bad"))
    reconciles = {"controller": "restless", "result": "success"}
    with structlog.testing.capture_logs() as lines:
        async with running(client, restless, others.controller, registry=registry, clock=FastClock(SPEED)) as manager:
            await eventually(lambda: metric(registry, "controller_runtime_reconcile_total", **reconciles) > 20)
            for number in range(5):
                await client.create(configmap(f"bad{number}", namespace, role="bad"))
                await client.create(configmap(f"good{number}", namespace))
            await eventually(lambda: sorted(set(served)) == [f"bad{n}" for n in range(5)], "the same worker finds time")
            await eventually(lambda: sorted(set(others.seen)) == [f"good{n}" for n in range(5)])
            count = metric(registry, "controller_runtime_reconcile_total", **reconciles)
            await eventually(lambda: metric(registry, "controller_runtime_reconcile_total", **reconciles) > count)
            assert metric(registry, "workqueue_adds_total", name="restless", controller="restless") > 20
            name = f"{namespace}/restless"
            stuck = {"controller": "restless", "trouble": "writes"}
            await eventually(lambda: metric(registry, "steersman_troubled_keys", **stuck) == 1)
            assert metric(registry, "steersman_troubled_key_info", **stuck, object=name) == 1
            warning = f"controller restless: {name} wrote something in each of its last 30 reconciles"
            assert any(line.startswith(warning) for line in manager.warnings())
            await eventually(lambda: not any(manager.ready().values()), "it is no reason to be taken out of service")
            said = {"event": "a key is stuck", "controller": "restless", "object": name, "kind": "writes"}
            await eventually(lambda: any(said.items() <= line.items() for line in lines), "the log says so")
            quiet = {"controller": "others", "result": "success"}
            assert metric(registry, "controller_runtime_reconcile_total", **quiet) == 5


async def test_an_object_that_does_not_decode_is_named_by_a_warning_the_log_and_a_metric(client, cluster, namespace):
    registry = CollectorRegistry()
    narrow = Notes(Narrow, "narrow", namespace, label_selector="role=good")
    wide = Notes(ConfigMap, "wide", namespace, label_selector="role=good")
    await client.create(configmap("bad", namespace, x="not a number"))
    with structlog.testing.capture_logs() as lines:
        async with running(client, narrow.controller, wide.controller, registry=registry) as manager:
            await client.create(configmap("good", namespace))
            await eventually(lambda: narrow.seen == ["good"] and sorted(wide.seen) == ["bad", "good"])
            source = f"configmaps in {namespace} where role=good"
            warning = f"source {source}: {namespace}/bad left out: it does not decode"
            await eventually(lambda: any(line.startswith(warning) for line in manager.warnings()))
            assert not any(manager.ready().values()), "a process that is out of service repairs nothing"
            assert metric(registry, "steersman_cache_undecodable_total", cluster="", source=source) >= 1
            await client.patch(ConfigMap, "bad", {"data": {"x": None}}, type=PatchType.MERGE, namespace=namespace)
            await eventually(lambda: "bad" in narrow.seen, "what can be read again is reconciled")
            await eventually(lambda: manager.warnings() == [])
    assert [line["object"] for line in lines if line["event"] == "an object is left out"] == [f"{namespace}/bad"]


async def test_a_kind_installed_after_the_start_is_picked_up_and_blocked_nothing_else(client, cluster, namespace):
    group = f"{namespace}.example.org"

    class Gizmo(Resource, group=group, version="v1"):
        spec: GizmoSpec = GizmoSpec()

    registry = CollectorRegistry()
    gizmos, others = Notes(Gizmo, "gizmos", namespace), Notes(ConfigMap, "others", namespace, label_selector="role")
    source = f"gizmos.{group} in {namespace}"

    def problem() -> str:
        return manager.ready()[f"source {source}"] or ""

    with structlog.testing.capture_logs() as lines:
        options = {"registry": registry, "clock": FastClock(SPEED)}
        async with background(client, gizmos.controller, others.controller, **options) as manager:
            await eventually(
                lambda: "CustomResourceDefinition installed?" in problem(), "readiness says what is missing"
            )
            assert metric(registry, "steersman_cache_failures_total", cluster="", source=source, reason="NotFound") >= 1
            await client.create(configmap("good", namespace))
            await eventually(lambda: others.seen == ["good"])
            assert gizmos.seen == []
            await client.create({**crd_manifest(Gizmo)})
            await eventually(lambda: client.create(Gizmo(metadata=ObjectMeta(name="first", namespace=namespace))))
            await eventually(lambda: gizmos.seen == ["first"], "the new kind is reconciled")
            await eventually(lambda: problem() == "")
    await client.delete(CRDS, f"gizmos.{group}")
    assert any(line.get("source") == source and line.get("reason") == "NotFound" for line in lines)


def background(client: Client, *controllers: Controller, **options: Any) -> Any:
    """As `running`, for controllers of which one cannot start yet."""
    from contextlib import asynccontextmanager

    from steersman.runtime.manager.manager import Manager

    @asynccontextmanager
    async def work():
        manager = Manager(client, controllers, **options)
        task = asyncio.create_task(manager.run())
        try:
            await eventually(lambda: manager.working.is_set() or task.done())
            yield manager
        finally:
            manager.stop()
            await task

    return work()


async def give_only(client: Client, namespace: str, *rules: dict[str, Any]) -> None:
    """Replace the rules of the namespace's only role."""
    (role,) = (await client.list(ROLES, namespace=namespace)).items
    name = role["metadata"]["name"]
    await client.patch(ROLES, name, {"rules": list(rules)}, type=PatchType.MERGE, namespace=namespace)


@pytest.mark.real
async def test_rights_that_are_taken_away_stop_only_what_needs_them_until_they_are_given_back(
    real, client, namespace, road_to
):
    rules = [{"apiGroups": [""], "resources": [kind], "verbs": ["list", "watch"]} for kind in ("configmaps", "secrets")]
    account = await real.service_account("limited", rules, namespace=namespace)
    road = await road_to(real)
    limited = load_config(road.through(account))
    registry = CollectorRegistry()
    maps = Notes(ConfigMap, "maps", namespace, label_selector="role")
    secrets = Notes(Secret, "secrets", namespace, label_selector="role")
    source = f"secrets in {namespace} where role"

    async def give(*given: dict[str, Any]) -> None:
        await give_only(client, namespace, *given)

    def problem() -> str:
        return manager.ready()[f"source {source}"] or ""

    clock = FastClock(SPEED)
    with structlog.testing.capture_logs() as lines:
        async with (
            Client.connect(limited, clock=clock) as through,
            running(through, maps.controller, secrets.controller, registry=registry, clock=clock) as manager,
        ):
            await eventually(lambda: problem() == "")
            await give(rules[0])

            async def refused() -> bool:
                if problem() == "":  # a watch that is open stays open, and rights are read from a cache
                    await road.proxy.cut()
                return "forbidden" in problem().lower()

            await eventually(refused)
            assert "secrets" in problem()
            reason = {"cluster": "", "source": source, "reason": "Forbidden"}
            await eventually(lambda: metric(registry, "steersman_cache_failures_total", **reason) >= 1)
            await client.create(configmap("good", namespace))
            await client.create(Secret(metadata=ObjectMeta(name="missed", namespace=namespace, labels={"role": "x"})))
            await eventually(lambda: maps.seen == ["good"], "the others keep working")
            await eventually(lambda: "forbidden" in problem().lower())
            assert secrets.seen == []
            await give(*rules)
            await eventually(lambda: secrets.seen == ["missed"], "what happened meanwhile is not lost")
            await eventually(lambda: problem() == "")
    told = [line for line in lines if line.get("source") == source and line.get("reason") == "Forbidden"]
    assert told
    assert {line["log_level"] for line in told} == {"error"}


@pytest.mark.real
async def test_a_write_that_is_forbidden_is_reported_with_its_rule_and_succeeds_once_it_is_allowed(
    real, client, namespace
):
    reading = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}
    account = await real.service_account("writer", [reading], namespace=namespace)
    registry = CollectorRegistry()

    async def reconcile(ctx, obj):
        await ctx.patch(obj, {"data": {"done": "yes"}})

    controller = Controller(ConfigMap, reconcile, "marker").select(namespaces=[namespace], label_selector="role")
    await client.create(configmap("one", namespace))
    clock = FastClock(SPEED)
    with structlog.testing.capture_logs(processors=[merge_contextvars]) as lines:
        async with (
            Client.connect(load_config(account), clock=clock) as limited,
            running(limited, controller, registry=registry, clock=clock),
        ):
            errors = {"controller": "marker"}
            await eventually(lambda: metric(registry, "controller_runtime_reconcile_errors_total", **errors) >= 2)
            assert metric(registry, "controller_runtime_reconcile_panics_total", **errors) == 0
            await give_only(client, namespace, {**reading, "verbs": ["list", "watch", "patch"]})

            async def done() -> bool:
                return (await client.get(ConfigMap, "one", namespace=namespace)).data == {"done": "yes"}

            await eventually(done)
    line = next(line for line in lines if line["event"] == "reconcile failed")
    assert (line["controller"], line["object"]) == ("marker", f"{namespace}/one")
    assert 'cannot patch resource "configmaps"' in line["error"]
