"""Why a pod is on no node: what each node lacks, in the order in which the scheduler looks. Pure.

Labels, required node affinity, taints, readiness and resources are judged. What depends on other pods (affinity between
pods, topology spread, volumes) is not: a node that lacks nothing here may still be refused for that, and the
scheduler's own message stands beside this answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.quantities import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from steersman.kube.types.core import Node, Taint
    from steersman.kube.types.pods import Pod

__all__ = ["NodeVerdict", "requests_of", "used_on", "verdicts"]

ZERO = Quantity.parse(0)
BLOCKING = ("NoSchedule", "NoExecute")


class NodeVerdict(msgspec.Struct, frozen=True):
    """One node: what it lacks; nothing when the pod would fit."""

    node: str
    lacks: tuple[str, ...] = ()


def verdicts(pod: Pod, nodes: Iterable[Node], pods: Sequence[Pod]) -> list[NodeVerdict]:
    """What every node lacks for `pod`; `pods` are all pods of the cluster."""
    found = []
    for node in nodes:
        others = [one for one in pods if one.spec.node_name == node.name and one.metadata.uid != pod.metadata.uid]
        found.append(NodeVerdict(node.name, tuple(_lacks(pod, node, others))))
    return sorted(found, key=lambda verdict: (len(verdict.lacks), verdict.node))


def requests_of(pod: Pod) -> dict[str, Quantity]:
    """What a pod asks for in all: its containers together, or the largest init container where that is more."""
    total: dict[str, Quantity] = {}
    for container in pod.spec.containers or ():
        for name, amount in _asked(container).items():
            total[name] = total.get(name, ZERO) + amount
    for container in pod.spec.init_containers:
        for name, amount in _asked(container).items():
            total[name] = max(total.get(name, ZERO), amount)
    return total


def used_on(pods: Iterable[Pod]) -> dict[str, Quantity]:
    """What pods of a node use, those that have ended aside."""
    used: dict[str, Quantity] = {}
    for pod in pods:
        if pod.status.phase in ("Succeeded", "Failed"):
            continue
        for name, amount in requests_of(pod).items():
            used[name] = used.get(name, ZERO) + amount
    return used


def _asked(container: Any) -> dict[str, Quantity]:
    resources = container.resources
    if resources is None:
        return {}
    amounts = {**(resources.limits or {}), **(resources.requests or {})}
    return {name: Quantity.parse(amount) for name, amount in amounts.items()}


def _lacks(pod: Pod, node: Node, others: Sequence[Pod]) -> Iterator[str]:
    if node.spec.unschedulable:
        yield "is cordoned"
    ready = next((one.status for one in node.status.conditions if one.type == "Ready"), "Unknown")
    if ready != "True":
        yield "is not ready"
    for key, value in (pod.spec.node_selector or {}).items():
        have = node.labels.get(key)
        if have != value:
            yield f"label {key}={value}" + (f" (has {have})" if have is not None else "")
    if not _matches_affinity(pod.spec.affinity, node):
        yield "required node affinity"
    for taint in node.spec.taints:
        if taint.effect in BLOCKING and not any(_tolerates(one, taint) for one in pod.spec.tolerations):
            yield f"toleration of taint {taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
    allocatable = node.status.allocatable or {}
    used = used_on(others)
    for name, amount in sorted(requests_of(pod).items()):
        whole = Quantity.parse(allocatable.get(name, 0))
        free = whole - used.get(name, ZERO)
        if free < amount:
            yield f"{amount} {name} ({free if free > ZERO else 0} of {whole} free)"
    if "pods" in allocatable and int(Quantity.parse(allocatable["pods"])) <= len(others):
        yield f"room for another pod ({len(others)} of {allocatable['pods']})"


def _tolerates(toleration: Any, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return bool(toleration.operator == "Exists")
    if toleration.key != taint.key:
        return False
    return bool(toleration.operator == "Exists" or (toleration.value or "") == (taint.value or ""))


def _matches_affinity(affinity: Mapping[str, Any] | None, node: Node) -> bool:
    required = ((affinity or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(_matches_term(term, node) for term in required.get("nodeSelectorTerms") or ())


def _matches_term(term: Mapping[str, Any], node: Node) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not (expressions or fields):
        return False
    labels = node.labels
    return all(_holds(one, labels) for one in expressions) and all(
        _holds(one, {"metadata.name": node.name}) for one in fields
    )


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    have = labels.get(key)
    match expression["operator"]:
        case "In":
            return have in values
        case "NotIn":
            return have not in values
        case "Exists":
            return have is not None
        case "DoesNotExist":
            return have is None
        case "Gt" | "Lt" as sign:
            return _compares(sign, have, values)
    return False


def _compares(sign: str, have: str | None, values: Sequence[str]) -> bool:
    try:
        left, right = int(have or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if sign == "Gt" else left < right
