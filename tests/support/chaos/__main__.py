"""Run schedules of user actions and faults against the operators, and judge what happened.

make chaos                                                     100 schedules for each operator
make chaos ARGS="--schedules 500 --seed 7 --operators reload"  those with the seeds 7 to 506
make chaos ARGS="--minutes 480"                                overnight: as many as there is time for
make chaos ARGS="--real --schedules 10"                        processes on the real control plane, in real time
make chaos ARGS="--load --minutes 10"                          10,000 changes a minute, the API server at its limits
make chaos ARGS="--replay FILE"                                the schedule in FILE, as a finding shows it
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from msgspec.structs import replace

from tests.support.chaos.load import render_load, run_load
from tests.support.chaos.operators import NAMES, subject
from tests.support.chaos.real import run_together
from tests.support.chaos.report import render, render_faults
from tests.support.chaos.run import run_guarded
from tests.support.chaos.schedule import generate, generate_real, parse
from tests.support.chaos.shrinking import shrink

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tests.support.chaos.report import Outcome
    from tests.support.chaos.schedule import Schedule, Step

TOGETHER = 8  # schedules that share a real control plane


@click.command()
@click.option("--schedules", default=100, show_default=True, help="How many to run for each operator.")
@click.option("--seed", default=0, show_default=True, help="The seed of the first schedule.")
@click.option("--operators", default=",".join(NAMES), show_default=True, help="Which operators, comma-separated.")
@click.option("--minutes", type=float, help="Run as many schedules as there is time for, instead of --schedules.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="How many schedules to run at once.")
@click.option("--replay", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Run this schedule only.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write the tables to this file too.")
@click.option("--real", is_flag=True, help="Operators are processes, on the real control plane and in real time.")
@click.option("--load", is_flag=True, help="Instead: changes at a --rate, while the API server is at its limits.")
@click.option("--rate", default=10_000.0, show_default=True, help="With --load: changes a minute.")
def main(
    *,
    schedules: int,
    seed: int,
    operators: str,
    minutes: float | None,
    jobs: int,
    replay: Path | None,
    report: Path | None,
    real: bool,
    load: bool,
    rate: float,
) -> None:
    """Run seeded schedules of user actions and faults; exit 1 when something was lost, doubled or otherwise wrong."""
    if load:
        _run_load(minutes or 1.0, rate, report)
    try:
        names = [subject(name).name for name in filter(None, operators.split(","))]
        chosen = (
            [parse(replay.read_text())] if replay else _chosen(names, seed, None if minutes else schedules, real=real)
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    running = _run_real(iter(chosen)) if real else _run_all(iter(chosen), jobs)
    outcomes: list[Outcome] = []
    for outcome in running:
        outcomes.append(outcome)
        _progress(outcomes)
        if report is not None:
            report.write_text(f"{render(outcomes)}\n\n{render_faults(outcomes)}\n")
        if deadline is not None and time.monotonic() > deadline:
            break
    running.close()
    click.echo(render(outcomes))
    failed = [outcome for outcome in outcomes if outcome.findings]
    for outcome in failed[:5]:
        click.echo(_describe(outcome if replay or real else _shrunk(outcome)))
    sys.exit(1 if failed else 0)


def _chosen(names: list[str], seed: int, count: int | None, *, real: bool) -> Iterator[Schedule]:
    """The operators in turn, seed by seed."""
    for number in itertools.count(seed) if count is None else range(seed, seed + count):
        for name in names:
            chosen = subject(name)
            yield (generate_real if real else generate)(name, number, chosen.actions, chosen.faults)


def _run_all(schedules: Iterator[Schedule], jobs: int) -> Generator[Outcome]:
    """Run schedules in processes, as many at once as there are jobs."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(run_guarded, schedule) for schedule in itertools.islice(schedules, 2 * jobs)}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
                    if (schedule := next(schedules, None)) is not None:
                        running.add(pool.submit(run_guarded, schedule))
        finally:
            pool.shutdown(cancel_futures=True)


def _run_real(schedules: Iterator[Schedule]) -> Generator[Outcome]:
    """Run schedules in groups, each on a control plane of its own."""
    for number in itertools.count():
        group = list(itertools.islice(schedules, TOGETHER))
        if not group:
            return
        yield from asyncio.run(run_together(group, forgetful=number % 2 == 1))


def _run_load(minutes: float, rate: float, report: Path | None) -> NoReturn:
    result = asyncio.run(run_load(minutes, rate))
    text = render_load(result)
    click.echo("\n".join([text, *(f"lost: {name}" for name in result.lost), *result.failed_probes]))
    if report is not None:
        report.write_text(f"{text}\n")
    sys.exit(1 if result.lost or result.failed_probes else 0)


def _progress(outcomes: list[Outcome]) -> None:
    last = outcomes[-1]
    if last.findings:
        names = ", ".join(last.findings)
        click.echo(f"finding: {last.schedule.operator} --seed {last.schedule.seed}: {names}", err=True)
    elif len(outcomes) % 25 == 0:
        click.echo(f"{len(outcomes)} schedules", err=True)


def _shrunk(outcome: Outcome) -> Outcome:
    """The same finding with as few steps as possible."""
    last = outcome

    async def fails(steps: tuple[Step, ...]) -> bool:
        nonlocal last
        found = await asyncio.to_thread(_run_apart, replace(outcome.schedule, steps=steps))
        if still := bool(outcome.findings.keys() & found.findings.keys()):
            last = found
        return still

    asyncio.run(shrink(outcome.schedule.steps, fails))
    return last


def _run_apart(schedule: Schedule) -> Outcome:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(run_guarded, schedule).result()


def _describe(outcome: Outcome) -> str:
    lines = [f"\n{outcome.schedule.operator}, seed {outcome.schedule.seed}:"]
    for name, findings in outcome.findings.items():
        lines += [f"  {name}", *(f"    {finding}" for finding in findings[:5])]
    return "\n".join(
        [
            *lines,
            "  --replay a file with this schedule:",
            *(f"    {line}" for line in str(outcome.schedule).splitlines()),
        ]
    )


if __name__ == "__main__":
    main()
