"""What a cluster holds from the start: the four namespaces with what every namespace has, and the API's own service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.apiserver.pipeline import insert
from steersman.apiserver.requests import WriteOptions

if TYPE_CHECKING:
    from steersman.apiserver.api import Api

__all__ = ["bootstrap"]

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


def bootstrap(api: Api) -> None:
    """Create the initial objects."""
    namespaces = api.registry.lookup("", "v1", "namespaces")
    assert namespaces is not None
    for name in NAMESPACES:
        insert(
            api,
            namespaces,
            "",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
            WriteOptions(manager="kube-apiserver"),
            [],
        )
