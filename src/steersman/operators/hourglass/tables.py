"""What the operator shows of itself: performers and executors with their phase, and why one is not available. Pure.

From caches alone. Never a value of an environment variable, never a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.operators.hourglass.types import StoredExecutor, StoredPerformer
from steersman.runtime.parts import Row, State, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.runtime.cluster import Cluster

__all__ = ["executor_row", "performer_row", "tables"]

BUSY: Final = frozenset({"Upgrading", "Terminating"})


def tables(cluster: Cluster) -> Sequence[Table]:
    """Both tables."""
    return [
        Table(
            "Performers",
            ("Namespace", "Name", "Phase", "Ready", "Image", "Pod", "Endpoint"),
            [performer_row(one) for one in _known(cluster, StoredPerformer)],
        ),
        Table(
            "Executors",
            ("Namespace", "Name", "Phase", "Ready", "Image"),
            [executor_row(one) for one in _known(cluster, StoredExecutor)],
        ),
    ]


def performer_row(performer: StoredPerformer) -> Row:
    """One performer."""
    spec, status = performer.spec or {}, performer.status or {}
    ready = f"{status.get('readyReplicas') or 0}/{_number(spec.get('replicas'), 1)}"
    cells = (
        *(performer.namespace, performer.name, _text(status.get("phase")) or "New", ready),
        *(_text(spec.get("image")), _text(status.get("podName")), _text(status.get("grpcEndpoint"))),
    )
    return Row(cells, *_state(status, ready=status.get("ready") is True))


def executor_row(executor: StoredExecutor) -> Row:
    """One executor."""
    spec, status = executor.spec or {}, executor.status or {}
    wanted = _number(spec.get("replicas"), 1)
    number = _number(status.get("readyReplicas"), 0)
    cells = (
        *(executor.namespace, executor.name, _text(status.get("phase")) or "New"),
        *(f"{number}/{wanted}", _text(spec.get("image"))),
    )
    if status.get("phase") == "Stopped":
        return Row(cells, State.OFF, "no pods are asked for")
    return Row(cells, *_state(status, ready=number >= wanted))


def _state(status: dict[str, Any], *, ready: bool) -> tuple[State, str]:
    conditions = {one.get("type"): one for one in status.get("conditions") or () if isinstance(one, dict)}
    degraded, available = conditions.get("Degraded") or {}, conditions.get("Available") or {}
    progressing = conditions.get("Progressing") or {}
    if degraded.get("status") == "True":
        return State.BAD, f"{degraded.get('reason')}: {degraded.get('message')}"
    if status.get("phase") in BUSY or progressing.get("status") == "True":
        return State.BUSY, _text(progressing.get("message"))
    return (State.GOOD, "") if ready else (State.WAITING, _text(available.get("message")))


def _known(cluster: Cluster, target: Any) -> Sequence[Any]:
    """The objects that the controllers' own watch has; nothing is watched for the page alone."""
    for informer in cluster.caches:
        if informer.target is target:
            with informer.snapshot() as snapshot:
                return list(snapshot)
    return ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
