"""`dns import`: manifests that publish the data of an existing zone, from a transfer of it. Pure.

Every manifest is read back as the operator reads it. Data that would not be published unchanged is left out with a
warning, and its name goes into the annotation `dns-drift-ignore`, so that the operator does not delete it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from glob import escape
from typing import TYPE_CHECKING, Any, Final

import dns.exception
import msgspec

from steersman.errors import PlanError
from steersman.operators.dns.api.config import DRIFT_IGNORE, GROUP, VERSION
from steersman.operators.dns.api.records import RECORD_KINDS
from steersman.operators.dns.zone.names import short_text, text_of
from steersman.operators.dns.zone.rdata import (
    AAAA,
    GENERATED,
    NS,
    A,
    Soa,
    contribution_of,
    parsed,
    type_name,
    value_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.operators.dns.zone.rdata import Key, RRset

API: Final = f"{GROUP}/{VERSION}"
LABEL: Final = f"{GROUP}/zone"
_KINDS: Final = {kind.KIND.kind: kind for kind in RECORD_KINDS}
_UNFIT: Final = re.compile(r"[^a-z0-9-]+")

Manifest = dict[str, Any]


def manifests_of(
    zone: bytes, soa: bytes, rrsets: Mapping[Key, RRset], *, namespace: str, selector: Mapping[str, str]
) -> tuple[list[Manifest], list[str]]:
    """The manifests of the zone and its records, and warnings about what they cannot express."""
    start, name = Soa.read(soa), text_of(zone).removesuffix(".")
    resource = _UNFIT.sub("-", name.lower()).strip("-")
    servers, said, ttl = _servers(zone, start, rrsets)
    spec = {
        "zoneName": name,
        "ttl": ttl,
        "soaRecord": {
            "primaryNs": text_of(start.primary),
            "adminEmail": text_of(start.mailbox),
            "serial": start.serial,
            "refresh": start.refresh,
            "retry": start.retry,
            "expire": start.expire,
            "negativeTtl": start.minimum,
        },
        "nameServers": servers,
        "recordsFrom": [{"selector": {"matchLabels": {LABEL: resource}}}],
        "bind9InstancesFrom": [{"selector": {"matchLabels": dict(selector)}}],
    }
    meta: Manifest = {"name": resource, "namespace": namespace}
    found: list[Manifest] = [{"apiVersion": API, "kind": "DNSZone", "metadata": meta, "spec": spec}]
    left: list[str] = []
    if start.primary not in (rrsets[b"", NS].values if (b"", NS) in rrsets else ()):
        left.append(f"{name}. NS: {text_of(start.primary)}, the primary of the SOA, becomes a name server")
    ignored: dict[str, None] = {}
    taken: set[str] = set()
    for (owner, kind), rrset in sorted(rrsets.items(), key=lambda item: item[0]):
        if kind in GENERATED or (rrset.ttl, rrset.values) == (ttl, said.get((owner, kind))):
            continue
        made = []
        for kind_name, body in _specs(kind, rrset):
            title = _title(resource, owner, kind_name, taken)
            labels = {"name": title, "namespace": namespace, "labels": {LABEL: resource}}
            spec_of = {"name": text_of(owner), "ttl": rrset.ttl, **body}
            made.append({"apiVersion": API, "kind": kind_name, "metadata": labels, "spec": spec_of})
        if _values_of(made, zone, (owner, kind)) == rrset.values:
            found += made
        else:
            left.append(f"{text_of(owner + zone)} {type_name(kind)} has no matching record kind and is left out")
            ignored[escape(short_text(owner, zone))] = None
    if ignored:
        meta["annotations"] = {DRIFT_IGNORE: ",".join(ignored)}
    return found, left


def _servers(
    zone: bytes, start: Soa, rrsets: Mapping[Key, RRset]
) -> tuple[list[Manifest], dict[Key, frozenset[bytes]], int]:
    """Name servers with one address per family, the RRsets that these express, and the zone's TTL: their longest.

    An RRset with a shorter TTL or more values gets a record of its own.
    """
    rows = []
    names = rrsets[b"", NS].values if (b"", NS) in rrsets else frozenset[bytes]()
    said: dict[Key, frozenset[bytes]] = {(b"", NS): names | {start.primary}}
    for value in sorted(names):
        row: Manifest = {"hostname": text_of(value)}
        owner = value[: -len(zone)] if value.endswith(zone) else None
        for kind, field in ((A, "ipv4Address"), (AAAA, "ipv6Address")):
            if owner is not None and (owner, kind) in rrsets:
                first = min(rrsets[owner, kind].values)
                row[field] = value_text(kind, first)
                said[owner, kind] = frozenset({first})
        rows.append(row)
    return rows, said, max((rrsets[key].ttl for key in said if key in rrsets), default=start.minimum)


def _values_of(manifests: list[Manifest], zone: bytes, key: Key) -> frozenset[bytes]:
    """The values that manifests would publish at a name and type."""
    values: frozenset[bytes] = frozenset()
    for manifest in manifests:
        with suppress(PlanError, msgspec.ValidationError):
            record = msgspec.convert(manifest, _KINDS[manifest["kind"]])
            part = contribution_of(record, "", zone)
            if part.key == key:
                values |= part.values
    return values


def _title(zone: str, owner: bytes, kind: str, taken: set[str]) -> str:
    label = _UNFIT.sub("-", text_of(owner).lower().replace("*", "any").replace("@", "apex")).strip("-") or "x"
    base = f"{zone}-{label}-{kind.removesuffix('Record').lower()}"[:240].strip("-")
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    taken.add(name)
    return name


def _specs(kind: int, rrset: RRset) -> list[tuple[str, Manifest]]:  # noqa: PLR0911  # one line per type
    """The records that would publish an RRset, as kind and fields; none for other types and malformed values."""
    try:
        rows = [parsed(kind, value) for value in sorted(rrset.values)]
    except dns.exception.DNSException:
        return []
    match kind:
        case 1:
            return [("ARecord", {"ipv4Addresses": [row.address for row in rows]})]
        case 28:
            return [("AAAARecord", {"ipv6Addresses": [row.address for row in rows]})]
        case 5:
            return [("CNAMERecord", {"target": rows[0].target.to_text()})]
        case 2:
            return [("NSRecord", {"nameserver": row.target.to_text()}) for row in rows]
        case 15:
            return [("MXRecord", {"priority": row.preference, "mailServer": row.exchange.to_text()}) for row in rows]
        case 33:
            return [("SRVRecord", {**_numbers(row), "target": row.target.to_text()}) for row in rows]
        case 16:
            texts = [[part.decode("utf-8", "replace") for part in row.strings] for row in rows]
            return [("TXTRecord", {"values": texts})]
        case 257:
            return [
                ("CAARecord", {"flags": row.flags, "tag": _ascii(row.tag), "value": _ascii(row.value)}) for row in rows
            ]
    return []


def _numbers(row: Any) -> Manifest:
    return {"priority": row.priority, "weight": row.weight, "port": row.port}


def _ascii(data: bytes) -> str:
    return data.decode("ascii", "replace")
