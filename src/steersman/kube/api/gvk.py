"""What a kind is called, and where it lives on an API server. Pure data."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

__all__ = ["Kind", "NamespacedName"]


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of object in one API version.

    >>> Kind(group="apps", version="v1", kind="Deployment", plural="deployments").path("shop", "web", "scale")
    '/apis/apps/v1/namespaces/shop/deployments/web/scale'
    """

    group: str = ""  # "" is the core group
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`group/version` as objects carry it; the core group has no prefix."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`plural.group`, the name that identifies the resource over all versions."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def root(self) -> str:
        """The path of the API version, e.g. `/api/v1` or `/apis/apps/v1`."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The request path of a collection, an object or a subresource; parts are percent-encoded."""
        parts = [self.root]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=""))
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


class NamespacedName(msgspec.Struct, frozen=True, order=True, gc=False):
    """The name of one object of a kind that the context knows. `namespace` is empty for cluster-scoped objects.

    >>> str(NamespacedName("web", "shop"))
    'shop/web'
    """

    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name
