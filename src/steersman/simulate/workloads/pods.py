"""From a template to a pod, and from a template to the short hash that identifies it.

Invariant: equal templates have equal hashes, in every process and at every time, so a restart of the simulation finds
its own objects again. Pure.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.api.objects import ObjectMeta, owner_reference
from steersman.kube.api.times import parse_time
from steersman.simulate.kinds import SimulatedPod
from steersman.simulate.plan import earliest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.kube.api.objects import Resource
    from steersman.simulate.kinds import JSON

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
    """A template of a ReplicaSet as its Deployment has it: without the label that identifies it."""
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
) -> SimulatedPod:
    """The pod that `owner` makes of a template; without a name the server makes one up."""
    metadata = template.get("metadata") or {}
    return SimulatedPod(
        metadata=ObjectMeta(
            name=name,
            generate_name=f"{owner.name}-",
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


class PodCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Pods, counted."""

    total: int
    ready: int
    available: int
    again: float | None  # seconds until the next ready pod counts as available


def is_active(pod: SimulatedPod) -> bool:
    """Neither on its way out nor finished."""
    return not pod.deleting and pod.status.phase not in {"Succeeded", "Failed"}


def is_terminating(pod: SimulatedPod) -> bool:
    """On its way out, and not finished."""
    return pod.deleting and pod.status.phase not in {"Succeeded", "Failed"}


def is_ready(pod: SimulatedPod) -> bool:
    """Whether its Ready condition says so."""
    return any(known.type == "Ready" and known.status == "True" for known in pod.status.conditions)


def until_available(pod: SimulatedPod, min_ready_seconds: int, now: float) -> float | None:
    """Seconds until a pod has been ready long enough; 0 when it has, None while it is not ready."""
    for known in pod.status.conditions:
        if known.type == "Ready" and known.status == "True":
            if not min_ready_seconds or known.last_transition_time is None:
                return 0.0
            return max(0.0, parse_time(known.last_transition_time).timestamp() + min_ready_seconds - now)
    return None


def count_pods(pods: Iterable[SimulatedPod], min_ready_seconds: int, now: float) -> PodCounts:
    """Count them."""
    waits = [until_available(pod, min_ready_seconds, now) for pod in pods]
    return PodCounts(
        total=len(waits),
        ready=sum(wait is not None for wait in waits),
        available=sum(wait == 0 for wait in waits),
        again=earliest(*(wait for wait in waits if wait)),
    )
