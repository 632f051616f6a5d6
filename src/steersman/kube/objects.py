"""Kubernetes objects as slim structs: only the fields somebody uses.

A struct is a *projection*: decoding skips every field it does not name, which is what makes a cache small and fast.
A struct is therefore never the whole object; to change an object in place, go through `Client.modify`, which carries
the fields the struct does not know. A `Resource` class knows its own `KIND`; apiVersion and kind are not fields, so
an item of a list (which carries neither) decodes like any other object.

    class WebApp(Resource, group="example.org", version="v1"):
        spec: WebAppSpec

Not here: anything that talks to a server.
"""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

import msgspec
import msgspec.structs
from msgspec import field

from steersman.kube.definitions import ColumnSpec, Definition, ScaleSpec
from steersman.kube.resources import Kind, ObjectRef
from steersman.kube.times import parse_time

if TYPE_CHECKING:
    from datetime import datetime

__all__ = [
    "LabelSelector",
    "LabelSelectorRequirement",
    "ManagedFieldsEntry",
    "ObjectMeta",
    "OwnedMeta",
    "OwnerReference",
    "PartialObjectMetadata",
    "Resource",
    "Struct",
    "decode",
    "encode",
    "owner_reference",
    "to_wire",
]


class _StructMeta(msgspec.StructMeta):
    """Fields are keyword-only in every subclass, and `part: Part = Part()` means a fresh part for every object."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **struct_options: Any) -> Any:
        for attribute, value in namespace.items():
            if isinstance(value, msgspec.Struct) and not value.__struct_config__.frozen:
                namespace[attribute] = field(default_factory=functools.partial(copy.deepcopy, value))
        struct_options.setdefault("kw_only", True)
        return super().__new__(mcls, name, bases, namespace, **struct_options)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Struct(msgspec.Struct, metaclass=_StructMeta, rename="camel", omit_defaults=True, gc=False):
    """The base of every part of an object: camelCase on the wire, unknown fields ignored, defaults not written."""


class OwnerReference(Struct):
    """Who an object belongs to; it is garbage collected with its owners."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Struct):
    """The metadata every object has, without managedFields: most of its bytes, and hardly anybody reads them."""

    name: str = ""
    namespace: str = ""
    generate_name: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None


class ManagedFieldsEntry(Struct):
    """Which fields one manager owns."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: str | None = None
    fields_type: str = ""
    fields_v1: dict[str, Any] | None = field(default=None, name="fieldsV1")
    subresource: str = ""


class OwnedMeta(ObjectMeta):
    """Metadata with managedFields, for a Resource class that declares `metadata: OwnedMeta`."""

    managed_fields: list[ManagedFieldsEntry] | None = None


class LabelSelectorRequirement(Struct):
    """One expression of a label selector."""

    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(Struct):
    """A label selector as objects hold it; `steersman.kube.selectors` matches it."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None


class _ResourceMeta(_StructMeta):
    """Makes `KIND` and `DEFINITION` of the class arguments, and passes the rest on to msgspec."""

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        group: str = "",
        version: str = "",
        kind: str = "",
        plural: str = "",
        namespaced: bool = True,
        short_names: tuple[str, ...] = (),
        categories: tuple[str, ...] = (),
        columns: tuple[ColumnSpec, ...] = (),
        scale: ScaleSpec | None = None,
        **struct_options: Any,
    ) -> Any:
        cls = super().__new__(mcls, name, bases, namespace, **struct_options)
        if version:
            kind = kind or name
            type.__setattr__(
                cls,
                "KIND",
                Kind(
                    group=group, version=version, kind=kind, plural=plural or f"{kind.lower()}s", namespaced=namespaced
                ),
            )
            definition = Definition(short_names=short_names, categories=categories, columns=columns, scale=scale)
            type.__setattr__(cls, "DEFINITION", definition)
        return cls


class Resource(Struct, metaclass=_ResourceMeta):
    """An object with an identity. Subclasses name their kind as class arguments."""

    KIND: ClassVar[Kind]
    DEFINITION: ClassVar[Definition]

    metadata: ObjectMeta = field(default_factory=ObjectMeta)

    if TYPE_CHECKING:  # what the metaclass takes, in the place where type checkers look for it

        def __init_subclass__(
            cls,
            *,
            group: str = "",
            version: str = "",
            kind: str = "",
            plural: str = "",
            namespaced: bool = True,
            short_names: tuple[str, ...] = (),
            categories: tuple[str, ...] = (),
            columns: tuple[ColumnSpec, ...] = (),
            scale: ScaleSpec | None = None,
            **struct_options: Any,
        ) -> None: ...

    @property
    def name(self) -> str:
        """`metadata.name`."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """`metadata.namespace`, empty for cluster-scoped objects."""
        return self.metadata.namespace

    @property
    def labels(self) -> dict[str, str]:
        """`metadata.labels`, for reading: an object without any has an empty dict that belongs to nobody."""
        return self.metadata.labels or {}

    @property
    def annotations(self) -> dict[str, str]:
        """`metadata.annotations`, for reading: an object without any has an empty dict that belongs to nobody."""
        return self.metadata.annotations or {}

    @property
    def created(self) -> datetime | None:
        """When the server stored the object first; None before that."""
        return parse_time(stamp) if (stamp := self.metadata.creation_timestamp) else None

    @property
    def deleting(self) -> bool:
        """Whether somebody has deleted the object and its finalizers are being waited for."""
        return self.metadata.deletion_timestamp is not None

    @property
    def controller(self) -> OwnerReference | None:
        """The one owner that controls the object, if any."""
        return next((owner for owner in self.metadata.owner_references or () if owner.controller), None)

    @property
    def ref(self) -> ObjectRef:
        """The key of this object in caches and queues."""
        return ObjectRef(self.metadata.name, self.metadata.namespace)


class PartialObjectMetadata(Resource):
    """Only the metadata of an object of any kind; asked for with its own media type, so nothing else is sent."""


R = TypeVar("R", bound=Resource)


def decode(data: bytes | str, cls: type[R]) -> R:
    """The object in JSON `data`, as `cls` sees it."""
    return msgspec.json.decode(data, type=cls)


def owner_reference(owner: Resource, *, controller: bool = True, block_deletion: bool = True) -> OwnerReference:
    """The reference that makes `owner` an owner; an object has any number of owners and at most one controller."""
    if not owner.metadata.uid:
        raise ValueError(f"{type(owner).KIND} {owner.ref} has no uid: only an object that a server has stored can own")
    return OwnerReference(
        api_version=type(owner).KIND.api_version,
        kind=type(owner).KIND.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=controller or None,
        block_owner_deletion=block_deletion or None,
    )


def to_wire(obj: Resource) -> dict[str, Any]:
    """`obj` as the plain JSON value an API server takes, apiVersion and kind included."""
    body: dict[str, Any] = msgspec.to_builtins(obj)
    _tidy(obj, body)
    return {"apiVersion": type(obj).KIND.api_version, "kind": type(obj).KIND.kind, **body}


def _tidy(struct: msgspec.Struct, body: dict[str, Any]) -> None:
    """Drops parts that exist only because their class is their default, such as a status that nobody has set."""
    for attribute, name, droppable in _parts(type(struct)):
        value = getattr(struct, attribute)
        if isinstance(value, msgspec.Struct):
            _tidy(value, body[name])
            if droppable and not body[name]:
                del body[name]
        elif isinstance(value, list | tuple) and name in body:
            body[name] = list(body[name])
            for item, part in zip(value, body[name], strict=True):
                if isinstance(item, msgspec.Struct):
                    _tidy(item, part)


@functools.cache
def _parts(cls: type[msgspec.Struct]) -> tuple[tuple[str, str, bool], ...]:
    """Attribute and wire name of each field, and whether it may be dropped when empty."""
    return tuple(
        (info.name, info.encode_name, isinstance(info.default_factory, msgspec.StructMeta))
        for info in msgspec.structs.fields(cls)
    )


def encode(obj: Resource | dict[str, Any]) -> bytes:
    """`obj` as JSON bytes, apiVersion and kind included."""
    return msgspec.json.encode(obj if isinstance(obj, dict) else to_wire(obj))
