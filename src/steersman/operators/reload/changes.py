"""Changes: what sources say now, against what a workload's pods were started for. Pure.

An edge is over a set of keys (its *use*). While the use stays the same, the edge digest alone decides. When it changes,
somebody changed the template or an annotation, and only keys that were used before and still are can have changed; a
key that is used from now on is new, since the pods of the new template started with it.

A source that is gone is no change: pods keep what they have, and when it comes back it is compared with what they were
started for. A source or key that pods cannot start without, and that is missing, makes a restart wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from steersman.operators.reload.digest import edge_digest, names_digest, short_digest
from steersman.operators.reload.edges import Edge
from steersman.operators.reload.state import Entry
from steersman.operators.reload.types import SourceKind, SourceRef

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.operators.reload.digest import Source

__all__ = ["Change", "Wanted", "changed_keys", "wanted"]


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
    plain: dict[str, str] = {}  # short digests as bytes, of keys that are compared in another form


def wanted(edge: Edge, source: Source | None) -> Wanted:
    """What pods that start now would get through this edge."""
    if source is None:
        if edge.source.kind is SourceKind.PROVIDER_CLASS:
            return Wanted(edge=edge)  # nobody has mounted it yet: that is no reason to wait, nor to restart later
        if edge.optional:
            return Wanted(edge=edge, entry=Entry(use=_use(edge)))
        return Wanted(edge=edge, missing="it does not exist")
    used = {key: digest for key, digest in source.digests.items() if edge.uses(key)}
    lacking = sorted(edge.required - source.digests.keys())
    entry = Entry(
        digest=edge_digest(edge.source, used),
        use=_use(edge, source.compared),
        keys={
            key: _marked(short_digest(edge.source, key, digest), source.forms.get(key, ""))
            for key, digest in used.items()
        },
    )
    return Wanted(
        edge=edge,
        entry=entry,
        missing=f"it has no key {', '.join(lacking)}" if lacking else None,
        plain={key: short_digest(edge.source, key, one) for key, one in source.plain.items() if edge.uses(key)},
    )


def changed_keys(applied: Entry, now: Entry, plain: Mapping[str, str] | None = None) -> tuple[str, ...] | None:
    """The keys that differ, as far as known; None when nothing does.

    `plain` are digests as bytes, for keys that are compared in another form from now on: to compare them otherwise is
    no change by itself.
    """
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
    changed = tuple(sorted(key for key in both if _differ(before[key], after[key], (plain or {}).get(key))))
    return changed or None


def _differ(before: str, after: str, plain: str | None) -> bool:
    """Whether a key changed, for digests that may be of different forms; what cannot be compared counts as new."""
    form, _, _ = before.rpartition(_FORM)
    if form == after.rpartition(_FORM)[0]:
        return before != after
    return not form and plain is not None and before != plain


_FORM: Final = "~"  # between the form and the digest; digests of plain bytes have no form


def _marked(digest: str, form: str) -> str:
    return f"{form}{_FORM}{digest}" if form else digest


def _use(edge: Edge, compared: str = "") -> str:
    ignored = f"!{names_digest([str(pattern) for pattern in edge.ignored])}" if edge.ignored else ""
    way = f"{_FORM}{compared}" if compared else ""
    return f"{'*' if edge.keys is None else names_digest(edge.keys)}{ignored}{way}"
