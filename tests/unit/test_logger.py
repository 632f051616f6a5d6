from __future__ import annotations

import os
import subprocess
import sys

import structlog
from structlog.testing import capture_logs

from steersman.logger import FloodLog, Logger


def test_a_line_carries_its_own_values_and_those_bound_before():
    with capture_logs() as lines:
        Logger("a", source="pods").bind(namespace="shop").warning("late", seconds=3)
    expected = {"event": "late", "log_level": "warning", "source": "pods", "namespace": "shop", "seconds": 3}
    assert lines == [expected]


def test_every_level_says_what_it_is_called():
    log = Logger("a")
    with capture_logs() as lines:
        for level in ("debug", "info", "warning", "error"):
            getattr(log, level)("it happened")
        try:
            int("no number")
        except ValueError:
            log.exception("it failed")
    assert [line["log_level"] for line in lines] == ["debug", "info", "warning", "error", "error"]
    assert lines[-1]["exc_info"] is True


async def test_a_flood_is_one_line_and_the_next_one_says_how_many_were_left_out(clock):
    floods = FloodLog(Logger("a"), seconds=60, clock=clock)
    with capture_logs() as lines:
        for number in range(100):
            floods.warning("refused", kind=number % 2, peer=number)
        floods.error("failed")
        await clock.advance(60)
        floods.warning("refused", kind=0)
        floods.warning("refused", kind=0)
        await clock.advance(60)
        floods.warning("refused", kind=0)
    assert [(line["event"], line.get("peer"), line.get("not_logged")) for line in lines] == [
        ("refused", 0, None),
        ("refused", 1, None),
        ("failed", None, None),
        ("refused", None, 49),
        ("refused", None, 1),
    ]


async def test_what_is_known_of_floods_is_bounded(clock):
    floods = FloodLog(Logger("a"), most=10, clock=clock)
    with capture_logs():
        for number in range(1000):
            floods.warning("refused", kind=number)
    assert len(floods._floods) <= 10


def test_a_cache_and_its_client_load_no_structlog_until_something_is_logged():
    program = "import sys, steersman.cache.factory, steersman.kube.client.client; sys.exit('structlog' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_line_that_cannot_be_written_costs_nothing():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as nobody:
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(nobody))
        try:
            Logger("a").error("it happened")
        finally:
            structlog.reset_defaults()
            os.dup2(os.open(os.devnull, os.O_WRONLY), write)  # what is left in its buffer
