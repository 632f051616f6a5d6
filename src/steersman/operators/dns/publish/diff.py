"""The diff step of a zone's pass: which differences of a copy are written. Pure.

Not every difference is: foreign data stays in a copy that is not managed, drift stays where the drift mode says so, and
what a server refused before is not sent with every update again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from steersman.operators.dns.publish.ownership import keeps_ttl
from steersman.operators.dns.wire.messages import RRsetChange
from steersman.operators.dns.zone.rdata import CNAME, Key, RRset, Soa
from steersman.operators.dns.zone.soa import is_ignored

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from steersman.operators.dns.publish.zone_state import ServerCopy, ZoneState
    from steersman.operators.dns.zone.compiler import CompiledZone


def needs_write(state: ZoneState, copy: ServerCopy, soa: Soa) -> bool:
    """Whether a copy has to be written, apart from its serial. `soa` is the desired start of authority."""
    return (
        copy.absent
        or any(_is_due(state, copy, key) for key in copy.diff)
        or copy.soa is None
        or (copy.managed and replace(Soa.read(copy.soa), serial=0) != replace(soa, serial=0))
    )


def due_diff(state: ZoneState, copy: ServerCopy) -> dict[Key, RRset | None]:
    """The part of a copy's diff that is to be written."""
    if copy.managed and not (copy.drift or copy.unmanaged.values or copy.refused or copy.unmanaged.blocked):
        return dict(copy.diff)
    return {key: have for key, have in copy.diff.items() if _is_due(state, copy, key)}


def _is_due(state: ZoneState, copy: ServerCopy, key: Key) -> bool:
    if key in copy.unmanaged.values or (key in copy.drift and not _collides(state.desired, key)):
        return False
    if not copy.managed and change_of(state, copy, key).is_idle:
        return False
    return not ((copy.refused or copy.unmanaged.blocked) and state.is_refused(copy, key))


def _collides(desired: CompiledZone, key: Key) -> bool:
    """Whether drift keeps desired data out: beside a CNAME a server silently ignores every update."""
    owner, kind = key
    return desired.serves(owner) if kind == CNAME else (owner, CNAME) in desired.rrsets


def change_of(state: ZoneState, copy: ServerCopy, key: Key) -> RRsetChange:
    """How a difference is written; a foreign RRset that gets further values keeps its TTL."""
    have, want = copy.diff[key], state.desired.rrsets.get(key)
    if not copy.managed and want is not None and have is not None and keeps_ttl(have, want):
        want = want if key in copy.unmanaged.exact else replace(want, ttl=have.ttl)
    return RRsetChange(key, have, want)


def ignored_keys(
    diff: Mapping[Key, RRset | None], desired: Container[Key], zone: bytes, patterns: Sequence[str]
) -> frozenset[Key]:
    """Of what differs, the data of names that the zone leaves to others."""
    if not patterns:
        return frozenset()
    return frozenset(
        key for key, have in diff.items() if have is not None and key not in desired and is_ignored(key, zone, patterns)
    )


def unexpected_diff(
    diff: Mapping[Key, RRset | None],
    before: Container[Key] | None,
    desired: Container[Key],
    deleted: Container[Key],
) -> dict[Key, RRset | None]:
    """The part of a diff that others caused. `before` is the diff as it was known; None: there is none to compare with.

    Then what an earlier process wrote and what others wrote look alike, except where no resource declares anything.
    """
    if before is not None:
        return {key: have for key, have in diff.items() if key not in before}
    return {key: have for key, have in diff.items() if key not in desired and key not in deleted}
