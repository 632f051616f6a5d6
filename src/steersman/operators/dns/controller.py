"""The twelve controllers, as a table: what each is for, what wakes it, and through what.

Mappings see an object before and after, so a label that stops matching wakes the zone that loses a record, and a grant
that is withdrawn wakes the zone that loses a server. Nothing here waits for a timer to notice a change.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import PlanError
from steersman.kube.resources import ObjectRef
from steersman.kube.types.apps import Deployment
from steersman.kube.types.core import ConfigMap, PersistentVolumeClaim, Secret, Service, ServiceAccount
from steersman.kube.types.pods import Pod
from steersman.kube.types.policy import PodDisruptionBudget
from steersman.kube.types.rbac import PolicyRule
from steersman.operators import Operator
from steersman.operators.dns.book import zones_wanting
from steersman.operators.dns.clusters import ClusterKeeper, ProviderKeeper
from steersman.operators.dns.desk import INSTANCE_LABEL, Desk
from steersman.operators.dns.fleet import ready_since
from steersman.operators.dns.instances import InstanceKeeper
from steersman.operators.dns.metrics import DnsMetrics
from steersman.operators.dns.pointers import is_reverse
from steersman.operators.dns.recordkinds import RECORD_KINDS
from steersman.operators.dns.records import RecordKeeper
from steersman.operators.dns.selection import (
    label_values,
    leaving_values,
    published_values,
    records_wanted,
    selector_values,
    selects,
)
from steersman.operators.dns.serverkinds import Bind9Cluster, Bind9Instance, ClusterBind9Provider
from steersman.operators.dns.signingkeys import is_key_field
from steersman.operators.dns.signingpod import KEYS_SECRET
from steersman.operators.dns.tables import tables_of
from steersman.operators.dns.types import (
    ADOPT,
    ALLOW_NAMESPACES,
    DRIFT,
    DRIFT_IGNORE,
    GROUP,
    KEY_LABEL,
    PTR_NAMESPACES,
    RECONCILE_TRIGGER,
    SERVED_BY,
    DnsConfig,
    Options,
    finalizer_of,
)
from steersman.operators.dns.zonekinds import DNSZone
from steersman.operators.dns.zoneplan import zone_name
from steersman.operators.dns.zones import ZoneKeeper
from steersman.runtime.conditions import find_condition
from steersman.runtime.controller import Controller
from steersman.runtime.parts import Parts, Task
from steersman.runtime.predicates import Predicate, annotation, created, deleted, generation, labels, status
from steersman.runtime.queue import Debounce
from steersman.runtime.ratelimit import Backoff, FastSlow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client import CollectorRegistry

    from steersman.clock import Clock
    from steersman.operators.dns.recordkinds import Record

__all__ = ["KINDS", "OPERATOR", "parts_of", "rules_of"]

KINDS: Final = (ClusterBind9Provider, Bind9Cluster, Bind9Instance, DNSZone, *RECORD_KINDS)
ZONES_AT_ONCE: Final = 64
OURS: Final = "app=bind9"
RECORDS_AT_ONCE: Final = 16


def parts_of(
    options: Options,
    *,
    home: str = "bindy-system",
    namespaces: Sequence[str] | None = None,
    clock: Clock = SYSTEM_CLOCK,
    registry: CollectorRegistry | None = None,
) -> Parts:
    """The operator, configured."""
    # whoever may write where Steersman runs is trusted with everything anyway
    options = replace(options, server_namespaces=options.server_namespaces | {home})
    desk = Desk(options, clock=clock, metrics=DnsMetrics(registry))
    desk.fleet.listen(desk.outages.heard)
    table = _Table(desk)
    return Parts(
        controllers=[
            table.provider(home),
            table.cluster(),
            table.instance(),
            table.zone(),
            *(table.record(kind) for kind in RECORD_KINDS),
        ],
        tasks=[Task(name="servers", run=desk.hold)],
        tables=partial(tables_of, namespaces=namespaces),
    )


class _Table:
    """Rows that share a desk."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.limiter: Any = (
            (lambda: FastSlow(fast_seconds=60, slow_seconds=60, fast_tries=1))
            if desk.options.fixed_backoff
            else (lambda: Backoff(base_seconds=5, cap_seconds=300))
        )

    def provider(self, home: str) -> Controller:
        """ClusterBind9Provider: its clusters, and who refers to it."""
        keeper = ProviderKeeper(self.desk, home)
        return (
            Controller(ClusterBind9Provider, keeper.reconcile, "dns-providers")
            .when(generation)
            .finalizer(finalizer_of("ClusterBind9Provider"), keeper.clean_up)
            .watches(Bind9Cluster, to=named_like, when=generation | labels | _READY | status("readyInstances"))
            .watches(Bind9Instance, to=parents_of, when=created | deleted | generation)
            .configured(concurrency=2, limiter=self.limiter)
        )

    def cluster(self) -> Controller:
        """Bind9Cluster: its instances."""
        keeper = ClusterKeeper(self.desk)
        return (
            Controller(Bind9Cluster, keeper.reconcile, "dns-clusters")
            .when(generation)
            .finalizer(finalizer_of("Bind9Cluster"), keeper.clean_up)
            .owns(Bind9Instance, when=generation | labels | _READY)
            .watches(Bind9Instance, to=cluster_of, when=generation | labels | _READY)
            .configured(concurrency=4, limiter=self.limiter)
        )

    def instance(self) -> Controller:
        """Bind9Instance: its objects and pods, and the zones that are on them."""
        keeper = InstanceKeeper(self.desk)
        return (
            Controller(Bind9Instance, keeper.reconcile, "dns-instances")
            .when(generation | labels | annotation(ALLOW_NAMESPACES, RECONCILE_TRIGGER))
            .finalizer(finalizer_of("Bind9Instance"), keeper.clean_up)
            .hears(self.desk.instances)
            .owns(
                Deployment,
                Service,
                ConfigMap,
                ServiceAccount,
                PersistentVolumeClaim,
                PodDisruptionBudget,
                label_selector=OURS,
            )
            .watches(Secret, to=self.instances_of_secret, transform=key_secret)
            .watches(Pod, to=instance_of_pod, label_selector=OURS)
            .watches(Bind9Cluster, to=instances_of_cluster, when=generation)
            .watches(DNSZone, to=self.instances_of_zone, when=generation | labels | status("bind9Instances", "serial"))
            .reads(ClusterBind9Provider)
            .index(Pod, "dns-instance", pod_instance)
            .index(DNSZone, "dns-zone-name", own_name)
            .configured(concurrency=8, limiter=self.limiter, debounce=Debounce(quiet_seconds=0.1, limit_seconds=1.0))
        )

    def zone(self) -> Controller:
        """DNSZone: everything that says what is served, and by whom."""
        keeper = ZoneKeeper(self.desk)
        made = (
            Controller(DNSZone, keeper.reconcile, "dns-zones")
            .when(generation | labels | annotation(ADOPT, DRIFT, DRIFT_IGNORE, PTR_NAMESPACES, SERVED_BY))
            .finalizer(finalizer_of("DNSZone"), keeper.clean_up)
            .gone(keeper.gone)
            .hears(self.desk.zones)
            .watches(
                Bind9Instance,
                to=self.zones_of_instance,
                when=generation | labels | annotation(ALLOW_NAMESPACES, RECONCILE_TRIGGER) | status("readyReplicas"),
            )
            .watches(Bind9Cluster, to=self.zones_of_cluster, when=generation)
            .watches(ClusterBind9Provider, to=self.zones_of_cluster, when=created | deleted | generation)
            .watches(Pod, to=self.zones_of_pod, when=_POD, label_selector=OURS)
            .watches(Secret, to=self.zones_of_secret, transform=key_secret)
            .watches(*RECORD_KINDS, to=self.zones_of_record, when=generation | labels)
            .watches(DNSZone, to=self.namesakes, when=created | deleted | generation)
            .watches(DNSZone, to=self.relatives, when=created | deleted | generation | annotation(PTR_NAMESPACES))
            .index(DNSZone, "dns-records-from", selector_values)
            .index(DNSZone, "dns-zone-name", own_name)
            .index(Pod, "dns-instance", pod_instance)
            .configured(concurrency=ZONES_AT_ONCE, limiter=self.limiter)
        )
        for kind in RECORD_KINDS:
            made = made.index(kind, "dns-labels", label_values).index(kind, "dns-leaving", leaving_values)
            made = made.index(kind, "dns-published", published_values)
        return made

    def record(self, kind: type[Record]) -> Controller:
        """A kind of record: itself, and what its zone says about it."""
        keeper = RecordKeeper(self.desk)
        return (
            Controller(kind, keeper.reconcile, f"dns-{kind.KIND.plural}")
            .when(generation | labels)
            .hears(self.desk.records[kind])
            .watches(DNSZone, to=self.records_of(kind), when=deleted)
            .index(DNSZone, "dns-records-from", selector_values)
            .index(DNSZone, "dns-zone-name", own_name)
            .index(kind, "dns-labels", label_values)
            .configured(concurrency=RECORDS_AT_ONCE, limiter=self.limiter, while_terminating=True)
        )

    # -- mappings ------------------------------------------------------------------------------------------------------

    def zones_of_record(self, record: Record, cache: Any) -> Iterable[ObjectRef]:
        """The zones that want a record, or have it."""
        found = [zone.ref for zone in zones_wanting(record, cache) if selects(zone, record)]
        for ref in found:
            if (book := self.desk.books.get(ref)) is not None:
                book.mark(type(record), record.name)
        return found

    def zones_of_instance(self, instance: Bind9Instance, cache: Any) -> Iterable[ObjectRef]:
        """The zones that an instance serves, or served."""
        served = [
            zone.ref
            for zone in cache[DNSZone]
            if zone.status is not None
            and any(
                (row.namespace, row.name) == (instance.namespace, instance.name)
                for row in zone.status.bind9_instances or ()
            )
        ]
        from steersman.operators.dns.selection import choose_instances

        clusters = {(one.namespace, one.name): one for one in cache[Bind9Cluster]}
        providers = {one.name: one for one in cache[ClusterBind9Provider]}
        for zone in cache[DNSZone]:
            choice = choose_instances(zone, [instance], clusters, providers, self.desk.options.server_namespaces)
            if choice.instances or choice.denied or choice.uninvited:
                served.append(zone.ref)
        return dict.fromkeys(served)

    def zones_of_cluster(self, cluster: Bind9Cluster | ClusterBind9Provider, cache: Any) -> Iterable[ObjectRef]:
        """The zones of a cluster's instances."""
        found: dict[ObjectRef, None] = {}
        for instance in cache[Bind9Instance]:
            if instance.spec.cluster_ref == cluster.name:
                found.update(dict.fromkeys(self.zones_of_instance(instance, cache)))
        return found

    def zones_of_pod(self, pod: Pod, cache: Any) -> Iterable[ObjectRef]:
        """The zones of the instance a pod belongs to."""
        instance = cache[Bind9Instance].get(ObjectRef(pod.labels.get(INSTANCE_LABEL, ""), pod.namespace))
        return () if instance is None else self.zones_of_instance(instance, cache)

    def zones_of_secret(self, secret: Secret, cache: Any) -> Iterable[ObjectRef]:
        """The zones of instances that use a key."""
        if not secret.data or secret.name == KEYS_SECRET:  # who adds keys to it knows, and is the only one to care
            return ()
        found: dict[ObjectRef, None] = {}
        for instance in cache[Bind9Instance].list(namespace=secret.namespace):
            found.update(dict.fromkeys(self.zones_of_instance(instance, cache)))
        return found

    def instances_of_secret(self, secret: Secret, cache: Any) -> Iterable[ObjectRef]:
        """The instances that may use a key."""
        if not secret.data or secret.name == KEYS_SECRET:
            return ()
        return [one.ref for one in cache[Bind9Instance].list(namespace=secret.namespace)]

    def instances_of_zone(self, zone: DNSZone, cache: Any) -> Iterable[ObjectRef]:
        """The instances that serve a zone, or served it."""
        rows = (zone.status.bind9_instances if zone.status is not None else None) or ()
        chosen = [one.ref for one in self.desk.choose(zone, cache).instances]
        return {*(ObjectRef(row.name, row.namespace) for row in rows), *chosen}

    def namesakes(self, zone: DNSZone, cache: Any) -> Iterable[ObjectRef]:
        """Other zones of that name, or that may want the same records: one of them may have them now."""
        shelf = cache[DNSZone]
        found = {other.ref for other in shelf.by_index("dns-zone-name", zone.spec.zone_name.lower())}
        for value in selector_values(zone):
            for other in shelf.by_index("dns-records-from", value):
                found.add(other.ref)
                if other.ref != zone.ref and (book := self.desk.books.get(other.ref)) is not None:
                    book.marks = None
        return sorted(found - {zone.ref})

    def relatives(self, zone: DNSZone, cache: Any) -> Iterable[ObjectRef]:
        """Reverse zones above and below one: PTR records of addresses may be theirs now, or no longer."""
        with suppress(PlanError):
            name = zone_name(zone)
            if is_reverse(name):
                self.desk.tell_reverse(self.desk.directory.below(name), cache)
        return ()

    def records_of(self, kind: type[Record]) -> Any:
        """The records of that kind which a zone wanted; while it is there, it tells them itself what it changes."""

        def records_of_zone(zone: DNSZone, cache: Any) -> Iterable[ObjectRef]:
            return [record.ref for record in records_wanted(zone, cache[kind])]

        return records_of_zone


def named_like(cluster: Bind9Cluster) -> Iterable[ObjectRef]:
    """The provider that a cluster may belong to."""
    return (ObjectRef(cluster.name),)


def parents_of(instance: Bind9Instance) -> Iterable[ObjectRef]:
    """The provider that an instance may refer to."""
    return (ObjectRef(instance.spec.cluster_ref),) if instance.spec.cluster_ref else ()


def cluster_of(instance: Bind9Instance) -> Iterable[ObjectRef]:
    """The cluster that an instance refers to."""
    return (ObjectRef(instance.spec.cluster_ref, instance.namespace),) if instance.spec.cluster_ref else ()


def instances_of_cluster(cluster: Bind9Cluster, cache: Any) -> Iterable[ObjectRef]:
    """The instances that refer to a cluster."""
    rows = cache[Bind9Instance].list(namespace=cluster.namespace)
    return [one.ref for one in rows if one.spec.cluster_ref == cluster.name]


def instance_of_pod(pod: Pod) -> Iterable[ObjectRef]:
    """The instance a pod belongs to."""
    name = pod.labels.get(INSTANCE_LABEL)
    return (ObjectRef(name, pod.namespace),) if name else ()


def _ready_state(obj: Any) -> object:
    found = find_condition(obj.status.conditions if obj is not None and obj.status is not None else None, "Ready")
    return None if found is None else (found.status, found.reason)


_READY: Final = Predicate(
    "ready", lambda old, new: old is None or new is None or _ready_state(old) != _ready_state(new)
)


def _pod_facts(pod: Any) -> object:
    if pod is None:
        return None
    return pod.status.pod_ip, pod.status.phase, pod.metadata.deletion_timestamp, ready_since(pod)


_POD: Final = Predicate(
    "address, phase or containers", lambda old, new: old is None or new is None or _pod_facts(old) != _pod_facts(new)
)


def own_name(zone: DNSZone) -> list[str]:
    """A zone under its name, for an index."""
    return [zone.spec.zone_name.lower()]


def pod_instance(pod: Pod) -> list[str]:
    """A pod under its instance, for an index."""
    name = pod.labels.get(INSTANCE_LABEL)
    return [f"{pod.namespace}/{name}"] if name else []


_KEY_DATA: Final = ("algorithm", "previous-algorithm", "token")


def key_secret(secret: Secret) -> Secret:
    """A Secret as far as it holds keys; nothing is kept of others, unless a label says that it is a key."""
    if secret.labels.get(KEY_LABEL) == "true":
        return replace(secret, string_data={})
    kept = {
        name: value for name, value in secret.data.items() if name.endswith(("key-name", "secret")) or name in _KEY_DATA
    }
    if not any(name.endswith("key-name") for name in kept):
        # Of keys that zones are signed with, all but their private halves.
        kept = {
            name: b"" if name.endswith(".private") else value
            for name, value in secret.data.items()
            if is_key_field(name)
        }
    return replace(secret, data=kept, string_data={})


_OWN: Final = [kind.KIND.plural for kind in KINDS]


def rules_of(_config: Any) -> Sequence[PolicyRule]:
    """The least rights the operator needs. What it made for an instance goes with that, so it deletes none of it."""
    watch = ("list", "watch")
    write = ("create", "patch")
    parents = ("bind9clusters", "bind9instances", "clusterbind9providers")
    return [
        PolicyRule(api_groups=[GROUP], resources=_OWN, verbs=[*watch, "patch"]),
        PolicyRule(api_groups=[GROUP], resources=["bind9clusters", "bind9instances"], verbs=["create", "delete"]),
        PolicyRule(api_groups=[GROUP], resources=[f"{plural}/status" for plural in _OWN], verbs=["patch"]),
        # where OwnerReferencesPermissionEnforcement is on, as in OpenShift: children block the deletion of these
        PolicyRule(api_groups=[GROUP], resources=[f"{plural}/finalizers" for plural in parents], verbs=["update"]),
        PolicyRule(api_groups=["apps"], resources=["deployments"], verbs=[*watch, *write]),
        PolicyRule(
            api_groups=[""],
            resources=["services", "configmaps", "secrets", "serviceaccounts", "persistentvolumeclaims"],
            verbs=[*watch, *write],
        ),
        PolicyRule(api_groups=["policy"], resources=["poddisruptionbudgets"], verbs=[*watch, *write]),
        PolicyRule(api_groups=[""], resources=["pods"], verbs=list(watch)),
        PolicyRule(api_groups=[""], resources=["pods/status"], verbs=["patch"]),
    ]


OPERATOR: Final = Operator(
    name="dns",
    summary="runs BIND 9 servers, zones and records",
    config=DnsConfig,
    check=DnsConfig.options,
    kinds=KINDS,
    rules=rules_of,
    parts=lambda config, around: parts_of(
        (config or DnsConfig()).options(), home=around.own_namespace, namespaces=around.namespaces
    ),
)
