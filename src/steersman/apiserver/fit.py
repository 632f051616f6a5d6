"""Whether an applied configuration fits its type, in the words server-side apply uses for what does not.

Only shapes are checked: a field the type does not have, a list where a map belongs, two items with the same key. Values
are validated later, when the whole object is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.apiserver.causes import go_quote
from steersman.apiserver.fields import element_text, number_text
from steersman.apiserver.typed import LIST, MAP, TypedError, item_element, shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.apiserver.schema import Schema

__all__ = ["misfits"]


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
            yield Misfit(path, f"expected map, got &{{{plain(value)}}}")
    elif kind == LIST:
        if isinstance(value, list):
            yield from _list_misfits(schema, value, path)
        elif value is not None:
            yield Misfit(path, f"expected list, got &{{{plain(value)}}}")
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
    if scalar == "numeric" and not number:
        return f"expected numeric (int or float), got {go_type(value)}"
    if scalar == "string" and not isinstance(value, str):
        return f"expected string, got &value.valueUnstructured{{Value:{syntax(value)}}}"
    if scalar == "boolean" and not isinstance(value, bool):
        return f"expected boolean, got &{{{plain(value)}}}"
    if scalar == "untyped" and isinstance(value, dict | list):
        return f"expected any scalar, got &{{{plain(value)}}}"
    return None


def go_type(value: Any) -> str:
    """The Go type of a decoded JSON value."""
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case dict():
            return "map[string]interface {}"
        case list():
            return "[]interface {}"
        case _:
            return "<nil>" if value is None else "int64" if isinstance(value, int) else "float64"


def plain(value: Any) -> str:
    """A decoded JSON value as Go's `%v` prints it."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case float():
            return number_text(value)
        case dict():
            return "map[" + " ".join(f"{key}:{plain(value[key])}" for key in sorted(value)) + "]"
        case list():
            return "[" + " ".join(map(plain, value)) + "]"
        case _:
            return str(value)


def syntax(value: Any) -> str:
    """A decoded JSON value as Go's `%#v` prints it."""
    match value:
        case None:
            return "interface {}(nil)"
        case str():
            return go_quote(value)
        case dict():
            inner = ", ".join(f"{go_quote(key)}:{syntax(value[key])}" for key in sorted(value))
            return f"map[string]interface {{}}{{{inner}}}"
        case list():
            return "[]interface {}{" + ", ".join(map(syntax, value)) + "}"
        case _:
            return plain(value)
