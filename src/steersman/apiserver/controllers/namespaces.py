"""Namespaces: what every new namespace gets, and how a terminating one is emptied.

A new namespace gets its default service account and the certificate to trust. A terminating one is emptied; as long as
something in it stays (a finalizer, a pod with a grace period), its conditions say what.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from steersman.apiserver.controllers.isolation import reconcile_alone
from steersman.apiserver.http.requests import WriteOptions
from steersman.apiserver.status_errors import StatusError
from steersman.apiserver.write.admission import NAMESPACE
from steersman.apiserver.write.deletion import DeleteOptions, delete_object, finish, finished
from steersman.apiserver.write.pipeline import insert

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.apiserver.http.state import Api
    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.apiserver.storage.store import Record, ResourceTable, StoreEvent

JSON = dict[str, Any]
MANAGER = WriteOptions(manager="kube-controller-manager")
ROOT_CA = "kube-root-ca.crt"
ROOT_CA_NOTE = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


class NamespaceController:
    """Fills new namespaces with their defaults and empties terminating ones."""

    def __init__(self, api: Api, *, ca_pem: str) -> None:
        self._api = api
        self._ca_pem = ca_pem
        self._new: dict[str, None] = {}
        self._terminating: set[str] = set()
        self._empty: dict[str, None] = {}

    def observe(self, table: ResourceTable, event: StoreEvent) -> bool:
        record = event.record
        kind = table.kind.qualified
        if kind == "namespaces":
            name = record.key
            if event.type == "DELETED":
                self._terminating.discard(name)
            elif "deletionTimestamp" in record.obj["metadata"]:
                self._terminating.add(name)
                self._empty[name] = None
            elif event.type == "ADDED":
                self._new[name] = None
        elif event.type == "DELETED":
            namespace = record.obj["metadata"].get("namespace", "")
            if namespace in self._terminating:
                self._empty[namespace] = None
            elif kind in {"serviceaccounts", "configmaps"} and record.key.endswith(("/default", f"/{ROOT_CA}")):
                self._new[namespace] = None
        return bool(self._new or self._empty)

    def run(self) -> None:
        while self._new or self._empty:
            new, self._new = self._new, {}
            for name in new:
                reconcile_alone(self._fill, name)
            empty, self._empty = self._empty, {}
            for name in empty:
                reconcile_alone(self._terminate, name)

    def _fill(self, namespace: str) -> None:
        api = self._api
        if namespace not in api.store.table(NAMESPACE).records or namespace in self._terminating:
            return
        for plural, obj in (("serviceaccounts", _service_account()), ("configmaps", self._root_ca())):
            info = api.registry.lookup("", "v1", plural)
            if info is None or obj is None or f"{namespace}/{obj['metadata']['name']}" in api.table(info).records:
                continue
            insert(api, info, namespace, {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}, MANAGER, [])

    def _root_ca(self) -> JSON | None:
        if not self._ca_pem:
            return None
        return {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {"name": ROOT_CA, "annotations": {"kubernetes.io/description": ROOT_CA_NOTE}},
            "data": {"ca.crt": self._ca_pem},
        }

    def _terminate(self, name: str) -> None:
        api = self._api
        record = api.store.table(NAMESPACE).records.get(name)
        if record is None or "deletionTimestamp" not in record.obj["metadata"]:
            return
        for kind, item in list(self._content(name)):
            if "deletionTimestamp" not in item.obj["metadata"]:
                try:
                    delete_object(api, kind, item, DeleteOptions(propagationPolicy="Background"))
                except StatusError:
                    continue  # it stays; the conditions report it
        left = list(self._content(name))
        record = api.store.table(NAMESPACE).records[name]
        info = api.storage_info(NAMESPACE)
        assert info is not None
        if left:
            self._report(info, record, left)
            return
        finalizers = [f for f in record.obj["spec"].get("finalizers", ()) if f != "kubernetes"]
        spec = {key: value for key, value in record.obj["spec"].items() if key != "finalizers"}
        obj = {**record.obj, "spec": {**spec, "finalizers": finalizers} if finalizers else spec}
        if finished(info, obj):
            finish(api, info, record, obj, dry_run=False)
        elif obj != record.obj:
            api.store.put(api.table(info), name, obj)

    def _content(self, namespace: str) -> Iterator[tuple[ResourceInfo, Record]]:
        for table in self._api.store.tables():
            info = self._api.storage_info(table.kind) if table.kind.namespaced else None
            if info is not None:
                for record in table.scan(namespace):
                    yield info, record

    def _report(self, info: ResourceInfo, record: Record, left: list[tuple[ResourceInfo, Record]]) -> None:
        kinds = Counter(item.kind.qualified.replace(item.kind.plural, f"{item.kind.plural}.", 1) for item, _ in left)
        holders = Counter(name for _, item in left for name in item.obj["metadata"].get("finalizers") or ())
        remaining = ", ".join(f"{kind} has {count} resource instances" for kind, count in sorted(kinds.items()))
        held = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(holders.items()))
        prefix = "NamespaceDeletion"
        wanted = [
            (f"{prefix}DiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"),
            (f"{prefix}GroupVersionParsingFailure", "False", "ParsedGroupVersions", "All API versions parsed"),
            (f"{prefix}ContentFailure", "False", "ContentDeleted", "All content deleted, may wait for finalizers"),
        ]
        message = f"Some resources are remaining: {remaining}"
        wanted.append(("NamespaceContentRemaining", "True", "SomeResourcesRemain", message))
        message = f"Some content in the namespace has finalizers remaining: {held}"
        finalizers = ("True", "SomeFinalizersRemain", message) if held else ("False", "ContentHasNoFinalizers", "")
        wanted.append(("NamespaceFinalizersRemaining", *finalizers))
        status = record.obj.get("status") or {}
        before = {item["type"]: item for item in status.get("conditions") or ()}
        conditions = []
        for kind, value, reason, message in wanted:
            old = before.get(kind, {})
            since = old.get("lastTransitionTime") if old.get("status") == value else None
            conditions.append(
                {
                    "type": kind,
                    "status": value,
                    "lastTransitionTime": since or self._api.now(),
                    "reason": reason,
                    "message": message,
                }
            )
        if conditions != status.get("conditions"):
            obj = {**record.obj, "status": {**status, "conditions": conditions}}
            self._api.store.put(self._api.table(info), record.key, obj)


def _service_account() -> JSON:
    return {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default"}}
