"""What `kubectl get` shows of the built-in kinds: one function per kind, from an object to the cells of its row.

Cells follow the columns recorded from the real server, the wide ones included; kubectl decides which it prints. Kinds
without a function in `CELLS` show their name and when they were created. Pods are in `pod_cells`, how ages and labels
are written in `format`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.printing.format import (
    NONE,
    UNKNOWN,
    UNSET,
    Cells,
    age,
    age_of,
    containers,
    has_condition,
    human_duration,
    labels,
    limited,
    name_of,
    selector,
    spec_of,
    status_of,
)
from steersman.apiserver.printing.pod_cells import pod
from steersman.errors import FormatError
from steersman.kube.api.selectors import Selector
from steersman.kube.api.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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


def _budget(obj: JSON, now: float) -> Cells:
    spec = spec_of(obj)
    limits = [str(spec[key]) if spec.get(key) is not None else "N/A" for key in ("minAvailable", "maxUnavailable")]
    return [name_of(obj), *limits, status_of(obj).get("disruptionsAllowed", 0), age_of(obj, now)]


def _quota(obj: JSON, now: float) -> Cells:
    hard, used = status_of(obj).get("hard") or {}, status_of(obj).get("used") or {}
    lines = {name: f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)}
    limits = {name for name in lines if name.startswith("limits.")}
    requested = ", ".join(line for name, line in lines.items() if name not in limits)
    return [name_of(obj), requested, ", ".join(lines[name] for name in sorted(limits)), age_of(obj, now)]


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


def _metric(wanted: JSON, current: JSON) -> str:
    """What one metric of an autoscaler is, and what it should be."""
    kind = wanted.get("type", "")
    source = kind[:1].lower() + kind[1:]
    metric, target = wanted.get(source) or {}, (wanted.get(source) or {}).get("target") or {}
    measured = (current.get(source) or {}).get("current") or {}
    name = f"{metric['name']}: " if metric.get("name") else ""
    for field, unit in (("averageUtilization", "%"), ("averageValue", ""), ("value", "")):
        if target.get(field) is not None:
            have = UNKNOWN if measured.get(field) is None else f"{measured[field]}{unit}"
            return f"{name}{have}/{target[field]}{unit}"
    return f"{name}{UNKNOWN}/<auto>"


def _balancers(status: JSON) -> list[str]:
    entries = (status.get("loadBalancer") or {}).get("ingress") or []
    return sorted({entry.get("ip") or entry.get("hostname") or "" for entry in entries} - {""})


def _service(obj: JSON, now: float) -> Cells:
    spec = spec_of(obj)
    kind = spec.get("type", "")
    external = list(spec.get("externalIPs") or ())
    if kind in {"ClusterIP", "NodePort"}:
        shown = ",".join(external) or NONE
    elif kind == "LoadBalancer":
        shown = ",".join([*_balancers(status_of(obj)), *external]) or "<pending>"
    else:
        shown = spec.get("externalName", "") if kind == "ExternalName" else UNKNOWN
    internal = (spec.get("clusterIPs") or [NONE])[0]
    ports = ",".join(_service_port(port) for port in spec.get("ports") or ()) or NONE
    return [name_of(obj), kind, internal, shown, ports, age_of(obj, now), labels(spec.get("selector"))]


def _service_port(port: JSON) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort", 0) > 0 else ""
    return f"{port.get('port', 0)}{node}/{port.get('protocol', '')}"


def _endpoints(obj: JSON, now: float) -> Cells:
    found: list[str] = []
    for subset in obj.get("subsets") or ():
        addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
        ports = subset.get("ports") or []
        if not ports:
            found += addresses
        for port in ports:
            found += [f"[{ip}]:{port['port']}" if ":" in ip else f"{ip}:{port['port']}" for ip in addresses]
    shown = limited(found) if obj.get("subsets") else NONE
    return [name_of(obj), shown, age_of(obj, now)]


def _endpoint_slice(obj: JSON, now: float) -> Cells:
    ports = [str(port.get("port") or port.get("name") or "*") for port in obj.get("ports") or ()]
    addresses = [ip for endpoint in obj.get("endpoints") or () for ip in endpoint.get("addresses") or ()]
    shown = [limited(items) or UNSET for items in (ports, addresses)]
    return [name_of(obj), obj.get("addressType", ""), *shown, age_of(obj, now)]


def _ingress(obj: JSON, now: float) -> Cells:
    spec = spec_of(obj)
    rules = spec.get("rules") or []
    hosts: list[str] = []
    more = False
    for rule in rules:
        more = more or len(hosts) == 3
        if not more and rule.get("host"):
            hosts.append(rule["host"])
    shown = ",".join(hosts) + (f" + {len(rules) - 3} more..." if more else "") if hosts else "*"
    ports = "80, 443" if spec.get("tls") else "80"
    address = ",".join(_balancers(status_of(obj)))
    return [name_of(obj), spec.get("ingressClassName") or NONE, shown, address, ports, age_of(obj, now)]


def _network_policy(obj: JSON, now: float) -> Cells:
    return [name_of(obj), selector(spec_of(obj).get("podSelector") or {}), age_of(obj, now)]


def _template(obj: JSON) -> tuple[str, str]:
    return containers((spec_of(obj).get("template") or {}).get("spec"))


def _deployment(obj: JSON, now: float) -> Cells:
    status = status_of(obj)
    ready = f"{status.get('readyReplicas', 0)}/{spec_of(obj).get('replicas', 0)}"
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    try:
        chosen = str(Selector.from_wire(spec_of(obj).get("selector")))
    except FormatError:
        chosen = "<invalid>"
    return [name_of(obj), ready, *counts, age_of(obj, now), *_template(obj), chosen]


def _replica_set(obj: JSON, now: float) -> Cells:
    status = status_of(obj)
    counts = [spec_of(obj).get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [name_of(obj), *counts, age_of(obj, now), *_template(obj), selector(spec_of(obj).get("selector"))]


def _stateful_set(obj: JSON, now: float) -> Cells:
    ready = f"{status_of(obj).get('readyReplicas', 0)}/{spec_of(obj).get('replicas', 0)}"
    return [name_of(obj), ready, age_of(obj, now), *_template(obj)]


def _daemon_set(obj: JSON, now: float) -> Cells:
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


def _job(obj: JSON, now: float) -> Cells:
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


def _cron_job(obj: JSON, now: float) -> Cells:
    spec, status = spec_of(obj), status_of(obj)
    last = age(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else NONE
    suspended = UNSET if spec.get("suspend") is None else str(spec["suspend"])
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    pod = containers((job.get("template") or {}).get("spec"))
    active = len(status.get("active") or ())
    head = [name_of(obj), spec.get("schedule", ""), spec.get("timeZone") or NONE, suspended, active, last]
    return [*head, age_of(obj, now), *pod, selector(job.get("selector"))]


CELLS: dict[str, Callable[[JSON, float], Cells]] = {
    "configmaps": _counted("data", "binaryData"),
    "clusterrolebindings.rbac.authorization.k8s.io": _binding,
    "cronjobs.batch": _cron_job,
    "daemonsets.apps": _daemon_set,
    "deployments.apps": _deployment,
    "endpoints": _endpoints,
    "endpointslices.discovery.k8s.io": _endpoint_slice,
    "events": _event,
    "horizontalpodautoscalers.autoscaling": _autoscaler,
    "ingresses.networking.k8s.io": _ingress,
    "jobs.batch": _job,
    "leases.coordination.k8s.io": _plain("spec.holderIdentity"),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _counted("webhooks"),
    "namespaces": _plain("status.phase"),
    "networkpolicies.networking.k8s.io": _network_policy,
    "nodes": _node,
    "persistentvolumeclaims": _claim,
    "persistentvolumes": _volume,
    "poddisruptionbudgets.policy": _budget,
    "pods": pod,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "replicasets.apps": _replica_set,
    "resourcequotas": _quota,
    "rolebindings.rbac.authorization.k8s.io": _binding,
    "secrets": _secret,
    "serviceaccounts": _plain(),
    "services": _service,
    "statefulsets.apps": _stateful_set,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _counted("webhooks"),
}
