"""Errors as `Status` objects, with the code, reason and details of kube-apiserver.

A handler raises `StatusError`; the listener turns it into the response, a watch turns it into an ERROR event. Each
function below makes one kind of error. Nothing here decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.errors import SteersmanError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.kube.api.errors import Cause
    from steersman.kube.api.gvk import Kind


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


class StatusError(SteersmanError):
    """An error on its way to the client. `text` replaces the Status object where the real server sends plain text."""

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
        """The `Status` object of this error."""
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
    if kind:
        details["kind"] = kind
    return details | more


def _about(kind: Kind, name: str, code: int, reason: str, message: str, **more: Any) -> StatusError:
    """An error about one object, whose details name it."""
    return StatusError(code, message, reason=reason, details=_details(name, kind.group, kind.plural, **more))


def not_found(kind: Kind, name: str) -> StatusError:
    """The object does not exist."""
    return _about(kind, name, 404, "NotFound", f'{kind.qualified} "{name}" not found')


def resource_not_found() -> StatusError:
    """The API group is served, the resource is not."""
    return StatusError(404, "the server could not find the requested resource", reason="NotFound", details={})


def page_not_found() -> StatusError:
    """Nothing is served at the path."""
    return StatusError(404, "404 page not found", text="404 page not found\n")


def already_exists(kind: Kind, name: str) -> StatusError:
    """The name is taken."""
    return _about(kind, name, 409, "AlreadyExists", f'{kind.qualified} "{name}" already exists')


def generate_name_conflict(kind: Kind, name: str) -> StatusError:
    """Every generated name was taken."""
    message = f'{kind.qualified} "{name}" already exists, the server could not generate a unique name for the object'
    error = _about(kind, name, 409, "AlreadyExists", message, retryAfterSeconds=1)
    error.headers["Retry-After"] = "1"
    return error


def conflict(kind: Kind, name: str, why: str = MODIFIED) -> StatusError:
    """The object is not in the state that the client assumes."""
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}'
    return _about(kind, name, 409, "Conflict", message)


def forbidden(kind: Kind, name: str, why: str, causes: Iterable[Mapping[str, str]] = ()) -> StatusError:
    """Admission rejects the object."""
    subject = f'{kind.qualified} "{name}"' if name else kind.qualified
    more = {"causes": list(causes)} if causes else {}
    return _about(kind, name, 403, "Forbidden", f"{subject} is forbidden: {why}", **more)


def invalid(kind: Kind, name: str, causes: Iterable[Cause]) -> StatusError:
    """The object violates rules; every violation is a cause."""
    listed = list(causes)
    unique = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in listed))
    joined = unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"
    subject = f'{kind.kind}.{kind.group} "{name}"' if kind.group else f'{kind.kind} "{name}"'
    shown = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in listed]
    details = _details(name, kind.group, kind.kind, causes=shown)
    return StatusError(422, f"{subject} is invalid: {joined}", reason="Invalid", details=details)


def unprocessable() -> StatusError:
    """A JSON patch that does not fit the object."""
    message = "the server rejected our request due to an error in our request"
    return StatusError(422, message, reason="Invalid", details={})


def bad_request(message: str) -> StatusError:
    """The request cannot be understood."""
    return StatusError(400, message, reason="BadRequest")


def internal(message: str) -> StatusError:
    """An error the real server does not classify; it has no reason."""
    return StatusError(500, message)


def unauthorized() -> StatusError:
    """The credentials are unknown."""
    return StatusError(401, "Unauthorized", reason="Unauthorized")


def method_not_allowed() -> StatusError:
    """The resource has no such verb."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, message, reason="MethodNotAllowed", details={})


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
