"""The effective policy: what holds for one workload when several layers set something. Pure.

From the innermost to the outermost:

    the workload's annotations > ReloadPolicy > the namespace's annotations > ClusterReloadPolicy > the configuration

Per field the innermost layer that sets it decides, alone. Freezes, approvals and ignored keys add up instead: a freeze
anywhere blocks. `PolicyIndex` finds the policies that select a workload, and parses each once per resourceVersion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from steersman.operators.reload.api.annotations import NO_KIND_ALIASES, SETTINGS, LayerSettings
from steersman.operators.reload.api.policy import ClusterReloadPolicy, ParsedPolicy, ReloadPolicy, ranked, read_policy
from steersman.operators.reload.planning.gates import Policy
from steersman.operators.reload.workloads.workload import workload_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.kube.api.gvk import Kind
    from steersman.operators.reload.api.action import ReloadAction
    from steersman.operators.reload.api.annotations import KindAliases
    from steersman.operators.reload.api.config import ReloadOptions, Window
    from steersman.operators.reload.workloads.workload import Workload

PolicyKind = ReloadPolicy | ClusterReloadPolicy


class Layer(msgspec.Struct, frozen=True):
    """The settings of one layer, and where they are."""

    where: str  # "the workload", "the namespace", "reloadpolicy/night"
    settings: LayerSettings


def effective_policy(layers: Sequence[Layer], options: ReloadOptions, *, window: Window | None = None) -> Policy:
    """The policy that `layers`, the innermost first, make of the configuration.

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
    decided = {
        setting.field: first(setting.field, setting.default(options))
        for setting in SETTINGS
        if setting.default is not None
    }
    decided["depends"] = tuple(dict.fromkeys(decided["depends"]))  # `deployment/db,deploy/db` is one workload
    decided["action"] = _allowed(decided["action"], options)
    return Policy(
        **decided,
        window=layers[0].settings.window(window or outer),
        freezes=tuple((layer.where, layer.settings.freeze) for layer in layers if layer.settings.freeze is not None),
        cluster_deadline=options.deadline,
        approved=frozenset().union(*(layer.settings.approved for layer in layers)),
    )


def _allowed(action: ReloadAction, options: ReloadOptions) -> ReloadAction:
    if action.kind in options.features.actions:
        return action
    return replace(action, off=f"is not switched on (configuration: reload.actions: [{action.kind}])")


class PolicyIndex:
    """The policies of the kinds that the cluster serves."""

    def __init__(
        self,
        served: Iterable[Kind] | None = None,
        *,
        namespaced_only: bool = False,
        later: bool = False,
        words: KindAliases = NO_KIND_ALIASES,
    ) -> None:
        """`later`: also kinds that may be installed later. `words`: names of kinds besides the built-in ones."""
        self._words = words
        later = later and served is not None
        known = {(kind.group, kind.kind) for kind in served or ()}
        self.kinds: tuple[type[PolicyKind], ...] = tuple(
            kind
            for kind in (ReloadPolicy, ClusterReloadPolicy)
            if (later or (kind.KIND.group, kind.KIND.kind) in known)
            and not (namespaced_only and not kind.KIND.namespaced)
        )
        self._parsed: dict[str, tuple[str, ParsedPolicy]] = {}  # by uid, with its resourceVersion

    def parsed(self, policy: PolicyKind) -> ParsedPolicy:
        """The parsed policy."""
        meta = policy.metadata
        known = self._parsed.get(meta.uid)
        if known is not None and meta.uid and known[0] == meta.resource_version:
            return known[1]
        parsed = read_policy(policy, self._words)
        self._parsed[meta.uid] = (meta.resource_version, parsed)
        return parsed

    def layers(self, workload: Workload, cache: Any) -> tuple[list[Layer], list[Layer]]:
        """The settings of the policies that select a workload, in order: those of its namespace, and the cluster's."""
        found: dict[type[PolicyKind], list[Layer]] = {ReloadPolicy: [], ClusterReloadPolicy: []}
        for kind in self.kinds:
            objects = cache[kind]
            policies = objects.list(namespace=workload.namespace) if kind.KIND.namespaced else objects.list()
            for policy in ranked(policies):
                parsed = self.parsed(policy)
                if parsed.selects(workload):
                    where = f"{kind.KIND.kind.lower()}/{policy.name}"
                    found[kind].append(Layer(where, _for(workload, parsed.settings)))
        return found[ReloadPolicy], found[ClusterReloadPolicy]


def _for(workload: Workload, settings: LayerSettings) -> LayerSettings:
    """The settings for one workload: dependencies are in its namespace, and never itself."""
    if not settings.depends:
        return settings
    me = workload_id(workload)
    depends = tuple(replace(other, namespace=me.namespace) for other in settings.depends)
    return replace(settings, depends=tuple(other for other in depends if other != me))
