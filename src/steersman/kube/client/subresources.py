"""Requests with a shape of their own: scale, eviction, service account tokens, access reviews."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.api.gvk import Kind
from steersman.kube.api.objects import Resource, Struct
from steersman.kube.client.codec import codec_for

if TYPE_CHECKING:
    from steersman.kube.client.client import Client
    from steersman.kube.client.reader import Target

__all__ = ["IssuedToken", "Review", "Scale", "can_i", "create_token", "evict", "scale"]

_PODS = Kind(version="v1", kind="Pod", plural="pods")
_SERVICE_ACCOUNTS = Kind(version="v1", kind="ServiceAccount", plural="serviceaccounts")
_ACCESS_REVIEWS = Kind(
    group="authorization.k8s.io",
    version="v1",
    kind="SelfSubjectAccessReview",
    plural="selfsubjectaccessreviews",
    namespaced=False,
)


class ScaleSpec(Struct):
    """How many there should be."""

    replicas: int = 0


class ScaleStatus(Struct):
    """How many there are, and the label selector that finds them."""

    replicas: int = 0
    selector: str = ""


class Scale(Resource):
    """The scale of a workload of any kind."""

    spec: ScaleSpec = msgspec.field(default_factory=ScaleSpec)
    status: ScaleStatus = msgspec.field(default_factory=ScaleStatus)


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedToken:
    """A token and when it ends. The token is a secret and not in the repr."""

    token: str = field(repr=False)
    expires: str


class Review(msgspec.Struct, frozen=True):
    """The answer to "may I?"."""

    allowed: bool = False
    denied: bool = False
    reason: str = ""

    def __bool__(self) -> bool:
        return self.allowed


async def scale(
    client: Client, target: Target, name: str, replicas: int | None, *, namespace: str | None = None
) -> Scale:
    """Read the scale subresource; with `replicas`, set it."""
    if replicas is None:
        found: Scale = await client.get(target, name, namespace=namespace, subresource="scale", into=Scale)
    else:
        found = await client.patch(
            target, name, {"spec": {"replicas": replicas}}, namespace=namespace, subresource="scale", into=Scale
        )
    return found


async def evict(client: Client, name: str, delete_options: bytes, *, namespace: str | None = None) -> None:
    """Post an eviction. Its 429 means "not now" and may mean it for hours, so it is not repeated here."""
    namespace = namespace or client.namespace
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": msgspec.Raw(delete_options),
    }
    await client.with_options(retry=False).raw_post(_PODS.path(namespace, name, "eviction"), body)


async def create_token(
    client: Client,
    service_account: str,
    *,
    namespace: str | None = None,
    audiences: tuple[str, ...] = (),
    expiration_seconds: int | None = None,
) -> IssuedToken:
    """Post a TokenRequest."""
    spec: dict[str, Any] = {"audiences": list(audiences)}
    if expiration_seconds is not None:
        spec["expirationSeconds"] = expiration_seconds
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = _SERVICE_ACCOUNTS.path(namespace or client.namespace, service_account, "token")
    status = (await client.raw_post(path, body))["status"]
    return IssuedToken(token=status["token"], expires=status["expirationTimestamp"])


async def can_i(
    client: Client, verb: str, target: Target, *, namespace: str | None, name: str, subresource: str
) -> Review:
    """Post a SelfSubjectAccessReview."""
    kind = codec_for(target).kind
    attributes = {
        "verb": verb,
        "group": kind.group,
        "version": kind.version,
        "resource": kind.plural,
        "subresource": subresource,
        "namespace": namespace or "",
        "name": name,
    }
    body = {
        "apiVersion": _ACCESS_REVIEWS.api_version,
        "kind": _ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    return msgspec.convert((await client.raw_post(_ACCESS_REVIEWS.path(), body)).get("status") or {}, Review)
