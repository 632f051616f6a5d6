"""What a control plane does on its own: the objects of a new cluster, and controllers that act after every write.

`bootstrap` creates what a cluster holds from the start. After that each controller observes every change and notes the
keys it has to reconcile; it reconciles them in the next turn of the event loop, after the request that caused the
change was answered and before the next request is handled. The real control plane does the same a little later.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from steersman.apiserver.authorization.bootstrap_roles import bootstrap_roles
from steersman.apiserver.controllers.cluster_role_aggregation import ClusterRoleAggregation
from steersman.apiserver.controllers.crd_controller import CRDController
from steersman.apiserver.controllers.garbage_collector import GarbageCollector
from steersman.apiserver.controllers.isolation import reconcile_alone
from steersman.apiserver.controllers.namespaces import NamespaceController
from steersman.apiserver.controllers.resource_quota_status import ResourceQuotaStatus
from steersman.apiserver.http.requests import WriteOptions
from steersman.apiserver.write.decoding import typed_object
from steersman.apiserver.write.pipeline import insert

if TYPE_CHECKING:
    from steersman.apiserver.http.state import Api
    from steersman.apiserver.storage.store import ResourceTable, StoreEvent


class ServerController(Protocol):
    """One controller of the control plane."""

    def observe(self, table: ResourceTable, event: StoreEvent) -> bool:
        """Note the keys that a change concerns; True when there is something to reconcile."""

    def run(self) -> None:
        """Reconcile what was noted."""


class ControlPlaneLoop:
    """The controllers of one server."""

    def __init__(self, api: Api, *, ca_pem: str = "") -> None:
        self._controllers: tuple[ServerController, ...] = (
            CRDController(api),
            NamespaceController(api, ca_pem=ca_pem),
            GarbageCollector(api),
            ResourceQuotaStatus(api),
            *([ClusterRoleAggregation(api)] if api.authorizer is not None else []),
        )
        self._scheduled = False
        api.store.listen(self._observe)

    def _observe(self, table: ResourceTable, event: StoreEvent) -> None:
        work = False
        for controller in self._controllers:
            work = controller.observe(table, event) or work
        if work and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        for controller in self._controllers:
            reconcile_alone(controller.run)


JSON = dict[str, Any]
MANAGER = WriteOptions(manager="kube-apiserver")
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
API_SERVICE_IP = "10.0.0.1"
PRIORITIES = (
    (
        "system-cluster-critical",
        2000000000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2000001000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
)


def bootstrap(api: Api, *, host: str = "127.0.0.1", port: int = 6443) -> None:
    """Create the initial objects. `host` and `port` are where the server listens."""
    for name in NAMESPACES:
        _add(api, "v1", "Namespace", {"metadata": {"name": name}})
    for name, value, description in PRIORITIES:
        body = {"metadata": {"name": name}, "value": value, "description": description}
        _add(api, "scheduling.k8s.io/v1", "PriorityClass", body)
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    metadata = {"name": "kubernetes", "namespace": "default"}
    _add(
        api,
        "v1",
        "Service",
        {
            "metadata": {**metadata, "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {
                "clusterIP": API_SERVICE_IP,
                "ipFamilyPolicy": "SingleStack",
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
            },
        },
    )
    mirrored = {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}
    _add(
        api,
        "v1",
        "Endpoints",
        {"metadata": {**metadata, **mirrored}, "subsets": [{"addresses": [{"ip": host}], "ports": ports}]},
    )
    _add(
        api,
        "discovery.k8s.io/v1",
        "EndpointSlice",
        {
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "addressType": "IPv6" if ":" in host else "IPv4",
            "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
            "ports": ports,
        },
    )
    if api.authorizer is not None:
        bootstrap_roles(api)


def _add(api: Api, api_version: str, kind: str, body: JSON) -> None:
    group, _, version = api_version.rpartition("/")
    info = api.registry.by_kind(group, version, kind)
    assert info is not None
    obj = typed_object(info, {"apiVersion": api_version, "kind": kind, **body}, validation="Ignore", warnings=[])
    insert(api, info, body["metadata"].get("namespace", ""), obj, MANAGER, [])
