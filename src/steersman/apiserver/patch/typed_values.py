"""Values seen through their schema: which fields a value has, what differs between two, and one without some fields.

These are the walks that field ownership is made of. Each follows value and schema together; where the schema allows
several shapes the value decides, and `null` counts as an empty map or list. A part that is one unit (atomic, a scalar,
empty) is a leaf: nothing below it is ever named.

Invariant: values are never changed; results share what did not change. Nothing here knows who owns what, and combining
two values is in `merge.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from steersman.apiserver.patch.field_sets import MEMBER, FieldSet, as_member, key_element, value_element
from steersman.apiserver.resources.schema import DEDUCED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.apiserver.resources.schema import Schema

SCALAR: Final = "scalar"
LIST: Final = "list"
MAP: Final = "map"


class TypedError(ValueError):
    """A value does not fit its schema, in the server's words; `path` is where, empty at the root."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.message = message
        self.path = path


class Comparison(NamedTuple):
    """What a change did, as disjoint field sets."""

    removed: FieldSet
    modified: FieldSet
    added: FieldSet


def shape(schema: Schema, value: Any) -> str:
    """Which of the shapes the schema allows applies to the value; for null or a misfit the first one allowed."""
    if isinstance(value, dict):
        if schema.is_map:
            return MAP
    elif isinstance(value, list):
        if schema.is_list:
            return LIST
    elif value is not None and schema.scalar is not None:
        return SCALAR
    return default_shape(schema)


def default_shape(schema: Schema) -> str:
    """The shape of a value that does not say its own."""
    if schema.is_map:
        return MAP
    if schema.scalar is not None:
        return SCALAR
    return LIST


def same(a: Any, b: Any) -> bool:
    """Equality of JSON values: as Python has it, except that true is not 1."""
    if a is b:
        return True
    if a != b:
        return False
    if isinstance(a, dict):
        return all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, list):
        return all(map(same, a, b))
    return isinstance(a, bool) is isinstance(b, bool)


def item_element(schema: Schema, item: Any) -> str:
    """The path element of an item of a list that is a set or a map."""
    if not schema.keys:
        if isinstance(item, dict):
            raise TypedError("associative list without keys has an element that's a map type")
        if isinstance(item, list):
            raise TypedError("not supported: associative list with lists as elements")
        if item is None:
            raise TypedError("associative list without keys has an element that's an explicit null")
        return value_element(item)
    if item is None:
        raise TypedError("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise TypedError("associative list with keys may not have non-map elements")
    keys = {}
    for key in schema.keys:
        if key in item:
            keys[key] = item[key]
        elif key in schema.key_defaults:
            keys[key] = schema.key_defaults[key]
    if not keys:
        named = " ".join(f'"{key}"' for key in schema.keys)
        raise TypedError(
            f"associative list with keys has an element that omits all key fields [{named}] "
            "(and doesn't have default values for any key fields)"
        )
    return key_element(keys)


def elements(schema: Schema, items: list[Any]) -> Iterator[tuple[str, Any]]:
    """Each item of a set or map list with its element; an item without one is reported by its position."""
    for index, item in enumerate(items):
        try:
            yield item_element(schema, item), item
        except TypedError as error:
            raise TypedError(f"element {index}: {error.message}") from error


def grouped(schema: Schema, items: list[Any]) -> dict[str, list[Any]]:
    """Items by element; more than one item under an element are duplicates."""
    out: dict[str, list[Any]] = {}
    for element, item in elements(schema, items):
        out.setdefault(element, []).append(item)
    return out


def part(schema: Schema, name: str) -> Schema:
    """The schema of a field; of any kind for one that a stored object has and its type no longer declares."""
    return schema.fields.get(name) or schema.element or DEDUCED


def field_set(schema: Schema, value: Any) -> FieldSet:
    """The fields a configuration states: leaves, list items, keys of maps, and empty or null fields."""
    stated = _stated(schema, value)
    return {} if stated is None else stated


def _stated(schema: Schema, value: Any) -> FieldSet | None:
    kind = shape(schema, value)
    if kind == SCALAR:
        return {}
    out: FieldSet = {}
    if kind == MAP:
        if schema.map_atomic:
            return {}
        for name in value if isinstance(value, dict) else ():
            below = _stated(part(schema, name), value[name])
            if value[name] is None or value[name] == {} or name not in schema.fields:
                below = {} if below is None else as_member(below)
            if below is not None:
                out[f"f:{name}"] = below
        return out or None
    if schema.list_type == "atomic":
        return {}
    for element, items in grouped(schema, value if isinstance(value, list) else []).items():
        below = _stated(schema.items, items[0]) if len(items) == 1 else None
        out[element] = {} if below is None else as_member(below)
    return out or None


def everything(schema: Schema, value: Any) -> FieldSet:
    """The tree of a value that appeared or disappeared: it and all its parts."""
    if isinstance(value, dict):
        if not value or schema.map_atomic or not schema.is_map:
            return {}
        out: FieldSet = {MEMBER: {}}
        for name, below in value.items():
            inner = part(schema, name)
            out[f"f:{name}"] = everything(inner, below) if isinstance(below, dict | list) else {}
        return out
    if isinstance(value, list) and value and schema.is_list and schema.list_type != "atomic":
        out = {MEMBER: {}}
        for element, items in grouped(schema, value).items():
            out[element] = everything(schema.items, items[0]) if len(items) == 1 else {}
        return out
    return {}


class _Changes:
    """The three sets of a comparison while it is made, for one node and below."""

    __slots__ = ("added", "modified", "removed")

    def __init__(self) -> None:
        self.removed: FieldSet | None = None
        self.modified: FieldSet | None = None
        self.added: FieldSet | None = None

    def take(self, element: str, below: _Changes) -> None:
        """Hang the changes of a part below its element."""
        if below.removed is not None:
            self.remove(element, below.removed)
        if below.modified is not None:
            self.modify(element, below.modified)
        if below.added is not None:
            self.add(element, below.added)

    def remove(self, element: str, tree: FieldSet) -> None:
        """Note that something below `element` is gone."""
        if self.removed is None:
            self.removed = {}
        self.removed[element] = tree

    def modify(self, element: str, tree: FieldSet) -> None:
        """Note that something below `element` has another value."""
        if self.modified is None:
            self.modified = {}
        self.modified[element] = tree

    def add(self, element: str, tree: FieldSet) -> None:
        """Note that something below `element` is new."""
        if self.added is None:
            self.added = {}
        self.added[element] = tree


def compare(schema: Schema, old: Any, new: Any) -> Comparison:
    """What turns `old` into `new`."""
    changes = _Changes()
    _compare(schema, old, new, changes)
    return Comparison(changes.removed or {}, changes.modified or {}, changes.added or {})


def _compare(schema: Schema, old: Any, new: Any, changes: _Changes) -> None:
    if old is new or (schema.builtin and old == new):
        return
    before, after = shape(schema, old), shape(schema, new)
    if before != after:
        _compare_as(before, schema, old, new, changes)
    _compare_as(after, schema, old, new, changes)


def _compare_as(kind: str, schema: Schema, old: Any, new: Any, changes: _Changes) -> None:
    """Compare two values as one shape; a side that has another shape counts as empty."""
    if kind == MAP:
        before = old if isinstance(old, dict) else {}
        after = new if isinstance(new, dict) else {}
        if (before or after) and not schema.map_atomic:
            _compare_maps(schema, before, after, changes)
            return
    elif kind == LIST:
        items = old if isinstance(old, list) else []
        others = new if isinstance(new, list) else []
        if (items or others) and schema.list_type != "atomic":
            _compare_lists(schema, items, others, changes)
            return
    if not same(old, new):
        changes.modified = {} if changes.modified is None else as_member(changes.modified)


def _compare_maps(schema: Schema, old: dict[str, Any], new: dict[str, Any], changes: _Changes) -> None:
    for name, value in new.items():
        if name not in old:
            changes.add(f"f:{name}", everything(part(schema, name), value))
            continue
        before = old[name]
        if before is value:
            continue
        below = _Changes()
        _compare(part(schema, name), before, value, below)
        changes.take(f"f:{name}", below)
    for name, value in old.items():
        if name not in new:
            changes.remove(f"f:{name}", everything(part(schema, name), value))


def _compare_lists(schema: Schema, old: list[Any], new: list[Any], changes: _Changes) -> None:
    """Items one by one; duplicates under an element are compared together, as one unit."""
    before, after = grouped(schema, old), grouped(schema, new)
    for element in before | after:
        items, others = before.get(element, []), after.get(element, [])
        if len(items) <= 1 and len(others) <= 1:
            if not items:
                changes.add(element, everything(schema.items, others[0]))
            elif not others:
                changes.remove(element, everything(schema.items, items[0]))
            else:
                below = _Changes()
                _compare(schema.items, items[0], others[0], below)
                changes.take(element, below)
        elif len(items) >= 2 and len(others) >= 2:
            if not same(items, others):
                changes.modify(element, {})
        elif len(items) >= 2:
            if others:
                changes.add(element, everything(schema.items, others[0]))
            changes.remove(element, {})
        else:
            if items:
                changes.remove(element, everything(schema.items, items[0]))
            changes.add(element, {})


def remove(schema: Schema, value: Any, fields: FieldSet) -> Any:
    """The value without the fields of a set. A list or map that loses its last part becomes null."""
    kind = shape(schema, value)
    if kind == MAP:
        return _remove_keys(schema, value, fields) if value and not schema.map_atomic else None
    if kind == LIST:
        return _remove_items(schema, value, fields) if value and schema.list_type != "atomic" else None
    return value


def _remove_keys(schema: Schema, value: dict[str, Any], fields: FieldSet) -> dict[str, Any] | None:
    out = {}
    for name, below in value.items():
        gone = fields.get(f"f:{name}")
        if gone is None:
            out[name] = below
        elif gone and MEMBER not in gone:
            out[name] = remove(part(schema, name), below, gone)
    return out or None


def _remove_items(schema: Schema, value: list[Any], fields: FieldSet) -> list[Any] | None:
    out = []
    for element, item in elements(schema, value):
        gone = fields.get(element)
        if gone is None:
            out.append(item)
        elif gone and MEMBER not in gone:
            out.append(remove(schema.items, item, gone))
    return out or None


def named_members(schema: Schema | None, fields: FieldSet) -> FieldSet:
    """The set with every declared field on the way to a member made a member itself."""
    out: FieldSet = {}
    for element, below in fields.items():
        if not below:
            out[element] = below
            continue
        declared, inner = False, None
        if schema is not None and element[0] == "f" and schema.is_map:
            declared = element[2:] in schema.fields
            inner = schema.fields.get(element[2:]) or schema.element
        elif schema is not None and element[0] == "k" and schema.is_list:
            inner = schema.items
        tree = named_members(inner, below)
        out[element] = as_member(tree) if declared else tree
    return out


def reconciled(schema: Schema, fields: FieldSet) -> FieldSet:
    """A stored set after its type changed: who owned parts of what is one unit now owns the unit."""
    out: FieldSet | None = None
    for element, below in fields.items():
        child = _type_below(schema, element)
        if not below or child is None:
            continue
        unit = child.map_atomic if child.is_map else child.scalar is None and child.list_type == "atomic"
        left = {} if unit and child.element is not child else reconciled(child, below)
        if left is not below:
            out = dict(fields) if out is None else out
            out[element] = left
    return fields if out is None else out


def _type_below(schema: Schema, element: str) -> Schema | None:
    if element[0] == "f":
        return schema.field(element[2:]) if schema.is_map else None
    return schema.items if schema.is_list and element != MEMBER else None
