"""create, replace and patch.

Every write goes the same way, in the order of the real server:

    decode ─► defaults ─► field managers ─► admission ─► strategy (what may be set) ─► validation ─► store

A replace and every kind of patch end in `change`, which compares with what is stored: nothing is written when nothing
differs, and an object that is being deleted goes away with its last finalizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from steersman.apiserver import admission, lifecycle, patching, statuses, strategy
from steersman.apiserver.conversion import converter, to_storage
from steersman.apiserver.decoding import body_object
from steersman.apiserver.intake import fit
from steersman.apiserver.managed import keep_times, track_update
from steersman.apiserver.requests import WriteOptions
from steersman.apiserver.store import Record, key_of
from steersman.apiserver.validation import invalid_causes
from steersman.kube.errors import Cause

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.apiserver.api import Api, Reply
    from steersman.apiserver.kinds import ResourceInfo
    from steersman.apiserver.requests import Request

__all__ = [
    "already_tracked",
    "change",
    "check_name",
    "create",
    "in_version",
    "insert",
    "patch",
    "replace",
    "tracked_update",
]

JSON = dict[str, Any]
GENERATED_NAME_ATTEMPTS = 8
MAX_GENERATED_BASE = 58  # so that the name with its suffix stays a label


def create(api: Api, request: Request) -> Reply:
    """POST to a collection."""
    route = request.route
    options = WriteOptions.parse(request, "CreateOptions")
    obj = _typed_body(api, request, options)
    obj = _in_namespace(route.info, route.namespace, obj)
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
        obj = {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}}
        return api.answer(request, insert(api, route.info, route.namespace, obj, options, request.warnings), 201)
    _check_uid(route.info, existing, obj)
    record = change(
        api, route.info, existing, obj, options, request.warnings, subresource=route.subresource, tracked=tracked_update
    )
    return api.answer(request, record)


def patch(api: Api, request: Request) -> Reply:
    """PATCH of an object or its status, by any of the four patch types."""
    route = request.route
    info = route.info
    kind = patching.patch_type(info, request.content_type)
    applying = kind is patching.PatchType.APPLY
    options = WriteOptions.parse(request, "PatchOptions", apply=applying)
    existing = api.table(info).records.get(key_of(route.namespace, route.name))
    if existing is None and not (applying and not route.subresource):
        patching.check(kind, request.body)
        raise statuses.not_found(info.kind, route.name)
    if applying:
        return _apply(api, request, options, existing)
    assert existing is not None
    live = in_version(info, existing.obj)
    patched = patching.patched(kind, info.schema, live, request.body)
    obj = fit(
        info,
        patched,
        validation=options.validation,
        warnings=request.warnings,
        duplicates=patching.duplicates(kind, request.body),
        patch=True,
    )
    check_name(obj, route.name)
    obj = _in_namespace(info, route.namespace, obj)
    record = change(
        api, info, existing, obj, options, request.warnings, subresource=route.subresource, tracked=tracked_update
    )
    return api.answer(request, record)


def _apply(api: Api, request: Request, options: WriteOptions, existing: Record | None) -> Reply:
    """Server-side apply; creates what does not exist."""
    route = request.route
    info = route.info
    live = in_version(info, existing.obj) if existing is not None else None
    config = patching.configuration(request.body)
    now = api.now()
    merged = patching.applied(
        info,
        live,
        config,
        options,
        now=now,
        subresource=route.subresource,
        warnings=request.warnings,
    )
    check_name(merged, route.name)
    obj = fit(info, merged, validation="Ignore", warnings=request.warnings, patch=True)
    obj = _in_namespace(info, route.namespace, obj)
    if existing is None:
        record = insert(api, info, route.namespace, obj, options, request.warnings, tracked=already_tracked)
        return api.answer(request, record, 201)
    record = change(
        api, info, existing, obj, options, request.warnings, subresource=route.subresource, tracked=already_tracked
    )
    return api.answer(request, record)


def insert(
    api: Api,
    info: ResourceInfo,
    namespace: str,
    obj: JSON,
    options: WriteOptions,
    warnings: list[str],
    *,
    tracked: Callable[..., JSON] | None = None,
) -> Record:
    """Store a new object. With `tracked` given, field managers are already recorded."""
    admission.check_namespace(api, info, namespace, obj)
    if obj["metadata"].get("resourceVersion"):
        raise statuses.internal("resourceVersion should not be set on objects to be created")
    now = api.now()
    table = api.table(info)
    obj = _new_metadata(api, obj, now)
    if tracked is None:
        obj = tracked_update(info, None, obj, options, now, "")
    base = obj["metadata"].get("generateName", "") if not obj["metadata"].get("name") else ""
    for attempt in range(GENERATED_NAME_ATTEMPTS if base else 1):
        name = f"{base[:MAX_GENERATED_BASE]}{api.suffix()}" if base else obj["metadata"].get("name", "")
        key = key_of(namespace, name)
        if base and key in table.records and attempt + 1 < GENERATED_NAME_ATTEMPTS:
            continue
        break
    named = {**obj, "metadata": {"name": name, **{k: v for k, v in obj["metadata"].items() if k != "name"}}}
    named = admission.mutate(api, info, named, warnings)
    named = strategy.for_create(info, named, now)
    generation = info.next_generation(None, named)
    if generation is not None:
        named["metadata"] = {**named["metadata"], "generation": generation}
    named = admission.allocate(api, info, named, None)
    if causes := invalid_causes(info, named, None):
        raise statuses.invalid(info.kind, name, causes)
    if key in table.records:
        raise _taken(info, table.records[key], name, generated=bool(base))
    if options.dry_run:
        return Record(key, 0, to_storage(info, named))
    return api.store.put(table, key, to_storage(info, named))


def _taken(info: ResourceInfo, existing: Record, name: str, *, generated: bool) -> statuses.StatusError:
    if generated:
        return statuses.generate_name_conflict(info.kind, name)
    error = statuses.already_exists(info.kind, name)
    if existing.obj["metadata"].get("deletionTimestamp"):
        return statuses.StatusError(
            409, f"object is being deleted: {error.message}", reason=error.reason, details=error.details
        )
    return error


def change(
    api: Api,
    info: ResourceInfo,
    existing: Record,
    obj: JSON,
    options: WriteOptions,
    warnings: list[str],
    *,
    subresource: str,
    tracked: Callable[..., JSON],
) -> Record:
    """Store `obj` over `existing`; the record that answers the request."""
    old = in_version(info, existing.obj)
    obj = tracked(info, old, obj, options, api.now(), subresource)
    _check_version(info, existing, obj)
    before, meta = old["metadata"], obj["metadata"]
    meta = {k: v for k, v in meta.items() if k not in {"generation", "creationTimestamp"}}
    meta["resourceVersion"] = before["resourceVersion"]
    for field in ("generation", "creationTimestamp", "deletionTimestamp"):
        if field in before:
            meta[field] = before[field]
    meta.setdefault("uid", before["uid"])
    if "deletionGracePeriodSeconds" in before:
        meta.setdefault("deletionGracePeriodSeconds", before["deletionGracePeriodSeconds"])
    obj = {**obj, "metadata": meta}
    if subresource == "status":
        obj = strategy.for_status_update(info, obj, old)
    elif subresource == "finalize":
        obj = {**obj, "status": old.get("status", {})}
    else:
        obj = strategy.for_update(info, obj, old)
        obj = admission.allocate(api, info, obj, old)
        generation = info.next_generation(old, obj)
        if generation is not None:
            obj["metadata"] = {**obj["metadata"], "generation": generation}
    if causes := invalid_causes(info, obj, old, subresource=subresource):
        raise statuses.invalid(info.kind, existing.obj["metadata"]["name"], causes)
    stored = keep_times(existing.obj, to_storage(info, obj))
    if lifecycle.finished(info, stored):
        return lifecycle.finish(api, info, existing, stored, dry_run=options.dry_run)
    if stored is existing.obj or stored == existing.obj:
        return existing
    if options.dry_run:
        return Record(existing.key, existing.revision, stored)
    return api.store.put(api.table(info), existing.key, stored)


def _typed_body(api: Api, request: Request, options: WriteOptions) -> JSON:
    """The object in the body, of the type the path asks for, with defaults."""
    info = request.route.info
    value, duplicates = body_object(api.registry, request, info.kind)
    value = {**value, "apiVersion": info.kind.api_version, "kind": info.kind.kind}
    return fit(info, value, validation=options.validation, warnings=request.warnings, duplicates=duplicates)


def in_version(info: ResourceInfo, stored: JSON) -> JSON:
    """The stored object as `info`'s version has it, type included."""
    convert = converter(info)
    if convert is None and stored.get("apiVersion") == info.kind.api_version:
        return stored
    content = convert(stored) if convert else stored
    return {**content, "apiVersion": info.kind.api_version, "kind": info.kind.kind}


def tracked_update(
    info: ResourceInfo, old: JSON | None, new: JSON, options: WriteOptions, now: str, subresource: str
) -> JSON:
    return track_update(
        info.schema,
        old,
        new,
        manager=options.manager,
        api_version=info.kind.api_version,
        now=now,
        subresource=subresource,
    )


def already_tracked(
    info: ResourceInfo,  # noqa: ARG001  the shape of `tracked_update`
    old: JSON | None,  # noqa: ARG001
    new: JSON,
    options: WriteOptions,  # noqa: ARG001
    now: str,  # noqa: ARG001
    subresource: str,  # noqa: ARG001
) -> JSON:
    return new


def _new_metadata(api: Api, obj: JSON, now: str) -> JSON:
    dropped = {"uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"}
    kept = {k: v for k, v in obj["metadata"].items() if k not in dropped}
    return {**obj, "metadata": {**kept, "uid": api.uid(), "creationTimestamp": now}}


def _in_namespace(info: ResourceInfo, namespace: str, obj: JSON) -> JSON:
    given = obj["metadata"].get("namespace", "")
    if not info.kind.namespaced:
        if given:
            raise statuses.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        return obj
    if given == namespace:
        return obj
    if given:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}


def check_name(obj: JSON, name: str) -> None:
    given = obj["metadata"].get("name", "")
    if not given:
        raise statuses.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    if given != name:
        raise statuses.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def _check_uid(info: ResourceInfo, existing: Record, obj: JSON) -> None:
    given, stored = obj["metadata"].get("uid"), existing.obj["metadata"]["uid"]
    if given and given != stored:
        name = existing.obj["metadata"]["name"]
        where = f"/registry/{info.storage.plural}/{existing.key}"
        raise statuses.conflict(
            info.kind,
            name,
            f"StorageError: invalid object, Code: 4, Key: {where}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {given}, UID in object meta: {stored}",
        )


def _check_version(info: ResourceInfo, existing: Record, obj: JSON) -> None:
    given = obj["metadata"].get("resourceVersion", "")
    name = existing.obj["metadata"]["name"]
    if given and not (given.isascii() and given.isdigit()):
        raise statuses.internal(f'strconv.ParseUint: parsing "{given}": invalid syntax')
    if not given or int(given) == 0:
        if info.unconditional_update:
            return
        # the real server names the resource here, where it names the kind everywhere else
        named = structs.replace(info.kind, kind=info.kind.plural)
        why = "Invalid value: 0: must be specified for an update"
        raise statuses.invalid(named, name, [Cause("FieldValueInvalid", why, "metadata.resourceVersion")])
    if int(given) != existing.revision:
        raise statuses.conflict(info.kind, name)
