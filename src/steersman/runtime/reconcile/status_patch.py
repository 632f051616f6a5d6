"""Which fields of a status differ: the smallest merge patch that makes them so.

Values are compared as they are on the wire, so that a struct, a mapping and JSON that say the same are the same. A
field that is absent and one that has its type's default value are the same too, once there is a status at all: the
first status is written whatever its values, also where the class of the object makes one by default.

Conditions belong to several writers, one type each, but a merge patch replaces the whole list. So what is sent is not
the list that a writer made, but what the writer changed in the list it had read, done to the list that is there now;
and the patch holds for the resourceVersion with that list only (`is_shared`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.kube.api.field_presence import is_absent
from steersman.kube.api.patches import merge_patch
from steersman.runtime.controller.struct_fields import field_type, python_names, structs_in, wire_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.kube.api.objects import Resource

__all__ = ["CONDITIONS", "as_conditions", "conditions_of", "is_shared", "status_patch"]

CONDITIONS: Final = "conditions"


def is_shared(patch: Mapping[str, Any]) -> bool:
    """Whether a patch of `status_patch` would undo later writes, unless it names the resourceVersion."""
    return CONDITIONS in patch


def status_patch(
    obj: Resource | dict[str, Any],
    status: Any,
    fields: Mapping[str, Any],
    *,
    read: Resource | dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The part of a merge patch under `status`; empty when nothing differs.

    `status` (a struct or mapping) and `fields` (by name) say what should be there; nothing else changes. `read` is
    the object as it was when they were made, if `obj` is a later one.
    """
    current = obj.get("status") if isinstance(obj, dict) else _status_of(obj)
    desired = {**_all_fields(status), **_by_wire_name(obj, fields)}
    known = {} if current is None else _wire(current)
    if CONDITIONS in desired and read is not None and read is not obj:
        before = _wire(read.get("status") if isinstance(read, dict) else _status_of(read)) or {}
        desired[CONDITIONS] = _rebased(before.get(CONDITIONS), desired[CONDITIONS], known.get(CONDITIONS))
    defaults = {} if current is None else _defaults(current, desired.keys() - known.keys())
    return merge_patch(
        {name: known[name] for name in desired if name in known},
        {name: value for name, value in desired.items() if name not in defaults or defaults[name] != value},
    )


def conditions_of(obj: Resource | dict[str, Any]) -> list[dict[str, Any]]:
    """The conditions of an object as the server has them, whatever their type in Python."""
    status = obj.get("status") if isinstance(obj, dict) else _status_of(obj)
    return list((_wire(status) or {}).get(CONDITIONS) or ())


def as_conditions(obj: Resource | dict[str, Any], conditions: list[dict[str, Any]]) -> Any:
    """Conditions in the type that the class of `obj` declares, so that a field it does not have never differs."""
    if not isinstance(obj, dict):
        for struct in structs_in(type(obj), "status"):
            if (declared := field_type(struct, CONDITIONS)) is not None:
                return msgspec.convert(conditions, declared)
    return conditions


def _rebased(read: Any, wanted: Any, now: Any) -> Any:
    """What turned the conditions `read` into those `wanted`, done to those there are `now`."""
    if read == now or not all(map(_is_keyed, (read, wanted, now))):
        return wanted
    before, after, merged = ({entry["type"]: entry for entry in entries or ()} for entries in (read, wanted, now))
    for kind in before.keys() - after.keys():
        merged.pop(kind, None)
    for kind, entry in after.items():
        old, there = before.get(kind), merged.get(kind)
        if entry == old:
            continue
        turned = old is None or old.get("status") != entry.get("status")
        if there is not None and turned and there.get("status") == entry.get("status"):
            since = {name: there[name] for name in ("lastTransitionTime",) if name in there}
            entry = {**entry, **since}  # noqa: PLW2901  it has turned already: by an earlier write of ours
        merged[kind] = entry
    return list(merged.values()) or None


def _is_keyed(entries: Any) -> bool:
    """Whether these are conditions: no two of one type."""
    kinds = [entry.get("type") if isinstance(entry, dict) else None for entry in entries or ()]
    return None not in kinds and len(set(kinds)) == len(kinds)


def _wire(value: Any) -> Any:
    """`value` as JSON has it: msgspec leaves tuples alone, and a tuple never equals the list it becomes."""
    return _lists(msgspec.to_builtins(value))


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lists(part) for name, part in value.items()}
    return [_lists(part) for part in value] if isinstance(value, list | tuple) else value


def _status_of(obj: Resource) -> Any:
    """The status as the server has it: None when it has none, also where the class makes one by default."""
    try:
        return None if is_absent(obj, "status") else obj.status  # type: ignore[attr-defined]  # most kinds have one
    except AttributeError:
        raise TypeError(f"{type(obj).__name__} has no field status: declare it to write it") from None


def _all_fields(status: Any) -> dict[str, Any]:
    """Every field of a status by its name on the wire, those with default values too."""
    if status is None or isinstance(status, dict):
        return dict(_wire(status or {}))
    return {wire: _wire(getattr(status, name)) for wire, name in python_names(type(status)).items()}


def _by_wire_name(obj: Resource | dict[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    names: dict[str, str] = {}
    if not isinstance(obj, dict):
        for struct in structs_in(type(obj), "status"):
            names |= wire_names(struct)
        unknown = [name for name in fields if names and name not in names and name not in names.values()]
        if unknown:
            raise TypeError(f"the status of {type(obj).__name__} has no field {unknown[0]}; it has {', '.join(names)}")
    return {names.get(name, name): _wire(value) for name, value in fields.items()}


def _defaults(current: Any, absent: set[str]) -> dict[str, Any]:
    """The values that fields have by not being there."""
    if isinstance(current, dict):
        return {}
    names = python_names(type(current))
    return {wire: _wire(getattr(current, names[wire])) for wire in absent if wire in names}
