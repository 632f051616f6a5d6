"""Who owns which field: `metadata.managedFields` after a create, an update or a patch.

Every write has a manager. A manager that changes a field takes it from all others that owned it; a field that
disappears has no owner. Appliers and updaters of the same name are different managers, and so are writers of different
subresources. An entry's time moves only when its manager took something.

Invariant: the entries that come out are in the server's order and form, so they are stored as they are and read back
without parsing. What a client sends as managedFields is parsed; what this module wrote before is trusted.

Server-side apply, which also removes fields, is in `apply.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from steersman.apiserver.patch import field_sets as sets
from steersman.apiserver.patch.field_sets import FieldSet, json_text
from steersman.apiserver.patch.typed_values import Comparison, TypedError, compare, reconciled
from steersman.apiserver.resources.conform import zero

if TYPE_CHECKING:
    from steersman.apiserver.resources.schema import Schema

APPLY: Final = "Apply"
UPDATE: Final = "Update"
MAX_UPDATERS: Final = 10  # beyond this many, the oldest updaters are merged into one
ANCIENT: Final = "ancient-changes"
UNTRACKED: Final[FieldSet] = {  # the identity of an object has no owner
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        ".": {},
        "f:name": {},
        "f:namespace": {},
        "f:creationTimestamp": {},
        "f:selfLink": {},
        "f:uid": {},
        "f:clusterName": {},
        "f:generation": {},
        "f:managedFields": {},
        "f:resourceVersion": {},
    },
}

Object = dict[str, Any]
# From an object and a version to the object in that version and its schema; None when the version is not served.
Converter = Callable[[Object, str], "tuple[Schema, Object] | None"]


class FieldsManager(NamedTuple):
    """Whose fields: for appliers the version is not part of the identity."""

    name: str
    operation: str
    api_version: str
    subresource: str

    def identifier(self) -> str:
        """The name the server sorts managers by."""
        parts = {"manager": self.name, "operation": self.operation, "apiVersion": self.api_version}
        parts["subresource"] = self.subresource
        return "{" + ",".join(f'"{key}":{json_text(value)}' for key, value in parts.items() if value) + "}"


class Owned(NamedTuple):
    """What a manager owns, in which version, and since when."""

    fields: FieldSet
    api_version: str
    time: str | None
    entry: Object | None = None  # the stored entry that says exactly this


Managed = dict[FieldsManager, Owned]


def track_update(
    schema: Schema,
    old: Object | None,
    new: Object,
    *,
    manager: str,
    api_version: str,
    now: str,
    subresource: str = "",
    convert: Converter | None = None,
) -> Object:
    """`new` with the managedFields it has after `manager` wrote it over `old` (None: it is created).

    `new` is what the request makes of the object: conformed and defaulted, before the server fills in or resets fields.
    `convert` shows an object in the versions of other managers; without it all versions look alike.
    """
    managed = _managed_before(old, new, subresource)
    if old is not None and not managed:
        return without_managed(new)
    writer = FieldsManager(manager or "unknown", UPDATE, api_version, subresource)
    bare = without_managed(new)
    try:
        managed = record_update(schema, old, bare, managed, writer, now=now, convert=convert)
    except TypedError:
        return bare  # the object does not fit its own type: the server too keeps no owners then
    return with_managed(bare, managed)


def _managed_before(old: Object | None, new: Object, subresource: str) -> Managed:
    """Whose managedFields count: the request's when it says something usable, else those of the stored object."""
    stored = old["metadata"].get("managedFields") if old is not None else None
    sent = new.get("metadata", {}).get("managedFields")
    if subresource or sent is None or sent is stored or sent == stored:
        return decode(stored)
    if sent in ([], [{}]):
        return {}
    try:
        return decode(sent, trusted=False) or decode(stored)
    except ValueError:
        return decode(stored)


def record_update(
    schema: Schema,
    old: Object | None,
    new: Object,
    managed: Managed,
    writer: FieldsManager,
    *,
    now: str,
    convert: Converter | None = None,
) -> Managed:
    """The owners after `writer` turned `old` into `new`."""
    before = zero(schema) if old is None else old
    managed = reconcile(schema, managed)
    change, managed = settle(schema, before, new, managed, None, writer=writer, convert=convert)
    taken = sets.union(change.modified, change.added)
    taken = sets.difference(taken, UNTRACKED)
    if taken:
        previous = managed.get(writer)
        if previous is not None:
            taken = sets.union(taken, previous.fields)
        managed[writer] = Owned(taken, writer.api_version, now)
    return _cap(managed)


def settle(
    schema: Schema,
    old: Object,
    new: Object,
    managed: Managed,
    besides: FieldsManager | None,
    *,
    writer: FieldsManager,
    convert: Converter | None,
    conflicts: dict[FieldsManager, FieldSet] | None = None,
) -> tuple[Comparison, Managed]:
    """What changed, and the owners without what changed or disappeared. `besides` keeps everything it has.

    What was taken from others is noted in `conflicts`.
    """
    change = _filtered(schema, compare(schema, old, new), writer.subresource)
    changes: dict[str, Comparison | None] = {writer.api_version: change}
    out: Managed = {}
    for manager, owned in managed.items():
        if manager == besides:
            out[manager] = owned
            continue
        version = owned.api_version
        if version not in changes:
            changes[version] = _compare_in(version, old, new, writer.subresource, convert) if convert else change
        seen = changes[version]
        if seen is None:
            continue  # a version that is no longer served
        left = owned.fields
        if taken := sets.intersection(left, sets.union(seen.modified, seen.added)):
            if conflicts is not None:
                conflicts[manager] = taken
            left = sets.difference(left, taken)
        left = sets.difference(left, seen.removed)
        if left:
            out[manager] = owned if left == owned.fields else Owned(left, version, owned.time)
    return change, out


def _compare_in(version: str, old: Object, new: Object, subresource: str, convert: Converter) -> Comparison | None:
    """The same change seen in another version of the kind; None when that version does not exist any more."""
    before, after = convert(old, version), convert(new, version)
    if before is None or after is None:
        return None
    return _filtered(before[0], compare(before[0], before[1], after[1]), subresource)


def _filtered(schema: Schema, change: Comparison, subresource: str) -> Comparison:
    """A change without the fields a write to this subresource may not touch."""
    resets = schema.resets.get(subresource)
    return Comparison(*(sets.prune(part, resets) for part in change)) if resets else change


def reconcile(schema: Schema, managed: Managed) -> Managed:
    """The owners in terms of the type as it is now; the types of built-in kinds do not change."""
    if schema.builtin:
        return managed
    out: Managed = {}
    for manager, owned in managed.items():
        fields = reconciled(schema, owned.fields)
        out[manager] = owned if fields is owned.fields else Owned(fields, owned.api_version, owned.time)
    return out


def _cap(managed: Managed) -> Managed:
    """Merge the oldest updaters of a version into one until few enough are left."""
    updaters = [manager for manager in managed if manager.operation == UPDATE]
    excess = len(updaters) - MAX_UPDATERS
    if excess <= 0:
        return managed
    updaters.sort(key=lambda manager: (managed[manager].time or "", manager.identifier()))
    first: dict[str, FieldsManager] = {}
    for manager in updaters:
        if excess <= 0:
            break
        owned = managed[manager]
        if owned.api_version not in first:
            first[owned.api_version] = manager
            continue
        bucket = FieldsManager(ANCIENT, UPDATE, owned.api_version, "")
        if bucket not in managed:
            managed[bucket] = managed.pop(first[owned.api_version])
        fields = sets.union(owned.fields, managed[bucket].fields)
        managed[bucket] = Owned(fields, owned.api_version, owned.time)
        if manager != bucket:
            del managed[manager]
        excess -= 1
    return managed


def decode(entries: list[Object] | None, *, trusted: bool = True) -> Managed:
    """The owners that entries name. Raises ValueError when entries of a request make no sense."""
    managed: Managed = {}
    for entry in entries or ():
        operation, version = entry.get("operation", ""), entry.get("apiVersion", "")
        fields, time = entry.get("fieldsV1", {}), entry.get("time")
        if not trusted:
            if operation not in {APPLY, UPDATE}:
                raise ValueError("operation must be `Apply` or `Update`")
            if not version:
                raise ValueError("apiVersion must not be empty")
            if entry.get("fieldsType") != "FieldsV1":
                raise ValueError(f"invalid fieldsType {entry.get('fieldsType')!r}")
            fields, time = sets.parse({} if fields is None else fields), _normal_time(time)
        known = "" if operation == APPLY else version
        manager = FieldsManager(entry.get("manager", ""), operation, known, entry.get("subresource", ""))
        managed[manager] = Owned(fields, version, time, entry if trusted else None)
    return managed


def _normal_time(time: str | None) -> str | None:
    """A time as the server writes it back: UTC, whole seconds."""
    if not time:
        return None
    return datetime.fromisoformat(time).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def encode(managed: Managed) -> list[Object]:
    """The entries for the owners, appliers first, then by age."""
    order = sorted(managed, key=lambda m: (m.operation, managed[m].time or "", m.name, managed[m].api_version, m[3]))
    return [managed[manager].entry or _entry(manager, managed[manager]) for manager in order]


def _entry(manager: FieldsManager, owned: Owned) -> Object:
    entry: Object = {"manager": manager.name} if manager.name else {}
    entry |= {"operation": manager.operation, "apiVersion": owned.api_version}
    if owned.time:
        entry["time"] = owned.time
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": sets.ordered(owned.fields)}
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry


def without_managed(obj: Object) -> Object:
    """The object without managedFields."""
    metadata = obj.get("metadata")
    if not metadata or "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def with_managed(obj: Object, managed: Managed) -> Object:
    """The object with the managedFields of these owners; `obj` has none."""
    if not managed:
        return obj
    return {**obj, "metadata": {**obj.get("metadata", {}), "managedFields": encode(managed)}}


def keep_times(old: Object, new: Object) -> Object:
    """`old` itself when `new` differs from it in nothing but the times of its managers, else `new`.

    A write that changes nothing is not stored, although its manager would get a new time.
    """
    before, after = old["metadata"].get("managedFields"), new["metadata"].get("managedFields")
    if not before or not after or len(before) != len(after):
        return new
    pairs = zip(before, after, strict=True)
    if any(a is not b and {**a, "time": None} != {**b, "time": None} for a, b in pairs):
        return new
    return old if without_managed(old) == without_managed(new) else new
