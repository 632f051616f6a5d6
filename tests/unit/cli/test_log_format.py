"""How the log of a process reads."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr

import pytest
import structlog

from steersman.cli.log_format import configure_logging
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


@pytest.fixture
def process_log(tmp_path):
    """What a process of its own writes to standard error, with the log as `form` asks for."""

    def run(form: str, *statements: str) -> list[str]:
        head = ("import asyncio, logging, errno", "from steersman.cli.log_format import configure_logging")
        program = "\n".join([*head, f"configure_logging(form={form!r})", *statements])
        done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
        return done.stderr.splitlines()

    return run


def test_what_asyncio_and_other_libraries_log_is_json_too_and_one_line_per_flood(process_log):
    lines = process_log(
        "json",
        "async def main():",
        "    for number in range(1000):",
        "        context = {'message': 'socket.accept() out of system resource', 'socket': object()}",
        "        context['exception'] = OSError(errno.EMFILE, 'Too many open files')",
        "        asyncio.get_running_loop().call_exception_handler(context)",
        "asyncio.run(main())",
        "logging.getLogger('aiohttp.client').warning('Unclosed connection')",
    )
    first, second = map(json.loads, lines)
    assert (first["event"], first["level"], first["logger"]) == (
        "socket.accept() out of system resource",
        "error",
        "asyncio",
    )
    assert "Too many open files" in first["traceback"]
    assert (second["event"], second["level"]) == ("Unclosed connection", "warning")


def test_in_text_a_library_cannot_forge_a_line(process_log):
    lines = process_log("text", "logging.getLogger('x').warning('no\\n2026-01-01 [info] forged')")
    assert len(lines) == 1
