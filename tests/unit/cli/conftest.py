"""What every test of a command needs."""

from __future__ import annotations

import logging

import pytest
import structlog


@pytest.fixture(autouse=True)
def quiet():
    """A command configures the log of its process, which here is everybody's."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:], root.level = handlers, level
