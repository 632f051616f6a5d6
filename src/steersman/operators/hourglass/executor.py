"""The children of an executor: configuration, keys, Deployment and disruption budget; and what it says of itself. Pure.

Every change of configuration or keys is a change of the pod template, so the Deployment rolls. A Deployment that
another version made is adopted: its template stays as it is until the executor itself asks for another one.
Keys are in the Secret and nowhere else; the template holds a digest of them, salted with the executor's uid.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from steersman.kube.times import format_time
from steersman.operators.hourglass.pod import restricted, template_hash
from steersman.operators.hourglass.report import Trouble, stored_conditions
from steersman.operators.hourglass.service import budget_for
from steersman.operators.hourglass.types import (
    ADOPTED,
    APP,
    CONFIG_HASH,
    EXECUTOR_ACCOUNT,
    EXECUTOR_APP,
    KEYS_HASH,
    NAME,
    TEMPLATE_HASH,
)
from steersman.runtime.conditions import Condition, condition, with_conditions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.kube.types.apps import Deployment
    from steersman.operators.hourglass.types import ExecutorSpec, StoredExecutor

__all__ = [
    "MANAGED_BY",
    "Children",
    "account_objects",
    "adopted",
    "children_of",
    "config_text",
    "executor_status",
    "keys_digest",
    "rolled_out",
    "selector_of",
]

Wire = dict[str, Any]

CONFIG_FOLDER: Final = "/etc/hourglass"
HEALTH_PORT: Final = 8080
MANAGED_BY: Final = "app.kubernetes.io/managed-by"


class Children(msgspec.Struct, frozen=True, kw_only=True):
    """What an executor consists of."""

    config_map: Wire
    secret: Wire | None
    deployment: Wire
    budget: Wire | None
    config_hash: str
    template_hash: str


def selector_of(name: str) -> dict[str, str]:
    """The labels of an executor's pods."""
    return {APP: EXECUTOR_APP, NAME: name}


def config_text(spec: ExecutorSpec) -> str:
    """The configuration file: a real YAML document, whatever the strings hold; keys are not in it."""
    config = spec.config
    content: Wire = {
        "aggregator_endpoint": config.aggregator_endpoint,
        "performer_mode": config.performer_mode,
        "log_level": config.log_level,
        "chains": [
            {
                "name": chain.name,
                "rpc": chain.rpc,
                "chain_id": chain.chain_id,
                "task_mailbox_address": chain.task_mailbox_address,
            }
            for chain in config.chains
        ],
    }
    if config.kubernetes is not None:
        content["kubernetes"] = {"namespace": config.kubernetes.namespace}
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=False, width=10_000)


def keys_digest(parts: Iterable[tuple[str, bytes]], salt: str) -> str:
    """A digest of keys that says only whether they changed."""
    digest = hashlib.sha256(salt.encode())
    for name, value in sorted(parts):
        digest.update(b"%d:%s%d:" % (len(name), name.encode(), len(value)))
        digest.update(value)
    return digest.hexdigest()


def children_of(executor: StoredExecutor, spec: ExecutorSpec, *, keys: str = "") -> Children:
    """What should exist. `keys` is the digest of the referred Secret, when keys are referred to."""
    name, namespace = executor.name, executor.namespace
    labels = selector_of(name)
    text = config_text(spec)
    own = spec.config.operator_keys
    if own:
        keys = keys_digest(((key, value.encode()) for key, value in own.items()), executor.metadata.uid)
    reference = spec.config.operator_keys_secret_ref
    secret_name = reference.name if reference is not None else f"{name}-keys"
    template = _template(spec, labels, secret_name, f"{name}-config")
    template["metadata"]["annotations"] = {CONFIG_HASH: template_hash(text), KEYS_HASH: keys}
    wanted = template_hash(template)

    def metadata(suffix: str) -> Wire:
        return {"name": f"{name}{suffix}", "namespace": namespace, "labels": dict(labels)}

    secret: Wire | None = None
    if own:
        encoded = {key: b64encode(value.encode()).decode() for key, value in own.items()}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata("-keys"),
            "type": "Opaque",
            "data": encoded,
        }
    return Children(
        config_map={
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata("-config"),
            "data": {"config.yaml": text},
        },
        secret=secret,
        deployment={
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata("") | {"annotations": {TEMPLATE_HASH: wanted}},
            "spec": {"replicas": spec.replicas, "selector": {"matchLabels": labels}, "template": template},
        },
        budget=budget_for(metadata(""), labels, spec.disruption_budget, spec.replicas),
        config_hash=template_hash(text),
        template_hash=wanted,
    )


def adopted(children: Children, live: Deployment | None) -> Wire:
    """The Deployment to apply: whole, or without its template while one that another version made is kept."""
    whole = children.deployment
    if live is None or TEMPLATE_HASH in live.annotations:
        return whole
    noted = live.annotations.get(ADOPTED)
    containers = live.spec.template.spec.containers or ()
    same_image = any(one.image == whole["spec"]["template"]["spec"]["containers"][0]["image"] for one in containers)
    if (noted is not None and noted != children.template_hash) or not same_image:
        return whole
    return {
        **whole,
        "metadata": {**whole["metadata"], "annotations": {ADOPTED: children.template_hash}},
        "spec": {"replicas": whole["spec"]["replicas"]},
    }


def _template(spec: ExecutorSpec, labels: dict[str, str], secret: str, config: str) -> Wire:
    def probe(path: str, delay: int, period: int) -> Wire:
        return {
            "httpGet": {"path": path, "port": HEALTH_PORT},
            "initialDelaySeconds": delay,
            "periodSeconds": period,
        }

    container: Wire = {
        "name": "executor",
        "image": spec.image,
        "args": [f"--config={CONFIG_FOLDER}/config.yaml"],
        "ports": [{"name": "grpc", "containerPort": 9090, "protocol": "TCP"}],
        "livenessProbe": probe("/healthz", 30, 10),
        "readinessProbe": probe("/readyz", 5, 5),
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
            {"name": "keys", "mountPath": f"{CONFIG_FOLDER}/keys", "readOnly": True},
        ],
    }
    if spec.resources is not None:
        container["resources"] = msgspec.to_builtins(spec.resources)
    body: Wire = {
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": config}},
            {"name": "keys", "secret": {"secretName": secret, "defaultMode": 0o400}},
        ],
        "serviceAccountName": spec.service_account_name,
        "terminationGracePeriodSeconds": 30,
    }
    if spec.node_selector:
        body["nodeSelector"] = spec.node_selector
    if spec.tolerations:
        body["tolerations"] = msgspec.to_builtins(spec.tolerations)
    if spec.image_pull_secrets:
        body["imagePullSecrets"] = msgspec.to_builtins(spec.image_pull_secrets)
    if spec.pod_security == "Restricted":
        body |= restricted(body["containers"])
    return {"metadata": {"labels": dict(labels)}, "spec": body}


# ---------------------------------------------------------------------------------------------------- service accounts
ROLE_RULES: Final[list[Wire]] = [
    {
        "apiGroups": ["hourglass.eigenlayer.io"],
        "resources": ["performers"],
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
    },
    {"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["get", "list", "watch"]},
]


def account_objects(namespace: str, spec: ExecutorSpec) -> list[Wire]:
    """The ServiceAccount of executors in a namespace, with the right to run performers there.

    Executors of a namespace share it, so it belongs to none of them and goes with the last. Only the usual name is ever
    made: whoever names another account means one of their own. Rights in another namespace are for those to give who
    own it: otherwise whoever may write an executor could run pods wherever they like.
    """
    if spec.service_account_name != EXECUTOR_ACCOUNT:
        return []
    labels = {MANAGED_BY: "steersman", APP: EXECUTOR_APP}
    account: Wire = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": EXECUTOR_ACCOUNT, "namespace": namespace, "labels": labels},
    }
    elsewhere = spec.config.kubernetes is not None and spec.config.kubernetes.namespace != namespace
    if spec.config.performer_mode != "kubernetes" or elsewhere:
        return [account]
    metadata = {"name": EXECUTOR_ACCOUNT, "namespace": namespace, "labels": labels}
    rbac = "rbac.authorization.k8s.io"
    return [
        account,
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": ROLE_RULES},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": EXECUTOR_ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": EXECUTOR_ACCOUNT, "namespace": namespace}],
        },
    ]


# -------------------------------------------------------------------------------------------------------------- status
def executor_status(
    executor: StoredExecutor,
    spec: ExecutorSpec | None,
    live: Deployment | None,
    *,
    config_hash: str = "",
    trouble: Trouble | None = None,
    now: float,
) -> Wire:
    """The whole status, as it should be written."""
    before = executor.status or {}
    wanted = spec.replicas if spec is not None else 1
    status: Wire = {
        "replicas": live.status.replicas if live is not None else 0,
        "readyReplicas": live.status.ready_replicas if live is not None else 0,
        "phase": _phase(executor, live, wanted),
        "selector": ",".join(f"{key}={value}" for key, value in selector_of(executor.name).items()),
        "observedGeneration": executor.metadata.generation,
    }
    if spec is not None:
        status["observedImage"] = spec.image
    if config_hash and before.get("configHash") != config_hash:
        status |= {"configHash": config_hash, "lastConfigUpdate": format_time(now)}
    fresh = _conditions(executor, live, wanted, trouble)
    merged = {one.type: one for one in with_conditions(stored_conditions(before), *fresh, now=now)}
    status["conditions"] = [msgspec.to_builtins(merged[one.type]) for one in fresh]
    return status


def _phase(executor: StoredExecutor, live: Deployment | None, wanted: int) -> str:
    if executor.deleting:
        return "Terminating"
    if wanted == 0:
        return "Stopped"
    return "Running" if live is not None and rolled_out(live, wanted) else "Pending"


def rolled_out(live: Deployment, wanted: int) -> bool:
    """Whether all pods are ready and of the newest template, and none is of an older one."""
    status = live.status
    counts = {status.replicas, status.updated_replicas, status.ready_replicas}
    return status.observed_generation >= live.metadata.generation and counts == {wanted}


def _conditions(
    executor: StoredExecutor, live: Deployment | None, wanted: int, trouble: Trouble | None
) -> list[Condition]:
    generation = executor.metadata.generation

    def made(kind: str, status: bool, reason: str, message: str) -> Condition:
        return condition(kind, status, reason, message, generation=generation)

    ready = live.status.ready_replicas if live is not None else 0
    if executor.deleting:
        progressing = made("Progressing", True, "Terminating", "waits until its pods are gone")
    elif live is not None and not trouble and not rolled_out(live, wanted):
        updated = f"{live.status.updated_replicas} of {wanted} pods have the newest template"
        progressing = made("Progressing", True, "RollingUpdate", updated)
    elif live is not None and ADOPTED in live.annotations:
        text = "made by another version; its pods keep their template until the spec changes"
        progressing = made("Progressing", False, "Adopted", text)
    else:
        progressing = made("Progressing", False, "ConfigMapReady", "the newest configuration is in use")
    found = trouble or _deployment_trouble(live)
    degraded = (
        made("Degraded", True, found.reason, found.message) if found else made("Degraded", False, "AsExpected", "")
    )
    available = ready >= wanted > 0
    if executor.deleting:
        summary = made("Available", False, "Terminating", "is being deleted")
    elif found and not available:
        summary = made("Available", False, found.reason, found.message)
    elif wanted == 0:
        summary = made("Available", False, "ScaledToZero", "no pods are asked for")
    elif available:
        summary = made("Available", True, "DeploymentAvailable", f"{ready} of {wanted} pods ready")
    else:
        summary = made("Available", False, "DeploymentUnavailable", f"{ready} of {wanted} pods ready")
    return [progressing, degraded, summary]


def _deployment_trouble(live: Deployment | None) -> Trouble | None:
    for one in live.status.conditions if live is not None else ():
        if one.type == "ReplicaFailure" and one.status == "True":
            return Trouble(one.reason or "ReplicaFailure", one.message)
        if one.type == "Progressing" and one.reason == "ProgressDeadlineExceeded":
            return Trouble(one.reason, one.message)
    return None
