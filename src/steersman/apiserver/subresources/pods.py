"""What only pods can: being bound to a node, and being evicted within their disruption budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver import status_errors
from steersman.apiserver.http.requests import WriteOptions
from steersman.apiserver.http.state import Reply
from steersman.apiserver.resources.kinds import BINDING, EVICTION
from steersman.apiserver.storage.reads import find
from steersman.apiserver.write.admission import reviewed
from steersman.apiserver.write.decoding import subresource_object
from steersman.apiserver.write.deletion import DeleteOptions, check_preconditions, delete_object
from steersman.apiserver.write.verbs import in_namespace
from steersman.kube.api.gvk import Kind
from steersman.kube.api.selectors import Selector

if TYPE_CHECKING:
    from steersman.apiserver.http.requests import Request
    from steersman.apiserver.http.state import Api
    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.apiserver.storage.store import Record

JSON = dict[str, Any]
_encode = msgspec.json.Encoder().encode
BUDGET = Kind(group="policy", version="v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets")
_POD_BINDING = Kind(version="v1", kind="Binding", plural="pods/binding")
DONE = Reply(
    201, _encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}) + b"\n"
)


def bind(api: Api, request: Request) -> Reply:
    """POST of a Binding, to `pods/NAME/binding` or to `bindings`."""
    route = request.route
    options = WriteOptions.parse(request, "CreateOptions")
    binding = in_namespace(_pods(api), route.namespace, subresource_object(request, BINDING, options.validation))
    metadata, target = binding["metadata"], binding["target"]
    name = metadata.get("name", "")
    if not name:
        raise status_errors.bad_request("Name parameter required.")
    if route.name and route.name != name:
        raise status_errors.bad_request("name in URL does not match name in Binding object")
    if target.get("kind") not in {None, "", "Node"}:
        raise status_errors.internal(
            f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
        )
    if not target.get("name"):
        raise status_errors.internal("target.name: Required value")
    binding = reviewed(api, binding, None, dry_run=options.dry_run)
    metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
    pods = _pods(api)
    record = find(api, pods, route.namespace, name)
    pod = record.obj
    if pod["metadata"].get("deletionTimestamp"):
        raise status_errors.conflict(_POD_BINDING, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if node := pod["spec"].get("nodeName"):
        raise status_errors.conflict(_POD_BINDING, name, f'pod {name} is already assigned to node "{node}"')
    if pod["spec"].get("schedulingGates"):
        raise status_errors.conflict(_POD_BINDING, name, f"pod {name} has non-empty .spec.schedulingGates")
    if not options.dry_run:
        api.store.put(api.table(pods), record.key, _bound(pod, metadata, target["name"], api.now()))
    return DONE


def _bound(pod: JSON, binding: JSON, node: str, now: str) -> JSON:
    metadata = pod["metadata"]
    for field in ("annotations", "labels"):
        if binding.get(field):
            metadata = {**metadata, field: {**(metadata.get(field) or {}), **binding[field]}}
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    return {
        **pod,
        "metadata": metadata,
        "spec": {**pod["spec"], "nodeName": node},
        "status": _with_condition(pod.get("status") or {}, scheduled),
    }


def _with_condition(status: JSON, condition: JSON) -> JSON:
    others = [item for item in status.get("conditions") or () if item["type"] != condition["type"]]
    return {**status, "conditions": [*others, condition]}


def evict(api: Api, request: Request) -> Reply:
    """POST of an Eviction: a delete that asks the disruption budgets first."""
    route = request.route
    options = WriteOptions.parse(request, "CreateOptions")
    pods = _pods(api)
    eviction = in_namespace(pods, route.namespace, subresource_object(request, EVICTION, options.validation))
    if eviction["metadata"].get("name", "") != route.name:
        raise status_errors.bad_request("name in URL does not match name in Eviction object")
    eviction = reviewed(api, eviction, None, dry_run=options.dry_run)
    delete = msgspec.convert(eviction.get("deleteOptions") or {}, DeleteOptions).checked()
    if options.dry_run:
        delete = msgspec.structs.replace(delete, dryRun=["All"])
    record = find(api, pods, route.namespace, route.name)
    if not _unguarded(record.obj):
        _spend_budget(api, record, dry_run=delete.dry_run)
    if not delete.dry_run:
        check_preconditions(pods, record, delete.preconditions)
        record = _mark(api, pods, record)
        delete = msgspec.structs.replace(delete, preconditions=None)  # the mark is a new revision
    delete_object(api, pods, record, delete)
    return DONE


def _unguarded(pod: JSON) -> bool:
    """A pod that runs nothing, or is already going, needs no budget."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in {"Succeeded", "Failed", "Pending"} or bool(pod["metadata"].get("deletionTimestamp"))


def _mark(api: Api, pods: ResourceInfo, record: Record) -> Record:
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": api.now(),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    status = _with_condition(record.obj.get("status") or {}, target)
    return api.store.put(api.table(pods), record.key, {**record.obj, "status": status})


def _spend_budget(api: Api, record: Record, *, dry_run: bool) -> None:
    pod = record.obj
    labels = pod["metadata"].get("labels") or {}
    table = api.store.table(BUDGET)
    guards = [
        budget
        for budget in table.scan(pod["metadata"]["namespace"])
        if Selector.from_wire(budget.obj["spec"].get("selector")).matches(labels)
    ]
    if not guards:
        return
    if len(guards) > 1:
        raise status_errors.StatusError(
            500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    budget = guards[0]
    status = budget.obj.get("status") or {}
    healthy, wanted = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if not _ready(pod):
        policy = budget.obj["spec"].get("unhealthyPodEvictionPolicy")
        if policy == "AlwaysAllow" or healthy >= wanted > 0:
            return
    name = budget.obj["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget.obj["metadata"].get("generation", 0):
        raise _refused(f"The disruption budget {name} is still being processed by the server.", retry=10)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise status_errors.forbidden(BUDGET, name, "pdb disruptions allowed is negative")
    if allowed == 0:
        raise _refused(f"The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently")
    if not dry_run:
        disrupted = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: api.now()}
        spent = {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
        api.store.put(table, budget.key, {**budget.obj, "status": spent})


def _refused(why: str, *, retry: int = 0) -> status_errors.StatusError:
    details: JSON = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    headers = {}
    if retry:
        details["retryAfterSeconds"] = retry
        headers = {"Retry-After": str(retry)}
    return status_errors.StatusError(
        429,
        "Cannot evict pod as it would violate the pod's disruption budget.",
        reason="TooManyRequests",
        details=details,
        headers=headers,
    )


def _ready(pod: JSON) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _pods(api: Api) -> ResourceInfo:
    info = api.registry.lookup("", "v1", "pods")
    assert info is not None
    return info
