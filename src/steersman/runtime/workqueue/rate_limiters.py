"""How long a key that failed has to wait before it is tried again.

    limiter.when(key)     the next delay in seconds; counts one more failure
    limiter.forget(key)   the key succeeded: its next failure counts as the first
    limiter.num_requeues(key) how often it failed since

Limiters are memory only, never timers: the queue does the waiting. Randomness is handed in, so tests see exact values.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from steersman.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from steersman.clock import Clock

__all__ = ["ExponentialBackoff", "FastSlow", "RateLimiter", "TokenBucket"]

K_contra = TypeVar("K_contra", bound="Hashable", contravariant=True)
K = TypeVar("K", bound="Hashable")


class RateLimiter(Protocol[K_contra]):
    """Decides when a key may be tried again."""

    def when(self, key: K_contra) -> float:
        """Seconds until the next try; counts a failure."""

    def forget(self, key: K_contra) -> None:
        """Start over: the key succeeded, or no longer exists."""

    def num_requeues(self, key: K_contra) -> int:
        """Failures since the last `forget`."""


class ExponentialBackoff(Generic[K]):
    """Doubles the delay with every failure of a key, up to a cap.

    `jitter` takes away up to that fraction of each delay at random, so that a thousand keys that failed together do not
    come back together. The cap is never exceeded, however often a key fails.

    >>> limiter = ExponentialBackoff(base_seconds=1, cap_seconds=5, jitter=0)
    >>> [limiter.when("a") for _ in range(4)], limiter.when("b")
    ([1.0, 2.0, 4.0, 5.0], 1.0)
    """

    def __init__(
        self,
        *,
        base_seconds: float = 0.005,
        factor: float = 2.0,
        cap_seconds: float = 1000.0,
        jitter: float = 0.2,
        random: Callable[[], float] = random.random,
    ) -> None:
        if not (0 < base_seconds <= cap_seconds and factor >= 1 and 0 <= jitter < 1):
            raise ValueError("a backoff needs 0 < base_seconds <= cap_seconds, factor >= 1 and 0 <= jitter < 1")
        self._base = base_seconds
        self._factor = factor
        self._cap = cap_seconds
        self._jitter = jitter
        self._random = random
        self._failures: dict[K, int] = {}

    def when(self, key: K) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        try:
            delay = min(self._base * self._factor**failures, self._cap)
        except OverflowError:
            delay = self._cap
        return float(delay * (1 - self._jitter * self._random()))

    def forget(self, key: K) -> None:
        self._failures.pop(key, None)

    def num_requeues(self, key: K) -> int:
        return self._failures.get(key, 0)


class FastSlow(Generic[K]):
    """A few quick tries, then slow ones."""

    def __init__(self, *, fast_seconds: float, slow_seconds: float, fast_tries: int) -> None:
        self._fast = fast_seconds
        self._slow = slow_seconds
        self._tries = fast_tries
        self._failures: dict[K, int] = {}

    def when(self, key: K) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return self._fast if failures <= self._tries else self._slow

    def forget(self, key: K) -> None:
        self._failures.pop(key, None)

    def num_requeues(self, key: K) -> int:
        return self._failures.get(key, 0)


class TokenBucket:
    """One token bucket for all keys together: a ceiling on the rate of all retries."""

    def __init__(self, *, per_second: float = 10.0, burst: int = 100, clock: Clock = SYSTEM_CLOCK) -> None:
        if per_second <= 0 or burst < 1:
            raise ValueError("a bucket needs per_second > 0 and burst >= 1")
        self._rate = per_second
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._at = clock.monotonic()

    def when(self, key: Hashable) -> float:  # noqa: ARG002  the bucket is shared by all keys
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate) - 1
        self._at = now
        return max(0.0, -self._tokens / self._rate)

    def forget(self, key: Hashable) -> None:
        """Tokens already taken stay taken."""

    def num_requeues(self, key: Hashable) -> int:  # noqa: ARG002  the bucket knows no keys
        return 0
