"""What a pod spec refers to: every ConfigMap and Secret its pods read when they start. Pure.

    containers, init containers (sidecars are init containers that stay), ephemeral containers
        env.valueFrom        one key            envFrom      every key
    volumes                  every key, the items, or the keys that are mounted by subPath
        configMap, secret, projected, csi (attributes and nodePublishSecretRef), drivers with a secretRef
    imagePullSecrets         every key; a missing one does not stop the pod

A reference is *optional* when pods start without its source or key. The structs name only what can refer to something,
so reading a pod spec costs little and keeps nothing else of it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import field
from msgspec.structs import replace

from steersman.kube.api.objects import Struct
from steersman.operators.reload.api.config import SourceKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class ReferenceType(StrEnum):
    """How a pod refers to a source."""

    ENV = "env"
    ENV_FROM = "envFrom"
    VOLUME = "volume"
    PROJECTED = "projected"
    CSI = "csi"
    DRIVER = "driver"
    PULL = "imagePullSecrets"


class Reference(msgspec.Struct, frozen=True, gc=False):
    """One use of a source of the same namespace."""

    kind: SourceKind
    name: str
    where: str  # e.g. "container web: env MODE"
    keys: tuple[str, ...] | None = None  # None: every key
    optional: bool = False
    via: ReferenceType = ReferenceType.ENV
    reader: str | None = None  # the first container that reads it; "": only init containers do; None: no container
    items: tuple[str, ...] | None = None  # the keys that a volume lists, whatever part of it is mounted


class Variable(msgspec.Struct, frozen=True, gc=False):
    """An environment variable with a value of its own."""

    container: str
    name: str
    value: str | None  # None: to be removed


# ------------------------------------------------------------------------------------------- the part of a pod we read
class _Named(Struct):
    name: str = ""
    optional: bool | None = None


class _Key(Struct):
    name: str = ""
    key: str = ""
    optional: bool | None = None


class _ValueFrom(Struct):
    config_map_key_ref: _Key | None = None
    secret_key_ref: _Key | None = None


class _Env(Struct):
    name: str = ""
    value: str | None = None
    value_from: _ValueFrom | None = None


class _EnvFrom(Struct):
    prefix: str = ""
    config_map_ref: _Named | None = None
    secret_ref: _Named | None = None


class _Mount(Struct):
    name: str = ""
    sub_path: str = ""
    sub_path_expr: str = ""


class _Container(Struct):
    name: str = ""
    restart_policy: str | None = None
    env: list[_Env] | None = None
    env_from: list[_EnvFrom] | None = None
    volume_mounts: list[_Mount] | None = None


class _Item(Struct):
    key: str = ""
    path: str = ""


class _Files(Struct):
    """A ConfigMap or Secret as files; the two spell their names differently."""

    name: str = ""
    secret_name: str = ""
    items: list[_Item] | None = None
    optional: bool | None = None


class _Projection(Struct):
    config_map: _Files | None = None
    secret: _Files | None = None


class _Projected(Struct):
    sources: list[_Projection] | None = None


class _Driver(Struct):
    """A volume driver that takes its credentials from a Secret."""

    secret_ref: _Named | None = None
    secret_name: str | None = None
    secret_namespace: str | None = None


class _Csi(Struct):
    driver: str = ""
    volume_attributes: dict[str, str] | None = None
    node_publish_secret_ref: _Named | None = None


class _Volume(Struct):
    name: str = ""
    config_map: _Files | None = None
    secret: _Files | None = None
    projected: _Projected | None = None
    csi: _Csi | None = None
    azure_file: _Driver | None = None
    cephfs: _Driver | None = None
    cinder: _Driver | None = None
    flex_volume: _Driver | None = None
    iscsi: _Driver | None = None
    rbd: _Driver | None = None
    scale_io: _Driver | None = field(default=None, name="scaleIO")
    storageos: _Driver | None = None


class PodView(Struct):
    """A pod spec, as far as it refers to sources."""

    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    ephemeral_containers: list[_Container] | None = None
    volumes: list[_Volume] | None = None
    image_pull_secrets: list[_Named] | None = None


_DRIVERS: Final = ("azure_file", "cephfs", "cinder", "flex_volume", "iscsi", "rbd", "scale_io", "storageos")


def references(pod: PodView) -> tuple[Reference, ...]:
    """Every use of a source, in the order of the spec."""
    containers = list(_containers(pod))
    mounts: dict[str, list[_Mount]] = {}
    readers = _readers(pod)
    found: list[Reference] = []
    for title, container in containers:
        reader = container.name if title.startswith("container ") else None if title.startswith("ephemeral ") else ""
        found += _environment(title, container, reader)
        for mount in container.volume_mounts or ():
            mounts.setdefault(mount.name, []).append(mount)
    for volume in pod.volumes or ():
        found += _volume(volume, mounts.get(volume.name, []), readers.get(volume.name))
    found += [
        Reference(SourceKind.SECRET, pull.name, "imagePullSecrets", optional=True, via=ReferenceType.PULL)
        for pull in pod.image_pull_secrets or ()
        if pull.name
    ]
    return tuple(found)


def _containers(pod: PodView) -> Iterator[tuple[str, _Container]]:
    for container in pod.init_containers or ():
        role = "sidecar" if container.restart_policy == "Always" else "init container"
        yield f"{role} {container.name}", container
    for container in pod.containers or ():
        yield f"container {container.name}", container
    for container in pod.ephemeral_containers or ():
        yield f"ephemeral container {container.name}", container


def variables(pod: PodView, prefix: str) -> tuple[Variable, ...]:
    """The variables of regular containers whose names begin with `prefix`."""
    return tuple(
        Variable(container.name, variable.name, variable.value or "")
        for container in pod.containers or ()
        for variable in container.env or ()
        if variable.name.startswith(prefix) and variable.value_from is None
    )


def _readers(pod: PodView) -> dict[str, str]:
    """Per volume the first container that mounts it, or "" when only init containers do."""
    found: dict[str, str] = {}
    for container in pod.containers or ():
        for mount in container.volume_mounts or ():
            found.setdefault(mount.name, container.name)
    for container in pod.init_containers or ():
        for mount in container.volume_mounts or ():
            found.setdefault(mount.name, "")
    return found


def _environment(title: str, container: _Container, reader: str | None) -> Iterator[Reference]:
    for variable in container.env or ():
        origin = variable.value_from
        if origin is None:
            continue
        where = f"{title}: env {variable.name}"
        for kind, ref in (
            (SourceKind.CONFIGMAP, origin.config_map_key_ref),
            (SourceKind.SECRET, origin.secret_key_ref),
        ):
            if ref is not None and ref.name:
                yield Reference(kind, ref.name, where, (ref.key,), bool(ref.optional), ReferenceType.ENV, reader)
    for bundle in container.env_from or ():
        where = f"{title}: envFrom" + (f" {bundle.prefix}*" if bundle.prefix else "")
        for kind, named in ((SourceKind.CONFIGMAP, bundle.config_map_ref), (SourceKind.SECRET, bundle.secret_ref)):
            if named is not None and named.name:
                yield Reference(kind, named.name, where, None, bool(named.optional), ReferenceType.ENV_FROM, reader)


def _volume(volume: _Volume, mounts: list[_Mount], reader: str | None) -> Iterator[Reference]:
    where = f"volume {volume.name}"
    parts = [
        (ReferenceType.VOLUME, SourceKind.CONFIGMAP, volume.config_map),
        (ReferenceType.VOLUME, SourceKind.SECRET, volume.secret),
    ]
    for part in (volume.projected.sources or ()) if volume.projected else ():
        parts += [(ReferenceType.PROJECTED, SourceKind.CONFIGMAP, part.config_map)]
        parts += [(ReferenceType.PROJECTED, SourceKind.SECRET, part.secret)]
    for via, kind, files in parts:
        for reference in _files(kind, files, where, mounts):
            items = tuple(item.key for item in files.items) if files is not None and files.items else None
            yield replace(reference, via=via, reader=reader, items=items)
    if volume.csi is not None:
        for reference in _csi(volume.csi, where):
            yield replace(reference, via=ReferenceType.CSI, reader=reader)
    for attribute in _DRIVERS:
        driver: _Driver | None = getattr(volume, attribute)
        if driver is not None:
            name = driver.secret_name or (driver.secret_ref.name if driver.secret_ref else "")
            if name and not driver.secret_namespace:
                yield Reference(
                    SourceKind.SECRET, name, f"{where}: {attribute.replace('_', '')}", via=ReferenceType.DRIVER
                )


def _files(kind: SourceKind, files: _Files | None, where: str, mounts: list[_Mount]) -> Iterator[Reference]:
    name = (files.name or files.secret_name) if files else ""
    if files is None or not name:
        return
    narrowed = _mounted(files, mounts)
    if narrowed is None:
        keys = tuple(item.key for item in files.items) if files.items else None
        yield Reference(kind, name, where, keys, bool(files.optional))
        return
    required = () if files.optional else tuple(item.key for item in files.items or ())
    for path, keys in narrowed.items():
        # A subPath that does not exist is mounted as an empty directory; an item that does not exist stops the pod.
        optional = not all(key in required for key in keys)
        yield Reference(kind, name, f"{where}: subPath {path}", keys, bool(files.optional) or optional)


def _mounted(files: _Files, mounts: list[_Mount]) -> dict[str, tuple[str, ...]] | None:
    """The keys behind each subPath, when the volume is mounted by subPath only; None when all of it may be read."""
    if not mounts:
        return None
    found: dict[str, tuple[str, ...]] = {}
    for mount in mounts:
        path = (mount.sub_path or mount.sub_path_expr).strip("/")
        if not path or "$(" in path:
            return None
        keys = _keys_below(path, files.items)
        if not keys:
            return None
        found[path] = keys
    return found


def _keys_below(path: str, items: Iterable[_Item] | None) -> tuple[str, ...]:
    if items:
        return tuple(item.key for item in items if item.path == path or item.path.startswith(f"{path}/"))
    return () if "/" in path else (path,)  # without items every key is a file of that name


def _csi(csi: _Csi, where: str) -> Iterator[Reference]:
    attributes = csi.volume_attributes or {}
    if name := attributes.get("secretProviderClass"):
        yield Reference(SourceKind.PROVIDER_CLASS, name, f"{where}: csi {csi.driver}")
    if (name := attributes.get("secretName")) and not attributes.get("secretNamespace"):
        yield Reference(SourceKind.SECRET, name, f"{where}: csi {csi.driver}")
    if csi.node_publish_secret_ref is not None and csi.node_publish_secret_ref.name:
        yield Reference(SourceKind.SECRET, csi.node_publish_secret_ref.name, f"{where}: csi nodePublishSecretRef")
