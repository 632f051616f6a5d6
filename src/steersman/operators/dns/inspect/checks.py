"""Checks of `dns check` beyond the published data: signatures that expire soon, and delegations that do not match.

Pure: they compare data that `offline` has read. A delegation is checked when the parent is a DNSZone too; other name
servers of the world are not queried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.kube.api.times import format_time
from steersman.operators.dns.zone.names import owner_in, text_of
from steersman.operators.dns.zone.rdata import AAAA, NS, A, parsed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.dns.zone.compiler import CompiledZone

RRSIG: Final = 46
SOON: Final = 3 * 86400.0  # seconds; named renews signatures five days before they expire
_HALF: Final = 1 << 31


def signature_problems(signatures: Iterable[bytes], now: float) -> list[str]:
    """The problems of the signatures at the apex of a signed zone."""
    ends = [_moment(parsed(RRSIG, value).expiration, now) for value in signatures]
    if not ends:
        return ["the server serves no signatures"]
    first = min(ends)
    if first <= now:
        return [f"signatures expired at {format_time(first)}: validating resolvers reject the zone"]
    return [f"signatures expire at {format_time(first)} and are not renewed"] if first - now < SOON else []


def _moment(stamp: int, now: float) -> float:
    """A timestamp of 32 bits as the time nearest to now (RFC 4034, 3.1.5)."""
    base = int(now)
    return float(base + (stamp - base + _HALF) % (1 << 32) - _HALF)


def parent_of(zone: bytes, zones: Iterable[bytes]) -> bytes | None:
    """The nearest of `zones` above a zone."""
    above = [other for other in zones if other != zone and owner_in(zone, other) is not None]
    return max(above, key=len, default=None)


def delegation_problems(child: CompiledZone, parent: CompiledZone) -> list[str]:
    """Where the parent's delegation differs from the zone's own name servers."""
    owner = owner_in(child.zone, parent.zone)
    assert owner is not None
    own = child.rrsets.get((b"", NS))
    delegated = parent.rrsets.get((owner, NS))
    above = text_of(parent.zone)
    if delegated is None:
        return [f"{above} has no delegation for it (create an NSRecord there)"]
    found = []
    if own is not None and own.values != delegated.values:
        listed = [", ".join(sorted(map(text_of, rrset.values))) for rrset in (delegated, own)]
        found.append(f"{above} delegates to {listed[0]}, the zone itself lists {listed[1]}")
    for host in sorted(delegated.values):
        glue = owner_in(host, parent.zone)
        if owner_in(host, child.zone) is not None and not any((glue, kind) in parent.rrsets for kind in (A, AAAA)):
            found.append(f"{above} has no glue address for {text_of(host)}, which lies in the delegated zone")
    return found
