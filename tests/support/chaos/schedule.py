"""Schedules: which user actions and faults happen when. Pure: a schedule follows from its seed alone.

    reload 17 with 2 replicas
    3.20 edit configmap/app-0
    4.75 freeze replica/1 0.62

A step is at a time of the operators' clock, has a target, and for faults an amount from 0 to 1: how long or how hard.
The text of a schedule says all of it, so a schedule that was found by chance and shrunk can be run again.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FAULTS", "HORIZON", "Choice", "Schedule", "Step", "generate", "generate_real", "parse"]

HORIZON = 90.0  # seconds of the operators' clock in which steps happen
REAL_HORIZON = 20.0  # real ones, with processes


class Choice(msgspec.Struct, frozen=True):
    """Something that may happen, and to what."""

    name: str
    targets: tuple[str, ...]
    weight: int = 1


class Step(msgspec.Struct, frozen=True, order=True):
    """Something that happens."""

    at: float  # seconds of the operators' clock since the first step could happen
    name: str
    target: str
    amount: float = 0.0  # of a fault: how long, or how hard; from 0 to 1

    def __str__(self) -> str:
        return f"{self.at:.2f} {self.name} {self.target}" + (f" {self.amount:.2f}" if self.is_fault else "")

    @property
    def is_fault(self) -> bool:
        """Whether it is a fault, and not an action of a user."""
        return self.name in FAULTS


class Schedule(msgspec.Struct, frozen=True):
    """All steps of one run."""

    operator: str
    seed: int
    replicas: int  # of the operator; several elect a leader
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.operator} {self.seed} with {self.replicas} replicas", *map(str, self.steps)])


FAULTS = {
    # on the connections of one replica
    "cut": "every connection is closed",
    "reset": "every connection is reset",
    "half-close": "the server's side of every connection ends",
    "freeze": "no byte passes, connections stay open",
    "refuse": "connections are closed, and new ones at once",
    "slow": "every byte is late",
    "throttle": "few bytes a second pass",
    # in the API server, for requests of the operator
    "429": "too many requests",
    "500": "internal errors",
    "503": "the API server is unavailable",
    "drop": "requests are dropped before they have an effect",
    "drop-after": "requests have their effect, and no answer",
    "truncate": "answers end in the middle",
    "stutter": "a third of all requests are dropped",
    "410": "the history is compacted while watches are cut",
    # in a replica
    "crash": "the process dies and is started again",
    "restart": "the process is asked to stop and is started again",
    "pause": "the process is stopped (SIGSTOP), often for longer than its lease, and goes on",
    "clock-forward": "the wall clock of the process is up to an hour ahead for a while",
    "clock-back": "the wall clock of the process is up to an hour behind for a while",
    "rollout": "every replica is replaced, one after another",
    # in the namespace
    "quota": "a quota that allows no new object",
    "webhook": "a webhook for everything that is written, whose certificate has expired",
    # in a real API server
    "server-restart": "kube-apiserver is killed and started again",
    # in a name server
    "named-kill": "named is killed, and started again later",
    "named-wipe": "named is killed, and started again later without its disk",
    "named-key": "named has another key, and the Secret later",
    "named-lie": "a machine between the operator and named answers without the key",
}

PROCESS_FAULTS = ("crash", "restart", "pause")  # kill -9, SIGTERM, SIGSTOP
NAMESPACED = dict.fromkeys(("quota", "webhook"), ("namespace/shop",))


def generate(operator: str, seed: int, actions: Sequence[Choice], own_faults: Sequence[Choice] = ()) -> Schedule:
    """The schedule of a seed: a handful of faults, and more actions than faults."""
    luck = random.Random(f"{operator} {seed}")
    replicas = luck.choice((1, 1, 2))
    replica = tuple(f"replica/{number}" for number in range(replicas))
    anywhere = [name for name in FAULTS if not name.startswith(("named-", "server-"))]
    faults = [*(Choice(name, NAMESPACED.get(name, replica)) for name in anywhere), *own_faults]
    steps = [
        Step(_time(luck), choice.name, luck.choice(choice.targets), round(luck.random(), 2))
        for choice in luck.choices(faults, [choice.weight for choice in faults], k=luck.randrange(2, 7))
    ]
    weights = [choice.weight for choice in actions]
    chosen = luck.choices(actions, weights, k=luck.randrange(6, 15))
    steps += [Step(_time(luck), choice.name, luck.choice(choice.targets)) for choice in chosen]
    return Schedule(operator, seed, replicas, tuple(sorted(steps)))


def generate_real(operator: str, seed: int, actions: Sequence[Choice], own_faults: Sequence[Choice] = ()) -> Schedule:
    """A schedule for processes and a real API server, in real time: shorter, and always with two replicas."""
    luck, replica = random.Random(f"real {operator} {seed}"), ("replica/0", "replica/1")
    faults = [*(Choice(name, replica, weight=3) for name in PROCESS_FAULTS), Choice("server-restart", ("server/0",))]
    faults += own_faults
    steps = [
        Step(_time(luck, REAL_HORIZON), choice.name, luck.choice(choice.targets), round(luck.random(), 2))
        for choice in luck.choices(faults, [choice.weight for choice in faults], k=luck.randrange(2, 5))
    ]
    chosen = luck.choices(actions, [choice.weight for choice in actions], k=luck.randrange(5, 11))
    steps += [Step(_time(luck, REAL_HORIZON), choice.name, luck.choice(choice.targets)) for choice in chosen]
    return Schedule(operator, seed, 2, tuple(sorted(steps)))


def _time(luck: random.Random, horizon: float = HORIZON) -> float:
    return round(luck.uniform(0.0, horizon), 2)


def parse(text: str) -> Schedule:
    """The schedule that a text describes; ValueError names the line that is wrong."""
    first, *rest = [line.strip() for line in text.strip().splitlines() if line.strip()] or [""]
    try:
        operator, seed, _, replicas, _ = first.split()
        heading = operator, int(seed), int(replicas)
    except ValueError:
        raise ValueError(f'"{first}" does not begin a schedule (try "reload 17 with 1 replicas")') from None
    return Schedule(*heading, tuple(map(_step, rest)))


def _step(line: str) -> Step:
    try:
        at, name, target, *amount = line.split()
        return Step(float(at), name, target, *map(float, amount))
    except (ValueError, TypeError):
        raise ValueError(f'"{line}" is not a step (try "3.20 edit configmap/app-0")') from None
