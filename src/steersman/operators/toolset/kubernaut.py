"""The dialect `kubernaut`: one key per toolset, as the original wrote them. Pure and byte-stable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.operators.toolset.blockyaml import GENERATED, dump
from steersman.operators.toolset.model import KUBERNETES_KEY

if TYPE_CHECKING:
    from steersman.operators.toolset.model import Model, Toolset

__all__ = ["render_kubernaut", "render_toolset"]

_FIELDS: Final[dict[str, dict[str, str]]] = {
    "prometheus": {"timeout": "30s"},
    "jaeger": {"query_endpoint": "/api/traces"},
}


def render_kubernaut(model: Model) -> dict[str, str]:
    """Key to text; the kubernetes toolset is always there."""
    always = {
        "toolset": "kubernetes",
        "enabled": True,
        "config": {"incluster": True, "namespaces": list(model.kubernetes_namespaces)},
    }
    return {KUBERNETES_KEY: GENERATED + dump(always)} | {one.key: render_toolset(one) for one in model.toolsets}


def render_toolset(one: Toolset) -> str:
    """The text of one toolset."""
    config: dict[str, Any] = {"url": one.url, **_FIELDS.get(one.type, {})}
    if one.auth_env:
        config["apiKey"] = f"${{{one.auth_env}}}"
    if one.tenant:
        config["tenant"] = one.tenant
    if one.verify_tls is not None:
        config["verifyTLS"] = one.verify_tls
    body: dict[str, Any] = {"toolset": one.type, "enabled": True, "config": config | dict(one.extra)}
    if not one.first:
        body = {"toolset": one.type, "name": one.instance, **body}
    return GENERATED + dump(body)
