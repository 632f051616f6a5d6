"""Hardware requirements as this cluster expresses them: extended resources, node labels and tolerations. Pure.

The operator's hardware map translates types of hardware. A GPU without an entry there is requested as the original does
(`nvidia.com/gpu`, or `nvidia.com/TYPE`). A contradiction, such as a label that must have two values, is a problem and
never a guess.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.api.validation import label_key_errors
from steersman.operators.hourglass.api.config import DEFAULT_GPU
from steersman.operators.hourglass.api.validation import FieldProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.operators.hourglass.api.config import HardwareMap
    from steersman.operators.hourglass.api.scheduling import Resources
    from steersman.operators.hourglass.api.types import Hardware

PATH = "spec.hardwareRequirements"


class HardwareDemand(msgspec.Struct, frozen=True, kw_only=True):
    """What hardware adds to a pod."""

    resources: dict[str, int | str] = {}  # in requests and limits alike
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()
    runtime_class: str | None = None


def is_gpu(resource: str) -> bool:
    """Whether the name of an extended resource is that of a GPU."""
    domain, _, name = resource.partition("/")
    return bool(name) and (domain in ("nvidia.com", "amd.com", "gpu.intel.com") or "gpu" in name)


def demand_of(
    hardware: Hardware | None, resources: Resources | None, known: HardwareMap
) -> tuple[HardwareDemand, tuple[FieldProblem, ...]]:
    """What `hardware` adds to a pod, and the problems with it."""
    if hardware is None:
        return HardwareDemand(), ()
    problems: list[FieldProblem] = []
    demands = [_gpu(hardware, known, problems), _tee(hardware, known, problems)]
    if hardware.custom_labels:
        demands.append(HardwareDemand(node_selector=dict(hardware.custom_labels)))
    selector = merged_labels((demand.node_selector for demand in demands), PATH, problems)
    classes = sorted({demand.runtime_class for demand in demands if demand.runtime_class})
    if len(classes) > 1:
        problems.append(FieldProblem(PATH, f"needs two runtime classes: {', '.join(classes)}"))
    counted: dict[str, int | str] = {}
    for demand in demands:
        counted |= demand.resources
    _check_gpus(counted, resources, problems)
    return (
        HardwareDemand(
            resources=counted,
            node_selector=selector,
            tolerations=tuple(toleration for demand in demands for toleration in demand.tolerations),
            runtime_class=classes[0] if classes else None,
        ),
        tuple(problems),
    )


def merged_labels(parts: Iterable[Mapping[str, str]], path: str, problems: list[FieldProblem]) -> dict[str, str]:
    """All labels together; one key with two values is a problem."""
    merged: dict[str, str] = {}
    for part in parts:
        for key, value in part.items():
            if merged.setdefault(key, value) != value:
                problems.append(FieldProblem(path, f'{key} must be both "{merged[key]}" and "{value}"'))
    return merged


def _gpu(hardware: Hardware, known: HardwareMap, problems: list[FieldProblem]) -> HardwareDemand:
    if not hardware.gpu_count:
        return HardwareDemand()
    kind = hardware.gpu_type or ""
    offer = known.gpu.get(kind)
    if offer is not None:
        return HardwareDemand(
            resources={offer.resource or DEFAULT_GPU: hardware.gpu_count, **offer.resources},
            node_selector=offer.node_selector,
            tolerations=offer.tolerations,
            runtime_class=offer.runtime_class,
        )
    resource = f"nvidia.com/{kind}" if kind else DEFAULT_GPU
    if label_key_errors(resource):
        problems.append(
            FieldProblem(
                f"{PATH}.gpuType",
                f'"{kind[:60]}" is not in the operator\'s hardwareMap and cannot be part of a resource name',
            )
        )
        return HardwareDemand()
    return HardwareDemand(resources={resource: hardware.gpu_count})


def _tee(hardware: Hardware, known: HardwareMap, problems: list[FieldProblem]) -> HardwareDemand:
    if not hardware.tee_required:
        return HardwareDemand()
    if not hardware.tee_type:
        problems.append(FieldProblem(f"{PATH}.teeType", f"is needed with teeRequired (one of {_list(known)})"))
        return HardwareDemand()
    offer = known.tee_offer(hardware.tee_type)
    if offer is None:
        problems.append(
            FieldProblem(f"{PATH}.teeType", f'"{hardware.tee_type[:60]}" is unknown (one of {_list(known)})')
        )
        return HardwareDemand()
    counted = dict(offer.resources) | ({offer.resource: 1} if offer.resource else {})
    return HardwareDemand(
        resources=counted,
        node_selector=offer.node_selector,
        tolerations=offer.tolerations,
        runtime_class=offer.runtime_class,
    )


def _list(known: HardwareMap) -> str:
    return ", ".join(known.tee_names())


def _check_gpus(counted: Mapping[str, int | str], resources: Resources | None, problems: list[FieldProblem]) -> None:
    """Two resource names are two kinds of GPU: no node has both, and the pod would stay Pending."""
    asked = {name for name in counted if is_gpu(name)}
    written = {name for part in (resources.limits, resources.requests) if part for name in part} if resources else set()
    others = sorted(name for name in written if is_gpu(name) and name not in asked)
    if asked and others:
        problems.append(
            FieldProblem("spec.resources", f"requests {others[0]} and hardwareRequirements {min(asked)}: keep one")
        )
