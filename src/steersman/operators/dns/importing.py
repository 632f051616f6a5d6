"""Manifests from a zone that exists. Pure: from a transfer to the objects that would publish the same.

Every object is read again as the operator will read it: what would not come out as it went in is left out and said, and
its name is put under `dns-drift-ignore`, so that nothing of it is deleted.
"""

from __future__ import annotations

import re
from contextlib import suppress
from glob import escape
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.errors import PlanError
from steersman.operators.dns.names import short_text, text_of
from steersman.operators.dns.recordkinds import RECORD_KINDS
from steersman.operators.dns.rrsets import AAAA, GENERATED, NS, A, Soa, contribution_of, type_name, value_text
from steersman.operators.dns.types import DRIFT_IGNORE, GROUP, VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.operators.dns.rrsets import Key, RRset

__all__ = ["manifests_of"]

API: Final = f"{GROUP}/{VERSION}"
LABEL: Final = f"{GROUP}/zone"
_KINDS: Final = {kind.KIND.kind: kind for kind in RECORD_KINDS}
_UNFIT: Final = re.compile(r"[^a-z0-9-]+")

Manifest = dict[str, Any]


def manifests_of(
    zone: bytes, soa: bytes, rrsets: Mapping[Key, RRset], *, namespace: str, selector: Mapping[str, str]
) -> tuple[list[Manifest], list[str]]:
    """The zone and its records, and what they cannot say."""
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
        left.append(f"{name}. NS: {text_of(start.primary)}, the primary of its SOA, becomes a name server")
    ignored: dict[str, None] = {}
    taken: set[str] = set()
    for (owner, kind), rrset in sorted(rrsets.items(), key=lambda item: item[0]):
        if kind in GENERATED or (rrset.ttl, rrset.values) == (ttl, said.get((owner, kind))):
            continue
        made = []
        for kind_name, body in _specs(kind, rrset) or ():
            title = _title(resource, owner, kind_name, taken)
            labels = {"name": title, "namespace": namespace, "labels": {LABEL: resource}}
            spec_of = {"name": text_of(owner), "ttl": rrset.ttl, **body}
            made.append({"apiVersion": API, "kind": kind_name, "metadata": labels, "spec": spec_of})
        if _values_of(made, zone, (owner, kind)) == rrset.values:
            found += made
        else:
            left.append(f"{text_of(owner + zone)} {type_name(kind)} cannot be said by a record and is left out")
            ignored[escape(short_text(owner, zone))] = None
    if ignored:
        meta["annotations"] = {DRIFT_IGNORE: ",".join(ignored)}
    return found, left


def _servers(
    zone: bytes, start: Soa, rrsets: Mapping[Key, RRset]
) -> tuple[list[Manifest], dict[Key, frozenset[bytes]], int]:
    """Name servers with an address of each family, what the zone says by that, and its TTL: the longest of these.

    Where one of them lives shorter or has more values, a record says so beside it.
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
    """What records would publish at a name and type, as far as the operator reads them."""
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


def _specs(kind: int, rrset: RRset) -> list[tuple[str, Manifest]] | None:  # noqa: PLR0911  # one line per type
    values = sorted(rrset.values)
    texts = [value_text(kind, value) for value in values]
    match kind:
        case 1:
            return [("ARecord", {"ipv4Addresses": texts})]
        case 28:
            return [("AAAARecord", {"ipv6Addresses": texts})]
        case 5:
            return [("CNAMERecord", {"target": texts[0]})]
        case 2:
            return [("NSRecord", {"nameserver": text}) for text in texts]
        case 15:
            return [("MXRecord", {"priority": int(t.split()[0]), "mailServer": t.split()[1]}) for t in texts]
        case 33:
            return [("SRVRecord", _srv(text)) for text in texts]
        case 16:
            return [("TXTRecord", {"values": [_strings(value) for value in values]})]
        case 257:
            return [("CAARecord", _caa(value)) for value in values]
    return None


def _srv(text: str) -> Manifest:
    priority, weight, port, target = text.split()
    return {"priority": int(priority), "weight": int(weight), "port": int(port), "target": target}


def _strings(value: bytes) -> list[str]:
    parts, place = [], 0
    while place < len(value):
        parts.append(value[place + 1 : place + 1 + value[place]].decode("utf-8", "replace"))
        place += value[place] + 1
    return parts


def _caa(value: bytes) -> Manifest:
    end = 2 + value[1]
    return {"flags": value[0], "tag": value[2:end].decode(), "value": value[end:].decode("ascii", "replace")}
