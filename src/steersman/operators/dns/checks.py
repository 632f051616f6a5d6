"""What `dns check` finds beyond what is published: signatures that are about to end, and delegations that do not hold.

Pure: it compares data that somebody else has read. A delegation is compared where its parent is a zone of ours too;
what the rest of the world says about a zone is not asked for here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.kube.times import format_time
from steersman.operators.dns.names import owner_in, text_of
from steersman.operators.dns.rrsets import AAAA, NS, A

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.dns.compiler import Draft

__all__ = ["RRSIG", "delegation_problems", "parent_of", "signature_problems"]

RRSIG: Final = 46
SOON: Final = 3 * 86400.0  # seconds; named makes signatures anew five days before they end
_HALF: Final = 1 << 31


def signature_problems(signatures: Iterable[bytes], now: float) -> list[str]:
    """What is wrong with the signatures at a signed zone's own name."""
    ends = [_moment(int.from_bytes(value[8:12]), now) for value in signatures]
    if not ends:
        return ["it serves no signatures"]
    first = min(ends)
    if first <= now:
        return [f"signatures ended at {format_time(first)}: the zone is bogus to whoever validates"]
    return [f"signatures end at {format_time(first)} and are not made anew"] if first - now < SOON else []


def _moment(stamp: int, now: float) -> float:
    """A time of 32 bits, read as the moment nearest to now (RFC 4034, 3.1.5)."""
    base = int(now)
    return float(base + (stamp - base + _HALF) % (1 << 32) - _HALF)


def parent_of(zone: bytes, zones: Iterable[bytes]) -> bytes | None:
    """The nearest of `zones` above a zone."""
    above = [one for one in zones if one != zone and owner_in(zone, one) is not None]
    return max(above, key=len, default=None)


def delegation_problems(child: Draft, parent: Draft) -> list[str]:
    """Where what the parent says about a zone is not what the zone says about itself."""
    owner = owner_in(child.zone, parent.zone)
    assert owner is not None
    own = child.rrsets.get((b"", NS))
    told = parent.rrsets.get((owner, NS))
    above = text_of(parent.zone)
    if told is None:
        return [f"{above} does not delegate it (make an NSRecord there)"]
    found = []
    if own is not None and own.values != told.values:
        names = {what: ", ".join(sorted(map(text_of, rrset.values))) for what, rrset in (("own", own), ("told", told))}
        found.append(f"{above} names {names['told']}, the zone itself {names['own']}")
    for host in sorted(told.values):
        glue = owner_in(host, parent.zone)
        if owner_in(host, child.zone) is not None and not any((glue, kind) in parent.rrsets for kind in (A, AAAA)):
            found.append(f"{above} has no address of {text_of(host)}, which lies in the zone itself")
    return found
