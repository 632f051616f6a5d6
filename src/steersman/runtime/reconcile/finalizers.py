"""Finalizers: an object exists until we have cleaned up after it.

    Controller(Zone, reconcile_zone).finalizer("dns.example.org/zone", remove_zone)

The rule: the finalizer is there before the first effect outside the object, and is removed after the last of them has
been undone. Several finalizers are added in one write and removed one by one, in the order of their cleanups. Every
write names the resourceVersion it is based on, so no finalizer of another controller is lost. Nothing else of the
object changes. Finalizers are only ever added when a controller asks for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.cache.identity import ref_of
from steersman.errors import ConfigError
from steersman.runtime.reconcile.metadata import metadata_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.kube.api.objects import Resource

__all__ = ["adding_finalizers", "check_finalizer", "has_finalizer", "is_terminating", "removing_finalizer"]


def check_finalizer(name: str) -> None:
    """Raise ConfigError unless `name` is a qualified name such as `example.org/cleanup`."""
    domain, _, rest = name.partition("/")
    if not (rest and "." in domain):
        raise ConfigError(f'"{name}" is not a qualified name (try example.org/{name or "cleanup"})', field="finalizer")


def has_finalizer(obj: Resource | dict[str, Any], name: str) -> bool:
    """Whether the object waits for `name` before it goes."""
    return name in (metadata_of(obj).finalizers or ())


def is_terminating(obj: Resource | dict[str, Any]) -> bool:
    """Whether deletion of the object was requested."""
    return metadata_of(obj).deletion_timestamp is not None


def adding_finalizers(obj: Resource | dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The merge patch that adds `names`; conditional on the resourceVersion of `obj`."""
    return _patch(obj, [*(metadata_of(obj).finalizers or ()), *names])


def removing_finalizer(obj: Resource | dict[str, Any], name: str) -> dict[str, Any]:
    """The merge patch that removes `name`; conditional on the resourceVersion of `obj`."""
    return _patch(obj, [other for other in metadata_of(obj).finalizers or () if other != name])


def _patch(obj: Resource | dict[str, Any], names: list[str]) -> dict[str, Any]:
    meta = metadata_of(obj)
    if not meta.resource_version:
        raise ValueError(f"{ref_of(obj)} has no resourceVersion: finalizers are changed on objects that exist")
    return {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": names or None}}
