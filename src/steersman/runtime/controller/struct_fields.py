"""Fields of struct types by their names on the wire: looked up, followed along a path, and checked.

Code says `ready_pods`, JSON says `readyPods`; text that names fields may use either.
"""

from __future__ import annotations

import difflib
import types
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from steersman.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["check_path", "field_type", "python_names", "structs_in", "value_at", "wire_names"]


_names: dict[type[Any], dict[str, str]] = {}
_hints: dict[type[Any], dict[str, Any]] = {}


def python_names(struct: type[Any]) -> dict[str, str]:
    """Names on the wire -> names in Python; empty for what is not a struct."""
    if struct not in _names:
        wire, names = getattr(struct, "__struct_encode_fields__", ()), getattr(struct, "__struct_fields__", ())
        _names[struct] = dict(zip(wire, names, strict=True))
    return _names[struct]


def wire_names(struct: type[Any]) -> dict[str, str]:
    """Names in Python -> names on the wire."""
    return {name: wire for wire, name in python_names(struct).items()}


def structs_in(struct: type[Any], field: str) -> tuple[type, ...]:
    """The struct types that a field (by its name in Python) may hold."""
    return tuple(_structs(field_type(struct, field)))


def field_type(struct: type[Any], field: str) -> Any:
    """The declared type of a field (by its name in Python); None when the field does not exist."""
    if struct not in _hints:
        _hints[struct] = get_type_hints(struct)
    return _hints[struct].get(field)


def _structs(hint: Any) -> Iterable[type]:
    if get_origin(hint) in (Union, types.UnionType):
        for option in get_args(hint):
            yield from _structs(option)
    elif isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint


def value_at(obj: Any, path: Iterable[str]) -> Any:
    """What is found along `path` in structs and mappings; None when something on the way is missing."""
    for part in path:
        if isinstance(obj, dict):
            obj = obj.get(part)
        elif obj is not None:
            obj = getattr(obj, python_names(type(obj)).get(part, part), None)
    return obj


def check_path(target: type, path: Sequence[str]) -> None:
    """Raise ConfigError when objects of that type can have nothing at `path`."""
    structs: tuple[type, ...] = (target,)
    for depth, part in enumerate(path, 1):
        known = {wire: (struct, name) for struct in structs for wire, name in python_names(struct).items()}
        found = known.get(part) or {name: (struct, name) for struct, name in known.values()}.get(part)
        if found is None:
            near = difflib.get_close_matches(part, [*known], n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(known)) or 'none'}"
            raise ConfigError(f"{target.__name__} has no field {'.'.join(path[:depth])} ({hint})", field="predicate")
        structs = structs_in(*found)
        if not structs:
            return  # a plain value or an open mapping: nothing more to check
