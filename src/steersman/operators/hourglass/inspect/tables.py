"""The tables of the page and `steersman status`: performers and executors, and why one is not available. Pure.

Read from caches only; they never show a value of an environment variable or a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.operators.hourglass.api.types import StoredExecutor, StoredPerformer
from steersman.runtime.manager.operator_bundle import Row, RowProblem, RowState, Table, cached_objects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.runtime.cluster import Cluster

BUSY: Final = frozenset({"Upgrading", "Terminating"})


def tables(cluster: Cluster) -> Sequence[Table]:
    """Both tables."""
    return [
        Table(
            "Performers",
            ("name", "namespace", "phase", "ready", "image", "pod", "endpoint"),
            [performer_row(performer) for performer in cached_objects(cluster, StoredPerformer)],
        ),
        Table(
            "Executors",
            ("name", "namespace", "phase", "ready", "image"),
            [executor_row(executor) for executor in cached_objects(cluster, StoredExecutor)],
        ),
    ]


def performer_row(performer: StoredPerformer) -> Row:
    """One performer."""
    spec, status = performer.spec or {}, performer.status or {}
    ready = f"{status.get('readyReplicas') or 0}/{_number(spec.get('replicas'), 1)}"
    cells = (
        *(performer.name, performer.namespace, _text(status.get("phase")) or "New", ready),
        *(_text(spec.get("image")), _text(status.get("podName")), _text(status.get("grpcEndpoint"))),
    )
    state, note = _state(status, ready=status.get("ready") is True)
    return Row(cells, state, note, problem=_problem(performer, state, note, "SteersmanHourglassPerformerNotRunning"))


def executor_row(executor: StoredExecutor) -> Row:
    """One executor."""
    spec, status = executor.spec or {}, executor.status or {}
    wanted = _number(spec.get("replicas"), 1)
    number = _number(status.get("readyReplicas"), 0)
    cells = (
        *(executor.name, executor.namespace, _text(status.get("phase")) or "New"),
        *(f"{number}/{wanted}", _text(spec.get("image"))),
    )
    if status.get("phase") == "Stopped":
        return Row(cells, RowState.OFF, "spec.replicas is 0")
    state, note = _state(status, ready=number >= wanted)
    return Row(cells, state, note, problem=_problem(executor, state, note, "SteersmanHourglassExecutorNotRunning"))


def _problem(found: StoredPerformer | StoredExecutor, state: RowState, note: str, runbook: str) -> RowProblem | None:
    if state is not RowState.BAD:
        return None
    kind = type(found).KIND.kind.lower()
    return RowProblem(
        objects=[f"{kind}/{found.namespace}/{found.name}"],
        message=note,
        command=f"steersman why {kind}/{found.name} -n {found.namespace}",
        runbook=runbook,
    )


def _state(status: dict[str, Any], *, ready: bool) -> tuple[RowState, str]:
    conditions = {item.get("type"): item for item in status.get("conditions") or () if isinstance(item, dict)}
    degraded, available = conditions.get("Degraded") or {}, conditions.get("Available") or {}
    progressing = conditions.get("Progressing") or {}
    if degraded.get("status") == "True":
        return RowState.BAD, f"{degraded.get('reason')}: {degraded.get('message')}"
    if status.get("phase") in BUSY or progressing.get("status") == "True":
        return RowState.BUSY, _text(progressing.get("message"))
    return (RowState.GOOD, "") if ready else (RowState.WAITING, _text(available.get("message")))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
