"""Resource records as data: an RRset is a TTL and a set of values in wire form, with names in lower case.

Equal data has equal bytes. Values are made from typed fields, and become zone-file text only through dnspython, which
escapes; no text of a user is ever parsed as a whole record.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any, Final

import dns.exception
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import msgspec

from steersman.errors import FormatError, PlanError
from steersman.operators.dns.api.records import (
    AAAARecord,
    ARecord,
    CAARecord,
    CNAMERecord,
    MXRecord,
    NSRecord,
    SRVRecord,
    TXTRecord,
)
from steersman.operators.dns.zone.names import name_of, owner_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.dns.api.records import Record

A, NS, CNAME, SOA, PTR, MX, TXT, AAAA, SRV, DS, DNSKEY, CAA = 1, 2, 5, 6, 12, 15, 16, 28, 33, 43, 48, 257
GENERATED: Final = frozenset({46, 47, DNSKEY, 50, 51, 59, 60, 65534})  # types that named adds to a signed zone

TYPE_OF: Final = {
    ARecord: A, AAAARecord: AAAA, CNAMERecord: CNAME, MXRecord: MX, TXTRecord: TXT, NSRecord: NS, SRVRecord: SRV,
    CAARecord: CAA,
}  # fmt: skip

Key = tuple[bytes, int]  # owner relative to the zone, type


class RRset(msgspec.Struct, frozen=True, gc=False):
    """The values of one name and type."""

    ttl: int
    values: frozenset[bytes]


class Contribution(msgspec.Struct, frozen=True, gc=False):
    """The values that one resource adds to an RRset."""

    source: str  # arecord/NAME
    key: Key
    ttl: int | None
    values: frozenset[bytes]
    since: str = ""  # when the resource was created


class Soa(msgspec.Struct, frozen=True):
    """An SOA record."""

    primary: bytes
    mailbox: bytes
    serial: int
    refresh: int
    retry: int
    expire: int
    minimum: int

    def value(self) -> bytes:
        """Its wire form."""
        numbers = struct.pack("!5I", self.serial, self.refresh, self.retry, self.expire, self.minimum)
        return self.primary + self.mailbox + numbers

    @classmethod
    def read(cls, value: bytes) -> Soa:
        """Decode an SOA value."""
        first = _name_end(value, 0)
        second = _name_end(value, first)
        return cls(value[:first], value[first:second], *struct.unpack("!5I", value[second : second + 20]))


def _name_end(value: bytes, place: int) -> int:
    while value[place]:
        place += value[place] + 1
    return place + 1


def type_name(number: int) -> str:
    """The name of a type: A, TXT, TYPE65534."""
    return dns.rdatatype.to_text(dns.rdatatype.RdataType.make(number))


def contribution_of(record: Record, source: str, zone: bytes) -> Contribution:
    """The contribution of `record` to `zone`; PlanError names the invalid field."""
    spec = record.spec
    try:
        owner = owner_of(spec.name, zone)
    except FormatError as error:
        raise PlanError(
            str(error), reason="OutOfZone" if "outside" in str(error) else "InvalidName", field="spec.name"
        ) from None
    kind, values = _values(record)
    if kind == NS and owner.startswith(b"\x01*"):  # named answers NOERROR and ignores it
        raise PlanError("a wildcard cannot be delegated (RFC 4592, 4.2)", reason="InvalidName", field="spec.name")
    if not values:  # the schema rejects it already, on an API server with validation rules
        field = {A: "spec.ipv4Addresses", AAAA: "spec.ipv6Addresses", TXT: "spec.text"}.get(kind, "spec")
        raise PlanError("at least one value is required", reason="InvalidValue", field=field)
    return Contribution(source, (owner, kind), spec.ttl, frozenset(values), record.metadata.creation_timestamp or "")


def _values(record: Record) -> tuple[int, list[bytes]]:  # one line per kind reads best
    match record:
        case ARecord(spec=spec):
            texts = [*(spec.ipv4_addresses or ()), *([spec.ipv4_address] if spec.ipv4_address else ())]
            return A, [_address(socket.AF_INET, text, "ipv4Addresses") for text in texts]
        case AAAARecord(spec=spec):
            texts = [*(spec.ipv6_addresses or ()), *([spec.ipv6_address] if spec.ipv6_address else ())]
            return AAAA, [_address(socket.AF_INET6, text, "ipv6Addresses") for text in texts]
        case CNAMERecord(spec=spec):
            return CNAME, [_target(spec.target, "target")]
        case MXRecord(spec=spec):
            if spec.mail_server == "." and spec.priority:
                text = '"." (no mail) needs priority 0 (RFC 7505)'
                raise PlanError(text, reason="InvalidValue", field="spec.mailServer")
            return MX, [struct.pack("!H", spec.priority) + _name(spec.mail_server, "mailServer")]
        case TXTRecord(spec=spec):
            return TXT, _texts(spec)
        case NSRecord(spec=spec):
            return NS, [_target(spec.nameserver, "nameserver")]
        case SRVRecord(spec=spec):
            head = struct.pack("!3H", spec.priority, spec.weight, spec.port)
            return SRV, [head + _name(spec.target, "target")]
        case CAARecord(spec=spec):
            tag = spec.tag.encode()
            return CAA, [bytes([spec.flags, len(tag)]) + tag + spec.value.encode("ascii", "replace")]


def _address(family: socket.AddressFamily, text: str, field: str) -> bytes:
    try:
        return socket.inet_pton(family, text)
    except (OSError, ValueError):  # ValueError: a NUL character
        what = "IPv4" if family == socket.AF_INET else "IPv6"
        raise PlanError(f'"{text}" is not an {what} address', reason="InvalidValue", field=f"spec.{field}") from None


def _name(text: str, field: str) -> bytes:
    try:
        return name_of(text)
    except FormatError as error:
        raise PlanError(str(error), reason="InvalidValue", field=f"spec.{field}") from None


def _target(text: str, field: str) -> bytes:
    """A target that must not be the root."""
    if text == ".":
        raise PlanError('must be a host name, not "."', reason="InvalidValue", field=f"spec.{field}")
    return _name(text, field)


def _texts(spec: TXTRecord.Spec) -> list[bytes]:
    rows = [("text", spec.text)] if spec.text else []
    rows += [(f"values[{number}]", row) for number, row in enumerate(spec.values or ())]
    values = []
    for field, row in rows:
        value = b"".join(character_strings(item.encode()) for item in row)
        if len(value) > 65000:
            raise PlanError(
                f"{len(value)} bytes do not fit into one record", reason="InvalidValue", field=f"spec.{field}"
            )
        values.append(value)
    return values


def target_of(kind: int, value: bytes) -> bytes | None:
    """The target of an NS, MX or SRV value, which needs an address; None for other types."""
    return {NS: value, MX: value[2:], SRV: value[6:]}.get(kind)


def wire_size(key: Key, values: Iterable[bytes], zone: bytes) -> int:
    """The most bytes of an answer with these values, and of an update that adds them."""
    return sum(12 + len(value) for value in values) + len(key[0]) + len(zone) + 16


def parsed(kind: int, value: bytes) -> Any:
    """A value as dnspython's rdata; dns.exception.FormError when it is malformed."""
    return dns.rdata.from_wire(dns.rdataclass.IN, dns.rdatatype.RdataType.make(kind), value, 0, len(value))


def value_text(kind: int, value: bytes) -> str:
    """A value as a zone file has it."""
    try:
        if kind == A:  # nearly all values of a large zone: 0.5 us here, 26 us by dnspython
            return socket.inet_ntop(socket.AF_INET, value)
        return str(parsed(kind, value).to_text())
    except (dns.exception.DNSException, ValueError):  # as RFC 3597 writes data of an unknown type
        return f"\\# {len(value)} {value.hex()}"


def character_strings(data: bytes) -> bytes:
    """Data as the character-strings of a TXT value; what is longer than 255 bytes goes on in the next one."""
    parts = [data[start : start + 255] for start in range(0, len(data) or 1, 255)]
    return b"".join(bytes([len(part)]) + part for part in parts)
