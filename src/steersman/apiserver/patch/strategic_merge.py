"""Strategic merge patch: a merge patch that knows the types it patches.

Maps are merged key by key and null removes a key, as in a JSON merge patch. Lists are replaced unless their type says
merge: lists of scalars become unions, lists of objects are merged item by item by their merge key. Directives in the
patch say the rest:

    $patch: replace | delete           this map instead of the live one; in a list item: of the whole list | this item
    $deleteFromPrimitiveList/FIELD     scalars to take out of a list
    $setElementOrder/FIELD             the order of a merged list
    $retainKeys                        the only keys that may stay in this map

Invariant: neither the original nor the patch is changed. Only built-in types have the needed words; custom resources do
not take this kind of patch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.apiserver.patch.field_sets import json_text
from steersman.apiserver.status_errors import StatusError, bad_request, internal, unprocessable
from steersman.apiserver.validation.field_errors import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from steersman.apiserver.resources.schema import Schema

PATCH: Final = "$patch"
RETAIN: Final = "$retainKeys"
DELETE_LIST: Final = "$deleteFromPrimitiveList"
ORDER: Final = "$setElementOrder"

Map = dict[str, Any]
BAD_RETAIN: Final = "invalid patch format of retainKeys"
BAD_ORDER: Final = "invalid patch format of setElementOrder list"
BAD_DELETE: Final = "invalid patch format of primitive list"


def strategic_merge(schema: Schema, original: Map, patch: Map) -> Map:
    """The original with the patch applied. Raises StatusError when the patch makes no sense."""
    return _merge_map(schema, original, patch)


def _merge_map(schema: Schema, original: Map, patch: Map) -> Map:
    if PATCH in patch:
        return _directed(patch)
    out = dict(original)
    rest = dict(patch)
    _retain(out, rest)
    _order_lists(schema, out, rest)
    for key, value in rest.items():
        deleting = key.startswith(DELETE_LIST)
        name = _field_of(key, DELETE_LIST, BAD_DELETE) if deleting else key
        if value is None:
            out.pop(name, None)
        elif name in out and _same_kind(out[name], value):
            out[name] = _merge_value(schema, name, out[name], value, deleting=deleting)
        elif not deleting:
            _put(out, name, _without_nulls(value))
    return out


def _directed(patch: Map) -> Map:
    """What a map with a directive becomes, whatever it was."""
    directive = patch[PATCH]
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != PATCH}
    if directive == "delete":
        return {}
    raise _unknown(directive, patch)


def _unknown(directive: Any, patch: Map) -> StatusError:
    return internal(f"unknown {PATCH} directive {shown(directive)} (known: replace, delete) in {shown(patch)}")


def _not_a(expected: str, value: Any) -> StatusError:
    return internal(f"expected {expected} in the patch, got {shown(value)}")


def _retain(out: Map, patch: Map) -> None:
    """Drop every key a $retainKeys list does not name; the patch may set no other."""
    if RETAIN not in patch:
        return
    keep = patch.pop(RETAIN)
    if not isinstance(keep, list):
        raise bad_request(BAD_RETAIN)
    for key, value in patch.items():
        if value is not None and key not in keep and not key.startswith((DELETE_LIST, ORDER)):
            raise bad_request(BAD_RETAIN)
    for key in [key for key in out if key not in keep]:
        del out[key]


def _merge_value(schema: Schema, name: str, original: Any, value: Any, *, deleting: bool) -> Any:
    if isinstance(value, dict):
        child = _lookup(schema, name)
        return value if "replace" in child.strategy else _merge_map(child, original, value)
    if isinstance(value, list):
        return _merge_field(_lookup_list(schema, name), original, value, deleting=deleting)
    return value


def _merge_field(child: Schema, original: list[Any], patch: list[Any], *, deleting: bool) -> list[Any]:
    if deleting or "merge" in child.strategy:
        return _merge_list(child, original, patch, deleting=deleting)
    return patch


def _merge_list(child: Schema, original: list[Any], patch: list[Any], *, deleting: bool) -> list[Any]:
    """Merge a list field by its type: scalars as a set, objects by merge key; in the order of patch, then original."""
    if not original and not patch:
        return original
    if not _holds_maps(original, patch):
        if deleting:
            return [item for item in original if item not in patch]
        return _arranged(list(dict.fromkeys(original + patch)), patch, original, _itself)
    key = child.merge_key
    if not key:
        raise internal("cannot merge lists without merge key for struct")
    original, patch = _without_special(original, patch, key)
    by_key = _by(key)
    merged = list(original)
    for item in patch:
        at = _find(merged, key, by_key(item))
        if at is None:
            merged.append(item)
        else:
            merged[at] = _merge_map(child.items, merged[at], item)
    return _arranged(merged, patch, original, by_key)


def _without_special(original: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Both lists after the directives among the patch's items are carried out."""
    plain_items, replace = [], False
    for item in patch:
        directive = item.get(PATCH)
        if PATCH not in item:
            plain_items.append(item)
        elif directive == "delete":
            value = _by(key)(item)
            original = [known for known in original if key not in known or known[key] != value]
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise internal("merging lists cannot yet be specified in the patch")
        else:
            raise _unknown(directive, item)
    return (plain_items, []) if replace else (original, plain_items)


def _order_lists(schema: Schema, out: Map, patch: Map) -> None:
    """Carry out every $setElementOrder, together with the patch of the list it orders."""
    for directive in [key for key in patch if key.startswith(ORDER)]:
        order = patch.pop(directive)
        if not isinstance(order, list):
            raise _not_a("a list", order)
        name = _field_of(directive, ORDER, BAD_ORDER)
        live, wanted = out.get(name), patch.get(name)
        for given, known in ((live, name in out), (wanted, name in patch)):
            if known and not isinstance(given, list):
                raise _not_a("a list", given)
        child = _lookup_list(schema, name)
        _check_order(wanted or [], order, child.merge_key)
        if name not in out and name not in patch:
            continue
        patch.pop(name, None)
        if wanted is None:
            merged = live or []
        elif live is None:
            merged = _without_directives(wanted)
        else:
            merged = _merge_field(child, live, wanted, deleting=False)
        if not live and not wanted:
            raise internal("no elements in any of the given slices")
        maps = _holds_maps(live or [], wanted or [])
        out[name] = _arranged(merged, order, live or [], _by(child.merge_key) if maps and child.merge_key else _itself)


def _check_order(patch: list[Any], order: list[Any], key: str | None) -> None:
    """Every item of the patch must be in the order list, in the same order."""
    if not patch or not order:
        return
    of = _by(key) if key else _itself
    wanted = [of(item) for item in patch if not (isinstance(item, dict) and PATCH in item)]
    remaining = iter([of(item) for item in order])
    if not all(any(value == known for known in remaining) for value in wanted):
        raise internal(f"the order of the patch {shown(patch)} does not match its {ORDER} list {shown(order)}")


def _arranged(merged: list[Any], wanted: list[Any], live: list[Any], of: Callable[[Any], Hashable]) -> list[Any]:
    """The items of `wanted` in its order and the others in live order, interleaved as the live list had them."""
    patch_order = _positions(wanted, of)
    live_order = _positions(live, of)
    ours = sorted((item for item in merged if of(item) in patch_order), key=lambda item: patch_order[of(item)])
    others = [item for item in merged if of(item) not in patch_order]
    others.sort(key=lambda item: live_order.get(of(item), len(live_order)))
    out: list[Any] = []
    left = 0
    for item in ours:
        place = live_order.get(of(item))
        while place is not None and left < len(others) and live_order.get(of(others[left]), len(live)) < place:
            out.append(others[left])
            left += 1
        out.append(item)
    return out + others[left:]


def _positions(items: list[Any], of: Callable[[Any], Hashable]) -> dict[Hashable, int]:
    out: dict[Hashable, int] = {}
    for index, item in enumerate(items):
        out.setdefault(of(item), index)
    return out


def _itself(item: Any) -> Hashable:
    return item if not isinstance(item, dict | list) else json_text(item)


def _by(key: str) -> Callable[[Any], Hashable]:
    def value(item: Any) -> Hashable:
        if not isinstance(item, dict):
            raise _not_a("an object", item)
        if key not in item:
            raise internal(f"{shown(item)} does not contain declared merge key: {key}")
        return _itself(item[key])

    return value


def _find(items: list[Any], key: str, value: Hashable) -> int | None:
    for index, item in enumerate(items):
        if key in item and _itself(item[key]) == value:
            return index
    return None


def _holds_maps(*lists: list[Any]) -> bool:
    """Whether the lists hold objects; they must not hold a mixture, or lists."""
    kinds = {type(item) for items in lists for item in items}
    if list in kinds:
        raise unprocessable()
    if len(kinds) > 1:
        raise internal(f"items of a list must be of one type: {shown(list(lists))}")
    return kinds == {dict}


def _same_kind(a: Any, b: Any) -> bool:
    if isinstance(a, dict | list) or isinstance(b, dict | list):
        return type(a) is type(b)
    return a is not None


REMOVED: Final = object()


def _put(out: Map, name: str, value: Any) -> None:
    """Set a new field, unless the patch says to delete what was never there."""
    cleaned = _without_directives(value)
    if cleaned is REMOVED:
        out.pop(name, None)
    else:
        out[name] = cleaned


def _without_directives(value: Any) -> Any:
    """A new value without the parts that only make sense against an old one."""
    if isinstance(value, dict):
        if PATCH in value:
            return REMOVED
        parts = {key: _without_directives(below) for key, below in value.items()}
        return {key: below for key, below in parts.items() if below is not REMOVED}
    if isinstance(value, list):
        return [kept for item in value if (kept := _without_directives(item)) is not REMOVED]
    return value


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(below) for key, below in value.items() if below is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _field_of(directive: str, prefix: str, error: str) -> str:
    head, slash, name = directive.partition("/")
    if not slash or head != prefix:
        raise bad_request(error)
    return name


def _lookup(schema: Schema, name: str) -> Schema:
    """The type of a struct's field. The server cannot merge below maps of objects: it says so."""
    if not schema.fields and not schema.name:
        raise internal(f"a map of objects cannot be merged by a strategic merge patch: {name}")
    known = schema.fields.get(name)
    if known is None:
        raise internal(f"{schema.name.rpartition('.')[2]} has no field {name}")
    return known


def _lookup_list(schema: Schema, name: str) -> Schema:
    known = _lookup(schema, name)
    if not known.is_list:
        raise internal(f"{name} is not a list")
    return known
