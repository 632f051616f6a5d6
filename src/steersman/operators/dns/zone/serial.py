"""Serial numbers of zones: which is later, which is next, and the one that all primaries of a zone get. Pure.

Serials are compared as RFC 1982 says, around the end of 32 bits. 0 is never chosen, because some software takes it for
"none".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dns.serial import Serial

if TYPE_CHECKING:
    from collections.abc import Sequence


def is_later(serial: int, other: int) -> bool:
    """Whether a serial is later than another (RFC 1982); of two that are exactly half way apart the larger is.

    >>> is_later(1, 2**32 - 1), next_serial(2**32 - 1), latest(5, 2**32 - 3, 4)
    (True, 1, 5)
    """
    return Serial(serial) > Serial(other) or (serial - other == 2**31)


def next_serial(serial: int, steps: int = 1) -> int:
    """The serial `steps` later, or earlier where negative; 0 is left out."""
    return (Serial(serial) + steps).value or (1 if steps > 0 else 2**32 - 1)


def latest(first: int, *others: int) -> int:
    """The latest of several serials."""
    for other in others:
        if is_later(other, first):
            first = other
    return first


def choose_serial(copies: Sequence[tuple[int | None, int]], seen: Sequence[int], current: int) -> int:
    """One serial for all primaries, not earlier than any that was seen.

    `copies` are the serial of each primary (None: the zone is absent there) and the number of updates it needs. When a
    copy has everything at the newest serial, the others join it there. Otherwise the data is new, and gets a new
    serial; a change in several updates takes several.
    """
    newest = latest(*seen) if seen else 0
    due = [serial for serial, updates in copies if updates]
    has_newest = any(serial == newest for serial, updates in copies if not updates)
    if due:
        can_join = has_newest and all(serial is None or is_later(newest, serial) for serial in due)
    else:
        can_join = has_newest or not copies or newest == current
    return newest if can_join else next_serial(newest, max((updates for _, updates in copies), default=1) or 1)
