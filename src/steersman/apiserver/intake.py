"""Objects taken in: made to fit their type, as the real server's decoder does before anything else looks at them.

Fields that the type does not know are dropped and can be named (fieldValidation), nulls and empty values that mean
nothing go, and defaults are filled in. Built-in kinds pass through their recorded Go types, custom resources through
their structural schemas. Whether values are allowed is decided later, in `validation.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver import statuses
from steersman.apiserver.conform import ConformError, conform
from steersman.apiserver.crds import default_definition
from steersman.apiserver.decoding import json_kind
from steersman.apiserver.defaults import apply_defaults
from steersman.apiserver.strict import unknown_fields
from steersman.errors import FormatError
from steersman.kube.errors import Cause
from steersman.kube.resources import Kind

if TYPE_CHECKING:
    from steersman.apiserver.kinds import ResourceInfo

__all__ = ["fit", "refused"]

JSON = dict[str, Any]
_NO_KIND = Kind(version="", kind="", plural="")


def fit(
    info: ResourceInfo,
    obj: JSON,
    *,
    validation: str,
    warnings: list[str],
    duplicates: list[str] | None = None,
    patch: bool = False,
    applied: bool = False,  # the result of a server-side apply
) -> JSON:
    """`obj` as the server decodes it, with defaults. `validation` says what happens to fields it does not know."""
    if validation != "Ignore":
        problems = [f'duplicate field "{path}"' for path in duplicates or ()]
        problems += [f'unknown field "{path}"' for path in _unknown(info, obj)]
        if problems and validation == "Strict":
            raise refused(info, obj, f"strict decoding error: {', '.join(problems)}", patch=patch)
        warnings.extend(problems)
    try:
        if info.custom is None:
            obj = apply_defaults(info.kind, obj)
            return default_definition(obj) if info.kind.kind == "CustomResourceDefinition" else obj
        _check_metadata(obj)
        obj = {"metadata": {}, **conform(info.schema, info.structural.prune(_with_go_numbers(obj)))}
    except (ConformError, FormatError) as error:
        if applied and info.custom is None:
            raise _not_convertible(info, obj, str(error)) from None
        raise refused(info, obj, str(error), patch=patch) from None
    return info.structural.default(obj)


def _with_go_numbers(value: Any) -> Any:
    """Numbers as Go writes those it has no type for: 3.0 as 3, and what no int64 holds as a float."""
    if isinstance(value, dict):
        changed = {
            key: new
            for key, item in value.items()
            if isinstance(item, dict | list | int | float) and (new := _with_go_numbers(item)) is not item
        }
        return {**value, **changed} if changed else value
    if isinstance(value, list):
        items = [_with_go_numbers(item) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    whole = isinstance(value, int) and -(2**63) <= value < 2**63
    if whole or not isinstance(value, int | float):
        return value
    number = float(value)
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


def _check_metadata(obj: JSON) -> None:
    if not isinstance(obj.get("metadata") or {}, dict):
        given = json_kind(obj["metadata"])
        raise ConformError(f"json: cannot unmarshal {given} into Go value of type v1.ObjectMeta")


def _unknown(info: ResourceInfo, obj: JSON) -> list[str]:
    if info.custom is not None:
        return info.structural.unknown_fields(obj)
    return unknown_fields(info.schema, obj)


def _not_convertible(info: ResourceInfo, obj: JSON, why: str) -> statuses.StatusError:
    """What apply made of the fields has the right shape, but a value in it cannot be read: a time, bytes."""
    kind, metadata = info.kind, obj["metadata"]
    type_ = f"{kind.group}/{kind.version}, Kind={kind.kind}"
    if why.startswith("illegal base64"):
        why = f"error decoding from json: {why}"
    where = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    return statuses.internal(
        f"failed to convert new object ({where}; {type_}) to proper version: "
        f"unable to convert unstructured object to {type_}: {why}"
    )


def refused(info: ResourceInfo, obj: JSON, why: str, *, patch: bool) -> statuses.StatusError:
    """A body that does not decode is a bad request; the result of a patch that does not is an invalid object."""
    if not patch:
        kind = info.kind
        return statuses.bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}'
        )
    shown = msgspec.json.encode({key: obj[key] for key in sorted(obj)}).decode()
    quoted = msgspec.json.encode(shown).decode()
    return statuses.invalid(_NO_KIND, "", [Cause("FieldValueInvalid", f"Invalid value: {quoted}: {why}", "patch")])
