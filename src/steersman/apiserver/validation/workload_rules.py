"""The rules of workloads: selectors that match their templates, numbers that make sense, what may not change.

A selector decides which pods a workload owns, so it must match the pods it makes and never changes afterwards.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from steersman.apiserver.resources.schema import builtin_enum
from steersman.apiserver.validation import field_errors
from steersman.apiserver.validation.metadata_rules import selector_causes
from steersman.apiserver.validation.names import is_dns1123_label, regex_text
from steersman.apiserver.validation.pod_rules import pod_template_causes
from steersman.errors import FormatError
from steersman.kube.api.durations import parse_go_duration
from steersman.kube.api.selectors import Selector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.kube.api.errors import Cause

JSON = dict[str, Any]

_PERCENT = re.compile(r"[0-9]+%")
_ZONE_PART = re.compile(r"[A-Za-z.\-_0-9+]{1,14}")
_STATEFUL_SET_MUTABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_DESCRIPTORS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RETENTION = ("Retain", "Delete")
_JOB_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_NOT_MATCHING = "`selector` does not match template `labels`"
_NEGATIVE = "must be greater than or equal to 0"


def _nonnegative(spec: JSON, path: str, *fields: str) -> list[Cause]:
    return [
        field_errors.invalid(f"{path}.{field}", value, _NEGATIVE)
        for field in fields
        if (value := spec.get(field)) is not None and value < 0
    ]


def _template_labels(spec: JSON) -> JSON:
    metadata: JSON = (spec.get("template") or {}).get("metadata") or {}
    return metadata.get("labels") or {}


def _owned_template(spec: JSON, kind: str) -> Iterator[Cause]:
    """The selector, and that it matches the template."""
    selector = spec.get("selector")
    if selector is None:
        yield field_errors.required("spec.selector")
    else:
        yield from selector_causes(selector, "spec.selector")
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            yield field_errors.invalid("spec.selector", selector, f"empty selector is invalid for {kind}")
    try:
        parsed = Selector.from_wire(selector)
    except FormatError:
        yield field_errors.invalid("spec.selector", selector or {}, "invalid label selector")
        return
    labels = _template_labels(spec)
    if not parsed.empty and not parsed.matches(labels):
        yield field_errors.invalid("spec.template.metadata.labels", labels or None, _NOT_MATCHING)
    yield from pod_template_causes(spec.get("template") or {}, "spec.template")
    yield from _always_restarted(spec, "ReplicaSet")


def _always_restarted(spec: JSON, kind: str) -> Iterator[Cause]:
    pod = (spec.get("template") or {}).get("spec") or {}
    if pod.get("restartPolicy", "Always") != "Always":
        yield field_errors.not_supported("spec.template.spec.restartPolicy", pod["restartPolicy"], ("Always",))
    if pod.get("activeDeadlineSeconds") is not None:
        text = f"activeDeadlineSeconds in {kind} is not Supported"
        yield field_errors.forbidden("spec.template.spec.activeDeadlineSeconds", text)


def _immutable_selector(spec: JSON, old: JSON | None) -> list[Cause]:
    if old is None or spec.get("selector") == old["spec"].get("selector"):
        return []
    return [field_errors.invalid("spec.selector", spec.get("selector"), "field is immutable")]


def replication_controller_causes(obj: JSON, _old: JSON | None) -> list[Cause]:
    """Why a replication controller cannot be stored; its selector is a map of labels, and may change."""
    spec = obj.get("spec") or {}
    found = _nonnegative(spec, "spec", "replicas", "minReadySeconds")
    selector, template = spec.get("selector") or {}, spec.get("template")
    if not selector:
        found.append(field_errors.required("spec.selector"))
    if template is None:
        return [*found, field_errors.required("spec.template")]
    labels = _template_labels(spec)
    if not selector.items() <= labels.items():
        found.append(field_errors.invalid("spec.template.metadata.labels", labels or None, _NOT_MATCHING))
    return [*found, *pod_template_causes(template, "spec.template"), *_always_restarted(spec, "ReplicationController")]


def replica_set_causes(obj: JSON, old: JSON | None) -> list[Cause]:
    """Why a replica set cannot be stored."""
    spec = obj.get("spec") or {}
    found = _nonnegative(spec, "spec", "replicas", "minReadySeconds")
    return [*found, *_owned_template(spec, "deployment"), *_immutable_selector(spec, old)]


def deployment_causes(obj: JSON, old: JSON | None) -> list[Cause]:
    """Why a deployment cannot be stored."""
    spec = obj.get("spec") or {}
    found = _nonnegative(spec, "spec", "replicas")
    found += _owned_template(spec, "deployment")
    found += _strategy_causes(spec.get("strategy") or {}, "spec.strategy")
    found += _nonnegative(spec, "spec", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= (spec.get("minReadySeconds") or 0):
        found.append(
            field_errors.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")
        )
    return found + _immutable_selector(spec, old)


def _strategy_causes(strategy: JSON, path: str) -> list[Cause]:
    kind, rolling = strategy.get("type", "RollingUpdate"), strategy.get("rollingUpdate")
    if kind == "Recreate":
        text = "may not be specified when strategy `type` is 'Recreate'"
        return [field_errors.forbidden(f"{path}.rollingUpdate", text)] if rolling is not None else []
    if kind != "RollingUpdate":
        return [field_errors.not_supported(path, kind, builtin_enum("apps.v1.DeploymentStrategy", "type"))]
    unavailable, surge = (rolling or {}).get("maxUnavailable", "25%"), (rolling or {}).get("maxSurge", "25%")
    where = f"{path}.rollingUpdate"
    found = percent_causes(unavailable, f"{where}.maxUnavailable") + percent_causes(surge, f"{where}.maxSurge")
    if _amount(unavailable) == 0 and _amount(surge) == 0:
        found.append(field_errors.invalid(f"{where}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    return found + at_most_all(unavailable, f"{where}.maxUnavailable")


def percent_causes(value: Any, field: str) -> list[Cause]:
    """A count or a percentage."""
    if isinstance(value, str):
        if _PERCENT.fullmatch(value):
            return []
        words = "a valid percent string must be a numeric string followed by an ending '%'"
        return [field_errors.invalid(field, value, regex_text(words, "[0-9]+%", "1%", "93%"))]
    return [field_errors.invalid(field, value, _NEGATIVE)] if value < 0 else []


def _amount(value: Any) -> int:
    if isinstance(value, str):
        return int(value[:-1]) if _PERCENT.fullmatch(value) else 0
    return int(value)


def at_most_all(value: Any, field: str) -> list[Cause]:
    """A percentage of something is at most all of it."""
    if isinstance(value, str) and _amount(value) > 100:
        return [field_errors.invalid(field, value, "must not be greater than 100%")]
    return []


def status_causes(status: JSON, counts: tuple[str, ...]) -> list[Cause]:
    """Why the status of a workload cannot be stored: no part is larger than the whole."""
    found = _nonnegative(status, "status", "observedGeneration", "replicas", *counts, "collisionCount")
    total, available = status.get("replicas") or 0, status.get("availableReplicas") or 0
    found += [
        field_errors.invalid(f"status.{name}", status.get(name) or 0, "cannot be greater than status.replicas")
        for name in counts
        if name != "unavailableReplicas" and (status.get(name) or 0) > total
    ]
    if available > (status.get("readyReplicas") or 0):
        text = "cannot be greater than status.readyReplicas"
        found.append(field_errors.invalid("status.availableReplicas", available, text))
    return found


def daemon_set_causes(obj: JSON, old: JSON | None) -> list[Cause]:
    """Why a daemon set cannot be stored."""
    spec = obj.get("spec") or {}
    found = _immutable_selector(spec, old)
    selector = spec.get("selector")
    found += selector_causes(selector, "spec.selector")
    labels = _template_labels(spec)
    try:
        matching = Selector.from_wire(selector).matches(labels)
    except FormatError:
        matching = True  # already reported
    if not matching:
        found.append(field_errors.invalid("spec.template.metadata.labels", labels or None, _NOT_MATCHING))
    if selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions"):
        found.append(field_errors.invalid("spec.selector", selector, "empty selector is invalid for daemonset"))
    found += pod_template_causes(spec.get("template") or {}, "spec.template")
    found += _always_restarted(spec, "DaemonSet")
    found += _nonnegative(spec, "spec", "minReadySeconds")
    strategy = spec.get("updateStrategy") or {}
    kinds = builtin_enum("apps.v1.DaemonSetUpdateStrategy", "type")
    if strategy.get("type", kinds[0]) not in kinds:
        found.append(field_errors.not_supported("spec.updateStrategy", strategy["type"], kinds))
    if (rolling := strategy.get("rollingUpdate")) is not None:
        found += _rolling_daemon_causes(rolling, "spec.updateStrategy.rollingUpdate")
    return found + _nonnegative(spec, "spec", "revisionHistoryLimit")


def _rolling_daemon_causes(rolling: JSON, path: str) -> list[Cause]:
    """Either some pods may be missing or some may be too many, not both and not neither."""
    unavailable, surge = rolling.get("maxUnavailable", 1), rolling.get("maxSurge", 0)
    found: list[Cause] = []
    for field, value in (("maxUnavailable", unavailable), ("maxSurge", surge)):
        found += percent_causes(value, f"{path}.{field}") + at_most_all(value, f"{path}.{field}")
    if _amount(unavailable) and _amount(surge):
        found.append(field_errors.invalid(f"{path}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    elif not _amount(unavailable) and not _amount(surge):
        found.append(field_errors.required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return found


def stateful_set_causes(obj: JSON, old: JSON | None) -> list[Cause]:
    """Why a stateful set cannot be stored."""
    spec = obj.get("spec") or {}
    found: list[Cause] = []
    policy = spec.get("podManagementPolicy")
    if policy and policy not in (allowed := builtin_enum("apps.v1.StatefulSetSpec", "podManagementPolicy")):
        found.append(field_errors.invalid("spec.podManagementPolicy", policy, f"must be {' or '.join(allowed)}"))
    found += _nonnegative(spec, "spec", "replicas", "minReadySeconds")
    found += _nonnegative(spec.get("ordinals") or {}, "spec.ordinals", "start")
    found += _set_strategy_causes(spec.get("updateStrategy") or {}, "spec.updateStrategy")
    for field, value in (spec.get("persistentVolumeClaimRetentionPolicy") or {}).items():
        if value not in _RETENTION:
            where = f"spec.persistentVolumeClaimRetentionPolicy.{field}"
            found.append(field_errors.not_supported(where, value, _RETENTION))
    if old is None and (service := spec.get("serviceName")):
        found += [field_errors.invalid("spec.serviceName", service, text) for text in is_dns1123_label(service)]
    claims = [claim.get("metadata", {}).get("name", "") for claim in spec.get("volumeClaimTemplates") or ()]
    template = spec.get("template") or {}
    pod = dict(template.get("spec") or {})
    pod.pop("hostname", None)
    pod.pop("subdomain", None)
    if claims:
        own = [volume for volume in pod.get("volumes") or () if volume.get("name") not in claims]
        pod["volumes"] = [*({"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims), *own]
    found += _owned_template({**spec, "template": {**template, "spec": pod}}, "statefulset")
    if old is not None:
        changed = {key for key in spec.keys() | old["spec"].keys() if spec.get(key) != old["spec"].get(key)}
        if changed - set(_STATEFUL_SET_MUTABLE):
            listed = ", ".join(_STATEFUL_SET_MUTABLE)
            found.append(field_errors.forbidden("spec", f"updates may only change {listed}"))
    return found


def _set_strategy_causes(strategy: JSON, path: str) -> list[Cause]:
    kinds = builtin_enum("apps.v1.StatefulSetUpdateStrategy", "type")
    if strategy.get("type", kinds[0]) not in kinds:
        return [field_errors.invalid(path, strategy["type"], f"must be {' or '.join(kinds)}")]
    return _nonnegative(strategy.get("rollingUpdate") or {}, f"{path}.rollingUpdate", "partition")


def job_causes(obj: JSON, old: JSON | None) -> list[Cause]:
    """Why a job cannot be stored."""
    spec = obj.get("spec") or {}
    found = _job_spec_causes(spec, "spec")
    if spec.get("selector") is None:
        found.append(field_errors.required("spec.selector"))
    found += selector_causes(spec.get("selector"), "spec.selector")
    labels = _template_labels(spec)
    try:
        matching = Selector.from_wire(spec.get("selector")).matches(labels)
    except FormatError:
        matching = True  # already reported
    if not matching:
        found.append(field_errors.invalid("spec.template.metadata.labels", labels or None, _NOT_MATCHING))
    if old is None:
        return found
    generated = _generated_label_causes(obj["metadata"], spec, labels)
    return generated + found + _job_changes(spec, old["spec"])


def _generated_label_causes(metadata: JSON, spec: JSON, labels: JSON) -> list[Cause]:
    """The pods of a job carry its uid and name, unless it brings its own selector."""
    if spec.get("manualSelector") or spec.get("selector") is None:
        return []
    uid, name = metadata["uid"], metadata["name"]
    expected = {
        "controller-uid": uid,
        "job-name": name,
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
    }
    return [
        field_errors.required(f"spec.template.metadata.labels[{key}]", f"must be '{value}'")
        for key, value in expected.items()
        if key not in labels
    ]


def _job_spec_causes(spec: JSON, path: str) -> list[Cause]:
    found = _nonnegative(spec, path, *_JOB_COUNTS)
    found += field_errors.enum_causes(spec, "batch.v1.JobSpec", path, "podReplacementPolicy")
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        found.append(field_errors.required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    mode = spec.get("completionMode")
    found += field_errors.enum_causes(spec, "batch.v1.JobSpec", path, "completionMode")
    if mode == "Indexed" and spec.get("completions") is None:
        found.append(field_errors.required(f"{path}.completions", "when completion mode is Indexed"))
    found += pod_template_causes(spec.get("template") or {}, f"{path}.template")
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy", "Always")
    field = f"{path}.template.spec.restartPolicy"
    if policy in {"", "Always"}:
        found.append(field_errors.required(field, 'valid values: "OnFailure", "Never"'))
    elif policy not in {"OnFailure", "Never"}:
        found.append(field_errors.not_supported(field, policy, ("OnFailure", "Never")))
    return found


def _job_changes(spec: JSON, old: JSON) -> list[Cause]:
    found: list[Cause] = []
    if spec.get("completions") != old.get("completions") and spec.get("completionMode") != "Indexed":
        found.append(field_errors.invalid("spec.completions", spec.get("completions"), "field is immutable"))
    found += _immutable_selector(spec, {"spec": old})
    if spec.get("template") != old.get("template") and not old.get("suspend"):
        found.append(field_errors.invalid("spec.template", spec.get("template"), "field is immutable"))
    fixed = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
    return found + [
        field_errors.invalid(f"spec.{field}", spec.get(field), "field is immutable")
        for field in fixed
        if spec.get(field) != old.get(field)
    ]


def cron_job_causes(obj: JSON, old: JSON | None) -> list[Cause]:
    """Why a cron job cannot be stored."""
    spec, before = obj.get("spec") or {}, (old or {}).get("spec") or {}
    found: list[Cause] = []
    schedule, zone = spec.get("schedule", ""), spec.get("timeZone")
    if not schedule:
        found.append(field_errors.required("spec.schedule"))
    else:
        found += _schedule_causes(schedule, zone, allow_zone="TZ" in before.get("schedule", ""))
    found += _nonnegative(spec, "spec", "startingDeadlineSeconds")
    if zone is not None and (old is None or before.get("timeZone") != zone):
        found += _zone_causes(zone)
    found += field_errors.enum_causes(spec, "batch.v1.CronJobSpec", "spec", "concurrencyPolicy")
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    found += _job_spec_causes(job, "spec.jobTemplate.spec")
    if job.get("selector") is not None:
        text = "`selector` will be auto-generated"
        found.append(field_errors.invalid("spec.jobTemplate.spec.selector", job["selector"], text))
    found += _nonnegative(spec, "spec", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    name = obj["metadata"].get("name", "")
    if old is None and len(name) > 52:
        found.append(field_errors.invalid("metadata.name", name, "must be no more than 52 characters"))
    return found


def _schedule_causes(schedule: str, zone: str | None, *, allow_zone: bool) -> list[Cause]:
    found: list[Cause] = []
    if problem := schedule_problem(schedule):
        found.append(field_errors.invalid("spec.schedule", schedule, problem))
    if "TZ" in schedule:
        if not allow_zone:
            text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            found.append(field_errors.invalid("spec.schedule", schedule, text))
        elif zone is not None:
            text = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
            found.append(field_errors.invalid("spec.schedule", schedule, text))
    return found


def schedule_problem(text: str) -> str:
    """Why `text` is not a schedule of a CronJob, empty when it is one.

    cronsim reads more than the API server does: 7 for Sunday, `L` and `#`. And it refuses days that no month has,
    which the API server accepts.
    """
    if text.startswith(("TZ=", "CRON_TZ=")):
        text = text.partition(" ")[2].strip()
    if text.startswith("@every "):
        try:
            parse_go_duration(text.removeprefix("@every "))
        except FormatError as error:
            return str(error)
        return ""
    if text.startswith("@"):
        return "" if text in _DESCRIPTORS else f"unknown descriptor {text} (known: {', '.join(_DESCRIPTORS)})"
    fields = text.replace("?", "*").split()
    if len(fields) != 5:
        return f"expected 5 fields, found {len(fields)}"
    minute, hour, day, month, weekday = fields
    if "L" in day.upper() or re.search(r"#|L|(?<!/)\b7\b", weekday.upper()):
        return "days are numbers from 1 to 31, weekdays names or numbers from 0 to 6"
    try:
        CronSim(f"{minute} {hour} * {month} {weekday}", _EPOCH)
        CronSim(f"0 0 {day} * *", _EPOCH)
    except CronSimError as error:
        return str(error)
    return ""


def _zone_causes(zone: str) -> list[Cause]:
    field = "spec.timeZone"
    if not zone:
        return [field_errors.invalid(field, zone, "timeZone must be nil or non-empty string")]
    parts = zone.split("/")
    unknown = field_errors.invalid(field, zone, f"unknown time zone {zone}")
    if any(part in {".", ".."} or part.startswith("-") or not _ZONE_PART.fullmatch(part) for part in parts):
        return [unknown]
    if zone.lower() == "local":
        text = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        return [field_errors.invalid(field, zone, text)]
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return [unknown]
    return []
