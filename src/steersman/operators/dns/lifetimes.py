"""How long signing keys live, as named reads it: `unlimited`, seconds, 90d or P3M. Pure.

What passes here named starts with: it is of its grammar, fits into 32 bits, and leaves the time that a roll-over takes
with named's usual delays. Months have 31 days and years 365, as named has it.
"""

from __future__ import annotations

import re
from typing import Final

from steersman.errors import FormatError

__all__ = ["LIFETIME", "SHORTEST", "seconds_of"]

_DIGITS: Final = r"[0-9]{1,9}"
_DATE: Final = rf"({_DIGITS}[Yy])?({_DIGITS}[Mm])?({_DIGITS}[Dd])?"
_TIME: Final = rf"([Tt]({_DIGITS}[Hh])?({_DIGITS}[Mm])?({_DIGITS}[Ss])?)?"
LIFETIME: Final = rf"(unlimited|{_DIGITS}|({_DIGITS}[WwDdHhMmSs])+|[Pp]{_DIGITS}[Ww]|[Pp]{_DATE}{_TIME})"
SHORTEST: Final = {"ksk": 93_601, "zsk": 867_901}  # seconds

_LIFETIME: Final = re.compile(rf"{LIFETIME}\Z")
_PART: Final = re.compile(r"([0-9]+)([a-z])")
_DAY: Final = 86_400
_UNITS: Final = {"w": 7 * _DAY, "d": _DAY, "h": 3600, "m": 60, "s": 1}
_DATES: Final = {"y": 365 * _DAY, "m": 31 * _DAY, "w": 7 * _DAY, "d": _DAY}
_LIMIT: Final = 2**32


def seconds_of(text: str, key: str) -> int:
    """The lifetime of a `ksk` or `zsk`; 0 when it does not end, FormatError when named would not have it.

    >>> seconds_of("P1M", "ksk"), seconds_of("4w2d", "zsk"), seconds_of("unlimited", "ksk")
    (2678400, 2592000, 0)
    """
    wrong = f'"{text}" is no time (try unlimited, P1Y or 90d)'
    lower = text.lower()
    if not _LIFETIME.match(text) or not (lower == "unlimited" or any(letter.isdigit() for letter in text)):
        raise FormatError(wrong)
    if lower == "unlimited":
        return 0
    if lower.isdigit():
        total = int(lower)
    elif lower.startswith("p"):
        date, _, time = lower[1:].partition("t")
        total = _sum(date, _DATES) + _sum(time, _UNITS)
    else:
        total = _sum(lower, _UNITS)
    if total >= _LIMIT:
        raise FormatError(f'"{text}" is longer than named can count (try unlimited)')
    if 0 < total < SHORTEST[key]:
        days = -(-SHORTEST[key] // _DAY)
        raise FormatError(f'"{text}" is shorter than replacing a {key.upper()} takes (try {days}d or more)')
    return total


def _sum(text: str, units: dict[str, int]) -> int:
    return sum(int(number) * units[unit] for number, unit in _PART.findall(text))
