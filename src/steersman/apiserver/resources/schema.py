"""What a value may look like: one `Schema` per node of a type, for built-in kinds and for custom resources.

The server merges, compares and prunes by three questions about a value: is it a scalar, a list or a map here, is it one
unit or many parts, and what are its parts called. A `Schema` answers them from an OpenAPI v3 node. A node without a
type allows all three shapes, so a schema can be scalar, list and map at once and the value decides.

Invariant: a schema never changes after it is loaded. It is loaded on first use, one node at a time, because a Pod's
type has thousands of nodes and a ConfigMap needs ten of them. Named types are loaded once and shared.

Validation of values and defaulting are not here.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.kube.api.gvk import Kind

QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
RAW_EXTENSION: Final = "io.k8s.apimachinery.pkg.runtime.RawExtension"
OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
REF: Final = "#/components/schemas/"
SCALARS: Final = {"integer": "numeric", "number": "numeric", "boolean": "boolean"}

_METADATA = tuple(
    f"metadata.{field}" for field in ("annotations", "deletionTimestamp", "finalizers", "labels", "ownerReferences")
)
# What an update of the status may not touch, besides the whole spec.
STATUS_RESETS: Final[dict[str, tuple[str, ...]]] = {
    "deployments.apps": ("metadata.labels",),
    "flowschemas.flowcontrol.apiserver.k8s.io": _METADATA,
    "pods": ("metadata.deletionTimestamp", "metadata.ownerReferences"),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": _METADATA,
    "resourceclaims.resource.k8s.io": _METADATA,
    "servicecidrs.networking.k8s.io": _METADATA,
    "validatingadmissionpolicies.admissionregistration.k8s.io": _METADATA,
    "volumeattachments.storage.k8s.io": _METADATA,
}
# Kinds whose subresources share the status: what a write of each leaves alone.
_OTHER_RESETS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "certificatesigningrequests.certificates.k8s.io": {
        "": ("spec", "status"),
        "status": ("spec", "status.conditions"),
        "approval": ("spec", "status.certificate"),
    },
}
_GROUPS: Final = {"core": "", "certificates": "certificates.k8s.io", "networking": "networking.k8s.io"}


class Types:
    """The named types one document defines, loaded on demand."""

    __slots__ = ("_nodes", "_schemas", "go")

    def __init__(self, nodes: Mapping[str, Any], go: Mapping[str, dict[str, str]] | None = None) -> None:
        self._nodes = nodes
        self._schemas: dict[tuple[str, str | None], Schema] = {}
        self.go: Mapping[str, dict[str, str]] = go or {}

    def named(self, name: str, map_type: str | None = None) -> Schema:
        """The type called `name`; `map_type` overrides whether it is merged as one unit."""
        key = (name, map_type)
        if (known := self._schemas.get(key)) is None:
            node = self._nodes.get(name, {})
            if map_type is not None:
                node = {**node, "x-kubernetes-map-type": map_type}
            known = self._schemas[key] = Schema(node, self, name=name)
        return known

    def adopt(self, schema: Schema) -> None:
        """Take a named type of another document."""
        self._nodes = {**self._nodes, schema.name: schema.raw}
        self._schemas[schema.name, None] = schema


class Schema:
    """One node of a type.

    scalar       "numeric", "string", "boolean", "untyped", or None when no scalar is allowed
    is_map       a map or struct is allowed: `fields` by name, `element` for every other key (None: none allowed)
    map_atomic   the map is one unit: merged, owned and replaced as a whole
    is_list      a list is allowed, of `items`; `list_type` is "atomic", "set" or "map", `keys` name its items
    default      the default of the property, None without one
    strategy     the words of x-kubernetes-patch-strategy, e.g. {"merge", "retainKeys"}; `merge_key` goes with it
    raw          the OpenAPI node, with the property's own words over those of the type it refers to
    name         the OpenAPI name of the type, "" when it is written in place
    go           JSON field -> Go type of a built-in struct, {} elsewhere
    resets       only on the schema of a kind: subresource -> the field set its writes may not touch
    builtin      a built-in kind, whose values went through the server's Go types
    """

    __slots__ = (
        "_loaded",
        "_types",
        "_untyped",
        "builtin",
        "default",
        "element",
        "fields",
        "go",
        "is_list",
        "is_map",
        "items",
        "key_defaults",
        "keys",
        "list_type",
        "map_atomic",
        "merge_key",
        "name",
        "preserve",
        "raw",
        "resets",
        "scalar",
        "strategy",
    )

    scalar: str | None
    is_map: bool
    fields: dict[str, Schema]
    element: Schema | None
    map_atomic: bool
    is_list: bool
    items: Schema
    list_type: str
    keys: tuple[str, ...]
    key_defaults: dict[str, Any]
    preserve: bool

    def __init__(self, raw: Mapping[str, Any], types: Types, *, name: str = "", preserve: bool = False) -> None:
        self.raw: dict[str, Any] = dict(raw)
        self.name = name
        self.default: Any = raw.get("default")
        self.merge_key: str | None = raw.get("x-kubernetes-patch-merge-key")
        strategy = raw.get("x-kubernetes-patch-strategy")
        self.strategy: frozenset[str] = frozenset(strategy.split(",")) if strategy else frozenset()
        self.resets: dict[str, dict[str, Any]] = {}
        self.builtin = bool(types.go)
        self._types = types
        self._untyped = preserve
        self._loaded = False

    @classmethod
    def from_openapi(cls, node: Mapping[str, Any], components: Mapping[str, Any]) -> Schema:
        """The schema of an OpenAPI v3 node; `components` are the named types it may refer to."""
        return _child(node, Types(components), preserve=False)

    def __getattr__(self, attribute: str) -> Any:
        if attribute not in Schema.__slots__ or self._loaded:
            raise AttributeError(attribute)
        self._load()
        return getattr(self, attribute)

    def __repr__(self) -> str:
        return f"Schema({self.name or self.raw.get('type', 'any')})"

    def field(self, name: str) -> Schema | None:
        """The schema of a key of this map: of the field called so, else of any other key, else None."""
        return self.fields.get(name) or self.element

    def _load(self) -> None:
        """Read the node: see the class for what each attribute means."""
        raw, types = self.raw, self._types
        self._loaded = True
        self.go = types.go.get(self.name, {})
        self.preserve = self._untyped or raw.get("x-kubernetes-preserve-unknown-fields") is True
        shape = raw.get("type", "")
        if self.name in {QUANTITY, RAW_EXTENSION}:
            shape = "" if self.name == RAW_EXTENSION else "scalar"
        self.scalar = _scalar(shape, raw)
        self.is_map = shape in {"", "object"}
        self.is_list = shape in {"", "array"}
        self._load_map(raw, types)
        self._load_list(raw, types)
        if self.name == RAW_EXTENSION:
            self.map_atomic, self.element, self.fields = True, ATOMIC, {}

    def _load_map(self, raw: dict[str, Any], types: Types) -> None:
        properties = raw.get("properties") or {}
        self.fields = {name: _child(node, types, preserve=self.preserve) for name, node in properties.items()}
        self.map_atomic = raw.get("x-kubernetes-map-type") == "atomic"
        others = raw.get("additionalProperties")
        if isinstance(others, dict):
            self.element = _child(others, types, preserve=self.preserve)
        elif others is True or (others is None and (self.preserve or not properties)):
            self.element = DEDUCED
        else:
            self.element = None

    def _load_list(self, raw: dict[str, Any], types: Types) -> None:
        self.list_type, self.keys = _list_type(raw)
        node = raw.get("items")
        self.items = _child(node, types, preserve=self.preserve) if isinstance(node, dict) else ATOMIC
        self.key_defaults = {}
        for key in self.keys:
            known = self.items.fields.get(key)
            if known is not None and known.default is not None:
                self.key_defaults[key] = known.default


def _child(node: Mapping[str, Any], types: Types, *, preserve: bool) -> Schema:
    """The schema of a node that may refer to a named type, directly or as the single part of an allOf."""
    ref = node.get("$ref")
    parts: list[dict[str, Any]] = node.get("allOf") or []
    if ref is None and len(parts) == 1:
        ref = parts[0].get("$ref")
    if ref is None:
        return Schema(node, types, preserve=preserve)
    name = ref.removeprefix(REF)
    named = types.named(name, node.get("x-kubernetes-map-type"))
    words = {key: value for key, value in node.items() if key not in {"$ref", "allOf", "description"}}
    if not words:
        return named
    return Schema({**named.raw, **node}, types, name=name)


def _scalar(shape: str, raw: Mapping[str, Any]) -> str | None:
    """How the server compares scalars of a type; formatted strings may hold numbers too."""
    if shape == "string":
        return "string" if raw.get("format", "") in {"", "byte"} else "untyped"
    if shape in {"object", "array"}:
        return None
    return SCALARS.get(shape, "untyped")


def _list_type(raw: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The list type and its keys; older types say it by patch strategy and merge key only."""
    if (listed := raw.get("x-kubernetes-list-type")) is not None:
        return str(listed), tuple(raw.get("x-kubernetes-list-map-keys") or ()) if listed == "map" else ()
    if "merge" in str(raw.get("x-kubernetes-patch-strategy", "")).split(","):
        key = raw.get("x-kubernetes-patch-merge-key")
        return ("map", (key,)) if key else ("set", ())
    return "atomic", ()


def _any(*, atomic: bool) -> Schema:
    """Any value: a scalar, an atomic list, or a map of any values that is one unit or many parts."""
    schema = Schema({}, Types({}))
    schema._loaded = True  # noqa: SLF001 - it contains itself, so it cannot be read from a node
    schema.go, schema.preserve = {}, True
    schema.scalar, schema.is_map, schema.is_list = "untyped", True, True
    schema.fields, schema.map_atomic, schema.element = {}, atomic, schema
    schema.list_type, schema.keys, schema.key_defaults = "atomic", (), {}
    schema.items = schema if atomic else ATOMIC
    return schema


ATOMIC: Final[Schema] = _any(atomic=True)  # what an atomic list or map of unknown type holds
DEDUCED: Final[Schema] = _any(atomic=False)  # what an object of unknown type holds: its maps are merged by key


def _paths(*paths: str) -> dict[str, Any]:
    """A field set of dotted paths."""
    root: dict[str, Any] = {}
    for path in paths:
        node = root
        for part in path.split("."):
            node = node.setdefault(f"f:{part}", {})
    return root


def _document_text(group: str, version: str) -> bytes | None:
    name = f"apis_{group}_{version}.json.gz" if group else f"api_{version}.json.gz"
    path = files("steersman.apiserver") / "data" / name
    return gzip.decompress(path.read_bytes()) if path.is_file() else None


@cache
def builtin_document(group: str, version: str) -> dict[str, Any] | None:
    """The OpenAPI v3 document of a built-in group and version as the real server gives it; None if it has none."""
    text = _document_text(group, version)
    return None if text is None else msgspec.json.decode(text, type=dict[str, Any])


class _Kind(msgspec.Struct):
    group: str
    version: str
    kind: str


class _Marks(msgspec.Struct):
    kinds: tuple[_Kind, ...] = msgspec.field(name="x-kubernetes-group-version-kind", default=())


class _Components(msgspec.Struct):
    schemas: dict[str, msgspec.Raw]


class _Document(msgspec.Struct):
    """What types need of a document; the rest of it is skipped, which makes it ten times cheaper to read."""

    components: _Components


class _Nodes(dict[str, Any]):
    """The schemas of a document, each decoded when first asked for."""

    def __init__(self, schemas: dict[str, msgspec.Raw]) -> None:
        super().__init__()
        self._schemas = schemas

    def get(self, name: str, default: Any = None) -> Any:
        if name in self or name not in self._schemas:
            return super().get(name, default)
        node = self[name] = msgspec.json.decode(self._schemas[name])
        return node


@cache
def _go_types() -> dict[str, dict[str, str]]:
    path = files("steersman.apiserver") / "data" / "go-types.json.gz"
    return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=dict[str, dict[str, str]])


@cache
def _builtin_types(
    group: str, version: str, kinds_group: str | None = None, kinds_version: str | None = None
) -> tuple[Types, dict[str, str]]:
    """The types in the document of a group and version, and which of them each kind of (another) version is."""
    text = _document_text(group, version)
    if text is None:
        raise LookupError(f"no built-in types for {group or 'core'}/{version}")
    schemas = msgspec.json.decode(text, type=_Document).components.schemas
    kinds = {
        known.kind: name
        for name, node in schemas.items()
        for known in msgspec.json.decode(node, type=_Marks).kinds
        if (known.group, known.version) == (kinds_group or group, kinds_version or version)
    }
    return Types(_Nodes(schemas), _go_types()), kinds


@cache
def builtin_schema(kind: Kind) -> Schema:
    """The type of a built-in kind. Raises LookupError for a kind the recorded documents do not have."""
    types, kinds = _builtin_types(kind.group, kind.version)
    if kind.kind not in kinds:  # what only subresources speak (Scale, Eviction, TokenRequest) is recorded with the core
        types, kinds = _builtin_types("", "v1", kind.group, kind.version)
    if kind.kind not in kinds:
        raise LookupError(f"no built-in type for {kind.kind} in {kind.api_version}")
    schema = types.named(kinds[kind.kind])
    if "status" in schema.fields and kind.qualified in _with_status():
        usual = {"": ("status",), "status": ("spec", *STATUS_RESETS.get(kind.qualified, ()))}
        resets = _OTHER_RESETS.get(kind.qualified, usual)
        schema.resets = {subresource: _paths(*paths) for subresource, paths in resets.items()}
    return schema


@cache
def _with_status() -> frozenset[str]:
    from steersman.apiserver.resources.kinds import BUILTINS

    return frozenset(info.kind.qualified for info in BUILTINS if info.status)


@cache
def builtin_enum(type_name: str, field: str) -> tuple[str, ...]:
    """The values that the recorded OpenAPI lists for a field of a built-in type.

    >>> builtin_enum("core.v1.PodSpec", "restartPolicy")
    ('Always', 'Never', 'OnFailure')
    """
    group, version, _ = type_name.split(".")
    types, _ = _builtin_types(_GROUPS.get(group, group), version)
    node = types.named(f"io.k8s.api.{type_name}").raw["properties"][field]
    return tuple(node.get("items", node)["enum"])


def custom_schema(node: Mapping[str, Any] | None, *, status: bool, preserve_unknown: bool = False) -> Schema:
    """The type of a custom resource version: its openAPIV3Schema, with the metadata every object has.

    `status`: it has a status subresource. `preserve_unknown`: the definition says spec.preserveUnknownFields.
    """
    types, _ = _builtin_types("", "v1")
    own = Types({})
    own.adopt(types.named(OBJECT_META))
    if node:
        schema = Schema(_with_metadata(node, root=True), own, preserve=preserve_unknown)
    else:
        schema = Schema({"type": "object"}, own)
    schema.resets = {"status": _paths("metadata", "spec")}
    if status:
        schema.resets[""] = _paths("status")
    return schema


def _with_metadata(node: Mapping[str, Any], *, root: bool = False) -> dict[str, Any]:
    """The node with the fields of an object where one is meant: at the root and in embedded resources."""
    out = dict(node)
    if properties := node.get("properties"):
        out["properties"] = {name: _with_metadata(child) for name, child in properties.items()}
    for below in ("items", "additionalProperties"):
        if isinstance(child := node.get(below), dict):
            out[below] = _with_metadata(child)
    if root or node.get("x-kubernetes-embedded-resource") is True:
        known = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"$ref": REF + OBJECT_META}}
        out["properties"] = {**out.get("properties", {}), **known}
    return out
