"""Measurements summed up: the spread of repetitions, the exponent of a growth curve, two runs compared. Pure."""

from __future__ import annotations

import math
from statistics import linear_regression, median
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Spread(msgspec.Struct, frozen=True):
    """The repetitions of one measurement: the smallest, the median and the largest."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """The spread of at least one value."""
        found = sorted(values)
        return cls(found[0], median(found), found[-1])


def growth_exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The exponent e of the fitted curve value = c * size ** e: 1 is linear, 2 quadratic. All numbers are positive."""
    return linear_regression([math.log(size) for size in sizes], [math.log(value) for value in values]).slope


class Figure(msgspec.Struct, frozen=True):
    """One number of two runs; None where a run lacks it."""

    name: str
    old: float | None
    new: float | None

    @property
    def ratio(self) -> float | None:
        """New over old; None when it cannot be said."""
        return None if self.new is None or not self.old else self.new / self.old


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Figure]:
    """Every figure of two result files of one benchmark, bars included, in the order of the new one."""
    before, after = _figures(old), _figures(new)
    return [Figure(name, before.get(name), after.get(name)) for name in {**after, **before}]


def _figures(found: Mapping[str, Any]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for row in found["rows"]:
        label = ", ".join(value for value in row.values() if isinstance(value, str))
        figures |= {f"{label}: {key}": value for key, value in row.items() if isinstance(value, int | float)}
    return figures | {f"bar: {bar['name']}": bar["value"] for bar in found["bars"]}


def comparison(figures: Iterable[Figure]) -> str:
    """A Markdown table of them."""
    rows = [(figure.name, *map(text_of, (figure.old, figure.new, figure.ratio))) for figure in figures]
    return "\n".join(
        [
            line_of(("figure", "old", "new", "ratio")),
            line_of(("---", "---:", "---:", "---:")),
            *map(line_of, rows),
        ]
    )


def line_of(cells: Iterable[str]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def text_of(value: Any) -> str:
    """A figure with three digits."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)
