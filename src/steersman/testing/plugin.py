"""The pytest plugin: fixtures for servers and time, found through the entry point `steersman`.

Importing this module costs nothing: every fixture imports what it needs when it is first asked for, so a run that uses
none of them pays nothing, and coverage sees the package being imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from steersman.testing.clock import VirtualClock

__all__ = ["clock"]


@pytest.fixture
def clock() -> VirtualClock:
    """Time that moves only when the test says so: `await clock.advance(5)`."""
    from steersman.testing.clock import VirtualClock

    return VirtualClock()
