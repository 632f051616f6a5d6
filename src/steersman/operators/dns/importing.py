"""Manifests from a zone that exists. Pure: from a transfer to the objects that would publish the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from steersman.operators.dns.names import text_of
from steersman.operators.dns.rrsets import GENERATED, NS, A, Soa, value_text
from steersman.operators.dns.types import GROUP, VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.operators.dns.rrsets import Key, RRset

__all__ = ["manifests_of"]

API: Final = f"{GROUP}/{VERSION}"
LABEL: Final = f"{GROUP}/zone"
_UNFIT: Final = re.compile(r"[^a-z0-9-]+")

Manifest = dict[str, Any]


def manifests_of(
    zone: bytes, soa: bytes, rrsets: Mapping[Key, RRset], *, namespace: str, selector: Mapping[str, str]
) -> tuple[list[Manifest], list[str]]:
    """The zone and its records, and what has no kind here."""
    start, name = Soa.read(soa), text_of(zone).removesuffix(".")
    resource = _UNFIT.sub("-", name.lower()).strip("-")
    glue = {owner: rrset for (owner, kind), rrset in rrsets.items() if kind == A}
    servers = []
    for value in sorted(rrsets[b"", NS].values if (b"", NS) in rrsets else ()):
        row: Manifest = {"hostname": text_of(value)}
        owner = value[: -len(zone)] if value.endswith(zone) else None
        if owner is not None and owner in glue and len(glue[owner].values) == 1:
            row["ipv4Address"] = value_text(A, next(iter(glue[owner].values)))
        servers.append(row)
    shown = {row["hostname"] for row in servers if "ipv4Address" in row}
    spec = {
        "zoneName": name,
        "ttl": start.minimum,
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
    found = [
        {"apiVersion": API, "kind": "DNSZone", "metadata": {"name": resource, "namespace": namespace}, "spec": spec}
    ]
    left: list[str] = []
    taken: set[str] = set()
    for (owner, kind), rrset in sorted(rrsets.items(), key=lambda item: item[0]):
        if kind in GENERATED or (kind == NS and not owner) or (kind == A and text_of(owner + zone) in shown):
            continue
        rows = _specs(kind, rrset)
        if rows is None:
            left.append(f"{text_of(owner + zone)} TYPE{kind}")
            continue
        for kind_name, body in rows:
            title = _title(resource, owner, kind_name, taken)
            meta = {"name": title, "namespace": namespace, "labels": {LABEL: resource}}
            spec_of = {"name": text_of(owner), "ttl": rrset.ttl, **body}
            found.append({"apiVersion": API, "kind": kind_name, "metadata": meta, "spec": spec_of})
    return found, left


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
