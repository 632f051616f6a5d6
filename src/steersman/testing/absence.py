"""What a test needs and this machine does not have: skipped on a developer's machine, a failure in CI."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

__all__ = ["not_here"]


def not_here(reason: object) -> NoReturn:
    """Skip this test because something is missing; with CI=true fail it, because a skip would hide it there."""
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(str(reason), pytrace=False)
    pytest.skip(str(reason))
