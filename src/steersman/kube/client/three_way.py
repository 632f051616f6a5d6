"""Carry a change made on a part of an object over to the whole object. Pure.

A struct holds only the fields it names, so writing it back would erase all others. Instead the struct is compared
with itself before the change, and only the difference is made on the whole object:

    whole ──decode──► before ──change──► after        carry(whole, before, after) == whole + (after - before)

Invariant: what the struct does not name stays as it was, inside the elements of lists too; what did not change in the
struct does not change in the object, so a default the struct has and the server has not is never written.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = ["explicit", "rebase_change"]

# What identifies the elements of Kubernetes' lists, the most specific first.
_KEYS: Final = ("uid", "name", "key", "type", "containerPort", "port", "mountPath", "devicePath", "ip", "topologyKey")
_ABSENT: Final = object()


def explicit(value: Any) -> Any:
    """`value` as plain JSON data with every field written out, defaults too; None stands for an absent field.

    Encoding leaves defaults out, which would make "set to the default" and "removed" the same change.
    """
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        return {wire: explicit(part) for field, wire in names if (part := getattr(value, field)) is not None}
    if isinstance(value, dict):
        return {key: explicit(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [explicit(part) for part in value]
    return msgspec.to_builtins(value)


def rebase_change(whole: Any, before: Any, after: Any) -> Any:
    """`whole` with the difference between `before` and `after` made on it; nothing given is changed in place."""
    if before == after:
        return whole
    if isinstance(whole, dict) and isinstance(before, dict) and isinstance(after, dict):
        return _carry_dict(whole, before, after)
    if isinstance(whole, list) and isinstance(before, list) and isinstance(after, list) and len(whole) == len(before):
        return _carry_list(whole, before, after)
    return after


def _carry_dict(whole: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    result = {key: value for key, value in whole.items() if key in after or key not in before}
    for key, value in after.items():
        was = before.get(key, _ABSENT)
        if was is _ABSENT or key not in whole:
            if was != value:
                result[key] = value
        else:
            result[key] = rebase_change(whole[key], was, value)
    return result


def _carry_list(whole: list[Any], before: list[Any], after: list[Any]) -> list[Any]:
    origins = _origins(before, after)
    return [
        value if origin is None else rebase_change(whole[origin], before[origin], value)
        for value, origin in zip(after, origins, strict=True)
    ]


def _origins(before: list[Any], after: list[Any]) -> list[int | None]:
    """For each element of `after`, which element of `before` it comes from; None for a new one."""
    key = _identity(before, after)
    if key is not None:
        places = {element[key]: index for index, element in enumerate(before)}
        return [places.get(element[key]) for element in after]
    left = set(range(len(before)))
    origins: list[int | None] = []
    for element in after:
        same = next((index for index in sorted(left) if before[index] == element), None)
        left.discard(-1 if same is None else same)
        origins.append(same)
    if len(before) == len(after):  # changed in place: an element that is like no other was the one at its position
        origins = [index if origin is None and index in left else origin for index, origin in enumerate(origins)]
    return origins


def _identity(before: list[Any], after: list[Any]) -> str | None:
    """The field that identifies the elements of both lists, if there is one."""
    for key in _KEYS:
        for elements in (before, after):
            found = [element.get(key) for element in elements if isinstance(element, dict)]
            if len(found) != len(elements) or not all(isinstance(value, str | int) for value in found):
                break
            if len(set(found)) != len(found):
                break
        else:
            return key
    return None
