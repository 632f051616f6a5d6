"""How an object gets into the store: the one way of every write.

Every write goes the same way, in the order of the real server:

    decoded object ─► field managers ─► admission, mutating webhooks ─► strategy (what may be set) ─► validation
      ─► limit ranges ─► validating webhooks ─► quotas ─► store

`insert` stores a new object, `change` another state of an existing one. Nothing is written when nothing differs, and an
object that is being deleted goes away with its last finalizer. Both are one step: nothing happens between the read of
what is stored and the write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from steersman.apiserver import status_errors
from steersman.apiserver.patch.managed_fields import keep_times, track_update
from steersman.apiserver.resources.conversion import in_version, to_storage
from steersman.apiserver.storage.store import Record, key_of
from steersman.apiserver.validation import field_errors
from steersman.apiserver.validation.builtin_rules import invalid_causes
from steersman.apiserver.write import admission, certificate_requests, deletion, strategy
from steersman.kube.api.gvk import Kind

if TYPE_CHECKING:
    from steersman.apiserver.admission.chain import AdmissionChain
    from steersman.apiserver.http.requests import WriteOptions
    from steersman.apiserver.http.state import Api
    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.apiserver.resources.schema import Schema

JSON = dict[str, Any]
Check = Callable[[JSON], None]
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
    replacing: bool = False,  # by a PUT: the resourceVersion it names means nothing, but webhooks and dry runs see it
    check: Check | None = None,
) -> Record:
    """Store a new object; `check` may refuse what mutating webhooks made of it."""
    admission.check_namespace(api, info, namespace, obj)
    now = api.now()
    obj = {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k not in _SYSTEM_FIELDS}}
    if not tracked:
        obj = _tracked(api, info, None, obj, options, "")
    obj = admission.mutate(api, info, obj, warnings)
    obj = _reviewed(api.admission, obj, None, options, check, lambda new: admission.mutate(api, info, new, warnings))
    table = api.table(info)
    name, generated = _name(api, info, namespace, obj["metadata"])
    obj = {**obj, "metadata": {**obj["metadata"], "name": name, "uid": api.uid(), "creationTimestamp": now}}
    if info.kind.qualified == certificate_requests.REQUESTS and options.user is not None:
        obj = certificate_requests.requested_by(obj, api.authenticator.info(options.user))
    obj = strategy.for_create(info, obj, now)
    generation = info.next_generation(None, obj)
    if generation is not None:
        obj["metadata"] = {**obj["metadata"], "generation": generation}
    obj = admission.allocate(api, info, obj, None, dry_run=options.dry_run)
    if causes := invalid_causes(info, obj, None):
        raise status_errors.invalid(info.kind, name, causes)
    warnings += strategy.update_warnings(info, obj, None)
    _check_admitted(api, info, obj, None, options, limited=info.kind.namespaced)
    if not options.dry_run and not replacing and _names_version(obj["metadata"].get("resourceVersion", "")):
        raise status_errors.internal("resourceVersion should not be set on objects to be created")
    key = key_of(namespace, name)
    if (existing := table.records.get(key)) is not None:
        raise _taken(info, existing, name, generated=generated)
    stored = to_storage(info, obj)
    if options.dry_run:
        return Record(key, 0, _ordered(stored))
    stored["metadata"] = {**stored["metadata"], "resourceVersion": ""}  # its place; the store knows the value
    return api.store.put(table, key, _ordered(stored))


def _reviewed(
    chain: AdmissionChain | None,
    obj: JSON,
    old: JSON | None,
    options: WriteOptions,
    check: Check | None,
    plugins: Callable[[JSON], JSON] | None = None,
) -> JSON:
    """What the mutating webhooks make of a new object, or of a new state of `old`; then it is checked."""
    result: JSON | None = obj
    if chain is not None:
        operation = "CREATE" if old is None else "UPDATE"
        result = chain.mutate(chain.attributes(operation, obj, old, dry_run=options.dry_run), plugins)
    assert result is not None
    if check is not None:
        check(result)
    return result


def _check_admitted(
    api: Api, info: ResourceInfo, obj: JSON, old: JSON | None, options: WriteOptions, *, limited: bool
) -> None:
    """Refuse what limit ranges, validating webhooks or quotas do not allow; asked in the order of the real server."""
    if limited:
        admission.check_limits(api, info, obj, old)
    if (chain := api.admission) is not None:
        operation = "CREATE" if old is None else "UPDATE"
        chain.validate(chain.attributes(operation, obj, old, dry_run=options.dry_run))
    if limited:
        admission.check_quotas(api, info, obj, old)


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


def _names_version(text: str) -> bool:
    """Whether a resourceVersion is the number of a version; to the storage layer 0 and other text mean none."""
    return text.isascii() and text.isdigit() and int(text) > 0


def _taken(info: ResourceInfo, existing: Record, name: str, *, generated: bool) -> status_errors.StatusError:
    if generated:
        return status_errors.generate_name_conflict(info.kind, name)
    error = status_errors.already_exists(info.kind, name)
    if existing.obj["metadata"].get("deletionTimestamp"):
        return status_errors.StatusError(
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
    check: Check | None = None,
) -> Record:
    """Store `obj`, in `info`'s version, over `existing`; the record that answers the request."""
    old = in_version(info, existing.obj)
    obj = strategy.for_pod_subresource(obj, old, subresource)
    if not tracked:
        obj = _tracked(api, info, old, obj, options, subresource)
    obj = admission.mutate_update(info, obj, subresource)
    chain = api.admission if subresource != "scale" else None  # webhooks are asked about the Scale
    obj = _reviewed(chain, obj, old, options, check, lambda new: admission.mutate_update(info, new, subresource))
    _check_version(info, existing, obj)
    obj = {**obj, "metadata": _kept_metadata(old["metadata"], obj["metadata"])}
    if subresource == "status":
        obj = strategy.for_status_update(info, obj, old, api.now())
    elif subresource == "approval":
        obj = certificate_requests.approved(obj, old, api.now())
    elif subresource == "finalize":
        obj = {**obj, "status": old.get("status", {})}
    else:
        obj = strategy.for_pod_subresource(obj, old, subresource)
        obj = strategy.for_update(info, obj, old)
        obj = admission.allocate(api, info, obj, old, dry_run=options.dry_run)
        generation = info.next_generation(old, obj)
        if generation is not None:
            obj["metadata"] = {**obj["metadata"], "generation": generation}
    if causes := invalid_causes(info, obj, old, subresource=subresource):
        raise status_errors.invalid(info.kind, old["metadata"]["name"], causes)
    warnings += strategy.update_warnings(info, obj, old)
    if subresource != "scale":
        limited = info.kind.namespaced and subresource in {"", "resize"}
        _check_admitted(api, info, obj, old, options, limited=limited)
    stored = keep_times(existing.obj, _ordered(to_storage(info, obj)))
    if deletion.finished(info, stored):
        return deletion.finish(api, info, existing, stored, dry_run=options.dry_run)
    if stored == existing.obj:
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
        raise status_errors.internal(f'metadata.resourceVersion: "{given}" is not a number')
    if not given or int(given) == 0:
        if info.unconditional_update:
            return
        cause = field_errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        shown = Kind(group=info.kind.group, version="", kind=info.kind.plural, plural="")
        raise status_errors.invalid(shown, name, [cause])
    if int(given) != existing.revision:
        raise status_errors.conflict(info.kind, name)


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
