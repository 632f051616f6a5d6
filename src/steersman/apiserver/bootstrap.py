"""What a cluster holds from the start: four namespaces, the API's own service, and the system's priority classes.

What every namespace is given comes from `namespaces.py`. The real server also has roles for its own components; there
is no RBAC here, so there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.intake import fit
from steersman.apiserver.pipeline import insert
from steersman.apiserver.requests import WriteOptions

if TYPE_CHECKING:
    from steersman.apiserver.api import Api

__all__ = ["bootstrap"]

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


def _add(api: Api, api_version: str, kind: str, body: JSON) -> None:
    group, _, version = api_version.rpartition("/")
    info = api.registry.by_kind(group, version, kind)
    assert info is not None
    obj = fit(info, {"apiVersion": api_version, "kind": kind, **body}, validation="Ignore", warnings=[])
    insert(api, info, body["metadata"].get("namespace", ""), obj, MANAGER, [])
