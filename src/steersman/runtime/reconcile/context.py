"""What a reconciler works with: one snapshot to read, and writes that cost nothing when nothing differs.

    await ctx.apply(deployment_for(app))          server-side apply; no request when it is known to change nothing
    await ctx.status(app, ready=True)             only the fields that differ are patched
    await ctx.set_condition(app, "Ready", True, reason="AllReplicasReady")
    await ctx.delete(Deployment, ref)             fine when it does not exist
    ctx.event(app, "Scaled", "now 3 replicas")    recorded in the background
    ctx.cache[Deployment].get(ref)                as it was when the reconcile began, own writes included; a copy

    if ctx.effect("http reload", url): …          for what is changed outside Kubernetes

What is written here is seen by the next reconcile of the key, whether or not the watch has delivered it. Every write,
of the context or of `ctx.client`, passes the manager's guard (`steersman.runtime.reconcile.write_guard`).
A context belongs to one reconcile and is of no use after it.
"""

from __future__ import annotations

from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from steersman.cache.copies import copy_of
from steersman.cache.identity import ref_of, revision_of, uid_of
from steersman.clock import Deadline
from steersman.errors import ConfigError
from steersman.kube.api.errors import AlreadyExists, Conflict, Invalid, NotFound
from steersman.kube.api.field_presence import replace
from steersman.kube.api.gvk import Kind, NamespacedName
from steersman.kube.api.objects import ObjectMeta, PartialObjectMetadata, Resource
from steersman.kube.api.patches import PatchType
from steersman.runtime.reconcile.apply_cache import digest
from steersman.runtime.reconcile.conditions import merge_condition, new_condition
from steersman.runtime.reconcile.finalizers import adding_finalizers, has_finalizer, is_terminating, removing_finalizer
from steersman.runtime.reconcile.metadata import kind_of, metadata_of, owner_reference
from steersman.runtime.reconcile.ownership import OwnershipClaim, is_precondition_failure, precondition
from steersman.runtime.reconcile.status_patch import as_conditions, conditions_of, is_shared, status_patch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from typing import Unpack

    import structlog.typing

    from steersman.cache.interfaces import InformerFactory
    from steersman.clock import Clock
    from steersman.kube.client.client import Client
    from steersman.kube.client.pod_streams import ExecResult, LogOptions, PortForward
    from steersman.runtime.cluster import Cluster, ClusterSnapshot
    from steersman.runtime.reconcile.conditions import Status
    from steersman.runtime.reconcile.object_memory import ObjectMemories
    from steersman.runtime.reconcile.ownership import Adopt

__all__ = ["ClusterContext", "Context"]

Object = Resource | dict[str, Any]
R = TypeVar("R", bound=Resource)

_CLAIM_ATTEMPTS = 4  # of an apply whose name others keep creating and deleting meanwhile
PATIENCE_SECONDS = 10.0  # for a watch to deliver the change that a write ran into; they take milliseconds


class ClusterContext:
    """Reading and writing in one cluster during one reconcile."""

    def __init__(self, cluster: Cluster, cache: ClusterSnapshot, *, field_manager: str, key: Any = None) -> None:
        self.cache = cache
        self.field_manager = field_manager
        self._cluster = cluster
        self._key = key  # for which it writes; None: whatever runs now
        self._client: Client | None = None
        self.writes = 0  # requests so far that changed something, or asked to

    @property
    def client(self) -> Client:
        """For everything that has no method here; what it writes is not seen before the watch delivers it.

        Its writes pass the same guard as those of the context: `--dry-run`, leadership and sharding hold for it too.
        """
        if self._client is None:
            self._client = self._cluster.client if self._key is None else self._cluster.client_for(self._key)
        return self._client

    @property
    def caches(self) -> InformerFactory:
        """For objects whose names are known only at run time; what every controller reads is in `cache`.

        What its snapshots hold is shared: change a copy (`steersman.cache.copies`).
        """
        return self._cluster.caches

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be changed."""
        return self._cluster.dry_run

    async def apply(
        self,
        obj: Object,
        *,
        force: bool = True,
        owner: Object | EllipsisType | None = ...,
        adopt: Adopt | None = None,
    ) -> Any:
        """Make the fields of `obj` so (server-side apply), and return the object as it is then.

        No request is made when the last apply of these very fields is still in effect. Fields that were applied before
        and are missing now are removed. `force` takes fields over from other managers, as a controller should. `owner`
        gets an owner reference; without it, objects of the kinds a controller `owns` belong to the object it is for.

        A child is created or, when it is the owner's already, changed: NotOwned when an object of that name exists that
        has no reference to the owner, also when the cache does not know it yet. `adopt` gives the labels (or a function
        that is given the object) of existing objects to take nevertheless, provided that no controller has them. With
        `owner=None` nothing is checked, unless `adopt` says which existing object may be written.
        """
        kind = self._kind(obj)
        target = kind if isinstance(obj, dict) else type(obj)
        obj, owner = self._prepared(obj, kind, owner)
        ref, config = ref_of(obj), digest(obj)
        applied = self._cluster.applied
        live = self.cache.live(target, ref)
        if live is not None and applied.is_current(self.field_manager, kind, ref, config, live):
            return copy_of(live)
        claim = OwnershipClaim.of(obj, kind, adopt)
        if claim is None:
            written = await self._send(obj, target, force=force)
        else:
            written = await self._apply_claimed(obj, target, claim, owner, live, force=force)
        if not self._cluster.dry_run:
            changed = live is None or revision_of(live) != revision_of(written)
            self.writes += changed  # the server finds out that nothing differs, once per process
            kept = self.cache.record_write(target, written)
            applied.remember(self.field_manager, kind, ref, config, kept)  # to be compared with what the cache knows
        return written

    async def create(
        self, obj: Object, *, owner: Object | EllipsisType | None = ..., adopt: Adopt | None = None
    ) -> Any:
        """Create an object; AlreadyExists when there is one. For names that the server makes up; otherwise `apply`.

        `owner` and `adopt` are those of `apply`: NotOwned, instead of AlreadyExists, when what exists is not ours.
        """
        kind, target = self._kind(obj), self._target_of(obj)
        obj, _ = self._prepared(obj, kind, owner)
        try:
            written = await self.client.create(obj, field_manager=self.field_manager)
        except AlreadyExists:
            claim = OwnershipClaim.of(obj, kind, adopt)
            if claim is not None and (there := await self._read(target, claim)) is not None:
                claim.check(there)
            raise
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
        written = await self.client.patch(
            target,
            ref.name,
            cast("Any", patch),
            type=kind,
            namespace=ref.namespace or None,
            subresource=subresource,
            field_manager=self.field_manager,
            into=self._decoded_as(target),
        )
        return self._recorded(target, written)

    async def status(self, obj: Object, status: Any = None, **fields: Any) -> bool:
        """Write these fields of the object's status, if they differ from what is there; returns whether they did.

        `status` is a whole status struct or mapping; keywords are single fields, by their names in Python or on the
        wire. None removes a field. Fields that are not named stay. A deleted object is fine.

        Of `conditions`, those are written that differ from what `obj` has; what others wrote since stays.
        """
        known = self._known(obj)
        current = next(iter(known), obj)
        # as it was read: the caller may have changed its own copy on the way to the new status
        read = next((live for live in known if revision_of(live) == revision_of(obj)), obj)
        while changes := status_patch(current, status, fields, read=read):
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

    async def set_condition(
        self,
        obj: Object,
        kind: str,
        status: bool | Status | None,
        *,
        reason: str,
        message: str = "",
        **fields: Any,
    ) -> bool:
        """Set one condition of the object's status, and `fields` beside it, in one write; returns whether it did.

        `lastTransitionTime` moves with the status of the condition and only then; `observedGeneration` is the
        generation of `obj`. Conditions of other types stay as they are. Nothing is written when nothing differs.
        """
        current = next(iter(self._known(obj)), obj)
        fresh = new_condition(kind, status, reason, message, generation=metadata_of(obj).generation)
        merged = merge_condition(conditions_of(current), fresh, now=self._cluster.clock.time())
        return await self.status(current, conditions=as_conditions(current, merged), **fields)

    async def delete(
        self,
        target: type[Resource] | Kind | Object,
        ref: NamespacedName | None = None,
        *,
        propagation: str | None = None,
        unchanged: bool = False,
        owner: Object | EllipsisType | None = ...,
        adopt: Adopt | None = None,
    ) -> bool:
        """Delete an object, given itself or by kind and name; returns False when it does not exist.

        An object that was read is deleted only if it still is the same one: a new one of that name is left alone. With
        `unchanged` it must also be as it was read; Conflict when it is not. `owner` and `adopt` are those of `apply`:
        NotOwned when the object is of a kind that the controller `owns` and belongs to another owner.
        """
        revision = ""
        live: Any
        if isinstance(target, (Resource, dict)):
            revision = revision_of(target) if unchanged else ""
            live, target, ref = target, self._target_of(target), ref_of(target)
        else:
            if ref is None:
                raise TypeError(f"delete({kind_of(target).kind}, …) needs the name of the object as well")
            live = self.cache.live(target, ref)
        claim = self._claim_on(kind_of(target), ref, owner, adopt)
        if claim is not None:
            live = live if live is not None else await self._read(target, claim)
            if live is None:
                return False
            claim.check(live)
        uid = "" if live is None else uid_of(live)
        try:
            remains = await self.client.delete(
                target,
                ref.name,
                namespace=ref.namespace or None,
                uid=uid or None,
                resource_version=revision or None,
                propagation=propagation,
            )
        except NotFound:
            self.cache.record_delete(target, ref, uid)
            return False
        if not self._cluster.dry_run:
            self.writes += 1
            self._record_deletion(target, ref, uid, remains)
        return True

    async def add_finalizer(self, obj: R, *names: str) -> R:
        """Hold `obj` back from deletion until `names` are removed; Conflict when it changed since it was read."""
        missing = [name for name in names if not has_finalizer(obj, name)]
        return cast("R", await self.patch(obj, adding_finalizers(obj, missing))) if missing else obj

    async def remove_finalizer(self, obj: Object, name: str) -> None:
        """Let `obj` go, as far as `name` is concerned; fine when it does not exist."""
        if not has_finalizer(obj, name):
            return
        try:
            meta = metadata_of(await self.patch(obj, removing_finalizer(obj, name)))
        except NotFound:
            is_gone = True
        else:  # the server answers with the object as it was last, also when that was all it waited for
            waits = meta.finalizers or meta.deletion_grace_period_seconds
            is_gone = meta.deletion_timestamp is not None and not waits and not self._cluster.dry_run
        if is_gone:
            self.cache.record_delete(self._target_of(obj), ref_of(obj), uid_of(obj))

    async def logs(self, pod: Object, **options: Unpack[LogOptions]) -> str:
        """The log of a container of `pod` so far."""
        ref = ref_of(pod)
        return await self.client.logs(ref.name, namespace=ref.namespace, **options)

    async def exec(
        self, pod: Object, command: Sequence[str], *, container: str | None = None, stdin: bytes | None = None
    ) -> ExecResult:
        """Run a command in a container of `pod` to its end. It counts as a write; NotInDryRun in a dry run."""
        ref = ref_of(pod)
        done = await self.client.exec(ref.name, command, namespace=ref.namespace, container=container, stdin=stdin)
        self.writes += 1
        return done

    def port_forward(self, pod: Object, port: int) -> AbstractAsyncContextManager[PortForward]:
        """A local port whose connections lead to `port` of `pod`, as a context manager. It counts as a write."""
        ref = ref_of(pod)
        return self.client.port_forward(ref.name, port, namespace=ref.namespace)

    def event(self, obj: Object, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an Event, in the background: similar events are counted together, floods are cut off."""
        if self._cluster.recorder is not None and self._cluster.guard.event(reason, message):
            self._cluster.recorder.event(obj, self._kind(obj), reason, message, warning=warning)

    def effect(self, name: str, target: str = "") -> bool:
        """Whether to have an effect outside Kubernetes now, such as an HTTP call that changes something.

            if ctx.effect("http reload", url):
                await session.post(url)

        In a dry run the answer is False and the log says what was left out. NotLeading when this process may no longer
        act. Ask immediately before every attempt: the answer is about this moment.
        """
        guard = self._cluster.guard
        return (guard if self._key is None else guard.bound_to(self._key)).effect(name, target)

    # -- the machinery ------------------------------------------------------------------------------------------------

    def _kind(self, obj: Object) -> Kind:
        if not isinstance(obj, dict):
            return type(obj).KIND
        group, _, version = obj.get("apiVersion", "").rpartition("/")
        for resource in self.cache:
            kind: Kind = resource.informer.kind
            if (kind.group, kind.version, kind.kind) == (group, version, obj.get("kind")):
                return kind
        raise ConfigError(
            f"this controller does not know {obj.get('apiVersion')} {obj.get('kind')}: let it own or read that kind",
            field="kind",
        )

    def _known(self, obj: Object) -> list[Any]:
        """The same object as the caches know it, newest first: own writes and later changes included."""
        target, ref = self._target_of(obj), ref_of(obj)
        found = (self.cache.latest(target, ref), self.cache.live(target, ref))
        return [live for live in found if live is not None and uid_of(live) == uid_of(obj)]

    async def _changed(self, obj: R | dict[str, Any], conflict: Conflict) -> R | dict[str, Any]:
        """What another client made of `obj`, once the cache shows it; the conflict is raised when it never does."""
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
        resource = self.cache.watched(target)
        kept = target if resource is None else resource.target
        return dict if isinstance(kept, Kind) else cast("type[Any]", kept)

    def _prepared(self, obj: Object, kind: Kind, owner: Object | EllipsisType | None) -> tuple[Object, Object | None]:
        """`obj` with its namespace and owner, and that owner; never changes what it is given."""
        obj = self._located(obj, kind)
        owner = None if owner is ... and metadata_of(obj).owner_references else self._owner_for(kind, owner)
        return _with_owner(obj, kind, owner, self._kind), owner

    def _located(self, obj: Object, kind: Kind) -> Object:  # noqa: ARG002  # a context of a key knows a namespace
        return obj

    def _owner_for(self, kind: Kind, owner: Object | EllipsisType | None) -> Object | None:  # noqa: ARG002  # likewise
        return None if isinstance(owner, EllipsisType) else owner

    def _claim_on(
        self, kind: Kind, ref: NamespacedName, owner: Object | EllipsisType | None, adopt: Adopt | None
    ) -> OwnershipClaim | None:
        """What an object of that name must fulfil to be ours."""
        meta: dict[str, Any] = {"name": ref.name, "namespace": ref.namespace}
        if (found := self._owner_for(kind, owner)) is not None:
            meta["ownerReferences"] = [msgspec.to_builtins(owner_reference(found, self._kind(found)))]
        return OwnershipClaim.of({"metadata": meta}, kind, adopt)

    async def _apply_claimed(
        self,
        obj: Object,
        target: type[Resource] | Kind,
        claim: OwnershipClaim,
        owner: Object | None,
        live: Any | None,
        *,
        force: bool,
    ) -> Any:
        """Apply to what is ours or to nothing: the request fails when another object has the name by then."""
        resource, demanded = self.cache.watched(target), revision_of(obj)
        if live is None and (demanded or resource is None or not resource.holds(obj)):
            live = await self._read(target, claim)  # the cache cannot know that there is none
        for attempt in range(1, _CLAIM_ATTEMPTS + 1):
            if live is not None and claim.check(live) and owner is not None:
                await self._may_adopt(owner)
            try:
                return await self._send(_with_metadata(obj, **precondition(live)), target, force=force)
            except (Conflict, Invalid) as error:
                if demanded or attempt == _CLAIM_ATTEMPTS or not is_precondition_failure(error):
                    raise
            live = await self._read(target, claim)
        raise AssertionError("unreachable")  # the last attempt returns or raises

    async def _may_adopt(self, owner: Object) -> None:
        """Ask the server before taking what no controller has: Conflict when the owner is being deleted.

        A deletion that leaves the children behind removes their owner references first, and the cache may show that
        before it shows the deletion: they come by different watches.
        """
        ref = ref_of(owner)
        fresh = await self._named(self._target_of(owner), ref, PartialObjectMetadata)
        if fresh is None or is_terminating(fresh) or uid_of(fresh) != uid_of(owner):
            raise Conflict(f"{ref} is being deleted, so it adopts nothing")

    async def _read(self, target: type[Resource] | Kind, claim: OwnershipClaim) -> Any | None:
        """What the server has under the name of a claim, as much of it as the claim needs."""
        into = self._decoded_as(target) if claim.reads_objects else PartialObjectMetadata
        return await self._named(target, claim.ref, into)

    async def _named(self, target: type[Resource] | Kind, ref: NamespacedName, into: type[Any] | None) -> Any | None:
        """One object as the server has it now, by a list: that is a right which everyone with a cache has."""
        found = await self._cluster.client.list(
            target, namespace=ref.namespace or None, field_selector=f"metadata.name={ref.name}", into=into
        )
        return next(iter(found.items), None)

    async def _send(self, obj: Object, target: type[Resource] | Kind, *, force: bool) -> Any:
        return await self.client.apply(
            obj,
            field_manager=self.field_manager,
            force=force,
            into=self._decoded_as(target),
        )

    def _recorded(self, target: type[Resource] | Kind, written: Any) -> Any:
        if not self._cluster.dry_run:
            self.writes += 1
            self.cache.record_write(target, written)
        return written

    def _record_deletion(
        self, target: type[Resource] | Kind, ref: NamespacedName, uid: str, remains: Resource | None
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
        cache: ClusterSnapshot,
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
        memories: ObjectMemories | None = None,
    ) -> None:
        super().__init__(cluster, cache, field_manager=field_manager, key=key)
        self.key = key
        self.reconcile_id = reconcile_id  # in every log line of this reconcile
        self.clock = clock
        self.log = log
        self.failures = failures  # how often this key failed in a row before this time
        self.clusters: Mapping[str, ClusterContext] = others or {}  # the other clusters, by name
        self._target = target
        self._owned = owned_kinds
        self._memories = memories

    @property
    def memory(self) -> dict[str, Any]:
        """What this controller keeps about the object, in this process only; timers and daemons share it."""
        obj = None if self._target is None else self.cache.live(self._target, self.key)
        if obj is None or self._memories is None:
            raise LookupError(f"there is no object {self.key} whose memory this could be")
        return self._memories.of(self.key, uid_of(obj))

    def _located(self, obj: Object, kind: Kind) -> Object:
        if (
            kind.namespaced
            and not ref_of(obj).namespace
            and isinstance(self.key, NamespacedName)
            and self.key.namespace
        ):
            return _with_metadata(obj, namespace=self.key.namespace)
        return obj

    def _owner_for(self, kind: Kind, owner: Object | EllipsisType | None) -> Object | None:
        if isinstance(owner, EllipsisType):
            return self.cache.live(self._target, self.key) if kind in self._owned else None
        return owner


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
