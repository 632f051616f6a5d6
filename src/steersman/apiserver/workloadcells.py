"""Cells of workloads: deployments, replica sets, stateful sets, daemon sets, jobs, cron jobs.

Columns and their order are those of the real server, the wide ones included.
"""

from __future__ import annotations

from typing import Any

from steersman.apiserver.celltext import (
    NONE,
    UNSET,
    Cells,
    age,
    age_of,
    containers,
    has_condition,
    human_duration,
    labels,
    name_of,
    selector,
    spec_of,
    status_of,
)
from steersman.errors import FormatError
from steersman.kube.selectors import Selector
from steersman.kube.times import parse_time

__all__ = ["cron_job", "daemon_set", "deployment", "job", "replica_set", "replication_controller", "stateful_set"]

JSON = dict[str, Any]


def _template(obj: JSON) -> tuple[str, str]:
    return containers((spec_of(obj).get("template") or {}).get("spec"))


def deployment(obj: JSON, now: float) -> Cells:
    """The row of one."""
    status = status_of(obj)
    ready = f"{status.get('readyReplicas', 0)}/{spec_of(obj).get('replicas', 0)}"
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    try:
        chosen = str(Selector.from_wire(spec_of(obj).get("selector")))
    except FormatError:
        chosen = "<invalid>"
    return [name_of(obj), ready, *counts, age_of(obj, now), *_template(obj), chosen]


def replica_set(obj: JSON, now: float) -> Cells:
    """The row of one."""
    status = status_of(obj)
    counts = [spec_of(obj).get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [name_of(obj), *counts, age_of(obj, now), *_template(obj), selector(spec_of(obj).get("selector"))]


def replication_controller(obj: JSON, now: float) -> Cells:
    """The row of one."""
    return [
        *replica_set({**obj, "spec": {**spec_of(obj), "selector": None}}, now)[:-1],
        labels(spec_of(obj).get("selector")),
    ]


def stateful_set(obj: JSON, now: float) -> Cells:
    """The row of one."""
    ready = f"{status_of(obj).get('readyReplicas', 0)}/{spec_of(obj).get('replicas', 0)}"
    return [name_of(obj), ready, age_of(obj, now), *_template(obj)]


def daemon_set(obj: JSON, now: float) -> Cells:
    """The row of one."""
    names = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    counts = [status_of(obj).get(name, 0) for name in names]
    pod = (spec_of(obj).get("template") or {}).get("spec") or {}
    chosen = selector(spec_of(obj).get("selector"))
    return [name_of(obj), *counts, labels(pod.get("nodeSelector")), age_of(obj, now), *_template(obj), chosen]


_JOB_STATES = (
    ("Suspended", "Suspended"),
    ("FailureTarget", "FailureTarget"),
    ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)


def job(obj: JSON, now: float) -> Cells:
    """The row of one."""
    spec, status = spec_of(obj), status_of(obj)
    done = status.get("succeeded", 0)
    if (wanted := spec.get("completions")) is not None:
        completions = f"{done}/{wanted}"
    else:
        parallel = spec.get("parallelism") or 0
        completions = f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"
    took = ""
    if started := status.get("startTime"):
        ended = status.get("completionTime")
        until = parse_time(ended).timestamp() if ended else now
        took = human_duration(until - parse_time(started).timestamp())
    if has_condition(obj, "Complete") or has_condition(obj, "Failed"):
        state = "Complete" if has_condition(obj, "Complete") else "Failed"
    elif obj["metadata"].get("deletionTimestamp"):
        state = "Terminating"
    else:
        state = next((name for kind, name in _JOB_STATES if has_condition(obj, kind)), "Running")
    return [name_of(obj), state, completions, took, age_of(obj, now), *_template(obj), selector(spec.get("selector"))]


def cron_job(obj: JSON, now: float) -> Cells:
    """The row of one."""
    spec, status = spec_of(obj), status_of(obj)
    last = age(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else NONE
    suspended = UNSET if spec.get("suspend") is None else str(spec["suspend"])
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    pod = containers((job.get("template") or {}).get("spec"))
    active = len(status.get("active") or ())
    head = [name_of(obj), spec.get("schedule", ""), spec.get("timeZone") or NONE, suspended, active, last]
    return [*head, age_of(obj, now), *pod, selector(job.get("selector"))]
