"""Overrides that are cheap to write and dear to read cost their bytes, and are named."""

from __future__ import annotations

import tracemalloc

import pytest

from steersman.errors import FormatError
from steersman.operators.toolset.render.overrides import parse_overrides, read_overrides

KIB = 1024
REPEATED = f"prometheus:\n  config:\n    a: &a {'x' * 100 * KIB}\n    b: [{','.join(['*a'] * 15_000)}]\n"  # 1.5 GB


def test_overrides_that_stand_for_too_much_are_refused_before_they_are_built():
    assert len(REPEATED) < 200 * KIB
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="expands to more than 1048576 bytes"):
            parse_overrides(REPEATED)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 * KIB * KIB


def test_the_last_valid_overrides_count_while_the_new_ones_are_beyond_the_budget():
    said, error = read_overrides(REPEATED, "prometheus: {enabled: false}")
    assert said.toolsets == {"prometheus": {"enabled": False}}
    assert "expands to more than" in error
