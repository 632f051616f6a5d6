"""The three-way plan: what is there, who owns it, and what should be; then what to write. Pure.

    no drift ──► nothing is written       drift ──► apply our keys ──► prune what is not wanted any more

Other people's keys, labels and annotations are never part of a plan, and `overrides.yaml` is in none of its lists.
`plan_object` of an object as the plan leaves it is empty: that is what makes the reconciler quiet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.errors import FormatError
from steersman.operators.toolset.blockyaml import load
from steersman.operators.toolset.layout import content_hash
from steersman.operators.toolset.types import HOLMES_KEY, INDEX_KEY, OVERRIDES_KEY, ExtraKeys

if TYPE_CHECKING:
    from steersman.operators.toolset.objects import TargetMap

__all__ = [
    "LABELS",
    "MANAGED_BY",
    "TOLD",
    "Desired",
    "Drift",
    "ObjectPlan",
    "Operation",
    "manages",
    "owned_keys",
    "plan_object",
    "stamped",
]

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABELS: Final = {
    "app.kubernetes.io/name": "kubernaut-toolset",
    "app.kubernetes.io/component": "toolset",
    MANAGED_BY: "steersman",
}
TOLD: Final = "notified-hash"  # annotation: the content of which the consumer was told by a call
_OURS: Final = re.compile(r"[a-z0-9.-]+-toolset\.yaml")
_QUIET_ANNOTATIONS: Final = ("generated-at", "conflict-count")  # told with the next change, never a reason for one


class Operation(StrEnum):
    """What a plan does; also a label of metrics."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    NOOP = "noop"


class Drift(StrEnum):
    """Kinds of drift, as reports and metrics name them."""

    MISSING = "missing"
    MODIFIED = "modified"
    EXTRA = "extra"
    COSMETIC = "cosmetic"  # other bytes of the same meaning
    METADATA = "metadata"
    OWNERSHIP = "ownership"  # another manager took a key of ours
    FOREIGN = "foreign"  # somebody's own key: no drift, only told
    IMMUTABLE = "immutable"
    DELETED = "deleted"


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    """What one ConfigMap should hold of ours."""

    name: str
    namespace: str
    data: Mapping[str, str]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]  # names with prefix
    prefix: str


class ObjectPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with one ConfigMap."""

    operation: Operation
    drift: tuple[str, ...] = ()  # sorted: `missing:KEY` and so on
    prune: tuple[str, ...] = ()  # keys to take out
    write: bool = False  # whether our keys are applied
    blocked: bool = False  # immutable: nothing can be written

    @property
    def counted(self) -> tuple[str, ...]:
        """What counts as drift: not what is only cosmetic, and not what belongs to others."""
        quiet = (f"{Drift.COSMETIC}:", f"{Drift.FOREIGN}:")
        return tuple(one for one in self.drift if not one.startswith(quiet))


def plan_object(
    current: TargetMap | None, desired: Desired, *, manager: str, extra_keys: ExtraKeys, existed: bool = False
) -> ObjectPlan:
    """What makes `current` into `desired`. `existed`: it was there before, so somebody deleted it."""
    if current is None:
        missing = tuple(sorted(f"{Drift.MISSING}:{key}" for key in desired.data))
        gone = (Drift.DELETED.value,) if existed else missing
        return ObjectPlan(operation=Operation.CREATE, drift=gone, write=True)
    data = current.data or {}
    owned = owned_keys(current, manager)
    drift = _data_drift(data, desired.data, owned)
    prune = []
    for key in sorted(data.keys() - desired.data.keys() - {OVERRIDES_KEY}):
        if _prunable(key, owned, extra_keys):
            drift.append(f"{Drift.EXTRA}:{key}")
            prune.append(key)
        else:
            drift.append(f"{Drift.FOREIGN}:{key}")
    follows = any(not one.startswith(f"{Drift.FOREIGN}:") for one in drift)  # the hash and counts of new content
    drift += _metadata_drift(current, desired, annotations=not follows)
    wanted = [one for one in drift if not one.startswith(f"{Drift.FOREIGN}:")]
    if not wanted:
        return ObjectPlan(operation=Operation.NOOP, drift=tuple(sorted(drift)))
    if current.immutable:
        return ObjectPlan(
            operation=Operation.UPDATE, drift=tuple(sorted([*drift, Drift.IMMUTABLE.value])), blocked=True
        )
    write = any(not one.startswith(f"{Drift.EXTRA}:") for one in wanted) or bool(prune)
    return ObjectPlan(operation=Operation.UPDATE, drift=tuple(sorted(drift)), prune=tuple(prune), write=write)


def _data_drift(data: Mapping[str, str], desired: Mapping[str, str], owned: frozenset[str]) -> list[str]:
    drift = []
    for key, value in desired.items():
        if key not in data:
            drift.append(f"{Drift.MISSING}:{key}")
        elif data[key] != value:
            same = _same_meaning(data[key], value)
            drift.append(f"{Drift.COSMETIC if same else Drift.MODIFIED}:{key}")
        if key in data and key not in owned:
            drift.append(f"{Drift.OWNERSHIP}:{key}")
    return drift


def _metadata_drift(current: TargetMap, desired: Desired, *, annotations: bool) -> list[str]:
    quiet = {f"{desired.prefix}{name}" for name in _QUIET_ANNOTATIONS}
    labels = [name for name, value in desired.labels.items() if current.labels.get(name) != value]
    told = {**dict.fromkeys([f"{desired.prefix}override-error"]), **desired.annotations}
    if annotations:
        labels += [name for name, value in told.items() if name not in quiet and current.annotations.get(name) != value]
    return [f"{Drift.METADATA}:{name}" for name in labels]


def _prunable(key: str, owned: frozenset[str], extra_keys: ExtraKeys) -> bool:
    if extra_keys is ExtraKeys.KEEP:
        return False
    return extra_keys is ExtraKeys.PRUNE_ALL or key in owned or manages(key)


def manages(key: str) -> bool:
    """Whether a key is ours by its name."""
    return key in (HOLMES_KEY, INDEX_KEY) or _OURS.fullmatch(key) is not None


def owned_keys(current: TargetMap, manager: str) -> frozenset[str]:
    """The keys of the data that this field manager owns."""
    return frozenset((current.owners or {}).get(manager, ()))


def _same_meaning(one: str, other: str) -> bool:
    try:
        left, right = load(one, max_bytes=2_000_000), load(other, max_bytes=2_000_000)
    except FormatError:
        return False
    return type(left) is type(right) and left == right


def stamped(desired: Desired, current: TargetMap | None, *, now: str) -> Desired:
    """With the hash of the content, and with the time at which that hash came to be."""
    digest = content_hash(desired.data)
    name, when = f"{desired.prefix}content-hash", f"{desired.prefix}generated-at"
    known = current.annotations if current is not None else {}
    since = known.get(when) if known.get(name) == digest else None
    return msgspec.structs.replace(desired, annotations={**desired.annotations, name: digest, when: since or now})
