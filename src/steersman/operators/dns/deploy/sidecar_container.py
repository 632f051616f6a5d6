"""The sidecar container in the pods of an instance with `driver: bindcar`. Pure.

Its environment has the variables of the original, so the original and ours run from the same manifest; ours is
`image: <steersman>` with `args: [dns, sidecar]`. It mounts the zones and keys of its named and has no access to the
API server: callers authenticate with a token that is made for this instance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.errors import PlanError
from steersman.operators.dns.bind.servers import DNS_PORT, RNDC_PORT, ZONES, api_port_of, bindcar_of

if TYPE_CHECKING:
    from steersman.operators.dns.api.servers import Bind9Cluster, Bind9Instance

STATISTICS: Final = "127.0.0.1:8053"
Manifest = dict[str, Any]


def sidecar_container(instance: Bind9Instance, cluster: Bind9Cluster | None, user: int) -> list[Manifest]:
    """The container in a list, empty without a sidecar; PlanError when the image is missing."""
    port = api_port_of(instance, cluster)
    if not port:
        return []
    config = bindcar_of(instance, cluster)
    if config is None or not config.image:
        raise PlanError(
            "driver bindcar needs an image for the sidecar",
            reason="ConfigurationInvalid",
            field="spec.bindcarConfig.image",
        )
    container: Manifest = {
        "name": "api",
        "image": config.image,
        "imagePullPolicy": config.image_pull_policy or "IfNotPresent",
        "env": list(_environment(instance, port, config.log_level, list(config.env_vars or ())).values()),
        "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}],
        "volumeMounts": [
            {"name": "zones", "mountPath": ZONES},
            {"name": "keys", "mountPath": "/etc/bind/keys", "readOnly": True},
        ],
        "livenessProbe": _probe("health", port, 30),
        "readinessProbe": _probe("ready", port, 1),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": user,
        },
    }
    if config.args:
        container["args"] = list(config.args)
    if config.resources:
        container["resources"] = dict(config.resources)
    return [container]


def sidecar_port(instance: Bind9Instance, cluster: Bind9Cluster | None) -> dict[str, Manifest]:
    """Its port in the Service, by name."""
    port = api_port_of(instance, cluster)
    return {"http": {"name": "http", "port": 80, "targetPort": port, "protocol": "TCP"}} if port else {}


def _environment(instance: Bind9Instance, port: int, level: str, more: list[Manifest]) -> dict[str, Manifest]:
    plain = {
        "BIND_ZONE_DIR": ZONES,
        "API_PORT": str(port),
        "RNDC_SERVER": f"127.0.0.1:{RNDC_PORT}",
        "RNDC_KEY_FILE": "/etc/bind/keys/keys.conf",  # ours reloads it when it changes
        "NSUPDATE_SERVER": "127.0.0.1",
        "NSUPDATE_PORT": str(DNS_PORT),
        "BIND_STATISTICS": STATISTICS,
        "RATE_LIMIT_REQUESTS": "6000",  # per minute, for the original: its default of 100 is too low for the operator
        "RATE_LIMIT_BURST": "400",
        "RUST_LOG": level or "info",
    }
    kept = {
        "RNDC_ALGORITHM": "algorithm",
        "RNDC_SECRET": "secret",
        "NSUPDATE_KEY_NAME": "update-key-name",
        "NSUPDATE_ALGORITHM": "algorithm",
        "NSUPDATE_SECRET": "update-secret",
        "BIND_API_TOKEN": "token",
    }
    secret = f"{instance.name}-rndc-key"
    made: dict[str, Manifest] = {name: {"name": name, "value": value} for name, value in plain.items()}
    for name, key in kept.items():
        made[name] = {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
    for row in more:
        made[str(row.get("name", ""))] = dict(row)
    return made


def _probe(path: str, port: int, initial: int) -> Manifest:
    return {
        "httpGet": {"path": f"/api/v1/{path}", "port": port},
        "initialDelaySeconds": initial,
        "periodSeconds": 5,
        "timeoutSeconds": 3,
        "failureThreshold": 3,
    }
