"""Keeps the memory of this process private: no core dump holds what was just read from a Secret.

A limit of zero keeps the kernel from writing one to a file. That alone is not enough: where the kernel pipes dumps to a
program, the limit does not count. A process that is not dumpable has none at all, and other processes of the same user
can neither attach to it nor read its memory (Linux only).

Memory that is given back is overwritten where the C library can do that (glibc): answers of the API server, lines of
watches and long values do not stay behind in it. Values of some hundred bytes live in memory that the interpreter
manages by itself; they stay until it is used again. The cost is one more pass over such memory, which no benchmark of
ours shows.
"""

from __future__ import annotations

import ctypes
import sys

_PR_SET_DUMPABLE = 4
_M_PERTURB = -6  # of mallopt(3): the byte whose complement fills what is freed
_FILLING = 0x5A


def keep_memory_private() -> None:
    """Until the process ends. Children that run another program get the limit, and are dumpable again."""
    if sys.platform == "win32":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        library.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        if hasattr(library, "mallopt"):
            library.mallopt(_M_PERTURB, _FILLING)
