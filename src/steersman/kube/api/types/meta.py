"""Parts that many kinds share. Pure data.

How to read every struct in this package: it names the fields that controllers use and skips the rest. A field that may
be absent and means something else when it is zero or empty is None by default; all other absent fields read as zero,
empty text or an empty sequence, so they need no check. Sequences accept lists and tuples. Timestamps are RFC 3339 text
(`kube.times` reads them), quantities text or numbers (`kube.quantities`). What a struct does not name and what it read
as absent is never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import field

from steersman.kube.api.objects import Struct

__all__ = [
    "Amount",
    "BaseCondition",
    "IntOrString",
    "ListMeta",
    "Status",
    "StatusCause",
    "StatusCondition",
    "StatusDetails",
]

IntOrString = int | str
Amount = str | int | float  # a quantity as it is on the wire


class BaseCondition(Struct):
    """What the conditions of all kinds have."""

    type: str
    status: str = "Unknown"  # True, False or Unknown
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class StatusCondition(BaseCondition):
    """One aspect of an object's state, as nearly every status lists them."""

    observed_generation: int | None = None


class ListMeta(Struct):
    """The metadata of a list."""

    resource_version: str = ""
    continue_: str = field(default="", name="continue")
    remaining_item_count: int | None = None


class StatusCause(Struct):
    """One reason why a request was refused."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Struct):
    """What a refused request was about."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: Sequence[StatusCause] = ()
    retry_after_seconds: int = 0


class Status(Struct):
    """The answer of a server that has no object to answer with."""

    status: str = ""  # Success or Failure
    message: str = ""
    reason: str = ""
    code: int = 0
    metadata: dict[str, Any] | None = None
    details: StatusDetails | None = None
