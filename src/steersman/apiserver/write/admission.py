"""Admission: what the real server's built-in plugins check and change, as far as clients notice.

NamespaceLifecycle (no creates in namespaces that do not exist or are going away), LimitRanger, ServiceAccount (pods get
a service account and its token volume), DefaultTolerationSeconds, Priority, StorageObjectInUseProtection,
ResourceQuota, and the allocation of cluster IPs and node ports, which the real server does in its storage layer.
Webhooks are in `apiserver.admission`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from steersman.apiserver import status_errors
from steersman.apiserver.quota.limit_ranges import limit_violations, with_default_limits
from steersman.apiserver.quota.quota_usage import RESOURCE_QUOTA
from steersman.apiserver.quota.resource_quotas import quota_problem
from steersman.kube.api.gvk import Kind

if TYPE_CHECKING:
    from steersman.apiserver.http.state import Api
    from steersman.apiserver.resources.kinds import ResourceInfo

JSON = dict[str, Any]
SERVICE_ACCOUNT = Kind(version="v1", kind="ServiceAccount", plural="serviceaccounts")
PRIORITY_CLASS = Kind(
    group="scheduling.k8s.io", version="v1", kind="PriorityClass", plural="priorityclasses", namespaced=False
)
TOKEN_VOLUME = "kube-api-access-"  # noqa: S105  the name of a volume
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105  a path
NAMESPACE = Kind(version="v1", kind="Namespace", plural="namespaces", namespaced=False)


def check_namespace(api: Api, info: ResourceInfo, namespace: str, obj: JSON) -> None:
    """Refuse a create in a namespace that is not there or is being terminated."""
    if not info.kind.namespaced:
        return
    found = api.store.table(NAMESPACE).records.get(namespace)
    if found is None:
        raise status_errors.not_found(NAMESPACE, namespace)
    if found.obj["metadata"].get("deletionTimestamp"):
        raise status_errors.forbidden(
            info.kind,
            obj["metadata"].get("name", ""),
            f"unable to create new content in namespace {namespace} because it is being terminated",
            [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ],
        )


def mutate(api: Api, info: ResourceInfo, obj: JSON, warnings: list[str]) -> JSON:  # noqa: ARG001
    """What the mutating plugins make of a new object."""
    if info.custom is None and (plugin := _MUTATIONS.get(info.kind.qualified)) is not None:
        return plugin(api, info, obj)
    return obj


def mutate_update(info: ResourceInfo, obj: JSON, subresource: str) -> JSON:
    """What the mutating plugins make of another state of an object: a pod keeps its default tolerations."""
    if subresource or info.custom is not None or info.kind.qualified != "pods":
        return obj
    spec = obj["spec"]
    return {**obj, "spec": {**spec, "tolerations": _tolerations(spec.get("tolerations") or [])}}


def _objects_in(api: Api, resource: str, namespace: str) -> list[JSON]:
    """The objects of a qualified resource in a namespace."""
    table = api.store.find_table(resource)
    return [record.obj for record in table.scan(namespace)] if table is not None and table.keys else []


def check_limits(api: Api, info: ResourceInfo, obj: JSON, old: JSON | None) -> None:
    """Refuse what the limit ranges of its namespace do not allow. `old` is None for a create."""
    metadata, resource = obj["metadata"], info.kind.qualified
    if resource not in _LIMITED or (old is not None and resource == "pods"):
        return
    for limit_range in _objects_in(api, "limitranges", metadata["namespace"]):
        if found := limit_violations(limit_range, resource, obj):
            why = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
            raise status_errors.forbidden(info.kind, metadata.get("name", ""), why)


def check_quotas(api: Api, info: ResourceInfo, obj: JSON, old: JSON | None) -> None:
    """Refuse what exceeds a quota of its namespace. `old` is None for a create."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace", "")
    for quota in _objects_in(api, RESOURCE_QUOTA.plural, namespace):
        if problem := quota_problem(quota, partial(api.quota_usage.of, quota), info.kind.qualified, obj, old):
            raise status_errors.forbidden(info.kind, metadata.get("name", ""), problem)


_LIMITED = {"pods", "persistentvolumeclaims"}


def allocate(api: Api, info: ResourceInfo, obj: JSON, old: JSON | None, *, dry_run: bool) -> JSON:
    """Fill in what comes out of a pool."""
    if info.kind.qualified != "services" or info.custom is not None:
        return obj
    return api.service_allocator.allocate(obj, old, dry_run=dry_run)


def reviewed(api: Api, obj: JSON, old: JSON | None, *, dry_run: bool) -> JSON:
    """What webhooks make of an object that is not stored itself: a Scale, an Eviction, a Binding, a review."""
    chain = api.admission
    if chain is None:
        return obj
    operation = "CREATE" if old is None else "UPDATE"
    named = {"metadata": {}, **obj}
    result = chain.mutate(chain.attributes(operation, named, old, dry_run=dry_run))
    assert result is not None
    chain.validate(chain.attributes(operation, result, old, dry_run=dry_run))
    return result


def _pod(api: Api, info: ResourceInfo, pod: JSON) -> JSON:
    for limit_range in _objects_in(api, "limitranges", pod["metadata"]["namespace"]):
        pod = with_default_limits(limit_range, pod)
    metadata, spec = pod["metadata"], dict(pod.get("spec") or {})
    if "kubernetes.io/config.mirror" not in (metadata.get("annotations") or {}):
        _service_account(api, info, metadata, spec)
    spec["tolerations"] = _tolerations(spec.get("tolerations") or [])
    _priority(api, info, metadata, spec)
    return {**pod, "spec": spec}


def _service_account(api: Api, info: ResourceInfo, metadata: JSON, spec: JSON) -> None:
    """The account a pod runs as, and the volume its token is in."""
    name = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    namespace = metadata["namespace"]
    account = api.store.table(SERVICE_ACCOUNT).records.get(f"{namespace}/{name}")
    if account is None:
        why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise status_errors.forbidden(info.kind, metadata.get("name", ""), why)
    if account.obj.get("imagePullSecrets") and not spec.get("imagePullSecrets"):
        spec["imagePullSecrets"] = account.obj["imagePullSecrets"]
    automount = spec.get("automountServiceAccountToken")
    if automount is None:
        automount = account.obj.get("automountServiceAccountToken", True)
    if not automount:
        return
    volumes = spec.get("volumes") or []
    known = next((v["name"] for v in volumes if v["name"].startswith(TOKEN_VOLUME)), None)
    volume = known or f"{TOKEN_VOLUME}{api.suffix()}"
    used = False
    for group in ("initContainers", "containers"):
        containers = []
        for container in spec.get(group) or ():
            mounts = container.get("volumeMounts") or []
            if not any(mount.get("mountPath") == TOKEN_PATH for mount in mounts):
                used = True
                mount = {"name": volume, "readOnly": True, "mountPath": TOKEN_PATH}
                container = {**container, "volumeMounts": [*mounts, mount]}  # noqa: PLW2901  the container as it is kept
            containers.append(container)
        if containers:
            spec[group] = containers
    if used and known is None:
        spec["volumes"] = [*volumes, _token_volume(volume)]


def _token_volume(name: str) -> JSON:
    return {
        "name": name,
        "projected": {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {
                    "downwardAPI": {
                        "items": [
                            {
                                "path": "namespace",
                                "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                            }
                        ]
                    }
                },
            ],
            "defaultMode": 420,
        },
    }


def _tolerations(tolerations: list[JSON]) -> list[JSON]:
    """Pods stay five minutes on a node that is gone, unless they say otherwise."""

    def tolerated(key: str) -> bool:
        return any(t.get("key") in {key, None, ""} and t.get("effect") in {"NoExecute", None, ""} for t in tolerations)

    return tolerations + [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if not tolerated(key)
    ]


def _priority(api: Api, info: ResourceInfo, metadata: JSON, spec: JSON) -> None:
    name = spec.get("priorityClassName")
    table = api.store.table(PRIORITY_CLASS)
    found: JSON | None
    if name:
        record = table.records.get(name)
        found = record.obj if record is not None else None
        if found is None:
            why = f"no PriorityClass with name {name} was found"
            raise status_errors.forbidden(info.kind, metadata.get("name", ""), why)
    else:
        defaults = [record.obj for record in table.records.values() if record.obj.get("globalDefault")]
        found = min(defaults, key=lambda item: int(item["value"])) if defaults else {"value": 0}
        if defaults:
            spec["priorityClassName"] = found["metadata"]["name"]
    spec["priority"] = found["value"]
    spec.setdefault("preemptionPolicy", found.get("preemptionPolicy") or "PreemptLowerPriority")


def _protected(finalizer: str) -> Mutation:
    def protect(api: Api, info: ResourceInfo, obj: JSON) -> JSON:  # noqa: ARG001
        finalizers = obj["metadata"].get("finalizers") or []
        if finalizer in finalizers:
            return obj
        return {**obj, "metadata": {**obj["metadata"], "finalizers": [*finalizers, finalizer]}}

    return protect


Mutation = Callable[["Api", "ResourceInfo", JSON], JSON]
_MUTATIONS: dict[str, Mutation] = {
    "pods": _pod,
    "persistentvolumeclaims": _protected("kubernetes.io/pvc-protection"),
    "persistentvolumes": _protected("kubernetes.io/pv-protection"),
    "volumeattributesclasses.storage.k8s.io": _protected("kubernetes.io/vac-protection"),
}
