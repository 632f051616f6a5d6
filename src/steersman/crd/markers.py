"""What a type cannot say by itself: constraints, list semantics, printer columns and rules, written as annotations.

    replicas: Annotated[int, Ge(1), Column("Replicas")] = 1
    ports: Annotated[list[Port], ListMap("name")]
    schedule: Annotated[str, Pattern(r"^\\S+( \\S+){4}$"), Doc("Five fields, as cron takes them.")]

Constraints are checked twice from the one declaration: by the API server, through the generated schema, and by msgspec
when an object is decoded.
"""

from __future__ import annotations

from typing import Any

from msgspec import Meta

from steersman.kube.definitions import ColumnSpec, ScaleSpec

__all__ = [
    "Atomic",
    "Column",
    "ColumnSpec",
    "Doc",
    "Ge",
    "Gt",
    "Le",
    "ListMap",
    "ListSet",
    "Lt",
    "MaxLength",
    "MinLength",
    "MultipleOf",
    "Pattern",
    "PreserveUnknown",
    "Rule",
    "ScaleSpec",
    "Schema",
]


def Ge(value: float) -> Meta:  # noqa: N802  # markers read like types
    """At least `value`."""
    return Meta(ge=value)


def Gt(value: float) -> Meta:  # noqa: N802  # markers read like types
    """More than `value`."""
    return Meta(gt=value)


def Le(value: float) -> Meta:  # noqa: N802  # markers read like types
    """At most `value`."""
    return Meta(le=value)


def Lt(value: float) -> Meta:  # noqa: N802  # markers read like types
    """Less than `value`."""
    return Meta(lt=value)


def MultipleOf(value: float) -> Meta:  # noqa: N802  # markers read like types
    """A whole multiple of `value`."""
    return Meta(multiple_of=value)


def MinLength(value: int) -> Meta:  # noqa: N802  # markers read like types
    """At least so many characters, items or entries."""
    return Meta(min_length=value)


def MaxLength(value: int) -> Meta:  # noqa: N802  # markers read like types
    """At most so many characters, items or entries."""
    return Meta(max_length=value)


def Pattern(expression: str) -> Meta:  # noqa: N802  # markers read like types
    """Matches a regular expression (RE2 on the server: no look-around)."""
    return Meta(pattern=expression)


def Doc(text: str) -> Meta:  # noqa: N802  # markers read like types
    """The description of a field, when a docstring below it is not wanted."""
    return Meta(description=text)


def ListMap(*keys: str) -> Meta:  # noqa: N802  # markers read like types
    """A list whose items are identified by these keys: managers own single items."""
    return Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)})


def ListSet() -> Meta:  # noqa: N802  # markers read like types
    """A list of unique scalars: managers own single values."""
    return Meta(extra_json_schema={"x-kubernetes-list-type": "set"})


def Atomic() -> Meta:  # noqa: N802  # markers read like types
    """A list that is owned and replaced as a whole."""
    return Meta(extra_json_schema={"x-kubernetes-list-type": "atomic"})


def PreserveUnknown() -> Meta:  # noqa: N802  # markers read like types
    """Keep fields the schema does not name."""
    return Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})


def Rule(*rules: tuple[str, str]) -> Meta:  # noqa: N802  # markers read like types
    """CEL expressions that must hold, each with the message for when it does not."""
    return Meta(
        extra_json_schema={"x-kubernetes-validations": [{"rule": rule, "message": text} for rule, text in rules]}
    )


def Schema(**keywords: Any) -> Meta:  # noqa: N802  # markers read like types
    """Any other keyword of a structural schema, as is; underscores in names stand for dashes."""
    return Meta(extra_json_schema={name.replace("_", "-"): value for name, value in keywords.items()})


def Column(name: str, *, type: str = "", description: str = "", priority: int = 0) -> Meta:  # noqa: A002, N802  # the API's own word; markers read like types
    """Show the field as a column of `kubectl get`."""
    return Meta(extra={"column": ColumnSpec(name=name, type=type, description=description, priority=priority)})
