"""Field presence: which fields of a struct its author set, though they have the values they have by default.

msgspec leaves a field out of JSON when its value is the default. To a server-side apply that is another statement: a
field that is sent is made so, and a field that is left out is left to other managers. So a struct remembers the fields
that were *set to their default*, by its constructor or by an assignment, and `wire` writes those as well:

    Spec(image="web", replicas=1)   sends image and replicas, whatever the default of replicas is
    Spec(image="web")               sends image only

Invariant: a field is sent when it was set, or when its value differs from its default. None means "not set" where None
is the default. The memory of it is one slot, which stays empty in everything that was decoded: objects in a cache pay
no more than that. It is not part of equality, `repr` or JSON.

A part that was made by default, because the JSON did not have it or its author never mentioned it, is marked in the
same slot: `is_absent` distinguishes it from an empty one.

msgspec's own functions (`msgspec.structs.replace`, `msgspec.convert`) do not know of it: what they make has only set
what differs from its default. `replace` and `mark_present` here do.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import msgspec.structs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Presence", "by_default", "is_absent", "mark_present", "note", "replace", "set_to_default", "wire"]

S = TypeVar("S", bound=msgspec.Struct)


class _Probe(msgspec.Struct):
    entries: list[str] = []


_Factory: Final = type(_Probe.__struct_defaults__[0])


class Presence:
    """The slot, and the ways of changing or copying a struct that must keep it true."""

    __slots__ = ("_set_to_default",)

    if not TYPE_CHECKING:  # type checkers should go on seeing the fields of each struct

        def __setattr__(self, name: str, value: Any) -> None:
            msgspec.structs.force_setattr(self, name, value)  # never reached in a frozen struct
            if name in _defaults(type(self)):
                others = [field for field in set_to_default(self) if field != name]
                note(self, {name: value}, others)

        def __copy__(self) -> Any:
            return replace(self)

        def __replace__(self, /, **changes: Any) -> Any:  # what copy.replace calls
            return replace(self, **changes)

        def __reduce__(self) -> Any:
            # A field that is its default stays that very object: msgspec leaves out what is identical to it.
            defaults, pairs = (
                _all_defaults(type(self)),
                ((name, getattr(self, name)) for name in self.__struct_fields__),
            )
            values = {name: value for name, value in pairs if value is not defaults.get(name, msgspec.NODEFAULT)}
            return _rebuild, (type(self), values, tuple(set_to_default(self)))


class _Absent(tuple[str, ...]):
    """What the slot of a part holds that was made by default: no field was set, and neither was the part."""

    __slots__ = ()


_slot: Final[Any] = Presence.__dict__["_set_to_default"]
_ABSENT: Final = _Absent()


def by_default(make: Callable[[], Any]) -> Any:
    """What `make` gives, marked as a part that was never mentioned."""
    made = make()
    if isinstance(made, Presence):
        _slot.__set__(made, _ABSENT)
    return made


def is_absent(struct: msgspec.Struct, name: str) -> bool:
    """Whether the part `name` of a struct was made by default, because the JSON it was decoded from did not have it."""
    value = getattr(struct, name)
    return value is _all_defaults(type(struct)).get(name) or getattr(value, "_set_to_default", None) is _ABSENT


def set_to_default(struct: msgspec.Struct) -> tuple[str, ...]:
    """The fields that were set to the value they would have anyway; parts that are made by default, whenever set."""
    return getattr(struct, "_set_to_default", ())


def note(struct: msgspec.Struct, values: Mapping[str, Any], others: list[str] | None = None) -> None:
    """Remember that these fields of `struct` were set, beside `others`."""
    defaults = _defaults(type(struct))
    names = others or []
    for name, value in values.items():
        if name in defaults:
            default = defaults[name]
            if value is default or isinstance(default, _Factory) or (type(value) is type(default) and value == default):
                names.append(name)
    if names or others is not None:
        _slot.__set__(struct, tuple(names))


def replace(struct: S, /, **changes: Any) -> S:
    """As `msgspec.structs.replace`: another struct with these fields changed. What was set stays set."""
    made = msgspec.structs.replace(struct, **changes)
    if issubclass(type(made), Presence):
        note(made, changes, [name for name in set_to_default(struct) if name not in changes])
    return made


def mark_present(value: Any, decoded: Any) -> None:
    """Remember what was in the JSON that `value` was decoded from, given as plain data."""
    if isinstance(value, msgspec.Struct) and isinstance(decoded, dict):
        names = dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
        present = {names[wire]: getattr(value, names[wire]) for wire in decoded if wire in names}
        if isinstance(value, Presence):
            note(value, present)
        for name, part in decoded.items():
            if name in names:
                mark_present(present[names[name]], part)
    elif isinstance(value, dict) and isinstance(decoded, dict):
        for name, part in decoded.items():
            mark_present(value.get(name), part)
    elif isinstance(value, list | tuple) and isinstance(decoded, list):
        for item, part in zip(value, decoded, strict=True):
            mark_present(item, part)


def wire(struct: msgspec.Struct) -> dict[str, Any]:
    """`struct` as plain JSON data: every field that was set or that differs from its default."""
    body: dict[str, Any] = msgspec.to_builtins(struct)
    _complete(struct, body)
    return body


def _complete(struct: msgspec.Struct, body: dict[str, Any]) -> bool:
    """Add what was set to its default, drop parts that were made by default; says whether anything was set."""
    cls, was_set = type(struct), False
    noted = set_to_default(struct)
    for attribute, name, made in _parts(cls):
        if name in body:
            value = getattr(struct, attribute)
            mentioned, body[name] = _completed(value, body[name])
            if made is not None and attribute not in noted and not mentioned and (not body[name] or value == made()):
                del body[name]
            was_set = was_set or mentioned
    for attribute in noted:
        name = _encoded(cls)[attribute]
        if name not in body:
            body[name] = msgspec.to_builtins(getattr(struct, attribute))
    return was_set or bool(noted)


def _completed(value: Any, body: Any) -> tuple[bool, Any]:
    """Whether anything was set in a part of a struct, and that part as JSON data."""
    if isinstance(value, msgspec.Struct) and isinstance(body, dict):
        return _complete(value, body), body
    if isinstance(value, dict):
        pairs = zip(value.values(), body.items(), strict=True)
        done = {name: _completed(item, part) for item, (name, part) in pairs}
        return any(was_set for was_set, _ in done.values()), {name: part for name, (_, part) in done.items()}
    if isinstance(value, list | tuple) and isinstance(body, list | tuple):
        items = [_completed(item, part) for item, part in zip(value, body, strict=True)]
        return any(was_set for was_set, _ in items), [part for _, part in items]
    return False, body


@functools.cache
def _encoded(cls: type[msgspec.Struct]) -> dict[str, str]:
    """Names on the wire, by attribute."""
    return dict(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))


@functools.cache
def _all_defaults(cls: type[msgspec.Struct]) -> dict[str, Any]:
    """The default of every field that has one; a factory stands for what it makes."""
    defaults = cls.__struct_defaults__
    names = cls.__struct_fields__[len(cls.__struct_fields__) - len(defaults) :]
    pairs = zip(names, defaults, strict=True)
    return {name: default for name, default in pairs if default is not msgspec.NODEFAULT}


@functools.cache
def _defaults(cls: type[msgspec.Struct]) -> dict[str, Any]:
    """Those defaults that can be set, so that it must be remembered whether they were."""
    if getattr(cls, "EMPTY_IS_ABSENT", False):
        return {}
    return {
        name: value for name, value in _all_defaults(cls).items() if value is not None and value is not msgspec.UNSET
    }


@functools.cache
def _parts(cls: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    """Attribute and wire name of each field, and what makes its part by default."""
    makers = {name: maker for name, value in _all_defaults(cls).items() if (maker := _maker(value)) is not None}
    return tuple((attribute, name, makers.get(attribute)) for attribute, name in _encoded(cls).items())


def _maker(default: Any) -> Any:
    """What makes a part by default; None for plain values, which msgspec leaves out by itself."""
    if isinstance(default, _Factory):
        return default.factory
    return (lambda: default) if isinstance(default, msgspec.Struct) else None


def _rebuild(cls: type[Any], values: dict[str, Any], noted: tuple[str, ...]) -> Any:
    made = msgspec.StructMeta.__call__(cls, **values)
    _slot.__set__(made, noted)
    return made
