"""The one model that both dialects are rendered from: which toolsets there are, in order, each with names of its own.

Pure: the same candidates in any order give the same model.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.operators.toolset.detection import distinct
from steersman.operators.toolset.types import KUBERNAUT_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.toolset.detection import Candidate
    from steersman.operators.toolset.types import Settings

__all__ = ["KUBERNETES_KEY", "Model", "Toolset", "build_model"]

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


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is rendered."""

    toolsets: tuple[Toolset, ...] = ()  # best first
    kubernetes_namespaces: tuple[str, ...] = ("*",)
    baseline: tuple[str, ...] = ()


def build_model(candidates: Iterable[Candidate], settings: Settings) -> Model:
    """The model of these candidates."""
    first: set[str] = set()
    keys: set[str] = {KUBERNETES_KEY}
    instances: set[str] = set()
    toolsets = []
    for one in distinct(tuple(candidates)):
        best = one.renderer not in first
        first.add(one.renderer)
        origin = f"{one.namespace}/{one.service}"
        stem = one.renderer if best else f"{one.renderer}-{one.namespace}-{one.service}"
        toolsets.append(
            Toolset(
                type=one.renderer,
                variant=one.type,
                name=one.name,
                instance=_unique(_instance(one), origin, instances, 120),
                key=_unique(stem, origin, keys, _LONGEST_KEY, KUBERNAUT_SUFFIX),
                first=best,
                namespace=one.namespace,
                service=one.service,
                url=one.url,
                health_url=one.health_url,
                auth_env=one.auth_env,
                verify_tls=one.verify_tls,
                tenant=one.tenant,
                extra=_extra(one, settings),
            )
        )
    return Model(
        toolsets=tuple(toolsets),
        kubernetes_namespaces=settings.kubernetes_namespaces,
        baseline=settings.baseline,
    )


def _instance(one: Candidate) -> str:
    named = one.name if one.name != one.service else f"{one.namespace}-{one.service}"
    return _UNFIT.sub("-", named).strip("-") or "instance"


def _unique(stem: str, origin: str, taken: set[str], longest: int, suffix: str = "") -> str:
    """`stem` and `suffix` within a length and different from all others: a hash of the origin where they are not."""
    wanted = stem + suffix
    if len(wanted) > longest or wanted in taken:
        digest = hashlib.sha256(origin.encode()).hexdigest()[:10]
        wanted = f"{stem[: longest - len(suffix) - 11]}-{digest}{suffix}"
    taken.add(wanted)
    return wanted


def _extra(one: Candidate, settings: Settings) -> Mapping[str, Any]:
    row = settings.types.get(one.type) or settings.types.get(one.renderer)
    return _expanded(row.extra, one, settings) if row is not None else {}


def _expanded(value: Any, one: Candidate, settings: Settings) -> Any:
    """A user's template with the variables of this service in it; there are no others, the settings see to that."""
    if isinstance(value, dict):
        return {key: _expanded(item, one, settings) for key, item in value.items()}
    if isinstance(value, list):
        return [_expanded(item, one, settings) for item in value]
    if not isinstance(value, str):
        return value
    scheme, _, rest = one.url.partition("://")
    port = rest.partition("/")[0].rpartition(":")[2]
    known = {
        "NAMESPACE": one.namespace,
        "SERVICE_NAME": one.service,
        "SERVICE_PORT": port,
        "CLUSTER_DOMAIN": settings.cluster_domain,
        "PROTOCOL": scheme,
    }
    for name, text in known.items():
        value = value.replace(f"${{{name}}}", text)
    return value
