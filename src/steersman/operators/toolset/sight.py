"""How far we see: which Services and endpoints cannot be listed, and what was known of the Services there.

A list that fails says nothing about what it would have shown. What a watch has brought before stays in force, kind by
kind and namespace by namespace. A namespace that this process has never been able to list is taken from the record
that the process before it left in the cluster: Services as they were, judged by the settings of today.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from steersman.kube.objects import ObjectMeta
from steersman.operators.toolset.look import Problem
from steersman.operators.toolset.objects import ServiceLook, SliceLook

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.toolset.types import Settings
    from steersman.runtime.context import Context

__all__ = ["LARGEST_RECORD", "Sight", "record_of", "services_in", "sight_of"]

LARGEST_RECORD: Final = 400_000  # bytes; of more than that nothing is kept, and a target waits for what it cannot see


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What cannot be seen."""

    unseen: frozenset[str] = frozenset()  # namespaces whose Services this process has never listed
    problems: tuple[Problem, ...] = ()  # worth telling
    dim: bool = False  # something cannot be seen right now, and may be in a moment

    @property
    def message(self) -> str:
        """All of it in one line, empty when everything can be seen."""
        return "; ".join(problem.message for problem in self.problems)


def sight_of(ctx: Context, settings: Settings) -> Sight:
    """How far we see right now, of what one target looks at."""
    unseen: frozenset[str] = frozenset()
    problems: list[Problem] = []
    for target in (ServiceLook, SliceLook):
        shelf = ctx.cache.shelf(target)
        health = shelf.informer.health() if shelf is not None else None
        if health is None or health.problem is None:
            continue
        never = frozenset(filter(settings.watches, health.unseen))
        if target is ServiceLook:
            unseen = never
        where = f" of namespace {', '.join(sorted(never))}" if never else ""
        ctx.log.warning("cannot be listed", component="service_discovery", problem=health.problem)
        text = f"{target.KIND.plural}{where} cannot be listed; what is known of them stays in force"
        problems.append(Problem("ListFailed", "", text))
    return Sight(unseen=unseen, problems=tuple(problems))


def record_of(services: Iterable[ServiceLook]) -> str | None:
    """What to keep of these Services for a process that cannot see them; None when it would be too much."""
    rows = [
        ServiceLook(
            metadata=ObjectMeta(
                name=one.name,
                namespace=one.namespace,
                uid=one.metadata.uid,
                creation_timestamp=one.metadata.creation_timestamp,
                labels=one.metadata.labels,
                annotations=one.metadata.annotations,
            ),
            spec=one.spec,
        )
        for one in sorted(services, key=lambda one: (one.namespace, one.name))
    ]
    text = msgspec.json.encode(rows, order="deterministic").decode()
    return text if len(text) <= LARGEST_RECORD else None


def services_in(record: str, namespaces: frozenset[str]) -> tuple[ServiceLook, ...]:
    """The recorded Services of these namespaces; none when somebody made the record unreadable."""
    try:
        rows = msgspec.json.decode(record, type=list[ServiceLook])
    except msgspec.DecodeError:
        return ()
    return tuple(one for one in rows if one.namespace in namespaces)
