"""Fault injection: what a network or an overloaded server does, when a test asks for it.

A rule says which requests it matches and what happens to them; the first rule that matches is used, up to its count.
Randomness comes from a seeded generator, so a failing run can be repeated.

    server.faults.add(Fault("unavailable", verb="list", resource="pods", count=2))
    server.faults.add(Fault("delay", seconds=1.5, probability=0.1))
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from steersman.apiserver.http.requests import Route

Effect = Literal[
    "delay",  # answer after `seconds`
    "drop",  # close the connection without an answer; the request has no effect
    "drop-after",  # do what is asked, then close the connection without an answer
    "freeze",  # accept the request and never answer
    "truncate",  # send the first `bytes` of the body, then close the connection
    "throttle",  # 429 with Retry-After
    "error",  # 500
    "unavailable",  # 503 with Retry-After
    "expire",  # compact the log first, so that old revisions are gone
]


class Fault(msgspec.Struct, frozen=True):
    """One rule. A field that is None matches everything."""

    effect: Effect
    verb: str | None = None
    resource: str | None = None  # plural, or plural.group
    name: str | None = None
    namespace: str | None = None
    subresource: str | None = None
    user_agent: str | None = None  # a prefix
    count: int | None = None  # how many requests it affects; None for all
    probability: float = 1.0
    seconds: float = 0.0  # of delay; for throttle and unavailable the Retry-After, rounded up
    bytes: int = 0  # of a truncated body that still arrive


class Faults:
    """The rules in force, in order."""

    def __init__(self, seed: int = 0) -> None:
        self._rules: list[tuple[Fault, list[int]]] = []
        self._random = Random(seed)  # noqa: S311  repeatable, not secret
        self.hits: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        """Put a rule in force after the others."""
        self._rules.append((fault, [0]))
        return fault

    def remove(self, fault: Fault) -> None:
        """Take a rule out; harmless when it is not there."""
        self._rules = [(rule, met) for rule, met in self._rules if rule is not fault]

    def clear(self) -> None:
        """Take every rule out."""
        self._rules.clear()

    def __bool__(self) -> bool:
        return bool(self._rules)

    def match(self, verb: str, route: Route, user_agent: str) -> Fault | None:
        """The first rule that matches a request, which counts as used."""
        kind = route.info.kind
        for rule, met in self._rules:
            if rule.count is not None and met[0] >= rule.count:
                continue
            matches = (
                rule.verb in {None, verb}
                and rule.resource in {None, kind.plural, kind.qualified}
                and rule.name in {None, route.name}
                and rule.namespace in {None, route.namespace}
                and rule.subresource in {None, route.subresource}
                and (rule.user_agent is None or user_agent.startswith(rule.user_agent))
            )
            if matches and (rule.probability >= 1.0 or self._random.random() < rule.probability):
                met[0] += 1
                self.hits.append(rule)
                return rule
        return None
