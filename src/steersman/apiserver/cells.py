"""What `kubectl get` shows of the built-in kinds: one function per kind, from an object to the cells of its row.

Cells follow the columns recorded from the real server, the wide ones included; kubectl decides which it prints. An age
is the time since a moment, in the two largest units that matter. Kinds without a function here show their name and
when they were created. Pods are in `podcells.py`, the rest of the table in `table.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver import networkcells, workloadcells
from steersman.apiserver.celltext import (
    NONE,
    UNKNOWN,
    UNSET,
    Cells,
    age,
    age_of,
    containers,
    default_marked,
    labels,
    limited,
    name_of,
    spec_of,
    status_of,
)
from steersman.apiserver.podcells import pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["CELLS"]

JSON = dict[str, Any]


def _plain(*paths: str) -> Callable[[JSON, float], Cells]:
    """Name, some fields, age. A path of a missing field shows an empty text."""

    def cells(obj: JSON, now: float) -> Cells:
        found: Cells = []
        for path in paths:
            value: Any = obj
            for part in path.split("."):
                value = (value or {}).get(part)
            found.append("" if value is None else value)
        return [name_of(obj), *found, age_of(obj, now)]

    return cells


def _counted(*paths: str) -> Callable[[JSON, float], Cells]:
    """Name, how many entries some fields have together, age."""

    def cells(obj: JSON, now: float) -> Cells:
        return [name_of(obj), sum(len(obj.get(path) or ()) for path in paths), age_of(obj, now)]

    return cells


def _secret(obj: JSON, now: float) -> Cells:
    return [name_of(obj), obj.get("type", ""), len(obj.get("data") or ()), age_of(obj, now)]


def _storage_class(obj: JSON, now: float) -> Cells:
    keys = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
    return [
        default_marked(obj, *keys),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        bool(obj.get("allowVolumeExpansion")),
        age_of(obj, now),
    ]


_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(modes: Iterable[str] | None) -> str:
    given = set(modes or ())
    return ",".join(short for mode, short in _MODES.items() if mode in given)


def _class(obj: JSON) -> str:
    annotation = (obj["metadata"].get("annotations") or {}).get("volume.beta.kubernetes.io/storage-class")
    return annotation if annotation is not None else spec_of(obj).get("storageClassName") or ""


def _phase(obj: JSON) -> str:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else status_of(obj).get("phase", "")


def _volume(obj: JSON, now: float) -> Cells:
    spec = spec_of(obj)
    claim = spec.get("claimRef")
    bound = f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""
    return [
        name_of(obj),
        (spec.get("capacity") or {}).get("storage", "0"),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(obj),
        bound,
        _class(obj),
        spec.get("volumeAttributesClassName") or UNSET,
        status_of(obj).get("reason", ""),
        age_of(obj, now),
        spec.get("volumeMode") or UNSET,
    ]


def _claim(obj: JSON, now: float) -> Cells:
    spec, status = spec_of(obj), status_of(obj)
    volume = spec.get("volumeName", "")
    capacity = (status.get("capacity") or {}).get("storage", "0") if volume else ""
    modes = _modes(status.get("accessModes")) if volume else ""
    attributes = spec.get("volumeAttributesClassName") or UNSET
    head = [name_of(obj), _phase(obj), volume, capacity, modes, _class(obj), attributes]
    return [*head, age_of(obj, now), spec.get("volumeMode") or UNSET]


def _node(obj: JSON, now: float) -> Cells:
    status = status_of(obj)
    ready = [item for item in status.get("conditions") or () if item.get("type") == "Ready"]
    states = ["Ready" if ready[-1].get("status") == "True" else "NotReady"] if ready else ["Unknown"]
    if spec_of(obj).get("unschedulable"):
        states.append("SchedulingDisabled")
    marks = obj["metadata"].get("labels") or {}
    prefix = "node-role.kubernetes.io/"
    roles = {key.removeprefix(prefix) for key in marks if key.startswith(prefix)} | {
        marks.get("kubernetes.io/role", "")
    }
    info = status.get("nodeInfo") or {}
    kernel = info.get("kernelVersion") or UNKNOWN
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    wide = [_address(status, "InternalIP"), _address(status, "ExternalIP"), info.get("osImage") or UNKNOWN, kernel]
    shown = ",".join(sorted(roles - {""})) or NONE
    head = [name_of(obj), ",".join(states), shown, age_of(obj, now), info.get("kubeletVersion", "")]
    return [*head, *wide, info.get("containerRuntimeVersion") or UNKNOWN]


def _address(status: JSON, kind: str) -> str:
    addresses = status.get("addresses") or []
    return next((item.get("address", "") for item in addresses if item.get("type") == kind), NONE)


def _event(obj: JSON, now: float) -> Cells:
    about, source = obj.get("involvedObject") or {}, obj.get("source") or {}
    first = age(obj.get("firstTimestamp") or obj.get("eventTime"), now)
    last = age(obj["lastTimestamp"], now) if obj.get("lastTimestamp") else first
    count = obj.get("count") or 1
    if series := obj.get("series"):
        last = age(series.get("lastObservedTime"), now)
        count = series.get("count", 0)
    kind = about.get("kind", "").lower()
    target = f"{kind}/{about['name']}" if about.get("name") else kind
    component = source.get("component") or obj.get("reportingComponent") or ""
    host = source.get("host") or obj.get("reportingInstance") or ""
    origin = f"{component}, {host}" if host else component
    head = [last, obj.get("type", ""), obj.get("reason", ""), target, about.get("fieldPath", ""), origin]
    return [*head, obj.get("message", "").strip(), first, count, name_of(obj)]


def _binding(obj: JSON, now: float) -> Cells:
    role = obj.get("roleRef") or {}
    subjects = obj.get("subjects") or []

    def named(kind: str) -> str:
        found = [subject for subject in subjects if subject.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{subject.get('namespace', '')}/{subject['name']}" for subject in found)
        return ", ".join(subject["name"] for subject in found)

    head = [name_of(obj), f"{role.get('kind', '')}/{role.get('name', '')}", age_of(obj, now)]
    return [*head, named("User"), named("Group"), named("ServiceAccount")]


def _pod_template(obj: JSON, _now: float) -> Cells:
    template = obj.get("template") or {}
    return [name_of(obj), *containers(template.get("spec")), labels((template.get("metadata") or {}).get("labels"))]


def _budget(obj: JSON, now: float) -> Cells:
    spec = spec_of(obj)
    limits = [str(spec[key]) if spec.get(key) is not None else "N/A" for key in ("minAvailable", "maxUnavailable")]
    return [name_of(obj), *limits, status_of(obj).get("disruptionsAllowed", 0), age_of(obj, now)]


def _revision(obj: JSON, now: float) -> Cells:
    owners = obj["metadata"].get("ownerReferences") or []
    owner = next((item for item in owners if item.get("controller")), None)
    controller = NONE
    if owner:
        group = owner["apiVersion"].rpartition("/")[0]
        controller = f"{owner['kind']}.{group}".strip(".").lower() + f"/{owner['name']}"
    return [name_of(obj), controller, obj.get("revision", 0), age_of(obj, now)]


def _quota(obj: JSON, now: float) -> Cells:
    hard, used = status_of(obj).get("hard") or {}, status_of(obj).get("used") or {}
    lines = {name: f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)}
    limits = {name for name in lines if name.startswith("limits.")}
    requested = ", ".join(line for name, line in lines.items() if name not in limits)
    return [name_of(obj), requested, ", ".join(lines[name] for name in sorted(limits)), age_of(obj, now)]


def _api_service(obj: JSON, now: float) -> Cells:
    service = spec_of(obj).get("service")
    found = [item for item in status_of(obj).get("conditions") or () if item.get("type") == "Available"]
    state = found[0].get("status", "") if found else "Unknown"
    if found and state != "True":
        state = f"{state} ({found[0].get('reason', '')})"
    where = f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"
    return [name_of(obj), where, state, age_of(obj, now)]


def _priority_class(obj: JSON, now: float) -> Cells:
    head = [name_of(obj), obj.get("value", 0), bool(obj.get("globalDefault"))]
    return [*head, age_of(obj, now), obj.get("preemptionPolicy", "")]


def _autoscaler(obj: JSON, now: float) -> Cells:
    spec = spec_of(obj)
    target = spec.get("scaleTargetRef") or {}
    least = str(spec["minReplicas"]) if spec.get("minReplicas") is not None else UNSET
    current = status_of(obj).get("currentMetrics") or []
    metrics = [
        _metric(wanted, current[at] if at < len(current) else {}) for at, wanted in enumerate(spec.get("metrics") or ())
    ]
    counts = [least, spec.get("maxReplicas", 0), status_of(obj).get("currentReplicas", 0)]
    reference = f"{target.get('kind', '')}/{target.get('name', '')}"
    return [name_of(obj), reference, limited(metrics, 2, ", ") or NONE, *counts, age_of(obj, now)]


_METRICS = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}


def _metric(wanted: JSON, current: JSON) -> str:
    """What one metric of an autoscaler is, and what it should be."""
    source = _METRICS.get(wanted.get("type", ""))
    if source is None:
        return "<unknown type>"
    metric, target = wanted.get(source) or {}, (wanted.get(source) or {}).get("target") or {}
    measured = (current.get(source) or {}).get("current") or {}
    if source in {"resource", "containerResource"}:
        if target.get("averageValue") is not None:
            return f"{metric.get('name', '')}: {measured.get('averageValue', UNKNOWN)}/{target['averageValue']}"
        share = measured.get("averageUtilization")
        aim = target.get("averageUtilization")
        have, want = UNKNOWN if share is None else f"{share}%", "<auto>" if aim is None else f"{aim}%"
        return f"{metric.get('name', '')}: {have}/{want}"
    if target.get("averageValue") is not None:
        average = " (avg)" if source != "pods" else ""
        return f"{measured.get('averageValue', UNKNOWN)}/{target['averageValue']}{average}"
    return f"{measured.get('value', UNKNOWN)}/{target.get('value', '')}"


CELLS: dict[str, Callable[[JSON, float], Cells]] = {
    "apiservices.apiregistration.k8s.io": _api_service,
    "configmaps": _counted("data", "binaryData"),
    "controllerrevisions.apps": _revision,
    "clusterrolebindings.rbac.authorization.k8s.io": _binding,
    "cronjobs.batch": workloadcells.cron_job,
    "daemonsets.apps": workloadcells.daemon_set,
    "deployments.apps": workloadcells.deployment,
    "endpoints": networkcells.endpoints,
    "endpointslices.discovery.k8s.io": networkcells.endpoint_slice,
    "events": _event,
    "horizontalpodautoscalers.autoscaling": _autoscaler,
    "ingressclasses.networking.k8s.io": networkcells.ingress_class,
    "ingresses.networking.k8s.io": networkcells.ingress,
    "jobs.batch": workloadcells.job,
    "leases.coordination.k8s.io": _plain("spec.holderIdentity"),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _counted("webhooks"),
    "namespaces": _plain("status.phase"),
    "networkpolicies.networking.k8s.io": networkcells.network_policy,
    "nodes": _node,
    "persistentvolumeclaims": _claim,
    "persistentvolumes": _volume,
    "poddisruptionbudgets.policy": _budget,
    "pods": pod,
    "podtemplates": _pod_template,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "replicasets.apps": workloadcells.replica_set,
    "replicationcontrollers": workloadcells.replication_controller,
    "resourcequotas": _quota,
    "rolebindings.rbac.authorization.k8s.io": _binding,
    "runtimeclasses.node.k8s.io": _plain("handler"),
    "secrets": _secret,
    "serviceaccounts": _plain(),
    "services": networkcells.service,
    "statefulsets.apps": workloadcells.stateful_set,
    "storageclasses.storage.k8s.io": _storage_class,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _counted("webhooks"),
}
