"""What one version of a CustomResourceDefinition says: schema, subresources, printed columns, selectable fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver import causes
from steersman.apiserver.causes import Cause
from steersman.apiserver.crdschemas import internal_json, schema_causes

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["content_causes"]

JSON = dict[str, Any]

MAX_SELECTABLE = 8
COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_ROOT_FIELDS = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
    "XValidations"
)
_ROOT_KEYS = {name[:1].lower() + name[1:] for name in _ROOT_FIELDS.split() if not name.startswith("X")} | {
    "nullable",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}


def content_causes(content: JSON, at: int | None) -> Iterator[Cause]:
    """Schema, subresources, columns and selectable fields; of one version, or of all when `at` is None."""
    base = "spec" if at is None else f"spec.versions[{at}]"
    schema = (content.get("schema") or {}).get("openAPIV3Schema")
    if schema:
        path = f"{base}.validation" if at is None else f"{base}.schema"
        yield from _root_causes(schema, f"{path}.openAPIV3Schema", status=content["status"])
        yield from schema_causes(schema, f"{path}.openAPIV3Schema")
    if scale := (content.get("subresources") or {}).get("scale"):
        yield from _scale_causes(scale, f"{base}.subresources.scale")
    for index, column in enumerate(content.get("additionalPrinterColumns") or ()):
        yield from _column_causes(column, f"{base}.additionalPrinterColumns[{index}]")
    if fields := content.get("selectableFields"):
        yield from _selectable_causes(fields, schema or {}, f"{base}.selectableFields")


def _root_causes(schema: JSON, path: str, *, status: bool) -> Iterator[Cause]:
    if status and schema.get("type", "object") != "object":
        text = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
        yield causes.invalid(f"{path}.type", schema["type"], text)
    elif status and any(schema[key] not in (None, [], {}, "", False) for key in schema.keys() - _ROOT_KEYS):
        text = (
            f"only [{_ROOT_FIELDS}] fields are allowed at the root of the schema if the status subresource is enabled"
        )
        yield Cause("FieldValueInvalid", f"Invalid value: {internal_json(schema)}: {text}", path)
    if schema.get("nullable"):
        yield causes.forbidden(f"{path}.nullable", "nullable cannot be true at the root")


def _path_causes(value: str, field: str, prefixes: tuple[str, ...] = (), under: str = "") -> list[Cause]:
    if not value:
        return [causes.required(field)]
    if not value.startswith("."):
        return [causes.invalid(field, value, "must be a simple json path starting with .")]
    if prefixes and not value.startswith(prefixes):
        return [causes.invalid(field, value, f"should be a json path under {under}")]
    return []


def _scale_causes(scale: JSON, path: str) -> list[Cause]:
    found = _path_causes(scale.get("specReplicasPath", ""), f"{path}.specReplicasPath", (".spec.",), ".spec")
    found += _path_causes(scale.get("statusReplicasPath", ""), f"{path}.statusReplicasPath", (".status.",), ".status")
    if selector := scale.get("labelSelectorPath"):
        either = (".spec.", ".status.")
        found += _path_causes(selector, f"{path}.labelSelectorPath", either, "either .spec or .status")
    return found


def _column_causes(column: JSON, path: str) -> list[Cause]:
    found: list[Cause] = [] if column.get("name") else [causes.required(f"{path}.name")]
    kind, shape = column.get("type", ""), column.get("format", "")
    allowed = f"must be one of {','.join(COLUMN_TYPES)}"
    if not kind:
        found.append(causes.required(f"{path}.type", allowed))
    elif kind not in COLUMN_TYPES:
        found.append(causes.invalid(f"{path}.type", kind, allowed))
    if shape and shape not in COLUMN_FORMATS:
        found.append(causes.invalid(f"{path}.format", shape, f"must be one of {','.join(COLUMN_FORMATS)}"))
    return found + _path_causes(column.get("jsonPath", ""), f"{path}.JSONPath")


def _selectable_causes(fields: list[JSON], schema: JSON, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for at, item in enumerate(fields):
        field, wanted = f"{path}[{at}].jsonPath", item.get("jsonPath", "")
        if not wanted:
            yield causes.required(field)
            continue
        node: JSON | None = schema
        for part in wanted.removeprefix(".").split("."):
            node = ((node or {}).get("properties") or {}).get(part)
        if node is None:
            yield causes.invalid(field, wanted, "is an invalid path: does not refer to a valid field")
            continue
        if wanted.startswith(".metadata."):
            yield causes.invalid(field, wanted, "must not point to fields in metadata")
        if node.get("type") not in {"string", "boolean", "integer"}:
            text = "must point to a field of type string, boolean or integer. "
            yield causes.invalid(field, wanted, f"{text}Enum string fields and strings with formats are allowed.")
        if wanted in seen:
            yield causes.duplicate(field, wanted)
        seen.add(wanted)
    if len(seen) > MAX_SELECTABLE:
        yield causes.too_many(path, len(seen), MAX_SELECTABLE)
