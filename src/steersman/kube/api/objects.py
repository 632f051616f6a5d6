"""Kubernetes objects as slim structs: only the fields that controllers use.

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
import inspect
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

import msgspec
import msgspec.structs
from msgspec import field

from steersman.kube.api.crd_options import CRDOptions, PrinterColumn, ScaleSubresource
from steersman.kube.api.field_presence import Presence, by_default, mark_present, note, wire
from steersman.kube.api.gvk import Kind, NamespacedName
from steersman.kube.api.times import parse_time

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
            factory = getattr(value, "default_factory", None)
            if isinstance(value, msgspec.Struct) and not value.__struct_config__.frozen:
                fresh = functools.partial(copy.deepcopy, value)
                namespace[attribute] = field(default_factory=functools.partial(by_default, fresh))
            elif isinstance(factory, type) and issubclass(factory, Presence):
                namespace[attribute] = field(default_factory=functools.partial(by_default, factory), name=value.name)
        struct_options.setdefault("kw_only", True)
        return super().__new__(mcls, name, bases, namespace, **struct_options)

    if not TYPE_CHECKING:  # type checkers know the parameters of each struct, which this would hide

        def __call__(cls, *values: Any, **fields: Any) -> Any:
            made = super().__call__(*values, **fields)
            if values:
                fields = {**dict(zip(cls.__struct_fields__, values, strict=False)), **fields}
            note(made, fields)
            return made


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Struct(Presence, msgspec.Struct, metaclass=_StructMeta, rename="camel", omit_defaults=True, gc=False):
    """The base of every part of an object: camelCase on the wire, unknown fields ignored.

    What was set is written, whatever its value; a field that was never mentioned is not (`api.field_presence`).
    """


class OwnerReference(Struct):
    """Who an object belongs to; it is garbage collected with its owners."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Struct):
    """The metadata every object has, without managedFields: most of its bytes, and rarely read."""

    EMPTY_IS_ABSENT: ClassVar[bool] = True  # an empty name, namespace, uid or resourceVersion is none, and never sent

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
    """The label key that the expression tests."""
    operator: str
    """How the label is tested: `In` and `NotIn` compare its value with `values`, `Exists` and `DoesNotExist` test
    whether it is set."""
    values: list[str] | None = None
    """The values to compare with. `In` and `NotIn` need at least one; `Exists` and `DoesNotExist` none."""


class LabelSelector(Struct):
    """A label selector as objects hold it; `steersman.kube.api.selectors` matches it."""

    match_labels: dict[str, str] | None = None
    """Labels that an object must have, each with exactly this value."""
    match_expressions: list[LabelSelectorRequirement] | None = None
    """Expressions that must all hold, in addition to `matchLabels`."""


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
        columns: tuple[PrinterColumn, ...] = (),
        scale: ScaleSubresource | None = None,
        served: bool = True,
        storage: bool = False,
        deprecated: bool | str = False,
        hub: type[Resource] | None = None,
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
            definition = CRDOptions(
                short_names=short_names,
                categories=categories,
                columns=columns,
                scale=scale,
                served=served,
                storage=storage,
                deprecated=deprecated,
            )
            type.__setattr__(cls, "DEFINITION", definition)
            type.__setattr__(cls, "HUB", _checked_hub(cls, hub))
        return cls


def _checked_hub(cls: Any, hub: Any) -> Any:
    """`hub`, when `cls` can be a spoke of it; TypeError says what is missing."""
    if hub is None:
        return None
    if getattr(hub, "KIND", None) is None or hub.HUB is not None:
        raise TypeError(f"{cls.__name__}: hub must be a version of the kind that has no hub itself, not {hub!r}")
    own, other = cls.KIND, hub.KIND
    if (own.qualified, own.kind, own.namespaced) != (other.qualified, other.kind, other.namespaced):
        raise TypeError(
            f"{cls.__name__}: {own} ({own.plural}) and its hub {other} ({other.plural}) are different kinds"
        )
    if own.version == other.version:
        raise TypeError(f"{cls.__name__}: version {own.version} is that of its hub {hub.__name__}")
    for method in ("convert_to", "convert_from"):
        found = getattr(cls, method, None)
        if found is None or inspect.iscoroutinefunction(found):
            shape = "def convert_to(self) -> Hub" if method == "convert_to" else "classmethod convert_from(cls, hub)"
            raise TypeError(f"{cls.__name__}: a version with hub={hub.__name__} needs {shape}, not async")
    return hub


class Resource(Struct, metaclass=_ResourceMeta):
    """An object with an identity. Subclasses name their kind as class arguments.

    Of several versions of a kind, one is the hub. Each other one names it (`hub=`), and converts to and from it:
    `convert_to(self)` returns the hub's object, the class method `convert_from(cls, hub)` returns its own.
    """

    KIND: ClassVar[Kind]
    DEFINITION: ClassVar[CRDOptions]
    HUB: ClassVar[type[Resource] | None] = None

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
            columns: tuple[PrinterColumn, ...] = (),
            scale: ScaleSubresource | None = None,
            served: bool = True,
            storage: bool = False,
            deprecated: bool | str = False,
            hub: type[Resource] | None = None,
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
        """`metadata.labels`, for reading: an object without any has an empty dict of its own."""
        return self.metadata.labels or {}

    @property
    def annotations(self) -> dict[str, str]:
        """`metadata.annotations`, for reading: an object without any has an empty dict of its own."""
        return self.metadata.annotations or {}

    @property
    def created(self) -> datetime | None:
        """When the server stored the object first; None before that."""
        return parse_time(stamp) if (stamp := self.metadata.creation_timestamp) else None

    @property
    def deleting(self) -> bool:
        """Whether the object has been deleted and waits for its finalizers."""
        return self.metadata.deletion_timestamp is not None

    @property
    def controller(self) -> OwnerReference | None:
        """The one owner that controls the object, if any."""
        return next((owner for owner in self.metadata.owner_references or () if owner.controller), None)

    @property
    def ref(self) -> NamespacedName:
        """The key of this object in caches and queues."""
        return NamespacedName(self.metadata.name, self.metadata.namespace)


class PartialObjectMetadata(Resource):
    """Only the metadata of an object of any kind; asked for with its own media type, so nothing else is sent."""


R = TypeVar("R", bound=Resource)


def decode(data: bytes | str, cls: type[R]) -> R:
    """The object in JSON `data`, as `cls` sees it; what `data` mentions counts as set, for a later apply."""
    obj = msgspec.json.decode(data, type=cls)
    mark_present(obj, msgspec.json.decode(data))
    return obj


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
    return {"apiVersion": type(obj).KIND.api_version, "kind": type(obj).KIND.kind, **wire(obj)}


def encode(obj: Resource | dict[str, Any]) -> bytes:
    """`obj` as JSON bytes, apiVersion and kind included."""
    return msgspec.json.encode(obj if isinstance(obj, dict) else to_wire(obj))
