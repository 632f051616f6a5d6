"""The eight record kinds: their spec, and the status that the operator writes.

All of them share `name` and `ttl`; whatever else they have becomes the data of resource records in `rrsets`. The schema
refuses what can never be right; what is wrong only together with other records is a condition.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from steersman.crd.markers import Atomic, ListSet, MaxLength, MinLength, Pattern, Schema
from steersman.kube.api.crd_options import PrinterColumn
from steersman.kube.api.objects import Resource, Struct
from steersman.operators.dns.api.config import GROUP, VERSION
from steersman.operators.dns.api.field_types import U16, Conditions, Fqdn, Ipv4, Ipv6, Ttl, TypedReference

MANY: Final = 4000  # more of the smallest records do not fit into one DNS message
_LABEL: Final = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
Name = Annotated[str, Pattern(rf"^(|@|(\*\.)?{_LABEL}(\.{_LABEL})*\.?|\*)$"), MaxLength(254)]
ServiceName = Annotated[
    str, Pattern(rf"^_[A-Za-z0-9-]{{1,62}}\._[A-Za-z0-9-]{{1,62}}(\.{_LABEL})*\.?$"), MaxLength(254)
]
Text = Annotated[str, Pattern(r"^[^\x00-\x1f\x7f]*$"), MaxLength(16384)]

_READY = ".status.conditions[?(@.type=='Ready')]"


def _columns(*own: tuple[str, str]) -> tuple[PrinterColumn, ...]:
    rows = [("Name", ".spec.name"), ("Zone", ".status.zoneRef.zoneName"), *own]
    numbers = {"TTL", "Priority", "Port"}
    return (
        *(
            PrinterColumn(name=name, json_path=path, type="integer" if name in numbers else "string")
            for name, path in [*rows, ("TTL", ".spec.ttl"), ("Ready", f"{_READY}.status")]
        ),
        PrinterColumn(name="Reason", json_path=f"{_READY}.reason", type="string", priority=1),
    )


class ZoneRef(TypedReference):
    """The zone a record is part of."""

    zone_name: str = ""
    """Domain name of the zone, such as `example.org`."""
    last_reconciled_at: str = ""
    """Part of the status that Bindy writes. This operator leaves it empty."""


class EndpointState(Struct):
    """A record on one server."""

    instance: str = ""
    """The Bind9Instance of the server, as NAMESPACE/NAME."""
    pod: str = ""
    """Name of the pod, or the number of the entry in `spec.endpoints` of the instance."""
    serial: int = 0
    """Serial of the zone with which the record was last published; 0 before the first time."""
    state: str = ""  # Published, Pending or Failed
    """`Published` when the server has the record, `Pending` while it waits, `Failed` when the last request to the
    server failed."""


class RecordStatus(Struct):
    """The observed state of a record."""

    conditions: Conditions = None
    """`Ready` says whether every primary has accepted the record. `PTR`, `TTLMismatch` and `Conflict` appear only when
    they apply."""
    observed_generation: int = 0
    """`metadata.generation` of the spec that this status describes."""
    zone: str = ""
    """Domain name of the zone that publishes the record. Empty while no zone selects it."""
    zone_ref: ZoneRef | None = None
    """The DNSZone that publishes the record: the oldest of those that select it. Absent while no zone selects it."""
    record_hash: str = ""
    """SHA-256 of the spec that was last published."""
    last_updated: str = ""
    """When the published data of this record last changed (RFC 3339, UTC)."""
    addresses: str = ""
    """The addresses of an ARecord or AAAARecord, separated by commas, for `kubectl get`. Empty for other kinds."""
    published_name: str = ""
    """Name inside the zone under which the record was last published. The operator removes the data there when the
    record moves or goes."""
    contributes_to: str = ""
    """Name and type of the RRset that the record is part of, such as `www A`. Records with the same name and type share
    one RRset."""
    endpoints: Annotated[list[EndpointState] | None, Atomic()] = None
    """State of the record on each server of the zone."""


class ARecord(
    Resource, group=GROUP, version=VERSION, short_names=("a",), columns=_columns(("Addresses", ".status.addresses"))
):
    """IPv4 addresses of a name."""

    class Spec(Struct):
        """The desired state."""

        RULES: ClassVar = (
            ("has(self.ipv4Addresses) || has(self.ipv4Address)", "ipv4Addresses: at least one address is required"),
        )

        name: Name
        """Name inside the zone, such as `www`; `@` or empty is the zone itself, `*` a wildcard. A name with a final dot
        is absolute and must be inside the zone."""
        ttl: Ttl = None
        """Time to live in seconds. Without it, `spec.ttl` of the zone applies. Records that share a name and type are
        served with the lowest TTL among them."""
        ipv4_addresses: Annotated[list[Ipv4] | None, ListSet(), Schema(minItems=1, maxItems=MANY)] = None
        """IPv4 addresses of the name, each one an A record. At least one is required, here or in `ipv4Address`."""
        ipv4_address: Ipv4 | None = None
        """A single IPv4 address, the older spelling of `ipv4Addresses`. Both add up."""
        ptr: Annotated[bool | None, Schema(nullable=True)] = None
        """Whether each address gets a PTR record in the nearest DNSZone above it. Without it, `spec.ptr` of the zone
        decides."""

    spec: Spec
    """The desired addresses."""
    status: RecordStatus | None = None
    """What the operator observed. Absent before the first reconcile."""


class AAAARecord(
    Resource, group=GROUP, version=VERSION, short_names=("aaaa",), columns=_columns(("Addresses", ".status.addresses"))
):
    """IPv6 addresses of a name."""

    class Spec(Struct):
        """The desired state."""

        RULES: ClassVar = (
            ("has(self.ipv6Addresses) || has(self.ipv6Address)", "ipv6Addresses: at least one address is required"),
        )

        name: Name
        """Name inside the zone, such as `www`; `@` or empty is the zone itself, `*` a wildcard. A name with a final dot
        is absolute and must be inside the zone."""
        ttl: Ttl = None
        """Time to live in seconds. Without it, `spec.ttl` of the zone applies. Records that share a name and type are
        served with the lowest TTL among them."""
        ipv6_addresses: Annotated[list[Ipv6] | None, ListSet(), Schema(minItems=1, maxItems=2000)] = None
        """IPv6 addresses of the name, each one an AAAA record. At least one is required, here or in `ipv6Address`."""
        ipv6_address: Ipv6 | None = None
        """A single IPv6 address, the older spelling of `ipv6Addresses`. Both add up."""
        ptr: Annotated[bool | None, Schema(nullable=True)] = None
        """Whether each address gets a PTR record in the nearest DNSZone above it. Without it, `spec.ptr` of the zone
        decides."""

    spec: Spec
    """The desired addresses."""
    status: RecordStatus | None = None
    """What the operator observed. Absent before the first reconcile."""


class CNAMERecord(
    Resource, group=GROUP, version=VERSION, short_names=("cname",), columns=_columns(("Target", ".spec.target"))
):
    """An alias of a name."""

    class Spec(Struct):
        """The desired state."""

        RULES: ClassVar = (
            ("!(self.name in ['', '@'])", "name: a zone's own name cannot be a CNAME (RFC 1034, 3.6.2)"),
            ("self.target != '.'", "target: must be a name"),
        )

        name: Name
        """Name inside the zone that becomes an alias, such as `shop`. The zone itself cannot be an alias, and the name
        can have no other data."""
        ttl: Ttl = None
        """Time to live in seconds. Without it, `spec.ttl` of the zone applies."""
        target: Fqdn
        """The name that the alias points to, with a final dot. It may be in any zone."""

    spec: Spec
    """The desired alias."""
    status: RecordStatus | None = None
    """What the operator observed. Absent before the first reconcile."""


class MXRecord(
    Resource,
    group=GROUP,
    version=VERSION,
    short_names=("mx",),
    columns=_columns(("Priority", ".spec.priority"), ("Mail Server", ".spec.mailServer")),
):
    """The mail server of a name."""

    class Spec(Struct):
        """The desired state."""

        RULES: ClassVar = (
            ("self.mailServer != '.' || self.priority == 0", "mailServer: '.' (no mail) needs priority 0 (RFC 7505)"),
        )

        name: Name
        """Name inside the zone that receives mail; `@` or empty is the zone itself. A name with a final dot is absolute
        and must be inside the zone."""
        ttl: Ttl = None
        """Time to live in seconds. Without it, `spec.ttl` of the zone applies. Records that share a name and type are
        served with the lowest TTL among them."""
        priority: U16
        """Preference of this mail server; senders try lower numbers first."""
        mail_server: Fqdn
        """Host name of the mail server, with a final dot. A single dot with priority 0 declares that the name receives
        no mail (RFC 7505). A host inside the zone needs an address there."""

    spec: Spec
    """The desired mail server."""
    status: RecordStatus | None = None
    """What the operator observed. Absent before the first reconcile."""


class TXTRecord(Resource, group=GROUP, version=VERSION, short_names=("txt",), columns=_columns()):
    """Text at a name: `text` is one record of several strings, `values` are several records."""

    class Spec(Struct):
        """The desired state."""

        RULES: ClassVar = (("has(self.text) || has(self.values)", "text: at least one string is required"),)

        name: Name
        """Name inside the zone, such as `_dmarc`; `@` or empty is the zone itself. A name with a final dot is absolute
        and must be inside the zone."""
        ttl: Ttl = None
        """Time to live in seconds. Without it, `spec.ttl` of the zone applies. Records that share a name and type are
        served with the lowest TTL among them."""
        text: Annotated[list[Text] | None, Atomic(), Schema(minItems=1, maxItems=255)] = None
        """The strings of one TXT record; readers join them. A string of more than 255 bytes is split."""
        values: Annotated[
            list[Annotated[list[Text], Atomic(), MinLength(1), MaxLength(64)]] | None,
            Atomic(),
            Schema(minItems=1, maxItems=64),
        ] = None
        """Several TXT records at the same name, each a list of strings. Use it with or instead of `text`."""

    spec: Spec
    """The desired text."""
    status: RecordStatus | None = None
    """What the operator observed. Absent before the first reconcile."""


class NSRecord(
    Resource, group=GROUP, version=VERSION, short_names=("nsr",), columns=_columns(("Nameserver", ".spec.nameserver"))
):
    """A delegation, or one more name server of the zone itself."""

    class Spec(Struct):
        """The desired state."""

        RULES: ClassVar = (("self.nameserver != '.'", "nameserver: must be a name"),)

        name: Name
        """Name inside the zone that is delegated, such as `dev`; `@` or empty adds a name server of the zone itself.
        Other data below a delegated name is not published."""
        ttl: Ttl = None
        """Time to live in seconds. Without it, `spec.ttl` of the zone applies. Records that share a name and type are
        served with the lowest TTL among them."""
        nameserver: Fqdn
        """Host name of the name server, with a final dot. A host inside the zone needs an address there."""

    spec: Spec
    """The desired name server."""
    status: RecordStatus | None = None
    """What the operator observed. Absent before the first reconcile."""


class SRVRecord(
    Resource,
    group=GROUP,
    version=VERSION,
    short_names=("srv",),
    columns=_columns(("Target", ".spec.target"), ("Port", ".spec.port")),
):
    """The host and port of a service."""

    class Spec(Struct):
        """The desired state."""

        name: ServiceName
        """Service and protocol inside the zone, such as `_sip._tcp` or `_sip._tcp.dev`."""
        ttl: Ttl = None
        """Time to live in seconds. Without it, `spec.ttl` of the zone applies. Records that share a name and type are
        served with the lowest TTL among them."""
        priority: U16
        """Clients try hosts with lower numbers first."""
        weight: U16
        """Share of the requests among hosts of the same priority; a host with a higher number gets more. 0 is a host
        with no preference."""
        port: U16
        """Port of the service on the target."""
        target: Fqdn
        """Host name that runs the service, with a final dot. A single dot declares that the service does not exist here
        (RFC 2782)."""

    spec: Spec
    """The desired host and port."""
    status: RecordStatus | None = None
    """What the operator observed. Absent before the first reconcile."""


class CAARecord(
    Resource,
    group=GROUP,
    version=VERSION,
    short_names=("caa",),
    columns=_columns(("Tag", ".spec.tag"), ("Value", ".spec.value")),
):
    """The certificate authorities that may issue certificates for a name."""

    class Spec(Struct):
        """The desired state."""

        name: Name
        """Name inside the zone that the rule is for; `@` or empty is the zone itself. It also applies to names below
        it."""
        ttl: Ttl = None
        """Time to live in seconds. Without it, `spec.ttl` of the zone applies. Records that share a name and type are
        served with the lowest TTL among them."""
        flags: Annotated[int, Schema(minimum=0, maximum=255)]
        """128 makes the rule critical: an authority that does not understand its tag must not issue. Otherwise 0."""
        tag: Annotated[str, Pattern(r"^[a-z0-9]{1,15}$"), MaxLength(15)]
        """What the value is about (RFC 8659): `issue`, `issuewild` or `iodef`."""
        value: Annotated[str, Pattern(r"^[\x20-\x7e]*$"), MaxLength(4096)]
        """Domain of the certificate authority for `issue` and `issuewild` (`;` allows none), or the address for reports
        for `iodef`."""

    spec: Spec
    """The desired rule."""
    status: RecordStatus | None = None
    """What the operator observed. Absent before the first reconcile."""


Record = ARecord | AAAARecord | CNAMERecord | MXRecord | TXTRecord | NSRecord | SRVRecord | CAARecord
RECORD_KINDS: Final[tuple[type[Record], ...]] = (
    ARecord,
    AAAARecord,
    CNAMERecord,
    MXRecord,
    TXTRecord,
    NSRecord,
    SRVRecord,
    CAARecord,
)
