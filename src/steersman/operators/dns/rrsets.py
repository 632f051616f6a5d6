"""Resource records as data: an RRset is a TTL and a set of values, each in its wire form.

Values are made byte by byte from typed fields and turned into zone-file text only through escapes, so there is no text
in between that could be read as anything else. Names inside values are lower case, so equal data has equal bytes.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.errors import FormatError, PlanError
from steersman.operators.dns.names import name_of, owner_of, text_of
from steersman.operators.dns.recordkinds import (
    AAAARecord,
    ARecord,
    CAARecord,
    CNAMERecord,
    MXRecord,
    NSRecord,
    SRVRecord,
    TXTRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.dns.recordkinds import Record

__all__ = [
    "AAAA",
    "CAA",
    "CNAME",
    "DNSKEY",
    "DS",
    "GENERATED",
    "MX",
    "NS",
    "PTR",
    "SOA",
    "SRV",
    "TXT",
    "TYPES",
    "TYPE_OF",
    "A",
    "Contribution",
    "Key",
    "RRset",
    "Soa",
    "contribution_of",
    "target_of",
    "type_name",
    "value_text",
    "wire_size",
]

A, NS, CNAME, SOA, PTR, MX, TXT, AAAA, SRV, DS, DNSKEY, CAA = 1, 2, 5, 6, 12, 15, 16, 28, 33, 43, 48, 257
TYPES: Final = {
    A: "A", NS: "NS", CNAME: "CNAME", SOA: "SOA", PTR: "PTR", MX: "MX", TXT: "TXT", AAAA: "AAAA", SRV: "SRV", DS: "DS",
    46: "RRSIG", 47: "NSEC", DNSKEY: "DNSKEY", 50: "NSEC3", 51: "NSEC3PARAM", 59: "CDS", 60: "CDNSKEY", CAA: "CAA",
}  # fmt: skip
GENERATED: Final = frozenset({46, 47, DNSKEY, 50, 51, 59, 60, 65534})  # what named itself adds to a signed zone

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
    """What one resource adds to a zone."""

    source: str  # arecord/NAME
    key: Key
    ttl: int | None
    values: frozenset[bytes]
    since: str = ""  # when the resource was created


class Soa(msgspec.Struct, frozen=True):
    """The start of authority of a zone."""

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
        """The start of authority in a value."""
        first = _name_end(value, 0)
        second = _name_end(value, first)
        return cls(value[:first], value[first:second], *struct.unpack("!5I", value[second : second + 20]))


def _name_end(value: bytes, place: int) -> int:
    while value[place]:
        place += value[place] + 1
    return place + 1


def type_name(number: int) -> str:
    """What people call a type."""
    return TYPES.get(number, f"TYPE{number}")


def contribution_of(record: Record, source: str, zone: bytes) -> Contribution:
    """What `record` adds to `zone`; PlanError names the field that is wrong."""
    spec = record.spec
    try:
        owner = owner_of(spec.name, zone)
    except FormatError as error:
        raise PlanError(
            str(error), reason="OutOfZone" if "outside" in str(error) else "InvalidName", field="spec.name"
        ) from None
    kind, values = _values(record)
    if kind == NS and owner.startswith(b"\x01*"):  # servers say yes to it, and ignore it
        raise PlanError("a wildcard cannot be delegated (RFC 4592, 4.2)", reason="InvalidName", field="spec.name")
    if not values:  # the schema refuses that, where the server knows rules
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
    except OSError:
        what = "IPv4" if family == socket.AF_INET else "IPv6"
        raise PlanError(f'"{text}" is not an {what} address', reason="InvalidValue", field=f"spec.{field}") from None


def _name(text: str, field: str) -> bytes:
    try:
        return name_of(text)
    except FormatError as error:
        raise PlanError(str(error), reason="InvalidValue", field=f"spec.{field}") from None


def _target(text: str, field: str) -> bytes:
    """A name that has to be somebody's."""
    if text == ".":
        raise PlanError("must be a name", reason="InvalidValue", field=f"spec.{field}")
    return _name(text, field)


def _texts(spec: TXTRecord.Spec) -> list[bytes]:
    rows = [("text", spec.text)] if spec.text else []
    rows += [(f"values[{number}]", row) for number, row in enumerate(spec.values or ())]
    values = []
    for field, row in rows:
        value = bytearray()
        for item in row:
            data = item.encode()
            for start in range(0, len(data) or 1, 255):  # longer strings are continued in the next one
                part = data[start : start + 255]
                value.append(len(part))
                value += part
        if len(value) > 65000:
            raise PlanError(
                f"{len(value)} bytes do not fit into one record", reason="InvalidValue", field=f"spec.{field}"
            )
        values.append(bytes(value))
    return values


def target_of(kind: int, value: bytes) -> bytes | None:
    """The name that a value points to, if it is one of those that need an address."""
    return {NS: value, MX: value[2:], SRV: value[6:]}.get(kind)


def wire_size(key: Key, values: Iterable[bytes], zone: bytes) -> int:
    """How many bytes an answer with these values has at most, and an update that brings them."""
    return sum(12 + len(value) for value in values) + len(key[0]) + len(zone) + 16


def value_text(kind: int, value: bytes) -> str:  # noqa: PLR0911  # one line per type reads best
    """A value as a zone file has it."""
    match kind:
        case 1:
            return socket.inet_ntop(socket.AF_INET, value)
        case 28:
            return socket.inet_ntop(socket.AF_INET6, value)
        case 2 | 5 | 12:
            return text_of(value)
        case 15:
            return f"{int.from_bytes(value[:2])} {text_of(value[2:])}"
        case 16:
            return " ".join(_quoted(part) for part in _strings(value))
        case 33:
            return f"{' '.join(map(str, struct.unpack('!3H', value[:6])))} {text_of(value[6:])}"
        case 257:
            end = 2 + value[1]
            return f"{value[0]} {value[2:end].decode()} {_quoted(value[end:])}"
        case 6:
            soa = Soa.read(value)
            numbers = f"{soa.serial} {soa.refresh} {soa.retry} {soa.expire} {soa.minimum}"
            return f"{text_of(soa.primary)} {text_of(soa.mailbox)} {numbers}"
    return f"\\# {len(value)} {value.hex()}"


def _strings(value: bytes) -> list[bytes]:
    parts, place = [], 0
    while place < len(value):
        parts.append(value[place + 1 : place + 1 + value[place]])
        place += value[place] + 1
    return parts


def _quoted(data: bytes) -> str:
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\;' else f"\\{b:03d}" for b in data) + '"'
