"""Caches in memory, with the real store, for tests of what sits on top of them."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from steersman.cache.identity import ref_of
from steersman.cache.informer import SharedInformer
from steersman.cache.interfaces import SourceHealth
from steersman.cache.metrics import CacheMetrics
from steersman.cache.store import ObjectStore
from steersman.kube.api.gvk import Kind
from steersman.runtime.cluster import Cluster
from steersman.runtime.manager.manager import Manager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from steersman.clock import Clock
    from steersman.kube.api.gvk import NamespacedName
    from steersman.runtime.controller.builder import Controller


class MemoryInformer:
    """An informer whose watch is the test: `sync`, `set` and `remove` are what it would deliver."""

    def __init__(self, target: Any, clock: Clock, transform: Any = None) -> None:
        self.target = target
        self.kind: Kind = target if isinstance(target, Kind) else target.KIND
        self.store: ObjectStore[Any] = ObjectStore(clock=clock)
        self.handlers: list[Callable[[Any, Any, bool], None]] = []
        self.runs = 0
        self.crash: Exception | None = None
        self.problem: str | None = None
        self.partial = False
        self._synced = asyncio.Event()
        self._projecting: SharedInformer[Any] = SharedInformer(
            SimpleNamespace(), target, random=Random(1), metrics=CacheMetrics(CollectorRegistry()), transform=transform
        )

    def sync(self, *objects: Any) -> None:
        for obj in objects:
            self.store.upsert(obj)
            for handler in list(self.handlers):
                handler(None, obj, True)
        self._synced.set()

    def set(self, *objects: Any) -> None:
        for obj in objects:
            change = self.store.upsert(obj)
            for handler in list(self.handlers):
                handler(change.old, change.new, False)

    def remove(self, obj: Any) -> None:
        change = self.store.remove(obj)
        assert change is not None
        for handler in list(self.handlers):
            handler(change.old, None, False)

    async def run(self) -> None:
        self.runs += 1
        if self.crash is not None:
            raise self.crash
        await asyncio.Event().wait()

    def health(self) -> SourceHealth:
        return SourceHealth(
            name=self.kind.qualified,
            synced=self.has_synced(),
            objects=len(self.store),
            resource_version=self.store.revision,
            problem=self.problem,
            partial=self.partial,
        )

    def has_synced(self) -> bool:
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def add_handler(self, handler: Callable[[Any, Any, bool], None]) -> Any:
        self.handlers.append(handler)
        for obj in self.store.base():
            handler(None, obj, True)
        return SimpleNamespace(
            has_synced=self.has_synced, wait_synced=self.wait_synced, remove=lambda: self.handlers.remove(handler)
        )

    def add_index(self, name: str, values: Callable[[Any], Any]) -> None:
        self.store.add_index(name, values)

    def kept(self, obj: Any) -> Any:
        return self._projecting.kept(obj)

    def snapshot(self) -> Any:
        return self.store.snapshot()

    def get(self, ref: NamespacedName) -> Any:
        return self.store.get(ref)


class MemoryCaches:
    """All informers of a cluster that exists only in the test."""

    def __init__(self, clock: Clock) -> None:
        self.on_new: Callable[[Any], None] | None = None
        self._clock = clock
        self._informers: dict[Any, MemoryInformer] = {}

    def informer(self, target: Any, **selection: Any) -> MemoryInformer:
        key = (target, *selection.values())
        if key not in self._informers:
            self._informers[key] = MemoryInformer(target, self._clock, selection.get("transform"))
            if self.on_new is not None:
                self.on_new(self._informers[key])
        return self._informers[key]

    def __getitem__(self, target: Any) -> MemoryInformer:
        return next(informer for informer in self if informer.target is target)

    def __iter__(self) -> Iterator[MemoryInformer]:
        return iter(list(self._informers.values()))


@pytest.fixture
def caches(clock: Any) -> MemoryCaches:
    return MemoryCaches(clock)


class NoClient:
    """A client of which nothing is asked."""

    field_manager = "test"

    def guarded(self, _guard: Any) -> NoClient:
        return self


@pytest.fixture
def memory_cluster(caches: MemoryCaches) -> Cluster:
    client: Any = NoClient()
    return Cluster(client, caches)


@pytest.fixture
def make_manager(clock: Any, caches: MemoryCaches) -> Callable[..., Manager]:
    """Managers over the caches in memory."""

    class Tested(Manager):
        def _cluster(self, name: str, client: Any, component: str) -> Cluster:
            return Cluster(client, caches, name=name, guard=self._guard, clock=clock)

    def make(*controllers: Controller, **options: Any) -> Manager:
        client: Any = NoClient()
        options = {"clock": clock, "registry": CollectorRegistry(), **options}
        return Tested(client, controllers, **options)

    return make


@pytest.fixture
def refs() -> Callable[..., list[str]]:
    return lambda objects: [str(ref_of(obj)) for obj in objects]
