"""The twelve controllers, as a table: what each is for, what wakes it, and through what.

Mappings see an object before and after, so a label that stops matching wakes the zone that loses a record, and a grant
that is withdrawn wakes the zone that loses a server. No change waits for a timer. Mappings only read; what has to be
remembered of a change, `on_enqueue` puts into the states of zones.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import PlanError
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.types.apps import Deployment
from steersman.kube.api.types.core import ConfigMap, PersistentVolumeClaim, Secret, Service, ServiceAccount
from steersman.kube.api.types.pods import Pod
from steersman.kube.api.types.policy import PodDisruptionBudget
from steersman.operators import Operator
from steersman.operators.dns.api.config import (
    ADOPT,
    ALLOW_NAMESPACES,
    DRIFT,
    DRIFT_IGNORE,
    GROUP,
    INSTANCE_LABEL,
    KEY_LABEL,
    OVERLAP_NAMESPACES,
    PTR_NAMESPACES,
    RECONCILE_TRIGGER,
    SERVED_BY,
    DnsConfig,
    DnsOptions,
    finalizer_of,
)
from steersman.operators.dns.api.records import RECORD_KINDS, AAAARecord, ARecord, NSRecord
from steersman.operators.dns.api.servers import Bind9Cluster, Bind9Instance, ClusterBind9Provider
from steersman.operators.dns.api.zone import DNSZone
from steersman.operators.dns.bind.servers import ready_since
from steersman.operators.dns.controllers.cluster import ClusterReconciler, ProviderReconciler
from steersman.operators.dns.controllers.context import make_context
from steersman.operators.dns.controllers.instance import InstanceReconciler
from steersman.operators.dns.controllers.metrics import DnsMetrics
from steersman.operators.dns.controllers.record import RecordReconciler
from steersman.operators.dns.controllers.zone import ZoneReconciler
from steersman.operators.dns.dnssec.key_storage import KEYS_SECRET
from steersman.operators.dns.dnssec.keys import is_key_field
from steersman.operators.dns.inspect.tables import tables_of
from steersman.operators.dns.zone.names import index_name
from steersman.operators.dns.zone.ptr import is_reverse, named_in, place_of, zones_above
from steersman.operators.dns.zone.selection import (
    InstanceSelector,
    label_values,
    leaving_values,
    published_values,
    related_zones,
    selected_records,
    selector_values,
    zone_names,
    zone_names_above,
    zones_selecting,
)
from steersman.operators.dns.zone.soa import zone_name
from steersman.runtime.controller.builder import Controller
from steersman.runtime.controller.predicates import Predicate, annotation, created, deleted, generation, labels, status
from steersman.runtime.manager.operator_bundle import OperatorBundle, Task
from steersman.runtime.rbac import rule
from steersman.runtime.reconcile.conditions import find_condition
from steersman.runtime.workqueue.queue import Debounce
from steersman.runtime.workqueue.rate_limiters import ExponentialBackoff, FastSlow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prometheus_client import CollectorRegistry

    from steersman.clock import Clock
    from steersman.kube.api.types.rbac import PolicyRule
    from steersman.operators.dns.api.records import Record
    from steersman.operators.dns.controllers.context import DnsContext
    from steersman.operators.dns.publish.zone_state import ZoneState
    from steersman.operators.dns.zone.ptr import Origin

KINDS: Final = (ClusterBind9Provider, Bind9Cluster, Bind9Instance, DNSZone, *RECORD_KINDS)
ZONES_AT_ONCE: Final = 64
OURS: Final = "app=bind9"
RECORDS_AT_ONCE: Final = 16


def parts_of(
    options: DnsOptions,
    *,
    home: str = "bindy-system",
    namespaces: Sequence[str] | None = None,
    clock: Clock = SYSTEM_CLOCK,
    registry: CollectorRegistry | None = None,
) -> OperatorBundle:
    """The operator, configured."""
    # a user who may write in the namespace where Steersman runs is trusted anyway
    options = replace(
        options,
        server_namespaces=options.server_namespaces | {home},
        bindcar_token_namespaces=options.bindcar_token_namespaces | {home},
        trusted_namespaces=options.trusted_namespaces | {home},
    )
    dns = make_context(options, clock=clock, metrics=DnsMetrics(registry))
    table = ControllerTable(dns)
    return OperatorBundle(
        controllers=[
            table.provider(home),
            table.cluster(),
            table.instance(),
            table.zone(),
            *(table.record(kind) for kind in RECORD_KINDS),
        ],
        tasks=[Task(name="servers", run=partial(hold_connections, dns))],
        tables=partial(tables_of, namespaces=namespaces),
    )


async def hold_connections(dns: DnsContext, _cluster: Any) -> None:
    """Keep connections to servers until the operator stops."""
    try:
        while True:
            await dns.clock.sleep(3600)
    finally:
        dns.probes.stop()
        dns.drivers.close()


class ControllerTable:
    """The rows. Each reconciler gets the collaborators that it uses."""

    def __init__(self, dns: DnsContext) -> None:
        self.dns = dns
        self.limiter: Any = (
            (lambda: FastSlow(fast_seconds=60, slow_seconds=60, fast_tries=1))
            if dns.options.fixed_backoff
            else (lambda: ExponentialBackoff(base_seconds=5, cap_seconds=300))
        )

    def provider(self, home: str) -> Controller:
        """ClusterBind9Provider: its clusters, and instances that refer to it."""
        reconciler = ProviderReconciler(self.dns.options, home)
        return (
            Controller(ClusterBind9Provider, reconciler.reconcile, "dns-providers")
            .when(generation)
            .finalizer(finalizer_of("ClusterBind9Provider"), reconciler.clean_up)
            .watches(Bind9Cluster, to=named_like, when=generation | labels | _READY | status("readyInstances"))
            .watches(Bind9Instance, to=parents_of, when=created | deleted | generation)
            .with_options(concurrency=2, limiter=self.limiter, shared_objects=True)
        )

    def cluster(self) -> Controller:
        """Bind9Cluster: its instances."""
        reconciler = ClusterReconciler(self.dns.options)
        return (
            Controller(Bind9Cluster, reconciler.reconcile, "dns-clusters")
            .when(generation)
            .finalizer(finalizer_of("Bind9Cluster"), reconciler.clean_up)
            .owns(Bind9Instance, when=generation | labels | _READY)
            .watches(Bind9Instance, to=cluster_of, when=generation | labels | _READY)
            .with_options(concurrency=4, limiter=self.limiter, shared_objects=True)
        )

    def instance(self) -> Controller:
        """Bind9Instance: its objects and pods, and the zones on them."""
        dns = self.dns
        reconciler = InstanceReconciler(
            options=dns.options,
            states=dns.states,
            drivers=dns.drivers,
            remover=dns.remover,
            outages=dns.outages,
            zone_channel=dns.channels.zones,
            ages=dns.ages,
            metrics=dns.metrics,
        )
        return (
            Controller(Bind9Instance, reconciler.reconcile, "dns-instances")
            .when(generation | labels | annotation(ALLOW_NAMESPACES, RECONCILE_TRIGGER))
            .finalizer(finalizer_of("Bind9Instance"), reconciler.clean_up)
            .watches_channel(dns.channels.instances)
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
            .index(DNSZone, "dns-zone-name", zone_names)
            .with_options(
                concurrency=8,
                limiter=self.limiter,
                shared_objects=True,
                debounce=Debounce(quiet_seconds=0.1, limit_seconds=1.0),
            )
        )

    def zone(self) -> Controller:
        """DNSZone: everything that decides what is served, and by which servers."""
        dns = self.dns
        reconciler = ZoneReconciler(
            options=dns.options,
            states=dns.states,
            ptr_index=dns.ptr_index,
            drivers=dns.drivers,
            channels=dns.channels,
            activity=dns.activity,
            probes=dns.probes,
            remover=dns.remover,
            ages=dns.ages,
            metrics=dns.metrics,
        )
        made = (
            Controller(DNSZone, reconciler.reconcile, "dns-zones")
            .when(generation | labels | annotation(ADOPT, DRIFT, DRIFT_IGNORE, PTR_NAMESPACES, SERVED_BY))
            .finalizer(finalizer_of("DNSZone"), reconciler.clean_up)
            .on_missing(reconciler.gone)
            .watches_channel(dns.channels.zones)
            .watches(
                Bind9Instance,
                to=self.zones_of_instance,
                when=generation | labels | _GRANTS | status("readyReplicas"),
            )
            .watches(Bind9Cluster, to=self.zones_of_cluster, when=generation)
            .watches(ClusterBind9Provider, to=self.zones_of_cluster, when=created | deleted | generation)
            .watches(Pod, to=self.zones_of_pod, when=_POD, label_selector=OURS)
            .watches(Secret, to=self.zones_of_secret, transform=key_secret)
            .watches(*RECORD_KINDS, to=zones_of_record, when=generation | labels, on_enqueue=self.mark_record)
            .watches(
                DNSZone,
                to=zones_sharing_records,
                when=_SELECTION,
                on_enqueue=self.mark_all_records,
            )
            .watches(DNSZone, to=overlapping_zones, when=created | deleted | generation | _CLAIMS)
            .watches(NSRecord, to=zones_under, when=created | deleted | generation | labels)
            .watches(
                DNSZone,
                to=self.related_reverse_zones,
                when=created | deleted | generation | _POINTED,
                on_enqueue=self.mark_all_pointers,
            )
            .index(DNSZone, "dns-records-from", selector_values)
            .index(DNSZone, "dns-zone-name", zone_names)
            .index(DNSZone, "dns-zone-above", zone_names_above)
            .index(Pod, "dns-instance", pod_instance)
            .with_options(concurrency=ZONES_AT_ONCE, limiter=self.limiter, shared_objects=True)
        )
        for kind in RECORD_KINDS:
            made = made.index(kind, "dns-labels", label_values).index(kind, "dns-leaving", leaving_values)
            made = made.index(kind, "dns-published", published_values)
        return made

    def record(self, kind: type[Record]) -> Controller:
        """A kind of record: itself, and what its zone reports about it."""
        dns = self.dns
        reconciler = RecordReconciler(
            options=dns.options, states=dns.states, ptr_index=dns.ptr_index, activity=dns.activity, ages=dns.ages
        )
        made = (
            Controller(kind, reconciler.reconcile, f"dns-{kind.KIND.plural}")
            .when(generation | labels)
            .watches_channel(dns.channels.records[kind])
            .watches(DNSZone, to=records_of(kind), when=deleted)
            .index(DNSZone, "dns-records-from", selector_values)
            .index(DNSZone, "dns-zone-name", zone_names)
            .index(kind, "dns-labels", label_values)
            .with_options(
                concurrency=RECORDS_AT_ONCE, limiter=self.limiter, shared_objects=True, while_terminating=True
            )
        )
        if kind not in (ARecord, AAAARecord):
            return made
        return made.watches(DNSZone, to=self.unplaced_records(kind), when=created | deleted | generation | _POINTED)

    # -- mappings ------------------------------------------------------------------------------------------------------

    def zones_of_instance(self, instance: Bind9Instance, cache: Any) -> Iterable[NamespacedName]:
        """The zones that an instance serves, or served."""
        selector = InstanceSelector(cache, self.dns.options.server_namespaces)
        found = [zone.ref for zone in cache[DNSZone] if _has_row(zone, instance)]
        for zone in cache[DNSZone]:
            choice = selector.among(zone, [instance])
            if choice.instances or choice.denied or choice.unrequested:
                found.append(zone.ref)
        return dict.fromkeys(found)

    def zones_of_cluster(self, cluster: Bind9Cluster | ClusterBind9Provider, cache: Any) -> Iterable[NamespacedName]:
        """The zones of a cluster's instances."""
        found: dict[NamespacedName, None] = {}
        for instance in cache[Bind9Instance]:
            if instance.spec.cluster_ref == cluster.name:
                found.update(dict.fromkeys(self.zones_of_instance(instance, cache)))
        return found

    def zones_of_pod(self, pod: Pod, cache: Any) -> Iterable[NamespacedName]:
        """The zones of the instance a pod belongs to."""
        instance = cache[Bind9Instance].get(NamespacedName(pod.labels.get(INSTANCE_LABEL, ""), pod.namespace))
        return () if instance is None else self.zones_of_instance(instance, cache)

    def zones_of_secret(self, secret: Secret, cache: Any) -> Iterable[NamespacedName]:
        """The zones of instances that use a key."""
        if not secret.data or secret.name == KEYS_SECRET:  # only zones add signing keys, and they know
            return ()
        found: dict[NamespacedName, None] = {}
        for instance in cache[Bind9Instance].list(namespace=secret.namespace):
            found.update(dict.fromkeys(self.zones_of_instance(instance, cache)))
        return found

    def instances_of_secret(self, secret: Secret, cache: Any) -> Iterable[NamespacedName]:
        """The instances that may use a key."""
        if not secret.data or secret.name == KEYS_SECRET:
            return ()
        return [instance.ref for instance in cache[Bind9Instance].list(namespace=secret.namespace)]

    def instances_of_zone(self, zone: DNSZone, cache: Any) -> Iterable[NamespacedName]:
        """The instances that serve a zone, or served it."""
        rows = (zone.status.bind9_instances if zone.status is not None else None) or ()
        chosen = InstanceSelector(cache, self.dns.options.server_namespaces).of(zone).instances
        return {*(NamespacedName(row.name, row.namespace) for row in rows), *(instance.ref for instance in chosen)}

    def related_reverse_zones(self, zone: DNSZone, cache: Any) -> Iterable[NamespacedName]:
        """Reverse zones above and below a changed one: PTR records of addresses may be theirs now, or no longer."""
        names = {name for _, name in self._pointers_into(zone)}
        return {other.ref for name in names for zones in zones_above(name, named_in(cache)) for other in zones}

    def unplaced_records(self, kind: type[Record]) -> Any:
        """The records of a kind with addresses in a changed reverse zone and no zone for their PTR records."""
        prefix = f"{kind.KIND.kind.lower()}/"

        def unplaced_records_of_kind(zone: DNSZone, cache: Any) -> Iterable[NamespacedName]:
            return {
                NamespacedName(source.removeprefix(prefix), namespace)
                for (namespace, source), name in self._pointers_into(zone)
                if source.startswith(prefix) and place_of(name, namespace, named_in(cache)).zone is None
            }

        return unplaced_records_of_kind

    def _pointers_into(self, zone: DNSZone) -> Iterable[tuple[Origin, bytes]]:
        with suppress(PlanError):
            name = zone_name(zone)
            if is_reverse(name):
                return self.dns.ptr_index.below(name)
        return ()

    # -- what is remembered of a change --------------------------------------------------------------------------------

    def mark_record(self, record: Record, zones: Iterable[NamespacedName]) -> None:
        """These zones compile a changed record again."""
        for state in self._states(zones):
            state.loader.mark_record(type(record), record.name)

    def mark_all_records(self, _zone: DNSZone, zones: Iterable[NamespacedName]) -> None:
        """These zones select all their records again: a changed one may have had some of them, or may have them now."""
        for state in self._states(zones):
            state.loader.mark_all_records()

    def mark_all_pointers(self, _zone: DNSZone, zones: Iterable[NamespacedName]) -> None:
        """These reverse zones place all PTR records again."""
        for state in self._states(zones):
            state.loader.mark_all_origins()

    def _states(self, zones: Iterable[NamespacedName]) -> Iterator[ZoneState]:
        for ref in zones:
            if (state := self.dns.states.get(ref)) is not None:
                yield state


def zones_of_record(record: Record, cache: Any) -> Iterable[NamespacedName]:
    """The zones that select a record."""
    return [zone.ref for zone in zones_selecting(record, cache)]


def zones_sharing_records(zone: DNSZone, cache: Any) -> Iterable[NamespacedName]:
    """Other zones that select some of the same records, by whatever labels: they may get or lose them."""
    by_labels = {  # most records share theirs
        tuple(record.labels.items()): record for kind in RECORD_KINDS for record in selected_records(zone, cache[kind])
    }
    found = {other.ref for record in by_labels.values() for other in zones_selecting(record, cache)}
    return sorted(found - {zone.ref})


def overlapping_zones(zone: DNSZone, cache: Any) -> Iterable[NamespacedName]:
    """Zones that claim some of the same names: another one of them may be served now, and all report it."""
    found = {other.ref for other in cache[DNSZone].by_index("dns-zone-name", index_name(zone.spec.zone_name))}
    return sorted({*found, *(other.ref for other in related_zones(zone, cache))} - {zone.ref})


def zones_under(record: NSRecord, cache: Any) -> Iterable[NamespacedName]:
    """Zones of other namespaces that a delegation may allow, or no longer does."""
    found: dict[NamespacedName, None] = {}
    for zone in zones_selecting(record, cache):
        rows = cache[DNSZone].by_index("dns-zone-above", index_name(zone.spec.zone_name))
        found |= {other.ref: None for other in rows if other.namespace != zone.namespace}
        found[zone.ref] = None
    return found


def records_of(kind: type[Record]) -> Any:
    """The records of a kind that a deleted zone selected; while a zone exists, it wakes them itself."""

    def records_of_zone(zone: DNSZone, cache: Any) -> Iterable[NamespacedName]:
        return [record.ref for record in selected_records(zone, cache[kind])]

    return records_of_zone


def _has_row(zone: DNSZone, instance: Bind9Instance) -> bool:
    """Whether the status of a zone lists an instance."""
    rows = (zone.status.bind9_instances if zone.status is not None else None) or ()
    return any((row.namespace, row.name) == (instance.namespace, instance.name) for row in rows)


def named_like(cluster: Bind9Cluster) -> Iterable[NamespacedName]:
    """The provider that a cluster may belong to."""
    return (NamespacedName(cluster.name),)


def parents_of(instance: Bind9Instance) -> Iterable[NamespacedName]:
    """The provider that an instance may refer to."""
    return (NamespacedName(instance.spec.cluster_ref),) if instance.spec.cluster_ref else ()


def cluster_of(instance: Bind9Instance) -> Iterable[NamespacedName]:
    """The cluster that an instance refers to."""
    return (NamespacedName(instance.spec.cluster_ref, instance.namespace),) if instance.spec.cluster_ref else ()


def instances_of_cluster(cluster: Bind9Cluster, cache: Any) -> Iterable[NamespacedName]:
    """The instances that refer to a cluster."""
    rows = cache[Bind9Instance].list(namespace=cluster.namespace)
    return [instance.ref for instance in rows if instance.spec.cluster_ref == cluster.name]


def instance_of_pod(pod: Pod) -> Iterable[NamespacedName]:
    """The instance a pod belongs to."""
    name = pod.labels.get(INSTANCE_LABEL)
    return (NamespacedName(name, pod.namespace),) if name else ()


def _ready_state(obj: Any) -> object:
    found = find_condition(obj.status.conditions if obj is not None and obj.status is not None else None, "Ready")
    return None if found is None else (found.status, found.reason)


_READY: Final = Predicate(
    "ready", lambda old, new: old is None or new is None or _ready_state(old) != _ready_state(new)
)


def _selection_facts(zone: DNSZone) -> object:
    return zone.metadata.uid, zone.spec.records_from, zone.deleting


_SELECTION: Final = Predicate(
    "records it selects",
    lambda old, new: old is None or new is None or _selection_facts(old) != _selection_facts(new),
)
_GRANTS: Final = annotation(ALLOW_NAMESPACES, OVERLAP_NAMESPACES, RECONCILE_TRIGGER)
_CLAIMS: Final = annotation(OVERLAP_NAMESPACES, SERVED_BY)
_POINTED: Final = annotation(OVERLAP_NAMESPACES, PTR_NAMESPACES)


def _pod_facts(pod: Any) -> object:
    if pod is None:
        return None
    return pod.status.pod_ip, pod.status.phase, pod.metadata.deletion_timestamp, ready_since(pod)


_POD: Final = Predicate(
    "address, phase or containers", lambda old, new: old is None or new is None or _pod_facts(old) != _pod_facts(new)
)


def pod_instance(pod: Pod) -> list[str]:
    """A pod under its instance, for an index."""
    name = pod.labels.get(INSTANCE_LABEL)
    return [f"{pod.namespace}/{name}"] if name else []


_KEY_DATA: Final = ("algorithm", "previous-algorithm", "token")


def key_secret(secret: Secret) -> Secret:
    """What the cache keeps of a Secret: keys, and nothing of other Secrets, unless a label says that it is a key."""
    if secret.labels.get(KEY_LABEL) == "true":
        return replace(secret, string_data={})
    kept = {
        name: value for name, value in secret.data.items() if name.endswith(("key-name", "secret")) or name in _KEY_DATA
    }
    if not any(name.endswith("key-name") for name in kept):
        # Of DNSSEC keys, all but their private parts.
        kept = {
            name: b"" if name.endswith(".private") else value
            for name, value in secret.data.items()
            if is_key_field(name)
        }
    return replace(secret, data=kept, string_data={})


def rules_of(_config: Any) -> Sequence[PolicyRule]:
    """The least permissions the operator needs. Objects of an instance are garbage-collected, so it deletes none."""
    watched, applied = ("list", "watch"), ("list", "watch", "create", "patch")
    own = [f"{kind.KIND.plural}.{GROUP}" for kind in KINDS]
    made = [f"bind9clusters.{GROUP}", f"bind9instances.{GROUP}"]
    parents = [*made, f"clusterbind9providers.{GROUP}"]
    return [
        rule(own, *watched, "patch"),
        rule(made, "create", "delete"),
        rule([f"{kind}/status" for kind in own], "patch"),
        # where OwnerReferencesPermissionEnforcement is on, as in OpenShift: children block the deletion of these
        rule([f"{kind}/finalizers" for kind in parents], "update"),
        rule("deployments.apps", *applied),
        rule(["services", "configmaps", "secrets", "serviceaccounts", "persistentvolumeclaims"], *applied),
        rule("poddisruptionbudgets.policy", *applied),
        rule("pods", *watched),
        rule("pods/status", "patch"),
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
