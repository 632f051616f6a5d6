"""The rules of workloads: selectors that match their templates, numbers that make sense, what may not change.

A selector decides which pods a workload owns, so it must match the pods it makes and never changes afterwards.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from steersman.apiserver import causes
from steersman.apiserver.causes import Cause, go_json
from steersman.apiserver.metadata import label_causes
from steersman.apiserver.names import is_dns1123_label, regex_text
from steersman.apiserver.podrules import pod_template_causes
from steersman.apiserver.schedules import ScheduleError, check_schedule
from steersman.errors import FormatError
from steersman.kube.names import label_key_errors, label_value_errors
from steersman.kube.selectors import Selector

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "at_most_all",
    "cron_job_causes",
    "daemon_set_causes",
    "deployment_causes",
    "job_causes",
    "percent_causes",
    "replica_set_causes",
    "selector_causes",
    "stateful_set_causes",
    "status_causes",
]

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
_NOT_MATCHING = "`selector` does not match template `labels`"
_NEGATIVE = "must be greater than or equal to 0"


def _nonnegative(spec: JSON, path: str, *fields: str) -> list[Cause]:
    return [
        causes.invalid(f"{path}.{field}", value, _NEGATIVE)
        for field in fields
        if (value := spec.get(field)) is not None and value < 0
    ]


def _selector_json(selector: JSON) -> str:
    """A selector as the server prints its type: labels first."""
    order = ("matchLabels", "matchExpressions")
    return "{" + ",".join(f'"{key}":{go_json(selector[key])}' for key in order if selector.get(key)) + "}"


def _invalid_selector(field: str, selector: JSON | None, text: str) -> Cause:
    shown = "null" if selector is None else _selector_json(selector)
    return Cause("FieldValueInvalid", f"Invalid value: {shown}: {text}", field)


def selector_causes(selector: JSON | None, path: str) -> list[Cause]:
    """Why a label selector cannot be used."""
    found = label_causes((selector or {}).get("matchLabels"), f"{path}.matchLabels")
    for at, expression in enumerate((selector or {}).get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{at}]"
        operator, values = expression.get("operator", ""), expression.get("values") or []
        if operator in {"In", "NotIn"}:
            if not values:
                found.append(causes.required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in {"Exists", "DoesNotExist"}:
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                found.append(causes.forbidden(f"{where}.values", text))
        else:
            found.append(causes.invalid(f"{where}.operator", operator, "not a valid selector operator"))
        key = expression.get("key", "")
        found += [causes.invalid(f"{where}.key", key, text) for text in label_key_errors(key)]
        for index, value in enumerate(values):
            found += [causes.invalid(f"{where}.values[{index}]", value, text) for text in label_value_errors(value)]
    return found


def _template_labels(spec: JSON) -> JSON:
    metadata: JSON = (spec.get("template") or {}).get("metadata") or {}
    return metadata.get("labels") or {}


def _owned_template(spec: JSON, kind: str) -> Iterator[Cause]:
    """The selector, and that it matches the template."""
    selector = spec.get("selector")
    if selector is None:
        yield causes.required("spec.selector")
    else:
        yield from selector_causes(selector, "spec.selector")
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            yield _invalid_selector("spec.selector", selector, f"empty selector is invalid for {kind}")
    try:
        parsed = Selector.from_wire(selector)
    except FormatError:
        yield _invalid_selector("spec.selector", selector or {}, "invalid label selector")
        return
    labels = _template_labels(spec)
    if not parsed.empty and not parsed.matches(labels):
        yield causes.invalid("spec.template.metadata.labels", labels or None, _NOT_MATCHING)
    yield from pod_template_causes(spec.get("template") or {}, "spec.template")
    yield from _always_restarted(spec, "ReplicaSet")


def _always_restarted(spec: JSON, kind: str) -> Iterator[Cause]:
    pod = (spec.get("template") or {}).get("spec") or {}
    if pod.get("restartPolicy", "Always") != "Always":
        yield causes.not_supported("spec.template.spec.restartPolicy", pod["restartPolicy"], ("Always",))
    if pod.get("activeDeadlineSeconds") is not None:
        text = f"activeDeadlineSeconds in {kind} is not Supported"
        yield causes.forbidden("spec.template.spec.activeDeadlineSeconds", text)


def _immutable_selector(spec: JSON, old: JSON | None) -> list[Cause]:
    if old is None or spec.get("selector") == old["spec"].get("selector"):
        return []
    return [_invalid_selector("spec.selector", spec.get("selector"), "field is immutable")]


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
        found.append(causes.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return found + _immutable_selector(spec, old)


def _strategy_causes(strategy: JSON, path: str) -> list[Cause]:
    kind, rolling = strategy.get("type", "RollingUpdate"), strategy.get("rollingUpdate")
    if kind == "Recreate":
        text = "may not be specified when strategy `type` is 'Recreate'"
        return [causes.forbidden(f"{path}.rollingUpdate", text)] if rolling is not None else []
    if kind != "RollingUpdate":
        shown = f'{{"Type":{go_json(kind)},"RollingUpdate":{"null" if rolling is None else go_json(rolling)}}}'
        text = f'Unsupported value: {shown}: supported values: "Recreate", "RollingUpdate"'
        return [Cause("FieldValueNotSupported", text, path)]
    unavailable, surge = (rolling or {}).get("maxUnavailable", "25%"), (rolling or {}).get("maxSurge", "25%")
    where = f"{path}.rollingUpdate"
    found = percent_causes(unavailable, f"{where}.maxUnavailable") + percent_causes(surge, f"{where}.maxSurge")
    if _amount(unavailable) == 0 and _amount(surge) == 0:
        found.append(causes.invalid(f"{where}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    return found + at_most_all(unavailable, f"{where}.maxUnavailable")


def percent_causes(value: Any, field: str) -> list[Cause]:
    """A count or a percentage."""
    if isinstance(value, str):
        if _PERCENT.fullmatch(value):
            return []
        words = "a valid percent string must be a numeric string followed by an ending '%'"
        return [causes.invalid(field, value, regex_text(words, "[0-9]+%", "1%", "93%"))]
    return [causes.invalid(field, value, _NEGATIVE)] if value < 0 else []


def _amount(value: Any) -> int:
    if isinstance(value, str):
        return int(value[:-1]) if _PERCENT.fullmatch(value) else 0
    return int(value)


def at_most_all(value: Any, field: str) -> list[Cause]:
    """A percentage of something is at most all of it."""
    if isinstance(value, str) and _amount(value) > 100:
        return [causes.invalid(field, value, "must not be greater than 100%")]
    return []


def status_causes(status: JSON, counts: tuple[str, ...], *, ready_text: str) -> list[Cause]:
    """Why the status of a workload cannot be stored: no part is larger than the whole."""
    found = _nonnegative(status, "status", "observedGeneration", "replicas", *counts, "collisionCount")
    total, available = status.get("replicas") or 0, status.get("availableReplicas") or 0
    found += [
        causes.invalid(f"status.{name}", status.get(name) or 0, "cannot be greater than status.replicas")
        for name in counts
        if name != "unavailableReplicas" and (status.get(name) or 0) > total
    ]
    if available > (status.get("readyReplicas") or 0):
        found.append(causes.invalid("status.availableReplicas", available, f"cannot be greater than {ready_text}"))
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
        found.append(causes.invalid("spec.template.metadata.labels", labels or None, _NOT_MATCHING))
    if selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions"):
        found.append(_invalid_selector("spec.selector", selector, "empty selector is invalid for daemonset"))
    found += pod_template_causes(spec.get("template") or {}, "spec.template")
    found += _always_restarted(spec, "DaemonSet")
    found += _nonnegative(spec, "spec", "minReadySeconds")
    if (rolling := (spec.get("updateStrategy") or {}).get("rollingUpdate")) is not None:
        found += _rolling_daemon_causes(rolling, "spec.updateStrategy.rollingUpdate")
    return found + _nonnegative(spec, "spec", "revisionHistoryLimit")


def _rolling_daemon_causes(rolling: JSON, path: str) -> list[Cause]:
    """Either some pods may be missing or some may be too many, not both and not neither."""
    unavailable, surge = rolling.get("maxUnavailable", 1), rolling.get("maxSurge", 0)
    found: list[Cause] = []
    for field, value in (("maxUnavailable", unavailable), ("maxSurge", surge)):
        found += percent_causes(value, f"{path}.{field}") + at_most_all(value, f"{path}.{field}")
    if _amount(unavailable) and _amount(surge):
        found.append(causes.invalid(f"{path}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    elif not _amount(unavailable) and not _amount(surge):
        found.append(causes.required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return found


def stateful_set_causes(obj: JSON, old: JSON | None) -> list[Cause]:
    """Why a stateful set cannot be stored."""
    spec = obj.get("spec") or {}
    found: list[Cause] = []
    policy = spec.get("podManagementPolicy")
    if policy and policy not in {"OrderedReady", "Parallel"}:
        found.append(causes.invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    found += _nonnegative(spec, "spec", "replicas", "minReadySeconds")
    if old is None and (service := spec.get("serviceName")):
        found += [causes.invalid("spec.serviceName", service, text) for text in is_dns1123_label(service)]
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
            text = (
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
                "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
                "'minReadySeconds' are forbidden"
            )
            found.append(causes.forbidden("spec", text))
    return found


def job_causes(obj: JSON, old: JSON | None) -> list[Cause]:
    """Why a job cannot be stored."""
    spec = obj.get("spec") or {}
    found = _job_spec_causes(spec, "spec")
    if spec.get("selector") is None:
        found.append(causes.required("spec.selector"))
    found += selector_causes(spec.get("selector"), "spec.selector")
    labels = _template_labels(spec)
    try:
        matching = Selector.from_wire(spec.get("selector")).matches(labels)
    except FormatError:
        matching = True  # already reported
    if not matching:
        found.append(causes.invalid("spec.template.metadata.labels", labels or None, _NOT_MATCHING))
    if old is None:
        return found
    generated = _generated_label_causes(obj["metadata"], spec, labels)
    return generated + found + found + _job_changes(spec, old["spec"])  # the real server looks twice


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
        causes.required(f"spec.template.metadata.labels[{key}]", f"must be '{value}'")
        for key, value in expected.items()
        if key not in labels
    ]


def _job_spec_causes(spec: JSON, path: str) -> list[Cause]:
    counts = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
    found = _nonnegative(spec, path, *counts)
    mode = spec.get("completionMode")
    if mode and mode not in {"NonIndexed", "Indexed"}:
        found.append(causes.not_supported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed")))
    if mode == "Indexed" and spec.get("completions") is None:
        found.append(causes.required(f"{path}.completions", "when completion mode is Indexed"))
    found += pod_template_causes(spec.get("template") or {}, f"{path}.template")
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy", "Always")
    field = f"{path}.template.spec.restartPolicy"
    if policy in {"", "Always"}:
        found.append(causes.required(field, 'valid values: "OnFailure", "Never"'))
    elif policy not in {"OnFailure", "Never"}:
        found.append(causes.not_supported(field, policy, ("OnFailure", "Never")))
    return found


def _job_changes(spec: JSON, old: JSON) -> list[Cause]:
    found: list[Cause] = []
    if spec.get("completions") != old.get("completions") and spec.get("completionMode") != "Indexed":
        found.append(causes.invalid("spec.completions", spec.get("completions"), "field is immutable"))
    found += _immutable_selector(spec, {"spec": old})
    if spec.get("template") != old.get("template") and not old.get("suspend"):
        text = f"Invalid value: {go_json(spec.get('template'))}: field is immutable"
        found.append(Cause("FieldValueInvalid", text, "spec.template"))
    fixed = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
    return found + [
        causes.invalid(f"spec.{field}", spec.get(field), "field is immutable")
        for field in fixed
        if spec.get(field) != old.get(field)
    ]


def cron_job_causes(obj: JSON, old: JSON | None) -> list[Cause]:
    """Why a cron job cannot be stored."""
    spec, before = obj.get("spec") or {}, (old or {}).get("spec") or {}
    found: list[Cause] = []
    schedule, zone = spec.get("schedule", ""), spec.get("timeZone")
    if not schedule:
        found.append(causes.required("spec.schedule"))
    else:
        found += _schedule_causes(schedule, zone, allow_zone="TZ" in before.get("schedule", ""))
    found += _nonnegative(spec, "spec", "startingDeadlineSeconds")
    if zone is not None and (old is None or before.get("timeZone") != zone):
        found += _zone_causes(zone)
    policy = spec.get("concurrencyPolicy")
    if policy and policy not in {"Allow", "Forbid", "Replace"}:
        found.append(causes.not_supported("spec.concurrencyPolicy", policy, ("Allow", "Forbid", "Replace")))
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    found += _job_spec_causes(job, "spec.jobTemplate.spec")
    if job.get("selector") is not None:
        text = "`selector` will be auto-generated"
        found.append(_invalid_selector("spec.jobTemplate.spec.selector", job["selector"], text))
    found += _nonnegative(spec, "spec", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    name = obj["metadata"].get("name", "")
    if old is None and len(name) > 52:
        found.append(causes.invalid("metadata.name", name, "must be no more than 52 characters"))
    return found


def _schedule_causes(schedule: str, zone: str | None, *, allow_zone: bool) -> list[Cause]:
    found: list[Cause] = []
    try:
        check_schedule(schedule)
    except ScheduleError as error:
        found.append(causes.invalid("spec.schedule", schedule, str(error)))
    if "TZ" in schedule:
        if not allow_zone:
            text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            found.append(causes.invalid("spec.schedule", schedule, text))
        elif zone is not None:
            text = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
            found.append(causes.invalid("spec.schedule", schedule, text))
    return found


def _zone_causes(zone: str) -> list[Cause]:
    field = "spec.timeZone"
    if not zone:
        return [causes.invalid(field, zone, "timeZone must be nil or non-empty string")]
    parts = zone.split("/")
    unknown = causes.invalid(field, zone, f"unknown time zone {zone}")
    if any(part in {".", ".."} or part.startswith("-") or not _ZONE_PART.fullmatch(part) for part in parts):
        return [unknown]
    if zone.lower() == "local":
        text = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        return [causes.invalid(field, zone, text)]
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return [unknown]
    return []
