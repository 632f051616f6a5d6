"""The shop of the demo: a dozen workloads, and the ConfigMaps and Secrets they use. Pure data."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

from steersman.operators.reload.api.annotations import RELOAD

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMESPACE: Final = "shop"

Manifest = dict[str, Any]


def configmap(name: str, **data: str) -> Manifest:
    """A ConfigMap."""
    return _object("v1", "ConfigMap", name) | {"data": data}


def secret(name: str, **data: str) -> Manifest:
    """A Secret."""
    return _object("v1", "Secret", name) | {
        "data": {key: b64encode(text.encode()).decode() for key, text in data.items()}
    }


def workload(
    name: str,
    *uses: str,
    kind: str = "Deployment",
    replicas: int = 2,
    pods: Mapping[str, str] | None = None,
    **annotations: str,
) -> Manifest:
    """A workload that reads `configmap/NAME`, `secret/NAME` or `configmap/NAME#KEY` into its environment.

    `annotations` are its own, by the short names of `steersman.dev/…`; `pods` are those of its pods.
    """
    marks = {RELOAD: "auto"} | {f"steersman.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    labels = {"app": name}
    container: Manifest = {"name": name, "image": f"registry.example/{name}:1.4.2", "env": [], "envFrom": []}
    for use in uses:
        source, _, key = use.partition("#")
        kind_of_source, _, source_name = source.partition("/")
        field = "configMap" if kind_of_source == "configmap" else "secret"
        if key:
            ref = {f"{field}KeyRef": {"name": source_name, "key": key}}
            container["env"].append({"name": key.upper().replace("-", "_"), "valueFrom": ref})
        else:
            container["envFrom"].append({f"{field}Ref": {"name": source_name}})
    pod: Manifest = {"containers": [container]}
    template = {"metadata": {"labels": labels, "annotations": dict(pods or {})}, "spec": pod}
    spec: Manifest = {"selector": {"matchLabels": labels}, "template": template}
    if kind == "CronJob":
        pod["restartPolicy"] = "Never"
        spec = {"schedule": "0 6 * * 1", "jobTemplate": {"spec": {"template": template}}}
    elif kind == "StatefulSet":
        spec |= {"serviceName": name, "replicas": replicas}
    elif kind == "Deployment":
        spec |= {"replicas": replicas}
    made = _object("batch/v1" if kind == "CronJob" else "apps/v1", kind, name) | {"spec": spec}
    made["metadata"]["annotations"] = {name: value for name, value in marks.items() if value}
    return made


def _object(api: str, kind: str, name: str) -> Manifest:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}}


SHOP: Final[tuple[Manifest, ...]] = (
    configmap("features", checkout="classic", banner="none", recommendations="on"),
    configmap("logging", level="info", format="json"),
    configmap("currencies", default="EUR", accepted="EUR,USD,SEK"),
    configmap("mail", host="smtp.example", sender="shop@example.org"),
    configmap("search-index", shards="4", language="en"),
    configmap("tuning", threads="8"),
    secret("database", username="shop", password="demo"),  # noqa: S106  # of a shop that sells nothing
    secret("payment-gateway", key="demo", certificate="demo"),
    secret("session", key="demo"),
    workload("frontend", "configmap/features", "configmap/logging#level", "secret/session", replicas=3),
    workload("cart", "configmap/logging#level", "secret/session", "configmap/currencies#default"),
    workload("checkout", "configmap/features#checkout", "secret/payment-gateway", "configmap/currencies"),
    workload("catalog", "configmap/logging#level", "secret/database", "configmap/search-index#language", wave="1"),
    workload("search", "configmap/search-index", "configmap/logging#level", replicas=3),
    workload("payments", "secret/payment-gateway", "secret/database", "configmap/currencies#accepted", wave="2"),
    workload("orders", "secret/database", "configmap/mail#sender", wave="2"),
    workload("mailer", "configmap/mail#host", "configmap/mail#sender", "configmap/logging#level", replicas=1),
    workload("recommendations", "configmap/features#recommendations", "secret/database", wave="2"),
    workload("sessions", "secret/session", "configmap/logging#level", kind="StatefulSet"),
    workload("log-agent", "configmap/logging", kind="DaemonSet"),
    workload("weekly-report", "configmap/mail#sender", "configmap/currencies#default", kind="CronJob"),
    workload("legacy-erp", "configmap/tuning", "secret/database", replicas=1, reload="off"),
)
