"""The compiled schema of a custom resource: which fields it knows, what they default to.

A structural schema says of every field whether it is known, what it defaults to and whether it may be null. From that
follow, in the order of the server: *pruning* drops unknown fields (and can name them) and nulls that no schema wants,
*defaulting* fills what is missing. Whether values are valid is decided in `custom_resource_validation`.

Invariant: an object is never changed; what comes back shares every part that needed no change.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from steersman.apiserver.crd.formats import format_check

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from steersman.apiserver.crd.validation_rules import RuleNode

META_FIELDS: Final = frozenset(("apiVersion", "kind", "metadata"))
_OWNER = frozenset(("apiVersion", "blockOwnerDeletion", "controller", "kind", "name", "uid"))
_MANAGED = frozenset(("apiVersion", "fieldsType", "fieldsV1", "manager", "operation", "subresource", "time"))
_METADATA: Final[dict[str, frozenset[str] | None]] = {
    "annotations": None,
    "creationTimestamp": None,
    "deletionGracePeriodSeconds": None,
    "deletionTimestamp": None,
    "finalizers": None,
    "generateName": None,
    "generation": None,
    "labels": None,
    "managedFields": _MANAGED,
    "name": None,
    "namespace": None,
    "ownerReferences": _OWNER,
    "resourceVersion": None,
    "selfLink": None,
    "uid": None,
}
_INTEGER_FORMATS = frozenset(("int32", "int64"))
_NUMBER_FORMATS = frozenset(("float", "double"))


class PatternError(ValueError):
    """A `pattern` that RE2 does not accept."""


class Pattern(Protocol):
    """A compiled regular expression."""

    def search(self, text: str) -> object | None:
        """A match anywhere in `text`, or None."""

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """All matches in `text` that do not overlap."""


@lru_cache(maxsize=1024)
def compile_pattern(text: str) -> Pattern:
    """The regular expression `text` in RE2, the dialect of the API server: linear time, no look-around.

    >>> bool(compile_pattern("^a+$").search("aaa"))
    True
    """
    import re2  # type: ignore[import-untyped]  # imported only where a definition has a pattern: it costs start-up time

    options = re2.Options()
    options.log_errors = False
    try:
        compiled: Pattern = re2.compile(text, options)
    except re2.error as error:
        [why] = error.args
        raise PatternError(why.decode() if isinstance(why, bytes) else str(why)) from None
    return compiled


class SchemaNode:
    """One schema node. Also used for the value rules under allOf, anyOf, oneOf and not."""

    __slots__ = (
        "additional",
        "all_of",
        "any_of",
        "closed",
        "default",
        "embedded",
        "enum",
        "fills",
        "format",
        "format_check",
        "has_default",
        "holds_embedded",
        "holds_keyed",
        "holds_rules",
        "items",
        "list_keys",
        "list_type",
        "max_items",
        "max_length",
        "max_properties",
        "maximum",
        "min_items",
        "min_length",
        "min_properties",
        "minimum",
        "multiple_of",
        "negation",
        "nullable",
        "one_of",
        "pattern",
        "pattern_text",
        "preserve",
        "properties",
        "required",
        "types",
        "x_maximum",
        "x_minimum",
    )

    def __init__(self, raw: dict[str, Any]) -> None:
        types = raw.get("type")
        self.types: tuple[str, ...] = (types,) if types else ()
        if raw.get("x-kubernetes-int-or-string"):
            self.types = ("integer", "string")
        self.nullable = bool(raw.get("nullable"))
        self.preserve = bool(raw.get("x-kubernetes-preserve-unknown-fields"))
        self.embedded = bool(raw.get("x-kubernetes-embedded-resource"))
        self.list_type: str = raw.get("x-kubernetes-list-type", "")
        self.list_keys: tuple[str, ...] = tuple(raw.get("x-kubernetes-list-map-keys", ()))
        self.has_default = raw.get("default") is not None
        self.default: Any = raw.get("default")
        self._load_values(raw)
        self._load_children(raw)

    def _load_values(self, raw: dict[str, Any]) -> None:
        self.format, self.format_check = _format(raw.get("format", ""), self.types)
        self.enum: list[Any] = raw.get("enum") or []
        self.multiple_of: float | None = raw.get("multipleOf")
        self.minimum: float | None = raw.get("minimum")
        self.maximum: float | None = raw.get("maximum")
        self.x_minimum = bool(raw.get("exclusiveMinimum"))
        self.x_maximum = bool(raw.get("exclusiveMaximum"))
        self.min_length: int | None = raw.get("minLength")
        self.max_length: int | None = raw.get("maxLength")
        self.min_items: int | None = raw.get("minItems")
        self.max_items: int | None = raw.get("maxItems")
        self.min_properties: int | None = raw.get("minProperties")
        self.max_properties: int | None = raw.get("maxProperties")
        self.required: tuple[str, ...] = tuple(raw.get("required", ()))
        self.pattern_text: str = raw.get("pattern", "")
        self.pattern: Pattern | PatternError | None = None
        if self.pattern_text:
            try:
                self.pattern = compile_pattern(self.pattern_text)
            except PatternError as error:
                self.pattern = error

    def _load_children(self, raw: dict[str, Any]) -> None:
        self.properties = {name: SchemaNode(child) for name, child in (raw.get("properties") or {}).items()}
        more = raw.get("additionalProperties")
        self.additional: SchemaNode | None = None  # of every key that is not a property; None when those are unknown
        if isinstance(more, dict):
            self.additional = SchemaNode(more)
        elif more is not None:
            self.additional = SchemaNode({"nullable": True})
        self.closed = more is False  # validation refuses what pruning would keep
        self.items = SchemaNode(raw["items"]) if isinstance(raw.get("items"), dict) else None
        self.all_of = tuple(SchemaNode(child) for child in raw.get("allOf") or ())
        self.any_of = tuple(SchemaNode(child) for child in raw.get("anyOf") or ())
        self.one_of = tuple(SchemaNode(child) for child in raw.get("oneOf") or ())
        self.negation = SchemaNode(raw["not"]) if raw.get("not") is not None else None
        below = [node for node in (*self.properties.values(), self.additional, self.items) if node is not None]
        # What lies somewhere below, so that walks can leave out the parts that have nothing for them.
        self.fills: bool = any(node.has_default or node.fills for node in below)
        self.holds_embedded: bool = self.embedded or any(node.holds_embedded for node in below)
        self.holds_keyed: bool = self.list_type in {"set", "map"} or any(node.holds_keyed for node in below)
        ruled = bool(raw.get("x-kubernetes-validations"))
        self.holds_rules: bool = ruled or any(node.holds_rules for node in below)

    def prune(self, value: Any) -> Any:
        """`value` without the fields this node does not know."""
        return _prune(value, self, "", None)

    def child(self, key: str) -> SchemaNode | None:
        """The schema of the value under `key` of a map."""
        return self.properties.get(key) or self.additional

    def refuses_null(self) -> bool:
        """Whether a null here means the same as nothing at all."""
        return not self.nullable and not self.has_default


def _format(name: str, types: tuple[str, ...]) -> tuple[str, Any]:
    """The format as far as the server knows it for these types, and its check for texts."""
    kind = types[0] if len(types) == 1 else "" if not types else "several"
    if kind in {"", "string"} and (check := format_check(name)) is not None:
        return name, check
    if (kind == "integer" and name in _INTEGER_FORMATS) or (kind == "number" and name in _NUMBER_FORMATS):
        return name, None
    return "", None


_NOTHING: Final = SchemaNode({})


class Structural:
    """The compiled schema of one version of a custom resource."""

    __slots__ = ("preserve", "root", "rules", "status")

    def __init__(self, root: SchemaNode, *, preserve: bool = False, rules: RuleNode | None = None) -> None:
        self.root = root
        self.rules = rules
        self.preserve = preserve  # the definition keeps unknown fields everywhere
        self.status = root.properties.get("status")

    @classmethod
    def compile(cls, openapi: dict[str, Any], *, preserve: bool = False) -> Structural:
        """From an `openAPIV3Schema`."""
        root, rules = SchemaNode(openapi), None
        if root.holds_rules:
            from steersman.apiserver.crd.validation_rules import compile_rules  # CEL is loaded only where it is used

            rules, _ = compile_rules(openapi)
        return cls(root, preserve=preserve, rules=rules)

    def unknown_fields(self, obj: dict[str, Any]) -> list[str]:
        """Paths of the fields that `admit` drops, as strict field validation names them."""
        unknown: list[str] = []
        _known_metadata(obj.get("metadata"), "metadata", unknown)
        body: list[str] = []
        if not self.preserve:
            _prune(obj, self.root, "", body, at_root=True)
        unknown += sorted(body)
        embedded: list[str] = []
        _embedded_metadata(obj, self.root, "", embedded)
        return unknown + sorted(embedded)

    def admit(self, obj: dict[str, Any]) -> dict[str, Any]:
        """The object as it would be stored if it is valid: unknown fields and stray nulls gone, defaults filled in."""
        return self.default(self.prune(obj))

    def prune(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Without unknown fields and without nulls that mean nothing."""
        if not self.preserve:
            obj = _prune(obj, self.root, "", None, at_root=True)
        out: dict[str, Any] = _embedded_metadata(obj, self.root, "", None)
        if isinstance(metadata := out.get("metadata"), dict):
            known = _known_metadata(metadata, "metadata", None)
            if known is not metadata:
                out = {**out, "metadata": known}
        return out

    def default(self, obj: dict[str, Any]) -> dict[str, Any]:
        """With the defaults of the schema where a value is missing."""
        out: dict[str, Any] = _default(obj, self.root)
        return out


def _prune(
    value: Any,
    node: SchemaNode | None,
    path: str,
    unknown: list[str] | None,
    *,
    at_root: bool = False,
    keep: bool = False,
) -> Any:
    """`value` without unknown fields and without nulls that mean nothing.

    The paths of unknown fields go to `unknown`. `keep`: the value lies in a list that keeps them.
    """
    if isinstance(value, dict):
        return _prune_map(value, node or _NOTHING, path, unknown, at_root=at_root, keep=keep)
    if isinstance(value, list):
        keep = keep or (node is not None and node.preserve)
        items = node.items if node else None
        if keep and items is None:
            return value
        if unknown is None:
            out = [_prune(item, items, "", None, keep=keep) for item in value]
        else:
            out = [_prune(item, items, f"{path}[{at}]", unknown, keep=keep) for at, item in enumerate(value)]
        return out if any(new is not old for new, old in zip(out, value, strict=True)) else value
    return value


def _prune_map(
    value: dict[str, Any], node: SchemaNode, path: str, unknown: list[str] | None, *, at_root: bool, keep: bool
) -> dict[str, Any]:
    out: dict[str, Any] | None = None
    keeps_meta = node.embedded or at_root
    keeps_all = node.preserve or keep
    for key, item in value.items():
        if keeps_meta and key in META_FIELDS:
            continue
        child = node.properties.get(key) or node.additional
        if child is None and keeps_all:
            continue
        here = (f"{path}.{key}" if path else key) if unknown is not None else ""
        if child is None:
            if unknown is not None and (path or key not in META_FIELDS):
                unknown.append(here)
            out = dict(value) if out is None else out
            del out[key]
            continue
        if item is None:
            if child.refuses_null():
                out = dict(value) if out is None else out
                del out[key]
            continue
        pruned = _prune(item, child, here, unknown) if isinstance(item, dict | list) else item
        if pruned is not item:
            out = dict(value) if out is None else out
            out[key] = pruned
    return value if out is None else out


def _default(value: Any, node: SchemaNode | None) -> Any:
    if node is None or not node.fills:
        return value
    if isinstance(value, dict):
        return _default_map(value, node)
    if isinstance(value, list) and node.items is not None:
        items = node.items
        filled = [items.default if item is None and not items.nullable else item for item in value]
        out = [_default(item, items) for item in filled]
        return out if any(new is not old for new, old in zip(out, value, strict=True)) else value
    return value


def _default_map(value: dict[str, Any], node: SchemaNode) -> dict[str, Any]:
    out: dict[str, Any] | None = None
    for key, child in node.properties.items():
        if child.has_default and (key not in value or (value[key] is None and not child.nullable)):
            out = dict(value) if out is None else out
            out[key] = child.default
    for key, item in tuple((value if out is None else out).items()):
        below = node.properties.get(key)
        filled = item
        if below is None and node.additional is not None:
            below = node.additional
            if item is None and not below.nullable:
                filled = below.default
        filled = _default(filled, below)
        if filled is not item:
            out = dict(value) if out is None else out
            out[key] = filled
    return value if out is None else out


def _known_metadata(value: Any, path: str, unknown: list[str] | None) -> Any:
    """Object metadata without the fields no object has."""
    if not isinstance(value, dict):
        return value
    out: dict[str, Any] | None = None
    for key, item in value.items():
        if key not in _METADATA:
            if unknown is not None:
                unknown.append(f"{path}.{key}")
            out = dict(value) if out is None else out
            del out[key]
            continue
        fields = _METADATA[key]
        if fields is None or not isinstance(item, list):
            continue
        kept = [_only(entry, fields, f"{path}.{key}[{at}]", unknown) for at, entry in enumerate(item)]
        if any(new is not old for new, old in zip(kept, item, strict=True)):
            out = dict(value) if out is None else out
            out[key] = kept
    return value if out is None else out


def _only(entry: Any, fields: frozenset[str], path: str, unknown: list[str] | None) -> Any:
    if not isinstance(entry, dict) or entry.keys() <= fields:
        return entry
    if unknown is not None:
        unknown.extend(f"{path}.{key}" for key in entry if key not in fields)
    return {key: item for key, item in entry.items() if key in fields}


def _embedded_metadata(value: Any, node: SchemaNode | None, path: str, unknown: list[str] | None) -> Any:
    """With the metadata of embedded resources reduced to the fields metadata has."""
    if node is None or not node.holds_embedded or not isinstance(value, dict | list):
        return value
    if isinstance(value, list):
        out = [_embedded_metadata(item, node.items, f"{path}[{at}]", unknown) for at, item in enumerate(value)]
        return out if any(new is not old for new, old in zip(out, value, strict=True)) else value
    changed: dict[str, Any] | None = None
    for key, item in value.items():
        here = f"{path}.{key}" if path else key
        new = _known_metadata(item, here, unknown) if node.embedded and key == "metadata" else item
        new = _embedded_metadata(new, node.child(key), here, unknown)
        if new is not item:
            changed = dict(value) if changed is None else changed
            changed[key] = new
    return value if changed is None else changed
