"""Aggregated ClusterRoles: their rules are those of the ClusterRoles that their selectors match.

Runs on servers that evaluate RBAC. After every change of a ClusterRole each aggregated one is computed again, until
none differs: an aggregated role may be part of another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.controllers.isolation import reconcile_alone
from steersman.apiserver.http.requests import WriteOptions
from steersman.apiserver.patch import dispatch
from steersman.apiserver.write.decoding import typed_object
from steersman.apiserver.write.pipeline import change
from steersman.kube.api.gvk import Kind
from steersman.kube.api.selectors import Selector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.apiserver.http.state import Api
    from steersman.apiserver.storage.store import Record, ResourceTable, StoreEvent

JSON = dict[str, Any]
MANAGER = WriteOptions(manager="clusterrole-aggregation-controller", force=True)
CLUSTER_ROLE = Kind(
    group="rbac.authorization.k8s.io", version="v1", kind="ClusterRole", plural="clusterroles", namespaced=False
)


class ClusterRoleAggregation:
    """Writes the rules of aggregated ClusterRoles."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._changed = False

    def observe(self, table: ResourceTable, event: StoreEvent) -> bool:  # noqa: ARG002  the shape of a controller
        if table.kind.plural == CLUSTER_ROLE.plural and table.kind.group == CLUSTER_ROLE.group:
            self._changed = True
        return self._changed

    def run(self) -> None:
        while self._changed:
            self._changed = False
            table = self._api.store.table(CLUSTER_ROLE)
            for record in list(table.scan()):
                if "aggregationRule" in record.obj:
                    reconcile_alone(self._aggregate, record, [other.obj for other in table.scan()])

    def _aggregate(self, record: Record, roles: Iterable[JSON]) -> None:
        rules = aggregated_rules(record.obj, roles)
        if rules == (record.obj.get("rules") or []):
            return
        api, info = self._api, self._api.storage_info(CLUSTER_ROLE)
        assert info is not None
        identity = {"apiVersion": info.kind.api_version, "kind": info.kind.kind, "metadata": {"name": record.key}}
        wanted = {**identity, "rules": rules}
        merged = dispatch.applied(info, record.obj, wanted, MANAGER, now=api.now(), subresource="", convert=None)
        obj = typed_object(info, merged, validation="Ignore", warnings=[], patch=True, applied=True)
        change(api, info, record, obj, MANAGER, [], tracked=True)


def aggregated_rules(role: JSON, roles: Iterable[JSON]) -> list[JSON]:
    """The rules of every other role that a selector of `role` matches, by name, each once. Pure."""
    ordered = sorted(roles, key=lambda other: str(other["metadata"]["name"]))
    found: list[JSON] = []
    for selector in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
        matches = Selector.from_wire(selector).matches
        for other in ordered:
            if other["metadata"]["name"] == role["metadata"]["name"]:
                continue
            if matches(other["metadata"].get("labels") or {}):
                found += [rule for rule in other.get("rules") or () if rule not in found]
    return found
