"""Durations as Go and Kubernetes write them: `1h30m`, `500ms`, `-1.5h`, `0`.

Two readers of the same grammar. `parse_duration` is for people: it takes only what a waiting time can be, never less
than zero, and an error says what to write instead. `parse_go_duration` is for the wire: it takes exactly what Go takes,
and complains in Go's words. A `timedelta` holds whole microseconds, so anything finer is rounded to the nearest one.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from steersman.errors import FormatError
from steersman.kube.api.validation import quoted

__all__ = ["format_duration", "format_go_duration", "parse_duration", "parse_go_duration"]

_UNITS: Final = {
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, the micro sign
    "μs": 1_000,  # U+03BC, the Greek letter; Go takes both
    "ns": 1,
}
_LIMIT: Final = 1 << 63  # nanoseconds; Go counts in 64 bits
_DIGITS: Final = 19  # of that number
_PART: Final = re.compile(r"(?P<whole>[0-9]*)(?P<point>\.(?P<fraction>[0-9]*))?(?P<unit>[^.0-9]*)")

_WORDS: Final = {
    "h": ("hour", "hours", "hr", "hrs", "H"),
    "m": ("minute", "minutes", "min", "mins", "M"),
    "s": ("second", "seconds", "sec", "secs", "S", ""),
    "ms": ("millisecond", "milliseconds", "millis", "msec", "msecs"),
    "us": ("microsecond", "microseconds", "micros", "usec", "usecs"),
    "ns": ("nanosecond", "nanoseconds", "nanos", "nsec", "nsecs"),
}
_UNIT_OF: Final = {word: unit for unit, words in _WORDS.items() for word in words} | {unit: unit for unit in _UNITS}
_HOURS_OF: Final = dict.fromkeys(("d", "day", "days"), 24) | dict.fromkeys(("w", "week", "weeks"), 168)
_EXAMPLES: Final = "500ms, 30s or 1h30m"
_LOOSE: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([^\W\d]*)[\s,]*")


def parse_duration(text: object) -> timedelta:
    """The waiting time that a person wrote.

    >>> parse_duration("1m30s")
    datetime.timedelta(seconds=90)
    >>> parse_duration("5 sec")
    Traceback (most recent call last):
    steersman.errors.FormatError: "5 sec" is not a duration (try 5s)
    """
    shown = quoted(text) if isinstance(text, str) else repr(text)
    try:
        duration = parse_go_duration(text) if isinstance(text, str) else None
    except FormatError:
        duration = None
    if duration is None:
        meant = _suggestion(str(text))
        if not _is_readable(meant):
            raise FormatError(f"{shown} is too long for a duration (try 2562047h or less)")
        raise FormatError(f"{shown} is not a duration (try {meant})")
    if duration < timedelta(0):
        raise FormatError(f"{shown} is negative (try {str(text).lstrip('-')})")
    return duration


def parse_go_duration(text: str) -> timedelta:
    """The duration that `text` spells in Go's grammar, negative ones included."""
    nanoseconds = _nanoseconds(text)
    whole, rest = divmod(nanoseconds, 1_000)
    return timedelta(microseconds=whole + (1 if rest >= 500 else 0))


def format_duration(duration: timedelta) -> str:
    """The shortest text for people that `parse_duration` reads back: `1h30m`, `5s`, `1.5s`, `0s`."""
    text = format_go_duration(duration)
    if text.endswith("m0s"):
        text = text.removesuffix("0s")
    return text.removesuffix("0m") if text.endswith("h0m") else text


def format_go_duration(duration: timedelta) -> str:
    """The text that Go prints: `1h30m0s`, `1.5s`, `500ms`, `0s`."""
    microseconds = duration // timedelta(microseconds=1)
    sign, microseconds = ("-", -microseconds) if microseconds < 0 else ("", microseconds)
    if microseconds == 0:
        return "0s"
    if microseconds < 1_000:
        return f"{sign}{microseconds}µs"
    if microseconds < 1_000_000:
        return f"{sign}{_decimal(microseconds, 3)}ms"
    minutes, rest = divmod(microseconds, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours}h"] if hours else []
    parts += [f"{minutes}m"] if hours or minutes else []
    return f"{sign}{''.join(parts)}{_decimal(rest, 6)}s"


def _decimal(number: int, places: int) -> str:
    """`number` / 10**places, without zeros at the end."""
    whole, fraction = divmod(number, 10**places)
    return f"{whole}.{fraction:0{places}}".rstrip("0") if fraction else str(whole)


def _nanoseconds(text: str) -> int:
    """Go's own reading, to the nanosecond."""
    sign, rest = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if rest == "0":
        return 0
    if not rest:
        raise FormatError(f"time: invalid duration {_go_quoted(text)}")
    total = 0
    position = 0
    while position < len(rest):
        part = _PART.match(rest, position)
        assert part is not None  # every piece of the pattern may be empty
        total += _part_nanoseconds(text, part)
        if total > _LIMIT:
            raise FormatError(f"time: invalid duration {_go_quoted(text)}")
        position = part.end()
    if total == _LIMIT and sign != "-":
        raise FormatError(f"time: invalid duration {_go_quoted(text)}")
    return -total if sign == "-" else total


def _part_nanoseconds(text: str, part: re.Match[str]) -> int:
    whole, fraction = part["whole"].lstrip("0"), part["fraction"] or ""
    if not (part["whole"] or fraction) or len(whole) > _DIGITS or int(whole or "0") > _LIMIT:
        raise FormatError(f"time: invalid duration {_go_quoted(text)}")
    if not part["unit"]:
        raise FormatError(f"time: missing unit in duration {_go_quoted(text)}")
    unit = _UNITS.get(part["unit"])
    if unit is None:
        raise FormatError(f"time: unknown unit {_go_quoted(part['unit'])} in duration {_go_quoted(text)}")
    nanoseconds = int(whole or "0") * unit + _fraction_nanoseconds(fraction, unit)
    if nanoseconds > _LIMIT:
        raise FormatError(f"time: invalid duration {_go_quoted(text)}")
    return nanoseconds


def _fraction_nanoseconds(digits: str, unit: int) -> int:
    """Go reads as many digits as 63 bits hold and computes with floats; both are visible in the last nanosecond."""
    value, scale = 0, 1.0
    for digit in digits:
        if value > (_LIMIT - 1) // 10 or value * 10 + int(digit) > _LIMIT:
            break
        value = value * 10 + int(digit)
        scale *= 10
    return int(float(value) * (float(unit) / scale)) if value else 0


def _go_quoted(text: str) -> str:
    shown = (
        f"\\{chr(byte)}" if byte in b'"\\' else chr(byte) if 0x20 <= byte < 0x80 else f"\\x{byte:02x}"
        for byte in text.encode(errors="surrogatepass")
    )
    return f'"{"".join(shown)}"'


def _is_readable(meant: str) -> bool:
    """Whether what the writer probably meant is a duration; one that Go cannot count is none."""
    if meant == _EXAMPLES:
        return True
    try:
        parse_go_duration(meant)
    except FormatError:
        return False
    return True


def _suggestion(text: str) -> str:
    """What the writer probably meant."""
    parts: list[str] = []
    position = 0
    while position < len(text) and (match := _LOOSE.match(text, position)):
        number, word = match[1], match[2]
        unit = _UNIT_OF.get(word) or _UNIT_OF.get(word.lower())
        if word.lower() in _HOURS_OF:
            number, unit = f"{float(number) * _HOURS_OF[word.lower()]:g}", "h"
        if unit is None:
            break
        parts.append(f"{number}{unit}")
        position = match.end()
    return "".join(parts) if parts and position == len(text) else _EXAMPLES
