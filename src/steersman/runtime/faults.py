"""Unexpected errors, written down for whoever has to find them: where it happened, but not with which values.

Log renderers that are given an exception may print local variables, and those hold objects, Secrets among them. So
logs get text, made here.
"""

from __future__ import annotations

import traceback

__all__ = ["traceback_of"]


def traceback_of(error: BaseException, *, limit: int = 12) -> str:
    """The stack of `error` and of its causes, without local variables; the innermost `limit` frames of each."""
    return "".join(traceback.format_exception(error, limit=-limit)).rstrip()
