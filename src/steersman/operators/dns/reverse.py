"""What became of a record's PTR records, as the books of reverse zones tell. Pure.

Said only when the reverse zone has looked at exactly these: until then there is nothing to say, and it will be told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.operators.dns.compiler import Held
from steersman.operators.dns.names import text_of
from steersman.operators.dns.pointers import contributions_to, place_of, source_in_reverse
from steersman.operators.dns.types import PTR_NAMESPACES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from steersman.operators.dns.book import Books
    from steersman.operators.dns.pointers import Origin, Pointer
    from steersman.operators.dns.zonekinds import DNSZone

__all__ = ["FINE", "WAIT", "reverse_state"]

FINE: Final = Held("Published", "")
WAIT: Final = Held("Pending", "")


def reverse_state(
    origin: Origin, pointers: Sequence[Pointer], books: Books, named: Callable[[str], Iterable[DNSZone]]
) -> Held:
    """FINE when all are served, WAIT while that is being found out, else why not."""
    zones: dict[object, DNSZone] = {}
    for pointer in pointers:
        place = place_of(pointer.name, origin[0], named)
        name = text_of(pointer.name).removesuffix(".")
        if place.zone is not None:
            zones[place.zone.ref] = place.zone
        elif place.denied:
            text = f"{', '.join(place.denied)} does not let namespace {origin[0]} in (annotation {PTR_NAMESPACES})"
            return Held("ReverseZoneDenied", f"{name}: {text}")
        else:
            return Held("NoReverseZone", f"no DNSZone holds {name}")
    states = [_state_in(zone, origin, pointers, books, named) for zone in zones.values()]
    return next((one for one in states if one not in (FINE, WAIT)), WAIT if WAIT in states else FINE)


def _state_in(
    zone: DNSZone,
    origin: Origin,
    pointers: Sequence[Pointer],
    books: Books,
    named: Callable[[str], Iterable[DNSZone]],
) -> Held:
    book, source = books.get(zone.ref), source_in_reverse(origin)
    if book is None or not book.outcome_ready:
        return WAIT
    if book.problem is not None:
        return Held("ReverseZoneNotConfigured", f"zone {zone.name}: {book.problem[1]}")
    wanted = tuple(contributions_to(zone, book.draft.zone, origin, pointers, named))
    if book.draft.contributions.get(source) != wanted:
        return WAIT
    held = next((why for part in wanted if (why := book.draft.held.get(part.key, {}).get(source))), None)
    if held is not None:
        return held
    if refused := book.refusal_text(part.key for part in wanted):
        return Held("Refused", refused)
    if source not in book.pending:
        return FINE
    errors = "; ".join(sorted({copy.error for copy in book.copies.values() if copy.error}))
    return Held("ReconcileFailed", errors) if errors else WAIT
