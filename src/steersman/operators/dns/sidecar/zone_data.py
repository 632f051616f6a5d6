"""The data of a zone: between the sidecar's JSON and RRsets. Pure.

Values are text as in a zone file, and dnspython parses them: text that is not exactly one value of its type is
rejected, so it can never become another line of a zone file.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import dns.exception
import dns.name
import dns.rdata

from steersman.errors import FormatError
from steersman.operators.dns.sidecar.messages import DnsRecord, SoaRecord, ZoneConfig
from steersman.operators.dns.zone.names import is_absolute, name_of, owner_in, owner_of, text_of
from steersman.operators.dns.zone.rdata import (
    AAAA,
    CAA,
    CNAME,
    MX,
    NS,
    PTR,
    SRV,
    TXT,
    A,
    RRset,
    Soa,
    character_strings,
    type_name,
    value_text,
)
from steersman.operators.dns.zone.soa import mailbox_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.operators.dns.zone.rdata import Key

KINDS: Final = {
    "A": A, "AAAA": AAAA, "CNAME": CNAME, "MX": MX, "TXT": TXT, "NS": NS, "PTR": PTR, "SRV": SRV, "CAA": CAA,
}  # fmt: skip
PRIORITISED: Final = (MX, SRV)  # types whose first number is a field of its own
ABSOLUTE: Final = (CNAME, MX, NS, PTR)


# -- from JSON --------------------------------------------------------------------------------------------------------


def read_zone(zone: bytes, config: ZoneConfig, now: float) -> tuple[Soa, dict[Key, RRset]]:
    """The SOA and the RRsets of a new zone; FormatError names the field."""
    if config.soa is None:
        raise FormatError("soa: required for a primary zone")
    found: dict[Key, tuple[int, set[bytes]]] = {}

    def add(key: Key, ttl: int, value: bytes) -> None:
        least, values = found.get(key, (ttl, set()))
        values.add(value)
        found[key] = (min(least, ttl), values)

    for text in config.name_servers or ():
        add((b"", NS), config.ttl, _name(text, zone, "nameServers"))
    for host, address in (config.name_server_ips or {}).items():
        owner = owner_in(_name(host, zone, "nameServerIps"), zone)
        if owner is not None:  # addresses of name servers outside the zone are not part of it
            kind = AAAA if ":" in address else A
            add((owner, kind), config.ttl, value_of(kind, address, None, zone))
    for number, record in enumerate(config.records or ()):
        try:
            key = key_of(record.name, record.type, zone)
            value = value_of(key[1], record.value, record.priority, zone)
            add(key, config.ttl if record.ttl is None else record.ttl, value)
        except FormatError as error:
            raise FormatError(f"records[{number}]: {error}") from None
    return _soa(config.soa, zone, now), {key: RRset(ttl, frozenset(values)) for key, (ttl, values) in found.items()}


def key_of(name: str, kind: str, zone: bytes) -> Key:
    """The key of a record: `@`, a relative name, or an absolute name with or without its final dot."""
    number = KINDS.get(kind.upper())
    if number is None:
        raise FormatError(f'type: "{kind[:16]}" is not one of {", ".join(KINDS)}')
    _plain(name, "name")
    whole = text_of(zone).removesuffix(".")
    if not is_absolute(name) and (name.lower() == whole or name.lower().endswith(f".{whole}")):
        name += "."
    return owner_of(name, zone), number


def value_of(kind: int, text: str, priority: int | None, zone: bytes, *, absolute: bool = False) -> bytes:
    """A value of a type; `absolute`: names in it must be absolute."""
    _plain(text, "value")
    if kind in PRIORITISED and priority is not None:
        text = f"{priority} {text}"
    if kind == TXT and not text.lstrip().startswith('"'):
        return character_strings(text.encode())
    if absolute and kind in ABSOLUTE and not is_absolute(text):
        raise FormatError(f'value: "{text[:80]}" must be an absolute name with a final dot')
    origin = dns.name.from_text(text_of(zone))
    try:
        made = dns.rdata.from_text("IN", type_name(kind), text, origin, relativize=False)
        return bytes(made.to_digestable(origin))
    except (dns.exception.DNSException, ValueError, OverflowError) as error:
        raise FormatError(
            f'value: "{text[:80]}" is not a valid {type_name(kind)} value ({str(error) or type(error).__name__})'
        ) from None


def _soa(asked: SoaRecord, zone: bytes, now: float) -> Soa:
    serial = int(time.strftime("%Y%m%d01", time.gmtime(now))) if asked.serial is None else asked.serial
    try:
        _plain(asked.admin_email, "adminEmail")
        mailbox = mailbox_of(asked.admin_email)
    except FormatError as error:
        raise FormatError(f"soa.adminEmail: {error}") from None
    primary = _name(asked.primary_ns, zone, "soa.primaryNs")
    return Soa(primary, mailbox, serial, asked.refresh, asked.retry, asked.expire, asked.negative_ttl)


def _name(text: str, zone: bytes, field: str) -> bytes:
    """A name; without a final dot it is relative to the zone, as in a zone file."""
    try:
        _plain(text, field)
        return name_of(text) if is_absolute(text) else owner_of(text, zone) + zone
    except FormatError as error:
        raise FormatError(f"{field}: {error}") from None


def _plain(text: str, field: str) -> None:
    if not all(sign.isprintable() for sign in text) or not text.strip():
        raise FormatError(f"{field}: empty, or contains control characters")


# -- to JSON ----------------------------------------------------------------------------------------------------------


def zone_config(soa: Soa, rrsets: Mapping[Key, RRset], ttl: int) -> ZoneConfig:
    """A whole zone with the fields of the original."""
    servers = rrsets.get((b"", NS))
    plain = servers is not None and servers.ttl == ttl  # else the TTL needs records of their own
    return ZoneConfig(
        ttl=ttl,
        soa=SoaRecord(
            primary_ns=text_of(soa.primary),
            admin_email=text_of(soa.mailbox),
            serial=soa.serial,
            refresh=soa.refresh,
            retry=soa.retry,
            expire=soa.expire,
            negative_ttl=soa.minimum,
        ),
        name_servers=[text_of(host) for host in sorted(servers.values)] if servers is not None and plain else [],
        name_server_ips={},
        records=list(_records(rrsets, skip=(b"", NS) if plain else None)),
    )


def _records(rrsets: Mapping[Key, RRset], skip: Key | None) -> Iterable[DnsRecord]:
    for key, rrset in sorted(rrsets.items(), key=lambda item: item[0]):
        owner, kind = key
        if key == skip:
            continue
        for value in sorted(rrset.values):
            text, priority = value_text(kind, value), None
            if kind in PRIORITISED:
                first, _, text = text.partition(" ")
                priority = int(first)
            yield DnsRecord(name=text_of(owner), type=type_name(kind), value=text, ttl=rrset.ttl, priority=priority)
