"""What a kind does to an object on its way into the store.

The real server calls this a strategy: which fields a create or an update may set, what is filled in, when the
generation rises. The generic rules are in `pipeline`; the per-kind ones are one row each in the tables below.
Functions are pure: they return a new object that shares what did not change. Whether the result is valid is decided
afterwards, in `validation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.crd.definition_rules import store_versions
from steersman.apiserver.crd.definition_rules import warnings as crd_warnings
from steersman.apiserver.resources.conform import at_rest, zero
from steersman.apiserver.resources.defaults import TEMPLATE_GENERATION
from steersman.apiserver.resources.schema import STATUS_RESETS
from steersman.apiserver.validation.metadata_rules import finalizer_warnings
from steersman.apiserver.validation.pod_rules import pod_warnings, quality_of_service
from steersman.apiserver.write import certificate_requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.apiserver.resources.kinds import ResourceInfo

JSON = dict[str, Any]
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
_MUTATING_POLICIES = "mutatingadmissionpolicies.admissionregistration.k8s.io"
_NOT_EVALUATED = "the embedded server stores MutatingAdmissionPolicies and does not evaluate them"

# A delete of these answers with the object instead of a Status.
_RETURNS_DELETED = {
    "namespaces",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourcequotas",
    "serviceaccounts",
    "services",
    "storageclasses.storage.k8s.io",
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "deviceclasses.resource.k8s.io",
    "resourceclaims.resource.k8s.io",
    "resourceclaimtemplates.resource.k8s.io",
    "resourceslices.resource.k8s.io",
    "volumeattachments.storage.k8s.io",
    "volumeattributesclasses.storage.k8s.io",
}


def returns_deleted(info: ResourceInfo) -> bool:
    """Whether a finished delete answers with the object."""
    return info.kind.qualified in _RETURNS_DELETED


def for_create(info: ResourceInfo, obj: JSON, now: str) -> JSON:
    """What a create stores of `obj`."""
    if info.status and info.kind.kind not in _STATUS_ON_CREATE:
        empty = None if info.custom is not None else zero(info.schema).get("status")
        obj = _with(obj, "status", empty)
    if info.custom is not None:
        return obj
    prepare = _CREATE.get(info.kind.qualified)
    return at_rest(info.schema, prepare(obj, now) if prepare else obj)


def for_update(info: ResourceInfo, obj: JSON, old: JSON) -> JSON:
    """What an update of the main resource stores: the status is left alone where it has its own endpoint."""
    if info.status:
        obj = _with(obj, "status", old.get("status"))
    if info.kind.qualified == DEFINITIONS:
        obj = {**obj, "status": store_versions(obj, obj.get("status"))}
    if info.kind.qualified == "namespaces":
        finalizers = old.get("spec", {}).get("finalizers")
        obj = {**obj, "spec": _with(obj.get("spec") or {}, "finalizers", finalizers)}
    elif info.kind.qualified == certificate_requests.REQUESTS:
        obj = {**obj, "spec": old["spec"]}
    elif info.kind.qualified == "daemonsets.apps":
        generation = int(old["metadata"]["annotations"][TEMPLATE_GENERATION])
        obj = _generated(obj, generation + (obj["spec"]["template"] != old["spec"]["template"]))
    return obj if info.custom is not None else at_rest(info.schema, obj)


def for_pod_subresource(obj: JSON, old: JSON, subresource: str) -> JSON:
    """What `ephemeralcontainers` and `resize` of a pod take of a write; other writes are taken as they are."""
    if subresource == "ephemeralcontainers":
        spec = _with(old["spec"], "ephemeralContainers", obj["spec"].get("ephemeralContainers"))
    elif subresource == "resize":
        spec = {**old["spec"], **{kind: _resized(obj, old, kind) for kind in _CONTAINERS if kind in old["spec"]}}
    else:
        return obj
    kept = {key: obj["metadata"][key] for key in _IDENTITY if key in obj["metadata"]}
    return {**old, "metadata": {**old["metadata"], **kept}, "spec": spec}


def _resized(obj: JSON, old: JSON, kind: str) -> list[JSON]:
    wanted = {container.get("name"): container for container in obj["spec"].get(kind) or ()}
    return [
        _with(_with(was, "resources", new.get("resources")), "resizePolicy", new.get("resizePolicy"))
        if (new := wanted.get(was["name"])) is not None
        else was
        for was in old["spec"][kind]
    ]


def for_status_update(info: ResourceInfo, obj: JSON, old: JSON, now: str) -> JSON:
    """What an update of the status stores: everything else is left alone, except some metadata of built-in kinds."""
    if info.custom is not None:
        metadata = _with(old["metadata"], "managedFields", obj["metadata"].get("managedFields"))
        return _with({**old, "metadata": metadata}, "status", obj.get("status"))
    obj = _with(obj, "spec", old.get("spec"))
    for path in STATUS_RESETS.get(info.kind.qualified, ()):
        head, _, tail = path.partition(".")
        obj = {**obj, head: _with(obj[head], tail, old[head].get(tail))}
    if info.kind.qualified == certificate_requests.REQUESTS:
        obj = certificate_requests.with_status(obj, old, now)
    return obj


def update_warnings(info: ResourceInfo, obj: JSON, old: JSON | None) -> list[str]:
    """What the server takes but does not like."""
    if info.kind.qualified == DEFINITIONS:
        return crd_warnings(obj, old)
    found = finalizer_warnings(info, obj, old)
    if info.custom is None:
        found += pod_warnings(info.kind.qualified, obj, old)
    if old is None and info.kind.qualified == _MUTATING_POLICIES:
        found.append(_NOT_EVALUATED)
    return found


def _with(obj: JSON, key: str, value: Any) -> JSON:
    if value is None:
        return {name: item for name, item in obj.items() if name != key}
    return {**obj, key: value}


def _namespace(obj: JSON, now: str) -> JSON:  # noqa: ARG001  every row has the same shape
    spec = obj.get("spec") or {}
    finalizers = spec.get("finalizers") or []
    if "kubernetes" not in finalizers:
        finalizers = [*finalizers, "kubernetes"]
    return {**obj, "spec": {**spec, "finalizers": finalizers}, "status": {"phase": "Active"}}


def _pod(obj: JSON, now: str) -> JSON:  # noqa: ARG001
    return {**obj, "status": {"phase": "Pending", "qosClass": quality_of_service(obj.get("spec") or {})}}


def _volume(obj: JSON, now: str) -> JSON:
    return {**obj, "status": {"phase": "Pending", "lastPhaseTransitionTime": now}}


def _claim(obj: JSON, now: str) -> JSON:  # noqa: ARG001
    return {**obj, "status": {"phase": "Pending"}}


def _daemon_set(obj: JSON, now: str) -> JSON:  # noqa: ARG001
    return _generated(obj, 1)


def _generated(daemon_set: JSON, generation: int) -> JSON:
    """A daemon set counts the changes of its template in an annotation, since before there were generations."""
    metadata = daemon_set["metadata"]
    annotations = {**metadata["annotations"], TEMPLATE_GENERATION: str(generation)}
    return {**daemon_set, "metadata": {**metadata, "annotations": annotations}}


def _job(obj: JSON, now: str) -> JSON:  # noqa: ARG001
    """A job selects its own pods by its uid, unless it says it brings its own selector."""
    spec = obj.get("spec") or {}
    if spec.get("manualSelector"):
        return obj
    name, uid = obj["metadata"]["name"], obj["metadata"]["uid"]
    template = spec.get("template") or {}
    metadata = template.get("metadata") or {}
    labels = {
        **(metadata.get("labels") or {}),
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    selector = spec.get("selector") or {}
    match = {**(selector.get("matchLabels") or {}), "batch.kubernetes.io/controller-uid": uid}
    own = obj["metadata"].get("labels")
    if not own or own is metadata.get("labels"):  # by default a job has the very labels of its template
        obj = {**obj, "metadata": {**obj["metadata"], "labels": labels}}
    return {
        **obj,
        "spec": {
            **spec,
            "selector": {**selector, "matchLabels": match},
            "template": {**template, "metadata": {**metadata, "labels": labels}},
        },
    }


def _definition(obj: JSON, now: str) -> JSON:  # noqa: ARG001
    empty = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}}
    return {**obj, "status": store_versions(obj, empty)}


_CONTAINERS = ("containers", "initContainers")
_IDENTITY = ("name", "namespace", "uid", "resourceVersion", "managedFields")  # what a write of a part of a pod may say
_STATUS_ON_CREATE = {"Node"}  # may bring its status along
_CREATE: dict[str, Callable[[JSON, str], JSON]] = {
    "namespaces": _namespace,
    "pods": _pod,
    "persistentvolumes": _volume,
    "persistentvolumeclaims": _claim,
    "daemonsets.apps": _daemon_set,
    "jobs.batch": _job,
    DEFINITIONS: _definition,
}
