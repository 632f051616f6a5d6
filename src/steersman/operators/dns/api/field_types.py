"""What the CRDs share: selectors, references, names and access lists, with the validation of the API server.

Patterns are RE2, as API servers have it, and refuse whatever could end a string in a zone file or in named.conf; the
compiler checks names again by their length on the wire, which no pattern can say.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from steersman.crd.markers import Atomic, Ge, Le, ListMap, MaxLength, MinLength, Pattern, Schema
from steersman.kube.api.objects import Struct
from steersman.kube.api.selectors import Selector
from steersman.runtime.reconcile.conditions import Condition

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


class LabelRequirement(Struct):
    """One expression of a label selector."""

    RULES: ClassVar = (
        (
            "self.operator in ['In', 'NotIn'] ? (has(self.values) && size(self.values) > 0) : true",
            "values are required for In and NotIn",
        ),
    )

    key: Annotated[str, MinLength(1), MaxLength(317)]
    """The label key that the expression tests."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label is tested. `In` and `NotIn` compare its value with `values` (`NotIn` also matches objects without
    the label); `Exists` and `DoesNotExist` test whether the label is set."""
    values: Annotated[list[Annotated[str, MaxLength(63)]] | None, Atomic(), Schema(maxItems=64)] = None
    """The values to compare with. `In` and `NotIn` need at least one; `Exists` and `DoesNotExist` ignore them."""


class LabelSelectorSpec(Struct):
    """A label selector: all requirements must match. An empty one matches every object of the namespace."""

    match_labels: dict[str, str] | None = None
    """Labels that an object must have, each with exactly this value."""
    match_expressions: Annotated[list[LabelRequirement] | None, Atomic(), Schema(maxItems=16)] = None
    """Expressions that must all hold, in addition to `matchLabels`."""


class RecordSource(Struct):
    """Selects records for a zone."""

    selector: LabelSelectorSpec
    """Labels of the records to publish. Only records of the zone's own namespace are selected."""


class InstanceSource(Struct):
    """Selects instances for a zone."""

    selector: LabelSelectorSpec
    """Labels of the Bind9Instances that serve the zone. An instance of another namespace takes part only if its
    annotation `bindy.firestoned.io/allow-zone-namespaces` names the zone's namespace or `*`."""


class ZoneSource(Struct):
    """Selects zones for an instance."""

    selector: LabelSelectorSpec
    """Labels of the DNSZones to serve. Only zones of the instance's own namespace are selected."""


class SecretRef(Struct):
    """A Secret with a TSIG key, in this namespace."""

    name: Annotated[str, MinLength(1), MaxLength(253)]
    """Name of the Secret, in the namespace of the server. A Secret that does not exist makes the server not ready
    (`KeyMissing`)."""
    algorithm: Literal["hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512"] | None = None
    """HMAC algorithm of the key when the Secret has no field `algorithm`. Without either, `hmac-sha256`."""
    key_name_key: str = "key-name"
    """Field of the Secret with the name of the key. A name that does not end in `key-name` needs the label
    `steersman.dev/dns-key: "true"` on the Secret."""
    secret_key: str = "secret"  # noqa: S105  # the name of a field
    """Field of the Secret with the shared secret in base64. A name that does not end in `secret` needs the label
    `steersman.dev/dns-key: "true"` on the Secret."""


class TypedReference(Struct):
    """An object, by kind and name."""

    api_version: str = ""
    """API group and version of the object, such as `bindy.firestoned.io/v1beta1`."""
    kind: str = ""
    """Kind of the object."""
    name: str = ""
    """Name of the object."""
    namespace: str = ""
    """Namespace of the object; empty for a cluster-scoped one."""


def selector_of(selector: LabelSelectorSpec) -> Selector:
    """The selector for matching; FormatError when a label is invalid."""
    wire: dict[str, Any] = {"matchLabels": selector.match_labels or {}}
    wire["matchExpressions"] = [
        {"key": row.key, "operator": row.operator, "values": row.values or []}
        for row in selector.match_expressions or ()
    ]
    return Selector.from_wire(wire)
