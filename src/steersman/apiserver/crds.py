"""CustomResourceDefinitions: their defaults and the rules they must keep."""

from __future__ import annotations

from typing import Any

__all__ = ["has_rules"]


def has_rules(definition: dict[str, Any]) -> bool:
    """Whether any schema of a definition carries CEL rules, which this server does not evaluate."""
    return "x-kubernetes-validations" in str(definition["spec"]["versions"])
