"""DNSZone: a zone, the selection of its records, and the servers that serve it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from steersman.crd.markers import Atomic, Ge, Le, MaxLength, Pattern, Schema
from steersman.kube.api.crd_options import PrinterColumn
from steersman.kube.api.objects import Resource, Struct
from steersman.operators.dns.api.config import GROUP, VERSION
from steersman.operators.dns.api.field_types import (
    MAX_32,
    Conditions,
    Fqdn,
    InstanceSource,
    Ipv4,
    Ipv6,
    PolicyName,
    RecordSource,
    Ttl,
    TypedReference,
)

_LABEL: Final = r"[A-Za-z0-9_]([A-Za-z0-9_/-]{0,61}[A-Za-z0-9_])?"
Seconds = Annotated[int, Ge(1), Le(MAX_32)]


class SOARecord(Struct):
    """The SOA record. The serial is a minimum; the operator increments it from there."""

    primary_ns: Fqdn
    """Host name of the primary name server, with a final dot. It is always one of the zone's name servers."""
    admin_email: Annotated[
        str,
        Pattern(r"^([A-Za-z0-9_+=-]|\\\.|\.)+(@[A-Za-z0-9.-]+|\.)$"),
        MaxLength(254),
    ]
    """Mailbox of the zone's administrator, as a DNS name (`hostmaster.example.org.`) or as an address
    (`hostmaster@example.org`)."""
    serial: Annotated[int | None, Schema(minimum=0, maximum=2**32 - 1, nullable=True)] = None
    """The lowest serial to use. The operator increments it with every change and never serves an older one, so it is
    rarely needed."""
    refresh: Seconds
    """Seconds after which a secondary asks its primary for changes."""
    retry: Seconds
    """Seconds after which a secondary asks again when the primary did not answer."""
    expire: Seconds
    """Seconds without an answer from the primary after which a secondary stops serving the zone."""
    negative_ttl: Annotated[int, Ge(0), Le(MAX_32)]
    """Seconds for which resolvers may cache that a name does not exist."""


class NameServer(Struct):
    """A name server of the zone; addresses are published when its name is inside the zone."""

    hostname: Fqdn
    """Host name of the server, with a final dot. It becomes an NS record of the zone."""
    ipv4_address: Ipv4 | None = None
    """IPv4 address of the server, published as its A record. It has no effect on a host outside the zone."""
    ipv6_address: Ipv6 | None = None
    """IPv6 address of the server, published as its AAAA record. It has no effect on a host outside the zone."""


class RecordEntry(TypedReference):
    """A record of the zone."""

    record_name: str = ""
    """Name of the record inside the zone; empty for the zone itself."""
    last_reconciled_at: str = ""
    """Part of the status that Bindy writes. This operator leaves it empty."""


class InstanceState(TypedReference):
    """The state of the zone on one instance."""

    status: str = ""  # Claimed, Configured, Failed or Unclaimed
    """`Configured` when all servers of the instance have the zone, `Claimed` while some do not yet, `Failed` when a
    request failed, `Unclaimed` when the instance still has the zone and should not."""
    last_reconciled_at: str = ""
    """Since when the zone is `Unclaimed` there (RFC 3339, UTC). Empty in the other states."""
    message: str = ""
    """What failed on the servers of the instance. Empty when nothing did."""
    role: str = ""
    """`primary` or `secondary`, as the instance says."""
    serial: int = 0
    """The lowest serial among the servers of the instance; 0 while none has the zone."""
    adopted: bool | None = None  # whether all that it has of the zone is for resources to say
    """Whether the operator may change all data of the zone there. False while the servers hold data that no resource
    declares (`ForeignData`)."""


class RecordConflict(Struct):
    """A record that is not published, and the reason."""

    name: str = ""
    """Name inside the zone that is not published, or the record that is invalid."""
    type: str = ""
    """Type of the records at that name, such as `A`. Empty for an invalid record."""
    reason: str = ""
    """Why it is not published, in one word, such as `CNAMEConflict`."""
    message: str = ""
    """Why it is not published, in a sentence."""
    records: Annotated[list[str] | None, Atomic()] = None
    """The records concerned, as KIND/NAME."""


class DnssecStatus(Struct):
    """The signing state of the zone, and the DS records for the parent."""

    signed: bool = False
    """Whether the zone is served with signatures."""
    ds_records: Annotated[list[str] | None, Atomic()] = None
    """DS records to give to the parent zone, one for each key-signing key."""
    key_tag: int = 0
    """Key tag of the first key-signing key; 0 for a zone that is not signed."""
    algorithm: str = ""
    """Algorithm of the keys, such as `ECDSAP256SHA256`."""
    signed_by: str = ""  # the instance that signs, and stays the one while it is chosen
    """The Bind9Instance that signs the zone, as NAMESPACE/NAME. It stays the signer while the zone selects it."""
    next_key_rollover: str = ""
    """Part of the status that Bindy writes. This operator leaves it empty."""
    last_key_rollover: str = ""
    """Part of the status that Bindy writes. This operator leaves it empty."""


class ZoneStatus(Struct):
    """The observed state of the zone."""

    conditions: Conditions = None
    """`Ready` says whether every server has the zone as desired, `Degraded` whether some do not. `Conflict`,
    `Contested`, `Drift` and `Ignored` appear only when they apply."""
    observed_generation: int = 0
    """`metadata.generation` of the spec that this status describes."""
    serial: int = 0
    """Serial of the zone that was published last; 0 before the first time."""
    records_count: int = 0
    """How many records the zone selects."""
    record_count: int = 0
    """The same as `recordsCount`, under the name of older Bindy versions."""
    records: Annotated[list[RecordEntry] | None, Atomic()] = None
    """The records of the zone. Absent when there are more than 100."""
    bind9_instances: Annotated[list[InstanceState] | None, Atomic()] = None
    """The instances that serve the zone, or still have it, with the state of each."""
    bind9_instances_count: int = 0
    """How many instances serve the zone."""
    selection_method: str = ""
    """The fields that selected the instances, separated by commas: `bind9InstancesFrom`, `clusterRef`,
    `clusterProviderRef` or `zonesFrom`."""
    conflicts: Annotated[list[RecordConflict] | None, Atomic()] = None
    """Data that is not published, and why; at most 100 of each kind."""
    dnssec: DnssecStatus | None = None
    """Signing state of the zone. Absent for a zone that was never signed."""
    last_drift_check: str = ""
    """When data on a server last differed from the zone and was repaired (RFC 3339, UTC)."""
    drift_count: int = 0
    """How many RRsets on servers have differed from the zone since it was created."""


class DNSZone(
    Resource,
    group=GROUP,
    version=VERSION,
    short_names=("zone", "zones", "dz", "dzs"),
    columns=(
        PrinterColumn(name="Zone", json_path=".spec.zoneName", type="string"),
        PrinterColumn(name="Records", json_path=".status.recordsCount", type="integer"),
        PrinterColumn(name="Instances", json_path=".status.bind9InstancesCount", type="integer"),
        PrinterColumn(name="Serial", json_path=".status.serial", type="integer"),
        PrinterColumn(name="TTL", json_path=".spec.ttl", type="integer"),
        PrinterColumn(name="Ready", json_path=".status.conditions[?(@.type=='Ready')].status", type="string"),
        PrinterColumn(
            name="Reason", json_path=".status.conditions[?(@.type=='Ready')].reason", type="string", priority=1
        ),
    ),
):
    """A zone, the records in it and the servers that serve it."""

    class Spec(Struct):
        """The desired state."""

        RULES: ClassVar = (
            ("!self.zoneName.matches('^[0-9.]+$')", "zoneName: must be a name, not an address"),
            ("self.zoneName == oldSelf.zoneName", "zoneName: cannot be changed; make a new zone"),
        )

        zone_name: Annotated[str, Pattern(rf"^{_LABEL}(\.{_LABEL})*$"), MaxLength(253)]
        """Domain name of the zone without a final dot, such as `example.org`. It cannot be changed; create another
        DNSZone instead."""
        soa_record: SOARecord
        """Start of authority: primary name server, mailbox and timers of the zone."""
        ttl: Ttl = None
        """Time to live in seconds of records that set none. 3600 when absent."""
        cluster_ref: Annotated[str, MaxLength(253)] = ""
        """Name of a Bind9Cluster of the same namespace, or of a ClusterBind9Provider, whose instances serve the zone.
        It adds to `bind9InstancesFrom`."""
        cluster_provider_ref: Annotated[str, MaxLength(253)] = ""
        """Name of a ClusterBind9Provider whose instances serve the zone, whatever their namespace. It adds to the other
        selections."""
        bind9_instances_from: Annotated[list[InstanceSource] | None, Atomic(), Schema(maxItems=64)] = None
        """Selects the Bind9Instances that serve the zone by their labels; an instance that matches one entry is
        selected. Instances can also select the zone with `zonesFrom`."""
        records_from: Annotated[list[RecordSource] | None, Atomic(), Schema(maxItems=64)] = None
        """Selects the records of the zone by their labels; a record that matches one entry is published. Without it the
        zone has no records besides its name servers."""
        name_servers: Annotated[list[NameServer] | None, Atomic(), Schema(maxItems=64)] = None
        """Further name servers of the zone, besides `soaRecord.primaryNs`, with their addresses."""
        name_server_ips: dict[str, Ipv4] | None = None
        """Further name servers as a map from host name to IPv4 address, the older spelling of `nameServers`."""
        dnssec_policy: PolicyName | None = None
        """Signs the zone with the policy of this name, as `dnssec.signing.policy` of its servers defines it. Without it
        the zone is not signed."""
        catalog: bool = False
        """Makes this a catalog zone (RFC 9432): its members are the zones of the secondaries whose configuration names
        it."""
        ptr: bool = False
        """Whether addresses of the zone's records get PTR records in reverse zones. `spec.ptr` of a record overrides
        it."""

    spec: Spec
    """The desired zone: its name, timers, records and servers."""
    status: ZoneStatus | None = None
    """What the operator observed. Absent before the first reconcile."""
