"""How a signed zone is signed, and what its parent needs: the DS records, from the keys that the server serves."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from steersman.operators.dns.rrsets import DNSKEY
from steersman.operators.dns.zonekinds import DnssecStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DNSKEY", "SIGNING", "ds_of", "is_signed_with", "key_tag", "status_of_keys"]

SECURE_ENTRY: Final = 0x0001
ALGORITHMS: Final = {
    8: "RSASHA256",
    10: "RSASHA512",
    13: "ECDSAP256SHA256",
    14: "ECDSAP384SHA384",
    15: "ED25519",
    16: "ED448",
}
SHA256: Final = 2
SIGNING: Final = 65534  # the type in which named keeps how far it is with signing


def key_tag(key: bytes) -> int:
    """The number of a key (RFC 4034, appendix B)."""
    total = sum(byte << 8 if place % 2 == 0 else byte for place, byte in enumerate(key))
    return (total + (total >> 16)) & 0xFFFF


def ds_of(zone: bytes, key: bytes) -> str:
    """The DS record of a key, as the parent's zone file has it."""
    return f"{key_tag(key)} {key[3]} {SHA256} {hashlib.sha256(zone + key).hexdigest()}"


def is_signed_with(tags: Iterable[int], keys: Iterable[bytes], progress: Iterable[bytes]) -> bool:
    """Whether a zone shows these keys and is signed to its end; `progress` is what named says about that.

    >>> is_signed_with([1], [], [])
    False
    """
    ended = all(len(row) == 5 and row[4] for row in progress)  # longer ones: a chain of names is being made
    return ended and set(tags) <= {key_tag(key) for key in keys}


def status_of_keys(zone: bytes, keys: Iterable[bytes]) -> DnssecStatus:
    """What a zone says about its keys: those that the parent refers to."""
    entries = sorted(key for key in keys if int.from_bytes(key[:2]) & SECURE_ENTRY)
    if not entries:
        return DnssecStatus()
    return DnssecStatus(
        signed=True,
        ds_records=[ds_of(zone, key) for key in entries],
        key_tag=key_tag(entries[0]),
        algorithm=ALGORITHMS.get(entries[0][3], str(entries[0][3])),
    )
