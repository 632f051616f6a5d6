"""What a pod asks for in all: its containers together, or its largest init container. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from steersman.kube.api.quantities import Quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

JSON = dict[str, Any]
Amounts = dict[str, Quantity]


def amounts(values: Mapping[str, Any] | None) -> Amounts:
    """Quantities by the name of their resource, from an object."""
    return {name: Quantity.parse(value) for name, value in (values or {}).items()}


def pod_resources(spec: JSON, field: Literal["requests", "limits"], *, overhead: bool = True) -> Amounts:
    """The sum over the containers, sidecars included; at least what each init container needs when it runs.

    Resources of the pod itself replace the sum. `overhead` adds that of the runtime class.
    """
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _of(container, field))
    sidecars: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers") or ():
        needed = _of(container, field)
        if container.get("restartPolicy") == "Always":
            _add(total, needed)
            _add(sidecars, needed)
            needed = dict(sidecars)
        else:
            _add(needed, sidecars)
        _raise_to(most, needed)
    _raise_to(total, most)
    total |= _of(spec, field)
    if overhead and spec.get("overhead"):
        extra = amounts(spec["overhead"])
        _add(total, {name: extra[name] for name in extra if field == "requests" or name in total})
    return total


def _of(holder: JSON, field: str) -> Amounts:
    return amounts((holder.get("resources") or {}).get(field))


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _raise_to(total: Amounts, least: Amounts) -> None:
    for name, amount in least.items():
        if name not in total or total[name] < amount:
            total[name] = amount
