"""The end of a process that others expect to leave nothing behind: what waits for its window is restarted now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from steersman.operators.reload.oversight import Oversight
    from steersman.runtime.manager import Manager

__all__ = ["flush"]

log = structlog.get_logger(__name__)
_PAUSE = 0.05  # seconds between two looks at whether it is done


async def flush(manager: Manager, oversight: Oversight, seconds: float) -> int:
    """Restart everything that only waits for time, within `seconds`; returns how many still wait.

    A process that does not lead has nothing to flush: its leader has. What is held back by anything but its window
    stays pending, and whoever comes next finds it.
    """
    if not manager.working.is_set() or oversight.held() is not None:
        return 0
    oversight.hurry()
    waiting = {name: set(refs) for name, refs in oversight.waiting().items() if refs}
    for name, refs in waiting.items():
        manager.engine(name).add_all(where=refs.__contains__)
    try:
        async with asyncio.timeout(seconds):
            while any(oversight.unanswered(name, refs) for name, refs in waiting.items()):  # noqa: ASYNC110  # of a look
                await asyncio.sleep(_PAUSE)
    except TimeoutError:
        pass
    left = sum(len(refs & set(oversight.ledgers[name].waiting())) for name, refs in waiting.items())
    if waiting:
        done = sum(map(len, waiting.values())) - left
        log.info("what waited is restarted", restarted=done, left=left)
    return left
