"""The metadata of an object, whichever form the object has.

Caches hold structs for resource classes and plain dicts for bare kinds; code that only needs to know what an object is
called, whose it is and which resourceVersion it has asks here and need not care.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.cache.identity import ref_of
from steersman.errors import ConfigError
from steersman.kube.api.gvk import Kind
from steersman.kube.api.objects import ObjectMeta, OwnerReference, Resource

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["kind_of", "metadata_of", "owner_reference", "owners_of"]

Object = Resource | dict[str, Any]


def kind_of(target: type[Resource] | Kind) -> Kind:
    """The kind a target stands for."""
    kind = target if isinstance(target, Kind) else getattr(target, "KIND", None)
    if not isinstance(kind, Kind):
        given: Any = target  # whatever a person wrote there
        if isinstance(given, type) and issubclass(given, Resource) and given is not Resource:
            raise ConfigError(f"{given.__name__} names no kind: give it group= and version=", field="kind")
        raise ConfigError(f"{target!r} is not a kind: use a Resource class or a Kind", field="kind")
    return kind


def metadata_of(obj: Object) -> ObjectMeta:
    """The metadata of `obj`."""
    if isinstance(obj, dict):
        return msgspec.convert(obj.get("metadata") or {}, ObjectMeta)
    return obj.metadata


def owners_of(obj: Object) -> Sequence[OwnerReference]:
    """Who `obj` belongs to."""
    return metadata_of(obj).owner_references or ()


def owner_reference(owner: Object, kind: Kind, *, controller: bool = True) -> OwnerReference:
    """The reference that makes an object belong to `owner`: it is found by `owns` and collected with its owner."""
    meta = metadata_of(owner)
    if not meta.uid:
        raise ValueError(f"{kind.kind} {ref_of(owner)} has no uid: only an object that exists can own another")
    return OwnerReference(
        api_version=kind.api_version,
        kind=kind.kind,
        name=meta.name,
        uid=meta.uid,
        controller=controller or None,
        block_owner_deletion=controller or None,
    )
