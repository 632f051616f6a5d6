"""Who an object is: name, uid and resourceVersion of structs and plain dicts alike.

A cache holds either `Resource` structs or the plain dicts that a `Kind` decodes to; these functions are the only place
that knows the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.kube.api.gvk import NamespacedName

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["is_newer", "labels_of", "ref_of", "revision_of", "uid_of"]


def ref_of(obj: Any) -> NamespacedName:
    """The key of an object."""
    if isinstance(obj, dict):
        meta = obj["metadata"]
        return NamespacedName(meta["name"], meta.get("namespace", ""))
    meta = obj.metadata
    return NamespacedName(meta.name, meta.namespace)


def uid_of(obj: Any) -> str:
    """`metadata.uid`."""
    uid: str = obj["metadata"].get("uid", "") if isinstance(obj, dict) else obj.metadata.uid
    return uid


def revision_of(obj: Any) -> str:
    """`metadata.resourceVersion`."""
    revision: str = (
        obj["metadata"].get("resourceVersion", "") if isinstance(obj, dict) else obj.metadata.resource_version
    )
    return revision


def labels_of(obj: Any) -> Mapping[str, str]:
    """`metadata.labels`, empty when there are none."""
    return (obj["metadata"].get("labels") if isinstance(obj, dict) else obj.metadata.labels) or {}


def is_newer(revision: str, than: str) -> bool:
    """Whether `revision` is later than `than`.

    Both are resourceVersions. Those of one resource type count up on every server since 1.35; for a server that hands
    out something else, anything different is newer, to be cautious.
    """
    if revision.isdecimal() and than.isdecimal():
        return int(revision) > int(than)
    return revision != than
