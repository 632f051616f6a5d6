"""How a program ends."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from structlog.testing import capture_logs

from steersman.runtime.manager import run
from steersman.runtime.manager.run import run_main


async def stubborn() -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@pytest.mark.parametrize("fails", [False, True])
def test_a_task_that_does_not_end_does_not_keep_a_program_alive(monkeypatch, fails):
    monkeypatch.setattr(run, "LAST_SECONDS", 0.0)

    async def main() -> str:
        main.task = asyncio.create_task(stubborn(), name="stubborn")  # type: ignore[attr-defined]  # so that it lives
        await asyncio.sleep(0)
        if fails:
            raise ValueError("main")
        return "ended"

    with capture_logs() as logs, pytest.raises(ValueError, match="main") if fails else contextlib.nullcontext():
        assert run_main(main()) == "ended"
    assert [(line["event"], line["task"]) for line in logs] == [
        ("task did not end when cancelled; exiting without it", "stubborn")
    ]


def test_what_ends_when_asked_to_has_ended_before_the_program_does(monkeypatch):
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
        run_main(main())
    assert ended == ["tidy"]
    assert logs == []
