"""Which fields of a status differ: the smallest merge patch that makes them so.

Values are compared as they are on the wire, so that a struct, a mapping and JSON that say the same are the same. A
field that is absent and one that has its type's default value are the same too, once there is a status at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.patches import merge_patch
from steersman.runtime.fields import python_names, structs_in, wire_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.kube.objects import Resource

__all__ = ["status_patch"]


def status_patch(obj: Resource | dict[str, Any], status: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a merge patch under `status`; empty when nothing differs.

    `status` (a struct or mapping) and `fields` (by name) say what should be there; nothing else is touched.
    """
    current = obj.get("status") if isinstance(obj, dict) else _status_of(obj)
    desired = {**_all_fields(status), **_by_wire_name(obj, fields)}
    known = {} if current is None else _wire(current)
    defaults = {} if current is None else _defaults(current, desired.keys() - known.keys())
    return merge_patch(
        {name: known[name] for name in desired if name in known},
        {name: value for name, value in desired.items() if name not in defaults or defaults[name] != value},
    )


def _wire(value: Any) -> Any:
    """`value` as JSON has it: msgspec leaves tuples alone, and a tuple never equals the list it becomes."""
    return _lists(msgspec.to_builtins(value))


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lists(part) for name, part in value.items()}
    return [_lists(part) for part in value] if isinstance(value, list | tuple) else value


def _status_of(obj: Resource) -> Any:
    try:
        return obj.status  # type: ignore[attr-defined]  # most kinds have one; the error below says so when not
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
