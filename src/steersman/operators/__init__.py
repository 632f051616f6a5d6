"""The operators, by name. Each is imported only when it is needed, and none imports another.

An `Operator` is a value: the kinds it defines, the type of its section in the configuration file, a function from that
configuration to the bundle that runs, and one to the RBAC rules that it needs. All four have the same folders: `api`
(what users write), the folders of their decisions, `controllers`, `inspect`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from steersman.errors import ConfigError
from steersman.kube.api.objects import Resource
from steersman.kube.api.types.rbac import PolicyRule
from steersman.runtime.manager.operator_bundle import OperatorBundle, RuntimeEnvironment
from steersman.runtime.rbac import EVENTS, Permissions, merge_rules, split_rules

__all__ = ["OPERATORS", "Operator", "load_operator", "permissions_of"]

# name -> module with an `OPERATOR`
OPERATORS: dict[str, str] = {
    "hourglass": "steersman.operators.hourglass.controllers.setup",
    "dns": "steersman.operators.dns.controllers.setup",
    "reload": "steersman.operators.reload.controllers.setup",
    "toolset": "steersman.operators.toolset.reconcile.setup",
}


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line knows of an operator."""

    name: str
    summary: str  # one line, for people
    parts: Callable[[Any, RuntimeEnvironment], OperatorBundle]  # from its configuration
    rules: Callable[[Any], Sequence[PolicyRule]] = lambda _config: ()  # the least that configuration needs
    own_rules: Callable[[Any], Sequence[PolicyRule]] = lambda _config: ()  # the same, where the process itself is
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


def permissions_of(operators: Iterable[tuple[Operator, Any]]) -> Permissions:
    """What these operators need together, each with its configuration."""
    rules: list[PolicyRule] = [EVENTS]
    own: list[PolicyRule] = []
    cluster_wide: set[tuple[str, str]] = set()
    for operator, config in operators:
        rules += operator.rules(config)
        own += operator.own_rules(config)
        cluster_wide |= {(kind.KIND.group, kind.KIND.plural) for kind in operator.kinds if not kind.KIND.namespaced}
    return msgspec.structs.replace(split_rules(rules, cluster_wide=cluster_wide), own=merge_rules(own))
