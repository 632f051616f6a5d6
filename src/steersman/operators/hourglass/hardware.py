"""What a performer needs of a node, in the words of this cluster: resources to count, labels to select, taints to bear.

`Demand` is what the requirements come to under the operator's hardware map. Without an entry there, a GPU is asked for
as the original does it (`nvidia.com/gpu`, or `nvidia.com/TYPE`). Two answers to one question, such as a label that must
have two values, are a problem and never a guess. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.names import label_key_errors
from steersman.operators.hourglass.settings import DEFAULT_GPU
from steersman.operators.hourglass.validation import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.operators.hourglass.scheduling import Resources
    from steersman.operators.hourglass.settings import HardwareMap
    from steersman.operators.hourglass.types import Hardware

__all__ = ["Demand", "demand_of", "is_gpu", "merged_labels"]

PATH = "spec.hardwareRequirements"


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What hardware adds to a pod."""

    resources: dict[str, int | str] = {}  # in requests and limits alike
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()
    runtime_class: str | None = None


def is_gpu(resource: str) -> bool:
    """Whether an extended resource is a GPU, as far as its name says."""
    domain, _, name = resource.partition("/")
    return bool(name) and (domain in ("nvidia.com", "amd.com", "gpu.intel.com") or "gpu" in name)


def demand_of(
    hardware: Hardware | None, resources: Resources | None, known: HardwareMap
) -> tuple[Demand, tuple[Problem, ...]]:
    """What `hardware` comes to, and what is wrong with it."""
    if hardware is None:
        return Demand(), ()
    problems: list[Problem] = []
    demands = [_gpu(hardware, known, problems), _tee(hardware, known, problems)]
    if hardware.custom_labels:
        demands.append(Demand(node_selector=dict(hardware.custom_labels)))
    selector = merged_labels((one.node_selector for one in demands), PATH, problems)
    classes = sorted({one.runtime_class for one in demands if one.runtime_class})
    if len(classes) > 1:
        problems.append(Problem(PATH, f"asks for two runtime classes: {', '.join(classes)}"))
    counted: dict[str, int | str] = {}
    for one in demands:
        counted |= one.resources
    _check_gpus(counted, resources, problems)
    return (
        Demand(
            resources=counted,
            node_selector=selector,
            tolerations=tuple(toleration for one in demands for toleration in one.tolerations),
            runtime_class=classes[0] if classes else None,
        ),
        tuple(problems),
    )


def merged_labels(parts: Iterable[Mapping[str, str]], path: str, problems: list[Problem]) -> dict[str, str]:
    """All labels together; one key with two values is a problem."""
    merged: dict[str, str] = {}
    for part in parts:
        for key, value in part.items():
            if merged.setdefault(key, value) != value:
                problems.append(Problem(path, f'{key} must be both "{merged[key]}" and "{value}"'))
    return merged


def _gpu(hardware: Hardware, known: HardwareMap, problems: list[Problem]) -> Demand:
    if not hardware.gpu_count:
        return Demand()
    kind = hardware.gpu_type or ""
    offer = known.gpu.get(kind)
    if offer is not None:
        return Demand(
            resources={offer.resource or DEFAULT_GPU: hardware.gpu_count, **offer.resources},
            node_selector=offer.node_selector,
            tolerations=offer.tolerations,
            runtime_class=offer.runtime_class,
        )
    resource = f"nvidia.com/{kind}" if kind else DEFAULT_GPU
    if label_key_errors(resource):
        problems.append(
            Problem(
                f"{PATH}.gpuType",
                f'"{kind[:60]}" is not in the operator\'s hardwareMap and cannot be part of a resource name',
            )
        )
        return Demand()
    return Demand(resources={resource: hardware.gpu_count})


def _tee(hardware: Hardware, known: HardwareMap, problems: list[Problem]) -> Demand:
    if not hardware.tee_required:
        return Demand()
    if not hardware.tee_type:
        problems.append(Problem(f"{PATH}.teeType", f"is needed with teeRequired (one of {_list(known)})"))
        return Demand()
    offer = known.tee_offer(hardware.tee_type)
    if offer is None:
        problems.append(Problem(f"{PATH}.teeType", f'"{hardware.tee_type[:60]}" is not known (one of {_list(known)})'))
        return Demand()
    counted = dict(offer.resources) | ({offer.resource: 1} if offer.resource else {})
    return Demand(
        resources=counted,
        node_selector=offer.node_selector,
        tolerations=offer.tolerations,
        runtime_class=offer.runtime_class,
    )


def _list(known: HardwareMap) -> str:
    return ", ".join(known.tee_names())


def _check_gpus(counted: Mapping[str, int | str], resources: Resources | None, problems: list[Problem]) -> None:
    """Two names for GPUs are two kinds of GPU: no node has both, and the original would wait for ever."""
    asked = {name for name in counted if is_gpu(name)}
    written = {name for part in (resources.limits, resources.requests) if part for name in part} if resources else set()
    others = sorted(name for name in written if is_gpu(name) and name not in asked)
    if asked and others:
        problems.append(
            Problem("spec.resources", f"asks for {others[0]} beside {min(asked)} of hardwareRequirements: keep one")
        )
