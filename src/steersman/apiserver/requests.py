"""An HTTP request, understood: which resource, which object, which verb, with which options.

Parsing happens once, here; the rest of the server sees typed values. Paths follow the real server's grammar:

    /api/v1 | /apis/GROUP/VERSION  [/watch]  [/namespaces/NS]  /RESOURCE [/NAME [/SUBRESOURCE]]

Refusals are worded as kube-apiserver words them. Nothing here reads or writes objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

import msgspec

from steersman.apiserver import statuses
from steersman.apiserver.kinds import ResourceInfo
from steersman.kube.errors import Cause
from steersman.kube.resources import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.apiserver.negotiation import Media
    from steersman.apiserver.registry import Registry

__all__ = ["ListOptions", "Query", "Request", "Route", "WriteOptions", "options_invalid", "route"]


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
        """An integer; None when absent or empty."""
        text = self.text(name)
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            raise statuses.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


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
        user: str,
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
    if route.name:
        return "watch" if route.watch else _OBJECT_VERBS.get(method, "")
    if method == "GET" and (route.watch or query.flag("watch")):
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
            raise statuses.page_not_found()
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
        raise statuses.resource_not_found()
    if subresource and subresource not in info.subresources:
        raise statuses.resource_not_found()
    return Route(info, namespace, name, subresource, watch)


def _unknown(registry: Registry, group: str) -> statuses.StatusError:
    served = any(info.kind.group == group for info in registry.resources())
    return statuses.resource_not_found() if served else statuses.page_not_found()


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
                causes.append(_match_forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"))
            if self.token:
                causes.append(_match_forbidden("resourceVersionMatch is forbidden when continue is provided"))
            if self.match not in {"Exact", "NotOlderThan"}:
                causes.append(_not_supported("resourceVersionMatch", self.match, '"Exact", "NotOlderThan", ""'))
            if self.match == "Exact" and self.resource_version == "0":
                causes.append(_match_forbidden('resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
        if self.send_initial_events is not None:
            causes.append(_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
        return causes

    def _watch_causes(self) -> list[Cause]:
        causes = []
        if self.send_initial_events is not None and self.match != "NotOlderThan":
            causes.append(_match_forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
        if self.match:
            if self.send_initial_events is None:
                causes.append(
                    _match_forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
                )
            if self.match != "NotOlderThan":
                causes.append(_not_supported("resourceVersionMatch", self.match, '"NotOlderThan"'))
            if self.token:
                causes.append(_match_forbidden("resourceVersionMatch is forbidden when continue is provided"))
        return causes


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of create, update and patch."""

    dry_run: bool = False
    manager: str = ""
    validation: str = "Warn"  # fieldValidation: Strict, Warn or Ignore
    force: bool = False

    @classmethod
    def parse(cls, request: Request, kind: str, *, apply: bool = False) -> WriteOptions:
        """The options of a write; `kind` is the name of the options object, `apply` makes a manager required."""
        query = request.query
        causes = []
        if "force" in query and kind == "PatchOptions" and not apply:
            causes.append(_forbidden("force", "may not be specified for non-apply patch"))
        if apply and not query.text("fieldManager"):
            causes.append(Cause("FieldValueRequired", "Required value: is required for apply patch", "fieldManager"))
        causes += manager_causes(query.text("fieldManager"))
        dry_run = query.all("dryRun")
        causes += dry_run_causes(dry_run)
        validation = query.text("fieldValidation")
        if validation not in {"", "Ignore", "Strict", "Warn"}:
            causes.append(_not_supported("fieldValidation", validation, '"", "Ignore", "Strict", "Warn"'))
        if causes:
            raise options_invalid(kind, causes)
        return cls(
            dry_run=bool(dry_run),
            manager=request.manager,
            validation=validation or "Warn",
            force=query.flag("force"),
        )


def dry_run_causes(values: list[str]) -> list[Cause]:
    """What is wrong with `dryRun`."""
    if all(value == "All" for value in values):
        return []
    listed = "[" + ", ".join(f'"{value}"' for value in values) + "]"
    return [Cause("FieldValueNotSupported", f'Unsupported value: {listed}: supported values: "All"', "dryRun")]


def manager_causes(manager: str) -> list[Cause]:
    """What is wrong with `fieldManager`."""
    causes = []
    if len(manager.encode()) > 128:
        causes.append(Cause("FieldValueTooLong", "Too long: may not be more than 128 bytes", "fieldManager"))
    for position, char in enumerate(manager):
        if not char.isprintable():
            causes.append(
                Cause(
                    "FieldValueInvalid",
                    f"Invalid value: {msgspec.json.encode(manager).decode()}: invalid character U+{ord(char):04X} "
                    f"(at position {position})",
                    "fieldManager",
                )
            )
    return causes


def options_invalid(kind: str, causes: list[Cause]) -> statuses.StatusError:
    """The options object `kind` is refused."""
    return statuses.invalid(Kind(group="meta.k8s.io", version="v1", kind=kind, plural=""), "", causes)


def _forbidden(field: str, why: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {why}", field)


def _match_forbidden(why: str) -> Cause:
    return _forbidden("resourceVersionMatch", why)


def _not_supported(field: str, value: str, supported: str) -> Cause:
    return Cause("FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {supported}', field)
