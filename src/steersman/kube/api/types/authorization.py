"""Questions to a server: who is this, and may they? Pure data. These kinds are answered, never stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import field

from steersman.kube.api.objects import Resource, Struct

__all__ = [
    "NonResourceAttributes",
    "ResourceAttributes",
    "SelfSubjectAccessReview",
    "SelfSubjectAccessReviewSpec",
    "SubjectAccessReview",
    "SubjectAccessReviewSpec",
    "SubjectAccessReviewStatus",
    "TokenReview",
    "TokenReviewSpec",
    "TokenReviewStatus",
    "UserInfo",
]


class ResourceAttributes(Struct):
    """A verb on a resource."""

    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    label_selector: dict[str, Any] | None = None
    field_selector: dict[str, Any] | None = None


class NonResourceAttributes(Struct):
    """A verb on a path that is not a resource."""

    verb: str = ""
    path: str = ""


class SelfSubjectAccessReviewSpec(Struct):
    """May I do this?"""

    resource_attributes: ResourceAttributes | None = None
    non_resource_attributes: NonResourceAttributes | None = None


class SubjectAccessReviewSpec(Struct):
    """May this user do this?"""

    user: str = ""
    uid: str = ""
    groups: Sequence[str] = ()
    extra: dict[str, Sequence[str]] | None = None
    resource_attributes: ResourceAttributes | None = None
    non_resource_attributes: NonResourceAttributes | None = None


class SubjectAccessReviewStatus(Struct):
    """The answer."""

    allowed: bool = False
    denied: bool = False
    reason: str = ""
    evaluation_error: str = ""


class SelfSubjectAccessReview(
    Resource, group="authorization.k8s.io", version="v1", plural="selfsubjectaccessreviews", namespaced=False
):
    """Asks what the caller may do."""

    spec: SelfSubjectAccessReviewSpec = field(default_factory=SelfSubjectAccessReviewSpec)
    status: SubjectAccessReviewStatus = field(default_factory=SubjectAccessReviewStatus)


class SubjectAccessReview(
    Resource, group="authorization.k8s.io", version="v1", plural="subjectaccessreviews", namespaced=False
):
    """Asks what a user may do."""

    spec: SubjectAccessReviewSpec = field(default_factory=SubjectAccessReviewSpec)
    status: SubjectAccessReviewStatus = field(default_factory=SubjectAccessReviewStatus)


class UserInfo(Struct):
    """A user: name, groups and extra attributes."""

    username: str = ""
    uid: str = ""
    groups: Sequence[str] = ()
    extra: dict[str, Sequence[str]] | None = None


class TokenReviewSpec(Struct):
    """Whose token is this? The token is never part of the `repr`."""

    token: str = ""
    audiences: Sequence[str] = ()

    def __repr__(self) -> str:
        return f"TokenReviewSpec(audiences={list(self.audiences)})"


class TokenReviewStatus(Struct):
    """The answer."""

    authenticated: bool = False
    user: UserInfo | None = None
    audiences: Sequence[str] = ()
    error: str = ""


class TokenReview(Resource, group="authentication.k8s.io", version="v1", namespaced=False):
    """Asks who a token belongs to."""

    spec: TokenReviewSpec = field(default_factory=TokenReviewSpec)
    status: TokenReviewStatus = field(default_factory=TokenReviewStatus)
