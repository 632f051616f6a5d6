"""The controller of instances: the objects of managed servers, health of existing ones, and readiness gates of pods.

A pod gets traffic only when it has every zone it should have: its readiness gate is set here, after the serial of each
of its copies has been seen. For servers that exist already nothing is applied; they are contacted to see that they run.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from steersman.clock import Ages
from steersman.errors import DriverError, PlanError
from steersman.kube.api.errors import AlreadyExists, KubeError
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.patches import PatchType
from steersman.kube.api.times import format_time, parse_time
from steersman.kube.api.types.apps import Deployment
from steersman.kube.api.types.core import Secret, Service
from steersman.operators.dns.api.config import GROUP, READINESS_GATE, VERSION, DnsOptions
from steersman.operators.dns.api.field_types import TypedReference
from steersman.operators.dns.api.servers import (
    Bind9Cluster,
    Bind9Instance,
    ClusterBind9Provider,
    InstanceStatus,
    KeyRotation,
    ZoneReference,
)
from steersman.operators.dns.api.zone import DNSZone
from steersman.operators.dns.bind.breaker import Outages
from steersman.operators.dns.bind.http_driver import SidecarError
from steersman.operators.dns.bind.named_conf import keeping_for
from steersman.operators.dns.bind.pool import DriverPool
from steersman.operators.dns.bind.servers import MANAGED_BY, SHARED_KEY, given_key, rndc_key_of
from steersman.operators.dns.controllers.context import rejection_of, spread
from steersman.operators.dns.controllers.metrics import DnsMetrics
from steersman.operators.dns.deploy.allowlist import NOT_ALLOWED, refusals_of, shown
from steersman.operators.dns.deploy.manifests import (
    ACCOUNT,
    TEMPLATE,
    children_of,
    labels_of,
    left_behind_by,
    replicas_of,
    template_of,
)
from steersman.operators.dns.deploy.rollout_order import RolloutServer, blocker_of, is_settled
from steersman.operators.dns.deploy.tsig_keys import COUNT, CREATED, EPOCH, ROTATE, control_keys, due_in, transfer_key
from steersman.operators.dns.dnssec.signer import SIGNING_CONDITIONS, keep_signing_keys, signing_conditions
from steersman.operators.dns.publish.removal import ZoneRemover
from steersman.operators.dns.publish.servers import cluster_of, pods_of, resolve_servers
from steersman.operators.dns.publish.zone_state import ZoneStates
from steersman.operators.dns.wire.tsig import Key
from steersman.operators.dns.zone.selection import InstanceSelector, missing_cluster
from steersman.runtime.controller.channel import Channel
from steersman.runtime.controller.result import Result, done, requeue
from steersman.runtime.reconcile.conditions import find_condition, new_condition, set_conditions, without_conditions
from steersman.runtime.reconcile.ownership import NotOwned

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.operators.dns.bind.servers import Server
    from steersman.runtime.reconcile.context import Context

API: Final = f"{GROUP}/{VERSION}"
LISTED: Final = 200  # zones in a status
LOCKED: Final = "BindcarAuthFailed"
NAME_CONFLICT: Final = "NameConflict"
WITH_EVENT: Final = frozenset({NAME_CONFLICT, NOT_ALLOWED})  # reasons that need a user's decision
KEY_GRACE: Final = 10.0  # seconds between a new key and having servers read it
SOON: Final = 1.0  # seconds until the next pass while servers read keys or take turns


class InstanceReconciler(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """See the module."""

    options: DnsOptions
    states: ZoneStates
    drivers: DriverPool
    remover: ZoneRemover
    outages: Outages
    zone_channel: Channel
    ages: Ages
    metrics: DnsMetrics | None
    # which keys the servers of an instance have read
    _known_keys: dict[NamespacedName, dict[str, tuple[Key, Key]]] = msgspec.field(default_factory=dict)

    async def reconcile(self, ctx: Context, instance: Bind9Instance) -> Result:
        """One pass over an instance."""
        cluster = cluster_of(instance, ctx.cache)
        selector = InstanceSelector(ctx.cache, self.options.server_namespaces)
        zones = _served_zones(instance, selector)
        servers, problems = resolve_servers([instance], ctx.cache)
        self._keep_servers(instance.ref, servers)
        left = await self.remover.remove_left_behind(ctx, instance, selector)
        wait = self.options.drift_period.total_seconds()
        try:
            if instance.spec.endpoints:
                facts = await self._check_existing(servers, problems)
            else:
                facts, rotation = await self._apply_managed(ctx, instance, cluster, zones)
                wait = min(wait, rotation if rotation is not None else wait)
            facts.message = facts.message or missing_cluster(instance.spec.cluster_ref, instance.namespace, ctx.cache)
        except PlanError as error:
            facts = _Facts(0, 0, error.reason, str(error))
        except KubeError as error:
            if (rejected := rejection_of(error)) is None:
                raise
            facts = _Facts(0, 0, *rejected)
        known = find_condition(instance.status.conditions if instance.status is not None else None, "Ready")
        is_new = known is None or (known.reason, known.message) != (facts.reason, facts.message)
        if facts.reason in WITH_EVENT and is_new:
            ctx.event(instance, facts.reason, facts.message, warning=True)
        await ctx.status(instance, replace(_status(ctx, instance, cluster, zones, facts), left_behind=left))
        for server, why in self.outages.unreported(instance.ref, servers):
            ctx.event(instance, "ServerAway", f"{server} does not answer: {why}", warning=True)
        if facts.reason != "AllReady" or left:
            return requeue(after=max(1.0, min(wait, self.options.not_ready.total_seconds())))
        return requeue(after=max(1.0, spread(wait)))

    def _keep_servers(self, instance: NamespacedName, servers: Sequence[Server]) -> None:
        """Drop connections and series of all servers that an instance no longer has."""
        self.drivers.keep(instance, servers)
        if self.metrics is not None:
            self.metrics.keep(instance, servers)

    # -- existing servers ----------------------------------------------------------------------------------------------

    async def _check_existing(self, servers: Sequence[Server], problems: Mapping[str, PlanError]) -> _Facts:
        for problem in problems.values():
            raise problem
        failures: dict[str, str] = {}

        async def check(server: Server) -> None:
            try:
                driver = self.drivers.driver(server)
                if server.records_only:
                    await driver.soa(b"\0")
                else:
                    await driver.ready()
            except DriverError as error:
                failures[server.title] = str(error).removeprefix(f"{server.title}: ")

        await asyncio.gather(*(check(server) for server in servers))
        text = "; ".join(f"{server}: {why}" for server, why in sorted(failures.items()))
        return _Facts(len(servers), len(servers) - len(failures), "", text)

    # -- managed servers -----------------------------------------------------------------------------------------------

    async def _apply_managed(
        self, ctx: Context, instance: Bind9Instance, cluster: Bind9Cluster | None, zones: Sequence[DNSZone]
    ) -> tuple[_Facts, float | None]:
        provider = ctx.cache[ClusterBind9Provider].get(NamespacedName(instance.spec.cluster_ref))
        if refused := refusals_of(instance, cluster, provider, self.options):
            return await self._leave_alone(ctx, instance, zones, shown(refused)), None
        children_of(instance, cluster)  # PlanError before anything is made, keys included
        await keep_signing_keys(ctx, instance, keeping_for(instance, cluster), zones)
        ours = {MANAGED_BY: "steersman"}
        meta = {"name": ACCOUNT, "namespace": instance.namespace, "labels": {"app": "bind9", **ours}}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
        with suppress(NotOwned):  # a ServiceAccount of another client is used as it is: pods do not mount its token
            await ctx.apply(account, owner=None, adopt=ours)
        keys = await self._keys(ctx, instance, cluster)
        rotation = due_in(keys, rndc_key_of(instance, cluster), ctx.clock.time())
        children = children_of(instance, cluster, **_key_marks(keys))
        blocker = self._blocker(instance, cluster, children, ctx.cache)
        conflicts: list[str] = []
        for child in children:
            if child["kind"] == "Deployment" and (blocker or conflicts):
                continue  # its pods would run with another owner's configuration or disk
            try:
                await ctx.apply(child, adopt=left_behind_by(instance))
            except NotOwned as error:
                conflicts.append(str(error))
        await self._open_gates(ctx, instance, zones)
        if blocker or not await self._renew_keys(ctx, instance):
            rotation = SOON
        deployment = ctx.cache[Deployment].get(instance.ref)
        ready = deployment.status.ready_replicas if deployment is not None else 0
        waiting = f"the new configuration waits for the rollout of {blocker}" if blocker else ""
        locked = await self._locked(ctx, instance)
        reason = NAME_CONFLICT if conflicts else (LOCKED if locked else "")
        return _Facts(replicas_of(instance), ready, reason, "; ".join(conflicts) or locked or waiting), rotation

    async def _leave_alone(self, ctx: Context, instance: Bind9Instance, zones: Sequence[DNSZone], why: str) -> _Facts:
        """Pods keep running, and a replaced one may become ready; nothing is applied."""
        await self._open_gates(ctx, instance, zones)
        deployment = ctx.cache[Deployment].get(instance.ref)
        ready = deployment.status.ready_replicas if deployment is not None else 0
        return _Facts(replicas_of(instance), ready, NOT_ALLOWED, why)

    async def _locked(self, ctx: Context, instance: Bind9Instance) -> str:
        """Which sidecars reject our token, and the way out: their pods are ready, so nothing else would show it."""
        found = []
        for server in resolve_servers([instance], ctx.cache)[0]:
            if server.api_port and server.since:
                try:
                    await self.drivers.driver(server).ready()
                except SidecarError as error:
                    if error.reason == LOCKED:
                        found.append(f"{server.title}: {error.message}")
                except DriverError:
                    continue  # its pod's status shows that
        if not found:
            return ""
        return f"{'; '.join(found)}. Pods with another token than Secret {instance.name}-rndc-key are being replaced"

    def _blocker(
        self, instance: Bind9Instance, cluster: Bind9Cluster | None, children: Sequence[Any], cache: Any
    ) -> str:
        """The instance of the same cluster whose rollout must end before the pods of this one are replaced."""
        if not instance.spec.cluster_ref:
            return ""
        members = []
        for other in cache[Bind9Instance].list(namespace=instance.namespace):
            is_self = other.name == instance.name
            is_member = other.spec.cluster_ref == instance.spec.cluster_ref and not other.spec.endpoints
            if not is_member or (other.deleting and not is_self):
                continue
            try:
                keys = cache[Secret].get(NamespacedName(f"{other.name}-rndc-key", other.namespace))
                wanted = template_of(children if is_self else children_of(other, cluster, **_key_marks(keys)))
            except PlanError:
                continue
            live = cache[Deployment].get(other.ref)
            is_current = live is not None and live.annotations.get(TEMPLATE) == wanted
            members.append(RolloutServer(other.name, other.spec.role, is_current, is_settled(live)))
        own = next((member for member in members if member.name == instance.name), None)
        return blocker_of(own, members) if own is not None else ""

    async def _keys(self, ctx: Context, instance: Bind9Instance, cluster: Bind9Cluster | None) -> Secret:
        """Make keys that are missing or due for rotation; returns the instance's own Secret."""
        now = ctx.clock.time()
        own, shared = (
            NamespacedName(f"{instance.name}-rndc-key", instance.namespace),
            NamespacedName(SHARED_KEY, instance.namespace),
        )
        wanted = rndc_key_of(instance, cluster)
        secret = ctx.cache[Secret].get(own)
        given = given_key(instance, cluster, ctx.cache[Secret])  # type: ignore[arg-type]  # a mapping, as far as it is used
        sidecar = instance.spec.driver == "bindcar"
        data, notes, fresh = control_keys(secret, wanted, now, given=given, sidecar=sidecar)
        if fresh and secret is not None:
            ctx.event(instance, "KeyRotated", "keys rotated; servers read the new ones without a restart")
        written: Secret = await ctx.apply(
            _secret(own, data, notes, labels_of(instance)), owner=None, adopt=left_behind_by(instance)
        )
        if ctx.cache[Secret].get(shared) is None:
            # All instances of a namespace find it missing at once: the first one makes it, the others use that.
            with suppress(AlreadyExists):
                await ctx.create(_secret(shared, transfer_key(None), {}, {}), owner=None)
        return written

    async def _renew_keys(self, ctx: Context, instance: Bind9Instance) -> bool:
        """Have servers read new keys; returns whether all have. The kubelet updates their files in its own time."""
        servers, _ = resolve_servers([instance], ctx.cache)
        before = self._known_keys.get(instance.ref, {})
        after: dict[str, tuple[Key, Key]] = {}
        waiting = 0
        secret = ctx.cache[Secret].get(NamespacedName(f"{instance.name}-rndc-key", instance.namespace))
        created = secret.annotations.get(CREATED, "") if secret is not None else ""
        # Writes that began with the old key finish first: a server knows only one of the two.
        early = bool(created) and self.ages.since(parse_time(created).timestamp()) < KEY_GRACE
        for server in servers:
            newest = (server.keys.control, server.keys.transfer)
            if early and server.keys.previous is not None:
                waiting += 1
                continue
            try:
                known = before.get(server.id) == newest or await self.drivers.driver(server).renew()
            except DriverError:  # not running, or about to be replaced: either change wakes us
                waiting += server.keys.previous is not None
                continue
            if known:
                after[server.id] = newest
            waiting += not known
        self._known_keys[instance.ref] = after
        return not waiting

    async def _open_gates(
        self,
        ctx: Context,
        instance: Bind9Instance,
        zones: Sequence[DNSZone],
    ) -> None:
        """Set the readiness gate of pods that have all their zones; once set, it stays."""
        servers, problems = resolve_servers([instance], ctx.cache)
        if problems:
            return
        by_uid = {server.uid: server for server in servers}
        for pod in pods_of(instance, ctx.cache):
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
        state = self.states.get(zone.ref)
        if state is None or not state.outcome_ready:
            return False
        if state.problem is not None:
            return True  # no server can serve it, so it does not hold this one back
        return state.has(server.id)

    # -- deletion ------------------------------------------------------------------------------------------------------

    async def clean_up(self, ctx: Context, instance: Bind9Instance) -> Result:
        """A deleted instance: its objects are garbage-collected, and zones remove themselves from existing servers."""
        self._known_keys.pop(instance.ref, None)
        servers, _ = resolve_servers([instance], ctx.cache)
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
        waited = self.ages.since(began) >= self.options.deletion_grace.total_seconds()
        if instance.spec.endpoints and served and servers:
            # The servers stay and answer queries: zones remove their data first, within the grace period.
            if not waited:
                for zone in served:
                    self.zone_channel.send(zone.ref)
                return requeue(after=1.0)
            names = ", ".join(sorted(zone.spec.zone_name for zone in served)[:5])
            text = f"its servers did not answer and may still serve {names}"
            ctx.event(instance, "ZonesLeftBehind", text, warning=True)
        if instance.spec.endpoints:
            selector = InstanceSelector(ctx.cache, self.options.server_namespaces)
            if await self.remover.remove_left_behind(ctx, instance, selector) and not waited:
                return requeue(after=1.0)
        self.remover.forget(instance.ref)
        self._keep_servers(instance.ref, ())
        return done


def _served_zones(instance: Bind9Instance, selector: InstanceSelector) -> list[DNSZone]:
    """The zones that an instance serves."""
    return [
        zone
        for zone in selector.cache[DNSZone]
        if not zone.deleting
        and any(chosen.metadata.uid == instance.metadata.uid for chosen in selector.among(zone, [instance]).instances)
    ]


def _status(
    ctx: Context,
    instance: Bind9Instance,
    cluster: Bind9Cluster | None,
    zones: Sequence[DNSZone],
    facts: _Facts,
) -> InstanceStatus:
    known = instance.status or InstanceStatus()
    generation = instance.metadata.generation
    ready = new_condition("Ready", facts.reason == "AllReady", facts.reason, facts.message, generation=generation)
    signing = signing_conditions(instance, cluster)
    conditions = set_conditions(
        without_conditions(known.conditions, *(SIGNING_CONDITIONS - {row.type for row in signing})),
        ready,
        *signing,
        now=ctx.clock.time(),
    )
    parent = None
    if instance.spec.cluster_ref and cluster is not None:
        parent = TypedReference(api_version=API, kind="Bind9Cluster", name=cluster.name, namespace=cluster.namespace)
    service = ctx.cache[Service].get(instance.ref) if not instance.spec.endpoints else None
    secret = ctx.cache[Secret].get(NamespacedName(f"{instance.name}-rndc-key", instance.namespace))
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
        rndc_key_rotation=_rotation(secret) if not instance.spec.endpoints else None,
    )


class _Facts:
    """How many servers there should be, and how many there are."""

    def __init__(self, wanted: int, ready: int, reason: str, message: str) -> None:
        self.wanted, self.ready, self.message = wanted, ready, message
        if not reason:
            reason = "AllReady" if ready >= wanted else ("PartiallyReady" if ready else "NotReady")
        self.reason = reason


def _secret(ref: NamespacedName, data: dict[str, str], notes: dict[str, str], labels: dict[str, str]) -> Secret:
    from steersman.kube.api.objects import ObjectMeta

    meta = ObjectMeta(name=ref.name, namespace=ref.namespace, labels=labels or None, annotations=notes or None)
    return Secret(metadata=meta, type="Opaque", data={name: value.encode() for name, value in data.items()})


def _key_marks(secret: Secret | None) -> dict[str, Any]:
    """What of its keys the pods of an instance must be made for."""
    if secret is None:
        return {}
    return {"epoch": secret.annotations.get(EPOCH, ""), "token": (secret.data.get("token") or b"").strip()}


def _rotation(secret: Secret | None) -> KeyRotation | None:
    if secret is None or CREATED not in secret.annotations:
        return None
    count = int(secret.annotations.get(COUNT, "0"))
    created = secret.annotations[CREATED]
    return KeyRotation(
        created_at=created,
        rotate_at=secret.annotations.get(ROTATE, ""),
        last_rotated_at=created if count else "",
        rotation_count=count,
    )
