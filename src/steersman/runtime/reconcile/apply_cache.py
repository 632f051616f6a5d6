"""What was applied, and what became of it: the memory that saves requests which would change nothing.

A server-side apply changes nothing when both hold: we would send exactly what we sent last, and nothing that an apply
can set has changed since. The first is a digest of what was sent. The second is a *fingerprint* of the live object:

- its uid and resourceVersion: after any change at all we apply again, and the server finds out whether that matters;
- for kinds whose generation is known to count every change outside metadata and status, its uid, generation and the
  metadata one can apply. Then the many status updates of, say, a rolling Deployment cost no requests.

So the memory may only ever be too cautious. It belongs to one process: after a restart everything is applied once.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.cache.identity import revision_of, uid_of
from steersman.kube.api.objects import Resource, to_wire
from steersman.runtime.reconcile.metadata import metadata_of

if TYPE_CHECKING:
    from steersman.kube.api.gvk import Kind, NamespacedName

__all__ = ["ApplyCache", "digest", "fingerprint"]

Object = Resource | dict[str, Any]

# Groups of built-in kinds whose generation follows the spec. Custom kinds always do (the API server counts for them).
_COUNTED_GROUPS = frozenset({"apps", "batch", "policy"})
_COUNTED_KINDS = frozenset({("networking.k8s.io", "Ingress"), ("networking.k8s.io", "NetworkPolicy")})
_ENTRIES = 200_000  # some tens of megabytes; beyond that the oldest are forgotten, which only costs a request


class ApplyCache:
    """Remembers, for one cluster, the last apply of every object by every field manager."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, Kind, NamespacedName], tuple[bytes, bytes]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def is_current(self, manager: str, kind: Kind, ref: NamespacedName, config: bytes, live: Object) -> bool:
        """Whether applying `config` (its digest) to `live` is known to change nothing."""
        known = self._entries.get((manager, kind, ref))
        return known is not None and known[0] == config and known[1] == fingerprint(kind, live)

    def remember(self, manager: str, kind: Kind, ref: NamespacedName, config: bytes, live: Object) -> None:
        """Note that applying `config` made `live`."""
        key = (manager, kind, ref)
        self._entries[key] = (config, fingerprint(kind, live))
        self._entries.move_to_end(key)
        if len(self._entries) > _ENTRIES:
            self._entries.popitem(last=False)

    def forget(self, manager: str, kind: Kind, ref: NamespacedName) -> None:
        """The next apply is sent, whatever it holds."""
        self._entries.pop((manager, kind, ref), None)


def digest(obj: Object) -> bytes:
    """The same bytes for the same content."""
    wire = obj if isinstance(obj, dict) else to_wire(obj)
    return hashlib.sha256(msgspec.json.encode(wire, order="deterministic")).digest()


def fingerprint(kind: Kind, live: Object) -> bytes:
    """What must stay the same for an apply to change nothing."""
    meta = metadata_of(live)
    if not (meta.generation and _counts_every_change(kind)):
        return f"{uid_of(live)} {revision_of(live)}".encode()
    settable = (
        *(meta.uid, meta.generation, meta.deletion_timestamp),
        *(meta.labels, meta.annotations, meta.finalizers, meta.owner_references),
    )
    return hashlib.sha256(msgspec.json.encode(settable, order="deterministic")).digest()


def _counts_every_change(kind: Kind) -> bool:
    if kind.group in _COUNTED_GROUPS or (kind.group, kind.kind) in _COUNTED_KINDS:
        return True
    return "." in kind.group and not kind.group.endswith(".k8s.io")
