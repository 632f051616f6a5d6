"""The fields of a built-in object that its type does not have, as strict field validation names them.

Paths are in the order of the object. Values without a declared shape (raw extensions, managed fields, JSON in a
schema) hide nothing. Custom resources answer the same question by `Structural.unknown_fields`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.apiserver.schema import Schema

__all__ = ["unknown_fields"]


def unknown_fields(schema: Schema, obj: dict[str, Any]) -> list[str]:
    """Paths of the fields of `obj` that its type does not know."""
    return list(_unknown(schema, obj, ""))


def _unknown(schema: Schema, value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict) and schema.is_map:
        for name, item in value.items():
            here = f"{path}.{name}" if path else name
            below = schema.field(name)
            if below is None:
                yield here
            elif isinstance(item, dict | list):
                yield from _unknown(below, item, here)
    elif isinstance(value, list) and schema.is_list:
        for at, item in enumerate(value):
            if isinstance(item, dict | list):
                yield from _unknown(schema.items, item, f"{path}[{at}]")
