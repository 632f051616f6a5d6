"""The Kubernetes objects of a managed instance, from the instance and its cluster. Pure.

All objects have the same labels, and two of them select the pods of the instance. The pod template has a checksum of
the configuration, so a change of it replaces the pods. TSIG keys are reloaded without a restart and are not part of it.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from steersman.errors import FormatError, PlanError
from steersman.kube.api.quantities import Quantity
from steersman.operators.dns.api.config import (
    BIND9_IMAGE,
    INSTANCE_LABEL,
    LABEL_CLUSTER,
    LABEL_ROLE,
    READINESS_GATE,
)
from steersman.operators.dns.api.servers import Image, Placement, Storage
from steersman.operators.dns.bind.named_conf import CACHE, CONFIG, keeping_for, named_conf, signing_of, user_files
from steersman.operators.dns.bind.servers import (
    DNS_PORT,
    MANAGED_BY,
    RNDC_PORT,
    SHARED_KEY,
    ZONES,
    api_port_of,
)
from steersman.operators.dns.deploy.sidecar_container import sidecar_container, sidecar_port
from steersman.operators.dns.deploy.tsig_keys import EPOCH
from steersman.operators.dns.dnssec.key_storage import key_claim, key_parts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.dns.api.servers import Bind9Cluster, Bind9Instance, RoleConfig

ACCOUNT: Final = "bind9"
CHECKSUM: Final = "steersman.dev/config-checksum"
TEMPLATE: Final = "steersman.dev/template-checksum"
SIDECAR: Final = "steersman.dev/sidecar-checksum"
USER_MOUNTS: Final = ("/data/", "/var/log/bind/")
USER: Final = 101

Manifest = dict[str, Any]


def labels_of(instance: Bind9Instance) -> dict[str, str]:
    """The labels of every child."""
    return {
        "app": "bind9",
        "instance": instance.name,
        "app.kubernetes.io/name": "bind9",
        INSTANCE_LABEL: instance.name,
        "app.kubernetes.io/component": "dns-server",
        "app.kubernetes.io/part-of": "bindy",
        MANAGED_BY: "steersman",
        LABEL_ROLE: instance.spec.role,
        **({LABEL_CLUSTER: instance.spec.cluster_ref} if instance.spec.cluster_ref else {}),
    }


def left_behind_by(instance: Bind9Instance) -> dict[str, str]:
    """The labels by which a child without an owner is recognised as one of this instance."""
    return {"app": "bind9", INSTANCE_LABEL: instance.name, MANAGED_BY: "steersman"}


def replicas_of(instance: Bind9Instance) -> int:
    """The number of replicas, 1 by default."""
    return 1 if instance.spec.replicas is None else instance.spec.replicas


def role_of(instance: Bind9Instance, cluster: Bind9Cluster | None) -> RoleConfig | None:
    """The configuration of this role in the cluster."""
    if cluster is None:
        return None
    return cluster.spec.primary if instance.spec.role == "primary" else cluster.spec.secondary


def children_of(
    instance: Bind9Instance,
    cluster: Bind9Cluster | None,
    *,
    epoch: str = "",
    token: bytes = b"",
) -> list[Manifest]:
    """ConfigMap, claims, Deployment, Service and PodDisruptionBudget; PlanError names an invalid field.

    A new `epoch` of the keys (see `tsig_keys`) or a new `token` of the sidecar replaces the pods.
    """
    files = named_conf(instance, cluster)
    checksum = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    made = [_object(instance, "v1", "ConfigMap", f"{instance.name}-config", data=files)]
    made += [claim for claim in (_claim(instance, cluster), _key_claim(instance, cluster)) if claim is not None]
    marks = {CHECKSUM: checksum, **({EPOCH: epoch} if epoch else {})}
    if token and api_port_of(instance, cluster):  # too short to find the token by brute force
        marks[SIDECAR] = hashlib.sha256(token).hexdigest()[:8]
    made += [_deployment(instance, cluster, marks), _service(instance, cluster)]
    selector = {"matchLabels": _selector(instance)}
    budget = {"selector": selector, "maxUnavailable": 1}
    made.append(_object(instance, "policy/v1", "PodDisruptionBudget", instance.name, spec=budget))
    return made


def _object(instance: Bind9Instance, api: str, kind: str, name: str, **body: Any) -> Manifest:
    meta = {"name": name, "namespace": instance.namespace, "labels": labels_of(instance)}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **body}


def _selector(instance: Bind9Instance) -> dict[str, str]:
    return {"app": "bind9", INSTANCE_LABEL: instance.name}


def _storage(instance: Bind9Instance, cluster: Bind9Cluster | None) -> Storage:
    return instance.spec.storage or (cluster.spec.storage if cluster is not None else None) or Storage()


def _claim(instance: Bind9Instance, cluster: Bind9Cluster | None) -> Manifest | None:
    storage = _storage(instance, cluster)
    if storage.storage_type != "persistentVolumeClaim":
        return None
    wanted = storage.persistent_volume_claim
    if wanted is not None and wanted.claim_name:
        return None  # the user's own claim
    try:  # the API server answers 500 to an invalid quantity
        Quantity.parse(wanted.size if wanted else "1Gi")
    except FormatError as error:
        field = "spec.storage.persistentVolumeClaim.size"
        raise PlanError(str(error), reason="ConfigurationInvalid", field=field) from None
    spec: Manifest = {
        "accessModes": list((wanted.access_modes if wanted else None) or ["ReadWriteOnce"]),
        "resources": {"requests": {"storage": wanted.size if wanted else "1Gi"}},
    }
    if wanted is not None and wanted.storage_class_name is not None:
        spec["storageClassName"] = wanted.storage_class_name
    return _object(instance, "v1", "PersistentVolumeClaim", f"{instance.name}-zones", spec=spec)


def _key_claim(instance: Bind9Instance, cluster: Bind9Cluster | None) -> Manifest | None:
    spec = key_claim(signing_of(instance, cluster), keeping_for(instance, cluster))
    if spec is None:
        return None
    return _object(instance, "v1", "PersistentVolumeClaim", f"{instance.name}-signing", spec=spec)


def is_lasting(instance: Bind9Instance, cluster: Bind9Cluster | None) -> bool:
    """Whether the zone directory survives a pod."""
    return _storage(instance, cluster).storage_type == "persistentVolumeClaim"


def _volumes(instance: Bind9Instance, cluster: Bind9Cluster | None) -> tuple[list[Manifest], list[Manifest]]:
    """Volumes and volume mounts."""
    storage = _storage(instance, cluster)
    if storage.storage_type == "persistentVolumeClaim":
        wanted = storage.persistent_volume_claim
        name = (wanted.claim_name if wanted else "") or f"{instance.name}-zones"
        zones: Manifest = {"name": "zones", "persistentVolumeClaim": {"claimName": name}}
    else:
        zones = {"name": "zones", "emptyDir": dict(storage.empty_dir or {})}
    volumes = [
        zones,
        {"name": "cache", "emptyDir": {}},
        {"name": "config", "configMap": {"name": f"{instance.name}-config"}},
        {"name": "keys", "secret": {"secretName": f"{instance.name}-rndc-key"}},
        {"name": "transfer", "secret": {"secretName": SHARED_KEY}},
    ]
    mounts: list[Manifest] = [
        {"name": "zones", "mountPath": ZONES},
        {"name": "cache", "mountPath": CACHE},
        {"name": "config", "mountPath": CONFIG, "readOnly": True},
        {"name": "keys", "mountPath": "/etc/bind/keys", "readOnly": True},
        {"name": "transfer", "mountPath": "/etc/bind/transfer", "readOnly": True},
    ]
    users = user_files(instance, cluster)
    if users:
        sources = [
            {"configMap": {"name": name, "items": [{"key": file, "path": file}]}}
            for file, name in sorted(users.items())
        ]
        volumes.append({"name": "user-config", "projected": {"sources": sources}})
        mounts.append({"name": "user-config", "mountPath": "/etc/bind/user", "readOnly": True})
    more, where = _user_volumes(instance, cluster)
    return volumes + more, mounts + where


def _user_volumes(instance: Bind9Instance, cluster: Bind9Cluster | None) -> tuple[list[Manifest], list[Manifest]]:
    volumes = list(instance.spec.volumes or (cluster.spec.volumes if cluster is not None else None) or ())
    mounts = list(instance.spec.volume_mounts or (cluster.spec.volume_mounts if cluster is not None else None) or ())
    for mount in mounts:
        path = str(mount.get("mountPath", ""))
        if ".." in path or not path.startswith(USER_MOUNTS):
            message = f"{path} is not allowed: mount below {' or '.join(USER_MOUNTS)}"
            raise PlanError(message, reason="ConfigurationInvalid", field="spec.volumeMounts")
    return volumes, mounts


def _spread(instance: Bind9Instance, cluster: Bind9Cluster | None) -> list[Manifest]:
    """Topology spread: instances of one role and cluster stay apart, unless `placement` says otherwise."""
    role = role_of(instance, cluster)
    placement = instance.spec.placement or (role.placement if role is not None else None) or Placement()
    siblings = {"app": "bind9", LABEL_ROLE: instance.spec.role}
    if instance.spec.cluster_ref:
        siblings[LABEL_CLUSTER] = instance.spec.cluster_ref
    selectors = {"Instance": _selector(instance), "Cluster": {k: v for k, v in siblings.items() if k != LABEL_ROLE}}
    rows = placement.spread
    if rows is None:
        usual = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": siblings}}
        return [{"topologyKey": key, **usual} for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")]
    return [
        {
            "topologyKey": row.topology_key,
            "maxSkew": row.max_skew,
            "whenUnsatisfiable": row.when_unsatisfiable,
            "labelSelector": {"matchLabels": selectors.get(row.scope, siblings)},
            **({"minDomains": row.min_domains} if row.min_domains is not None else {}),
        }
        for row in rows
    ]


def _probe(initial: int, period: int, timeout: int, failures: int) -> Manifest:
    return {
        "tcpSocket": {"port": DNS_PORT},
        "initialDelaySeconds": initial,
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }


def _deployment(instance: Bind9Instance, cluster: Bind9Cluster | None, marks: dict[str, str]) -> Manifest:
    volumes, mounts = _volumes(instance, cluster)
    image = instance.spec.image or (cluster.spec.image if cluster is not None else None) or Image()
    version = instance.spec.version or (cluster.spec.version if cluster is not None else None) or "9.18"
    container = {
        "name": "bind9",
        "image": image.image or f"{BIND9_IMAGE}:{version}",
        "imagePullPolicy": image.image_pull_policy or "IfNotPresent",
        "command": ["named"],
        "args": ["-c", f"{CONFIG}/named.conf", "-f"],
        "env": [{"name": "TZ", "value": "UTC"}, {"name": "MALLOC_CONF", "value": "dirty_decay_ms:0,muzzy_decay_ms:0"}],
        "ports": [
            {"name": "dns-tcp", "containerPort": DNS_PORT, "protocol": "TCP"},
            {"name": "dns-udp", "containerPort": DNS_PORT, "protocol": "UDP"},
            {"name": "rndc", "containerPort": RNDC_PORT, "protocol": "TCP"},
        ],
        "volumeMounts": mounts,
        "livenessProbe": _probe(30, 10, 5, 3),
        "readinessProbe": _probe(1, 5, 3, 3),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
        },
    }
    keys = key_parts(keeping_for(instance, cluster), f"{instance.name}-signing", container)
    mounts += keys.mounts
    pod: Manifest = {
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 30,
        "readinessGates": [{"conditionType": READINESS_GATE}],
        "securityContext": {"fsGroup": USER, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container, *sidecar_container(instance, cluster, USER), *keys.beside],
        "volumes": volumes + keys.volumes,
        "topologySpreadConstraints": _spread(instance, cluster),
    }
    if keys.first:
        pod["initContainers"] = keys.first
    if image.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in image.image_pull_secrets]
    replicas = replicas_of(instance)
    single = replicas <= 1 or is_lasting(instance, cluster)
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    spec = {
        "replicas": replicas,
        "strategy": {"type": "Recreate"} if single else rolling,
        "selector": {"matchLabels": _selector(instance)},
        "template": {
            "metadata": {"labels": labels_of(instance), "annotations": marks},
            "spec": pod,
        },
    }
    made = _object(instance, "apps/v1", "Deployment", instance.name, spec=spec)
    digest = hashlib.sha256(json.dumps(spec["template"], sort_keys=True).encode()).hexdigest()
    made["metadata"]["annotations"] = {TEMPLATE: digest}
    return made


def template_of(children: Iterable[Manifest]) -> str:
    """The checksum of the pod template."""
    deployment = next(child for child in children if child["kind"] == "Deployment")
    return str(deployment["metadata"]["annotations"][TEMPLATE])


def _service(instance: Bind9Instance, cluster: Bind9Cluster | None) -> Manifest:
    role = role_of(instance, cluster)
    wanted = role.service if role is not None else None
    ports = {
        "dns-tcp": {"name": "dns-tcp", "port": 53, "targetPort": DNS_PORT, "protocol": "TCP"},
        "dns-udp": {"name": "dns-udp", "port": 53, "targetPort": DNS_PORT, "protocol": "UDP"},
        **sidecar_port(instance, cluster),
    }
    asked = dict((wanted.spec if wanted is not None else None) or {})
    for port in asked.pop("ports", None) or ():
        ports[port.get("name", "")] = {**ports.get(port.get("name", ""), {}), **port}
    asked.pop("selector", None)
    spec = {"type": "ClusterIP", **asked, "selector": _selector(instance), "ports": list(ports.values())}
    made = _object(instance, "v1", "Service", instance.name, spec=spec)
    if wanted is not None and wanted.annotations:
        made["metadata"]["annotations"] = dict(wanted.annotations)
    return made
