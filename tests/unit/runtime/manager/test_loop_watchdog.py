"""Ending a process whose work does not end. In processes of their own, because they end for good."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import asyncio, signal, sys, time
from steersman.runtime.manager import run as program; from steersman.runtime.manager import loop_watchdog as watchdog
from steersman.runtime.manager.loop_watchdog import LoopLag

watchdog.LOOK_SECONDS, watchdog.LATE_SECONDS = 0.05, 0.3

class Manager:
    def __init__(self):
        self.lag, self.asked, self.hurry = LoopLag(), asyncio.Event(), asyncio.Event()
    def late(self):
        return self.lag.now()
    def stop(self):
        (self.hurry if self.asked.is_set() else self.asked).set()

async def main():
    manager = Manager()
    beats = asyncio.create_task(manager.lag.run())
    with program.stopped_by_signals(manager):
        await asyncio.sleep(0)
        await work(manager)

async def work(manager):
    WORK

asyncio.run(main())
"""

BLOCKED = """
    print("began", flush=True)
    time.sleep(60)
"""
DEAF = """
    print("began", flush=True)
    await asyncio.sleep(60)  # as if it waited for a thread
"""
ORDERLY = """
    print("began", flush=True)
    await manager.asked.wait()
    print("asked", flush=True)
    await manager.hurry.wait()
"""


@pytest.fixture
def started():
    made: list[subprocess.Popen[str]] = []

    def start(work: str) -> subprocess.Popen[str]:
        text = PROGRAM.replace("    WORK", textwrap.indent(textwrap.dedent(work), "    "))
        process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
        made.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        return process

    yield start
    for process in made:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("work", [BLOCKED, DEAF], ids=["blocked loop", "work that does not end"])
def test_a_second_signal_ends_a_process_that_does_not_end_and_its_code_says_so(started, work):
    process = started(work)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert process.returncode in (128 + signal.SIGTERM, 128 + signal.SIGINT)  # two at once come in either order
    assert "leaving at once" in out


def test_a_second_signal_that_the_loop_obeys_ends_in_order(started):
    process = started(ORDERLY)
    process.send_signal(signal.SIGTERM)
    assert any(line == "asked\n" for line in process.stdout)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_a_blocked_loop_is_named_once_with_the_place_where_it_stands(started):
    process = started(BLOCKED.replace("60", "2"))
    out, _ = process.communicate(timeout=30)
    assert out.count("the event loop is blocked") == 1
    assert "in work" in out
    assert "asyncio" not in out
