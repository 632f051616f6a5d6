"""The volumes of pods: where their files come from. Pure data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import field

from steersman.kube.api.objects import Struct
from steersman.kube.api.types.meta import Amount

__all__ = [
    "CSIVolumeSource",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "DownwardAPIVolumeSource",
    "EmptyDirVolumeSource",
    "HostPathVolumeSource",
    "KeyToPath",
    "LocalObjectReference",
    "PersistentVolumeClaimVolumeSource",
    "ProjectedVolumeSource",
    "SecretProjection",
    "SecretVolumeSource",
    "ServiceAccountTokenProjection",
    "Volume",
    "VolumeMount",
    "VolumeProjection",
]


class LocalObjectReference(Struct):
    """An object in the same namespace, by name."""

    name: str = ""


class KeyToPath(Struct):
    """One key of a ConfigMap or Secret as a file."""

    key: str
    path: str = ""
    mode: int | None = None


class ConfigMapVolumeSource(Struct):
    """A ConfigMap as files."""

    name: str = ""
    items: Sequence[KeyToPath] = ()
    default_mode: int | None = None
    optional: bool | None = None


class SecretVolumeSource(Struct):
    """A Secret as files."""

    secret_name: str = ""
    items: Sequence[KeyToPath] = ()
    default_mode: int | None = None
    optional: bool | None = None


class ConfigMapProjection(Struct):
    """A ConfigMap as a part of a projected volume."""

    name: str = ""
    items: Sequence[KeyToPath] = ()
    optional: bool | None = None


class SecretProjection(Struct):
    """A Secret as a part of a projected volume."""

    name: str = ""
    items: Sequence[KeyToPath] = ()
    optional: bool | None = None


class ServiceAccountTokenProjection(Struct):
    """A token of the pod's service account as a part of a projected volume."""

    path: str = ""
    audience: str = ""
    expiration_seconds: int | None = None


class VolumeProjection(Struct):
    """One part of a projected volume: one of these."""

    config_map: ConfigMapProjection | None = None
    secret: SecretProjection | None = None
    service_account_token: ServiceAccountTokenProjection | None = None
    downward_api: dict[str, Any] | None = field(default=None, name="downwardAPI")
    cluster_trust_bundle: dict[str, Any] | None = None
    pod_certificate: dict[str, Any] | None = None


class ProjectedVolumeSource(Struct):
    """Several sources in one directory."""

    sources: Sequence[VolumeProjection] | None = ()
    default_mode: int | None = None


class CSIVolumeSource(Struct):
    """A volume that a CSI driver makes for this pod alone."""

    driver: str
    read_only: bool | None = None
    fs_type: str | None = None
    volume_attributes: dict[str, str] | None = None
    node_publish_secret_ref: LocalObjectReference | None = None


class PersistentVolumeClaimVolumeSource(Struct):
    """A claim in the same namespace."""

    claim_name: str
    read_only: bool = False


class EmptyDirVolumeSource(Struct):
    """A directory that lives as long as the pod."""

    medium: str = ""
    size_limit: Amount | None = None


class HostPathVolumeSource(Struct):
    """A path of the node."""

    path: str
    type: str | None = None


class DownwardAPIVolumeSource(Struct):
    """Fields of the pod as files."""

    items: Sequence[dict[str, Any]] = ()
    default_mode: int | None = None


class Volume(Struct):
    """A directory for the containers of a pod: a name and one of these sources."""

    name: str
    config_map: ConfigMapVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    projected: ProjectedVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    empty_dir: EmptyDirVolumeSource | None = None
    host_path: HostPathVolumeSource | None = None
    downward_api: DownwardAPIVolumeSource | None = field(default=None, name="downwardAPI")
    ephemeral: dict[str, Any] | None = None
    image: dict[str, Any] | None = None
    nfs: dict[str, Any] | None = None


class VolumeMount(Struct):
    """Where a container sees a volume."""

    name: str
    mount_path: str = ""
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: bool = False
    mount_propagation: str | None = None
    recursive_read_only: str | None = None
