"""Tables: what the server sends when a client asks for rows to print instead of objects.

Columns of built-in kinds are recorded from the real server, their cells are computed in `cells`. Custom resources say
in their definition which columns they have; without any they show their age. Kinds with neither show their name and
when they were created, as the real server does for them.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver.patch.field_sets import json_text
from steersman.apiserver.printing import pod_cells
from steersman.apiserver.printing.cells import CELLS
from steersman.apiserver.printing.format import age
from steersman.apiserver.printing.jsonpath import JsonPath
from steersman.apiserver.resources.conversion import to_storage
from steersman.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from steersman.apiserver.resources.kinds import Column, ResourceInfo

JSON = dict[str, Any]

_PLAIN = "roles.rbac.authorization.k8s.io"  # a resource whose columns are its name and when it was created
# An annotation that the server adds when it shows a DaemonSet; tables are made before that.
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def table(
    info: ResourceInfo,
    objects: Iterable[JSON],
    *,
    list_meta: JSON,
    include: str = "Metadata",
    now: float,
    columns_known: bool = False,
) -> JSON:
    """The Table of `objects`. `include` says what comes with each row; columns are sent once per watch."""
    cells = _cells(info)
    pods = info.kind.qualified == "pods"
    rows: list[JSON] = []
    for obj in objects:
        row: JSON = {"cells": cells(obj, now)}
        if pods and (found := pod_cells.conditions(obj)):
            row["conditions"] = found
        row["object"] = _included(obj, include)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_meta,
        "columnDefinitions": None if columns_known else columns(info),
        "rows": None if not rows and cells is _name_and_creation else rows,  # as the real server says it
    }


def _included(obj: JSON, include: str) -> JSON | None:
    if include == "None":
        return None
    if include == "Object":
        return obj
    metadata = obj["metadata"]
    if TEMPLATE_GENERATION in (metadata.get("annotations") or {}):
        annotations = {key: value for key, value in metadata["annotations"].items() if key != TEMPLATE_GENERATION}
        metadata = {**metadata, "annotations": annotations}
        if not annotations:
            del metadata["annotations"]
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}


@cache
def _recorded() -> dict[str, list[JSON]]:
    path = files("steersman.apiserver") / "data" / "columns.json.gz"
    return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=dict[str, list[JSON]])


def columns(info: ResourceInfo) -> list[JSON]:
    """The column definitions of a resource."""
    if info.custom is None:
        return _recorded()[info.kind.qualified if info.storage.qualified in CELLS else _PLAIN]
    name, created = _recorded()["serviceaccounts"][0], _recorded()["serviceaccounts"][-1]
    if not info.columns:
        return [name, {**created, "type": "date"}]
    return [name, *(_custom_column(column) for column, _ in _readable(info))]


def _readable(info: ResourceInfo) -> list[tuple[Column, JsonPath]]:
    """The printed columns of a custom resource up to the first whose path cannot be read, as on the real server."""
    found = []
    for column in info.columns:
        try:
            found.append((column, JsonPath.of(column.path)))
        except FormatError:
            break
    return found


def _custom_column(column: Column) -> JSON:
    described = column.description or f"Custom resource definition column (in JSONPath format): {column.path}"
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": described,
        "priority": column.priority,
    }


def _cells(info: ResourceInfo) -> Callable[[JSON, float], list[Any]]:
    if info.custom is not None:
        return _custom_cells(info)
    printer = CELLS.get(info.storage.qualified, _name_and_creation)
    if info.storage == info.kind:
        return printer
    return lambda obj, now: printer(to_storage(info, obj), now)  # cells are the same in every version


def _name_and_creation(obj: JSON, _now: float) -> list[Any]:
    metadata = obj["metadata"]
    return [metadata.get("name", ""), metadata.get("creationTimestamp")]


def _custom_cells(info: ResourceInfo) -> Callable[[JSON, float], list[Any]]:
    if not info.columns:
        return lambda obj, now: [obj["metadata"].get("name", ""), age(obj["metadata"].get("creationTimestamp"), now)]
    readers = [(column.type, path) for column, path in _readable(info)]

    def cells(obj: JSON, now: float) -> list[Any]:
        found: list[Any] = [obj["metadata"].get("name", "")]
        for kind, path in readers:
            values = path.find(obj)
            found.append(_cell(kind, values[0], now) if values else None)
        return found

    return cells


def _cell(kind: str, value: Any, now: float) -> Any:
    """A value as a cell of a column's type; None when it is not of that type."""
    if kind == "string":
        return _text(value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "integer" and number:
        return int(value)
    if kind == "number" and number:
        return float(value)
    if kind == "boolean" and isinstance(value, bool):
        return value
    if kind == "date" and isinstance(value, str):
        try:
            return age(value, now)
        except FormatError:
            return "<invalid>"
    return None


def _text(value: Any) -> str:
    """A value as kubectl's JSONPath prints it."""
    if isinstance(value, str):
        return value
    if value is None:
        return "<no value>"
    return json_text(value)
