"""The operators, by name. Each is imported only when it is asked for, and none knows another.

An operator is a value: the kinds it brings, the type of its section in the configuration file, and a function from
that configuration to controllers. `steersman run` needs nothing else of it, and a file of your own may hold one too.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from steersman.errors import ConfigError
from steersman.kube.objects import Resource
from steersman.runtime.controller import Controller

__all__ = ["OPERATORS", "Operator", "load_operator"]

# name -> module with an `OPERATOR`
OPERATORS: dict[str, str] = {
    "reload": "steersman.operators.reload.controller",
}


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line knows of an operator."""

    name: str
    summary: str  # one line, for people
    controllers: Callable[[Any], Sequence[Controller]]  # from its configuration
    config: type[msgspec.Struct] | None = None  # the section of the configuration file that bears its name
    kinds: tuple[type[Resource], ...] = ()  # custom kinds it defines


def load_operator(name: str) -> Operator:
    """The operator of that name."""
    if name not in OPERATORS:
        known = ", ".join(sorted(OPERATORS)) or "none in this release"
        raise ConfigError(f'"{name}" is not an operator (known: {known})', field="operators")
    operator: Operator = importlib.import_module(OPERATORS[name]).OPERATOR
    return operator
