"""SecretProviderClasses of the secrets store CSI driver as sources: what pods have mounted, by version. Pure.

The class itself says where secrets come from, and does not change when they do. What changes are the versions that the
driver notes per pod, in a SecretProviderClassPodStatus. A class says what the status that was written last says: a
rotation reaches pods one after the other, and the first one is the change. Versions are names the provider gives, never
values. A class that no pod has mounted says nothing, and holds nothing back.

The class is watched as well, for what people write on it: the same annotations as on a ConfigMap or a Secret.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import field
from msgspec.structs import replace

from steersman.kube.api.objects import ObjectMeta, Struct
from steersman.operators.reload.api.config import SourceKind, SourceRef
from steersman.operators.reload.sources.digest import Source, key_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from steersman.operators.reload.sources.digest import Hash

BY_CLASS: Final = "secretproviderclass"  # the index


class MountedObject(Struct):
    """One secret that a pod has mounted."""

    id: str = ""
    version: str = ""


class MountedStatus(Struct):
    """What the driver notes."""

    secret_provider_class_name: str = ""
    objects: list[MountedObject] | None = None


class ProviderStatus(
    Source,
    group="secrets-store.csi.x-k8s.io",
    version="v1",
    kind="SecretProviderClassPodStatus",
    plural="secretproviderclasspodstatuses",
):
    """What one pod has mounted of one class."""

    status: MountedStatus | None = None  # on the wire only
    provider: str = field(default="", name="steersman.dev/provider")  # the name of the class

    @property
    def source(self) -> SourceRef:
        """The class it is about."""
        return SourceRef(SourceKind.PROVIDER_CLASS, self.namespace, self.provider)


class ProviderClass(
    Source,
    group="secrets-store.csi.x-k8s.io",
    version="v1",
    kind="SecretProviderClass",
    plural="secretproviderclasses",
):
    """A class, for its annotations."""


@lru_cache(maxsize=64)
def status_transform(hashes: tuple[Hash, ...] = ()) -> Callable[[ProviderStatus], ProviderStatus]:
    """What the cache keeps of a status: always the same function for the same arguments, as caches ask for."""

    def kept(found: ProviderStatus) -> ProviderStatus:
        meta, said = found.metadata, found.status
        objects = {} if said is None else {mounted.id: mounted.version for mounted in said.objects or ()}
        named = "" if said is None else said.secret_provider_class_name
        data = {**objects, "SecretProviderClassName": named}
        computed = {
            compute.name: compute(SourceKind.PROVIDER_CLASS, data, None) for compute in hashes if said is not None
        }
        return ProviderStatus(
            metadata=ObjectMeta(
                name=meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version
            ),
            provider=named or found.provider,
            digests=found.digests
            if said is None
            else {identifier: key_digest(objects[identifier].encode()) for identifier in objects},
            hashes=found.hashes if said is None else computed,
        )

    return kept


def said_on(status: ProviderStatus | None, kept: ProviderClass | None) -> ProviderStatus | None:
    """The status of a class with what is written on the class."""
    if status is None or kept is None or not kept.metadata.annotations:
        return status
    return replace(
        status, metadata=replace(status.metadata, annotations=kept.metadata.annotations), settings=kept.settings
    )


def by_class(status: ProviderStatus) -> Iterator[str]:
    """The class that a status is about, for the index."""
    yield f"{status.namespace}/{status.provider}"


def latest(statuses: Iterable[ProviderStatus]) -> ProviderStatus | None:
    """The status that was written last; None when there is none."""
    return max(statuses, key=_written, default=None)


def _written(status: ProviderStatus) -> tuple[int, Any]:
    revision = status.metadata.resource_version
    return (int(revision) if revision.isdecimal() else 0, status.name)
