"""What `steersman crds --check` finds in definitions: fields without a description, and the shape of every finding.

A finding names the kind, the field and the way out. Fields are written as `kubectl explain` takes them, with `[]` for
items of a list and `*` for values of a map. Pure; incompatible changes are in `compatibility`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DefinitionFinding", "fields_of", "undescribed"]

JSON = dict[str, Any]
SERVER_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})  # the API server describes these itself


class DefinitionFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to correct before a definition is released."""

    kind: str  # with its version, such as `WebApp v1`
    field: str  # empty: the kind itself
    problem: str
    solution: str


def fields_of(schema: JSON, path: str = "") -> Iterator[tuple[str, JSON]]:
    """Every field of a schema with its path, parents before their fields."""
    for name, node in (schema.get("properties") or {}).items():
        if path or name not in SERVER_FIELDS:
            yield from _with_fields(f"{path}.{name}" if path else name, node)


def _with_fields(path: str, node: JSON) -> Iterator[tuple[str, JSON]]:
    yield path, node
    while (below := _element(node)) is not None:
        step, node = below
        path += step
    yield from fields_of(node, path)


def _element(node: JSON) -> tuple[str, JSON] | None:
    """The schema of the items of a list or of the values of a map."""
    for key, step in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(node.get(key), dict):
            return step, node[key]
    return None


def undescribed(manifest: JSON) -> list[DefinitionFinding]:
    """The kinds and fields of a definition that `kubectl explain` shows without a text."""
    found = []
    for version in manifest["spec"]["versions"]:
        kind = f"{manifest['spec']['names']['kind']} {version['name']}"
        schema = version["schema"]["openAPIV3Schema"]
        if not schema.get("description"):
            way_out = "write a docstring below the class line"
            found.append(DefinitionFinding(kind=kind, field="", problem="has no description", solution=way_out))
        way_out = "write a docstring below the field, or Annotated[…, Description(…)]"
        found += [
            DefinitionFinding(kind=kind, field=path, problem="has no description", solution=way_out)
            for path, node in fields_of(schema)
            if not node.get("description")
        ]
    return found
