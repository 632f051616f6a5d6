"""Rulings: what holds for one workload when several have spoken. Pure.

From the innermost to the outermost:

    the workload's annotations > ReloadPolicy > the namespace's annotations > ClusterReloadPolicy > the configuration

Per field the first that says anything decides, and says it alone. Freezes, approvals and ignored keys add up instead:
a freeze anywhere is a no.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.operators.reload.gates import Policy
from steersman.operators.reload.means import RESTART, Means
from steersman.operators.reload.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.operators.reload.types import Options, Window

__all__ = ["Layer", "policy_for"]


class Layer(msgspec.Struct, frozen=True):
    """What one of them said, and who it was."""

    where: str  # "the workload", "the namespace", "reloadpolicy/night"
    settings: Settings


def policy_for(layers: Sequence[Layer], options: Options, *, window: Window | None = None) -> Policy:
    """The ruling of `layers`, the innermost first, over the configuration.

    `window` is what a dialect's marks on the workload ask for: only our own annotations there count before it.
    """

    def first(field: str, default: Any) -> Any:
        for layer in layers:
            value = getattr(layer.settings, field)
            if value is not None:
                return value
        return default

    outer = options.window
    for layer in reversed(layers[1:]):
        outer = layer.settings.window(outer)
    return Policy(
        window=layers[0].settings.window(window or outer),
        budget=first("budget", options.budget),
        timetable=first("timetable", options.timetable),
        freezes=tuple((layer.where, layer.settings.freeze) for layer in layers if layer.settings.freeze is not None),
        wave=first("wave", 0),
        depends=first("depends", ()),
        max_concurrent=first("max_concurrent", options.max_concurrent_per_namespace),
        max_concurrent_cluster=first("max_concurrent_cluster", options.max_concurrent),
        notify=first("notify", None),
        on_failure=first("on_failure", options.on_failure),
        deadline=first("deadline", options.deadline),
        guard=first("guard", options.guard),
        means=_allowed(first("means", RESTART), options),
        approved=frozenset().union(*(layer.settings.approved for layer in layers)),
    )


def _allowed(means: Means, options: Options) -> Means:
    return means if means.kind in options.features.actions else msgspec.structs.replace(means, off=True)
