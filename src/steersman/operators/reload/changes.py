"""Changes: what sources say now, against what a workload's pods were started for. Pure.

An edge is over a set of keys (its *use*). While the use stays the same, the edge digest alone decides. When it changes,
somebody changed the template or an annotation, and only keys that were used before and still are can have changed; a
key that is used from now on is new, since the pods of the new template started with it.

A source may be compared in another way than before. What pods were started for is then compared in the way in which it
was written down: so to compare otherwise is no change, and no change hides behind it. Only a key that is ignored from
now on is none, whatever happened to it.

A source that is gone is no change: pods keep what they have, and when it comes back it is compared with what they were
started for. A source or key that pods cannot start without, and that is missing, makes a restart wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from steersman.operators.reload.comparison import IGNORE, form_of, read_ways, way_of, ways_text
from steersman.operators.reload.digest import edge_digest, names_digest, short_digest
from steersman.operators.reload.edges import Edge
from steersman.operators.reload.state import Entry
from steersman.operators.reload.types import SourceKind, SourceRef

if TYPE_CHECKING:
    from steersman.operators.reload.digest import Source

__all__ = ["UNKNOWN", "Change", "Wanted", "changed_keys", "changed_since", "told_ways", "wanted"]

UNKNOWN: Final = "?"  # a digest that no source has: the pods may have been started for something else


class Change(msgspec.Struct, frozen=True, order=True):
    """One source that says something new."""

    source: SourceRef
    keys: tuple[str, ...] = ()  # empty: nobody knows which

    def seen_from(self, namespace: str) -> str:
        """`configmap/app#mode,level`, as somebody in `namespace` says it."""
        name = self.source.seen_from(namespace)
        return f"{name}#{','.join(self.keys)}" if self.keys else name


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What one edge should be at."""

    edge: Edge
    entry: Entry | None = None  # None: the source does not exist, and pods wait for it
    missing: str | None = None  # what pods cannot start without


def wanted(edge: Edge, source: Source | None) -> Wanted:
    """What pods that start now would get through this edge."""
    if source is None:
        if edge.source.kind is SourceKind.PROVIDER_CLASS:
            return Wanted(edge=edge)  # nobody has mounted it yet: that is no reason to wait, nor to restart later
        if edge.optional:
            return Wanted(edge=edge, entry=Entry(use=_use(edge)))
        return Wanted(edge=edge, missing="it does not exist")
    used = {key: digest for key, digest in source.compared(edge.ways).items() if edge.uses(key)}
    lacking = sorted(edge.required - source.digests.keys())
    entry = Entry(
        digest=edge_digest(edge.source, used),
        use=_use(edge),
        keys={key: short_digest(edge.source, key, digest) for key, digest in used.items()},
        ways=ways_text(edge.ways),
    )
    return Wanted(edge=edge, entry=entry, missing=f"it has no key {', '.join(lacking)}" if lacking else None)


def told_ways(edge: Edge, source: Source | None) -> tuple[str, ...]:
    """How the keys of a source are compared, and who says so, as far as one of its keys is concerned."""
    keys = [key for key in sorted(source.digests if source is not None else ()) if edge.uses(key)]
    deciding = dict.fromkeys(way for key in keys if (way := way_of(key, edge.ways)) is not None)
    return tuple(f"{way} ({way.where})" for way in deciding)


def changed_since(before: Entry, now: Wanted, source: Source | None) -> tuple[str, ...] | None:
    """The keys of an edge that changed since `before`, as far as known; None when none did."""
    if now.entry is None or now.entry.ways == before.ways:
        return None if now.entry is None else changed_keys(before, now.entry)
    was = wanted(msgspec.structs.replace(now.edge, ways=read_ways(before.ways)), source).entry
    keys = None if was is None else changed_keys(before, was)
    if not keys:
        return keys
    return tuple(key for key in keys if form_of(key, now.edge.ways) != IGNORE) or None


def changed_keys(applied: Entry, now: Entry) -> tuple[str, ...] | None:
    """The keys that differ, for entries of the same ways, as far as known; None when nothing does."""
    if applied.digest == UNKNOWN and applied.keys is None and now.digest:
        return ()
    if not now.digest or (applied.digest == now.digest and applied.use == now.use):
        return None
    if not applied.digest:
        return tuple(sorted(now.keys or ()))
    if applied.use == now.use:
        if applied.keys is None or now.keys is None:
            return ()
        return tuple(sorted(key for key in {*applied.keys, *now.keys} if applied.keys.get(key) != now.keys.get(key)))
    before, after = applied.keys or {}, now.keys or {}
    both = before.keys() & after.keys()
    changed = tuple(sorted(key for key in both if before[key] != after[key]))
    return changed or None


def _use(edge: Edge) -> str:
    ignored = f"!{names_digest([str(pattern) for pattern in edge.ignored])}" if edge.ignored else ""
    return f"{'*' if edge.keys is None else names_digest(edge.keys)}{ignored}"
