"""From a template to a pod, and from a template to the short text that tells it from another.

Invariant: equal templates have equal hashes, in every process and at every time, so a restart of the simulation finds
its own objects again. Pure.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.objects import ObjectMeta, owner_reference
from steersman.simulate.kinds import JSON, Pod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.kube.objects import Resource

__all__ = ["HASH_LABEL", "REVISION_LABEL", "fingerprint", "limit", "pod_from", "unhashed"]

HASH_LABEL = "pod-template-hash"
REVISION_LABEL = "controller-revision-hash"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, so no words; what Kubernetes uses for names it makes up
_encode = msgspec.json.Encoder(order="deterministic").encode


def fingerprint(value: Any, length: int = 10) -> str:
    """A short name for a JSON value."""
    number = int.from_bytes(hashlib.sha256(_encode(value)).digest()[:16], "big")
    letters = []
    for _ in range(length):
        number, digit = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[digit])
    return "".join(letters)


def unhashed(template: JSON) -> JSON:
    """A template of a ReplicaSet as its Deployment has it: without the label that was added to tell it apart."""
    metadata = template.get("metadata") or {}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name != HASH_LABEL}
    return {**template, "metadata": {**metadata, "labels": labels}}


def pod_from(
    template: JSON,
    owner: Resource,
    *,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> Pod:
    """The pod that `owner` makes of a template; without a name the server makes one up."""
    metadata = template.get("metadata") or {}
    return Pod(
        metadata=ObjectMeta(
            name=name,
            generate_name="" if name else f"{owner.name}-",
            namespace=owner.namespace,
            labels={**(metadata.get("labels") or {}), **(labels or {})},
            annotations={**(metadata.get("annotations") or {}), **(annotations or {})},
            finalizers=metadata.get("finalizers"),
            owner_references=[owner_reference(owner)],
        ),
        spec={**(template.get("spec") or {}), **(spec or {})},
    )


def limit(value: int | str | None, total: int, *, up: bool, default: int | str) -> int:
    """A number or a percentage of `total`, rounded up or down.

    >>> limit("25%", 10, up=True, default=0), limit("25%", 10, up=False, default=0)
    (3, 2)
    """
    value = default if value is None else value
    if isinstance(value, int):
        return value
    percent = int(value.rstrip("%")) * total
    return -(-percent // 100) if up else percent // 100
