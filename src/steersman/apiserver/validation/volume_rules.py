"""The rules of storage: sources of volumes, claims, persistent volumes and their classes.

A source says where its content comes from; `_REQUIRED` has what each cannot do without. A claim and a volume have a
size and ways to access it, and a claim keeps what it asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.resources.schema import builtin_enum
from steersman.apiserver.validation import field_errors
from steersman.apiserver.validation.metadata_rules import selector_causes
from steersman.apiserver.validation.names import is_dns1123_subdomain
from steersman.errors import FormatError
from steersman.kube.api.quantities import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.kube.api.errors import Cause

JSON = dict[str, Any]
_REQUIRED: dict[str, tuple[str, ...]] = {
    "awsElasticBlockStore": ("volumeID",),
    "cephfs": ("monitors",),
    "configMap": ("name",),
    "csi": ("driver",),
    "ephemeral": ("volumeClaimTemplate",),
    "fc": ("targetWWNs",),
    "flexVolume": ("driver",),
    "gitRepo": ("repository",),
    "glusterfs": ("endpoints", "path"),
    "hostPath": ("path",),
    "image": ("reference",),
    "iscsi": ("targetPortal", "iqn"),
    "nfs": ("server", "path"),
    "persistentVolumeClaim": ("claimName",),
    "rbd": ("monitors", "image"),
    "secret": ("secretName",),
}
_MODES = 0o777
_NOT_SOURCES = {
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
}


def source_causes(kind: str, source: JSON, path: str) -> Iterator[Cause]:
    """Why a source of a volume cannot be mounted."""
    yield from (field_errors.required(f"{path}.{field}") for field in _REQUIRED.get(kind, ()) if not source.get(field))
    if kind in {"hostPath", "nfs"}:
        yield from _exported_path(source.get("path", ""), f"{path}.path", absolute=kind == "nfs")
    if kind == "hostPath":
        yield from field_errors.enum_causes(source, "core.v1.HostPathVolumeSource", path, "type")
    if kind in {"secret", "configMap", "downwardAPI", "projected"}:
        yield from _mode(source.get("defaultMode"), f"{path}.defaultMode")
    if kind in {"secret", "configMap"}:
        yield from _items(source.get("items") or [], f"{path}.items")
    elif kind == "projected":
        for at, projection in enumerate(source.get("sources") or ()):
            yield from _projection(projection, path, f"{path}.sources[{at}]")
    elif kind == "downwardAPI":
        for item in source.get("items") or ():
            yield from _downward(item, path)
    elif kind == "emptyDir" and (limit := _amount(source.get("sizeLimit"))) is not None and limit < _NOTHING:
        yield field_errors.forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")
    elif kind == "ephemeral" and (template := source.get("volumeClaimTemplate")):
        yield from _claim_spec(template.get("spec") or {}, f"{path}.volumeClaimTemplate.spec")


def _exported_path(folder: str, path: str, *, absolute: bool) -> Iterator[Cause]:
    if ".." in folder.split("/"):
        yield field_errors.invalid(path, folder, "must not contain '..'")
    elif absolute and not folder.startswith("/"):
        yield field_errors.invalid(path, folder, "must be an absolute path")


def _mode(mode: int | None, path: str) -> Iterator[Cause]:
    if mode is not None and not 0 <= mode <= _MODES:
        yield field_errors.invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive")


def _items(items: list[JSON], path: str) -> Iterator[Cause]:
    for at, item in enumerate(items):
        if not item.get("key"):
            yield field_errors.required(f"{path}[{at}].key")
        yield from _local_path(item.get("path", ""), f"{path}[{at}].path")
        yield from _mode(item.get("mode"), f"{path}[{at}].mode")


def _local_path(folder: str, path: str) -> Iterator[Cause]:
    if not folder:
        yield field_errors.required(path)
    elif folder.startswith("/"):
        yield field_errors.invalid(path, folder, "must be a relative path")
    elif ".." in folder.split("/") or folder.startswith(".."):
        yield field_errors.invalid(path, folder, "must not contain '..'")


def _projection(projection: JSON, path: str, where: str) -> Iterator[Cause]:
    kinds = [kind for kind, content in projection.items() if content is not None]
    if len(kinds) > 1:
        yield field_errors.forbidden(where, "may not specify more than 1 volume type per source")
        return
    for kind in ("secret", "configMap"):
        if (source := projection.get(kind)) is not None:
            if not source.get("name"):
                yield field_errors.required(f"{where}.{kind}.name")
            yield from _items(source.get("items") or [], f"{where}.{kind}.items")
    if (token := projection.get("serviceAccountToken")) is not None:
        if (seconds := token.get("expirationSeconds", 3600)) < 600:
            text = "may not specify a duration less than 10 minutes"
            yield field_errors.invalid(f"{where}.serviceAccountToken.expirationSeconds", seconds, text)
        yield from _local_path(token.get("path", ""), f"{path}.path")


def _downward(item: JSON, path: str) -> Iterator[Cause]:
    yield from _local_path(item.get("path", ""), f"{path}.path")
    given = [kind for kind in ("fieldRef", "resourceFieldRef") if item.get(kind) is not None]
    if not given:
        yield field_errors.required(path, "one of fieldRef and resourceFieldRef is required")
    elif len(given) > 1:
        yield field_errors.invalid(
            path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"
        )


def claim_causes(obj: JSON, old: JSON | None) -> list[Cause]:
    """Why a PersistentVolumeClaim cannot be stored."""
    spec = obj.get("spec") or {}
    found = list(_claim_spec(spec, "spec"))
    if old is not None and _fixed(spec, old) != _fixed(old["spec"], old):
        text = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        found.append(field_errors.forbidden("spec", text))
    return found


def _fixed(spec: JSON, old: JSON) -> JSON:
    """What of a claim cannot change any more: a volume and a class can be given to a claim that has none."""
    open_fields = {name for name in ("volumeName", "storageClassName") if not old["spec"].get(name)}
    if (old.get("status") or {}).get("phase") == "Bound":
        open_fields |= {"resources", "volumeAttributesClassName"}
    return {key: value for key, value in spec.items() if key not in open_fields}


def _claim_spec(spec: JSON, path: str) -> Iterator[Cause]:
    yield from _access_modes(spec.get("accessModes") or [], f"{path}.accessModes")
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        yield field_errors.required(f"{path}.resources[storage]")
    else:
        yield from _positive(size, f"{path}.resources[storage]")
    yield from field_errors.enum_causes(spec, "core.v1.PersistentVolumeClaimSpec", path, "volumeMode")
    if name := spec.get("storageClassName"):
        yield from (field_errors.invalid(f"{path}.storageClassName", name, text) for text in is_dns1123_subdomain(name))
    yield from selector_causes(spec.get("selector"), f"{path}.selector")


def _access_modes(modes: list[str], path: str) -> Iterator[Cause]:
    if not modes:
        yield field_errors.required(path, "at least 1 access mode is required")
    known = builtin_enum("core.v1.PersistentVolumeClaimSpec", "accessModes")
    yield from (field_errors.not_supported(path, mode, known) for mode in modes if mode not in known)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        yield field_errors.forbidden(path, "may not use ReadWriteOncePod with other access modes")


def _amount(size: str | None) -> Quantity | None:
    try:
        return None if size is None else Quantity.parse(size)
    except FormatError:
        return None  # refused elsewhere


def _positive(size: str, path: str) -> Iterator[Cause]:
    if (amount := _amount(size)) is not None and amount <= _NOTHING:
        yield field_errors.invalid(path, size, "must be greater than zero")


_NOTHING = Quantity.parse("0")


def persistent_volume_causes(obj: JSON, _old: JSON | None) -> list[Cause]:
    """Why a PersistentVolume cannot be stored."""
    spec = obj.get("spec") or {}
    found = list(_access_modes(spec.get("accessModes") or [], "spec.accessModes"))
    capacity = spec.get("capacity") or {}
    if not capacity:
        found.append(field_errors.required("spec.capacity"))
    if "storage" in capacity:
        found += _positive(capacity["storage"], "spec.capacity[storage]")
    else:
        found.append(field_errors.not_supported("spec.capacity", capacity, ("storage",)))
    sources = sorted(kind for kind in spec if kind not in _NOT_SOURCES)
    if not sources:
        found.append(field_errors.required("spec", "must specify a volume type"))
    for kind in sources[1:]:
        found.append(field_errors.forbidden(f"spec.{kind}", "may not specify more than 1 volume type"))
    for kind in sources[:1]:
        found += source_causes(kind, spec[kind], f"spec.{kind}")
    type_name = "core.v1.PersistentVolumeSpec"
    return found + field_errors.enum_causes(spec, type_name, "spec", "persistentVolumeReclaimPolicy", "volumeMode")


def storage_class_causes(obj: JSON, _old: JSON | None) -> list[Cause]:
    """Why a StorageClass cannot be stored."""
    found = [] if obj.get("provisioner") else [field_errors.required("provisioner")]
    for field, allowed in (("reclaimPolicy", ("Delete", "Retain")), ("volumeBindingMode", _BINDING)):
        if (value := obj.get(field)) and value not in allowed:
            found.append(field_errors.not_supported(field, value, allowed))
    return found


_BINDING = ("Immediate", "WaitForFirstConsumer")
