"""The pod template of a performer: the same spec gives the same pod, byte for byte. Pure.

The hash covers labels and spec, so a pod is replaced when, and only when, its hash differs. Replicas, strategy and
names are not part of it. Environment variables are ordered by name, except that a variable which others refer to with
$(NAME) comes before them, because the kubelet resolves them in order.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.operators.hourglass.api.types import (
    APP,
    AVS,
    DEFAULT_PORT,
    PERFORMER,
    PERFORMER_APP,
    REVISION,
    TEMPLATE_HASH,
)
from steersman.operators.hourglass.children.hardware import demand_of, merged_labels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.operators.hourglass.api.config import HardwareMap
    from steersman.operators.hourglass.api.scheduling import Scheduling
    from steersman.operators.hourglass.api.types import PerformerSpec
    from steersman.operators.hourglass.api.validation import FieldProblem
    from steersman.operators.hourglass.children.hardware import HardwareDemand

Wire = dict[str, Any]

RESTRICTED_USER: Final = 65532  # the conventional "nonroot"; needed so that mounted keys can be read without root
_REFERENCE: Final = re.compile(r"\$\(([^()]+)\)")
_NOT_IN_LABELS: Final = re.compile(r"[^a-z0-9.-]")
REVISION_LENGTH: Final = 10


class PodTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """What every pod of a performer is."""

    labels: dict[str, str]
    spec: dict[str, Any]
    hash: str

    @property
    def revision(self) -> str:
        """The hash, short enough for names and labels."""
        return self.hash[:REVISION_LENGTH]

    @property
    def image(self) -> str:
        """The performer's image."""
        image: str = self.spec["containers"][0]["image"]
        return image

    def pod(self, name: str, namespace: str) -> Wire:
        """One such pod."""
        return {"apiVersion": "v1", "kind": "Pod", "metadata": self.metadata(name, namespace), "spec": self.spec}

    def metadata(self, name: str, namespace: str) -> Wire:
        """The metadata of one such pod."""
        return {
            "name": name,
            "namespace": namespace,
            "labels": self.labels | {REVISION: self.revision},
            "annotations": {TEMPLATE_HASH: self.hash},
        }


def pod_template(
    name: str, spec: PerformerSpec, known: HardwareMap, inherited: Scheduling | None = None
) -> tuple[PodTemplate, tuple[FieldProblem, ...]]:
    """The pods of the performer called `name`, and what keeps them from being made.

    `inherited` is what the executor says where the performer says nothing.
    """
    demand, problems = demand_of(spec.hardware_requirements, spec.resources, known)
    found = list(problems)
    labels = {APP: PERFORMER_APP, PERFORMER: name, AVS: avs_label(spec.avs_address)}
    body: Wire = {"containers": [_container(spec, demand)], "restartPolicy": "Always"}
    body |= _placement(spec.scheduling, inherited, demand, found)
    if spec.image_pull_secrets:
        body["imagePullSecrets"] = msgspec.to_builtins(spec.image_pull_secrets)
    account = spec.config.service_account_name if spec.config else None
    body |= {"serviceAccountName": account} if account else {"automountServiceAccountToken": False}
    if spec.pod_security == "Restricted":
        body |= restricted(body["containers"])
    return PodTemplate(labels=labels, spec=body, hash=template_hash({"labels": labels, "spec": body})), tuple(found)


def template_hash(content: Any) -> str:
    """The same text for the same content."""
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()


def port_of(spec: PerformerSpec) -> int:
    """The gRPC port; the same one for pod and Service, whether or not `config` is there."""
    return spec.config.grpc_port if spec.config else DEFAULT_PORT


def avs_label(address: str) -> str:
    """An address as a label: the original's rule, and whatever it leaves behind that a label cannot hold replaced."""
    text = _NOT_IN_LABELS.sub("-", address.lower().replace("_", "-"))[:63]
    return text.strip("-.") or "unknown"


def ordered_environment(environment: Mapping[str, str]) -> list[Wire]:
    """Variables by name, those that others refer to first; a circle is left in the order of names."""
    done: dict[str, None] = {}

    def visit(name: str, trail: frozenset[str]) -> None:
        if name in done or name in trail:
            return
        for other in sorted(set(_REFERENCE.findall(environment[name])) & environment.keys()):
            visit(other, trail | {name})
        done[name] = None

    for name in sorted(environment):
        visit(name, frozenset())
    return [{"name": name, "value": environment[name]} for name in done]


def restricted(containers: list[Wire]) -> Wire:
    """What the Pod Security Standard `restricted` asks: set on the containers, and returned for the pod."""
    for container in containers:
        container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": RESTRICTED_USER,
            "runAsGroup": RESTRICTED_USER,
            "fsGroup": RESTRICTED_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    }


def _container(spec: PerformerSpec, demand: HardwareDemand) -> Wire:
    config, port = spec.config, port_of(spec)
    made: Wire = {
        "name": "performer",
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "ports": [{"name": "grpc", "containerPort": port, "protocol": "TCP"}],
        **_probes(port, grpc=config is not None and config.probe == "GRPC"),
    }
    if config is not None:
        environment = ordered_environment(config.environment or {})
        environment += msgspec.to_builtins(config.environment_from or [])
        made |= {"env": environment} if environment else {}
        made |= {"command": config.command} if config.command else {}
        made |= {"args": config.args} if config.args else {}
    resources: Wire = msgspec.to_builtins(spec.resources) if spec.resources else {}
    if demand.resources:
        counted = {name: str(amount) for name, amount in demand.resources.items()}
        resources |= {part: {**(resources.get(part) or {}), **counted} for part in ("limits", "requests")}
    if resources:
        made["resources"] = resources
    return made


def _probes(port: int, *, grpc: bool) -> Wire:
    if grpc:
        ask: Wire = {"grpc": {"port": port}}
        liveness = {"initialDelaySeconds": 30, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3}
        readiness = {"initialDelaySeconds": 5, "periodSeconds": 15, "timeoutSeconds": 1, "failureThreshold": 3}
    else:
        ask = {"tcpSocket": {"port": port}}
        liveness = {"initialDelaySeconds": 30, "periodSeconds": 10}
        readiness = {"initialDelaySeconds": 5, "periodSeconds": 5}
    return {"livenessProbe": ask | liveness, "readinessProbe": ask | readiness}


def _placement(
    own: Scheduling | None, inherited: Scheduling | None, demand: HardwareDemand, problems: list[FieldProblem]
) -> Wire:
    """Where the pod may run: what the performer says, else what the executor says, and what its hardware needs."""

    def chosen(*fields: str) -> Any:
        for source in (own, inherited):
            values = [getattr(source, field) for field in fields] if source is not None else []
            if any(values):
                return values if len(fields) > 1 else values[0]
        return [None] * len(fields) if len(fields) > 1 else None

    node_affinity, affinity = chosen("node_affinity", "affinity")
    neighbours: Wire = msgspec.to_builtins(affinity) if affinity else {}
    if node_affinity:
        neighbours["nodeAffinity"] = msgspec.to_builtins(node_affinity)
    selector = merged_labels(
        (chosen("node_selector") or {}, demand.node_selector), "spec.scheduling.nodeSelector", problems
    )
    tolerations = [*msgspec.to_builtins(chosen("tolerations") or []), *demand.tolerations]
    placed: Wire = {
        "nodeSelector": selector,
        "affinity": neighbours,
        "tolerations": [item for place, item in enumerate(tolerations) if item not in tolerations[:place]],
        "runtimeClassName": chosen("runtime_class") or demand.runtime_class,
        "priorityClassName": chosen("priority_class_name"),
    }
    return {field: value for field, value in placed.items() if value}
