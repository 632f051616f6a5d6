"""Stale pods: those that started before the last change of a key they use. Pure.

Works without the operator and without any right to write: the server knows when each key was last written (the times of
field managers) and when each container started. A manager's time moves with every key it writes, so where the operator
has written down what pods were started for, that decides instead: a pod of the present restart whose digests are still
those of its sources is not stale, whatever else was written since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.times import format_time
from steersman.operators.reload.changes import wanted
from steersman.operators.reload.comparison import IGNORE, form_of
from steersman.operators.reload.forecast import WorkloadName
from steersman.operators.reload.podowners import owner_of
from steersman.operators.reload.sourcetimes import seconds
from steersman.operators.reload.state import read_state
from steersman.operators.reload.types import APPLIED, RESTARTED_AT, SourceRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.operators.reload.edges import Edge
    from steersman.operators.reload.look import Look
    from steersman.operators.reload.survey import Survey

__all__ = ["Stale", "StaleSource", "stale_pods"]


class StaleSource(msgspec.Struct, frozen=True, kw_only=True):
    """One source that changed after the pod had started."""

    source: str
    keys: tuple[str, ...]
    changed: str


class Stale(msgspec.Struct, frozen=True, kw_only=True):
    """One pod that may run an old configuration."""

    pod: str
    namespace: str
    workload: WorkloadName
    started: str
    sources: tuple[StaleSource, ...]
    enrolled: bool  # whether the operator looks after the workload


def stale_pods(survey: Survey, pods: Iterable[Mapping[str, Any]], now: float) -> list[Stale]:
    """The stale ones among `pods` (manifests), by namespace and name."""
    looks = {
        (rule.kind.kind, workload.namespace, workload.name): survey.look(rule, workload, now)
        for rule, workload in survey.workloads()
    }
    found = []
    for pod in pods:
        meta, status = pod.get("metadata") or {}, pod.get("status") or {}
        if meta.get("deletionTimestamp") or status.get("phase") in ("Succeeded", "Failed"):
            continue
        kind, name = _workload_of(meta)
        look = looks.get((kind, meta.get("namespace", ""), name))
        if look is None:
            continue
        started = _started(pod)
        sources = tuple(_newer(survey, look, meta, started))
        if sources:
            who = WorkloadName(kind, meta["namespace"], name)
            found.append(
                Stale(
                    pod=meta["name"],
                    namespace=meta["namespace"],
                    workload=who,
                    started=format_time(started),
                    sources=sources,
                    enrolled=bool(look.edges.tracked),
                )
            )
    return sorted(found, key=lambda one: (one.namespace, one.pod))


def _newer(survey: Survey, look: Look, meta: Mapping[str, Any], started: float) -> Iterable[StaleSource]:
    fresh = _known_fresh(survey, look, meta)
    edges = {edge.source: edge for edge in look.edges.tracked}
    for source, keys in _uses(look).items():
        times = survey.changed.get(source)
        if times is None or source in fresh:
            continue
        used = [
            key
            for key, at in times.items()
            if (keys is None or key in keys) and at > started and _counts(key, edges.get(source))
        ]
        if used:
            yield StaleSource(
                source=source.seen_from(look.workload.namespace),
                keys=tuple(sorted(used)),
                changed=format_time(max(times[key] for key in used)),
            )


def _counts(key: str, edge: Edge | None) -> bool:
    """Whether a change of a key means anything."""
    return edge is None or (edge.uses(key) and form_of(key, edge.ways) != IGNORE)


def _uses(look: Look) -> dict[SourceRef, frozenset[str] | None]:
    """What the pods use, whether or not anybody restarts them for it; what is left out on purpose is left out here."""
    found: dict[SourceRef, frozenset[str] | None] = {}
    refused = {one.source for one in look.edges.untracked if "ignore" in one.rule}
    for reference in look.workload.facts.references:
        source = SourceRef(reference.kind, look.workload.namespace, reference.name)
        if source in refused:
            continue
        before = found.get(source, frozenset())
        mine = None if reference.keys is None else frozenset(reference.keys)
        found[source] = None if before is None or mine is None else before | mine
    for edge in look.edges.tracked:
        found[edge.source] = None if edge.keys is None else frozenset(filter(edge.uses, edge.keys))
    return found


def _known_fresh(survey: Survey, look: Look, meta: Mapping[str, Any]) -> set[SourceRef]:
    """The sources whose digest is the one that this very pod was started for."""
    stamp = look.workload.facts.template_annotations.get(RESTARTED_AT)
    applied = read_state(look.workload.annotations.get(APPLIED)).applied
    if applied is None or not stamp or (meta.get("annotations") or {}).get(RESTARTED_AT) != stamp:
        return set()
    return {
        edge.source
        for edge in look.edges.tracked
        if (entry := wanted(edge, survey.source(edge.source)).entry) is not None
        and (known := applied.sources.get(edge.source.seen_from(look.workload.namespace))) is not None
        and known.digest == entry.digest
    }


def _workload_of(meta: Mapping[str, Any]) -> tuple[str, str]:
    owner = next((one for one in meta.get("ownerReferences") or () if one.get("controller")), None)
    return ("", "") if owner is None else owner_of(owner.get("kind", ""), owner.get("name", ""), meta.get("labels"))


def _started(pod: Mapping[str, Any]) -> float:
    """When the oldest of its running containers started: a container that starts again reads its sources again."""
    status = pod.get("status") or {}
    running = [
        seconds(((one.get("state") or {}).get("running") or {}).get("startedAt"))
        for one in status.get("containerStatuses") or ()
    ]
    times = [when for when in running if when]
    return min(times) if times else seconds(status.get("startTime") or pod["metadata"].get("creationTimestamp"))
