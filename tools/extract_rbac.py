#!/usr/bin/env python3
"""Record the roles and bindings that kube-apiserver makes for itself when it starts.

    tools/extract_rbac.py --server https://127.0.0.1:6443 --token TOKEN

The server must run RBAC and the controller `clusterrole-aggregation-controller`. The objects are stored as the server
answers them, without what differs from server to server (uid, times, resourceVersion).
"""

from __future__ import annotations

import argparse
import gzip
import json
import ssl
import urllib.request
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "src" / "steersman" / "apiserver" / "data"
KINDS = {
    "clusterroles": "ClusterRole",
    "clusterrolebindings": "ClusterRoleBinding",
    "roles": "Role",
    "rolebindings": "RoleBinding",
}
LABEL = "kubernetes.io/bootstrapping=rbac-defaults"


def main() -> None:
    """Fetch, strip, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True)
    parser.add_argument("--token", required=True)
    options = parser.parse_args()
    found = {
        kind: [_stripped(item) for item in _fetch(options.server, plural, options.token)["items"]]
        for plural, kind in KINDS.items()
    }
    with gzip.GzipFile(DATA / "rbac.json.gz", "wb", mtime=0) as file:  # the same answers give the same bytes
        file.write(json.dumps(found, indent=1).encode())
    print({kind: len(items) for kind, items in found.items()})  # noqa: T201


def _stripped(item: dict[str, Any]) -> dict[str, Any]:
    metadata = {k: v for k, v in item["metadata"].items() if k not in {"uid", "creationTimestamp", "resourceVersion"}}
    for entry in metadata["managedFields"]:
        del entry["time"]
    return {**item, "metadata": metadata}


def _fetch(server: str, plural: str, token: str) -> Any:
    context = ssl._create_unverified_context()  # noqa: S323, SLF001  a server of our own, started a minute ago
    url = f"{server}/apis/rbac.authorization.k8s.io/v1/{plural}?labelSelector={LABEL}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310  the server above
    with urllib.request.urlopen(request, context=context, timeout=30) as answer:  # noqa: S310
        return json.load(answer)


if __name__ == "__main__":
    main()
