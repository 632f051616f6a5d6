"""ResourceQuotas: their status says what their namespace uses.

Does nothing while no ResourceQuota exists. After a change in a namespace that has quotas, each of them is written again
if what is used differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.controllers.isolation import reconcile_alone
from steersman.apiserver.http.requests import WriteOptions
from steersman.apiserver.quota.quota_usage import RESOURCE_QUOTA
from steersman.apiserver.quota.resource_quotas import counts_resource
from steersman.apiserver.write.pipeline import change

if TYPE_CHECKING:
    from steersman.apiserver.http.state import Api
    from steersman.apiserver.storage.store import Record, ResourceTable, StoreEvent

JSON = dict[str, Any]
MANAGER = WriteOptions(manager="kube-controller-manager")


class ResourceQuotaStatus:
    """Writes the status of quotas."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._quotas = api.store.table(RESOURCE_QUOTA)
        self._changed: dict[str, None] = {}  # namespaces

    def observe(self, table: ResourceTable, event: StoreEvent) -> bool:
        if self._quotas.keys:
            namespace = event.record.obj["metadata"].get("namespace", "")
            resource = table.kind.qualified
            quotas = self._quotas.scan(namespace) if namespace else ()
            if any(resource == RESOURCE_QUOTA.qualified or counts_resource(quota.obj, resource) for quota in quotas):
                self._changed[namespace] = None
        return bool(self._changed)

    def run(self) -> None:
        while self._changed:
            changed, self._changed = self._changed, {}
            for namespace in changed:
                for record in list(self._quotas.scan(namespace)):
                    reconcile_alone(self._write, record)

    def _write(self, record: Record) -> None:
        api, info = self._api, self._api.storage_info(RESOURCE_QUOTA)
        assert info is not None
        shown = {name: amount.canonical for name, amount in api.quota_usage.of(record.obj).items()}
        hard = record.obj["spec"].get("hard")
        status: JSON = {"hard": hard, "used": shown} if hard else {}
        if status != (record.obj.get("status") or {}):
            change(api, info, record, {**record.obj, "status": status}, MANAGER, [], subresource="status")
