"""The model that both dialects are rendered from: the toolsets, in order, each with unique names.

Pure: the same candidates in any order give the same model.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.kube.api.gvk import NamespacedName
from steersman.operators.toolset.api.config import KUBERNAUT_SUFFIX
from steersman.operators.toolset.discovery.matching import deduplicate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.toolset.api.config import TargetSettings
    from steersman.operators.toolset.discovery.matching import Candidate

KUBERNETES_KEY: Final = f"kubernetes{KUBERNAUT_SUFFIX}"
_LONGEST_KEY: Final = 253
_UNFIT: Final = re.compile(r"[^A-Za-z0-9-]+")


class Toolset(msgspec.Struct, frozen=True, kw_only=True):
    """One toolset."""

    type: str  # the toolset's
    variant: str  # the service's own type: thanos and victoriametrics are toolsets of type prometheus
    name: str
    instance: str  # unique among the toolsets, without dots
    key: str  # of the ConfigMap, unique too
    first: bool  # the best of its type
    namespace: str
    service: str
    url: str
    health_url: str
    auth_env: str = ""
    verify_tls: bool | None = None
    tenant: str = ""
    extra: Mapping[str, Any] = {}

    @property
    def ref(self) -> NamespacedName:
        """The Service it comes from."""
        return NamespacedName(self.service, self.namespace)


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is rendered."""

    toolsets: tuple[Toolset, ...] = ()  # best first
    kubernetes_namespaces: tuple[str, ...] = ("*",)
    baseline: tuple[str, ...] = ()


def build_model(candidates: Iterable[Candidate], settings: TargetSettings) -> Model:
    """The model of these candidates."""
    first: set[str] = set()
    keys: set[str] = {KUBERNETES_KEY}
    instances: set[str] = set()
    toolsets = []
    for candidate in deduplicate(tuple(candidates)):
        best = candidate.renderer not in first
        first.add(candidate.renderer)
        origin = f"{candidate.namespace}/{candidate.service}"
        stem = candidate.renderer if best else f"{candidate.renderer}-{candidate.namespace}-{candidate.service}"
        toolsets.append(
            Toolset(
                type=candidate.renderer,
                variant=candidate.type,
                name=candidate.name,
                instance=_unique(_instance(candidate), origin, instances, 120),
                key=_unique(stem, origin, keys, _LONGEST_KEY, KUBERNAUT_SUFFIX),
                first=best,
                namespace=candidate.namespace,
                service=candidate.service,
                url=candidate.url,
                health_url=candidate.health_url,
                auth_env=candidate.auth_env,
                verify_tls=candidate.verify_tls,
                tenant=candidate.tenant,
                extra=_extra(candidate, settings),
            )
        )
    return Model(
        toolsets=tuple(toolsets),
        kubernetes_namespaces=settings.kubernetes_namespaces,
        baseline=settings.baseline,
    )


def _instance(candidate: Candidate) -> str:
    named = candidate.name if candidate.name != candidate.service else f"{candidate.namespace}-{candidate.service}"
    return _UNFIT.sub("-", named).strip("-") or "instance"


def _unique(stem: str, origin: str, taken: set[str], longest: int, suffix: str = "") -> str:
    """`stem` and `suffix` within a length and unique, with a hash of the origin where necessary."""
    wanted = stem + suffix
    if len(wanted) > longest or wanted in taken:
        digest = hashlib.sha256(origin.encode()).hexdigest()[:10]
        wanted = f"{stem[: longest - len(suffix) - 11]}-{digest}{suffix}"
    taken.add(wanted)
    return wanted


def _extra(candidate: Candidate, settings: TargetSettings) -> Mapping[str, Any]:
    row = settings.types.get(candidate.type) or settings.types.get(candidate.renderer)
    return _expanded(row.extra, candidate, settings) if row is not None else {}


def _expanded(value: Any, candidate: Candidate, settings: TargetSettings) -> Any:
    """Expand the variables of a user's template; the settings reject unknown ones."""
    if isinstance(value, dict):
        return {key: _expanded(item, candidate, settings) for key, item in value.items()}
    if isinstance(value, list):
        return [_expanded(item, candidate, settings) for item in value]
    if not isinstance(value, str):
        return value
    scheme, _, rest = candidate.url.partition("://")
    port = rest.partition("/")[0].rpartition(":")[2]
    known = {
        "NAMESPACE": candidate.namespace,
        "SERVICE_NAME": candidate.service,
        "SERVICE_PORT": port,
        "CLUSTER_DOMAIN": settings.cluster_domain,
        "PROTOCOL": scheme,
    }
    for name, text in known.items():
        value = value.replace(f"${{{name}}}", text)
    return value
