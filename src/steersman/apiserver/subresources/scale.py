"""The scale subresource: how many replicas, of any kind that has them.

A `Scale` is made of three fields of its parent and written back to one of them. Field ownership is that of the parent:
who owns `.spec.replicas` of the Scale owns the replica field of the parent, and the other way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver import status_errors
from steersman.apiserver.http.requests import WriteOptions
from steersman.apiserver.http.state import Reply
from steersman.apiserver.patch import dispatch
from steersman.apiserver.patch import field_sets as sets
from steersman.apiserver.patch.apply import apply
from steersman.apiserver.patch.managed_fields import Managed, Owned, decode, encode, track_update
from steersman.apiserver.resources.conform import ConformError, conform
from steersman.apiserver.resources.conversion import in_version
from steersman.apiserver.resources.kinds import SCALE
from steersman.apiserver.resources.schema import builtin_schema
from steersman.apiserver.storage.reads import find
from steersman.apiserver.validation import field_errors
from steersman.apiserver.write.admission import reviewed
from steersman.apiserver.write.decoding import subresource_object
from steersman.apiserver.write.pipeline import change
from steersman.apiserver.write.verbs import check_name, in_namespace, still_typed
from steersman.errors import FormatError
from steersman.kube.api.patches import PatchType
from steersman.kube.api.selectors import Selector

if TYPE_CHECKING:
    from steersman.apiserver.http.requests import Request
    from steersman.apiserver.http.state import Api
    from steersman.apiserver.patch.field_sets import FieldSet
    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.apiserver.storage.store import Record

JSON = dict[str, Any]
_encode = msgspec.json.Encoder().encode
_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_REPLICAS: FieldSet = {"f:spec": {"f:replicas": {}}}


def get_scale(api: Api, request: Request) -> Reply:
    """GET of the scale."""
    route = request.route
    record = find(api, route.info, route.namespace, route.name)
    if route.info.custom is not None and _replicas(route.info, record.obj) is None:
        why = f'the spec replicas field "{_spec_path(route.info)}" does not exist'
        raise status_errors.StatusError(
            500, f"Internal error occurred: {why}", reason="InternalError", details={"causes": [{"message": why}]}
        )
    return _answer(route.info, record)


def replace_scale(api: Api, request: Request) -> Reply:
    """PUT of the scale."""
    route = request.route
    options = WriteOptions.parse(request, "UpdateOptions")
    wanted = subresource_object(request, SCALE, options.validation)
    check_name(wanted, route.name)
    record = find(api, route.info, route.namespace, route.name)
    return _write(api, request, record, _tracked(api, _scale(route.info, record), wanted, options), options)


def patch_scale(api: Api, request: Request) -> Reply:
    """PATCH of the scale; an apply by a manager owns the replicas from then on."""
    route = request.route
    kind = dispatch.patch_type(route.info, request.content_type)
    applying = kind is PatchType.APPLY
    options = WriteOptions.parse(request, "PatchOptions", apply=applying)
    record = find(api, route.info, route.namespace, route.name)
    live = _scale(route.info, record)
    if applying:
        config = dispatch.configuration(request.body, SCALE)
        applied = apply(
            builtin_schema(SCALE),
            live,
            config,
            manager=options.manager,
            force=options.force,
            api_version=SCALE.api_version,
            now=api.now(),
            subresource="scale",
        )
        wanted = _fitted(applied, applied=True)
    else:
        patched = dispatch.patched(kind, builtin_schema(SCALE), live, request.body)
        wanted = _tracked(api, live, _fitted(still_typed(route.info, SCALE, patched, kind)), options)
    check_name(wanted, route.name)
    return _write(api, request, record, wanted, options)


def _fitted(patched: JSON, *, applied: bool = False) -> JSON:
    try:
        return conform(builtin_schema(SCALE), patched)
    except (ConformError, FormatError) as error:
        if applied:
            raise status_errors.internal(f"the applied configuration cannot be converted: {error}") from None
        raise status_errors.unprocessable() from None


def _tracked(api: Api, live: JSON, wanted: JSON, options: WriteOptions) -> JSON:
    return track_update(
        builtin_schema(SCALE),
        live,
        wanted,
        manager=options.manager,
        api_version=SCALE.api_version,
        now=api.now(),
        subresource="scale",
    )


def _write(api: Api, request: Request, record: Record, wanted: JSON, options: WriteOptions) -> Reply:
    info = request.route.info
    in_namespace(info, request.route.namespace, wanted)
    wanted = reviewed(api, wanted, _scale(info, record), dry_run=options.dry_run)
    replicas = (wanted.get("spec") or {}).get("replicas")
    if info.custom is not None and replicas is None and _replicas(info, record.obj) is None:
        raise status_errors.bad_request(f'the spec replicas field "{_spec_path(info)}" cannot be empty')
    replicas = replicas or 0
    if replicas < 0:
        kind, field = (SCALE, "spec.replicas") if info.custom is None else (info.kind, _spec_path(info))
        cause = field_errors.invalid(field, replicas, "must be greater than or equal to 0")
        raise status_errors.invalid(kind, request.route.name, [cause])
    assert info.scale is not None
    parent = in_version(info, record.obj)
    managed = _to_parent(info, parent, wanted["metadata"].get("managedFields"))
    metadata = {k: v for k, v in parent["metadata"].items() if k != "managedFields"}
    if version := wanted["metadata"].get("resourceVersion"):
        metadata["resourceVersion"] = version
    if managed:
        metadata["managedFields"] = encode(managed)
    parent = _with(parent, _path(info.scale.spec_replicas), replicas)
    if info.custom is not None:
        parent = info.structural.default(parent)  # the path to the replicas may be new
    stored = change(
        api,
        info,
        record,
        {**parent, "metadata": metadata},
        options,
        request.warnings,
        subresource="scale",
        tracked=True,
    )
    return _answer(info, stored)


def _answer(info: ResourceInfo, record: Record) -> Reply:
    scale = _scale(info, record)
    metadata = {k: v for k, v in scale["metadata"].items() if k != "managedFields"}
    return Reply(200, _encode({**scale, "metadata": metadata}) + b"\n")


def _scale(info: ResourceInfo, record: Record) -> JSON:
    """The parent as a Scale, with those of its field managers that own its replicas."""
    assert info.scale is not None
    parent = in_version(info, record.obj)
    metadata = {key: parent["metadata"][key] for key in _SHOWN if key in parent["metadata"]}
    managed = _from_parent(info, parent)
    if managed:
        metadata["managedFields"] = encode(managed)
    replicas = _replicas(info, parent)
    status: JSON = {"replicas": _at(parent, _path(info.scale.status_replicas)) or 0}
    if info.custom is not None:
        selector = _at(parent, _path(info.scale.selector)) if info.scale.selector else None
    else:
        selector = _selector(parent)
    if selector:
        status["selector"] = selector
    return {
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version,
        "metadata": metadata,
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _spec_path(info: ResourceInfo) -> str:
    assert info.scale is not None
    return info.scale.spec_replicas


def _replicas(info: ResourceInfo, parent: JSON) -> int | None:
    replicas: int | None = _at(parent, _path(_spec_path(info)))
    return replicas


def _selector(parent: JSON) -> str:
    selector = parent["spec"].get("selector")
    if parent["kind"] == "ReplicationController":
        return str(Selector.from_labels(selector or {}))
    return str(Selector.from_wire(selector or {}))


def _path(text: str) -> tuple[str, ...]:
    return tuple(text.lstrip(".").split("."))


def _at(obj: JSON, path: tuple[str, ...]) -> Any:
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _with(obj: JSON, path: tuple[str, ...], value: Any) -> JSON:
    head, *rest = path
    return {**obj, head: _with(obj.get(head) or {}, tuple(rest), value) if rest else value}


def _owned(info: ResourceInfo) -> tuple[FieldSet, tuple[str, ...]]:
    """The replica field of the parent, as a set and as a path."""
    assert info.scale is not None
    path = tuple(f"f:{part}" for part in _path(info.scale.spec_replicas))
    tree: FieldSet = {}
    for part in reversed(path):
        tree = {part: tree}
    return tree, path


def _from_parent(info: ResourceInfo, parent: JSON) -> Managed:
    _, path = _owned(info)
    found: Managed = {}
    for manager, owned in decode(parent["metadata"].get("managedFields")).items():
        if sets.contains(owned.fields, path):
            version = "" if manager.operation == "Apply" else SCALE.api_version
            found[manager._replace(api_version=version)] = Owned(_REPLICAS, SCALE.api_version, owned.time)
    return found


def _to_parent(info: ResourceInfo, parent: JSON, entries: list[JSON] | None) -> Managed:
    """The parent's managers after the Scale's decided who owns the replicas.

    The real server takes an updater of the Scale for another manager than the same updater of the parent, because their
    versions differ. So after any write of the Scale the replicas are an entry of their own, without a time, and the
    next read of two entries with one name keeps the last: this way replicas can end up with no owner at all.
    """
    tree, path = _owned(info)
    scale = decode(entries)
    before = decode(parent["metadata"].get("managedFields"))
    managed: Managed = {}
    for manager, owned in before.items():
        if not sets.contains(owned.fields, path):
            managed[manager] = owned
        elif manager in scale:
            managed[manager] = owned
            del scale[manager]
        elif left := sets.difference(owned.fields, tree):
            managed[manager] = Owned(left, owned.api_version, owned.time)
    for manager, owned in scale.items():
        if sets.contains(owned.fields, ("f:spec", "f:replicas")):
            time = before[manager].time if manager in before else None
            managed[manager] = Owned(tree, info.kind.api_version, time)
    return managed
