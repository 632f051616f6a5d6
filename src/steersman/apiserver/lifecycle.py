"""The end of objects: deletion with options, finalizers and grace.

    delete ──► finalizers or grace pending? ──yes──► deletionTimestamp set, object stays until both are gone
                          └──no──► gone

An object is *finished* when it has a deletionTimestamp, no grace left and no finalizer; it is removed in the same step
that makes it so. What happens to the objects that a deleted one owned is in `garbage.py`, what happens to the content
of a namespace in `namespaces.py`.
"""

from __future__ import annotations

import calendar
import time
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver import protobuf, statuses
from steersman.apiserver.api import Reply, timestamp
from steersman.apiserver.crds import terminating
from steersman.apiserver.decoding import parse_json, parse_yaml
from steersman.apiserver.reads import find
from steersman.apiserver.requests import ListOptions, dry_run_causes, options_invalid
from steersman.apiserver.selection import Selection
from steersman.apiserver.store import Record
from steersman.apiserver.strategy import returns_deleted
from steersman.kube.errors import Cause
from steersman.kube.resources import Kind

if TYPE_CHECKING:
    from steersman.apiserver.api import Api
    from steersman.apiserver.kinds import ResourceInfo
    from steersman.apiserver.requests import Request

__all__ = ["DeleteOptions", "delete", "delete_collection", "delete_object", "finish", "finished"]

JSON = dict[str, Any]
ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
PROTECTED = {"default", "kube-system", "kube-public"}
JOB_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)
_encode = msgspec.json.Encoder().encode


_DECODERS = {"application/yaml": parse_yaml, protobuf.MEDIA_TYPE: protobuf.decode}


class Preconditions(msgspec.Struct, frozen=True):
    """What must be true of the object for the delete to happen."""

    uid: str | None = None
    resourceVersion: str | None = None  # noqa: N815  the wire's name


class DeleteOptions(msgspec.Struct, frozen=True):
    """The body, or the query, of a delete."""

    kind: str = ""
    apiVersion: str = ""  # noqa: N815
    gracePeriodSeconds: int | None = None  # noqa: N815
    preconditions: Preconditions = Preconditions()
    orphanDependents: bool | None = None  # noqa: N815
    propagationPolicy: str | None = None  # noqa: N815
    dryRun: list[str] | None = None  # noqa: N815

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be written."""
        return bool(self.dryRun)

    @classmethod
    def parse(cls, request: Request) -> DeleteOptions:
        """From the body when there is one, else from the query."""
        options = cls._from_body(request) if request.body else cls._from_query(request)
        causes = dry_run_causes(options.dryRun or [])
        policy = options.propagationPolicy
        if options.orphanDependents is not None and policy is not None:
            why = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
            causes.append(Cause("FieldValueInvalid", why, "propagationPolicy"))
        if policy not in {None, "Foreground", "Background", "Orphan"}:
            why = f'Unsupported value: "{policy}": supported values: "Foreground", "Background", "Orphan", "nil"'
            causes.append(Cause("FieldValueNotSupported", why, "propagationPolicy"))
        if causes:
            raise options_invalid("DeleteOptions", causes)
        return options

    @classmethod
    def _from_body(cls, request: Request) -> DeleteOptions:
        try:
            value = _DECODERS.get(request.content_type, parse_json)(request.body)
        except ValueError as error:
            raise statuses.bad_request(f"couldn't get version/kind; json parse error: {error}") from None
        kind = value.get("kind", "") if isinstance(value, dict) else ""
        if kind not in {"", "DeleteOptions"}:
            version = value.get("apiVersion", "")
            raise statuses.bad_request(
                f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
            )
        try:
            return msgspec.convert(value, cls)
        except msgspec.ValidationError as error:
            raise statuses.bad_request(f"DeleteOptions cannot be decoded: {error}") from None

    @classmethod
    def _from_query(cls, request: Request) -> DeleteOptions:
        query = request.query
        return cls(
            gracePeriodSeconds=query.number("gracePeriodSeconds"),
            orphanDependents=query.flag("orphanDependents") if "orphanDependents" in query else None,
            propagationPolicy=query.text("propagationPolicy") or None,
            dryRun=query.all("dryRun") or None,
        )


def delete(api: Api, request: Request) -> Reply:
    """DELETE of one object."""
    route = request.route
    options = DeleteOptions.parse(request)
    if _orphans_by_default(route.info, options):
        request.warnings.append(JOB_WARNING)
    record = find(api, route.info, route.namespace, route.name)
    last, gone = delete_object(api, route.info, record, options)
    if gone and not returns_deleted(route.info):
        kind = route.info.kind
        details = {"name": route.name, **({"group": kind.group} if kind.group else {}), "kind": kind.plural}
        details["uid"] = record.obj["metadata"]["uid"]
        return Reply(200, _encode(statuses.success(details)) + b"\n", "application/json")
    return api.answer(request, last, 202 if not gone and options.orphanDependents is False else 200)


def delete_collection(api: Api, request: Request) -> Reply:
    """DELETE of everything that is selected."""
    route = request.route
    options = DeleteOptions.parse(request)
    if _orphans_by_default(route.info, options):
        request.warnings.append(JOB_WARNING)
    listing = ListOptions.parse(request.query, watch=False)
    selection = Selection.parse(route.info, route.namespace, listing.label_selector, listing.field_selector)
    table = api.table(route.info)
    revision = api.store.revision
    records = list(selection.filter(table.scan(route.namespace)))
    for record in records:
        if record.key in table.records:
            delete_object(api, route.info, table.records[record.key], options)
    return Reply(200, api.view(request).many(records, {"resourceVersion": str(revision)}), request.media.content_type)


def delete_object(api: Api, info: ResourceInfo, record: Record, options: DeleteOptions) -> tuple[Record, bool]:
    """Delete as far as finalizers and grace allow; the last state, and whether the object is gone."""
    _check_preconditions(info, record, options.preconditions)
    special = _SPECIAL.get(info.kind.qualified)
    if special is not None:
        return special(api, info, record, options)
    obj = record.obj
    grace = _grace(info, obj, options)
    if grace is _PENDING:
        return record, False
    assert not isinstance(grace, _Pending)
    finalizers = _finalizers(info, obj["metadata"], options)
    if grace is None and not finalizers:
        return _remove(api, info, record, options)
    metadata = _marked({**obj["metadata"], "finalizers": finalizers}, grace, api.clock.time())
    if not finalizers:
        del metadata["finalizers"]
    marked = {**obj, "metadata": metadata}
    if marked == obj:
        updated = record
    elif options.dry_run:
        updated = Record(record.key, record.revision, marked)
    else:
        updated = api.store.put(api.table(info), record.key, marked)
    if finalizers or grace:
        return updated, False
    return (updated, True) if options.dry_run else _remove(api, info, updated, options)


def _marked(metadata: JSON, grace: int | None, now: float) -> JSON:
    """Metadata of an object that is being deleted, with `grace` seconds left (None: it has no grace)."""
    period = grace or 0
    marked = {**metadata, "deletionGracePeriodSeconds": period}
    if "deletionTimestamp" not in metadata:
        if metadata.get("generation", 0) > 0:
            marked["generation"] += 1
        marked["deletionTimestamp"] = timestamp(now + period)
        return marked
    ends = _seconds(metadata["deletionTimestamp"])
    if grace is None:
        marked["deletionTimestamp"] = timestamp(min(ends, now))
        return marked
    ends += period - (metadata.get("deletionGracePeriodSeconds") or 0)  # grace can only become shorter
    marked["deletionTimestamp"] = timestamp(max(ends, int(now)))
    if ends < int(now) and period:
        marked["deletionGracePeriodSeconds"] = 1
    return marked


def _remove(api: Api, info: ResourceInfo, record: Record, options: DeleteOptions) -> tuple[Record, bool]:
    if options.dry_run:
        return record, True
    return api.store.remove(api.table(info), record.key), True


def finished(info: ResourceInfo, obj: JSON) -> bool:
    """Whether nothing holds the object any more."""
    meta = obj["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers"):
        return False
    if info.kind.qualified == "namespaces":
        return not (obj.get("spec") or {}).get("finalizers")
    return not meta.get("deletionGracePeriodSeconds")


def finish(api: Api, info: ResourceInfo, existing: Record, obj: JSON, *, dry_run: bool) -> Record:
    """Remove an object that an update has just finished; the answer shows the update under the old revision."""
    if not dry_run:
        api.store.remove(api.table(info), existing.key)
    return Record(existing.key, existing.revision, obj)


def _check_preconditions(info: ResourceInfo, record: Record, wanted: Preconditions) -> None:
    meta = record.obj["metadata"]
    shown = Kind(group=info.kind.group, version=info.kind.version, kind=info.kind.kind, plural=info.kind.kind)
    if wanted.uid is not None and wanted.uid != meta["uid"]:
        raise statuses.conflict(
            shown,
            meta["name"],
            f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated",
        )
    version = str(record.revision)
    if wanted.resourceVersion is not None and wanted.resourceVersion != version:
        raise statuses.conflict(
            shown,
            meta["name"],
            f"the ResourceVersion in the precondition ({wanted.resourceVersion}) does not match the ResourceVersion "
            f"in record ({version}). The object might have been modified",
        )


class _Pending:
    """A graceful deletion is under way and nothing changes."""


_PENDING = _Pending()


def _grace(info: ResourceInfo, obj: JSON, options: DeleteOptions) -> int | _Pending | None:
    """Seconds to wait for a kind that dies gracefully (pods), None for one that does not."""
    if info.kind.qualified != "pods":
        return None
    meta, spec = obj["metadata"], obj.get("spec") or {}
    asked = options.gracePeriodSeconds
    if asked is not None and asked < 0:
        asked = 1
    if "deletionTimestamp" in meta:
        running = meta.get("deletionGracePeriodSeconds")
        if not running:
            return None
        return asked if asked is not None and asked < running else _PENDING
    period = asked if asked is not None else spec.get("terminationGracePeriodSeconds") or 0
    if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in {"Failed", "Succeeded"}:
        period = 0
    return max(period, 0) if period >= 0 else 1


def _finalizers(info: ResourceInfo, meta: JSON, options: DeleteOptions) -> list[str]:
    """The finalizers after the delete said what is to happen to dependents."""
    current = list(meta.get("finalizers") or ())
    if info.kind.kind == "Event":
        return current
    orphan = foreground = False
    if options.orphanDependents is not None:
        orphan = options.orphanDependents
    elif options.propagationPolicy is not None:
        orphan = options.propagationPolicy == "Orphan"
        foreground = options.propagationPolicy == "Foreground"
    elif ORPHAN in current or FOREGROUND in current:
        orphan, foreground = ORPHAN in current, ORPHAN not in current
    else:
        orphan = _orphans_by_default(info, options)
    wanted = [name for name in current if name not in {ORPHAN, FOREGROUND}]
    wanted += [ORPHAN] * orphan + [FOREGROUND] * foreground
    return current if set(wanted) == set(current) else wanted


def _orphans_by_default(info: ResourceInfo, options: DeleteOptions) -> bool:
    """Jobs keep their pods unless told otherwise, for the sake of clients older than the garbage collector."""
    asked = options.propagationPolicy is not None or options.orphanDependents is not None
    return info.kind.qualified == "jobs.batch" and info.custom is None and not asked


def _delete_namespace(api: Api, info: ResourceInfo, record: Record, options: DeleteOptions) -> tuple[Record, bool]:
    obj = record.obj
    meta = obj["metadata"]
    if meta["name"] in PROTECTED:
        raise statuses.forbidden(info.kind, meta["name"], "this namespace may not be deleted")
    if "deletionTimestamp" in meta:
        if (obj.get("spec") or {}).get("finalizers") or meta.get("finalizers"):
            return record, False
        return _remove(api, info, record, options)
    meta = {**meta, "deletionTimestamp": api.now()}
    if finalizers := _finalizers(info, meta, options):
        meta["finalizers"] = finalizers
    status = {**(obj.get("status") or {}), "phase": "Terminating"}
    marked = {**obj, "metadata": meta, "status": status}
    if options.dry_run:
        return Record(record.key, record.revision, marked), False
    return api.store.put(api.table(info), record.key, marked), False


def _delete_definition(api: Api, info: ResourceInfo, record: Record, options: DeleteOptions) -> tuple[Record, bool]:
    """A definition stays until its instances are gone."""
    obj = record.obj
    meta = obj["metadata"]
    if "deletionTimestamp" in meta:
        return (record, False) if meta.get("finalizers") else _remove(api, info, record, options)
    finalizers = [
        *(meta.get("finalizers") or ()),
        *([CLEANUP] if CLEANUP not in (meta.get("finalizers") or ()) else ()),
    ]
    meta = {**meta, "finalizers": finalizers, "deletionTimestamp": api.now()}
    marked = {**obj, "metadata": meta, "status": terminating(obj.get("status") or {}, now=api.now())}
    if options.dry_run:
        return Record(record.key, record.revision, marked), False
    return api.store.put(api.table(info), record.key, marked), False


def _seconds(text: str) -> int:
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


_SPECIAL = {
    "namespaces": _delete_namespace,
    "customresourcedefinitions.apiextensions.k8s.io": _delete_definition,
}
