"""What tests of controllers need: servers, a virtual clock, a fault proxy, and pytest fixtures for all of them.

Names are looked up when they are first used. The pytest plugin lives in this package and is imported by every test
run, also by runs that use none of it: importing it must cost nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman.testing.clock import VirtualClock

__all__ = [
    "VirtualClock",
]

_HOME = {
    "VirtualClock": "clock",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
