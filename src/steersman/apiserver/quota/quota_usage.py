"""What namespaces use of their quotas, kept with every change of the store.

Invariant: what is kept for a quota is what `namespace_usage` counts now. So a create under a quota costs the same in a
namespace with ten pods and with ten thousand. A quota is counted when it is first asked about, and again when its spec
changes. Without a quota a change costs one test for emptiness.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.quota.resource_quotas import namespace_usage, object_usage
from steersman.kube.api.gvk import Kind

if TYPE_CHECKING:
    from steersman.apiserver.quota.pod_resources import Amounts
    from steersman.apiserver.storage.store import ResourceTable, Store, StoreEvent

JSON = dict[str, Any]
RESOURCE_QUOTA = Kind(version="v1", kind="ResourceQuota", plural="resourcequotas")


class QuotaUsage:
    """The usage of all quotas of a store that were asked about."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, dict[str, tuple[JSON, Amounts]]] = {}  # namespace -> quota -> (quota, what is used)
        store.listen(self._observe)

    def of(self, quota: JSON) -> Amounts:
        """What the namespace of a stored quota uses of everything it limits."""
        metadata = quota["metadata"]
        namespace: str = metadata["namespace"]
        kept = self._kept.setdefault(namespace, {})
        found = kept.get(metadata["name"])
        if found is None or found[0]["spec"] != quota["spec"]:
            found = kept[metadata["name"]] = (
                quota,
                namespace_usage(quota, lambda name: self._objects(name, namespace)),
            )
        return found[1]

    def _objects(self, resource: str, namespace: str) -> list[JSON]:
        table = self._store.find_table(resource)
        return [record.obj for record in table.scan(namespace)] if table is not None else []

    def _observe(self, table: ResourceTable, event: StoreEvent) -> None:
        if not self._kept:
            return
        resource, metadata = table.kind.qualified, event.record.obj["metadata"]
        kept = self._kept.get(metadata.get("namespace", ""))
        if kept is None:
            return
        if event.type == "DELETED" and resource == RESOURCE_QUOTA.plural:
            kept.pop(metadata["name"], None)
        for quota, used in kept.values():
            if event.previous is not None:
                for name, amount in object_usage(quota, resource, event.previous.obj).items():
                    used[name] = used[name] - amount
            if event.type != "DELETED":
                for name, amount in object_usage(quota, resource, event.record.obj).items():
                    used[name] = used[name] + amount
