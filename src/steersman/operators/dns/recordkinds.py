"""The eight kinds of records: what a person may write, and what the operator answers.

All of them share `name` and `ttl`; whatever else they have becomes the data of resource records in `rrsets`. The schema
refuses what can never be right; what is wrong only together with other records is a condition.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from steersman.crd.markers import Atomic, ListSet, MaxLength, MinLength, Pattern, Schema
from steersman.kube.definitions import ColumnSpec
from steersman.kube.objects import Resource, Struct
from steersman.operators.dns.parts import U16, Conditions, Fqdn, Ipv4, Ipv6, ObjectReference, Ttl
from steersman.operators.dns.types import GROUP, VERSION

__all__ = [
    "RECORD_KINDS",
    "AAAARecord",
    "ARecord",
    "CAARecord",
    "CNAMERecord",
    "EndpointState",
    "MXRecord",
    "NSRecord",
    "Record",
    "RecordStatus",
    "SRVRecord",
    "TXTRecord",
    "ZoneRef",
]

MANY: Final = 4000  # more of the smallest records do not fit into one DNS message
_LABEL: Final = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
Name = Annotated[str, Pattern(rf"^(|@|(\*\.)?{_LABEL}(\.{_LABEL})*\.?|\*)$"), MaxLength(254)]
ServiceName = Annotated[
    str, Pattern(rf"^_[A-Za-z0-9-]{{1,62}}\._[A-Za-z0-9-]{{1,62}}(\.{_LABEL})*\.?$"), MaxLength(254)
]
Text = Annotated[str, Pattern(r"^[^\x00-\x1f\x7f]*$"), MaxLength(16384)]

_READY = ".status.conditions[?(@.type=='Ready')]"


def _columns(*own: tuple[str, str]) -> tuple[ColumnSpec, ...]:
    rows = [("Name", ".spec.name"), ("Zone", ".status.zoneRef.zoneName"), *own]
    numbers = {"TTL", "Priority", "Port"}
    return (
        *(
            ColumnSpec(name=name, json_path=path, type="integer" if name in numbers else "string")
            for name, path in [*rows, ("TTL", ".spec.ttl"), ("Ready", f"{_READY}.status")]
        ),
        ColumnSpec(name="Reason", json_path=f"{_READY}.reason", type="string", priority=1),
    )


class ZoneRef(ObjectReference):
    """The zone a record is part of."""

    zone_name: str = ""
    last_reconciled_at: str = ""


class EndpointState(Struct):
    """What one server has of a record."""

    instance: str = ""
    pod: str = ""
    serial: int = 0
    state: str = ""  # Published, Pending or Failed


class RecordStatus(Struct):
    """What became of a record."""

    conditions: Conditions = None
    observed_generation: int = 0
    zone: str = ""
    zone_ref: ZoneRef | None = None
    record_hash: str = ""
    last_updated: str = ""
    addresses: str = ""
    published_name: str = ""
    contributes_to: str = ""
    endpoints: Annotated[list[EndpointState] | None, Atomic()] = None


class ARecord(
    Resource, group=GROUP, version=VERSION, short_names=("a",), columns=_columns(("Addresses", ".status.addresses"))
):
    """IPv4 addresses of a name."""

    class Spec(Struct):
        """What is wanted."""

        RULES: ClassVar = (
            ("has(self.ipv4Addresses) || has(self.ipv4Address)", "ipv4Addresses: at least one address is required"),
        )

        name: Name
        ttl: Ttl = None
        ipv4_addresses: Annotated[list[Ipv4] | None, ListSet(), Schema(minItems=1, maxItems=MANY)] = None
        ipv4_address: Ipv4 | None = None
        ptr: Annotated[bool | None, Schema(nullable=True)] = None
        """Whether the reverse zone gets PTR records for these addresses; absent: as the zone says."""

    spec: Spec
    status: RecordStatus | None = None


class AAAARecord(
    Resource, group=GROUP, version=VERSION, short_names=("aaaa",), columns=_columns(("Addresses", ".status.addresses"))
):
    """IPv6 addresses of a name."""

    class Spec(Struct):
        """What is wanted."""

        RULES: ClassVar = (
            ("has(self.ipv6Addresses) || has(self.ipv6Address)", "ipv6Addresses: at least one address is required"),
        )

        name: Name
        ttl: Ttl = None
        ipv6_addresses: Annotated[list[Ipv6] | None, ListSet(), Schema(minItems=1, maxItems=2000)] = None
        ipv6_address: Ipv6 | None = None
        ptr: Annotated[bool | None, Schema(nullable=True)] = None
        """Whether the reverse zone gets PTR records for these addresses; absent: as the zone says."""

    spec: Spec
    status: RecordStatus | None = None


class CNAMERecord(
    Resource, group=GROUP, version=VERSION, short_names=("cname",), columns=_columns(("Target", ".spec.target"))
):
    """Another name for a name."""

    class Spec(Struct):
        """What is wanted."""

        RULES: ClassVar = (
            ("!(self.name in ['', '@'])", "name: a zone's own name cannot be a CNAME (RFC 1034, 3.6.2)"),
            ("self.target != '.'", "target: must be a name"),
        )

        name: Name
        ttl: Ttl = None
        target: Fqdn

    spec: Spec
    status: RecordStatus | None = None


class MXRecord(
    Resource,
    group=GROUP,
    version=VERSION,
    short_names=("mx",),
    columns=_columns(("Priority", ".spec.priority"), ("Mail Server", ".spec.mailServer")),
):
    """Where mail for a name goes."""

    class Spec(Struct):
        """What is wanted."""

        RULES: ClassVar = (
            ("self.mailServer != '.' || self.priority == 0", "mailServer: '.' (no mail) needs priority 0 (RFC 7505)"),
        )

        name: Name
        ttl: Ttl = None
        priority: U16
        mail_server: Fqdn

    spec: Spec
    status: RecordStatus | None = None


class TXTRecord(Resource, group=GROUP, version=VERSION, short_names=("txt",), columns=_columns()):
    """Text at a name: `text` is one record of several strings, `values` are several records."""

    class Spec(Struct):
        """What is wanted."""

        RULES: ClassVar = (("has(self.text) || has(self.values)", "text: at least one string is required"),)

        name: Name
        ttl: Ttl = None
        text: Annotated[list[Text] | None, Atomic(), Schema(minItems=1, maxItems=255)] = None
        values: Annotated[
            list[Annotated[list[Text], Atomic(), MinLength(1), MaxLength(64)]] | None,
            Atomic(),
            Schema(minItems=1, maxItems=64),
        ] = None

    spec: Spec
    status: RecordStatus | None = None


class NSRecord(
    Resource, group=GROUP, version=VERSION, short_names=("nsr",), columns=_columns(("Nameserver", ".spec.nameserver"))
):
    """A delegation, or one more name server of the zone itself."""

    class Spec(Struct):
        """What is wanted."""

        RULES: ClassVar = (("self.nameserver != '.'", "nameserver: must be a name"),)

        name: Name
        ttl: Ttl = None
        nameserver: Fqdn

    spec: Spec
    status: RecordStatus | None = None


class SRVRecord(
    Resource,
    group=GROUP,
    version=VERSION,
    short_names=("srv",),
    columns=_columns(("Target", ".spec.target"), ("Port", ".spec.port")),
):
    """Where a service is."""

    class Spec(Struct):
        """What is wanted."""

        name: ServiceName
        ttl: Ttl = None
        priority: U16
        weight: U16
        port: U16
        target: Fqdn

    spec: Spec
    status: RecordStatus | None = None


class CAARecord(
    Resource,
    group=GROUP,
    version=VERSION,
    short_names=("caa",),
    columns=_columns(("Tag", ".spec.tag"), ("Value", ".spec.value")),
):
    """Who may issue certificates for a name."""

    class Spec(Struct):
        """What is wanted."""

        name: Name
        ttl: Ttl = None
        flags: Annotated[int, Schema(minimum=0, maximum=255)]
        tag: Annotated[str, Pattern(r"^[a-z0-9]{1,15}$"), MaxLength(15)]
        value: Annotated[str, Pattern(r"^[\x20-\x7e]*$"), MaxLength(4096)]

    spec: Spec
    status: RecordStatus | None = None


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
