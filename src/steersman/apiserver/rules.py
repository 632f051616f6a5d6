"""The rules of built-in kinds beyond their types: what people get wrong, and what may not change.

One row per kind in `RULES`. A kind without a row has no rules here: its metadata and its type are all that is checked.
The real server knows more rules than these; an object that passes here may still be refused there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver import causes, policyrules, servicerules, workloadrules
from steersman.apiserver.causes import Cause, go_json
from steersman.apiserver.crds import validate_definition
from steersman.apiserver.metadata import validate_meta
from steersman.apiserver.names import is_config_key
from steersman.apiserver.podrules import pod_causes, pod_template_causes, pod_update_causes

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.apiserver.kinds import ResourceInfo

__all__ = ["kind_causes"]

JSON = dict[str, Any]

MAX_SECRET_SIZE = 1024 * 1024
_FROZEN = "field is immutable when `immutable` is set"
_IMMUTABLE = "field is immutable"
# Updates of these check the whole metadata once more, as if the object were new.
_CHECKED_TWICE = frozenset(("configmaps", "jobs.batch", "pods", "secrets", "serviceaccounts"))


def kind_causes(info: ResourceInfo, obj: JSON, old: JSON | None, *, subresource: str = "") -> list[Cause]:
    """Why an object of a built-in kind cannot be stored, beside its metadata. Defaults are filled in."""
    if subresource == "status":
        return _status(info, obj)
    if info.custom is not None or subresource:
        return []
    rule = RULES.get(info.storage.qualified)
    found = rule(obj, old) if rule is not None else []
    if old is not None and info.kind.qualified in _CHECKED_TWICE:
        found = [*found, *validate_meta(info, obj)]
    return found


# The counts in the status of a workload, and how the server calls the ready ones in one sentence.
_COUNTS = {
    "deployments.apps": (
        ("updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"),
        "readyReplicas",
    ),
    "replicasets.apps": (("fullyLabeledReplicas", "readyReplicas", "availableReplicas"), "readyReplicas"),
    "statefulsets.apps": (
        ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"),
        "status.readyReplicas",
    ),
}


def _status(info: ResourceInfo, obj: JSON) -> list[Cause]:
    if info.kind.qualified not in _COUNTS:
        return []
    counts, ready_text = _COUNTS[info.kind.qualified]
    return workloadrules.status_causes(obj.get("status") or {}, counts, ready_text=ready_text)


def _frozen_causes(obj: JSON, old: JSON | None, *fields: str) -> list[Cause]:
    """What an immutable ConfigMap or Secret may not change."""
    if old is None or not old.get("immutable"):
        return []
    found = [] if obj.get("immutable") else [causes.forbidden("immutable", _FROZEN)]
    return found + [causes.forbidden(key, _FROZEN) for key in fields if (obj.get(key) or {}) != (old.get(key) or {})]


def _decoded_size(value: str) -> int:
    return len(value) * 3 // 4 - value[-2:].count("=") if value else 0


def _config_map(obj: JSON, old: JSON | None) -> list[Cause]:
    found = _frozen_causes(obj, old, "data", "binaryData")
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    for key in data:
        found += [causes.invalid(f"data[{key}]", key, text) for text in is_config_key(key)]
        if key in binary:
            found.append(causes.invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
    for key in binary:
        found += [causes.invalid(f"binaryData[{key}]", key, text) for text in is_config_key(key)]
    size = sum(len((value or "").encode()) for value in data.values()) + sum(map(_decoded_size, binary.values()))
    if size > MAX_SECRET_SIZE:
        found.append(causes.too_long("[]", MAX_SECRET_SIZE))
    return found


_SECRET_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"


def _secret(obj: JSON, old: JSON | None) -> list[Cause]:
    """Values of secrets never appear in a cause."""
    kind, data = obj.get("type", ""), obj.get("data") or {}
    found: list[Cause] = []
    if old is not None and kind != old.get("type", ""):
        found.append(causes.invalid("type", kind, _IMMUTABLE))
    found += _frozen_causes(obj, old, "data")
    for key in data:
        found += [causes.invalid(f"data[{key}]", key, text) for text in is_config_key(key)]
    if sum(_decoded_size(value or "") for value in data.values()) > MAX_SECRET_SIZE:
        found.append(causes.too_long("data", MAX_SECRET_SIZE))
    found += [causes.required(f"data[{key}]") for key in _SECRET_KEYS.get(kind, ()) if not _has(data, key, kind)]
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        found += [causes.required("data[username]"), causes.required("data[password]")]
    if kind == "kubernetes.io/service-account-token":
        annotations = obj["metadata"].get("annotations") or {}
        if not annotations.get(_SERVICE_ACCOUNT_NAME):
            found.append(causes.required(f"metadata.annotations[{_SERVICE_ACCOUNT_NAME}]"))
    return found


def _has(data: JSON, key: str, kind: str) -> bool:
    return bool(data.get(key)) if kind == "kubernetes.io/ssh-auth" else key in data


def _pod(obj: JSON, old: JSON | None) -> list[Cause]:
    return pod_causes(obj) + (pod_update_causes(obj, old) if old is not None else [])


def _pod_template(obj: JSON, _old: JSON | None) -> list[Cause]:
    return pod_template_causes(obj.get("template") or {}, "template")


def _lease(obj: JSON, _old: JSON | None) -> list[Cause]:
    spec = obj.get("spec") or {}
    found: list[Cause] = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        found.append(causes.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        found.append(causes.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return found


def _budget(obj: JSON, _old: JSON | None) -> list[Cause]:
    spec = obj.get("spec") or {}
    found: list[Cause] = []
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if least is not None and most is not None:
        shown = {
            "MinAvailable": least,
            "Selector": spec.get("selector"),
            "MaxUnavailable": most,
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        text = "{" + ",".join(f'"{key}":{go_json(value)}' for key, value in shown.items()) + "}"
        both = "minAvailable and maxUnavailable cannot be both set"
        found.append(Cause("FieldValueInvalid", f"Invalid value: {text}: {both}", "spec"))
    for field, value in (("minAvailable", least), ("maxUnavailable", most)):
        if value is not None:
            found += workloadrules.percent_causes(value, f"spec.{field}")
            found += workloadrules.at_most_all(value, f"spec.{field}")
    found += workloadrules.selector_causes(spec.get("selector"), "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy and policy not in {"AlwaysAllow", "IfHealthyBudget"}:
        allowed = ("AlwaysAllow", "IfHealthyBudget")
        found.append(causes.not_supported("spec.unhealthyPodEvictionPolicy", policy, allowed))
    return found


def _binding(obj: JSON, old: JSON | None) -> list[Cause]:
    """A binding always binds the same role."""
    role = obj.get("roleRef") or {}
    found: list[Cause] = []
    if role.get("apiGroup", "rbac.authorization.k8s.io") != "rbac.authorization.k8s.io":
        allowed = ("rbac.authorization.k8s.io",)
        found.append(causes.not_supported("roleRef.apiGroup", role["apiGroup"], allowed))
    kinds = ("ClusterRole",) if obj.get("kind") == "ClusterRoleBinding" else ("Role", "ClusterRole")
    if role.get("kind") not in kinds:
        found.append(causes.not_supported("roleRef.kind", role.get("kind", ""), kinds))
    if not role.get("name"):
        found.append(causes.required("roleRef.name"))
    if old is not None and role != old.get("roleRef"):
        order = ("apiGroup", "kind", "name")
        shown = "{" + ",".join(f'"{key[:1].upper()}{key[1:]}":{go_json(role.get(key, ""))}' for key in order) + "}"
        shown = shown.replace('"ApiGroup"', '"APIGroup"')
        found.append(Cause("FieldValueInvalid", f"Invalid value: {shown}: cannot change roleRef", "roleRef"))
    return found


def _priority_class(obj: JSON, old: JSON | None) -> list[Cause]:
    if old is None or obj.get("value", 0) == old.get("value", 0):
        return []
    return [causes.forbidden("value", "may not be changed in an update.")]


def _controller_revision(obj: JSON, old: JSON | None) -> list[Cause]:
    found: list[Cause] = []
    if obj.get("revision", 0) < 0:
        found.append(causes.invalid("revision", obj["revision"], "must be greater than or equal to 0"))
    if old is not None and obj.get("data") != old.get("data"):
        found.append(causes.invalid("data", obj.get("data"), _IMMUTABLE))
    return found


RULES: dict[str, Callable[[JSON, JSON | None], list[Cause]]] = {
    "clusterrolebindings.rbac.authorization.k8s.io": _binding,
    "clusterroles.rbac.authorization.k8s.io": policyrules.role_causes,
    "configmaps": _config_map,
    "controllerrevisions.apps": _controller_revision,
    "cronjobs.batch": workloadrules.cron_job_causes,
    "customresourcedefinitions.apiextensions.k8s.io": validate_definition,
    "daemonsets.apps": workloadrules.daemon_set_causes,
    "deployments.apps": workloadrules.deployment_causes,
    "horizontalpodautoscalers.autoscaling": policyrules.autoscaler_causes,
    "ingresses.networking.k8s.io": policyrules.ingress_causes,
    "jobs.batch": workloadrules.job_causes,
    "leases.coordination.k8s.io": _lease,
    "poddisruptionbudgets.policy": _budget,
    "pods": _pod,
    "podtemplates": _pod_template,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "replicasets.apps": workloadrules.replica_set_causes,
    "rolebindings.rbac.authorization.k8s.io": _binding,
    "roles.rbac.authorization.k8s.io": policyrules.role_causes,
    "secrets": _secret,
    "services": servicerules.service_causes,
    "statefulsets.apps": workloadrules.stateful_set_causes,
}
