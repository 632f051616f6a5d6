"""Who keeps changing a source: the diagnosis when a workload's budget is used up.

A restart budget is used up because somebody keeps writing, and usually because two programs write in turn. The server
knows their names: the managers of the fields. They are read once when a circuit opens, and never otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import field

from steersman.kube.errors import KubeError
from steersman.kube.objects import ManagedFieldsEntry, OwnedMeta, PartialObjectMetadata
from steersman.operators.reload.types import SourceKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.kube.client import Client
    from steersman.operators.reload.changes import Change
    from steersman.operators.reload.types import SourceRef

__all__ = ["diagnose", "managers", "writers"]

_MOST: Final = 3  # sources looked at, and writers named for each


class _ConfigMapOwners(PartialObjectMetadata, version="v1", kind="ConfigMap"):
    metadata: OwnedMeta = field(default_factory=OwnedMeta)


class _SecretOwners(PartialObjectMetadata, version="v1", kind="Secret"):
    metadata: OwnedMeta = field(default_factory=OwnedMeta)


_OWNERS: Final[dict[SourceKind, Any]] = {SourceKind.CONFIGMAP: _ConfigMapOwners, SourceKind.SECRET: _SecretOwners}


def writers(entries: Iterable[ManagedFieldsEntry], keys: Sequence[str]) -> list[str]:
    """The managers that write the data of a source, those of `keys` first, then the latest first."""
    ranked = []
    for entry in entries:
        fields = entry.fields_v1 or {}
        data = {**(fields.get("f:data") or {}), **(fields.get("f:binaryData") or {})}
        if data:
            ranked.append((any(f"f:{key}" in data for key in keys), entry.time or "", entry.manager))
    return list(dict.fromkeys(manager for _, _, manager in sorted(ranked, reverse=True)))


async def managers(client: Client, source: SourceRef) -> Sequence[ManagedFieldsEntry]:
    """Who manages which fields of a source; nothing of its values is read. Raises KubeError."""
    owners = _OWNERS.get(source.kind)
    if owners is None:
        return ()
    found = await client.get(owners, source.name, namespace=source.namespace)
    entries: Sequence[ManagedFieldsEntry] = found.metadata.managed_fields or ()
    return entries


async def diagnose(client: Client, changes: Sequence[Change], namespace: str) -> str:
    """`configmap/app#mode is written by cert-manager, helm`; empty when nobody can tell."""
    told = []
    for change in changes[:_MOST]:
        try:
            names = writers(await managers(client, change.source), change.keys)
        except KubeError:
            continue
        if names:
            told.append(f"{change.seen_from(namespace)} is written by {', '.join(names[:_MOST])}")
    return "; ".join(told)
