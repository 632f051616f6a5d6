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
from msgspec import field

from steersman.kube.definitions import ColumnSpec, Definition, ScaleSpec
from steersman.kube.resources import Kind, ObjectRef

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
    def ref(self) -> ObjectRef:
        """The key of this object in caches and queues."""
        return ObjectRef(self.metadata.name, self.metadata.namespace)


class PartialObjectMetadata(Resource):
    """Only the metadata of an object of any kind; asked for with its own media type, so nothing else is sent."""


R = TypeVar("R", bound=Resource)


def decode(data: bytes | str, cls: type[R]) -> R:
    """The object in JSON `data`, as `cls` sees it."""
    return msgspec.json.decode(data, type=cls)


def to_wire(obj: Resource) -> dict[str, Any]:
    """`obj` as the plain JSON value an API server takes, apiVersion and kind included."""
    body: dict[str, Any] = msgspec.to_builtins(obj)
    return {"apiVersion": type(obj).KIND.api_version, "kind": type(obj).KIND.kind, **body}


def encode(obj: Resource | dict[str, Any]) -> bytes:
    """`obj` as JSON bytes, apiVersion and kind included."""
    return msgspec.json.encode(obj if isinstance(obj, dict) else to_wire(obj))
