"""When a zone says what became of it: at once, or when the others that are being published have been. Pure.

Answers come before words. Five hundred zones that change together are served before the first of them writes a status
that says no more than the last one did. What somebody counts on is never put off: a first serial, trouble and its end,
and what is said once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.operators.dns.pointers import is_reverse
from steersman.runtime.conditions import find_condition

if TYPE_CHECKING:
    from steersman.operators.dns.book import ZoneBook
    from steersman.operators.dns.zonekinds import DNSZone
    from steersman.operators.dns.zonestatus import Summary

__all__ = ["LATER", "only_words_left", "puts_off"]

LATER: Final = 0.1  # seconds until it is seen whether others are still being published
LONGEST: Final = 1.0  # seconds that a status waits for them


def puts_off(zone: DNSZone, book: ZoneBook, summary: Summary, *, busy: bool, now: float) -> bool:
    """Whether a zone that was just looked at says so later; `busy` while others are being published."""
    if not (busy and summary.ready and _is_as_it_was(zone, book, summary)):
        return False
    if book.owed is None and not (summary.report and summary.report.written):
        return False  # nothing was published, so there is hardly anything to say
    since = now if book.owed is None else book.owed[0]
    book.owed = (since, zone.metadata.resource_version)
    return now - since < LONGEST


def only_words_left(zone: DNSZone, book: ZoneBook, *, busy: bool, now: float) -> bool:
    """Whether a zone has nothing to do but to say what it put off, and it is too early for that."""
    if book.owed is None or not busy or book.marks is None or book.marks:
        return False
    since, revision = book.owed
    return revision == zone.metadata.resource_version and now - since < LONGEST


def _is_as_it_was(zone: DNSZone, book: ZoneBook, summary: Summary) -> bool:
    """Whether nobody waits for what a zone has to say: it was well, and is."""
    report, status = summary.report, zone.status
    if report is None or status is None or not status.serial:
        return False
    if report.drift or report.adopted or report.foreign or report.behind or summary.leaving:
        return False
    if zone.spec.catalog or zone.spec.dnssec_policy or is_reverse(book.draft.zone):
        return False  # others wait for these
    ready = find_condition(status.conditions, "Ready")
    return ready is not None and ready.status == "True"
