"""What a type cannot say by itself: constraints, list semantics, printer columns and rules, written as annotations.

    replicas: Annotated[int, Ge(1), Column("Replicas")] = 1
    ports: Annotated[list[Port], ListMap("name")]
    schedule: Annotated[str, Pattern(r"^\\S+( \\S+){4}$"), Description("Five fields, as cron takes them.")]
    volume: Annotated[str, Immutable(), Selectable()]

An enumeration is `Literal["a", "b"]` or an `enum.StrEnum`. What belongs to the whole kind are class arguments:

    class WebApp(Resource, group="example.org", version="v1beta1", short_names=("wa",), categories=("all",),
                 deprecated="use v1"): ...

Constraints are checked twice from the one declaration: by the API server, through the generated schema, and by msgspec
when an object is decoded.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Meta

from steersman.kube.api.crd_options import PrinterColumn, ScaleSubresource

__all__ = [
    "Atomic",
    "Column",
    "Description",
    "EmbeddedResource",
    "Format",
    "Ge",
    "Gt",
    "Immutable",
    "Le",
    "ListMap",
    "ListSet",
    "Lt",
    "MaxLength",
    "MinLength",
    "MultipleOf",
    "Pattern",
    "PreserveUnknown",
    "PrinterColumn",
    "ScaleSubresource",
    "Schema",
    "Selectable",
    "XValidation",
]

KnownFormat = Literal[
    "bsonobjectid", "byte", "cidr", "creditcard", "date", "date-time", "duration", "email", "hexcolor", "hostname",
    "ipv4", "ipv6", "isbn", "isbn10", "isbn13", "k8s-long-name", "k8s-short-name", "mac", "password", "rgbcolor", "ssn",
    "uri", "uuid", "uuid3", "uuid4", "uuid5",
    "int32", "int64", "float", "double",
]  # fmt: skip


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


def Format(name: KnownFormat) -> Meta:  # noqa: N802  # markers read like types
    """Has a form that API servers know by name: those before `int32` are for strings, the others for numbers."""
    return Meta(extra_json_schema={"format": name})


def Description(text: str) -> Meta:  # noqa: N802  # markers read like types
    """The description of a field, when a docstring below it is not wanted."""
    return Meta(description=text)


def ListMap(*keys: str) -> Meta:  # noqa: N802  # markers read like types
    """A list whose items are identified by these keys: managers own single items."""
    return Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)})


def ListSet() -> Meta:  # noqa: N802  # markers read like types
    """A list of unique scalars: managers own single values."""
    return Meta(extra_json_schema={"x-kubernetes-list-type": "set"})


def Atomic() -> Meta:  # noqa: N802  # markers read like types
    """A list, map or object that is owned and replaced as a whole."""
    return Meta(extra_json_schema={"x-kubernetes-list-type": "atomic"})


def PreserveUnknown() -> Meta:  # noqa: N802  # markers read like types
    """Keep fields the schema does not name."""
    return Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})


def EmbeddedResource() -> Meta:  # noqa: N802  # markers read like types
    """A whole object of any kind: the server checks its apiVersion, kind and metadata, and keeps the rest as it is."""
    return Meta(
        extra_json_schema={"x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    )


def XValidation(*rules: tuple[str, str]) -> Meta:  # noqa: N802  # markers read like types
    """CEL expressions that must hold, each with the message for when it does not; those of several markers add up."""
    return Meta(extra={f"rule {rule}": {"rule": rule, "message": text} for rule, text in rules})


def Immutable() -> Meta:  # noqa: N802  # markers read like types
    """A value that cannot be changed once it is set. A field without a value can still get one, and can be removed."""
    return XValidation(("self == oldSelf", "cannot be changed"))


def Selectable() -> Meta:  # noqa: N802  # markers read like types
    """Lists and watches can select objects by this field (`--field-selector spec.volume=data`); at most 8 of a kind."""
    return Meta(extra={"selectable": True})


def Schema(**keywords: Any) -> Meta:  # noqa: N802  # markers read like types
    """Any other keyword of a structural schema, as is; underscores in names stand for dashes."""
    return Meta(extra_json_schema={name.replace("_", "-"): value for name, value in keywords.items()})


def Column(name: str, *, type: str = "", description: str = "", priority: int = 0) -> Meta:  # noqa: A002, N802  # the API's own word; markers read like types
    """Show the field as a column of `kubectl get`."""
    return Meta(extra={"column": PrinterColumn(name=name, type=type, description=description, priority=priority)})
