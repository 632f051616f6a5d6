"""The four kinds of patch: JSON patch, merge patch, strategic merge patch, and server-side apply.

Each turns the live object and a body into the object that is wanted; what happens to it then is in `writes.py`.
Refusals are worded as the real server words them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver import statuses
from steersman.apiserver.apply import apply
from steersman.apiserver.decoding import duplicate_fields, json_kind, parse_json, parse_yaml
from steersman.apiserver.strategic import strategic_merge
from steersman.kube.patches import PatchError, PatchType, apply_json_patch, apply_merge_patch

if TYPE_CHECKING:
    from steersman.apiserver.kinds import ResourceInfo
    from steersman.apiserver.managed import Converter
    from steersman.apiserver.requests import WriteOptions
    from steersman.apiserver.schema import Schema

__all__ = ["PatchType", "applied", "check", "configuration", "duplicates", "patch_type", "patched"]

JSON = dict[str, Any]


def patch_type(info: ResourceInfo, content_type: str) -> PatchType:
    """The patch type a content type names; 415 when the resource does not take it."""
    try:
        found = PatchType(content_type)
    except ValueError:
        raise statuses.unsupported_media("415: Unsupported Media Type", listed=True) from None
    if found is PatchType.STRATEGIC and info.custom is not None:
        raise statuses.unsupported_media(
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
        raise statuses.bad_request(f"{prefix}{error}") from None
    if patch is None and kind is not PatchType.JSON:
        raise statuses.bad_request("Invalid JSON Patch")
    wanted, go = (list, "[]handlers.jsonPatchOp") if kind is PatchType.JSON else (dict, "map[string]interface {}")
    if patch is not None and not isinstance(patch, wanted):
        raise statuses.bad_request(f"{prefix}json: cannot unmarshal {json_kind(patch)} into Go value of type {go}")
    return patch or wanted()


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
    except PatchError:
        raise statuses.unprocessable() from None
    if not isinstance(result, dict):
        raise statuses.unprocessable()
    return result


def configuration(body: bytes, info: ResourceInfo | None = None) -> JSON:
    """The configuration in the body of an apply; it must say it is of `info`'s kind."""
    try:
        config = parse_yaml(body)
    except ValueError as error:
        raise statuses.bad_request(f"error decoding YAML: error converting YAML to JSON: yaml: {error}") from None
    if not isinstance(config, dict):
        raise statuses.bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal "
            f"{json_kind(config)} into Go value of type map[string]interface {{}}"
        )
    if info is not None and config.get("kind", "") != info.kind.kind:
        group, _, version = str(config.get("apiVersion", "")).rpartition("/")
        raise statuses.bad_request(f"invalid object type: {group}/{version}, Kind={config.get('kind', '')}")
    return config


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
