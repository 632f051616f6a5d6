from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from steersman.errors import ConfigError
from steersman.kube.api.gvk import Kind, NamespacedName
from steersman.kube.api.objects import ObjectMeta, OwnerReference, Resource, Struct
from steersman.runtime.controller.builder import Controller, Options, controller
from steersman.runtime.controller.predicates import Predicate, generation, labels, status
from steersman.runtime.controller.result import Result, done, requeue
from steersman.runtime.controller.watches import InformerSource, owner_of
from steersman.runtime.workqueue.queue import Debounce


class AppStatus(Struct):
    ready_pods: int = 0


class App(Resource, group="example.org", version="v1"):
    status: AppStatus | None = None


class Pod(Resource, version="v1"):
    pass


class Node(Resource, version="v1", namespaced=False):
    pass


DEPLOYMENT = Kind(group="apps", version="v1", kind="Deployment", plural="deployments")


async def reconcile(ctx: object, app: App) -> Result:
    return done


def to_apps(obj: object) -> list[NamespacedName]:
    return []


def test_a_controller_prints_as_the_table_it_is() -> None:
    table = (
        Controller(App, reconcile)
        .when(generation | labels)
        .owns(DEPLOYMENT)
        .watches(Pod, Node, to=to_apps, when=labels)
        .reads(Node)
    )
    assert str(table).splitlines() == [
        "app",
        "  for App.example.org when generation | labels",
        "  owns Deployment.apps",
        "  watches Pod to to_apps when labels",
        "  watches Node to to_apps when labels",
        "  reads Node",
    ]


def test_every_row_makes_a_new_controller_and_leaves_the_old_one_alone() -> None:
    first = Controller(App, reconcile)
    second = first.owns(Pod).named("other")
    assert len(first.watched) == 1
    assert first.name == "app"
    assert second.name == "other"
    assert second.owned_kinds == {Pod.KIND}


def test_the_decorator_says_the_same_in_one_line() -> None:
    calm = Debounce(quiet_seconds=1, limit_seconds=5)

    @controller(App, owns=[Pod], reads=[Node], when=labels, every=timedelta(minutes=5), debounce=calm, concurrency=2)
    async def webapp(ctx: object, app: App) -> Result:
        return done

    assert isinstance(webapp, Controller)
    assert webapp.name == "webapp"
    assert [str(row) for row in webapp.watched] == ["for App.example.org when labels", "owns Pod", "reads Node"]
    assert webapp.schedules[0].every_seconds == 300
    assert webapp.options == Options(concurrency=2, debounce=calm)
    assert webapp.is_async


def test_functions_partials_and_objects_can_reconcile_on_the_loop_or_in_a_thread() -> None:
    class Async:
        async def __call__(self, ctx: object, app: App) -> None: ...

    class Blocking:
        def __call__(self, ctx: object, app: App) -> None: ...

    assert Controller(App, reconcile).is_async
    assert Controller(App, partial(reconcile)).is_async
    assert Controller(App, Async()).is_async
    assert not Controller(App, Blocking()).is_async
    assert not Controller(App, lambda ctx, app: None).is_async


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Controller(None, reconcile), "needs a name"),
        (lambda: Controller("App", reconcile, "x"), "'App' is not a kind"),
        (lambda: Controller(App, lambda ctx: None), "two arguments, the context and the object"),
        (lambda: Controller(App, "reconcile"), "'reconcile' is called with two arguments"),
        (lambda: Controller(None, lambda: None, "x"), "two arguments, the context and the key"),
        (lambda: Controller(App, reconcile).on_missing(lambda ctx: None), "the context and the key"),  # type: ignore[arg-type, misc]
        (lambda: Controller(App, reconcile).owns("Pod"), "'Pod' is not a kind"),  # type: ignore[arg-type]
        (lambda: Controller(App, reconcile).reads(Resource), "Resource'> is not a kind"),
        (lambda: Controller(App, reconcile).when(status("readyPod")), "did you mean readyPods"),
        (lambda: Controller(App, reconcile).watches(App, to=to_apps, when=status("x")), "no field status.x"),
        (lambda: Controller(App, reconcile).when("labels"), "is not a predicate"),  # type: ignore[arg-type]
        (lambda: Controller(App, reconcile).owns(), "at least one kind"),
        (lambda: Controller(App, reconcile).schedule(every=0), "must be positive"),
        (lambda: Controller(App, reconcile).schedule(every="0s"), "must be positive"),
        (lambda: Controller(None, reconcile, "x").schedule(every=5), "must name the keys"),
        (lambda: Controller(App, reconcile).schedule(), "give either every= .* or cron="),
        (lambda: Controller(App, reconcile).schedule(every=5, cron="* * * * *"), "give either every= .* or cron="),
        (lambda: Controller(App, reconcile).schedule(cron="whenever"), '"whenever" is not a cron expression'),
        (lambda: Controller(App, reconcile).schedule(cron="0 0 30 2 *"), "is not a cron expression"),
        (lambda: Controller(App, reconcile).schedule(cron="* * * * *", zone="Mars"), '"Mars" is not a time zone'),
        (lambda: Controller(None, reconcile, "x").owns(Pod), "cannot own"),
        (lambda: Controller(None, reconcile, "x").when(labels), "no objects of its own"),
        (lambda: Controller(None, reconcile, "x").finalizer("a.b/c", reconcile), "nothing to finalize"),
        (lambda: Controller(App, reconcile).finalizer("cleanup", reconcile), "try example.org/cleanup"),
        (
            lambda: Controller(App, reconcile).finalizer("a.b/c", reconcile).finalizer("a.b/c", reconcile),
            "a finalizer of its own",
        ),
        (lambda: Controller(App, reconcile).with_options(concurrency=0), "at least 1"),
        (lambda: Controller(App, reconcile).with_options(timeout_seconds=0), "must be positive"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_when_it_is_written(build: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()  # type: ignore[operator]


def test_owners_are_found_by_kind_and_group_whatever_the_version() -> None:
    def owned(*owners: tuple[str, str, str]) -> Pod:
        references = [OwnerReference(api_version=a, kind=k, name=n, uid="u") for a, k, n in owners]
        return Pod(metadata=ObjectMeta(name="p", namespace="shop", owner_references=references))

    of_app = owner_of(App.KIND)
    pod = owned(("example.org/v1", "App", "a"), ("example.org/v2", "App", "b"), ("other.org/v1", "App", "c"))
    assert list(of_app(pod)) == [NamespacedName("a", "shop"), NamespacedName("b", "shop")]
    assert list(owner_of(Node.KIND)(owned(("v1", "Node", "n")))) == [NamespacedName("n", "")]
    assert list(of_app(Pod(metadata=ObjectMeta(name="p")))) == []


def test_results_say_when() -> None:
    assert requeue(after=timedelta(minutes=1)) == Result(requeue=True, after_seconds=60)
    assert requeue() == Result(requeue=True)
    assert requeue(after=3, priority=7).priority == 7
    assert not done.requeue


@pytest.mark.parametrize("after", [0, -1, float("nan"), float("inf"), timedelta(0)])
def test_a_result_that_makes_no_sense_is_refused(after: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        requeue(after=after)


def test_an_interval_may_be_written_as_durations_are_elsewhere() -> None:
    assert Controller(App, reconcile).schedule(every="10m").schedules[0].every_seconds == 600


def test_what_changed_is_noted_with_the_keys_of_both_states_once_they_are_queued() -> None:
    queued: list[str] = []
    noted: list[tuple[str, list[str], list[str]]] = []

    class Queue:
        def add(self, key: str, *, priority: int = 0, after: float | None = None) -> None:
            queued.append(key)

    def note(obj: Resource, keys: list[str]) -> None:
        noted.append((obj.metadata.name, keys, list(queued)))

    made = Controller(App, reconcile).watches(Pod, to=lambda pod: [pod.metadata.labels["app"]], on_enqueue=note)
    source = InformerSource(made.watched[-1], None, Queue(), lambda: None)  # type: ignore[arg-type]  # no informer is needed
    old, new = (Pod(metadata=ObjectMeta(name="p", labels={"app": app}, resource_version=app)) for app in "ab")
    source._on_change(old, new, False)
    source._on_change(new, None, False)
    assert noted == [("p", ["a", "b"], ["a", "b"]), ("p", ["b"], ["a", "b", "b"])]


def test_a_watch_may_let_keys_wait_and_one_that_fails_to_say_how_long_lets_none_wait() -> None:
    queued: list[tuple[str, float | None]] = []

    class Queue:
        def add(self, key: str, *, priority: int = 0, after: float | None = None) -> None:
            queued.append((key, after))

    def wait(key: str, old: Pod | None, new: Pod | None) -> float | None:
        if new is None:
            raise RuntimeError("gone")
        return {"a": 5.0}.get(key)

    made = Controller(App, reconcile).watches(Pod, to=lambda pod: [pod.metadata.labels["app"]], after=wait)
    source = InformerSource(made.watched[-1], None, Queue(), lambda: None)  # type: ignore[arg-type]  # no informer is needed
    old, new = (Pod(metadata=ObjectMeta(name="p", labels={"app": app}, resource_version=app)) for app in "ab")
    source._on_change(old, new, False)
    source._on_change(old, None, False)
    assert queued == [("a", 5.0), ("b", None), ("a", None)]


def test_a_change_that_an_observer_fails_to_note_is_reconciled_even_if_the_predicate_says_no() -> None:
    queued: list[str] = []

    class Queue:
        def add(self, key: str, *, priority: int = 0, after: float | None = None) -> None:
            queued.append(key)

    def note(old: Pod | None, new: Pod | None) -> None:
        if new is not None and new.metadata.name == "broken":
            raise RuntimeError("no memory")

    never = Predicate("never", lambda old, new: False)
    made = Controller(App, reconcile).watches(Pod, to=lambda pod: [pod.metadata.name], when=never, observe=note)
    source = InformerSource(made.watched[-1], None, Queue(), lambda: None)  # type: ignore[arg-type]  # no informer is needed
    for name in ("fine", "broken"):
        source._on_change(None, Pod(metadata=ObjectMeta(name=name)), False)
    assert queued == ["broken"]
