"""A histogram that costs one bisection per observation.

The hot paths of the runtime count with plain integers; `observability.metrics` reads them at each scrape.
A histogram here is the same idea for durations: fixed bounds, one counter per bucket, and a sum.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["QUEUE_BUCKETS", "RECONCILE_BUCKETS", "Histogram"]

# The bounds that dashboards made for Go controllers expect.
QUEUE_BUCKETS = tuple(10.0**exponent for exponent in range(-8, 4))
RECONCILE_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0),
    *(50.0, 60.0),
)


class Histogram:
    """Counts observations by upper bound.

    >>> durations = Histogram((0.1, 1.0))
    >>> for seconds in (0.05, 0.1, 0.5, 30):
    ...     durations.observe(seconds)
    >>> durations.cumulative()
    [('0.1', 2), ('1.0', 3), ('+Inf', 4)]
    """

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self.total = 0.0  # sum of everything observed

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self._counts)

    def cumulative(self) -> list[tuple[str, int]]:
        """(upper bound, number of observations not above it), the way Prometheus wants buckets."""
        running = 0
        buckets = []
        for bound, count in zip((*(str(bound) for bound in self._bounds), "+Inf"), self._counts, strict=True):
            running += count
            buckets.append((bound, running))
        return buckets
