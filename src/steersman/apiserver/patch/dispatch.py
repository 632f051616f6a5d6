"""The four kinds of patch: JSON patch, merge patch, strategic merge patch, and server-side apply.

Each turns the live object and a body into the object that is wanted; what happens to it then is in `write.pipeline`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver import status_errors
from steersman.apiserver.patch.apply import apply
from steersman.apiserver.patch.strategic_merge import strategic_merge
from steersman.apiserver.write.decoding import duplicate_fields, json_kind, parse_json, parse_yaml
from steersman.errors import FormatError
from steersman.kube.api.patches import PatchError, PatchType, apply_json_patch, apply_merge_patch

if TYPE_CHECKING:
    from steersman.apiserver.http.requests import WriteOptions
    from steersman.apiserver.patch.managed_fields import Converter
    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.apiserver.resources.schema import Schema
    from steersman.kube.api.gvk import Kind

JSON = dict[str, Any]


def patch_type(info: ResourceInfo, content_type: str) -> PatchType:
    """The patch type a content type names; 415 when the resource does not take it."""
    try:
        found = PatchType(content_type)
    except ValueError:
        raise status_errors.unsupported_media("415: Unsupported Media Type", listed=True) from None
    if found is PatchType.STRATEGIC and info.custom is not None:
        raise status_errors.unsupported_media(
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        )
    return found


def check(kind: PatchType, body: bytes) -> Any:
    """The patch in a body, refused when it cannot be read."""
    if kind is PatchType.APPLY:
        return None
    prefix = "" if kind is PatchType.STRATEGIC else "error decoding patch: "
    try:
        patch = parse_json(body)
    except ValueError as error:
        raise status_errors.bad_request(f"{prefix}{error}") from None
    if patch is None and kind is PatchType.MERGE:
        raise status_errors.bad_request("Invalid JSON Patch")
    wanted, noun = (list, "a list of operations") if kind is PatchType.JSON else (dict, "an object")
    if patch is not None and not isinstance(patch, wanted):
        raise status_errors.bad_request(f"{prefix}expected {noun}, got {json_kind(patch)}")
    if isinstance(patch, list):
        _check_operations(patch)
    return patch or wanted()


def _check_operations(operations: list[Any]) -> None:
    """Refuse what is not an operation; whether an operation makes sense is seen when it is applied."""
    for operation in operations:
        if operation is not None and not isinstance(operation, dict):
            raise status_errors.bad_request(f"error decoding patch: expected an operation, got {json_kind(operation)}")
        for field in ("op", "path", "from"):
            given = (operation or {}).get(field)
            if given is not None and not isinstance(given, str):
                why = f"error decoding patch: {field} must be a string, not {json_kind(given)}"
                raise status_errors.bad_request(why)


def duplicates(kind: PatchType, body: bytes) -> list[str]:
    """Fields that a merge patch names twice."""
    patch = check(kind, body) if kind in {PatchType.MERGE, PatchType.STRATEGIC} else None
    return duplicate_fields(body, patch) if patch else []


def patched(kind: PatchType, schema: Schema, live: JSON, body: bytes) -> JSON:
    """`live` after a patch that is not an apply."""
    patch = check(kind, body)
    if kind is PatchType.STRATEGIC:
        return strategic_merge(schema, live, patch)
    try:
        result = apply_merge_patch(live, patch) if kind is PatchType.MERGE else apply_json_patch(live, patch)
    except (FormatError, PatchError):
        raise status_errors.unprocessable() from None
    if not isinstance(result, dict):
        raise status_errors.unprocessable()
    return result


def configuration(body: bytes, kind: Kind) -> JSON:
    """The configuration in the body of an apply; it must say that it is of this kind, in any version."""
    try:
        config = parse_yaml(body)
    except ValueError as error:
        raise status_errors.bad_request(f"error decoding YAML: {error}") from None
    if not isinstance(config, dict):
        raise status_errors.bad_request(f"error decoding YAML: expected an object, got {json_kind(config)}")
    api_version, named = config.get("apiVersion"), config.get("kind")
    if named != kind.kind or not isinstance(api_version, str):
        group, _, version = api_version.rpartition("/") if isinstance(api_version, str) else ("", "", "")
        why = f"invalid object type: {group}/{version}, Kind={named if isinstance(named, str) else ''}"
        raise status_errors.bad_request(why)
    return config if config.get("metadata", {}) is not None else {**config, "metadata": {}}


def applied(
    info: ResourceInfo,
    live: JSON | None,
    config: JSON,
    options: WriteOptions,
    *,
    now: str,
    subresource: str,
    convert: Converter | None,
) -> JSON:
    """The object after `config` was applied to `live`."""
    return apply(
        info.schema,
        live,
        config,
        manager=options.manager,
        force=options.force,
        api_version=info.kind.api_version,
        now=now,
        subresource=subresource,
        convert=convert,
    )
