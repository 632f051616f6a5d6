"""The operators, by name. Each is imported only when it is asked for, and none knows another.

An operator is a value: the kinds it brings, the type of its section in the configuration file, a function from that
configuration to the parts that run, and one to the rights they need. Nobody needs anything else of it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from steersman.errors import ConfigError
from steersman.kube.objects import Resource
from steersman.kube.types.rbac import PolicyRule
from steersman.runtime.parts import Parts, Surroundings

__all__ = ["OPERATORS", "Operator", "load_operator"]

# name -> module with an `OPERATOR`
OPERATORS: dict[str, str] = {
    "hourglass": "steersman.operators.hourglass.controller",
    "dns": "steersman.operators.dns.controller",
    "reload": "steersman.operators.reload.controller",
    "toolset": "steersman.operators.toolset.controller",
}


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line knows of an operator."""

    name: str
    summary: str  # one line, for people
    parts: Callable[[Any, Surroundings], Parts]  # from its configuration
    rules: Callable[[Any], Sequence[PolicyRule]] = lambda _config: ()  # the least rights that configuration needs
    config: type[msgspec.Struct] | None = None  # the section of the configuration file that bears its name
    check: Callable[[Any], object] = lambda _config: None  # raises ConfigError that names the field with a wrong value
    kinds: tuple[type[Resource], ...] = ()  # custom kinds it defines


def load_operator(name: str) -> Operator:
    """The operator of that name."""
    if name not in OPERATORS:
        known = ", ".join(sorted(OPERATORS)) or "none in this release"
        raise ConfigError(f'"{name}" is not an operator (known: {known})', field="operators")
    operator: Operator = importlib.import_module(OPERATORS[name]).OPERATOR
    return operator
