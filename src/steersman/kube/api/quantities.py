"""Quantities: amounts of CPU, memory and everything else that a cluster counts.

A quantity is an exact whole number of nano-units and the notation it was written in; nothing here ever uses a float.
Two quantities are equal when they are the same amount, however written. Notation, rounding and printing follow the
API server:

    500m  0.5  1k  12E       decimal suffixes n u m k M G T P E
    1Ki  12Mi  1.5Gi         binary suffixes; never more than 2**63-1
    1e3  5E-3                decimal exponents

More than nine decimal places are rounded away from zero: who asks for some gets some. The canonical form has no
fraction and the largest suffix that leaves none (`1.5` is `1500m`, `1.5Gi` is `1536Mi`); a binary amount that is below
1024 or not whole is printed with decimal suffixes. The server keeps the spelling of most plain numbers (`1.500`, `+1`)
as it got it, so `str` does too, and `canonical` does not.

Two differences, both beyond what a cluster can hold: an exponent above 1000 is refused, and amounts of 10**21 or
1024**7 and more print correctly (the server drops their suffix).
"""

from __future__ import annotations

import re
from enum import Enum
from typing import ClassVar, Final

import msgspec

from steersman.errors import FormatError

__all__ = ["Notation", "Quantity"]


class Notation(Enum):
    """How a quantity is written."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


_NANO: Final = 10**9
_LARGEST_BINARY: Final = (2**63 - 1) * _NANO
_LARGEST_EXPONENT: Final = 1000
_MOST_DIGITS: Final = 1000

_DECIMAL_EXPONENTS: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIXES: Final = {exponent: suffix for suffix, exponent in _DECIMAL_EXPONENTS.items()}
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<zeros>0*)(?P<whole>[0-9]*)(?P<point>\.(?P<fraction>[0-9]*))?(?P<suffix>[eEinumkKMGTP]*[-+]?[0-9]*)"
)
_EXPONENT: Final = re.compile(r"[eE]([-+]?[0-9]+)")
_WRONG_FORMAT: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class Quantity(msgspec.Struct, frozen=True, eq=False):
    """An exact amount.

    >>> str(Quantity.parse("0.5") + Quantity.parse("1500m"))
    '2'
    >>> Quantity.parse("1Gi") == Quantity.parse("1024Mi") < Quantity.parse("1.1G")
    True
    """

    ZERO: ClassVar[Quantity]

    nanos: int = 0
    notation: Notation = Notation.DECIMAL
    spelling: str = ""  # what `str` returns when it is not the canonical form

    @classmethod
    def parse(cls, value: str | float) -> Quantity:
        """The quantity that a JSON string or number spells; a `FormatError` in the server's words if none."""
        text = value.strip() if isinstance(value, str) else repr(value)
        match = _QUANTITY.fullmatch(text)
        if not text or match is None:
            raise FormatError(_WRONG_FORMAT)
        base, exponent, notation = _scale(match["suffix"])
        whole, fraction = match["whole"] or "0", match["fraction"] or ""
        digits = whole + fraction
        if len(digits) > _MOST_DIGITS:
            raise FormatError(f"a quantity cannot have more than {_MOST_DIGITS} digits")
        if _is_simple(whole, fraction, exponent, notation):
            nanos = int(digits) * (_NANO << exponent if base == 2 else 10 ** (exponent - len(fraction) + 9))
            keeps_spelling = _keeps_spelling(digits, exponent - len(fraction), notation)
        else:
            if not (match["zeros"] or match["whole"] or fraction):
                raise FormatError("unable to parse numeric part of quantity")
            nanos = _rounded(int(digits), exponent, len(fraction), base)
            keeps_spelling = False
            if notation is Notation.BINARY:
                nanos = min(nanos, _LARGEST_BINARY)
                notation = Notation.DECIMAL if 0 < nanos < _NANO else notation
        signed = -nanos if match["sign"] == "-" else nanos
        return cls(signed, notation, text if keeps_spelling else "")

    @property
    def canonical(self) -> str:
        """The one way to write this amount in its notation."""
        if self.nanos == 0:
            return "0"
        if self.notation is Notation.BINARY and abs(self.nanos) >= 1024 * _NANO and self.nanos % _NANO == 0:
            number, power = _without_factor(self.nanos // _NANO, 1024, limit=len(_BINARY_SUFFIXES) - 1)
            return f"{number}{_BINARY_SUFFIXES[power]}"
        exponential = self.notation is Notation.EXPONENT
        number, thousands = _without_factor(self.nanos, 1000, limit=None if exponential else 9)
        exponent = thousands * 3 - 9
        if exponential:
            return f"{number}e{exponent}" if exponent else str(number)
        return f"{number}{_DECIMAL_SUFFIXES[exponent]}"

    def scaled(self, exponent: int = 0) -> int:
        """The amount in units of 10**exponent, rounded away from zero: `scaled(-3)` is milli-units."""
        if exponent <= -9:
            return self.nanos * int(10 ** (-9 - exponent))
        magnitude = -(-abs(self.nanos) // int(10 ** (exponent + 9)))
        return -magnitude if self.nanos < 0 else magnitude

    def __int__(self) -> int:
        return self.scaled(0)

    def __float__(self) -> float:
        return self.nanos / _NANO

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __str__(self) -> str:
        return self.spelling or self.canonical

    def __eq__(self, other: object) -> bool:
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __le__(self, other: Quantity) -> bool:
        return self.nanos <= other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __neg__(self) -> Quantity:
        return Quantity(-self.nanos, self.notation)

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos + other.nanos, self.notation if self.nanos else other.notation)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos - other.nanos, self.notation if self.nanos else other.notation)

    def __mul__(self, times: int) -> Quantity:
        return Quantity(self.nanos * times, self.notation)


Quantity.ZERO = Quantity()


def _scale(suffix: str) -> tuple[int, int, Notation]:
    """Base, exponent and notation that a suffix stands for."""
    if suffix in _DECIMAL_EXPONENTS:
        return 10, _DECIMAL_EXPONENTS[suffix], Notation.DECIMAL
    if suffix in _BINARY_SUFFIXES:
        return 2, 10 * _BINARY_SUFFIXES.index(suffix), Notation.BINARY
    match = _EXPONENT.fullmatch(suffix)
    if match is None or len(match[1]) > 19:
        raise FormatError("unable to parse quantity's suffix")
    exponent = int(match[1])
    if exponent > _LARGEST_EXPONENT:
        raise FormatError(f"a quantity cannot have an exponent above {_LARGEST_EXPONENT}")
    return 10, exponent, Notation.EXPONENT


def _is_simple(whole: str, fraction: str, exponent: int, notation: Notation) -> bool:
    """Whether the server takes its short way, which keeps spellings and does not care about missing digits."""
    if notation is Notation.BINARY:
        return not fraction and len(whole) + exponent * 3 // 10 <= 14
    return len(whole) + len(fraction) <= 18 and exponent - len(fraction) >= -9


def _keeps_spelling(digits: str, exponent: int, notation: Notation) -> bool:
    """Whether the server takes a simple number for canonical as it stands; it checks the digits only."""
    if notation is Notation.BINARY:
        return int(digits) % 8 != 0
    return exponent % 3 == 0 and not digits.endswith("000") and not digits.startswith("0")


def _rounded(digits: int, exponent: int, places: int, base: int) -> int:
    """`digits` with `places` decimal places times base**exponent, in nano-units rounded away from zero."""
    if base == 2:
        return -(-(digits * _NANO << exponent) // int(10**places))
    shift = exponent - places + 9
    if shift >= 0:
        return digits * int(10**shift)
    if -shift > len(str(digits)):
        return 1 if digits else 0
    return -(-digits // int(10**-shift))


def _without_factor(number: int, factor: int, *, limit: int | None) -> tuple[int, int]:
    """`number` without as many of `factor` as it has (at most `limit`), and how many these are."""
    power = 0
    while number % factor == 0 and power != limit:
        number //= factor
        power += 1
    return number, power
