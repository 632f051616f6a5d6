"""What the server says when it says no: the `Status` object, word for word as kube-apiserver words it.

A handler raises `StatusError`; the HTTP layer turns it into the answer, a watch turns it into an ERROR event. Each
constructor below is one kind of refusal. Nothing here decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.errors import SteersmanError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.kube.errors import Cause
    from steersman.kube.resources import Kind

__all__ = [
    "StatusError",
    "already_exists",
    "bad_request",
    "conflict",
    "expired",
    "forbidden",
    "internal",
    "invalid",
    "method_not_allowed",
    "not_acceptable",
    "not_found",
    "page_not_found",
    "resource_not_found",
    "success",
    "too_large_version",
    "unauthorized",
    "unprocessable",
    "unsupported_media",
]

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


class StatusError(SteersmanError):
    """A refusal on its way to the client. `text` replaces the Status object where the real server sends plain text."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        text: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason
        self.details = details
        self.metadata = metadata or {}
        self.headers = dict(headers or {})
        self.text = text

    def status(self) -> dict[str, Any]:
        """The `Status` object of this refusal."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


def success(details: Mapping[str, Any]) -> dict[str, Any]:
    """The `Status` that answers a delete which is done."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _details(name: str, group: str, kind: str, **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = kind
    return details | more


def not_found(kind: Kind, name: str) -> StatusError:
    """The object does not exist."""
    return StatusError(
        404,
        f'{kind.qualified} "{name}" not found',
        reason="NotFound",
        details=_details(name, kind.group, kind.plural),
    )


def resource_not_found() -> StatusError:
    """The API group is served, the resource is not."""
    return StatusError(404, "the server could not find the requested resource", reason="NotFound", details={})


def page_not_found() -> StatusError:
    """The path is none of ours."""
    return StatusError(404, "404 page not found", text="404 page not found\n")


def already_exists(kind: Kind, name: str) -> StatusError:
    """The name is taken."""
    return StatusError(
        409,
        f'{kind.qualified} "{name}" already exists',
        reason="AlreadyExists",
        details=_details(name, kind.group, kind.plural),
    )


def generate_name_conflict(kind: Kind, name: str) -> StatusError:
    """Every generated name was taken."""
    return StatusError(
        409,
        f'{kind.qualified} "{name}" already exists, the server was not able to generate a unique name for the object',
        reason="AlreadyExists",
        details=_details(name, kind.group, kind.plural, retryAfterSeconds=1),
        headers={"Retry-After": "1"},
    )


def conflict(kind: Kind, name: str, why: str = MODIFIED) -> StatusError:
    """The object is not what the caller believes it to be."""
    return StatusError(
        409,
        f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}',
        reason="Conflict",
        details=_details(name, kind.group, kind.plural),
    )


def forbidden(kind: Kind, name: str, why: str, causes: Iterable[Mapping[str, str]] = ()) -> StatusError:
    """An admission rule says no."""
    subject = f'{kind.qualified} "{name}"' if name else kind.qualified
    more = {"causes": list(causes)} if causes else {}
    return StatusError(
        403,
        f"{subject} is forbidden: {why}",
        reason="Forbidden",
        details=_details(name, kind.group, kind.plural, **more),
    )


def invalid(kind: Kind, name: str, causes: Iterable[Cause]) -> StatusError:
    """The object breaks rules; every broken one is a cause."""
    listed = list(causes)
    texts = [f"{cause.field}: {cause.message}" for cause in listed]
    unique = list(dict.fromkeys(texts))
    joined = unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"
    subject = f'{kind.kind}.{kind.group} "{name}"' if kind.group else f'{kind.kind} "{name}"'
    return StatusError(
        422,
        f"{subject} is invalid: {joined}",
        reason="Invalid",
        details={
            **_details(name, kind.group, kind.kind),
            "causes": [{"reason": c.reason, "message": c.message, "field": c.field} for c in listed],
        },
    )


def unprocessable() -> StatusError:
    """A JSON patch that does not fit the object."""
    return StatusError(
        422, "the server rejected our request due to an error in our request", reason="Invalid", details={}
    )


def bad_request(message: str) -> StatusError:
    """The request makes no sense."""
    return StatusError(400, message, reason="BadRequest")


def internal(message: str) -> StatusError:
    """An error the real server does not classify; it has no reason."""
    return StatusError(500, message)


def unauthorized() -> StatusError:
    """The credentials are unknown."""
    return StatusError(401, "Unauthorized", reason="Unauthorized")


def method_not_allowed() -> StatusError:
    """The resource has no such verb."""
    return StatusError(
        405,
        "the server does not allow this method on the requested resource",
        reason="MethodNotAllowed",
        details={},
    )


def not_acceptable(message: str, *, listed: bool = False) -> StatusError:
    """No representation that the client accepts; `listed` is the form the negotiation itself uses."""
    return StatusError(406, message, reason="NotAcceptable", details={} if listed else None)


def unsupported_media(message: str, *, listed: bool = False) -> StatusError:
    """The body comes in an encoding, or the patch of a type, that is not taken."""
    return StatusError(415, message, reason="UnsupportedMediaType", details={} if listed else None)


def expired(message: str, *, continue_token: str = "") -> StatusError:
    """The revision is compacted; `continue_token` lets the client go on without consistency."""
    return StatusError(
        410, message, reason="Expired", metadata={"continue": continue_token} if continue_token else None
    )


def too_large_version(asked: int, current: int) -> StatusError:
    """The client knows a revision that does not exist yet."""
    return StatusError(
        504,
        f"Timeout: Too large resource version: {asked}, current: {current}",
        reason="Timeout",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        headers={"Retry-After": "1"},
    )
