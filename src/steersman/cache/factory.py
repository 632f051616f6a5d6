"""All informers of one cluster, shared: one list+watch per kind and selection."""

from __future__ import annotations

import random as randomness
from typing import TYPE_CHECKING, Any, TypeVar, overload

from steersman.cache.informer import SharedInformer
from steersman.cache.metrics import CacheMetrics
from steersman.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from random import Random

    from prometheus_client import CollectorRegistry

    from steersman.cache.informer import ByName
    from steersman.kube.api.gvk import Kind
    from steersman.kube.api.objects import Resource
    from steersman.kube.client.client import Client

__all__ = ["SharedInformerFactory"]

R = TypeVar("R", bound="Resource")


class SharedInformerFactory:
    """Makes informers and shares them by what they watch. It starts nothing: the manager runs them."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
        registry: CollectorRegistry | None = None,
        cluster: str = "",
        streaming: bool = True,
    ) -> None:
        """`cluster` names it in metrics, where a process watches several."""
        self.on_new: Callable[[SharedInformer[Any]], None] | None = None  # called for every informer made from then on
        self._client = client
        self._clock = clock
        self._random = random or randomness.Random()  # noqa: S311  # spreads load; guards nothing
        self._metrics = CacheMetrics.of(registry)
        self._cluster = cluster
        self._streaming = streaming
        self._informers: dict[object, SharedInformer[Any]] = {}

    @overload
    def informer(
        self,
        target: type[R],
        *,
        namespaces: Collection[str] | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        transform: Callable[[R], R] | None = None,
        by_name: ByName = "never",
        optional: bool = False,
    ) -> SharedInformer[R]: ...
    @overload
    def informer(
        self,
        target: Kind,
        *,
        namespaces: Collection[str] | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        transform: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        by_name: ByName = "never",
        optional: bool = False,
    ) -> SharedInformer[dict[str, Any]]: ...
    def informer(
        self,
        target: Any,
        *,
        namespaces: Collection[str] | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        by_name: ByName = "never",
        optional: bool = False,
    ) -> SharedInformer[Any]:
        """The informer for these arguments; a new one the first time."""
        scope = None if namespaces is None else frozenset(namespaces)
        key = (target, scope, label_selector or None, field_selector or None, transform, by_name, optional)
        known = self._informers.get(key)
        if known is None:
            known = self._informers[key] = SharedInformer(
                self._client,
                target,
                namespaces=scope,
                label_selector=label_selector or None,
                field_selector=field_selector or None,
                transform=transform,
                clock=self._clock,
                random=self._random,
                metrics=self._metrics,
                cluster=self._cluster,
                streaming=self._streaming,
                by_name=by_name,
                optional=optional,
                taken={informer.name for informer in self._informers.values()},
            )
            if self.on_new is not None:
                self.on_new(known)
        return known

    def __iter__(self) -> Iterator[SharedInformer[Any]]:
        return iter(list(self._informers.values()))

    def __len__(self) -> int:
        return len(self._informers)
