"""Patches: the difference between two JSON documents, made and applied.

    merge_patch(before, after)      RFC 7386: the smallest merge patch      apply_merge_patch(document, patch)
    json_patch(before, after)       RFC 6902: a short list of operations    apply_json_patch(document, operations)

Invariant: applying a difference to `before` gives `after`. (A merge patch cannot set null, so nulls of `after` count as
absent there.) Nothing here changes its arguments; results share with them what did not change.

Applying does what the API server does, which is not quite what the RFCs say, and fails in the server's words:
a merge patch also drops nulls from objects inside lists it sets; `replace` of a missing key adds it, `copy` of a
missing key copies null, `test` of a missing key finds null; negative indexes count from the end.

Not here: strategic merge and server-side apply, which need the schema of a kind.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.errors import FormatError, SteersmanError
from steersman.kube.api.validation import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["PatchError", "PatchType", "apply_json_patch", "apply_merge_patch", "json_patch", "merge_patch"]


class PatchType(StrEnum):
    """The four kinds of patch a server takes, by their media types."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class PatchError(SteersmanError):
    """A well-formed patch does not fit the document. A patch that is malformed is a `FormatError`."""


# ------------------------------------------------------------------------------------------------------ merge patches
def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The smallest merge patch that turns `before` into `after`; empty when nothing differs.

    >>> merge_patch({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 4}})
    {'b': {'d': None, 'c': 4}}
    """
    patch: dict[str, Any] = {}
    for key, old in before.items():
        if key not in after or (after[key] is None and old is not None):
            patch[key] = None
    for key, new in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            if inner := merge_patch(old, new):
                patch[key] = inner
        elif new is not None and not _same(old, new):
            patch[key] = new
    return patch


def apply_merge_patch(document: Any, patch: Any) -> Any:
    """`document` with `patch` merged into it."""
    if not isinstance(patch, dict):
        return patch
    if not isinstance(document, dict):
        return _without_nulls(patch)
    result = dict(document)
    for key, value in patch.items():
        old = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(old, dict):
            result[key] = apply_merge_patch(old, value)
        else:
            result[key] = _without_nulls(value)
    return result


def _without_nulls(value: Any) -> Any:
    """`value` without the keys that are null; list items that are null stay."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


# ------------------------------------------------------------------------------------------------------- JSON patches
def json_patch(before: Any, after: Any) -> list[dict[str, Any]]:
    """Operations that turn `before` into `after`; empty when nothing differs.

    Objects are always patched key by key, so that a concurrent change of another key survives. A list is replaced as a
    whole when that is shorter than patching its items.

    >>> json_patch({"a/b": [1, 2, 3]}, {"a/b": [1, 3], "c": None})
    [{'op': 'remove', 'path': '/a~1b/1'}, {'op': 'add', 'path': '/c', 'value': None}]
    """
    return list(_difference("", before, after))


def _difference(path: str, before: Any, after: Any) -> Iterator[dict[str, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _object_difference(path, before, after)
        return
    if _same(before, after):
        return
    whole = {"op": "replace", "path": path, "value": after}
    if isinstance(before, list) and isinstance(after, list):
        operations = list(_list_difference(path, before, after))
        if len(msgspec.json.encode(operations)) <= len(msgspec.json.encode([whole])):
            yield from operations
            return
    yield whole


def _object_difference(path: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for key in before:
        if key not in after:
            yield {"op": "remove", "path": f"{path}/{_escape(key)}"}
    for key, value in after.items():
        if key in before:
            yield from _difference(f"{path}/{_escape(key)}", before[key], value)
        else:
            yield {"op": "add", "path": f"{path}/{_escape(key)}", "value": value}


def _list_difference(path: str, before: list[Any], after: list[Any]) -> Iterator[dict[str, Any]]:
    """Keeps the common start and end; between them, items are patched in place, then removed or added."""
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and _same(before[start], after[start]):
        start += 1
    end = 0
    while end < shorter - start and _same(before[-1 - end], after[-1 - end]):
        end += 1
    for index in range(start, shorter - end):
        yield from _difference(f"{path}/{index}", before[index], after[index])
    for index in reversed(range(len(after) - end, len(before) - end)):
        yield {"op": "remove", "path": f"{path}/{index}"}
    for index in range(len(before) - end, len(after) - end):
        yield {"op": "add", "path": f"{path}/{index}", "value": after[index]}


def apply_json_patch(document: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """`document` after all `operations`; a `PatchError` if one of them does not fit."""
    if not isinstance(operations, list | tuple):
        raise FormatError(f"a JSON patch is a list of operations, not {_json_type(operations)}")
    target = _Target(document)
    for index, operation in enumerate(operations):
        if not isinstance(operation, dict):
            raise FormatError(f"operation {index} of the JSON patch is not an object but {_json_type(operation)}")
        kind = operation.get("op")
        if not isinstance(kind, str) or kind not in _OPERATIONS:
            raise PatchError(f"Unexpected kind: {kind if isinstance(kind, str) else 'unknown'}")
        _OPERATIONS[kind](target, operation)
    return target.root


_MISSING: Final = "missing value"
_INVALID_INDEX: Final = "invalid index referenced"
_COPY_LIMIT: Final = 3 * 1024 * 1024  # bytes that all copies of one patch may add; the server's own limit


class _Target:
    """A document that is being patched: every object and list is copied once, before its first change."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.copied_bytes = 0
        self._owned: set[int] = set()

    def find(self, pointer: str) -> tuple[dict[str, Any] | list[Any], str] | None:
        """The container that `pointer` leads into, ready to be changed, and the last key; None if it leads nowhere."""
        _, *parts = pointer.split("/")
        if not parts or not isinstance(self.root, dict | list):
            return None
        *parents, key = map(_unescape, parts)
        container = self.root = self._own(self.root)
        for parent in parents:
            try:
                child = _get(container, parent)
            except PatchError:
                return None
            if not isinstance(child, dict | list):
                return None
            container = self._adopt(container, parent, child)
        return container, key

    def _adopt(self, container: Any, key: str, child: Any) -> Any:
        mine = self._own(child)
        if mine is not child:
            container[key if isinstance(container, dict) else int(key)] = mine
        return mine

    def _own(self, container: Any) -> Any:
        if id(container) in self._owned:
            return container
        mine = container.copy()
        self._owned.add(id(mine))
        return mine


def _add(target: _Target, operation: Mapping[str, Any]) -> None:
    path = _pointer(operation, "path", f"add operation failed to decode path: {_MISSING}")
    place = target.find(path)
    if place is None:
        raise PatchError(f'add operation does not apply: doc is missing path: "{path}": {_MISSING}')
    _insert(*place, operation.get("value"), f"error in add for path: '{path}'")


def _remove(target: _Target, operation: Mapping[str, Any]) -> None:
    path = _pointer(operation, "path", f"remove operation failed to decode path: {_MISSING}")
    place = target.find(path)
    if place is None:
        raise PatchError(f'remove operation does not apply: doc is missing path: "{path}": {_MISSING}')
    _delete(*place, f"error in remove for path: '{path}'")


def _replace(target: _Target, operation: Mapping[str, Any]) -> None:
    path = _pointer(operation, "path", f"replace operation failed to decode path: {_NO_PATH}")
    value = operation.get("value")
    if path == "":
        if not isinstance(value, dict | list):
            raise PatchError("replace operation value must be object or array: %!w(<nil>)")
        target.root = value
        return
    place = target.find(path)
    if place is None:
        raise PatchError(f"replace operation does not apply: doc is missing path: {path}: {_MISSING}")
    container, key = place
    if isinstance(container, dict):
        container[key] = value
        return
    try:
        container[_index(container, key)] = value
    except PatchError:
        raise PatchError(f"replace operation does not apply: doc is missing key: {path}: {_MISSING}") from None


def _move(target: _Target, operation: Mapping[str, Any]) -> None:
    source = _pointer(operation, "from", f"move operation failed to decode from: {_NO_FROM}")
    place = target.find(source)
    if place is None:
        raise PatchError(f"move operation does not apply: doc is missing from path: {source}: {_MISSING}")
    container, key = place
    value = _get(container, key, f"error in move for path: '{key}'")
    _delete(container, key, f"error in move for path: '{key}'")
    path = _pointer(operation, "path", f"move operation failed to decode path: {_NO_PATH}")
    place = target.find(path)
    if place is None:
        raise PatchError(f"move operation does not apply: doc is missing destination path: {path}: {_MISSING}")
    _insert(*place, value, f"error in move for path: '{path}'")


def _copy(target: _Target, operation: Mapping[str, Any]) -> None:
    source = _pointer(operation, "from", f"copy operation failed to decode from: {_NO_FROM}")
    place = target.find(source)
    if place is None:
        raise PatchError(f"copy operation does not apply: doc is missing from path: {source}: {_MISSING}")
    text = msgspec.json.encode(_get(*place, f"error in copy for from: '{source}'"))
    path = _pointer(operation, "path", f"copy operation failed to decode path: {_MISSING}")
    place = target.find(path)
    if place is None:
        raise PatchError(f"copy operation does not apply: doc is missing destination path: {path}: {_MISSING}")
    target.copied_bytes += len(text)
    if target.copied_bytes > _COPY_LIMIT:
        raise PatchError(
            "Unable to complete the copy, the accumulated size increase of copy is "
            f"{target.copied_bytes}, exceeding the limit {_COPY_LIMIT}"
        )
    _insert(*place, msgspec.json.decode(text), "error while adding value during copy")


def _test(target: _Target, operation: Mapping[str, Any]) -> None:
    path = _pointer(operation, "path", f"test operation failed to decode path: {_NO_PATH}")
    expected = operation.get("value")
    if path == "":
        actual = target.root
    else:
        place = target.find(path)
        if place is None:
            raise PatchError(f"test operation does not apply: is missing path: {path}: {_MISSING}")
        actual = _get(*place, f"error in test for path: '{path}'")
    if not _same(actual, expected, exact=True):
        raise PatchError(f"testing value {path} failed: test failed")


_NO_PATH: Final = f"operation missing path field: {_MISSING}"
_NO_FROM: Final = f"operation, missing from field: {_MISSING}"
_OPERATIONS: Final = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


def _pointer(operation: Mapping[str, Any], field: str, complaint: str) -> str:
    value = operation.get(field)
    if not isinstance(value, str):
        raise PatchError(complaint)
    return value


def _get(container: Any, key: str, context: str = "") -> Any:
    return container.get(key) if isinstance(container, dict) else container[_index(container, key, context=context)]


def _insert(container: Any, key: str, value: Any, context: str) -> None:
    if isinstance(container, dict):
        container[key] = value
    elif key == "-":
        container.append(value)
    else:
        container.insert(_index(container, key, size=len(container) + 1, context=context, add=True), value)


def _delete(container: Any, key: str, context: str) -> None:
    if isinstance(container, list):
        del container[_index(container, key, context=context)]
    elif key in container:
        del container[key]
    else:
        raise PatchError(f"{context}: Unable to remove nonexistent key: {key}: {_MISSING}")


def _index(items: list[Any], key: str, *, size: int | None = None, context: str = "", add: bool = False) -> int:
    """The place in a list that `key` names; -1 is the last one."""
    size = len(items) if size is None else size
    before = f"{context}: " if context else ""
    wrong = f"value was not a proper array index: '{key}': " if add else ""
    if not _INTEGER.fullmatch(key):
        raise PatchError(f"{before}{wrong}strconv.Atoi: parsing {quoted(key)}: invalid syntax")
    index = int(key)
    if not -(2**63) <= index < 2**63:
        raise PatchError(f"{before}{wrong}strconv.Atoi: parsing {quoted(key)}: value out of range")
    if not -size <= index < size:
        raise PatchError(f"{before}Unable to access invalid index: {index}: {_INVALID_INDEX}")
    return index % size


_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,400}", re.ASCII)


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _unescape(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _same(value: Any, other: Any, *, exact: bool = False) -> bool:
    """Whether two JSON values are equal. True is not 1; 1 is 1.0 unless `exact`, as after a trip over the wire."""
    if value is other:
        return True
    if isinstance(value, dict):
        return (
            isinstance(other, dict)
            and value.keys() == other.keys()
            and all(_same(inner, other[key], exact=exact) for key, inner in value.items())
        )
    if isinstance(value, list):
        return (
            isinstance(other, list)
            and len(value) == len(other)
            and all(_same(left, right, exact=exact) for left, right in zip(value, other, strict=True))
        )
    if type(value) is type(other):
        return bool(value == other)
    return not exact and {type(value), type(other)} == {int, float} and value == other


def _json_type(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
