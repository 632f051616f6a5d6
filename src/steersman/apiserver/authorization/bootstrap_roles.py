"""The roles and bindings that kube-apiserver makes for itself, recorded from a real one (tools/extract_rbac.py)."""

from __future__ import annotations

import gzip
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec

from steersman.apiserver.storage.store import key_of

if TYPE_CHECKING:
    from steersman.apiserver.http.state import Api


def bootstrap_roles(api: Api) -> None:
    """Store them as the real server has them, with uids and times of this one."""
    path = files("steersman.apiserver") / "data" / "rbac.json.gz"
    now = api.now()
    for kind, objects in msgspec.json.decode(gzip.decompress(path.read_bytes())).items():
        info = api.registry.by_kind("rbac.authorization.k8s.io", "v1", kind)
        assert info is not None
        for obj in objects:
            metadata = obj["metadata"]
            name, namespace = metadata["name"], metadata.get("namespace", "")
            own = {"uid": api.uid(), "resourceVersion": "", "creationTimestamp": now}
            fields = [{**entry, "time": now} for entry in metadata["managedFields"]]
            placed = {"name": name, **({"namespace": namespace} if namespace else {}), **own}
            stored = {"apiVersion": info.kind.api_version, "kind": kind, **obj}
            stored["metadata"] = {**placed, **metadata, "managedFields": fields}
            api.store.put(api.table(info), key_of(namespace, name), stored)
