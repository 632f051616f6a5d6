"""The plan: current and desired state → what to write, ConfigMap by ConfigMap. Pure; the values are a diff that prints.

    no drift ──► nothing is written       drift ──► apply our keys ──► prune keys that are no longer desired

Keys, labels and annotations of other owners are never part of a plan, and `overrides.yaml` is in none of its lists.
`plan_object` of an object as the plan leaves it is empty, so the reconciler writes nothing when nothing differs. Parts
come first, then the base, then surplus parts: a consumer finds every key at every moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from steersman.errors import FormatError
from steersman.kube.api.gvk import NamespacedName
from steersman.operators.toolset.api.config import OVERRIDES_KEY, ExtraKeys
from steersman.operators.toolset.api.crd import TargetConfigMap
from steersman.operators.toolset.reconcile.current import (
    LABELS,
    Backup,
    backup_data,
    backup_ref,
    is_managed_key,
    owned_keys,
)
from steersman.operators.toolset.render.layout import content_hash, part_name
from steersman.operators.toolset.render.yaml import load
from steersman.text import some_of

if TYPE_CHECKING:
    from steersman.operators.toolset.api.config import TargetSettings
    from steersman.operators.toolset.reconcile.current import CurrentState
    from steersman.operators.toolset.reconcile.desired import DesiredState
    from steersman.operators.toolset.render.layout import Layout

NOTIFIED_HASH: Final = "notified-hash"  # annotation: the content that the consumer was notified of
PART_LABEL: Final = "steersman.dev/part"
_LONGEST_LABEL: Final = 63
_QUIET_ANNOTATIONS: Final = ("generated-at", "conflict-count")  # written with the next change, never a reason for one


class Operation(StrEnum):
    """What a plan does; also a label of metrics."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    NOOP = "noop"


class DriftKind(StrEnum):
    """Kinds of drift, as reports and metrics name them."""

    MISSING = "missing"
    MODIFIED = "modified"
    EXTRA = "extra"
    COSMETIC = "cosmetic"  # other bytes, the same value
    METADATA = "metadata"
    OWNERSHIP = "ownership"  # another manager took a key of ours
    FOREIGN = "foreign"  # a key of another owner: reported, but not drift
    IMMUTABLE = "immutable"
    DELETED = "deleted"


class DesiredConfigMap(msgspec.Struct, frozen=True, kw_only=True):
    """What this operator writes to one ConfigMap."""

    name: str
    namespace: str
    data: Mapping[str, str]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]  # full names
    prefix: str


class ObjectPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with one ConfigMap."""

    operation: Operation
    drift: tuple[str, ...] = ()  # sorted: `missing:KEY` and so on
    prune: tuple[str, ...] = ()  # keys to remove
    write: bool = False  # whether our keys are applied
    blocked: bool = False  # immutable: nothing can be written

    @property
    def counted(self) -> tuple[str, ...]:
        """What counts as drift: not what is only cosmetic, and not what belongs to other owners."""
        quiet = (f"{DriftKind.COSMETIC}:", f"{DriftKind.FOREIGN}:")
        return tuple(item for item in self.drift if not item.startswith(quiet))


class PlanStep(msgspec.Struct, frozen=True):
    """The plan for one ConfigMap, with both states it follows from."""

    plan: ObjectPlan
    desired: DesiredConfigMap
    current: TargetConfigMap | None


class TargetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan for a whole target."""

    steps: tuple[PlanStep, ...]  # in the order of writing
    backup: PlanStep | None = None  # None: nothing to write

    @property
    def drift(self) -> tuple[str, ...]:
        """What counts as drift, sorted."""
        return tuple(sorted({item for step in self.steps for item in step.plan.counted}))

    @property
    def is_blocked(self) -> bool:
        """Whether a ConfigMap is immutable and has to change."""
        return any(step.plan.blocked for step in self.steps)

    @property
    def digest(self) -> str:
        """The hash of everything a consumer reads."""
        hashes = {
            step.desired.name: step.desired.annotations.get(f"{step.desired.prefix}content-hash", "")
            for step in self.steps
        }
        return ".".join(hashes[name][:16] for name in sorted(hashes) if hashes[name])


def plan_target(
    desired: DesiredState,
    current: CurrentState,
    settings: TargetSettings,
    *,
    manager: str,
    now: str,
    conflicts: int = 0,
) -> TargetPlan:
    """Plan the parts, the base, the removal of surplus parts, and the backup."""

    def plan(wanted: DesiredConfigMap, found: TargetConfigMap | None, *, existed: bool) -> PlanStep:
        stamped = stamp(wanted, found, now=now)
        made = plan_object(found, stamped, manager=manager, extra_keys=settings.extra_keys, existed=existed)
        return PlanStep(made, stamped, found)

    layout = desired.layout
    parts = [
        plan(_part(settings, number, data), current.parts.get(number), existed=False)
        for number, data in layout.parts.items()
    ]
    base = plan(_base(settings, desired, current, conflicts), current.base, existed=current.existed)
    surplus = [_removal(part, settings) for number, part in current.parts.items() if number not in layout.parts]
    return TargetPlan(steps=(*parts, base, *surplus), backup=_plan_backup(desired, current, settings))


class KeyChange(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a ConfigMap that holds another text once manifests are applied."""

    configmap: str
    namespace: str
    key: str
    action: str  # create, update, delete
    why: str  # the Services that cause it


def changed_keys(before: DesiredState, after: DesiredState, settings: TargetSettings) -> list[KeyChange]:
    """The keys of the ConfigMaps that differ between two desired states."""
    old, new = _texts(before.layout, settings.name), _texts(after.layout, settings.name)
    was, becomes = _rendered(before), _rendered(after)
    services = sorted({str(ref) for ref, _ in was ^ becomes})
    return [
        KeyChange(
            configmap=name,
            namespace=settings.namespace,
            key=key,
            action=Operation.CREATE if place not in old else Operation.DELETE if place not in new else Operation.UPDATE,
            why=f"service {some_of(services)}" if services else OVERRIDES_KEY,
        )
        for place in sorted(old.keys() | new.keys())
        for name, key in [place]
        if old.get(place) != new.get(place)
    ]


def _texts(layout: Layout, name: str) -> dict[tuple[str, str], str]:
    """Every key of every ConfigMap, with its text."""
    parts = {part_name(name, number): data for number, data in layout.parts.items()}
    return {(title, key): text for title, data in {name: layout.base, **parts}.items() for key, text in data.items()}


def _rendered(state: DesiredState) -> set[tuple[NamespacedName, str]]:
    """The Services that the ConfigMaps mention, and as what."""
    return {
        (found.candidate.ref, f"{found.candidate.type} {found.candidate.url}") for found in state.discovery.included
    }


def plan_object(
    current: TargetConfigMap | None,
    desired: DesiredConfigMap,
    *,
    manager: str,
    extra_keys: ExtraKeys,
    existed: bool = False,
) -> ObjectPlan:
    """What makes `current` into `desired`. `existed`: it existed before, so it was deleted."""
    if current is None:
        missing = tuple(sorted(f"{DriftKind.MISSING}:{key}" for key in desired.data))
        gone = (DriftKind.DELETED.value,) if existed else missing
        return ObjectPlan(operation=Operation.CREATE, drift=gone, write=True)
    data = current.data or {}
    owned = owned_keys(current, manager)
    drift = _data_drift(data, desired.data, owned)
    prune = []
    for key in sorted(data.keys() - desired.data.keys() - {OVERRIDES_KEY}):
        if _prunable(key, owned, extra_keys):
            drift.append(f"{DriftKind.EXTRA}:{key}")
            prune.append(key)
        else:
            drift.append(f"{DriftKind.FOREIGN}:{key}")
    content = [item for item in drift if not item.startswith(f"{DriftKind.FOREIGN}:")]
    wanted = [*content, *_metadata_drift(current, desired, annotations=not content)]  # hash and counts follow content
    drift = sorted({*drift, *wanted})
    if not wanted:
        return ObjectPlan(operation=Operation.NOOP, drift=tuple(drift))
    if current.immutable:
        drift = sorted([*drift, DriftKind.IMMUTABLE.value])
        return ObjectPlan(operation=Operation.UPDATE, drift=tuple(drift), blocked=True)
    return ObjectPlan(operation=Operation.UPDATE, drift=tuple(drift), prune=tuple(prune), write=True)


def _data_drift(data: Mapping[str, str], desired: Mapping[str, str], owned: frozenset[str]) -> list[str]:
    drift = []
    for key, value in desired.items():
        if key not in data:
            drift.append(f"{DriftKind.MISSING}:{key}")
        elif data[key] != value:
            same = _is_same_value(data[key], value)
            drift.append(f"{DriftKind.COSMETIC if same else DriftKind.MODIFIED}:{key}")
        if key in data and key not in owned:
            drift.append(f"{DriftKind.OWNERSHIP}:{key}")
    return drift


def _metadata_drift(current: TargetConfigMap, desired: DesiredConfigMap, *, annotations: bool) -> list[str]:
    quiet = {f"{desired.prefix}{name}" for name in _QUIET_ANNOTATIONS}
    labels = [name for name, value in desired.labels.items() if current.labels.get(name) != value]
    wanted = {**dict.fromkeys([f"{desired.prefix}override-error"]), **desired.annotations}
    if annotations:
        labels += [
            name for name, value in wanted.items() if name not in quiet and current.annotations.get(name) != value
        ]
    return [f"{DriftKind.METADATA}:{name}" for name in labels]


def _prunable(key: str, owned: frozenset[str], extra_keys: ExtraKeys) -> bool:
    if extra_keys is ExtraKeys.KEEP:
        return False
    return extra_keys is ExtraKeys.PRUNE_ALL or key in owned or is_managed_key(key)


def _is_same_value(text: str, other: str) -> bool:
    try:
        left, right = load(text, max_bytes=2_000_000), load(other, max_bytes=2_000_000)
    except FormatError:
        return False
    return type(left) is type(right) and left == right


def stamp(desired: DesiredConfigMap, current: TargetConfigMap | None, *, now: str) -> DesiredConfigMap:
    """Add the hash of the content, and the time at which the content first had that hash."""
    digest = content_hash(desired.data)
    name, when = f"{desired.prefix}content-hash", f"{desired.prefix}generated-at"
    known = current.annotations if current is not None else {}
    since = known.get(when) if known.get(name) == digest else None
    return replace(desired, annotations={**desired.annotations, name: digest, when: since or now})


# -- the objects of a target -------------------------------------------------------------------------------------------


def _part(settings: TargetSettings, number: int, data: Mapping[str, str]) -> DesiredConfigMap:
    labels = {
        **LABELS,
        "app.kubernetes.io/part-of": settings.name[:_LONGEST_LABEL].rstrip("-."),
        PART_LABEL: str(number),
    }
    return DesiredConfigMap(
        name=part_name(settings.name, number),
        namespace=settings.namespace,
        data=data,
        labels=labels,
        annotations={},
        prefix=settings.prefix,
    )


def _base(settings: TargetSettings, desired: DesiredState, current: CurrentState, conflicts: int) -> DesiredConfigMap:
    written = {
        "discovered-services": str(len(desired.discovery.included)),
        "override-services": str(len(desired.overrides)),
        "conflict-count": str(conflicts),
    }
    known = current.base.annotations if current.base is not None else {}
    if (notified := known.get(f"{settings.prefix}{NOTIFIED_HASH}")) is not None:
        written[NOTIFIED_HASH] = notified  # an apply without it would remove it
    if desired.override_error:
        written["override-error"] = desired.override_error[:500]
    return DesiredConfigMap(
        name=settings.name,
        namespace=settings.namespace,
        data=desired.layout.base,
        labels=LABELS,
        annotations={f"{settings.prefix}{name}": value for name, value in written.items()},
        prefix=settings.prefix,
    )


def _removal(part: TargetConfigMap, settings: TargetSettings) -> PlanStep:
    drift = tuple(f"{DriftKind.EXTRA}:{key}" for key in sorted(part.data or {}))
    return PlanStep(ObjectPlan(operation=Operation.DELETE, drift=drift), _empty(part.ref, settings), part)


def _plan_backup(desired: DesiredState, current: CurrentState, settings: TargetSettings) -> PlanStep | None:
    """Keep what cannot be recomputed: the keys of other owners, the last valid overrides, the included Services."""
    ref = backup_ref(NamespacedName(settings.name, settings.namespace))
    if ref.name in current.taken:
        return None
    backup = Backup(known=desired.known_services)
    if settings.preserve_overrides:
        backup = replace(backup, foreign=dict(current.foreign))
        if current.overrides is not None:
            last_valid = current.backup.last_valid if desired.override_error else current.overrides
            backup = replace(backup, last_valid=last_valid)
    found = current.backup_object
    if not backup.foreign and not backup.last_valid and backup.known is None:
        empty = _empty(ref, settings)
        return None if found is None else PlanStep(ObjectPlan(operation=Operation.DELETE), empty, found)
    if found is not None and current.backup == backup:
        return None
    operation = Operation.CREATE if found is None else Operation.UPDATE
    wanted = replace(_empty(ref, settings), data=backup_data(backup), labels=LABELS)
    return PlanStep(ObjectPlan(operation=operation, write=True), wanted, found)


def _empty(ref: NamespacedName, settings: TargetSettings) -> DesiredConfigMap:
    return DesiredConfigMap(
        name=ref.name, namespace=ref.namespace, data={}, labels={}, annotations={}, prefix=settings.prefix
    )
