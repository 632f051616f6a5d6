"""What a DNSZone declares itself: start of authority, name servers and glue. Pure."""

from __future__ import annotations

import re
import socket
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from steersman.errors import FormatError, PlanError
from steersman.operators.dns.api.config import ADOPT, DRIFT_IGNORE
from steersman.operators.dns.zone.catalog import catalog_parts
from steersman.operators.dns.zone.conflicts import ZONE
from steersman.operators.dns.zone.names import name_of, owner_in, short_text
from steersman.operators.dns.zone.rdata import AAAA, NS, A, Contribution, Soa

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.dns.api.zone import DNSZone
    from steersman.operators.dns.zone.rdata import Key

_ADDRESS: Final = re.compile(r"[0-9.]+")
_HOST: Final = re.compile(r"([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)+")


def zone_name(zone: DNSZone) -> bytes:
    """The zone's name; PlanError when it cannot be one."""
    if _ADDRESS.fullmatch(zone.spec.zone_name):
        raise PlanError("must be a name, not an address", reason="InvalidName", field="spec.zoneName")
    try:
        return name_of(zone.spec.zone_name)
    except FormatError as error:
        raise PlanError(str(error), reason="InvalidName", field="spec.zoneName") from None


def _host(text: str, field: str) -> str:
    """The name of a server; PlanError when it cannot be one. Of keys of a mapping no schema says what they may be."""
    if not _HOST.fullmatch(text if text.endswith(".") or "." not in text else f"{text}."):
        raise PlanError(f'"{text}" is not the whole name of a server', reason="InvalidSOA", field=field)
    return text


def ignored_names(zone: DNSZone) -> tuple[str, ...]:
    """The names that belong to others, as patterns."""
    return tuple(part.strip() for part in zone.annotations.get(DRIFT_IGNORE, "").split(",") if part.strip())


def has_adopt_annotation(zone: DNSZone) -> bool:
    """Whether the zone's annotation says that its resources decide about all data its servers have."""
    return zone.annotations.get(ADOPT, "").strip().lower() == "true"


def is_ignored(key: Key, zone: bytes, patterns: Iterable[str]) -> bool:
    """Whether a name, or its first label, is one of those."""
    name = short_text(key[0], zone)
    return any(fnmatchcase(name, pattern) or fnmatchcase(name.partition(".")[0], pattern) for pattern in patterns)


def soa_of(zone: DNSZone, serial: int) -> Soa:
    """The start of authority with a serial; PlanError when the zone's cannot be one."""
    soa = zone.spec.soa_record
    try:
        primary, mailbox = name_of(soa.primary_ns), mailbox_of(soa.admin_email)
    except FormatError as error:
        raise PlanError(str(error), reason="InvalidSOA", field="spec.soaRecord") from None
    return Soa(primary, mailbox, serial, soa.refresh, soa.retry, soa.expire, soa.negative_ttl)


def mailbox_of(text: str) -> bytes:
    """A mailbox as a name: the first label is the part before the @, whatever dots it has."""
    if "@" not in text:
        return name_of(text)
    user, _, host = text.partition("@")
    return name_of(f"{user.replace(chr(92) + '.', '.').replace('.', chr(92) + '.')}.{host}")


def own_contributions(zone: DNSZone, name: bytes, addresses: Iterable[str] = ()) -> list[Contribution]:
    """Name servers and their addresses. `addresses` are those of the servers themselves, for a zone that says none.

    The primary of the start of authority is always a name server. A zone that has no usable one could not be served
    at all; then its primary gets the addresses of the servers, which is what asking them would have shown anyway.
    """
    servers = {name_of(_host(zone.spec.soa_record.primary_ns, "spec.soaRecord.primaryNs"))}
    glue: dict[tuple[bytes, int], set[bytes]] = {}

    def add(host: bytes, text: str | None) -> None:
        owner = owner_in(host, name)
        if text and owner is not None:
            family, kind = (socket.AF_INET6, AAAA) if ":" in text else (socket.AF_INET, A)
            try:
                glue.setdefault((owner, kind), set()).add(socket.inet_pton(family, text))
            except (OSError, ValueError):  # ValueError: a NUL character
                raise PlanError(f'"{text}" is not an address', reason="InvalidSOA", field="spec.nameServers") from None

    try:
        for row in zone.spec.name_servers or ():
            host = name_of(_host(row.hostname, "spec.nameServers"))
            servers.add(host)
            add(host, row.ipv4_address)
            add(host, row.ipv6_address)
        for hostname, address in (zone.spec.name_server_ips or {}).items():
            host = name_of(_host(hostname, "spec.nameServerIps"))
            servers.add(host)
            add(host, address)
    except FormatError as error:
        raise PlanError(str(error), reason="InvalidSOA", field="spec.nameServers") from None
    if not glue and all(owner_in(host, name) is not None for host in servers):
        for address in addresses:
            add(name_of(zone.spec.soa_record.primary_ns), address)
    parts = [Contribution(ZONE, (b"", NS), None, frozenset(servers)), *catalog_parts(zone.spec.catalog)]
    return [*parts, *(Contribution(ZONE, key, None, frozenset(values)) for key, values in sorted(glue.items()))]
