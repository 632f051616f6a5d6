"""Sets of fields, in the form `metadata.managedFields` stores them.

A field set is its FieldsV1 value: a tree of plain dicts whose keys are path elements (`f:` a field, `k:` a list item by
its keys, `v:` a list item by its value, `i:` by its index). A key that maps to `{}` is in the set; one that maps to a
tree is only on the way, unless the tree also has ".". So what is stored needs no parsing and a result no printing.

    {"f:data": {".": {}, "f:mode": {}}}     is the set { data, data.mode }
    {"f:spec": {"f:replicas": {}}}          is the set { spec.replicas }

Invariant: trees are never changed once built, and every function here returns trees without empty branches. Only
`ordered` puts keys in the server's order; trees that came from a request pass through `parse` first.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.api.validation import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FieldSet = dict[str, Any]  # see the module: recursive, which the type system cannot say without a cost at run time

MEMBER = "."
SPECIAL = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029]')  # what Go's encoder may escape inside a string
HTML = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def union(a: FieldSet, b: FieldSet) -> FieldSet:
    """Everything in either set."""
    if not b or a is b:
        return a
    if not a:
        return b
    return _join_children(a, b)


def _join_children(a: FieldSet, b: FieldSet) -> FieldSet:
    out = dict(a)
    for element, below in b.items():
        known = out.get(element)
        out[element] = below if known is None else _join(known, below)
    return out


def _join(a: FieldSet, b: FieldSet) -> FieldSet:
    """The union of two trees below the same element, where `{}` means that the element itself is in the set."""
    if a is b:
        return a
    if not a:
        return as_member(b)
    if not b:
        return as_member(a)
    return _join_children(a, b)


def as_member(below: FieldSet) -> FieldSet:
    """The same tree with its own element in the set."""
    return below if not below or MEMBER in below else {MEMBER: {}, **below}


def difference(a: FieldSet, b: FieldSet) -> FieldSet:
    """What is in `a` and not in `b`. Removing an element keeps what is below it."""
    if not a or not b:
        return a
    return _minus_children(a, b)


def _minus_children(a: FieldSet, b: FieldSet) -> FieldSet:
    out: FieldSet = {}
    for element, below in a.items():
        if element == MEMBER:
            continue
        other = b.get(element)
        left = below if other is None else _minus(below, other)
        if left is not None:
            out[element] = left
    return out


def _minus(a: FieldSet, b: FieldSet) -> FieldSet | None:
    member = (not a or MEMBER in a) and bool(b) and MEMBER not in b
    below = _minus_children(a, b)
    if below:
        return {MEMBER: {}, **below} if member else below
    return {} if member else None


def prune(a: FieldSet, b: FieldSet) -> FieldSet:
    """What is in `a`, without the elements in `b` and everything below them."""
    if not a or not b:
        return a
    out: FieldSet = {}
    for element, below in a.items():
        other = b.get(element)
        if other is None:
            out[element] = below
        elif other and MEMBER not in other:
            member = not below or MEMBER in below
            left = {key: value for key, value in prune(below, other).items() if key != MEMBER}
            if left or member:
                out[element] = as_member(left) if member else left
    return out


def intersection(a: FieldSet, b: FieldSet) -> FieldSet:
    """What is in both sets."""
    if a is b:
        return a
    out: FieldSet = {}
    small, large = (a, b) if len(a) <= len(b) else (b, a)
    for element in small:
        if element == MEMBER or (other := large.get(element)) is None:
            continue
        common = _common(small[element], other)
        if common is not None:
            out[element] = common
    return out


def _common(a: FieldSet, b: FieldSet) -> FieldSet | None:
    member = (not a or MEMBER in a) and (not b or MEMBER in b)
    below = intersection(a, b)
    if below:
        return as_member({key: value for key, value in below.items() if key != MEMBER}) if member else below
    return {} if member else None


def contains(fields: FieldSet, path: tuple[str, ...]) -> bool:
    """Whether the path itself is in the set."""
    node: FieldSet | None = fields
    for element in path:
        node = node.get(element) if node is not None else None
    return bool(path) and node is not None and (not node or MEMBER in node)


def paths(fields: FieldSet, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The members in the server's order: at each level its members first, then what is below them."""
    elements = sorted((element for element in fields if element != MEMBER), key=_rank)
    for element in elements:
        below = fields[element]
        if not below or MEMBER in below:
            yield (*prefix, element)
    for element in elements:
        if fields[element]:
            yield from paths(fields[element], (*prefix, element))


def ordered(fields: FieldSet) -> FieldSet:
    """The same set with keys in the order the server writes them."""
    keys = _sorted(fields) if len(fields) > 1 else fields
    return {key: ordered(below) if (below := fields[key]) else below for key in keys}


def _sorted(keys: Iterable[str]) -> list[str]:
    for key in keys:
        if key[0] != "f" and key != MEMBER:
            return sorted(keys, key=_rank)
    return sorted(keys)


@lru_cache(maxsize=4096)
def _rank(element: str) -> tuple[Any, ...]:
    """Fields, then list items by keys, by value, by index; numbers compare as numbers."""
    if element == MEMBER:
        return (-1,)
    kind, text = element[0], element[2:]
    if kind == "f":
        return (0, text)
    if kind == "k":
        keys = msgspec.json.decode(text)
        return (1, tuple((name, _value_rank(keys[name])) for name in sorted(keys)))
    return (2, _value_rank(msgspec.json.decode(text))) if kind == "v" else (3, int(text))


def _value_rank(value: Any) -> tuple[Any, ...]:
    match value:
        case None:
            return (5,)
        case bool():
            return (2, value)
        case int() | float():
            return (0, value)
        case str():
            return (1, value)
        case list():
            return (3, tuple(_value_rank(item) for item in value))
        case _:
            return (4, tuple((name, _value_rank(value[name])) for name in sorted(value)))


def parse(value: Any) -> FieldSet:
    """A field set from a request, in canonical form. Unknown kinds of element are dropped, as the server does.

    Raises ValueError when it is not a field set.
    """
    if not isinstance(value, dict):
        raise ValueError(f"a field set must be an object, not {type(value).__name__}")  # noqa: TRY004 - bad input
    return ordered({key: below for key, below in _parse(value).items() if key != MEMBER})


def _parse(value: dict[str, Any]) -> FieldSet:
    out: FieldSet = {}
    for key, below in value.items():
        element = MEMBER if key == MEMBER else _parse_element(key)
        if element is None:
            continue
        if below is not None and not isinstance(below, dict):
            raise ValueError(f"{key} must be an object")
        node = _parse(below) if below and element != MEMBER else {}
        if set(node) == {MEMBER}:
            node = {}
        out[element] = _join(out[element], node) if element in out else node
    return out


def _parse_element(key: str) -> str | None:
    kind, colon, text = key[:1], key[1:2], key[2:]
    if colon != ":":
        raise ValueError(f"{key!r} is not a path element: the second character must be a colon")
    try:
        if kind == "f":
            return key
        if kind == "k":
            return key_element(msgspec.json.decode(text, type=dict[str, Any]))
        if kind == "v":
            return value_element(msgspec.json.decode(text))
        return f"i:{int(text)}" if kind == "i" else None
    except msgspec.DecodeError as error:
        raise ValueError(f"{key!r} is not a path element: {error}") from error


def key_element(keys: dict[str, Any]) -> str:
    """The element of a list item known by the values of its keys."""
    if len(keys) == 1:
        [(name, value)] = keys.items()
        return f"k:{{{json_text(name)}:{json_text(value)}}}"
    return "k:{" + ",".join(f"{json_text(name)}:{json_text(keys[name])}" for name in sorted(keys)) + "}"


def value_element(value: Any) -> str:
    """The element of a list item known by its value."""
    return "v:" + json_text(value)


def json_text(value: Any) -> str:
    """Compact JSON as Go writes it: HTML characters escaped, whole floats without a point."""
    if isinstance(value, str):
        if SPECIAL.search(value) is None:
            return f'"{value}"'
        return msgspec.json.encode(value).decode().translate(HTML)
    if isinstance(value, float):
        return _json_number(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_text(name)}:{json_text(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return msgspec.json.encode(value).decode()


def _json_number(value: float) -> str:
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return re.sub(r"e([+-])0*(\d)", r"e\1\2", repr(value))


def path_text(path: tuple[str, ...]) -> str:
    """A path as people read it: `.spec.containers[name="web"].image`."""
    return "".join(map(element_text, path))


def element_text(element: str) -> str:
    """One element of a path as people read it."""
    kind, text = element[0], element[2:]
    if kind == "f":
        return f".{text}"
    if kind == "k":
        keys = msgspec.json.decode(text)
        return "[" + ",".join(f"{name}={_value_text(keys[name])}" for name in sorted(keys)) + "]"
    return f"[={_value_text(msgspec.json.decode(text))}]" if kind == "v" else f"[{text}]"


def _value_text(value: Any) -> str:
    match value:
        case str():
            return quoted(value)
        case list():
            return "[" + ",".join(map(_value_text, value)) + "]"
        case dict():
            return "".join(f"{name}={_value_text(value[name])}" for name in sorted(value))
        case _:
            return json_text(value)
