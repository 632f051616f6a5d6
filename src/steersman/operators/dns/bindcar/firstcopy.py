"""A new zone for a sidecar that does not take all of it at once: what it takes, and updates that bring the rest. Pure.

The original refuses names other than plain ones and bodies of more than 2 MB, and its zones check the names of hosts.
So a zone begins there with what is plain, at an earlier serial, and the rest follows at once in updates that end at the
serial it should have.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from steersman.operators.dns.messages import Change, pieces
from steersman.operators.dns.names import owner_in, text_of
from steersman.operators.dns.rrsets import AAAA, MX, NS, PTR, SRV, A, value_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.operators.dns.rrsets import Key, RRset, Soa

__all__ = ["first_part", "remaining_updates"]

LARGEST: Final = 25_000  # values; about 2 MB of JSON
_PLAIN: Final = re.compile(r"[A-Za-z0-9.*_-]+\Z")
HOSTS: Final = frozenset({A, AAAA, MX})  # whose owners must be names of hosts
TARGETS: Final = frozenset({MX, NS, PTR, SRV})  # whose values end in the name of one


def first_part(zone: bytes, soa: Soa, rrsets: Mapping[Key, RRset]) -> tuple[Soa, dict[Key, RRset]]:
    """The start of authority and the RRsets that any sidecar takes; those without which there is no zone, if many."""
    kept = {key: rrset for key, rrset in rrsets.items() if _is_plain(key, rrset)}
    if sum(len(rrset.values) for rrset in kept.values()) > LARGEST:
        servers = kept.get((b"", NS))
        hosts = {owner_in(host, zone) for host in (servers.values if servers is not None else ())}
        kept = {
            key: rrset for key, rrset in kept.items() if key == (b"", NS) or (key[0] in hosts and key[1] in (A, AAAA))
        }
    names = {"primary": soa.primary, "mailbox": soa.mailbox}
    plain = {field: name if _PLAIN.match(text_of(name)) else zone for field, name in names.items()}
    return replace(soa, **plain), kept


def remaining_updates(
    soa: Soa, first: Mapping[Key, RRset], rrsets: Mapping[Key, RRset]
) -> tuple[Soa, list[tuple[Soa, list[Change]]]]:
    """The serial to begin with, as a start of authority, and the updates that follow, each with the one it ends at."""
    left = [Change(key, None, rrsets[key]) for key in rrsets.keys() - first.keys()]
    chunks = pieces(left) or [[]]
    serials = [_before(soa.serial, steps) for steps in range(len(chunks), -1, -1)]
    updates = [(replace(soa, serial=serial), chunk) for serial, chunk in zip(serials[1:], chunks, strict=True)]
    return replace(soa, serial=serials[0]), updates


def _is_plain(key: Key, rrset: RRset) -> bool:
    owner, kind = key
    if owner and not _PLAIN.match(text_of(owner)):
        return False
    texts = [text_of(owner)] if owner and kind in HOSTS else []
    if kind in TARGETS:
        targets = [value_text(kind, value).rpartition(" ")[2] for value in rrset.values]
        if not all(_PLAIN.match(target) for target in targets):
            return False
        texts += targets
    return not any("_" in text for text in texts)


def _before(serial: int, steps: int) -> int:
    """The serial so many steps earlier; 0 is left out, as everywhere.

    >>> _before(3, 2), _before(3, 3), _before(3, 4)
    (1, 4294967295, 4294967294)
    """
    found = serial - steps
    return found % 2**32 if found > 0 else (found - 1) % 2**32
