"""Lists that are sets or maps hold nothing twice, and embedded resources look like resources.

Both are rules of custom resources that no JSON Schema keyword expresses; both are checked on the whole object.
On an update the list rules are dropped altogether when the stored object already broke one, as the server does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver import causes
from steersman.apiserver.causes import Cause, go_json
from steersman.apiserver.metadata import metadata_causes
from steersman.apiserver.names import is_dns1035_label, is_path_segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.apiserver.structural import Node

__all__ = ["list_causes"]

_UNSET = object()


def list_causes(root: Node, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
    """Broken embedded resources, then duplicates in sets and maps."""
    if not root.holds_embedded and not root.holds_keyed:
        return []
    found = list(_embedded(root, obj, ""))
    repeated = list(_repeated(root, obj, ""))
    if repeated and (old is None or not any(True for _ in _repeated(root, old, ""))):
        found += repeated
    return found


def _child(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _repeated(node: Node | None, value: Any, path: str) -> Iterator[Cause]:
    if node is None or not node.holds_keyed:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            if (below := node.properties.get(key)) is not None:
                yield from _repeated(below, item, _child(path, key))
            elif node.additional is not None:
                yield from _repeated(node.additional, item, f"{path}[{key}]")
    elif isinstance(value, list):
        if node.list_type == "set":
            yield from (causes.duplicate(f"{path}[{at}]", value[at]) for at in _second_occurrences(value))
        elif node.list_type == "map":
            yield from _repeated_keys(node, value, path)
        for at, item in enumerate(value):
            yield from _repeated(node.items, item, f"{path}[{at}]")


def _repeated_keys(node: Node, value: list[Any], path: str) -> Iterator[Cause]:
    for at, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            yield causes.invalid(f"{path}[{at}]", item, "must be an object for an array of list-type map")
            return
    keys = [{key: item[key] for key in node.list_keys if key in item} if item else {} for item in value]
    for at in _second_occurrences(keys):
        yield causes.duplicate(f"{path}[{at}]", keys[at])


def _second_occurrences(items: list[Any]) -> list[int]:
    """Where a value appears for the second time; a third time says nothing new."""
    if len(items) < 2:
        return []
    seen: dict[str, int] = {}
    found: list[int] = []
    for at, item in enumerate(items):
        key = go_json(item)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 2:
            found.append(at)
    return found


def _embedded(node: Node | None, value: Any, path: str) -> Iterator[Cause]:
    if node is None or not node.holds_embedded:
        return
    if isinstance(value, dict):
        if node.embedded:
            yield from _resource_causes(value, path)
        for key, item in value.items():
            if (below := node.properties.get(key)) is not None:
                yield from _embedded(below, item, _child(path, key))
            elif node.additional is not None:
                yield from _embedded(node.additional, item, f"{path}[{key}]")
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _embedded(node.items, item, f"{path}[{at}]")


def _resource_causes(value: dict[str, Any], path: str) -> Iterator[Cause]:
    version, kind = value.get("apiVersion", _UNSET), value.get("kind", _UNSET)
    if version is _UNSET:
        yield causes.required(_child(path, "apiVersion"))
    elif not isinstance(version, str):
        yield causes.invalid(_child(path, "apiVersion"), version, "must be a string")
    elif not version:
        yield causes.invalid(_child(path, "apiVersion"), version, "must not be empty")
    elif version.count("/") > 1:
        yield causes.invalid(_child(path, "apiVersion"), version, f"unexpected GroupVersion string: {version}")
    if kind is _UNSET:
        yield causes.required(_child(path, "kind"))
    elif not isinstance(kind, str):
        yield causes.invalid(_child(path, "kind"), kind, "must be a string")
    elif not kind:
        yield causes.invalid(_child(path, "kind"), kind, "must not be empty")
    elif problems := is_dns1035_label(kind.lower()):
        detail = "may have mixed case, but should otherwise match: " + ",".join(problems)
        yield causes.invalid(_child(path, "kind"), kind, detail)
    if isinstance(metadata := value.get("metadata"), dict):
        named = metadata if metadata.get("name") else {**metadata, "name": "fakename"}
        yield from metadata_causes(
            named, namespaced=bool(metadata.get("namespace")), name_rule=is_path_segment, path=_child(path, "metadata")
        )
