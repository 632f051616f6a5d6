"""How an object gets into the store, whoever writes it.

Every write goes the same way, in the order of the real server:

    decoded object ─► field managers ─► admission ─► strategy (what may be set) ─► validation ─► store

`insert` stores a new object, `change` another state of an existing one. Nothing is written when nothing differs, and an
object that is being deleted goes away with its last finalizer. Both are one step: nothing happens between the look at
what is stored and the write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver import admission, lifecycle, statuses, strategy
from steersman.apiserver.conversion import converter, to_storage
from steersman.apiserver.managed import keep_times, track_update
from steersman.apiserver.store import Record, key_of
from steersman.apiserver.validation import invalid_causes
from steersman.kube.errors import Cause
from steersman.kube.resources import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.apiserver.api import Api
    from steersman.apiserver.kinds import ResourceInfo
    from steersman.apiserver.requests import WriteOptions
    from steersman.apiserver.schema import Schema

__all__ = ["change", "in_version", "insert", "version_converter"]

JSON = dict[str, Any]
GENERATED_NAME_ATTEMPTS = 8
MAX_GENERATED_BASE = 58  # so that the name with its suffix stays a label
_METADATA_ORDER = (
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
_SYSTEM_FIELDS = {"uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"}


def insert(
    api: Api,
    info: ResourceInfo,
    namespace: str,
    obj: JSON,
    options: WriteOptions,
    warnings: list[str],
    *,
    tracked: bool = False,  # field managers are already recorded
) -> Record:
    """Store a new object."""
    admission.check_namespace(api, info, namespace, obj)
    if obj["metadata"].get("resourceVersion"):
        raise statuses.internal("resourceVersion should not be set on objects to be created")
    # It takes the labels of its template each time it is read; the first update stores them, and so is a write.
    unlabelled_job = info.kind.qualified == "jobs.batch" and not obj["metadata"].get("labels")
    now = api.now()
    kept = {k: v for k, v in obj["metadata"].items() if k not in _SYSTEM_FIELDS}
    obj = {**obj, "metadata": {**kept, "uid": api.uid(), "creationTimestamp": now}}
    if not tracked:
        obj = _tracked(api, info, None, obj, options, "")
    table = api.table(info)
    name, generated = _name(api, info, namespace, obj["metadata"])
    obj = {**obj, "metadata": {"name": name, **{k: v for k, v in obj["metadata"].items() if k != "name"}}}
    obj = admission.mutate(api, info, obj, warnings)
    obj = strategy.for_create(info, obj, now)
    generation = info.next_generation(None, obj)
    if generation is not None:
        obj["metadata"] = {**obj["metadata"], "generation": generation}
    obj = admission.allocate(api, info, obj, None, dry_run=options.dry_run)
    if causes := invalid_causes(info, obj, None):
        raise statuses.invalid(info.kind, name, causes)
    warnings += strategy.update_warnings(info, obj, None)
    key = key_of(namespace, name)
    if (existing := table.records.get(key)) is not None:
        raise _taken(info, existing, name, generated=generated)
    stored = to_storage(info, obj)
    if options.dry_run:
        return Record(key, 0, _ordered(stored))
    stored["metadata"] = {**stored["metadata"], "resourceVersion": ""}  # its place; the store knows the value
    record = api.store.put(table, key, _ordered(stored))
    record.untidy = unlabelled_job
    return record


def _ordered(obj: JSON) -> JSON:
    """Metadata in the order the real server writes it; people read it."""
    metadata = obj["metadata"]
    return {**obj, "metadata": {key: metadata[key] for key in _METADATA_ORDER if key in metadata}}


def _name(api: Api, info: ResourceInfo, namespace: str, metadata: JSON) -> tuple[str, bool]:
    """The object's name, and whether it was generated."""
    base: str = metadata.get("generateName", "")
    if metadata.get("name") or not base:
        return metadata.get("name", ""), False
    taken = api.table(info).records
    for _ in range(GENERATED_NAME_ATTEMPTS):
        name = f"{base[:MAX_GENERATED_BASE]}{api.suffix()}"
        if key_of(namespace, name) not in taken:
            break
    return name, True


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
    subresource: str = "",
    tracked: bool = False,  # field managers are already recorded
    always: bool = False,  # a write even when nothing differs
) -> Record:
    """Store `obj`, in `info`'s version, over `existing`; the record that answers the request."""
    old = in_version(info, existing.obj)
    if not tracked:
        obj = _tracked(api, info, old, obj, options, subresource)
    _check_version(info, existing, obj)
    obj = {**obj, "metadata": _kept_metadata(old["metadata"], obj["metadata"])}
    if subresource == "status":
        obj = strategy.for_status_update(info, obj, old)
    elif subresource == "finalize":
        obj = {**obj, "status": old.get("status", {})}
    else:
        obj = strategy.for_update(info, obj, old)
        obj = admission.allocate(api, info, obj, old, dry_run=options.dry_run)
        generation = info.next_generation(old, obj)
        if generation is not None:
            obj["metadata"] = {**obj["metadata"], "generation": generation}
    if causes := invalid_causes(info, obj, old, subresource=subresource):
        raise statuses.invalid(info.kind, old["metadata"]["name"], causes)
    warnings += strategy.update_warnings(info, obj, old)
    stored = _ordered(to_storage(info, obj))
    if not always:
        stored = keep_times(existing.obj, stored)
    if lifecycle.finished(info, stored):
        return lifecycle.finish(api, info, existing, stored, dry_run=options.dry_run)
    if not (always or existing.untidy) and (stored is existing.obj or stored == existing.obj):
        return existing
    if options.dry_run:
        return Record(existing.key, existing.revision, stored)
    return api.store.put(api.table(info), existing.key, stored)


def _kept_metadata(before: JSON, metadata: JSON) -> JSON:
    """Metadata with what no update can change."""
    kept = {k: v for k, v in metadata.items() if k not in {"generation", "creationTimestamp"}}
    kept["resourceVersion"] = before["resourceVersion"]
    for field in ("generation", "creationTimestamp", "deletionTimestamp"):
        if field in before:
            kept[field] = before[field]
    kept.setdefault("uid", before["uid"])
    if "deletionGracePeriodSeconds" in before:
        kept.setdefault("deletionGracePeriodSeconds", before["deletionGracePeriodSeconds"])
    return kept


def _check_version(info: ResourceInfo, existing: Record, obj: JSON) -> None:
    given = obj["metadata"].get("resourceVersion", "")
    name = existing.obj["metadata"]["name"]
    if given and not (given.isascii() and given.isdigit()):
        raise statuses.internal(f'strconv.ParseUint: parsing "{given}": invalid syntax')
    if not given or int(given) == 0:
        if info.unconditional_update:
            return
        why = "Invalid value: 0: must be specified for an update"
        shown = Kind(group=info.kind.group, version="", kind=info.kind.plural, plural="")
        raise statuses.invalid(shown, name, [Cause("FieldValueInvalid", why, "metadata.resourceVersion")])
    if int(given) != existing.revision:
        raise statuses.conflict(info.kind, name)


def in_version(info: ResourceInfo, stored: JSON, *, reread: bool = False) -> JSON:
    """The stored object as `info`'s version has it, type included. `reread` converts even from the same version."""
    convert = converter(info, reread=reread)
    if convert is None and stored.get("apiVersion") == info.kind.api_version:
        return stored
    content = convert(stored) if convert else stored
    return {**content, "apiVersion": info.kind.api_version, "kind": info.kind.kind}


def _tracked(
    api: Api, info: ResourceInfo, old: JSON | None, new: JSON, options: WriteOptions, subresource: str
) -> JSON:
    return track_update(
        info.schema,
        old,
        new,
        manager=options.manager,
        api_version=info.kind.api_version,
        now=api.now(),
        subresource=subresource,
        convert=version_converter(api, info),
    )


def version_converter(api: Api, info: ResourceInfo) -> Callable[[JSON, str], tuple[Schema, JSON] | None] | None:
    """How field managers see an object in the other versions of its resource; None when there is only one."""
    known = api.versions(info)
    if len(known) < 2:
        return None

    def convert(obj: JSON, api_version: str) -> tuple[Schema, JSON] | None:
        other = known.get(api_version)
        if other is None:
            return None
        return other.schema, obj if other is info else in_version(other, to_storage(info, obj), reread=True)

    return convert
