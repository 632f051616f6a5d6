"""The controller of instances: the objects of servers we make, a look at those that exist, and when a pod may answer.

A pod gets traffic only when it has every zone it should have: its readiness gate is set here, after the serial of each
of its copies has been seen. Servers that exist already get no objects at all; they are asked whether they are there.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from steersman.errors import DriverError, PlanError
from steersman.kube.errors import AlreadyExists, KubeError
from steersman.kube.patches import PatchType
from steersman.kube.resources import ObjectRef
from steersman.kube.times import format_time, parse_time
from steersman.kube.types.apps import Deployment
from steersman.kube.types.core import Secret, Service
from steersman.kube.types.pods import Pod
from steersman.operators.dns.bindcar.driver import SidecarError
from steersman.operators.dns.claims import lost_cluster
from steersman.operators.dns.denials import denial_of
from steersman.operators.dns.fleet import SHARED_KEY, given_key, rndc_key_of
from steersman.operators.dns.followers import Followers
from steersman.operators.dns.keyring import COUNT, CREATED, EPOCH, ROTATE, control_keys, due_in, transfer_key
from steersman.operators.dns.manifests import (
    ACCOUNT,
    TEMPLATE,
    children_of,
    labels_of,
    replicas_of,
    template_of,
)
from steersman.operators.dns.namedconf import keeping_for
from steersman.operators.dns.parts import ObjectReference
from steersman.operators.dns.retiring import Retirer
from steersman.operators.dns.rollout import Member, blocker_of, is_settled
from steersman.operators.dns.serverkinds import (
    Bind9Cluster,
    Bind9Instance,
    InstanceStatus,
    KeyRotation,
    ZoneReference,
)
from steersman.operators.dns.signers import SIGNING_CONDITIONS, keep_signing_keys, signing_conditions
from steersman.operators.dns.types import GROUP, READINESS_GATE, VERSION
from steersman.operators.dns.zonekinds import DNSZone
from steersman.runtime.conditions import condition, with_conditions, without_conditions
from steersman.runtime.result import Result, done, requeue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.operators.dns.desk import Desk
    from steersman.operators.dns.servers import Server
    from steersman.operators.dns.tsig import Key
    from steersman.runtime.context import Context

__all__ = ["InstanceKeeper"]

API: Final = f"{GROUP}/{VERSION}"
LISTED: Final = 200  # zones in a status
LOCKED: Final = "BindcarAuthFailed"
KEY_GRACE: Final = 10.0  # seconds between a new key and telling servers to read it
SOON: Final = 1.0  # seconds until the next look at what is under way: keys being read, servers taking turns


class InstanceKeeper:
    """Keeps instances at what they should be."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.followers, self.retirer = Followers(desk), Retirer(desk)
        self._renewed: dict[ObjectRef, dict[str, tuple[Key, Key]]] = {}  # servers that were seen to know their keys

    async def reconcile(self, ctx: Context, instance: Bind9Instance) -> Result:
        """One pass over an instance."""
        cluster = ctx.cache[Bind9Cluster].get(ObjectRef(instance.spec.cluster_ref, instance.namespace))
        zones = self._zones(instance, ctx.cache)
        servers = self.desk.servers([instance], ctx.cache)[0]
        self.desk.fleet.keep(instance.ref, servers)
        wait = self.desk.options.drift_period.total_seconds()
        left = await self.retirer.sweep(ctx, instance)
        try:
            if instance.spec.endpoints:
                facts = await self._existing(ctx, instance)
            else:
                facts, rotation = await self._made(ctx, instance, cluster, zones)
                wait = min(wait, rotation if rotation is not None else wait)
            facts.message = facts.message or lost_cluster(instance.spec.cluster_ref, instance.namespace, ctx.cache)
        except PlanError as error:
            facts = _Facts(0, 0, error.reason, str(error))
        except KubeError as error:
            if (denied := denial_of(error)) is None:
                raise
            facts = _Facts(0, 0, *denied)
        await ctx.status(instance, replace(self._status(ctx, instance, cluster, zones, facts), left_behind=left))
        for server, why in self.desk.outages.untold(instance.ref, servers):
            ctx.event(instance, "ServerAway", f"{server} does not answer: {why}", warning=True)
        if facts.reason != "AllReady" or left:
            return requeue(after=max(1.0, min(wait, self.desk.options.not_ready.total_seconds())))
        return requeue(after=max(1.0, self.desk.later(wait)))

    # -- servers that exist --------------------------------------------------------------------------------------------

    async def _existing(self, ctx: Context, instance: Bind9Instance) -> _Facts:
        servers, problems = self.desk.servers([instance], ctx.cache)
        for problem in problems.values():
            raise problem
        failures: dict[str, str] = {}

        async def check(server: Server) -> None:
            try:
                driver = self.desk.fleet.driver(server)
                if server.records_only:
                    await driver.soa(b"\0")
                else:
                    await driver.ready()
            except DriverError as error:
                failures[server.title] = str(error).removeprefix(f"{server.title}: ")

        await asyncio.gather(*(check(server) for server in servers))
        text = "; ".join(f"{server}: {why}" for server, why in sorted(failures.items()))
        return _Facts(len(servers), len(servers) - len(failures), "", text)

    # -- servers we make -----------------------------------------------------------------------------------------------

    async def _made(
        self, ctx: Context, instance: Bind9Instance, cluster: Bind9Cluster | None, zones: Sequence[DNSZone]
    ) -> tuple[_Facts, float | None]:
        children_of(instance, cluster)  # nothing is made of nonsense, not even keys
        await keep_signing_keys(ctx, instance, keeping_for(instance, cluster), zones)
        meta = {"name": ACCOUNT, "namespace": instance.namespace, "labels": {"app": "bind9"}}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
        await ctx.apply(account, owner=None)
        keys = await self._keys(ctx, instance, cluster)
        rotation = due_in(keys, rndc_key_of(instance, cluster), ctx.clock.time())
        sources = self.followers.sources(instance, cluster, zones, ctx.cache)
        files = self.followers.files(instance, cluster, sources, ctx.cache)
        children = children_of(instance, cluster, catalog=files, **_marks(keys))
        blocker = self._blocker(instance, cluster, children, ctx.cache)
        for child in children:
            if child["kind"] != "Deployment" or not blocker:
                await ctx.apply(child)
        pods = list(ctx.cache[Pod].by_index("dns-instance", f"{instance.namespace}/{instance.name}"))
        await self._open_gates(ctx, instance, pods, zones)
        if (
            blocker
            or not await self._renew_keys(ctx, instance)
            or not await self.followers.point(instance, cluster, sources, ctx.cache)
        ):
            rotation = SOON
        deployment = ctx.cache[Deployment].get(instance.ref)
        ready = deployment.status.ready_replicas if deployment is not None else 0
        said = f"its new configuration waits for {blocker}" if blocker else ""
        locked = await self._locked(ctx, instance)
        reason = LOCKED if locked else ""
        return _Facts(replicas_of(instance), ready, reason, locked or said), rotation

    async def _locked(self, ctx: Context, instance: Bind9Instance) -> str:
        """Which sidecars do not let us in, and what helps: their pods answer, and nobody else would say so."""
        found = []
        for server in self.desk.servers([instance], ctx.cache)[0]:
            if server.api_port and server.since:
                try:
                    await self.desk.fleet.driver(server).ready()
                except SidecarError as error:
                    if error.reason == LOCKED:
                        found.append(f"{server.title}: {error.message}")
                except DriverError:
                    continue  # that it is not there, its pod says
        if not found:
            return ""
        return f"{'; '.join(found)}. Pods that know another token than Secret {instance.name}-rndc-key are replaced"

    def _blocker(
        self, instance: Bind9Instance, cluster: Bind9Cluster | None, children: Sequence[Any], cache: Any
    ) -> str:
        """The server of the same cluster that must be done before the pods of this one are replaced."""
        if not instance.spec.cluster_ref:
            return ""
        members = []
        for one in cache[Bind9Instance].list(namespace=instance.namespace):
            mine = one.name == instance.name
            if one.spec.cluster_ref != instance.spec.cluster_ref or one.spec.endpoints or (one.deleting and not mine):
                continue
            try:
                keys = cache[Secret].get(ObjectRef(f"{one.name}-rndc-key", one.namespace))
                wanted = template_of(children if mine else children_of(one, cluster, **_marks(keys)))
            except PlanError:
                continue
            held = cache[Deployment].get(one.ref)
            current = held is not None and held.annotations.get(TEMPLATE) == wanted
            members.append(Member(one.name, one.spec.role, current, is_settled(held)))
        me = next((one for one in members if one.name == instance.name), None)
        return blocker_of(me, members) if me is not None else ""

    async def _keys(self, ctx: Context, instance: Bind9Instance, cluster: Bind9Cluster | None) -> Secret:
        """Make what is missing or due; returns the instance's own."""
        now = ctx.clock.time()
        own, shared = (
            ObjectRef(f"{instance.name}-rndc-key", instance.namespace),
            ObjectRef(SHARED_KEY, instance.namespace),
        )
        wanted = rndc_key_of(instance, cluster)
        held = ctx.cache[Secret].get(own)
        given = given_key(instance, cluster, ctx.cache[Secret])  # type: ignore[arg-type]  # a mapping, as far as it is used
        sidecar = instance.spec.driver == "bindcar"
        data, notes, fresh = control_keys(held, wanted, now, given=given, sidecar=sidecar)
        if fresh and held is not None:
            ctx.event(instance, "KeyRotated", "its keys were made anew; servers read them without a restart")
        written: Secret = await ctx.apply(_secret(own, data, notes, labels_of(instance)))
        if ctx.cache[Secret].get(shared) is None:
            # All instances of a namespace find it missing at once: the first makes it, the others take that one.
            with suppress(AlreadyExists):
                await ctx.create(_secret(shared, transfer_key(None), {}, {}), owner=None)
        return written

    async def _renew_keys(self, ctx: Context, instance: Bind9Instance) -> bool:
        """Have servers read keys that are new to them; says whether all know them. Their files come when they come."""
        servers, _ = self.desk.servers([instance], ctx.cache)
        before = self._renewed.get(instance.ref, {})
        after: dict[str, tuple[Key, Key]] = {}
        waiting = 0
        held = ctx.cache[Secret].get(ObjectRef(f"{instance.name}-rndc-key", instance.namespace))
        created = held.annotations.get(CREATED, "") if held is not None else ""
        # Whoever began to write with the old key finishes first: a server knows only one of them.
        early = bool(created) and ctx.clock.time() - parse_time(created).timestamp() < KEY_GRACE
        for server in servers:
            newest = (server.keys.control, server.keys.transfer)
            if early and server.keys.previous is not None:
                waiting += 1
                continue
            try:
                known = before.get(server.id) == newest or await self.desk.fleet.driver(server).renew()
            except DriverError:  # not there, or of another epoch: whoever changes that wakes us
                waiting += server.keys.previous is not None
                continue
            if known:
                after[server.id] = newest
            waiting += not known
        self._renewed[instance.ref] = after
        return not waiting

    async def _open_gates(
        self,
        ctx: Context,
        instance: Bind9Instance,
        pods: Sequence[Pod],
        zones: Sequence[DNSZone],
    ) -> None:
        """Let those pods answer that have all their zones; one that had them once stays, whatever happens later."""
        servers, problems = self.desk.servers([instance], ctx.cache)
        if problems:
            return
        by_uid = {server.uid: server for server in servers}
        for pod in pods:
            server = by_uid.get(pod.metadata.uid)
            known = next((row for row in pod.status.conditions or () if row.type == READINESS_GATE), None)
            if server is None or (known is not None and known.status == "True"):
                continue
            if not all(self._has(zone, server) for zone in zones):
                continue
            row = {
                "type": READINESS_GATE,
                "status": "True",
                "reason": "ZonesSynced",
                "message": f"{len(zones)} zones",
                "lastTransitionTime": format_time(ctx.clock.time()),
            }
            patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [row]}}
            await ctx.patch(pod, patch, kind=PatchType.STRATEGIC, subresource="status")

    def _has(self, zone: DNSZone, server: Server) -> bool:
        book = self.desk.books.get(zone.ref)
        if book is None or not book.outcome_ready:
            return False
        if book.problem is not None:
            return True  # it cannot be served by anybody: no reason to keep this server from the others
        return book.has(server.id)

    # -- telling -------------------------------------------------------------------------------------------------------

    def _zones(self, instance: Bind9Instance, cache: Any) -> list[DNSZone]:
        """The zones that this instance serves."""
        return [
            zone
            for zone in cache[DNSZone]
            if not zone.deleting
            and any(
                one.metadata.uid == instance.metadata.uid
                for one in self.desk.choose_from(zone, [instance], cache).instances
            )
        ]

    def _status(
        self,
        ctx: Context,
        instance: Bind9Instance,
        cluster: Bind9Cluster | None,
        zones: Sequence[DNSZone],
        facts: _Facts,
    ) -> InstanceStatus:
        known = instance.status or InstanceStatus()
        generation = instance.metadata.generation
        ready = condition("Ready", facts.reason == "AllReady", facts.reason, facts.message, generation=generation)
        signing = signing_conditions(instance, cluster)
        conditions = with_conditions(
            without_conditions(known.conditions, *(SIGNING_CONDITIONS - {row.type for row in signing})),
            ready,
            *signing,
            now=ctx.clock.time(),
        )
        parent = None
        if instance.spec.cluster_ref and cluster is not None:
            parent = ObjectReference(
                api_version=API, kind="Bind9Cluster", name=cluster.name, namespace=cluster.namespace
            )
        service = ctx.cache[Service].get(instance.ref) if not instance.spec.endpoints else None
        held = ctx.cache[Secret].get(ObjectRef(f"{instance.name}-rndc-key", instance.namespace))
        rows = [
            ZoneReference(
                api_version=API, kind="DNSZone", name=zone.name, namespace=zone.namespace, zone_name=zone.spec.zone_name
            )
            for zone in zones[:LISTED]
        ]
        return InstanceStatus(
            conditions=conditions,
            observed_generation=generation
            if facts.reason in {"AllReady", "PartiallyReady", "NotReady"}
            else known.observed_generation,
            observed_parent_generation=cluster.metadata.generation if cluster is not None else 0,
            replicas=facts.wanted,
            ready_replicas=facts.ready,
            service_address=service.spec.cluster_ip if service is not None else "",
            cluster_ref=parent,
            zones=rows or None,
            zones_count=len(zones),
            rndc_key_rotation=_rotation(held) if not instance.spec.endpoints else None,
        )

    async def clean_up(self, ctx: Context, instance: Bind9Instance) -> Result:
        """A deleted instance: its objects go with it; zones let go of it by themselves."""
        self._renewed.pop(instance.ref, None)
        self.followers.forget(instance.ref)
        servers, _ = self.desk.servers([instance], ctx.cache)
        served = [
            zone
            for zone in ctx.cache[DNSZone]
            if zone.status is not None
            and any(
                (row.namespace, row.name) == (instance.namespace, instance.name)
                for row in zone.status.bind9_instances or ()
            )
        ]
        began = parse_time(instance.metadata.deletion_timestamp or "").timestamp()
        waited = ctx.clock.time() - began >= self.desk.options.deletion_grace.total_seconds()
        if instance.spec.endpoints and served and servers:
            # It goes on serving whoever asks it: zones take their data back first, for as long as they are waited for.
            if not waited:
                for zone in served:
                    self.desk.zones.send(zone.ref)
                return requeue(after=1.0)
            names = ", ".join(sorted(zone.spec.zone_name for zone in served)[:5])
            ctx.event(instance, "ZonesLeftBehind", f"it may go on serving {names}: it did not answer", warning=True)
        if instance.spec.endpoints and await self.retirer.sweep(ctx, instance) and not waited:
            return requeue(after=1.0)
        self.desk.left.pop(instance.ref, None)
        self.desk.fleet.keep(instance.ref, ())
        return done


class _Facts:
    """How many servers there should be, and how many there are."""

    def __init__(self, wanted: int, ready: int, reason: str, message: str) -> None:
        self.wanted, self.ready, self.message = wanted, ready, message
        if not reason:
            reason = "AllReady" if ready >= wanted else ("PartiallyReady" if ready else "NotReady")
        self.reason = reason


def _secret(ref: ObjectRef, data: dict[str, str], notes: dict[str, str], labels: dict[str, str]) -> Secret:
    from steersman.kube.objects import ObjectMeta

    meta = ObjectMeta(name=ref.name, namespace=ref.namespace, labels=labels or None, annotations=notes or None)
    return Secret(metadata=meta, type="Opaque", data={name: value.encode() for name, value in data.items()})


def _marks(held: Secret | None) -> dict[str, Any]:
    """What of its keys the pods of an instance must be made for."""
    if held is None:
        return {}
    return {"epoch": held.annotations.get(EPOCH, ""), "token": (held.data.get("token") or b"").strip()}


def _rotation(held: Secret | None) -> KeyRotation | None:
    if held is None or CREATED not in held.annotations:
        return None
    count = int(held.annotations.get(COUNT, "0"))
    created = held.annotations[CREATED]
    return KeyRotation(
        created_at=created,
        rotate_at=held.annotations.get(ROTATE, ""),
        last_rotated_at=created if count else "",
        rotation_count=count,
    )
