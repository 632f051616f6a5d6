"""How the log of a process reads."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr

import pytest
import structlog

from steersman.cli.logs import configure_logging
from steersman.errors import traceback_of
from steersman.logger import Logger


@pytest.fixture
def failure() -> str:
    with pytest.raises(ValueError, match="no") as caught:
        raise ValueError("no\n2026-01-01 [info] forged")
    return traceback_of(caught.value)


def written(form: str | None, **values: str) -> str:
    stream = io.StringIO()
    with redirect_stderr(stream):
        try:
            if form is not None:
                configure_logging(form=form)
            Logger("x").error("reconcile failed", object="shop/web", **values)
        finally:
            structlog.reset_defaults()
    return stream.getvalue()


def test_in_text_a_traceback_stands_below_its_line_and_every_line_of_it_is_indented(failure):
    first, *below = written("text", traceback=failure).splitlines()
    assert "shop/web" in first
    assert "Traceback" not in first
    assert below[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") for line in below)


def test_in_json_a_traceback_is_one_field(failure):
    assert json.loads(written("json", traceback=failure))["traceback"] == failure


def test_a_program_that_configures_nothing_shows_tracebacks_line_by_line_too(failure, capsys):
    written(None, traceback=failure)
    assert "Traceback (most recent call last):" in capsys.readouterr().out.splitlines()
