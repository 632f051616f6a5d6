"""What a reconciler works with: one snapshot to read, and writes that cost nothing when nothing differs.

    await ctx.apply(deployment_for(app))          server-side apply; no request when it is known to change nothing
    await ctx.status(app, ready=True)             only the fields that differ are patched
    await ctx.delete(Deployment, ref)             fine when it is gone already
    ctx.event(app, "Scaled", "now 3 replicas")    recorded in the background
    ctx.cache[Deployment].get(ref)                as it was when the reconcile began, own writes included

Every write goes through here, so that the next reconcile of the key sees it, whether or not the watch has delivered it.
A context belongs to one reconcile and is of no use after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from steersman.cache.identity import ref_of, revision_of, uid_of
from steersman.clock import Deadline
from steersman.errors import ConfigError
from steersman.kube.errors import Conflict, NotFound
from steersman.kube.objects import ObjectMeta, Resource
from steersman.kube.patches import PatchType
from steersman.kube.resources import Kind, ObjectRef
from steersman.runtime.applied import digest
from steersman.runtime.cluster import NotLeading
from steersman.runtime.finalizers import adding_finalizer, has_finalizer, removing_finalizer
from steersman.runtime.metadata import kind_of, metadata_of, owner_reference
from steersman.runtime.statuses import is_shared, status_patch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import EllipsisType

    import structlog.typing

    from steersman.cache.contract import Caches
    from steersman.clock import Clock
    from steersman.kube.client import Client
    from steersman.runtime.cluster import Cluster, Snapshots

__all__ = ["ClusterContext", "Context"]

Object = Resource | dict[str, Any]
R = TypeVar("R", bound=Resource)

PATIENCE_SECONDS = 10.0  # for a watch to bring the change that a write ran into; they take milliseconds


class ClusterContext:
    """Reading and writing in one cluster during one reconcile."""

    def __init__(self, cluster: Cluster, cache: Snapshots, *, field_manager: str) -> None:
        self.cache = cache
        self.field_manager = field_manager
        self._cluster = cluster
        self.writes = 0  # requests so far that changed something, or asked to

    @property
    def client(self) -> Client:
        """For everything that has no method here; what it writes is not seen before the watch delivers it."""
        return self._cluster.client

    @property
    def caches(self) -> Caches:
        """For objects whose names are known only at run time; what every controller reads is in `cache`."""
        return self._cluster.caches

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be changed."""
        return self._cluster.dry_run

    async def apply(self, obj: Object, *, force: bool = True, owner: Object | EllipsisType | None = ...) -> Any:
        """Make the fields of `obj` so (server-side apply), and return the object as it is then.

        No request is made when the last apply of these very fields is still in effect. Fields that were applied before
        and are missing now are removed. `force` takes fields over from other managers, as a controller should. `owner`
        gets an owner reference; without it, objects of the kinds a controller `owns` belong to the object it is for.
        """
        kind, target = self._kind(obj), self._target_of(obj)
        obj = self._prepared(obj, kind, owner)
        ref, config = ref_of(obj), digest(obj)
        applied = self._cluster.applied
        live = self.cache.live(target, ref)
        if live is not None and applied.is_current(self.field_manager, kind, ref, config, live):
            return live
        written = await self._writer().apply(
            obj,
            field_manager=self.field_manager,
            force=force,
            dry_run=self._cluster.dry_run,
            into=self._decoded_as(target),
        )
        if not self._cluster.dry_run:
            changed = live is None or revision_of(live) != revision_of(written)
            self.writes += changed  # the server finds out that nothing differs, once per process
            kept = self.cache.record_write(target, written)
            applied.remember(self.field_manager, kind, ref, config, kept)  # to be compared with what the cache knows
        return written

    async def create(self, obj: Object, *, owner: Object | EllipsisType | None = ...) -> Any:
        """Create an object; AlreadyExists when there is one. For names that the server makes up; otherwise `apply`."""
        target = self._target_of(obj)
        obj = self._prepared(obj, self._kind(obj), owner)
        written = await self._writer().create(obj, field_manager=self.field_manager, dry_run=self._cluster.dry_run)
        return self._recorded(target, written)

    async def patch(
        self,
        obj: Object,
        patch: Mapping[str, Any] | list[Any],
        *,
        kind: PatchType = PatchType.MERGE,
        subresource: str | None = None,
    ) -> Any:
        """Change parts of an existing object. A patch that names uid and resourceVersion is conditional."""
        ref, target = ref_of(obj), self._target_of(obj)
        written = await self._writer().patch(
            target,
            ref.name,
            cast("Any", patch),
            type=kind,
            namespace=ref.namespace or None,
            subresource=subresource,
            field_manager=self.field_manager,
            dry_run=self._cluster.dry_run,
            into=self._decoded_as(target),
        )
        return self._recorded(target, written)

    async def status(self, obj: Object, status: Any = None, **fields: Any) -> bool:
        """Write these fields of the object's status, if they differ from what is there; returns whether they did.

        `status` is a whole status struct or mapping; keywords are single fields, by their names in Python or on the
        wire. None removes a field. Fields that are not named stay. An object that is gone is fine.

        Of `conditions`, those are written that differ from what `obj` has; what others wrote since stays.
        """
        target, ref = self._target_of(obj), ref_of(obj)
        known = (self.cache.latest(target, ref), self.cache.live(target, ref))
        current = next((live for live in known if live is not None and uid_of(live) == uid_of(obj)), obj)
        while changes := status_patch(current, status, fields, read=obj):
            metadata = {"uid": uid_of(current)}
            if is_shared(changes) and revision_of(current):
                metadata["resourceVersion"] = revision_of(current)
            try:
                await self.patch(current, {"metadata": metadata, "status": changes}, subresource="status")
            except NotFound:
                return False
            except Conflict as conflict:
                if "resourceVersion" not in metadata:
                    raise
                current = await self._changed(current, conflict)
            else:
                return True
        return False

    async def delete(
        self,
        target: type[Resource] | Kind | Object,
        ref: ObjectRef | None = None,
        *,
        propagation: str | None = None,
        unchanged: bool = False,
    ) -> bool:
        """Delete an object, given itself or by kind and name; returns False when it is gone already.

        An object that was read is deleted only if it still is the same one: a new one of that name is left alone. With
        `unchanged` it must also be as it was read; Conflict when it is not.
        """
        revision = ""
        if isinstance(target, (Resource, dict)):
            revision = revision_of(target) if unchanged else ""
            target, ref, uid = self._target_of(target), ref_of(target), uid_of(target)
        else:
            if ref is None:
                raise TypeError(f"delete({kind_of(target).kind}, …) needs the name of the object as well")
            live = self.cache.live(target, ref)
            uid = "" if live is None else uid_of(live)
        try:
            remains = await self._writer().delete(
                target,
                ref.name,
                namespace=ref.namespace or None,
                uid=uid or None,
                resource_version=revision or None,
                propagation=propagation,
                dry_run=self._cluster.dry_run,
            )
        except NotFound:
            self.cache.record_delete(target, ref, uid)
            return False
        if not self._cluster.dry_run:
            self.writes += 1
            self._record_deletion(target, ref, uid, remains)
        return True

    async def add_finalizer(self, obj: R, name: str) -> R:
        """Hold `obj` back from deletion until `name` is removed; Conflict when it changed since it was read."""
        return obj if has_finalizer(obj, name) else cast("R", await self.patch(obj, adding_finalizer(obj, name)))

    async def remove_finalizer(self, obj: Object, name: str) -> None:
        """Let `obj` go, as far as `name` is concerned; fine when it is gone already."""
        if has_finalizer(obj, name):
            try:
                await self.patch(obj, removing_finalizer(obj, name))
            except NotFound:
                self.cache.record_delete(self._target_of(obj), ref_of(obj), uid_of(obj))

    def event(self, obj: Object, reason: str, message: str, *, warning: bool = False) -> None:
        """Tell people, in the background: similar events are counted together, floods are cut off."""
        if self._cluster.recorder is not None and not self._cluster.dry_run:
            self._cluster.recorder.event(obj, self._kind(obj), reason, message, warning=warning)

    # -- the machinery ------------------------------------------------------------------------------------------------

    def _writer(self) -> Client:
        """The client, for a write that is made now: whoever was stopped for a while may find that others lead."""
        if not self._cluster.may_act():
            raise NotLeading("this process no longer leads: nothing is written")
        return self._cluster.client

    def _kind(self, obj: Object) -> Kind:
        if not isinstance(obj, dict):
            return type(obj).KIND
        group, _, version = obj.get("apiVersion", "").rpartition("/")
        for shelf in self.cache:
            kind: Kind = shelf.informer.kind
            if (kind.group, kind.version, kind.kind) == (group, version, obj.get("kind")):
                return kind
        raise ConfigError(
            f"this controller does not know {obj.get('apiVersion')} {obj.get('kind')}: let it own or read that kind",
            field="kind",
        )

    async def _changed(self, obj: R | dict[str, Any], conflict: Conflict) -> R | dict[str, Any]:
        """What somebody made of `obj` that the cache has not shown yet; the conflict is raised when it never does."""
        try:
            async with Deadline(self._cluster.clock, PATIENCE_SECONDS):
                known = await self.cache.beyond(revision_of(obj), self._target_of(obj), ref_of(obj))
        except TimeoutError:
            raise conflict from None
        if known is None or uid_of(known) != uid_of(obj):
            raise conflict
        return cast("R | dict[str, Any]", known)

    def _target_of(self, obj: Object) -> type[Resource] | Kind:
        return self._kind(obj) if isinstance(obj, dict) else type(obj)

    def _decoded_as(self, target: type[Resource] | Kind) -> type[Any] | None:
        """What answers are decoded to: what is kept in the cache, so that they can be shown there."""
        shelf = self.cache.shelf(target)
        kept = target if shelf is None else shelf.target
        return dict if isinstance(kept, Kind) else cast("type[Any]", kept)

    def _prepared(self, obj: Object, kind: Kind, owner: Object | EllipsisType | None) -> Object:
        """`obj` with its namespace and owner; never changes what it is given."""
        return _with_owner(obj, kind, None if owner is ... else owner, self._kind)

    def _recorded(self, target: type[Resource] | Kind, written: Any) -> Any:
        if not self._cluster.dry_run:
            self.writes += 1
            self.cache.record_write(target, written)
        return written

    def _record_deletion(
        self, target: type[Resource] | Kind, ref: ObjectRef, uid: str, remains: Resource | None
    ) -> None:
        live = self.cache.live(target, ref)
        if remains is None or live is None:
            self.cache.record_delete(target, ref, uid)
        elif isinstance(live, dict):
            self.cache.record_write(target, {**live, "metadata": msgspec.to_builtins(remains.metadata)})
        else:
            self.cache.record_write(target, replace(live, metadata=remains.metadata))


class Context(ClusterContext):
    """What a reconciler is given: the cluster it works in, the key, and who asks."""

    def __init__(
        self,
        cluster: Cluster,
        cache: Snapshots,
        *,
        key: Any,
        reconcile_id: str,
        field_manager: str,
        clock: Clock,
        log: structlog.typing.FilteringBoundLogger,
        failures: int = 0,
        target: Any = None,
        owned_kinds: frozenset[Kind] = frozenset(),
        others: Mapping[str, ClusterContext] | None = None,
    ) -> None:
        super().__init__(cluster, cache, field_manager=field_manager)
        self.key = key
        self.reconcile_id = reconcile_id  # in every log line of this reconcile
        self.clock = clock
        self.log = log
        self.failures = failures  # how often this key failed in a row before this time
        self.clusters: Mapping[str, ClusterContext] = others or {}  # the other clusters, by name
        self._target = target
        self._owned = owned_kinds

    def _prepared(self, obj: Object, kind: Kind, owner: Object | EllipsisType | None) -> Object:
        if kind.namespaced and not ref_of(obj).namespace and isinstance(self.key, ObjectRef) and self.key.namespace:
            obj = _with_metadata(obj, namespace=self.key.namespace)
        if owner is ... and kind in self._owned and not metadata_of(obj).owner_references:
            owner = self.cache[self._target].get(self.key)
        return _with_owner(obj, kind, None if owner is ... else owner, self._kind)


def _with_owner(obj: Object, kind: Kind, owner: Object | None, kind_of_owner: Any) -> Object:
    if owner is None:
        return obj
    owners_kind: Kind = kind_of_owner(owner)
    theirs, ours = ref_of(owner), ref_of(obj)
    if owners_kind.namespaced and (not kind.namespaced or theirs.namespace != ours.namespace):
        raise ConfigError(
            f"{owners_kind} {theirs} cannot own {kind} {ours}: an owner must be in the same namespace "
            "(apply with owner=None, and find it by a label)",
            field="owner",
        )
    reference = owner_reference(owner, owners_kind)
    others = [known for known in metadata_of(obj).owner_references or () if known.uid != reference.uid]
    return _with_metadata(obj, owner_references=[*others, reference])


def _with_metadata(obj: Object, **changes: Any) -> Object:
    if not isinstance(obj, dict):
        return replace(obj, metadata=replace(obj.metadata, **changes))
    wire = msgspec.to_builtins(ObjectMeta(**changes))
    return {**obj, "metadata": {**(obj.get("metadata") or {}), **wire}}
