"""What an API server serves: its version, its kinds and their verbs, its schemas.

Aggregated discovery (two requests) where the server has it, the older one (a request per API version) elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from steersman.kube.api.errors import BadResponse, NotFound
from steersman.kube.api.gvk import Kind

if TYPE_CHECKING:
    from steersman.kube.transport.transport import Response, Transport

__all__ = ["APIResource", "DiscoveryClient", "ServerVersion"]

T = TypeVar("T")

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    """What the server says about itself."""

    git_version: str
    major: str = ""
    minor: str = ""
    platform: str = ""

    def __str__(self) -> str:
        return self.git_version


class APIResource(msgspec.Struct, frozen=True, kw_only=True):
    """A kind that the server serves, and what can be done with it."""

    kind: Kind
    verbs: frozenset[str]
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    preferred: bool = True  # the version the server suggests for this group


class DiscoveryClient:
    """Asks one server. Kinds that were looked up by name are remembered, for a served kind does not change its path."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._kinds: dict[tuple[str, str], Kind] = {}

    async def version(self) -> ServerVersion:
        """The server's version."""
        return _decode(await self._transport.request("GET", "/version"), ServerVersion)

    async def served(self) -> list[APIResource]:
        """Every kind in every version, in the server's order."""
        found: list[APIResource] = []
        for root in ("/api", "/apis"):
            response = await self._transport.request("GET", root, headers={"Accept": f"{_AGGREGATED},application/json"})
            if "APIGroupDiscoveryList" in response.headers.get("Content-Type", ""):
                for group in _decode(response, _GroupList).items:
                    found += _aggregated(group)
            else:
                found += await self._by_version(root, response)
        return found

    async def resolve_kind(self, api_version: str, kind: str) -> Kind:
        """The `Kind` that objects with this apiVersion and kind are of; NotFound when the server has no such kind."""
        found = self._kinds.get((api_version, kind))
        if found is None:
            for served in await self._version_kinds(api_version, preferred=True):
                self._kinds[api_version, served.kind.kind] = served.kind
            found = self._kinds.get((api_version, kind))
        if found is None:
            raise NotFound(
                f"the server has no kind {kind} in {api_version}: is its CustomResourceDefinition installed?"
            )
        return found

    async def openapi(self, group_version: str | None = None) -> dict[str, Any]:
        """The OpenAPI v3 document of an API version such as `apps/v1`; without one, the index of them."""
        if group_version is None:
            return _decode(await self._transport.request("GET", "/openapi/v3"), dict[str, Any])
        root = f"/openapi/v3/{'apis' if '/' in group_version else 'api'}/{group_version}"
        return _decode(await self._transport.request("GET", root), dict[str, Any])

    async def _by_version(self, root: str, response: Response) -> list[APIResource]:
        found: list[APIResource] = []
        if root == "/api":
            for name in _decode(response, _Versions).versions:
                found += await self._version_kinds(name, preferred=True)
            return found
        for group in _decode(response, _LegacyGroupList).groups:
            for version in group.versions:
                preferred = version.group_version == group.preferred_version.group_version
                found += await self._version_kinds(version.group_version, preferred=preferred)
        return found

    async def _version_kinds(self, api_version: str, *, preferred: bool) -> list[APIResource]:
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            response = await self._transport.request("GET", root)
        except NotFound:
            return []
        group, _, version = api_version.rpartition("/")
        resources = _decode(response, _ResourceList).resources
        subresources: dict[str, list[str]] = {}
        for resource in resources:
            plural, slash, subresource = resource.name.partition("/")
            if slash:
                subresources.setdefault(plural, []).append(subresource)
        return [
            APIResource(
                kind=Kind(
                    group=group, version=version, kind=entry.kind, plural=entry.name, namespaced=entry.namespaced
                ),
                verbs=frozenset(entry.verbs),
                singular=entry.singular_name,
                short_names=tuple(entry.short_names),
                categories=tuple(entry.categories),
                subresources=tuple(subresources.get(entry.name, ())),
                preferred=preferred,
            )
            for entry in resources
            if "/" not in entry.name
        ]


class _Wire(msgspec.Struct, rename="camel"):
    """Parts of discovery documents."""


class _ResponseKind(_Wire):
    kind: str = ""


class _Subresource(_Wire):
    subresource: str


class _AggregatedResource(_Wire):
    resource: str
    scope: str
    verbs: list[str]
    response_kind: _ResponseKind = msgspec.field(default_factory=_ResponseKind)
    singular_resource: str = ""
    short_names: list[str] = []
    categories: list[str] = []
    subresources: list[_Subresource] = []


class _AggregatedVersion(_Wire):
    version: str
    resources: list[_AggregatedResource] = []


class _Metadata(_Wire):
    name: str = ""


class _Group(_Wire):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    versions: list[_AggregatedVersion] = []


class _GroupList(_Wire):
    items: list[_Group] = []


class _Versions(_Wire):
    versions: list[str] = []


class _GroupVersion(_Wire):
    group_version: str = ""


class _LegacyGroup(_Wire):
    versions: list[_GroupVersion] = []
    preferred_version: _GroupVersion = msgspec.field(default_factory=_GroupVersion)


class _LegacyGroupList(_Wire):
    groups: list[_LegacyGroup] = []


class _LegacyResource(_Wire):
    name: str
    namespaced: bool
    kind: str
    verbs: list[str] = []
    singular_name: str = ""
    short_names: list[str] = []
    categories: list[str] = []


class _ResourceList(_Wire):
    resources: list[_LegacyResource] = []


def _aggregated(group: _Group) -> list[APIResource]:
    return [
        APIResource(
            kind=Kind(
                group=group.metadata.name,
                version=version.version,
                kind=entry.response_kind.kind,
                plural=entry.resource,
                namespaced=entry.scope == "Namespaced",
            ),
            verbs=frozenset(entry.verbs),
            singular=entry.singular_resource,
            short_names=tuple(entry.short_names),
            categories=tuple(entry.categories),
            subresources=tuple(part.subresource for part in entry.subresources),
            preferred=position == 0,
        )
        for position, version in enumerate(group.versions)
        for entry in version.resources
    ]


def _decode(response: Response, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(response.body, type=shape)
    except msgspec.DecodeError as error:
        raise BadResponse(f"not a discovery document: {error}", request=response.request) from None
