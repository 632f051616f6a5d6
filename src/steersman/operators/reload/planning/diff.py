"""The diff: the current content of sources against what a workload's pods were started for. Pure.

An edge covers a set of keys (its *use*). While the use stays the same, the edge digest alone decides. When it changes,
the template or an annotation changed, and only keys used before and after can have changed; a key that is used from now
on is new, since the pods of the new template started with it.

When the comparison rules of a source change, the recorded content is compared by the rules it was recorded with. So a
change of rules is not a change of content, and no change hides behind it. Only a key that is ignored from now on never
counts.

A deleted source is not a change: pods keep what they have, and when it comes back it is compared with what they were
started for. A source or key that pods cannot start without, and that is missing, makes a restart wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from steersman.errors import FormatError
from steersman.operators.reload.api.config import SourceKind, SourceRef
from steersman.operators.reload.planning.edges import DependencyEdge
from steersman.operators.reload.planning.state import AppliedSource
from steersman.operators.reload.sources.compare import (
    IGNORE,
    MOST_MATCHES,
    deciding_rule,
    format_compare_rules,
    forms_by_key,
    parse_compare_rules,
)
from steersman.operators.reload.sources.digest import edge_digest, names_digest, short_digest
from steersman.operators.reload.sources.digest_keys import UNKEYED, DigestKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.operators.reload.sources.digest import Source

_LONGEST: Final = 1000  # characters of a list of sources
UNKNOWN: Final = "?"  # a digest that no source has: the pods may have been started for something else


class SourceChange(msgspec.Struct, frozen=True, order=True):
    """One source whose content changed."""

    source: SourceRef
    keys: tuple[str, ...] = ()  # empty: not known which

    def seen_from(self, namespace: str) -> str:
        """`configmap/app#mode,level`, as seen from `namespace`."""
        name = self.source.seen_from(namespace)
        return f"{name}#{','.join(self.keys)}" if self.keys else name


def describe(changes: Sequence[SourceChange], namespace: str) -> str:
    """The changed sources and keys in one line of bounded length: `configmap/app#mode secret/db and 3 more`."""
    shown: list[str] = []
    length = 0
    for change in changes:
        name = change.seen_from(namespace)
        length += len(name) + 1
        if length > _LONGEST:
            shown.append(f"and {len(changes) - len(shown)} more")
            break
        shown.append(name)
    return " ".join(shown)


def parse_changes(text: str, namespace: str) -> list[SourceChange]:
    """The changes that a record of a restart names: `configmap/app#mode,level secret/db`.

    >>> [str(change.source) for change in parse_changes("configmap/app#mode secret/lab/db and 3 more", "shop")]
    ['configmap/shop/app', 'secret/lab/db']
    >>> parse_changes("configmap/app#mode,lev…", "shop")[0].keys
    ('mode',)
    """
    found = []
    for word in text.split():
        name, _, keys = word.partition("#")
        try:
            source = SourceRef.parse(name, namespace)
        except FormatError:
            continue  # "and 3 more", or truncated
        whole = keys.split(",")[: -1 if keys.endswith("…") else None]  # the last key is truncated
        found.append(SourceChange(source, tuple(key for key in whole if key)))
    return found


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What one edge should be at."""

    edge: DependencyEdge
    entry: AppliedSource | None = None  # None: the source does not exist, and pods wait for it
    missing: str | None = None  # what pods cannot start without


def wanted(edge: DependencyEdge, source: Source | None, key: DigestKey = UNKEYED) -> Wanted:
    """What pods that start now would get through this edge, in digests of that key."""
    if source is None:
        if edge.source.kind is SourceKind.PROVIDER_CLASS:
            return Wanted(edge=edge)  # not mounted yet: neither a reason to wait nor to restart later
        if edge.optional:
            return Wanted(edge=edge, entry=AppliedSource(use=_use(edge)))
        return Wanted(edge=edge, missing="it does not exist")
    if edge.source.kind is SourceKind.CONFIGMAP:
        key = UNKEYED  # it holds nothing that must not be guessed, and can be compared without the right to a key
    used = {name: digest for name, digest in source.compared(edge.compare_rules).items() if edge.uses(name)}
    lacking = sorted(edge.required - source.digests.keys())
    entry = AppliedSource(
        digest=edge_digest(edge.source, used, key=key),
        use=_use(edge),
        keys={name: short_digest(edge.source, name, digest, key=key) for name, digest in used.items()},
        compare_rules=format_compare_rules(edge.compare_rules),
        key=key.id,
    )
    return Wanted(edge=edge, entry=entry, missing=f"it has no key {', '.join(lacking)}" if lacking else None)


def describe_compare_rules(edge: DependencyEdge, source: Source | None) -> tuple[str, ...]:
    """How the keys of a source are compared, and who says so, as far as one of its keys is concerned."""
    keys = [key for key in sorted(source.digests if source is not None else ()) if edge.uses(key)]
    keys = keys if len(keys) * len(edge.compare_rules) <= MOST_MATCHES else []
    deciding = dict.fromkeys(rule for key in keys if (rule := deciding_rule(key, edge.compare_rules)) is not None)
    return tuple(f"{rule} ({rule.where})" for rule in deciding)


def changed_since(
    before: AppliedSource, now: Wanted, source: Source | None, key: DigestKey = UNKEYED
) -> tuple[str, ...] | None:
    """The keys of an edge that changed since `before`, as far as known; None when none did.

    `key`: the one that `before` names. It is compared as it was written down: with that key, and by its rules.
    """
    if now.entry is None or (now.entry.compare_rules, now.entry.key) == (before.compare_rules, before.key):
        return None if now.entry is None else changed_keys(before, now.entry)
    was = wanted(
        msgspec.structs.replace(now.edge, compare_rules=parse_compare_rules(before.compare_rules)), source, key
    ).entry
    keys = None if was is None else changed_keys(before, was)
    if not keys:
        return keys
    forms = forms_by_key(keys, now.edge.compare_rules)
    return tuple(key for key in keys if forms.get(key) != IGNORE) or None


def changed_keys(applied: AppliedSource, now: AppliedSource) -> tuple[str, ...] | None:
    """The keys that differ, for entries with the same compare rules, as far as known; None when nothing does."""
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


def _use(edge: DependencyEdge) -> str:
    ignored = f"!{names_digest([str(pattern) for pattern in edge.ignored])}" if edge.ignored else ""
    return f"{'*' if edge.keys is None else names_digest(edge.keys)}{ignored}"
