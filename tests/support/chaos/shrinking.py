"""Shrinking: the fewest steps with which a schedule still fails. Pure, apart from the question whether it fails.

The steps are cut into parts, large ones first, and a part without which the schedule still fails is left out
(delta debugging). The order and the times of the steps that stay do not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["shrink"]

T = TypeVar("T")


async def shrink(
    steps: tuple[T, ...], fails: Callable[[tuple[T, ...]], Awaitable[bool]], *, attempts: int = 60
) -> tuple[T, ...]:
    """Leave out steps while the failure stays, in at most so many attempts."""
    size = len(steps) // 2
    while size and attempts:
        start = 0
        while start < len(steps) and attempts:
            fewer = steps[:start] + steps[start + size :]
            attempts -= 1
            if await fails(fewer):
                steps = fewer
            else:
                start += size
        size //= 2
    return steps
