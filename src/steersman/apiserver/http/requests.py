"""An HTTP request, understood: which resource, which object, which verb, with which options.

Parsing happens once, here; the rest of the server sees typed values. Paths follow the real server's grammar:

    /api/v1 | /apis/GROUP/VERSION  [/watch]  [/namespaces/NS]  /RESOURCE [/NAME [/SUBRESOURCE]]

The `Accept` header is negotiated here too. Nothing here reads or writes objects.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

import msgspec

from steersman.apiserver import status_errors
from steersman.apiserver.resources.kinds import ResourceInfo
from steersman.apiserver.validation.field_errors import forbidden, invalid, not_supported, required, too_long
from steersman.kube.api.gvk import Kind
from steersman.kube.api.types.authorization import UserInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.apiserver.resources.registry import Registry
    from steersman.kube.api.errors import Cause

_INTEGER = re.compile(r"[+-]?[0-9]{1,32}")  # int() reads more: spaces, underscores, digits of every script


class Route(msgspec.Struct, frozen=True):
    """What a path points at."""

    info: ResourceInfo
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False  # the old /watch/ form


class Query:
    """Query parameters, read as the real server reads them."""

    __slots__ = ("_values",)

    def __init__(self, text: str) -> None:
        self._values: dict[str, list[str]] = {}
        if text:
            for key, value in parse_qsl(text, keep_blank_values=True):
                self._values.setdefault(key, []).append(value)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str:
        """The first value, or nothing."""
        values = self._values.get(name)
        return values[0] if values else ""

    def all(self, name: str) -> list[str]:
        """Every value."""
        return self._values.get(name, [])

    def flag(self, name: str) -> bool:
        """True unless absent, `false` or `0`, as the real server sees it."""
        values = self._values.get(name)
        return values is not None and values[0].lower() not in {"false", "0"}

    def number(self, name: str) -> int | None:
        """A 64-bit integer in decimal digits; None when absent."""
        values = self._values.get(name)
        if values is None:
            return None
        text = values[0]
        if _INTEGER.fullmatch(text) is None or not -(2**63) <= (number := int(text)) < 2**63:
            raise status_errors.bad_request(f'{name}: "{text}" is not a number')
        return number


class Request:
    """One request for a resource."""

    __slots__ = (
        "body",
        "content_type",
        "headers",
        "media",
        "method",
        "query",
        "route",
        "user",
        "user_agent",
        "warnings",
    )

    def __init__(
        self,
        method: str,
        route: Route,
        query: Query,
        *,
        headers: Mapping[str, str],
        body: bytes,
        media: Media,
        user: UserInfo,
        warnings: list[str],
    ) -> None:
        self.method = method
        self.route = route
        self.query = query
        self.headers = headers
        self.body = body
        self.media = media
        self.user = user
        self.content_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        self.user_agent = headers.get("User-Agent", "")
        self.warnings = warnings  # what is added here goes with the answer

    @property
    def verb(self) -> str:
        """The API verb, as audit logs and RBAC name it."""
        return verb_of(self.method, self.route, self.query)

    @property
    def manager(self) -> str:
        """The field manager when none is named: the first part of the user agent."""
        return self.query.text("fieldManager") or _printable(self.user_agent.partition("/")[0])


_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_OBJECT_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def verb_of(method: str, route: Route, query: Query) -> str:
    """The API verb of a request; empty when the method means nothing here."""
    if route.watch:
        return "watch" if method == "GET" else ""
    if route.name:
        return _OBJECT_VERBS.get(method, "")
    if method == "GET" and query.flag("watch"):
        return "watch"
    return _COLLECTION_VERBS.get(method, "")


def _printable(agent: str) -> str:
    return "".join(char for char in agent if char.isprintable())[:128]


def route(registry: Registry, path: str) -> Route:
    """What `path` points at; raises the real server's 404 otherwise."""
    parts = [unquote(part) if "%" in part else part for part in path.split("/")[1:]]
    if parts and parts[-1] == "":
        parts.pop()
    match parts:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            raise status_errors.page_not_found()
    watch = bool(rest) and rest[0] == "watch"
    if watch:
        rest = rest[1:]
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces" and not (len(rest) == 3 and rest[2] in {"status", "finalize"}):
        namespace, rest = rest[1], rest[2:]
    if not 1 <= len(rest) <= 3:
        raise _unknown(registry, group)
    info = registry.lookup(group, version, rest[0])
    if info is None or (namespace and not info.kind.namespaced):
        raise _unknown(registry, group)
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if name and info.kind.namespaced and not namespace:
        raise status_errors.resource_not_found()
    if subresource and subresource not in info.subresources:
        raise status_errors.resource_not_found()
    return Route(info, namespace, name, subresource, watch)


def _unknown(registry: Registry, group: str) -> status_errors.StatusError:
    served = any(info.kind.group == group for info in registry.resources())
    return status_errors.resource_not_found() if served else status_errors.page_not_found()


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of list, watch, get and deletecollection."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    token: str = ""  # continue
    resource_version: str = ""
    match: str = ""  # resourceVersionMatch
    timeout: int | None = None  # timeoutSeconds
    bookmarks: bool = False
    send_initial_events: bool | None = None

    @classmethod
    def parse(cls, query: Query, *, watch: bool) -> ListOptions:
        """The options in a query, checked as the real server checks them."""
        options = cls(
            label_selector=query.text("labelSelector"),
            field_selector=query.text("fieldSelector"),
            limit=max(query.number("limit") or 0, 0),
            token=query.text("continue"),
            resource_version=query.text("resourceVersion"),
            match=query.text("resourceVersionMatch"),
            timeout=query.number("timeoutSeconds"),
            bookmarks=query.flag("allowWatchBookmarks"),
            send_initial_events=query.flag("sendInitialEvents") if "sendInitialEvents" in query else None,
        )
        if causes := options._watch_causes() if watch else options._list_causes():
            raise options_invalid("ListOptions", causes)
        return options

    def _list_causes(self) -> list[Cause]:
        causes = []
        if self.match:
            if not self.resource_version:
                causes.append(
                    forbidden(
                        "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
                    )
                )
            if self.token:
                causes.append(
                    forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
                )
            if self.match not in {"Exact", "NotOlderThan"}:
                causes.append(not_supported("resourceVersionMatch", self.match, ("Exact", "NotOlderThan", "")))
            if self.match == "Exact" and self.resource_version == "0":
                causes.append(
                    forbidden(
                        "resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                    )
                )
        if self.send_initial_events is not None:
            causes.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
        return causes

    def _watch_causes(self) -> list[Cause]:
        causes = []
        if self.send_initial_events is not None and self.match != "NotOlderThan":
            causes.append(
                forbidden(
                    "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
                )
            )
        if self.match:
            if self.send_initial_events is None:
                causes.append(
                    forbidden(
                        "resourceVersionMatch",
                        "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                    )
                )
            if self.match != "NotOlderThan":
                causes.append(not_supported("resourceVersionMatch", self.match, ("NotOlderThan",)))
            if self.token:
                causes.append(
                    forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
                )
        return causes


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of create, update and patch."""

    dry_run: bool = False
    user: UserInfo | None = None  # whose request it is; None: the server's own
    manager: str = ""
    validation: str = "Warn"  # fieldValidation: Strict, Warn or Ignore
    force: bool = False

    @classmethod
    def parse(cls, request: Request, kind: str, *, apply: bool = False) -> WriteOptions:
        """The options of a write; `kind` is the name of the options object, `apply` makes a manager required."""
        query = request.query
        causes = []
        if "force" in query and kind == "PatchOptions" and not apply:
            causes.append(forbidden("force", "may not be specified for non-apply patch"))
        if apply and not query.text("fieldManager"):
            causes.append(required("fieldManager", "is required for apply patch"))
        causes += manager_causes(query.text("fieldManager"))
        dry_run = query.all("dryRun")
        causes += dry_run_causes(dry_run)
        validation = query.text("fieldValidation")
        if validation not in {"", "Ignore", "Strict", "Warn"}:
            causes.append(not_supported("fieldValidation", validation, ("", "Ignore", "Strict", "Warn")))
        if causes:
            raise options_invalid(kind, causes)
        return cls(
            dry_run=bool(dry_run),
            user=request.user,
            manager=request.manager,
            validation=validation or "Warn",
            force=query.flag("force"),
        )


def dry_run_causes(values: list[str]) -> list[Cause]:
    """What is wrong with `dryRun`."""
    return [] if all(value == "All" for value in values) else [not_supported("dryRun", values, ("All",))]


def manager_causes(manager: str) -> list[Cause]:
    """What is wrong with `fieldManager`."""
    causes = [too_long("fieldManager", 128)] if len(manager.encode()) > 128 else []
    return causes + [
        invalid("fieldManager", manager, f"invalid character U+{ord(char):04X} (at position {position})")
        for position, char in enumerate(manager)
        if not char.isprintable()
    ]


def options_invalid(kind: str, causes: list[Cause]) -> status_errors.StatusError:
    """The options object `kind` is refused."""
    return status_errors.invalid(Kind(group="meta.k8s.io", version="v1", kind=kind, plural=""), "", causes)


_TYPES = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
_VIEWS = {"Table", "PartialObjectMetadata", "PartialObjectMetadataList"}
_JSON = {"application/json", "application/*", "*/*"}


class Media(msgspec.Struct, frozen=True):
    """The negotiated answer: the encoding, and the transformation asked for by `as=` (empty: none)."""

    yaml: bool = False
    view: str = ""

    @property
    def content_type(self) -> str:
        """For the response header."""
        return "application/yaml" if self.yaml else "application/json"


DEFAULT = Media()


@lru_cache(maxsize=256)
def negotiate(accept: str, *, custom: bool = False) -> Media:
    """The first acceptable type in order of preference. Custom resources refuse in other words."""
    if not accept:
        return DEFAULT
    known = False
    for kind, params in _clauses(accept):
        if kind not in _JSON and kind != "application/yaml":
            continue
        known = True
        view = params.get("as", "")
        if view and (view not in _VIEWS or (params.get("g"), params.get("v")) != ("meta.k8s.io", "v1")):
            continue
        return Media(yaml=kind == "application/yaml", view=view)
    if known or custom:
        raise status_errors.not_acceptable(f"only the following media types are accepted: {_TYPES}")
    raise status_errors.not_acceptable(f"406: Not Acceptable\n\nAvailable representations: {_TYPES}", listed=True)


def _clauses(accept: str) -> list[tuple[str, dict[str, str]]]:
    """Media types with their parameters, most preferred first."""
    found: list[tuple[float, str, dict[str, str]]] = []
    for clause in accept.split(","):
        kind, *parts = (part.strip() for part in clause.split(";"))
        params = {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in parts)}
        try:
            weight = float(params.get("q", "1"))
        except ValueError:
            weight = 1.0
        found.append((weight, kind.lower(), params))
    return [(kind, params) for _, kind, params in sorted(found, key=lambda entry: -entry[0])]
