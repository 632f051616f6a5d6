"""CustomResourceDefinitions: served once their names are accepted, emptied before they are deleted.

The registry decides; this controller passes every change to it and writes the statuses it returns. Watches of a
resource end with its definition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.controllers.isolation import reconcile_alone
from steersman.apiserver.http.requests import WriteOptions
from steersman.apiserver.resources.conversion import in_version
from steersman.apiserver.write.deletion import CLEANUP, DeleteOptions, delete_object, finish, finished
from steersman.apiserver.write.pipeline import change
from steersman.kube.api.gvk import Kind

if TYPE_CHECKING:
    from steersman.apiserver.http.state import Api
    from steersman.apiserver.resources.registry import Installation
    from steersman.apiserver.storage.store import Record, ResourceTable, StoreEvent

MANAGER = WriteOptions(manager="kube-apiserver")
DEFINITION = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    namespaced=False,
)


class CRDController:
    """Serves definitions, and deletes their instances before they go."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._changed: dict[str, None] = {}
        self._emptying: dict[str, str] = {}  # qualified name of the resource -> name of its definition

    def observe(self, table: ResourceTable, event: StoreEvent) -> bool:
        if table.kind.qualified == DEFINITION.qualified:
            self._changed[event.record.key] = None
        elif event.type == "DELETED" and table.kind.qualified in self._emptying:
            self._changed[self._emptying[table.kind.qualified]] = None
        return bool(self._changed)

    def run(self) -> None:
        while self._changed:
            changed, self._changed = self._changed, {}
            for name in changed:
                reconcile_alone(self._reconcile, name)

    def _reconcile(self, name: str) -> None:
        record = self._api.store.table(DEFINITION).records.get(name)
        if record is None:
            self._end_watches(name)
            self._emptying = {kind: of for kind, of in self._emptying.items() if of != name}
            for outcome in self._api.registry.uninstall(name, now=self._api.now()):
                self._write(outcome)
        elif "deletionTimestamp" in record.obj["metadata"]:
            self._remove(record)
        else:
            known = self._api.registry.definition(name)
            if known is None or _without_version(known) != _without_version(record.obj):
                outcome = self._api.registry.install(record.obj, now=self._api.now())
                self._write(outcome)
                if known is not None and known["spec"] != record.obj["spec"]:
                    self._reread(outcome)

    def _end_watches(self, name: str) -> None:
        """Nothing will happen to the instances any more, and a definition of the same name is another one."""
        definition = self._api.registry.definition(name)
        if definition is not None:
            plural, group = definition["spec"]["names"]["plural"], definition["spec"]["group"]
            if (table := self._api.store.find_table(f"{plural}.{group}")) is not None:
                self._api.hub.finish(table)

    def _write(self, outcome: Installation) -> None:
        info = self._api.storage_info(DEFINITION)
        assert info is not None
        table = self._api.store.table(DEFINITION)
        for status in outcome.statuses:
            record = table.records[outcome.name]
            change(self._api, info, record, {**record.obj, "status": status}, MANAGER, [], subresource="status")

    def _reread(self, outcome: Installation) -> None:
        """Objects are read through the definition as it is now: pruned and defaulted by it."""
        if not outcome.resources:
            return
        info = self._api.storage_info(outcome.resources[0].storage)
        if info is not None and not info.converts:  # otherwise every read converts anyway
            self._api.store.reread(self._api.table(info), lambda obj: in_version(info, obj, reread=True))

    def _remove(self, record: Record) -> None:
        """Delete every instance; the definition goes with the last one."""
        api, name = self._api, record.key
        if CLEANUP not in (record.obj["metadata"].get("finalizers") or ()):
            return
        known = api.registry.definition(name)
        if known is None or _without_version(known) != _without_version(record.obj):
            api.registry.install(record.obj, now=api.now())
        spec = record.obj["spec"]
        kind = Kind(
            group=spec["group"],
            version=next(v["name"] for v in spec["versions"] if v["storage"]),
            kind=spec["names"]["kind"],
            plural=spec["names"]["plural"],
            namespaced=spec["scope"] == "Namespaced",
        )
        self._emptying[kind.qualified] = name
        info = api.storage_info(kind)
        for item in list(api.store.table(kind).records.values()) if info is not None else ():
            if info is not None and "deletionTimestamp" not in item.obj["metadata"]:
                delete_object(api, info, item, DeleteOptions())
        if info is not None and api.store.table(kind).records:
            return
        definition = api.storage_info(DEFINITION)
        assert definition is not None
        finalizers = [f for f in record.obj["metadata"]["finalizers"] if f != CLEANUP]
        metadata = {key: value for key, value in record.obj["metadata"].items() if key != "finalizers"}
        obj = {**record.obj, "metadata": {**metadata, "finalizers": finalizers} if finalizers else metadata}
        if finished(definition, obj):
            finish(api, definition, record, obj, dry_run=False)
        else:
            api.store.put(api.table(definition), name, obj)


def _without_version(obj: dict[str, Any]) -> dict[str, Any]:
    return {
        **obj,
        "metadata": {k: v for k, v in obj["metadata"].items() if k not in {"resourceVersion", "managedFields"}},
    }
