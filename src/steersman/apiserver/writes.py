"""create, replace and patch: from the body of a request to the object that is wanted.

What happens to that object then is in `pipeline.py`; how a patch is computed is in `patching.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver import patching, statuses
from steersman.apiserver.decoding import body_object, wrong_type
from steersman.apiserver.intake import fit, refused
from steersman.apiserver.pipeline import change, in_version, insert, version_converter
from steersman.apiserver.requests import WriteOptions
from steersman.apiserver.store import Record, key_of
from steersman.kube.patches import PatchType

if TYPE_CHECKING:
    from steersman.apiserver.api import Api, Reply
    from steersman.apiserver.kinds import ResourceInfo
    from steersman.apiserver.requests import Request

__all__ = ["check_name", "create", "patch", "replace"]

JSON = dict[str, Any]
_ELSEWHERE = "the namespace of the provided object does not match the namespace sent on the request"


def create(api: Api, request: Request) -> Reply:
    """POST to a collection."""
    route = request.route
    options = WriteOptions.parse(request, "CreateOptions")
    obj = _in_namespace(route.info, route.namespace, _typed_body(api, request, options))
    record = insert(api, route.info, route.namespace, obj, options, request.warnings)
    return api.answer(request, record, 201)


def replace(api: Api, request: Request) -> Reply:
    """PUT of an object or one of its subresources that speak its own kind."""
    route = request.route
    options = WriteOptions.parse(request, "UpdateOptions")
    obj = _typed_body(api, request, options)
    check_name(obj, route.name)
    obj = _in_namespace(route.info, route.namespace, obj)
    existing = api.table(route.info).records.get(key_of(route.namespace, route.name))
    if existing is None:
        if not route.info.create_on_update or route.subresource:
            raise statuses.not_found(route.info.kind, route.name)
        return api.answer(request, _put_new(api, request, obj, options), 201)
    _check_uid(route.info, existing, obj)
    record = change(api, route.info, existing, obj, options, request.warnings, subresource=route.subresource)
    return api.answer(request, record)


def _put_new(api: Api, request: Request, obj: JSON, options: WriteOptions) -> Record:
    """A PUT that creates. The revision it names means nothing, but a dry run still shows it."""
    route = request.route
    made = insert(api, route.info, route.namespace, _without_version(obj), options, request.warnings)
    version = obj["metadata"].get("resourceVersion")
    if not (options.dry_run and version):
        return made
    return Record(made.key, 0, {**made.obj, "metadata": {**made.obj["metadata"], "resourceVersion": version}})


def patch(api: Api, request: Request) -> Reply:
    """PATCH of an object or its status, by any of the four patch types."""
    route = request.route
    info = route.info
    kind = patching.patch_type(info, request.content_type)
    applying = kind is PatchType.APPLY
    options = WriteOptions.parse(request, "PatchOptions", apply=applying)
    existing = api.table(info).records.get(key_of(route.namespace, route.name))
    if applying and (existing is not None or not route.subresource):
        return _apply(api, request, options, existing)
    if existing is None:
        raise statuses.not_found(info.kind, route.name)
    patched = patching.patched(kind, info.schema, in_version(info, existing.obj), request.body)
    obj = fit(
        info,
        _still_typed(api, info, patched, kind),
        validation=options.validation,
        warnings=request.warnings,
        duplicates=patching.duplicates(kind, request.body),
        patch=True,
    )
    check_name(obj, route.name)
    obj = _in_namespace(info, route.namespace, obj)
    record = change(api, info, existing, obj, options, request.warnings, subresource=route.subresource)
    return api.answer(request, record)


def _apply(api: Api, request: Request, options: WriteOptions, existing: Record | None) -> Reply:
    """Server-side apply; creates what does not exist.

    Applying an empty label map, or another part of metadata that its type drops, to a custom resource is a write every
    time: the server merges it in, sees a difference, and loses it again when the object is read.
    """
    route = request.route
    info = route.info
    merged = patching.applied(
        info,
        in_version(info, existing.obj) if existing is not None else None,
        patching.configuration(request.body, info),
        options,
        now=api.now(),
        subresource=route.subresource,
        convert=version_converter(api, info),
    )
    check_name(merged, route.name)
    obj = fit(info, merged, validation="Ignore", warnings=request.warnings, patch=True, applied=True)
    obj = _in_namespace(info, route.namespace, obj)
    # The real server stores a custom resource with empty metadata (`labels: {}`), and drops it when it reads it again.
    dropped = merged["metadata"].keys() - obj["metadata"].keys() - {"managedFields"}
    untidy = info.custom is not None and not route.subresource and bool(dropped)
    if existing is not None:
        record = change(
            api,
            info,
            existing,
            obj,
            options,
            request.warnings,
            subresource=route.subresource,
            tracked=True,
            always=untidy,
        )
        record.untidy |= untidy
        return api.answer(request, record)
    if uid := obj["metadata"].get("uid"):
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise statuses.conflict(info.kind, route.name, why)
    obj = _without_version(obj)
    record = insert(api, info, route.namespace, obj, options, request.warnings, tracked=True)
    record.untidy |= untidy
    return api.answer(request, record, 201)


def _typed_body(api: Api, request: Request, options: WriteOptions) -> JSON:
    """The object in the body, of the type the path asks for, with defaults."""
    info = request.route.info
    value, duplicates = body_object(api.registry, request, info.kind)
    value = {**value, "apiVersion": info.kind.api_version, "kind": info.kind.kind}
    return fit(info, value, validation=options.validation, warnings=request.warnings, duplicates=duplicates)


def _still_typed(api: Api, info: ResourceInfo, patched: JSON, kind: PatchType) -> JSON:
    """`patched` with its type; refused when the patch makes another type of the object."""
    own = (info.kind.api_version, info.kind.kind)
    typed = {**patched, "apiVersion": own[0], "kind": own[1]}
    version, named = patched.get("apiVersion") or "", patched.get("kind") or ""
    if kind is PatchType.STRATEGIC or (version, named) == own:
        return typed
    if info.custom is not None:
        raise _retyped(info, patched, version, named)
    version, named = version or own[0], named or own[1]
    if (version, named) == own:
        return typed
    group, _, short = version.rpartition("/")
    if api.registry.by_kind(group, short, named) is None:
        why = f'no kind "{named}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
    else:
        internal = info.kind.group.partition(".")[0] or "core"
        why = f"converting ({short}.{named}) to ({internal}.{info.kind.kind}): unknown conversion"
    raise refused(info, patched, why, patch=True)


def _retyped(info: ResourceInfo, patched: JSON, version: str, named: str) -> statuses.StatusError:
    if not named:
        whole = msgspec.json.encode(patched, order="sorted").decode()
        return refused(info, patched, f"Object 'Kind' is missing in '{whole}'", patch=True)
    name = (patched.get("metadata") or {}).get("name", "")
    if version != info.kind.api_version:
        return wrong_type(info.kind, name, "apiVersion", version, info.kind.api_version)
    return wrong_type(info.kind, name, "kind", named, info.kind.kind)


def _without_version(obj: JSON) -> JSON:
    return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}}


def _in_namespace(info: ResourceInfo, namespace: str, obj: JSON) -> JSON:
    given = obj["metadata"].get("namespace", "")
    if given == (namespace if info.kind.namespaced else ""):
        return obj
    if given or not info.kind.namespaced:
        raise statuses.bad_request(_ELSEWHERE)
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}


def check_name(obj: JSON, name: str) -> None:
    """The object must have the name that the path says."""
    given = (obj.get("metadata") or {}).get("name", "")
    if not given:
        raise statuses.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    if given != name:
        raise statuses.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def _check_uid(info: ResourceInfo, existing: Record, obj: JSON) -> None:
    given, stored = obj["metadata"].get("uid"), existing.obj["metadata"]["uid"]
    if not given or given == stored:
        return
    where = f"/registry/{_FOLDERS.get(info.storage.qualified, info.storage.plural)}/{existing.key}"
    raise statuses.conflict(
        info.kind,
        existing.obj["metadata"]["name"],
        f"StorageError: invalid object, Code: 4, Key: {where}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {given}, UID in object meta: {stored}",
    )


# Where etcd has it under another name; one error message shows the key.
_FOLDERS = {"services": "services/specs", "endpoints": "services/endpoints", "nodes": "minions"}
