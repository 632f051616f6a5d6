"""The OpenAPI v3 documents: one per group and version, and the index of them.

Those of built-in groups are served as they were recorded from the real server. Those of custom groups are generated
the way the real server does it: the schema of each definition with the metadata every object has, and a path per verb
whose query parameters tell kubectl what the server understands (`fieldValidation`, `dryRun`). The words of parameters
and shared types come from the recorded documents.

`Documents` caches by the registry's revision: a document is built when first asked for after a change.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from steersman.apiserver.resources.schema import OBJECT_META, REF, builtin_document

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.apiserver.resources.registry import Registry

JSON = dict[str, Any]

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
SCALE: Final = "io.k8s.api.autoscaling.v1.Scale"
MEDIA: Final = ("application/json", "application/yaml")
PATCHES: Final = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_encode = msgspec.json.Encoder().encode


class Document(NamedTuple):
    """One document as it is sent. The hash names its content, in the URL and as entity tag."""

    body: bytes
    hash: str


class Documents:
    """The documents of what a registry serves."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._revision = -1
        self._custom: dict[str, Document] = {}

    def index(self) -> JSON:
        """`/openapi/v3`: where the document of each group and version is."""
        return {
            "paths": {
                path: {
                    "serverRelativeURL": f"/openapi/v3/{path}?hash={_recorded_hash(path) or self._generated(path).hash}"
                }
                for path in sorted(self._paths())
            }
        }

    def document(self, path: str) -> Document | None:
        """`/openapi/v3/PATH`, such as `api/v1` or `apis/apps/v1`; None when nothing is served there."""
        if path not in self._paths():
            return None
        if (tag := _recorded_hash(path)) is not None:
            return Document(gzip.decompress(_recorded(path)), tag)
        return self._generated(path)

    def _generated(self, path: str) -> Document:
        if self._revision != self._registry.revision:
            self._custom.clear()
            self._revision = self._registry.revision
        if path not in self._custom:
            infos = [info for info in self._registry.resources() if _path(info) == path]
            body = _encode(custom_document(infos))
            self._custom[path] = Document(body, hashlib.sha512(body).hexdigest().upper())
        return self._custom[path]

    def _paths(self) -> set[str]:
        return {_path(info) for info in self._registry.resources()}


def _path(info: ResourceInfo) -> str:
    return info.kind.root.removeprefix("/")


def _recorded(path: str) -> bytes:
    """The stored document of a built-in group and version, compressed; empty when there is none."""
    file = files("steersman.apiserver") / "data" / f"{path.replace('/', '_')}.json.gz"
    return file.read_bytes() if file.is_file() else b""


@cache
def _recorded_hash(path: str) -> str | None:
    """Identifies the content: the hash of its compressed form."""
    stored = _recorded(path)
    return hashlib.sha512(stored).hexdigest().upper() if stored else None


def custom_document(infos: Iterable[ResourceInfo]) -> JSON:
    """The document of a custom group and version."""
    paths: JSON = {}
    schemas: JSON = {}
    for info in infos:
        paths.update(_resource_paths(info))
        schemas.update(_resource_schemas(info))
    shared = _shared_schemas(paths, schemas)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": dict(sorted({**shared, **schemas}.items()))},
    }


@cache
def _types() -> JSON:
    """The types that documents of custom groups share; the options of a delete are known to every group."""
    schemas: JSON = (builtin_document("apps", "v1") or {})["components"]["schemas"]
    core: JSON = (builtin_document("", "v1") or {})["components"]["schemas"]
    options = f"{META}DeleteOptions"
    return {**schemas, options: core[options]}


@cache
def _parameters() -> dict[str, JSON]:
    """Query parameters by the name of the operation that takes them, and path parameters by their own."""
    paths = (builtin_document("apps", "v1") or {})["paths"]
    collection = paths["/apis/apps/v1/namespaces/{namespace}/deployments"]
    single = paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]
    listed = collection["get"]["parameters"]
    found: dict[str, Any] = {
        "list": listed,
        "create": collection["post"]["parameters"],
        "replace": single["put"]["parameters"],
        "patch": single["patch"]["parameters"],
        "delete": single["delete"]["parameters"],
        "read": [parameter for parameter in listed if parameter["name"] == "resourceVersion"],
    }
    return found | {parameter["name"]: parameter for parameter in single["parameters"]}


def _model(info: ResourceInfo, kind: str) -> str:
    return ".".join([*reversed(info.kind.group.split(".")), info.kind.version, kind])


def _resource_schemas(info: ResourceInfo) -> JSON:
    """The schema of a custom resource and of its list."""
    assert info.custom is not None
    schema: JSON = {"type": "object"}
    if info.custom.openapi:
        schema = _published(info.custom.openapi)
        own = {"apiVersion": _type_meta("apiVersion"), "kind": _type_meta("kind"), "metadata": _metadata()}
        schema["properties"] = dict(sorted({**schema.get("properties", {}), **own}.items()))
    if info.custom.preserve_unknown:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    schema["x-kubernetes-group-version-kind"] = [_type(info, info.kind.kind)]
    name = _model(info, info.kind.kind)
    listed: JSON = {
        "description": f"{info.list_kind} is a list of {info.kind.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": _type_meta("apiVersion"),
            "items": {
                "description": f"List of {info.kind.plural}. More info: {_CONVENTIONS}",
                "type": "array",
                "items": {"$ref": REF + name},
            },
            "kind": _type_meta("kind"),
            "metadata": {
                "description": f"Standard list metadata. More info: {_CONVENTIONS}#types-kinds",
                "allOf": [{"$ref": f"{REF}{META}ListMeta"}],
            },
        },
        "x-kubernetes-group-version-kind": [_type(info, info.list_kind)],
    }
    if info.selectable:
        selectable = [{"fieldPath": field} for field in info.selectable]
        schema["x-kubernetes-selectable-fields"] = listed["x-kubernetes-selectable-fields"] = selectable
    return {name: schema, _model(info, info.list_kind): listed}


def _type(info: ResourceInfo, kind: str) -> JSON:
    return {"group": info.kind.group, "kind": kind, "version": info.kind.version}


def _type_meta(field: str) -> JSON:
    described: JSON = _types()[SCALE]["properties"][field]
    return described


def _metadata() -> JSON:
    return {
        "description": f"Standard object's metadata. More info: {_CONVENTIONS}#metadata",
        "allOf": [{"$ref": REF + OBJECT_META}],
    }


def _published(node: JSON) -> JSON:
    """A schema node as it is shown: what the extensions imply is spelled out."""
    out = dict(node)
    if properties := node.get("properties"):
        out["properties"] = {name: _published(child) for name, child in properties.items()}
    for below in ("items", "additionalProperties"):
        if isinstance(child := node.get(below), dict):
            out[below] = _published(child)
    if node.get("x-kubernetes-int-or-string") and not node.get("anyOf") and not node.get("allOf"):
        out["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if node.get("x-kubernetes-embedded-resource"):
        defined = "defines the versioned schema of this representation of an object"
        version = {"description": f"apiVersion {defined}. More info: {_CONVENTIONS}#resources", "type": "string"}
        valued = "is a string value representing the type of this object. In CamelCase"
        kind = {"description": f"kind {valued}. More info: {_CONVENTIONS}#types-kinds", "type": "string"}
        own = {"apiVersion": version, "kind": kind, "metadata": _metadata()}
        out["properties"] = {**out.get("properties", {}), **own}
        required = node.get("required", [])
        out["required"] = [*required, *(name for name in ("kind", "apiVersion") if name not in required)]
    return out


_CODES = {"post": ("200", "201", "202"), "put": ("200", "201"), "delete": ("200", "202")}
_METHODS = {"list": "get", "read": "get", "create": "post", "replace": "put", "deletecollection": "delete"}


def _resource_paths(info: ResourceInfo) -> JSON:
    """The paths of a custom resource, each with its operations."""
    kind = info.kind
    root = f"/apis/{kind.group}/{kind.version}"
    collection = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    single = f"{collection}/{{name}}"
    paths = {
        collection: _path_item(info, "list", "create", "deletecollection"),
        single: _path_item(info, "read", "replace", "delete", "patch", named=True),
    }
    for subresource in info.subresources:
        paths[f"{single}/{subresource}"] = _path_item(
            info, "read", "replace", "patch", named=True, subresource=subresource
        )
    if kind.namespaced:
        paths[f"{root}/{kind.plural}"] = _path_item(info, "list", everywhere=True)
    return paths


def _path_item(
    info: ResourceInfo, *verbs: str, named: bool = False, subresource: str = "", everywhere: bool = False
) -> JSON:
    known = _parameters()
    operations = {
        _METHODS.get(verb, verb): _operation(info, verb, subresource=subresource, everywhere=everywhere)
        for verb in verbs
    }
    shared = [known["name"]] if named else []
    shared += [known["namespace"]] if info.kind.namespaced and not everywhere else []
    return {**operations, "parameters": [*shared, known["pretty"]]}


def _operation(info: ResourceInfo, verb: str, *, subresource: str, everywhere: bool) -> JSON:
    """One verb on one path: what kubectl looks for are its parameters and the kind it is about."""
    kind = info.kind
    method = _METHODS.get(verb, verb)
    model = SCALE if subresource == "scale" else _model(info, kind.kind)
    answer = {"list": _model(info, info.list_kind), "delete": f"{META}Status", "deletecollection": f"{META}Status"}
    content = _content(answer.get(verb, model), MEDIA)
    operation: JSON = {
        "description": f"{verb} {subresource} of {kind.kind}" if subresource else f"{verb} {kind.kind}",
        "operationId": _operation_id(info, verb, subresource, everywhere=everywhere),
        "parameters": _parameters()["list" if verb == "deletecollection" else verb],
        "responses": {code: {"description": "OK", "content": content} for code in _CODES.get(method, ("200",))},
        "x-kubernetes-action": verb if verb in {"list", "deletecollection"} else method,
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    }
    body = {"create": (model, MEDIA), "replace": (model, MEDIA), "patch": (f"{META}Patch", PATCHES)}
    if verb in body:
        operation["requestBody"] = {"content": _content(*body[verb]), "required": True}
    elif verb == "delete":
        operation["requestBody"] = {"content": _content(f"{META}DeleteOptions", MEDIA)}
    return operation


def _operation_id(info: ResourceInfo, verb: str, subresource: str, *, everywhere: bool) -> str:
    """Such as `patchExampleOrgV1NamespacedWidgetStatus`."""
    words = re.split(r"[.-]", f"{info.kind.group}.{info.kind.version}")
    if verb == "deletecollection":
        verb, words = "delete", [*words, "collection"]
    if info.kind.namespaced and not everywhere:
        words.append("namespaced")
    words += [info.kind.kind, subresource, "forAllNamespaces" if everywhere else ""]
    return verb + "".join(word[:1].upper() + word[1:] for word in words)


def _content(model: str, media: Iterable[str]) -> JSON:
    return {name: {"schema": {"$ref": REF + model}} for name in media}


def _shared_schemas(*users: JSON) -> JSON:
    """The shared types that `users` refer to, and those these refer to."""
    found: JSON = {}
    todo = [ref for user in users for ref in _references(user)]
    while todo:
        name = todo.pop()
        if name not in found and name in _types():
            found[name] = _types()[name]
            todo.extend(_references(found[name]))
    return found


def _references(value: Any) -> Iterable[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "$ref" and isinstance(item, str):
                yield item.removeprefix(REF)
            else:
                yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)
