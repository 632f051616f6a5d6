"""How a program ends."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from structlog.testing import capture_logs

from steersman.runtime import program
from steersman.runtime.program import run_to_the_end


async def stubborn() -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@pytest.mark.parametrize("fails", [False, True])
def test_a_task_that_does_not_end_does_not_keep_a_program_alive(monkeypatch, fails):
    monkeypatch.setattr(program, "LAST_SECONDS", 0.0)

    async def main() -> str:
        main.task = asyncio.create_task(stubborn(), name="stubborn")  # type: ignore[attr-defined]  # so that it lives
        await asyncio.sleep(0)
        if fails:
            raise ValueError("main")
        return "ended"

    with capture_logs() as logs, pytest.raises(ValueError, match="main") if fails else contextlib.nullcontext():
        assert run_to_the_end(main()) == "ended"
    assert [(line["event"], line["task"]) for line in logs] == [("a task that does not end is left behind", "stubborn")]


def test_what_ends_when_told_to_has_ended_before_the_program_does(monkeypatch):
    ended: list[str] = []

    async def tidy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("tidy")

    async def main() -> None:
        task = asyncio.create_task(tidy())
        await asyncio.sleep(0)
        assert not task.done()

    with capture_logs() as logs:
        run_to_the_end(main())
    assert ended == ["tidy"]
    assert logs == []
