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

from steersman.apiserver.schema import OBJECT_META, REF, builtin_document

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.apiserver.kinds import ResourceInfo
    from steersman.apiserver.registry import Registry

__all__ = ["Document", "Documents"]

JSON = dict[str, Any]

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
SCALE: Final = "io.k8s.api.autoscaling.v1.Scale"
MEDIA: Final = ("application/json", "application/yaml")
PATCHES: Final = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
UNAUTHORIZED: Final[JSON] = {"401": {"description": "Unauthorized"}}
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
    """Names the content; that it is the hash of the compressed form nobody needs to know."""
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
    many = paths["/apis/apps/v1/namespaces/{namespace}/deployments"]
    one = paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]
    listed = many["get"]["parameters"]
    found: dict[str, Any] = {
        "list": listed,
        "create": many["post"]["parameters"],
        "replace": one["put"]["parameters"],
        "patch": one["patch"]["parameters"],
        "delete": one["delete"]["parameters"],
        "read": [parameter for parameter in listed if parameter["name"] == "resourceVersion"],
    }
    return found | {parameter["name"]: parameter for parameter in one["parameters"]}


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


def _resource_paths(info: ResourceInfo) -> JSON:
    scoped = info.kind.namespaced
    root = f"/apis/{info.kind.group}/{info.kind.version}"
    many = f"{root}/namespaces/{{namespace}}/{info.kind.plural}" if scoped else f"{root}/{info.kind.plural}"
    one = f"{many}/{{name}}"
    build = _Operations(info)
    paths: JSON = {
        many: {
            "get": build.operation("list", response="list"),
            "post": build.operation("create", body=True, codes=("OK", "Created", "Accepted")),
            "delete": build.operation("deletecollection", response="status"),
            "parameters": build.path_parameters(name=False),
        },
        one: {
            "get": build.operation("read"),
            "put": build.operation("replace", body=True, codes=("OK", "Created")),
            "delete": build.operation("delete", response="status", codes=("OK", "Accepted")),
            "patch": build.operation("patch"),
            "parameters": build.path_parameters(name=True),
        },
    }
    for sub in info.subresources:
        paths[f"{one}/{sub}"] = {
            "get": build.operation("read", sub=sub),
            "put": build.operation("replace", sub=sub, body=True, codes=("OK", "Created")),
            "patch": build.operation("patch", sub=sub),
            "parameters": build.path_parameters(name=True),
        }
    if scoped:
        everywhere = build.operation("list", response="list", everywhere=True)
        shared = [*everywhere.pop("parameters"), _parameters()["pretty"]]
        shared.sort(key=lambda parameter: str(parameter["name"]))
        paths[f"{root}/{info.kind.plural}"] = {"get": everywhere, "parameters": shared}
    return paths


_CODES = {"OK": "200", "Created": "201", "Accepted": "202"}
_ACTIONS = {"create": "post", "replace": "put", "read": "get"}


class _Operations:
    """Writes the operations of one custom resource."""

    def __init__(self, info: ResourceInfo) -> None:
        self._info = info
        kind = info.kind
        self._group = "".join(part[:1].upper() + part[1:] for part in re.split(r"[.-]", kind.group))
        self._version = kind.version[:1].upper() + kind.version[1:]
        self._tag = f"{self._group[:1].lower()}{self._group[1:]}_{kind.version}"

    def path_parameters(self, *, name: bool) -> list[JSON]:
        """The parameters all operations of a path share."""
        known = _parameters()
        named = {**known["name"], "description": f"name of the {self._info.kind.kind}"}
        space = [known["namespace"]] if self._info.kind.namespaced else []
        return [*([named] if name else []), *space, known["pretty"]]

    def operation(
        self,
        verb: str,
        *,
        sub: str = "",
        response: str = "",
        body: bool = False,
        codes: tuple[str, ...] = ("OK",),
        everywhere: bool = False,
    ) -> JSON:
        """One verb on one path."""
        kind = self._info.kind
        model = _model(self._info, kind.kind)
        if sub == "scale":
            model = SCALE
        elif response:
            model = _model(self._info, self._info.list_kind) if response == "list" else f"{META}Status"
        out: JSON = {
            "tags": [self._tag],
            "description": self._description(verb, sub),
            "operationId": self._operation_id(verb, sub, everywhere=everywhere),
            "parameters": _parameters()["list" if verb == "deletecollection" else verb],
        }
        if body:
            out["requestBody"] = {"content": _content(model, MEDIA), "required": True}
        elif verb == "patch":
            out["requestBody"] = {"content": _content(f"{META}Patch", PATCHES), "required": True}
        elif verb == "delete":
            out["requestBody"] = {"content": _content(f"{META}DeleteOptions", MEDIA)}
        answers = {_CODES[code]: {"description": code, "content": _content(model, MEDIA)} for code in codes}
        out["responses"] = answers | UNAUTHORIZED
        out["x-kubernetes-action"] = _ACTIONS.get(verb, verb)
        out["x-kubernetes-group-version-kind"] = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        return out

    def _description(self, verb: str, sub: str) -> str:
        kind = self._info.kind.kind
        of = f"{sub} of the specified" if sub else "the specified"
        words = {
            "list": f"list objects of kind {kind}",
            "create": f"create {'an' if kind[:1] in 'AEIOU' else 'a'} {kind}",
            "deletecollection": f"delete collection of {kind}",
            "read": f"read {of} {kind}",
            "replace": f"replace {of} {kind}",
            "patch": f"partially update {of} {kind}",
            "delete": f"delete {'an' if kind[:1] in 'AEIOU' else 'a'} {kind}",
        }
        return words[verb]

    def _operation_id(self, verb: str, sub: str, *, everywhere: bool) -> str:
        collection = "Collection" if verb == "deletecollection" else ""
        scope = "Namespaced" if self._info.kind.namespaced and not everywhere else ""
        end = sub[:1].upper() + sub[1:] + ("ForAllNamespaces" if everywhere else "")
        word = "delete" if collection else verb
        return f"{word}{self._group}{self._version}{collection}{scope}{self._info.kind.kind}{end}"


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
