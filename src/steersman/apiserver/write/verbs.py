"""create, replace and patch: from the body of a request to the object that is wanted.

What happens to that object then is in `pipeline`; how a patch is computed is in `patch`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from steersman.apiserver import status_errors
from steersman.apiserver.http.requests import WriteOptions
from steersman.apiserver.patch import dispatch
from steersman.apiserver.resources.conversion import in_version
from steersman.apiserver.storage.store import Record, key_of
from steersman.apiserver.write.decoding import body_object, json_kind, not_decodable, typed_object, wrong_type
from steersman.apiserver.write.pipeline import change, insert, version_converter
from steersman.kube.api.patches import PatchType

if TYPE_CHECKING:
    from steersman.apiserver.http.requests import Request
    from steersman.apiserver.http.state import Api, Reply
    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.kube.api.gvk import Kind

JSON = dict[str, Any]
_ELSEWHERE = "the namespace of the provided object does not match the namespace sent on the request"


def create(api: Api, request: Request) -> Reply:
    """POST to a collection."""
    route = request.route
    options = WriteOptions.parse(request, "CreateOptions")
    obj = in_namespace(route.info, route.namespace, _typed_body(request, options))
    record = _insert(api, request, obj, options)
    return api.answer(request, record, 201)


def replace(api: Api, request: Request) -> Reply:
    """PUT of an object or one of its subresources that speak its own kind."""
    route = request.route
    options = WriteOptions.parse(request, "UpdateOptions")
    obj = _typed_body(request, options)
    check_name(obj, route.name)
    obj = in_namespace(route.info, route.namespace, obj)
    existing = api.table(route.info).records.get(key_of(route.namespace, route.name))
    if existing is None:
        if not route.info.create_on_update or route.subresource:
            raise status_errors.not_found(route.info.kind, route.name)
        return api.answer(request, _insert(api, request, obj, options, replacing=True), 201)
    _check_uid(route.info, existing, obj)
    record = _change(api, request, existing, obj, options)
    return api.answer(request, record)


def patch(api: Api, request: Request) -> Reply:
    """PATCH of an object or its status, by any of the four patch types."""
    route = request.route
    info = route.info
    kind = dispatch.patch_type(info, request.content_type)
    applying = kind is PatchType.APPLY
    options = WriteOptions.parse(request, "PatchOptions", apply=applying)
    existing = api.table(info).records.get(key_of(route.namespace, route.name))
    if applying and (existing is not None or not route.subresource):
        return _apply(api, request, options, existing)
    if existing is None:
        raise status_errors.not_found(info.kind, route.name)
    patched = dispatch.patched(kind, info.schema, in_version(info, existing.obj), request.body)
    obj = typed_object(
        info,
        still_typed(info, info.kind, patched, kind),
        validation=options.validation,
        warnings=request.warnings,
        duplicates=dispatch.duplicates(kind, request.body),
        patch=True,
    )
    check_name(obj, route.name)
    obj = in_namespace(info, route.namespace, obj)
    record = _change(api, request, existing, obj, options)
    return api.answer(request, record)


def _apply(api: Api, request: Request, options: WriteOptions, existing: Record | None) -> Reply:
    """Server-side apply; creates what does not exist."""
    route = request.route
    info = route.info
    merged = dispatch.applied(
        info,
        in_version(info, existing.obj) if existing is not None else None,
        dispatch.configuration(request.body, info.kind),
        options,
        now=api.now(),
        subresource=route.subresource,
        convert=version_converter(api, info),
    )
    check_name(merged, route.name)
    obj = typed_object(info, merged, validation="Ignore", warnings=request.warnings, patch=True, applied=True)
    obj = in_namespace(info, route.namespace, obj)
    if existing is not None:
        return api.answer(request, _change(api, request, existing, obj, options, tracked=True))
    if uid := obj["metadata"].get("uid"):
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise status_errors.conflict(info.kind, route.name, why)
    if (version := obj["metadata"].get("resourceVersion", "")) and not (version.isascii() and version.isdigit()):
        raise status_errors.internal(f'metadata.resourceVersion: "{version}" is not a number')
    obj = _without_version(obj)
    record = _insert(api, request, obj, options, tracked=True)
    return api.answer(request, record, 201)


def _insert(api: Api, request: Request, obj: JSON, options: WriteOptions, **how: bool) -> Record:
    """Store a new object that the user may create."""
    check = partial(api.authorizer.check_create, request) if api.authorizer is not None else None
    route = request.route
    return insert(api, route.info, route.namespace, obj, options, request.warnings, check=check, **how)


def _change(
    api: Api, request: Request, existing: Record, obj: JSON, options: WriteOptions, *, tracked: bool = False
) -> Record:
    """Store another state of an object."""
    check = partial(api.authorizer.check_change, request, existing.obj) if api.authorizer is not None else None
    route, warnings = request.route, request.warnings
    return change(
        api, route.info, existing, obj, options, warnings, subresource=route.subresource, tracked=tracked, check=check
    )


def _typed_body(request: Request, options: WriteOptions) -> JSON:
    """The object in the body, of the type the path asks for, with defaults."""
    info = request.route.info
    value, duplicates = body_object(request, info.kind)
    value = {**value, "apiVersion": info.kind.api_version, "kind": info.kind.kind}
    return typed_object(info, value, validation=options.validation, warnings=request.warnings, duplicates=duplicates)


def still_typed(info: ResourceInfo, expected: Kind, patched: JSON, kind: PatchType) -> JSON:
    """`patched` with its `expected` type; refused when the patch makes another type of the object."""
    own = (expected.api_version, expected.kind)
    typed = {**patched, "apiVersion": own[0], "kind": own[1]}
    for field in ("apiVersion", "kind"):
        if (given := patched.get(field)) is not None and not isinstance(given, str):
            raise not_decodable(expected, f"{field} must be a string, not {json_kind(given)}", patch=True)
    version, named = patched.get("apiVersion") or "", patched.get("kind") or ""
    if kind is PatchType.STRATEGIC or (version, named) == own:
        return typed
    if info.custom is not None and expected is info.kind:
        raise _retyped(info, patched, version, named)
    if not version and info.custom is None:
        return {}  # an object without a version decodes to nothing, not even a name
    if (version or own[0], named or own[1]) == own:
        return typed
    why = f"the patch turns {own[0]} {own[1]} into {version} {named}"
    raise not_decodable(expected, why, patch=True)


def _retyped(info: ResourceInfo, patched: JSON, version: str, named: str) -> status_errors.StatusError:
    if not named:
        return not_decodable(info.kind, "Object 'Kind' is missing", patch=True)
    name = (patched.get("metadata") or {}).get("name", "")
    if version != info.kind.api_version:
        return wrong_type(info.kind, name, "apiVersion", version, info.kind.api_version)
    return wrong_type(info.kind, name, "kind", named, info.kind.kind)


def _without_version(obj: JSON) -> JSON:
    return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}}


def in_namespace(info: ResourceInfo, namespace: str, obj: JSON) -> JSON:
    """The object in the namespace of the path, which it may leave out and not contradict."""
    given = obj["metadata"].get("namespace", "")
    if given == (namespace if info.kind.namespaced else ""):
        return obj
    if given or not info.kind.namespaced:
        raise status_errors.bad_request(_ELSEWHERE)
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}


def check_name(obj: JSON, name: str) -> None:
    """The object must have the name that the path says."""
    given = (obj.get("metadata") or {}).get("name", "")
    if not given:
        raise status_errors.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    if given != name:
        raise status_errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def _check_uid(info: ResourceInfo, existing: Record, obj: JSON) -> None:
    given, stored = obj["metadata"].get("uid"), existing.obj["metadata"]["uid"]
    if not given or given == stored:
        return
    why = f"the UID of the provided object ({given}) does not match the UID of the stored object ({stored})"
    raise status_errors.conflict(info.kind, existing.obj["metadata"]["name"], why)
