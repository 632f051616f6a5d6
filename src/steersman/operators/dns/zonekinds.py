"""DNSZone: one zone, where its records come from and who serves it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from steersman.crd.markers import Atomic, Ge, Le, MaxLength, Pattern, Schema
from steersman.kube.definitions import ColumnSpec
from steersman.kube.objects import Resource, Struct
from steersman.operators.dns.parts import (
    MAX_32,
    Conditions,
    Fqdn,
    InstanceSource,
    Ipv4,
    Ipv6,
    ObjectReference,
    PolicyName,
    RecordSource,
    Ttl,
)
from steersman.operators.dns.types import GROUP, VERSION

__all__ = [
    "Conflict",
    "DNSZone",
    "DnssecStatus",
    "InstanceState",
    "NameServer",
    "RecordEntry",
    "SOARecord",
    "ZoneStatus",
]

_LABEL: Final = r"[A-Za-z0-9_]([A-Za-z0-9_/-]{0,61}[A-Za-z0-9_])?"
Seconds = Annotated[int, Ge(1), Le(MAX_32)]


class SOARecord(Struct):
    """The start of authority. The serial is the least one to be served; the operator counts on from there."""

    primary_ns: Fqdn
    admin_email: Annotated[
        str,
        Pattern(r"^([A-Za-z0-9_+=-]|\\\.|\.)+(@[A-Za-z0-9.-]+|\.)$"),
        MaxLength(254),
    ]
    """The mailbox as a name (`hostmaster.example.org.`) or as people write it (`hostmaster@example.org`)."""
    serial: Annotated[int | None, Schema(minimum=0, maximum=2**32 - 1, nullable=True)] = None
    refresh: Seconds
    retry: Seconds
    expire: Seconds
    negative_ttl: Annotated[int, Ge(0), Le(MAX_32)]


class NameServer(Struct):
    """A name server of the zone; addresses are published when its name is inside the zone."""

    hostname: Fqdn
    ipv4_address: Ipv4 | None = None
    ipv6_address: Ipv6 | None = None


class RecordEntry(ObjectReference):
    """A record of the zone."""

    record_name: str = ""
    last_reconciled_at: str = ""


class InstanceState(ObjectReference):
    """How the zone is doing on one instance."""

    status: str = ""  # Claimed, Configured, Failed or Unclaimed
    last_reconciled_at: str = ""
    message: str = ""
    role: str = ""
    serial: int = 0
    adopted: bool | None = None  # whether all that it has of the zone is for resources to say


class Conflict(Struct):
    """Data that is not published, and why."""

    name: str = ""
    type: str = ""
    reason: str = ""
    message: str = ""
    records: Annotated[list[str] | None, Atomic()] = None


class DnssecStatus(Struct):
    """How the zone is signed, and what the parent needs."""

    signed: bool = False
    ds_records: Annotated[list[str] | None, Atomic()] = None
    key_tag: int = 0
    algorithm: str = ""
    signed_by: str = ""  # the instance that signs, and stays the one while it is chosen
    next_key_rollover: str = ""
    last_key_rollover: str = ""


class ZoneStatus(Struct):
    """What is being served."""

    conditions: Conditions = None
    observed_generation: int = 0
    serial: int = 0
    records_count: int = 0
    record_count: int = 0
    records: Annotated[list[RecordEntry] | None, Atomic()] = None
    bind9_instances: Annotated[list[InstanceState] | None, Atomic()] = None
    bind9_instances_count: int = 0
    selection_method: str = ""
    conflicts: Annotated[list[Conflict] | None, Atomic()] = None
    dnssec: DnssecStatus | None = None
    last_drift_check: str = ""
    drift_count: int = 0


class DNSZone(
    Resource,
    group=GROUP,
    version=VERSION,
    short_names=("zone", "zones", "dz", "dzs"),
    columns=(
        ColumnSpec(name="Zone", json_path=".spec.zoneName", type="string"),
        ColumnSpec(name="Records", json_path=".status.recordsCount", type="integer"),
        ColumnSpec(name="Instances", json_path=".status.bind9InstancesCount", type="integer"),
        ColumnSpec(name="Serial", json_path=".status.serial", type="integer"),
        ColumnSpec(name="TTL", json_path=".spec.ttl", type="integer"),
        ColumnSpec(name="Ready", json_path=".status.conditions[?(@.type=='Ready')].status", type="string"),
        ColumnSpec(name="Reason", json_path=".status.conditions[?(@.type=='Ready')].reason", type="string", priority=1),
    ),
):
    """A zone, the records in it and the servers that serve it."""

    class Spec(Struct):
        """What is wanted."""

        RULES: ClassVar = (
            ("!self.zoneName.matches('^[0-9.]+$')", "zoneName: must be a name, not an address"),
            ("self.zoneName == oldSelf.zoneName", "zoneName: cannot be changed; make a new zone"),
        )

        zone_name: Annotated[str, Pattern(rf"^{_LABEL}(\.{_LABEL})*$"), MaxLength(253)]
        soa_record: SOARecord
        ttl: Ttl = None
        cluster_ref: Annotated[str, MaxLength(253)] = ""
        cluster_provider_ref: Annotated[str, MaxLength(253)] = ""
        bind9_instances_from: Annotated[list[InstanceSource] | None, Atomic(), Schema(maxItems=64)] = None
        records_from: Annotated[list[RecordSource] | None, Atomic(), Schema(maxItems=64)] = None
        name_servers: Annotated[list[NameServer] | None, Atomic(), Schema(maxItems=64)] = None
        name_server_ips: dict[str, Ipv4] | None = None
        dnssec_policy: PolicyName | None = None
        catalog: bool = False
        """A catalog zone (RFC 9432): its members are the zones of the secondaries whose configuration names it."""
        ptr: bool = False
        """Whether addresses of its records get PTR records in their reverse zones, unless a record says otherwise."""

    spec: Spec
    status: ZoneStatus | None = None
