"""Run the differential fuzzer by hand: the embedded server against a real one.

python -m tests.support.differential --sequences 5000 --seed 7      stop at the first difference and shrink it
python -m tests.support.differential --survey                            go on, and count differences by kind
python -m tests.support.differential --replay FILE                  the steps of FILE, one per line
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click
from hypothesis import HealthCheck, Phase, given, seed, settings

from steersman.testing.raw_api import RawApi, ssl_context
from tests.support.differential.duel import Difference, Duel, lines
from tests.support.differential.steps import Step, from_lines, to_lines
from tests.support.differential.topics import TOPICS, mixed_sequences, sequences_about
from tests.support.webhooks import WebhookStub

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from hypothesis.strategies import SearchStrategy

    from steersman.testing.raw_api import ApiServer


@click.command()
@click.option("--sequences", "count", default=500, show_default=True, help="How many sequences to try.")
@click.option("--seed", "number", type=int, help="Where the random numbers start; printed, and random if left out.")
@click.option("--topics", help=f"Only sequences about these of {', '.join(TOPICS)}; separated by commas.")
@click.option("--longest", default=12, show_default=True, help="The most steps of one sequence.")
@click.option("--survey", is_flag=True, help="Go on after a difference and count them by kind.")
@click.option("--replay", type=click.Path(exists=True, path_type=Path), help="Run the steps of this file only.")
def main(count: int, number: int | None, topics: str | None, longest: int, survey: bool, replay: Path | None) -> None:
    """Send random sequences of requests to the embedded and to a real API server, and compare every answer."""
    number = random.SystemRandom().randrange(2**32) if number is None else number
    with asyncio.Runner() as runner:
        arena = Arena(runner)
        try:
            arena.open()
            if replay is not None:
                found = arena.fight(from_lines(replay.read_text()))
                _say("no difference" if found is None else str(found))
                sys.exit(0 if found is None else 3)
            _say(f"seed {number}")
            drawn = sequences_about(*topics.split(","), longest=longest) if topics else mixed_sequences(longest)
            sys.exit((_survey if survey else _hunt)(arena, count, number, drawn))
        finally:
            arena.close()


class Arena:
    """Both servers, on one event loop that runs between hypothesis' examples."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._fights = 0

    def open(self) -> None:
        """Start both servers and install what sequences need."""
        self._runner.run(self._open())

    def close(self) -> None:
        """Stop both."""
        self._runner.run(self._stack.aclose())

    def fight(self, steps: list[Step]) -> Difference | None:
        """One sequence in a namespace of its own."""
        self._fights += 1
        return self._runner.run(self._fight(steps, f"fight-{self._fights}"))

    async def _open(self) -> None:
        from contextlib import AsyncExitStack

        from steersman.apiserver import EmbeddedServer
        from steersman.testing.controlplane.launcher import LIFECYCLE_CONTROLLERS, ControlPlane

        self._stack: AsyncExitStack = AsyncExitStack()
        embedded = await self._stack.enter_async_context(EmbeddedServer())
        real = await self._stack.enter_async_context(ControlPlane(controllers=LIFECYCLE_CONTROLLERS))
        one, two = [await self._stack.enter_async_context(_client(server)) for server in (real, embedded)]
        self._duel = Duel(one, two, await self._stack.enter_async_context(WebhookStub()))
        await self._duel.prepare()

    async def _fight(self, steps: list[Step], namespace: str) -> Difference | None:
        try:
            await self._duel.fight(steps, namespace)
        except Difference as difference:
            return difference
        return None


def _client(server: ApiServer) -> RawApi:
    return RawApi(server.url, token=server.token, ssl_context=ssl_context(server.ca_pem), user_agent="differential")


def _hunt(arena: Arena, count: int, number: int, drawn: SearchStrategy[list[Step]]) -> int:
    """Until the first difference, which hypothesis makes as small as it can."""
    smallest: list[Difference] = []
    done = Counter[str]()

    @seed(number)
    @settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False
    )
    @given(drawn)
    def attempt(steps: list[Step]) -> None:
        done["sequences"] += 1
        done["steps"] += len(steps)
        if (difference := arena.fight(steps)) is not None:
            smallest.append(difference)
            raise difference

    started = time.monotonic()
    try:
        attempt()
    except Difference:
        found = smallest[-1]
        _say(f"{found}\n\nreplay these lines with --replay:\n{to_lines(found.steps[: found.index + 1])}")
        return 3
    _say(f"{done['sequences']} sequences, {done['steps']} steps, no difference, {time.monotonic() - started:.0f} s")
    return 0


def _survey(arena: Arena, count: int, number: int, drawn: SearchStrategy[list[Step]]) -> int:
    """All differences, by what the first differing place is called, the shortest sequence of each."""
    found: dict[str, list[Difference]] = {}
    done = Counter[str]()

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn)
    def attempt(steps: list[Step]) -> None:
        done["sequences"] += 1
        if (difference := arena.fight(steps)) is not None:
            done["different"] += 1
            if (name := _name(difference)) not in found:
                _say(f"after {done['sequences']} sequences: {name}")
            found.setdefault(name, []).append(difference)
        elif done["sequences"] % 100 == 0:
            _say(f"{done['sequences']} sequences, {done['different']} with a difference")

    attempt()
    for name, differences in sorted(found.items(), key=lambda item: -len(item[1])):
        shortest = min(differences, key=lambda item: len(str(item)))
        _say(f"=== {len(differences)} times: {name}\n{_about(shortest)}\n")
    _say(f"seed {number}: {done['sequences']} sequences, {done['different']} with a difference")
    return 3 if found else 0


def _name(difference: Difference) -> str:
    first = lines(difference.one, difference.two)[0].split("\n", 1)[0]
    return f"{difference.step.verb} {difference.step.kind} {re.sub(r'[0-9]+', 'N', first)}"


def _about(difference: Difference) -> str:
    """Only the steps on the object that differs."""
    last = difference.step
    steps = [
        step
        for step in difference.steps[: difference.index]
        if step.kind == last.kind
        and last.name in {"", step.name, step.name or last.name}
        and step.verb not in {"get", "list"}
    ]
    return to_lines([*steps, last]) + "\n" + "\n".join(lines(difference.one, difference.two)[:6])


def _say(text: str) -> None:
    click.echo(text)


if __name__ == "__main__":
    main()
