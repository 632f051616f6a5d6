"""Waiting for facts: a test says what must become true, and never how long that takes.

    pod = await eventually(lambda: client.get(Pod, "web-0"), "the pod exists")

The time limit is generous because nothing is asserted about time; a fact that never comes ends in a failure that shows
what was seen last.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, TypeVar, overload

from steersman.kube.api.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["eventually"]

T = TypeVar("T")

_PAUSE = 0.01  # seconds at first; grows, so that a long wait costs little
_LONGEST_PAUSE = 0.1


@overload
async def eventually(fact: Callable[[], Awaitable[T]], what: str = ..., *, timeout: float = ...) -> T: ...
@overload
async def eventually(fact: Callable[[], T], what: str = ..., *, timeout: float = ...) -> T: ...
async def eventually(fact: Callable[[], object], what: str = "", *, timeout: float = 90.0) -> object:
    """Ask until the answer is true, and return it.

    An answer that is false, a failed `assert` and an error of the API server all mean "not yet"; any other exception
    ends the wait at once.
    """
    last, pause = "it was never asked", _PAUSE
    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    answer = fact()
                    if inspect.isawaitable(answer):
                        answer = await answer
                    if answer:
                        return answer
                    last = f"the last answer was {answer!r}"
                except (AssertionError, KubeError) as error:
                    last = f"the last attempt failed: {type(error).__name__}: {error}"
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
    except TimeoutError:
        name = what or _describe(fact)
        raise AssertionError(f"not true within {timeout:g} s: {name}; {last}") from None


def _describe(fact: Callable[[], object]) -> str:
    """The source of a lambda or the name of a function."""
    try:
        source = " ".join(inspect.getsource(fact).split())
    except (OSError, TypeError):
        return repr(fact)
    return source if getattr(fact, "__name__", "") == "<lambda>" else fact.__name__
