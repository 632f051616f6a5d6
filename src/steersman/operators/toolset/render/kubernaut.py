"""The dialect `kubernaut`: one key per toolset, as the original wrote them. Pure and byte-stable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.operators.toolset.render.model import KUBERNETES_KEY
from steersman.operators.toolset.render.yaml import GENERATED, dump

if TYPE_CHECKING:
    from steersman.operators.toolset.render.model import Model, Toolset

_FIELDS: Final[dict[str, dict[str, str]]] = {
    "prometheus": {"timeout": "30s"},
    "jaeger": {"query_endpoint": "/api/traces"},
}


def render_kubernaut(model: Model) -> dict[str, str]:
    """Key to text; the kubernetes toolset is always present."""
    always = {
        "toolset": "kubernetes",
        "enabled": True,
        "config": {"incluster": True, "namespaces": list(model.kubernetes_namespaces)},
    }
    return {KUBERNETES_KEY: GENERATED + dump(always)} | {
        toolset.key: render_toolset(toolset) for toolset in model.toolsets
    }


def render_toolset(toolset: Toolset) -> str:
    """The text of one toolset."""
    config: dict[str, Any] = {"url": toolset.url, **_FIELDS.get(toolset.type, {})}
    if toolset.auth_env:
        config["apiKey"] = f"${{{toolset.auth_env}}}"
    if toolset.tenant:
        config["tenant"] = toolset.tenant
    if toolset.verify_tls is not None:
        config["verifyTLS"] = toolset.verify_tls
    body: dict[str, Any] = {"toolset": toolset.type, "enabled": True, "config": config | dict(toolset.extra)}
    if not toolset.first:
        body = {"toolset": toolset.type, "name": toolset.instance, **body}
    return GENERATED + dump(body)
