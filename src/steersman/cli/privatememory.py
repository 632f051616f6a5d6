"""The memory of this process is nobody else's: no core dump holds what was just read from a Secret.

A limit of zero keeps the kernel from writing one to a file. That alone is not enough: where the kernel pipes dumps to a
program, the limit does not count. A process that is not dumpable has none at all, and other processes of the same user
can neither attach to it nor read its memory (Linux only).
"""

from __future__ import annotations

import ctypes
import sys

__all__ = ["keep_memory_private"]

_PR_SET_DUMPABLE = 4


def keep_memory_private() -> None:
    """Until the process ends. Children that run another program get the limit, and are dumpable again."""
    if sys.platform == "win32":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
