"""Why a pod is Pending: what each node lacks, in the scheduler's order. Pure.

Labels, required node affinity, taints, readiness and resources are checked. What depends on other pods (pod affinity,
topology spread, volumes) is not: the scheduler may still reject a node that lacks nothing here, and its own message is
shown beside this answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.api.quantities import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from steersman.kube.api.types.core import Node, Taint
    from steersman.kube.api.types.pods import Pod

ZERO = Quantity.parse(0)
BLOCKING = ("NoSchedule", "NoExecute")


class NodeFit(msgspec.Struct, frozen=True):
    """What one node lacks; nothing when the pod would fit."""

    node: str
    lacks: tuple[str, ...] = ()


def fit_on_nodes(pod: Pod, nodes: Iterable[Node], pods: Sequence[Pod]) -> list[NodeFit]:
    """What every node lacks for `pod`; `pods` are all pods of the cluster."""
    fits = []
    for node in nodes:
        others = [
            other for other in pods if other.spec.node_name == node.name and other.metadata.uid != pod.metadata.uid
        ]
        fits.append(NodeFit(node.name, tuple(_lacks(pod, node, others))))
    return sorted(fits, key=lambda fit: (len(fit.lacks), fit.node))


def requests_of(pod: Pod) -> dict[str, Quantity]:
    """The requests of a pod: the sum of its containers, or the largest init container where that is more."""
    total: dict[str, Quantity] = {}
    for container in pod.spec.containers or ():
        for name, amount in _requested(container).items():
            total[name] = total.get(name, ZERO) + amount
    for container in pod.spec.init_containers:
        for name, amount in _requested(container).items():
            total[name] = max(total.get(name, ZERO), amount)
    return total


def used_on(pods: Iterable[Pod]) -> dict[str, Quantity]:
    """What the pods of a node request, without those that ended."""
    used: dict[str, Quantity] = {}
    for pod in pods:
        if pod.status.phase in ("Succeeded", "Failed"):
            continue
        for name, amount in requests_of(pod).items():
            used[name] = used.get(name, ZERO) + amount
    return used


def _requested(container: Any) -> dict[str, Quantity]:
    resources = container.resources
    if resources is None:
        return {}
    amounts = {**(resources.limits or {}), **(resources.requests or {})}
    return {name: Quantity.parse(amount) for name, amount in amounts.items()}


def _lacks(pod: Pod, node: Node, others: Sequence[Pod]) -> Iterator[str]:
    if node.spec.unschedulable:
        yield "is cordoned"
    ready = next((condition.status for condition in node.status.conditions if condition.type == "Ready"), "Unknown")
    if ready != "True":
        yield "is not ready"
    for key, value in (pod.spec.node_selector or {}).items():
        have = node.labels.get(key)
        if have != value:
            yield f"label {key}={value}" + (f" (has {have})" if have is not None else "")
    if not _matches_affinity(pod.spec.affinity, node):
        yield "required node affinity"
    for taint in node.spec.taints:
        if taint.effect in BLOCKING and not any(_tolerates(item, taint) for item in pod.spec.tolerations):
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
    return all(_holds(expression, labels) for expression in expressions) and all(
        _holds(field, {"metadata.name": node.name}) for field in fields
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
