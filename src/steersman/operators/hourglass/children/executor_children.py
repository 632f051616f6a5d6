"""The children of an executor: ConfigMap, key Secret, Deployment, disruption budget and service account. Pure.

Every change of configuration or keys changes the pod template, so the Deployment rolls. A Deployment that another
version of the operator made is adopted: its template stays as it is until the executor's spec changes.
Keys are in the Secret and nowhere else; the template holds a digest of them, salted with the executor's uid.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from steersman.operators.hourglass.api.types import (
    ADOPTED,
    APP,
    CONFIG_HASH,
    EXECUTOR_ACCOUNT,
    EXECUTOR_APP,
    KEYS_HASH,
    NAME,
    TEMPLATE_HASH,
)
from steersman.operators.hourglass.children.pod import restricted, template_hash
from steersman.operators.hourglass.children.service import budget_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.kube.api.types.apps import Deployment
    from steersman.operators.hourglass.api.types import ExecutorSpec, StoredExecutor

Wire = dict[str, Any]

CONFIG_FOLDER: Final = "/etc/hourglass"
HEALTH_PORT: Final = 8080
MANAGED_BY: Final = "app.kubernetes.io/managed-by"


class Children(msgspec.Struct, frozen=True, kw_only=True):
    """The desired children of an executor."""

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
    """The configuration file as YAML, without keys."""
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
    """A digest that shows only whether keys changed."""
    digest = hashlib.sha256(salt.encode())
    for name, value in sorted(parts):
        digest.update(b"%d:%s%d:" % (len(name), name.encode(), len(value)))
        digest.update(value)
    return digest.hexdigest()


def children_of(executor: StoredExecutor, spec: ExecutorSpec, *, keys: str = "") -> Children:
    """The desired children. `keys` is the digest of the referenced Secret, when keys are in one."""
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
    """The Deployment to apply: without its template while the one that another version made is kept."""
    whole = children.deployment
    if live is None or TEMPLATE_HASH in live.annotations:
        return whole
    recorded = live.annotations.get(ADOPTED)
    containers = live.spec.template.spec.containers or ()
    image = whole["spec"]["template"]["spec"]["containers"][0]["image"]
    same_image = any(container.image == image for container in containers)
    if (recorded is not None and recorded != children.template_hash) or not same_image:
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

    Executors of a namespace share it, so it belongs to none of them and is deleted with the last. Only the default name
    is ever created: a spec that names another account means an existing one. Rights in another namespace are never
    granted: otherwise everyone who may write an executor could run pods in any namespace.
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
