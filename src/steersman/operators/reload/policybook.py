"""The policies at hand: which of them are about a workload, in which order. Each is read once per version of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from steersman.operators.reload.policies import ClusterReloadPolicy, ReloadPolicy, Said, ranked, read_policy
from steersman.operators.reload.rulings import Layer
from steersman.operators.reload.settings import NO_WORDS
from steersman.operators.reload.workloads import workload_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.kube.resources import Kind
    from steersman.operators.reload.settings import KindWords, Settings
    from steersman.operators.reload.workloads import Workload

__all__ = ["PolicyBook"]

Policy = ReloadPolicy | ClusterReloadPolicy


class PolicyBook:
    """What the policies of the kinds that the cluster serves say."""

    def __init__(
        self,
        served: Iterable[Kind] | None = None,
        *,
        namespaced_only: bool = False,
        later: bool = False,
        words: KindWords = NO_WORDS,
    ) -> None:
        """`later`: also those that the cluster may come to serve. `words`: names of kinds besides the built-in ones."""
        self._words = words
        later = later and served is not None
        known = {(kind.group, kind.kind) for kind in served or ()}
        self.kinds: tuple[type[Policy], ...] = tuple(
            kind
            for kind in (ReloadPolicy, ClusterReloadPolicy)
            if (later or (kind.KIND.group, kind.KIND.kind) in known)
            and not (namespaced_only and not kind.KIND.namespaced)
        )
        self._said: dict[str, tuple[str, Said]] = {}  # by uid: the version it was read at, and what it said

    def said(self, policy: Policy) -> Said:
        """What a policy says."""
        meta = policy.metadata
        known = self._said.get(meta.uid)
        if known is not None and meta.uid and known[0] == meta.resource_version:
            return known[1]
        said = read_policy(policy, self._words)
        self._said[meta.uid] = (meta.resource_version, said)
        return said

    def layers(self, workload: Workload, cache: Any) -> tuple[list[Layer], list[Layer]]:
        """What policies say about a workload, the first to decide first: those of its namespace, and the cluster's."""
        found: dict[type[Policy], list[Layer]] = {ReloadPolicy: [], ClusterReloadPolicy: []}
        for kind in self.kinds:
            shelf = cache[kind]
            policies = shelf.list(namespace=workload.namespace) if kind.KIND.namespaced else shelf.list()
            for policy in ranked(policies):
                said = self.said(policy)
                if said.selects(workload):
                    where = f"{kind.KIND.kind.lower()}/{policy.name}"
                    found[kind].append(Layer(where, _for(workload, said.settings)))
        return found[ReloadPolicy], found[ClusterReloadPolicy]


def _for(workload: Workload, settings: Settings) -> Settings:
    """The settings for one workload: dependencies are in its namespace, and never itself."""
    if not settings.depends:
        return settings
    me = workload_id(workload)
    mine = tuple(replace(one, namespace=me.namespace) for one in settings.depends)
    return replace(settings, depends=tuple(one for one in mine if one != me))
