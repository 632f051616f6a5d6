from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from steersman.testing import eventually
from steersman.testing.controlplane.processes import Child


def start(tmp_path, script: str) -> Child:
    return Child(["/bin/sh", "-c", script], log=tmp_path / "log", name="script")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_the_exit_code_is_known_once_the_program_has_ended(tmp_path):
    child = start(tmp_path, "exit 7")
    assert await child.wait() == 7
    assert child.exit_code == 7
    assert await child.wait() == 7


async def test_a_program_that_obeys_is_asked_and_not_killed(tmp_path):
    child = start(tmp_path, "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.01; done")
    await eventually(lambda: "up" in child.tail())
    assert await child.stop(deadline=10) == 3
    assert "bye" in child.tail()


async def test_a_program_that_does_not_obey_is_killed_after_the_deadline(tmp_path):
    child = start(tmp_path, "trap '' TERM; echo up; while :; do sleep 0.01; done")
    await eventually(lambda: "up" in child.tail())
    assert await child.stop(deadline=0.05) == -signal.SIGKILL


async def test_stopping_what_has_ended_is_harmless(tmp_path):
    child = start(tmp_path, "exit 0")
    await child.wait()
    assert await child.stop(deadline=1) == 0
    child.kill()


async def test_what_the_program_started_ends_with_it(tmp_path):
    child = start(tmp_path, "sleep 600 & echo $!; wait")
    await eventually(lambda: child.tail().strip())
    grandchild = int(child.tail())
    assert alive(grandchild)
    await child.stop(deadline=10)
    await eventually(lambda: not alive(grandchild))


async def test_the_tail_shows_the_last_lines_of_both_streams(tmp_path):
    child = start(tmp_path, "seq 1 50; echo oops >&2")
    await child.wait()
    assert child.tail(3) == "  49\n  50\n  oops"


async def test_a_child_leads_a_group_of_its_own_so_that_ctrl_c_reaches_us_first(tmp_path):
    child = start(tmp_path, "sleep 600")
    assert os.getpgid(child.pid) == child.pid != os.getpgid(0)
    child.kill()
    await child.wait()


async def test_the_environment_can_be_given(tmp_path):
    child = Child(["/bin/sh", "-c", "echo $COLOUR"], log=tmp_path / "log", environment={"COLOUR": "green"})
    await child.wait()
    assert child.name == "sh"
    assert child.tail() == "  green"


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


async def start_parent(tmp_path) -> tuple[asyncio.subprocess.Process, int]:
    """A Python process with a child; returns it and the child's id."""
    program = (
        "from pathlib import Path; import time; from steersman.testing.controlplane.processes import Child\n"
        f"print(Child(['/bin/sleep', '600'], log=Path({str(tmp_path / 'log')!r})).pid, flush=True)\n"
        "time.sleep(600)"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    return parent, int(await parent.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
async def test_a_child_does_not_outlive_its_parent_however_the_parent_dies(tmp_path, number):
    parent, child = await start_parent(tmp_path)
    await eventually(lambda: command_of(child) == "sleep", "the program itself runs")
    parent.send_signal(number)
    await parent.wait()
    await eventually(lambda: not alive(child), "the child has ended")


async def test_a_parent_that_dies_while_the_child_is_being_started_leaves_nothing(tmp_path):
    parent, child = await start_parent(tmp_path)
    parent.kill()
    await parent.wait()
    await eventually(lambda: not alive(child), "the child has ended")
