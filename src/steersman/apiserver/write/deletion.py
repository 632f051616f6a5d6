"""The end of objects: deletion with options, finalizers and grace.

    delete ──► finalizers or grace pending? ──yes──► deletionTimestamp set, object stays until both are gone
                          └──no──► gone

An object is *finished* when it has a deletionTimestamp, no grace left and no finalizer; it is removed in the same step
that makes it so. What happens to the dependents of a deleted object is in
`controllers.garbage_collector`, what happens to the content of a namespace in `controllers.namespaces`.
"""

from __future__ import annotations

import calendar
import time
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver import status_errors
from steersman.apiserver.crd.definition_rules import terminating
from steersman.apiserver.discovery import protobuf
from steersman.apiserver.http.requests import ListOptions, dry_run_causes, options_invalid
from steersman.apiserver.http.state import Reply, timestamp
from steersman.apiserver.resources.conversion import in_version, prepare_versions
from steersman.apiserver.storage.reads import find
from steersman.apiserver.storage.selection import Selection
from steersman.apiserver.storage.store import Record
from steersman.apiserver.validation import field_errors
from steersman.apiserver.write.decoding import parse_json, parse_yaml
from steersman.apiserver.write.strategy import returns_deleted
from steersman.kube.api.gvk import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.apiserver.admission.chain import AdmissionChain
    from steersman.apiserver.admission.matching import AdmissionAttributes
    from steersman.apiserver.http.requests import Request
    from steersman.apiserver.http.state import Api
    from steersman.apiserver.resources.kinds import ResourceInfo

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


_OPTIONS = Kind(version="v1", kind="DeleteOptions", plural="")
_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "application/yaml": parse_yaml,
    protobuf.MEDIA_TYPE: lambda body: protobuf.decode(body, _OPTIONS),
}


class Preconditions(msgspec.Struct, frozen=True):
    """What must be true of the object for the delete to happen."""

    uid: str | None = None
    resourceVersion: str | None = None  # noqa: N815  the wire's name


class DeleteOptions(msgspec.Struct, frozen=True):
    """The body, or the query, of a delete."""

    kind: str | None = None
    apiVersion: str | None = None  # noqa: N815
    gracePeriodSeconds: int | None = None  # noqa: N815
    preconditions: Preconditions | None = None
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
        return options.checked()

    def checked(self) -> DeleteOptions:
        """These options; refused when they contradict each other or have unknown values."""
        causes = dry_run_causes(self.dryRun or [])
        policy = self.propagationPolicy
        if self.orphanDependents is not None and policy is not None:
            why = "orphanDependents and deletionPropagation cannot be both set"
            causes.append(field_errors.invalid("propagationPolicy", policy, why))
        if policy not in {None, "Foreground", "Background", "Orphan"}:
            causes.append(
                field_errors.not_supported("propagationPolicy", policy, ("Foreground", "Background", "Orphan"))
            )
        if causes:
            raise options_invalid("DeleteOptions", causes)
        return self

    @classmethod
    def _from_body(cls, request: Request) -> DeleteOptions:
        try:
            value = _DECODERS.get(request.content_type, parse_json)(request.body)
            options = cls() if value is None else msgspec.convert(value, cls)
        except ValueError as error:  # msgspec's errors are such too
            raise status_errors.bad_request(f"DeleteOptions cannot be decoded: {error}") from None
        if options.kind not in {None, "", "DeleteOptions"}:
            raise status_errors.bad_request(f"the body of a delete must be DeleteOptions, not {options.kind}")
        return options

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
    prepare_versions(route.info, [record.obj])  # for the answer
    if api.admission is not None:
        check_preconditions(route.info, record, options.preconditions)
        api.admission.review_delete(_subject(api.admission, route.info, record, options))
    last, gone = delete_object(api, route.info, record, options)
    if gone and not returns_deleted(route.info):
        kind = route.info.kind
        details = {"name": route.name, **({"group": kind.group} if kind.group else {}), "kind": kind.plural}
        details["uid"] = record.obj["metadata"]["uid"]
        return Reply(200, _encode(status_errors.success(details)) + b"\n", "application/json")
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
    prepare_versions(route.info, [record.obj for record in records])  # for the answer
    chain = api.admission
    if chain is not None:
        chain.prepare_deletes([_subject(chain, route.info, record, options) for record in records])
    for record in records:
        if record.key in table.records:
            if chain is not None:
                chain.review_delete(_subject(chain, route.info, record, options))
            delete_object(api, route.info, table.records[record.key], options)
    return Reply(
        200, api.view(request).encode_list(records, {"resourceVersion": str(revision)}), request.media.content_type
    )


def _subject(chain: AdmissionChain, info: ResourceInfo, record: Record, options: DeleteOptions) -> AdmissionAttributes:
    """A delete, as webhooks are asked about it."""
    given = msgspec.to_builtins(options)
    preconditions = given["preconditions"] or {}
    given["preconditions"] = {key: value for key, value in preconditions.items() if value is not None} or None
    shown = {key: value for key, value in given.items() if value is not None}
    shown |= {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
    old = in_version(info, record.obj)
    return chain.attributes("DELETE", None, old, dry_run=options.dry_run, options=shown)


def delete_object(api: Api, info: ResourceInfo, record: Record, options: DeleteOptions) -> tuple[Record, bool]:
    """Delete as far as finalizers and grace allow; the last state, and whether the object is gone."""
    check_preconditions(info, record, options.preconditions)
    special = _SPECIAL.get(info.kind.qualified)
    if special is not None:
        return special(api, info, record, options)
    obj = record.obj
    grace = _grace(info, obj, options)
    if grace == _PENDING:
        return record, False
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


def check_preconditions(info: ResourceInfo, record: Record, wanted: Preconditions | None) -> None:
    """Refuse an object that is not the one, or not in the state, that the client expects."""
    if wanted is None:
        return
    meta = record.obj["metadata"]
    shown = Kind(group=info.kind.group, version=info.kind.version, kind=info.kind.kind, plural=info.kind.kind)
    if wanted.uid is not None and wanted.uid != meta["uid"]:
        raise status_errors.conflict(
            shown,
            meta["name"],
            f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated",
        )
    version = str(record.revision)
    if wanted.resourceVersion is not None and wanted.resourceVersion != version:
        raise status_errors.conflict(
            shown,
            meta["name"],
            f"the ResourceVersion in the precondition ({wanted.resourceVersion}) does not match the ResourceVersion "
            f"in record ({version}). The object might have been modified",
        )


_PENDING = -1  # a graceful deletion is under way and nothing changes


def _grace(info: ResourceInfo, obj: JSON, options: DeleteOptions) -> int | None:
    """The grace period of a pod in seconds, or _PENDING; None for kinds without one."""
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
    """Jobs keep their pods by default, for clients older than the garbage collector."""
    asked = options.propagationPolicy is not None or options.orphanDependents is not None
    return info.kind.qualified == "jobs.batch" and info.custom is None and not asked


def _delete_namespace(api: Api, info: ResourceInfo, record: Record, options: DeleteOptions) -> tuple[Record, bool]:
    obj = record.obj
    meta = obj["metadata"]
    if meta["name"] in PROTECTED:
        raise status_errors.forbidden(info.kind, meta["name"], "this namespace may not be deleted")
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
