"""What the kinds of this group share: selectors, references, names and access lists, with what the server checks.

Patterns are RE2, as API servers have it, and refuse whatever could end a string in a zone file or in named.conf; the
compiler checks names again by their length on the wire, which no pattern can say.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from steersman.crd.markers import Atomic, Ge, Le, ListMap, MaxLength, MinLength, Pattern, Schema
from steersman.kube.objects import Struct
from steersman.kube.selectors import Selector
from steersman.runtime.conditions import Condition

__all__ = [
    "U16",
    "AclEntry",
    "Conditions",
    "Fqdn",
    "InstanceSource",
    "Ipv4",
    "Ipv6",
    "LabelSelector",
    "ObjectReference",
    "PolicyName",
    "Port",
    "RecordSource",
    "Requirement",
    "SecretRef",
    "Ttl",
    "ZoneSource",
    "selector_of",
]

MAX_32: Final = 2**31 - 1

_LABEL: Final = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
Fqdn = Annotated[str, Pattern(rf"^(({_LABEL}\.)+|\.)$"), MaxLength(254)]
Ipv4 = Annotated[str, Schema(format="ipv4"), MaxLength(15)]
Ipv6 = Annotated[str, Schema(format="ipv6"), MaxLength(45)]
Ttl = Annotated[int | None, Schema(minimum=0, maximum=MAX_32, nullable=True)]
U16 = Annotated[int, Ge(0), Le(65535)]
Port = Annotated[int, Ge(1), Le(65535)]
PolicyName = Annotated[str, Pattern(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$"), MaxLength(63)]
AclEntry = Annotated[
    str,
    Pattern(
        r"^!?\s*([A-Za-z][A-Za-z0-9_-]{0,62}|key\s+\"?[A-Za-z0-9._-]{1,253}\"?|[0-9A-Fa-f:.]{2,45}(/[0-9]{1,3})?)$"
    ),
    MaxLength(256),
]
Conditions = Annotated[list[Condition] | None, ListMap("type")]


class Requirement(Struct):
    """One expression of a label selector."""

    RULES: ClassVar = (
        (
            "self.operator in ['In', 'NotIn'] ? (has(self.values) && size(self.values) > 0) : true",
            "values are required for In and NotIn",
        ),
    )

    key: Annotated[str, MinLength(1), MaxLength(317)]
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[list[Annotated[str, MaxLength(63)]] | None, Atomic(), Schema(maxItems=64)] = None


class LabelSelector(Struct):
    """Which labels are meant: all of it must hold. An empty one means every object of the namespace."""

    match_labels: dict[str, str] | None = None
    match_expressions: Annotated[list[Requirement] | None, Atomic(), Schema(maxItems=16)] = None


class RecordSource(Struct):
    """One way for a record to be part of a zone."""

    selector: LabelSelector


class InstanceSource(Struct):
    """One way for an instance to serve a zone."""

    selector: LabelSelector


class ZoneSource(Struct):
    """One way for a zone to be served by an instance."""

    selector: LabelSelector


class SecretRef(Struct):
    """A Secret with a key, in this namespace."""

    name: Annotated[str, MinLength(1), MaxLength(253)]
    algorithm: Literal["hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512"] | None = None
    key_name_key: str = "key-name"
    secret_key: str = "secret"  # noqa: S105  # the name of a field


class ObjectReference(Struct):
    """An object, by kind and name."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""


def selector_of(selector: LabelSelector) -> Selector:
    """The meaning of a selector; FormatError when a label in it cannot exist."""
    wire: dict[str, Any] = {"matchLabels": selector.match_labels or {}}
    wire["matchExpressions"] = [
        {"key": row.key, "operator": row.operator, "values": row.values or []}
        for row in selector.match_expressions or ()
    ]
    return Selector.from_wire(wire)
