"""Server-side apply: the live object after a manager states the fields it wants.

    merged   live with the configuration laid over it
    pruned   merged without what this manager applied last time, does not apply now, and no other manager owns

A field that another manager owns and the configuration would change is a conflict. Without force the whole apply fails
with one cause per field; with force the others lose it. Applying the value a field already has shares its ownership.

Invariant: pure; the same live object, configuration and time give the same result. Defaulting and validation of the
result are the caller's, exactly as after an update.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from steersman.apiserver.patch import field_sets as sets
from steersman.apiserver.patch import managed_fields as owners
from steersman.apiserver.patch.field_sets import element_text
from steersman.apiserver.patch.managed_fields import APPLY, UPDATE, Converter, FieldsManager, Managed, Owned
from steersman.apiserver.patch.typed_values import (
    LIST,
    MAP,
    SCALAR,
    TypedError,
    compare,
    elements,
    field_set,
    item_element,
    named_members,
    part,
    remove,
    same,
    shape,
)
from steersman.apiserver.resources.conform import zero
from steersman.apiserver.status_errors import StatusError, bad_request, internal
from steersman.apiserver.validation.field_errors import shown
from steersman.kube.api.validation import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.apiserver.patch.field_sets import FieldSet
    from steersman.apiserver.resources.schema import Schema

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
KUBECTL: Final = "kubectl"  # the one manager whose applies carry on where client-side apply stopped
BEFORE_FIRST_APPLY: Final = "before-first-apply"
ANNOTATION_LIMIT: Final = 256 * 1024

Object = dict[str, Any]


class ApplyConflicts(StatusError):  # noqa: N818 - a plural says what it holds; it is one refusal of several conflicts
    """Other managers own fields the configuration changes; `conflicts` says whose and which."""

    def __init__(self, conflicts: dict[FieldsManager, FieldSet]) -> None:
        self.conflicts = conflicts
        order = sorted(conflicts, key=FieldsManager.identifier)
        found = [(manager, path) for manager in order for path in sets.paths(conflicts[manager])]
        causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {_described(manager)}",
                "field": sets.path_text(path),
            }
            for manager, path in found
        ]
        if len(found) == 1:
            [(manager, path)] = found
            message = f"Apply failed with 1 conflict: conflict with {_described(manager)}: {sets.path_text(path)}"
        else:
            lines = []
            for manager in order:
                lines.append(f"conflicts with {_described(manager)}:")
                lines += [f"- {sets.path_text(path)}" for path in sets.paths(conflicts[manager])]
            message = f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)
        super().__init__(409, message, reason="Conflict", details={"causes": causes})


def _described(manager: FieldsManager) -> str:
    text = quoted(manager.name)
    if manager.subresource:
        text += f" with subresource {quoted(manager.subresource)}"
    return f"{text} using {manager.api_version}" if manager.operation == UPDATE else text


def apply(
    schema: Schema,
    live: Object | None,
    config: Object,
    *,
    manager: str,
    force: bool,
    api_version: str,
    now: str,
    kind: str = "",
    subresource: str = "",
    convert: Converter | None = None,
) -> Object:
    """The object after `manager` applied `config`; `live` is None when the apply creates it.

    `kind` is what the configuration must be; empty: whatever it says.

    Raises ApplyConflicts, or another StatusError when the configuration does not fit the type.
    """
    applier = FieldsManager(manager, APPLY, "", subresource)
    request = _Apply(schema, live, config, applier, api_version=api_version, kind=kind, now=now, convert=convert)
    try:
        result, managed = request.run(force=force)
    except TypedError as error:
        raise internal(f"failed to merge config: {error}") from error
    except ApplyConflicts as refused:
        left = request.left_after_client_side(refused.conflicts) if manager == KUBECTL else refused.conflicts
        if left:
            raise ApplyConflicts(left) from None
        result, managed = request.run(force=True)
    if manager == KUBECTL:
        result = _carry_last_applied(result, config)
    return owners.with_managed(result, managed)


class _Apply:
    """One apply request: what it starts from, and its steps."""

    def __init__(
        self,
        schema: Schema,
        live: Object | None,
        config: Object,
        applier: FieldsManager,
        *,
        api_version: str,
        kind: str,
        now: str,
        convert: Converter | None,
    ) -> None:
        self.schema = schema
        self.kind = kind or config.get("kind", "")
        self.live = zero(schema) | {"apiVersion": api_version, "kind": self.kind} if live is None else live
        self.exists = live is not None
        self.config = config
        self.applier = applier
        self.api_version = api_version
        self.now = now
        self.convert = convert

    def run(self, *, force: bool) -> tuple[Object, Managed]:
        """The merged and pruned object without managedFields, and who owns what."""
        self._check()
        managed = self._managed_before()
        last = managed.get(self.applier)
        merged = merge(self.schema, self.live, self.config)
        wanted = field_set(self.schema, self.config)
        if resets := self.schema.resets.get(self.applier.subresource):
            wanted = sets.prune(wanted, resets)
        known = Owned(wanted, self.api_version, last.time if last else None)
        managed[self.applier] = known
        new = self._prune(merged, managed, last)
        conflicts: dict[FieldsManager, FieldSet] = {}
        writer = self.applier._replace(api_version=self.api_version)
        _, managed = owners.settle(
            self.schema,
            self.live,
            new,
            managed,
            self.applier,
            writer=writer,
            convert=self.convert,
            conflicts=conflicts,
        )
        if conflicts and not force:
            raise ApplyConflicts(conflicts)
        changed = not same(new, self.live)
        stated = sets.difference(wanted, owners.UNTRACKED)
        if stated:
            time = self.now if changed else known.time
            managed[self.applier] = Owned(stated, self.api_version, time)
        else:
            managed.pop(self.applier, None)
        return owners.without_managed(new if changed else self.live), managed

    def _check(self) -> None:
        version, kind = self.config.get("apiVersion", ""), self.config.get("kind", "")
        group, _, name = version.rpartition("/")
        if (version, kind) != (self.api_version, self.kind):
            raise bad_request(f"invalid object type: {group}/{name}, Kind={kind}")
        metadata = self.config.get("metadata")
        if not isinstance(metadata, dict):
            metadata = {}  # what is wrong with it is a misfit
        if metadata.get("managedFields") is not None:
            raise bad_request("metadata.managedFields must be nil")
        if errors := misfits(self.schema, self.config):
            where = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {group}/{name}, Kind={kind}"
            raise internal(f"failed to create typed patch object ({where}): {errors}")

    def _managed_before(self) -> Managed:
        """The owners of the live object; everything there before the first apply belongs to a manager called so."""
        managed = owners.decode(self.live.get("metadata", {}).get("managedFields"))
        if managed or not self.exists:
            return owners.reconcile(self.schema, managed)
        writer = FieldsManager(BEFORE_FIRST_APPLY, UPDATE, self.api_version, self.applier.subresource)
        return owners.record_update(self.schema, None, self.live, managed, writer, now=self.now, convert=self.convert)

    def _prune(self, merged: Object, managed: Managed, last: Owned | None) -> Object:
        """Remove what the manager applied last time and no manager states any more."""
        if last is None or not last.fields:
            return merged
        schema = self.schema
        everything = named_members(schema, field_set(schema, merged))
        owned: FieldSet = {}
        for other in managed.values():
            owned = sets.union(owned, other.fields)
        dropped = named_members(schema, last.fields)
        pruned = remove(schema, merged, dropped) or {}

        kept = sets.union(named_members(schema, field_set(schema, pruned)), named_members(schema, owned))
        pruned = remove(schema, merged, sets.difference(everything, kept)) or {}

        gone = sets.difference(everything, named_members(schema, field_set(schema, pruned)))
        result: Object = remove(schema, merged, sets.intersection(gone, dropped)) or {}
        return result

    def left_after_client_side(self, conflicts: dict[FieldsManager, FieldSet]) -> dict[FieldsManager, FieldSet]:
        """The conflicts without those of client-side apply, which owns what its annotation and the object agree on."""
        allowed = self._client_side_fields()
        found: FieldSet = {}
        for fields in conflicts.values():
            found = sets.union(found, fields)
        if allowed is None:
            return conflicts
        if not sets.difference(found, allowed):
            return {}
        left = {manager: sets.difference(fields, allowed) for manager, fields in conflicts.items()}
        return {manager: fields for manager, fields in left.items() if fields}

    def _client_side_fields(self) -> FieldSet | None:
        text = (self.live.get("metadata", {}).get("annotations") or {}).get(LAST_APPLIED)
        if not text:
            return None
        try:
            applied = msgspec.json.decode(text, type=dict[str, Any])
            if applied.get("apiVersion") != self.api_version or misfits(self.schema, applied):
                return None
            change = compare(self.schema, applied, self.live)
            fields = field_set(self.schema, applied)
        except (msgspec.DecodeError, TypedError):
            return None
        for changed in (change.modified, change.added, change.removed):
            fields = sets.difference(fields, changed)
        return fields


def _carry_last_applied(obj: Object, config: Object) -> Object:
    """Keep the annotation of client-side apply true, where an object has one."""
    metadata = obj.get("metadata", {})
    annotations = metadata.get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return obj
    stated = config
    if LAST_APPLIED in ((config.get("metadata") or {}).get("annotations") or {}):
        rest = {key: value for key, value in config["metadata"]["annotations"].items() if key != LAST_APPLIED}
        stated = {**config, "metadata": {**config["metadata"], "annotations": rest}}
    annotations = {**annotations, LAST_APPLIED: sets.json_text(stated) + "\n"}
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > ANNOTATION_LIMIT:
        del annotations[LAST_APPLIED]
    return {**obj, "metadata": {**metadata, "annotations": annotations}}


ABSENT: Final = object()  # no value at all, which is not the same as null


def merge(schema: Schema, live: Any, config: Any) -> Any:
    """The live value with the configuration laid over it."""
    merged = _merge(schema, live, config)
    return None if merged is ABSENT else merged


def _merge(schema: Schema, live: Any, config: Any) -> Any:
    kind = shape(schema, live if config is ABSENT else config)
    leaf = live if config is ABSENT else config
    if kind == SCALAR:
        return leaf
    if kind == MAP:
        before = live if isinstance(live, dict) else {}
        after = config if isinstance(config, dict) else {}
        if schema.map_atomic or not (before or after):
            return leaf
        return _merge_maps(schema, before, after)
    items = live if isinstance(live, list) else []
    wanted = config if isinstance(config, list) else []
    if kind != LIST or schema.list_type == "atomic" or not (items or wanted):
        return leaf
    return _merge_lists(schema, items, wanted)


def _merge_maps(schema: Schema, live: dict[str, Any], config: dict[str, Any]) -> Any:
    out = {}
    for name in live | config:
        merged = _merge(part(schema, name), live.get(name, ABSENT), config.get(name, ABSENT))
        if merged is not ABSENT:
            out[name] = merged
    return out or ABSENT


def _merge_lists(schema: Schema, live: list[Any], config: list[Any]) -> Any:
    wanted: dict[str, Any] = {}
    for element, item in elements(schema, config):
        if element in wanted:
            raise TypedError(f"duplicate entries for key {element_text(element)}")
        wanted[element] = item
    present = list(elements(schema, live))
    known: dict[str, Any] = {}
    for element, item in present:
        known[element] = None if element in known else item  # duplicates are not merged, they are replaced
    out = []
    for element, index in _order([element for element, _ in present], wanted):
        item = known.get(element, ABSENT) if index is None else present[index][1]
        merged = _merge(schema.items, item, wanted.get(element, ABSENT))
        if merged is not ABSENT:
            out.append(merged)
    return out or ABSENT


def _order(present: list[str], wanted: dict[str, Any]) -> Iterator[tuple[str, int | None]]:
    """The elements of the merged list; with its index in the live list when only that one has the item.

    A live item that the configuration has too waits for its turn there, so that the shared items come out in the
    configuration's order, each as early as the live order allows.
    """
    order = list(wanted)
    live = set(present)
    shared = deque(element for element in order if element in live)
    taken: set[str] = set()
    left = right = 0
    while left < len(present) or right < len(order):
        if left < len(present):
            element = present[left]
            if element not in wanted:
                yield element, left
                left += 1
                continue
            if right < len(order) and element != order[right] and shared and shared[0] != element:
                left += 1
                continue
            if element in taken or (right < len(order) and element == order[right]):
                left += 1
        if right < len(order):
            element = order[right]
            yield element, None
            taken.add(element)
            right += 1
            if shared and shared[0] == element:
                shared.popleft()


class Misfit(NamedTuple):
    """One place that does not fit, and why."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def misfits(schema: Schema, value: Any) -> str:
    """Everything that does not fit, as one message; empty when all of it does."""
    found = list(_misfits(schema, value, ""))
    if len(found) <= 1:
        return str(found[0]) if found else ""
    return "\n".join(["errors:", *(f"  {misfit}" for misfit in found)])


def _misfits(schema: Schema, value: Any, path: str) -> Iterator[Misfit]:
    kind = shape(schema, value)
    if kind == MAP:
        if isinstance(value, dict):
            yield from _map_misfits(schema, value, path)
        elif value is not None:
            yield Misfit(path, f"expected a map, got {shown(value)}")
    elif kind == LIST:
        if isinstance(value, list):
            yield from _list_misfits(schema, value, path)
        elif value is not None:
            yield Misfit(path, f"expected a list, got {shown(value)}")
    elif (why := _scalar_misfit(schema.scalar, value)) is not None:
        yield Misfit(path, why)


def _map_misfits(schema: Schema, value: dict[str, Any], path: str) -> Iterator[Misfit]:
    for name, below in value.items():
        known = schema.field(name)
        if known is None:
            yield Misfit(f"{path}.{name}", "field not declared in schema")
            return
        yield from _misfits(known, below, f"{path}.{name}")


def _list_misfits(schema: Schema, value: list[Any], path: str) -> Iterator[Misfit]:
    seen = set()
    for index, item in enumerate(value):
        if schema.list_type == "atomic":
            text = f"[{index}]"
        else:
            try:
                element = item_element(schema, item)
            except TypedError as error:
                yield Misfit(path, f"element {index}: {error.message}")
                return
            text = element_text(element)
            if element in seen:
                yield Misfit(path, f"duplicate entries for key {text}")
            seen.add(element)
        yield from _misfits(schema.items, item, path + text)


def _scalar_misfit(scalar: str | None, value: Any) -> str | None:
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {
        "numeric": number,
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "untyped": not isinstance(value, dict | list),
    }
    return None if scalar is None or fits[scalar] else f"expected {scalar}, got {shown(value)}"
