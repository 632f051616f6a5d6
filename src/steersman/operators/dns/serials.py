"""Serial numbers that never go back (RFC 1982): they count up and around, and half of them are ahead of any one.

>>> is_ahead(1, 2**32 - 1), following(2**32 - 1), latest(5, 2**32 - 3, 4)
(True, 1, 5)
"""

from __future__ import annotations

from typing import Final

__all__ = ["following", "is_ahead", "latest"]

_SPACE: Final = 1 << 32
_HALF: Final = 1 << 31


def is_ahead(one: int, other: int) -> bool:
    """Whether `one` is later than `other`; of two that lie exactly half way apart the larger number is."""
    distance = (one - other) % _SPACE
    return 0 < distance < _HALF or (distance == _HALF and one > other)


def following(serial: int, steps: int = 1) -> int:
    """The serial `steps` later. 0 is left out: some software takes it for none."""
    found = (serial + steps) % _SPACE
    return found or 1


def latest(first: int, *others: int) -> int:
    """The latest of several serials."""
    for other in others:
        if is_ahead(other, first):
            first = other
    return first
