"""What an API server can say other than yes.

    KubeError                    .reason .code .retryable .request .retry_after
    ├── BadRequest        400    the request makes no sense to the server
    ├── Unauthorized      401    credentials are missing, wrong or expired
    │   └── CredentialsFailed    there are none to send: a plugin, identity provider or token file failed
    ├── Forbidden         403    .rule: the RBAC rule that would allow it, when that is what is missing
    ├── NotFound          404
    ├── MethodNotAllowed  405    the resource has no such verb
    ├── Conflict          409    the object changed since it was read, or another manager owns a field
    │   └── AlreadyExists 409    create of a name that is taken
    ├── ResourceExpired   410    the resourceVersion or continue token is too old: list again
    ├── TooLarge          413    the request body is larger than the server takes
    ├── UnsupportedMediaType 415 (and 406) the server does not accept this encoding or patch type
    ├── Invalid           422    .causes: which fields, and why
    ├── TooManyRequests   429    retryable after .retry_after
    ├── ServerError       5xx    the server failed
    │   ├── Unavailable   503    retryable after .retry_after
    │   └── Timeout       504    the server gave up on the request; it may have happened
    ├── ConnectionFailed         no answer: refused, reset, unresolvable, TLS
    ├── RequestTimeout           no answer in time
    └── BadResponse              an answer that is not Kubernetes: HTML, truncated JSON
        └── ResponseTooLarge     one that is larger than this client takes: ask for less

`retryable` says that the same request may succeed later; whether repeating it is *safe* is for the caller to judge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from steersman.errors import SteersmanError

if TYPE_CHECKING:
    from steersman.kube.api.rbac_hint import MissingRule

__all__ = [
    "AlreadyExists",
    "BadRequest",
    "BadResponse",
    "Cause",
    "Conflict",
    "ConnectionFailed",
    "CredentialsFailed",
    "Forbidden",
    "Invalid",
    "KubeError",
    "MethodNotAllowed",
    "NotFound",
    "RequestInfo",
    "RequestTimeout",
    "ResourceExpired",
    "ResponseTooLarge",
    "ServerError",
    "Timeout",
    "TooLarge",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "UnsupportedMediaType",
    "error_for_status",
]


class RequestInfo(msgspec.Struct, frozen=True):
    """The request an error belongs to: enough to find it in an audit log, nothing that could be secret."""

    method: str
    url: str

    def __str__(self) -> str:
        return f"{self.method} {self.url}"


class Cause(msgspec.Struct, frozen=True):
    """One reason why an object was refused."""

    reason: str = ""
    message: str = ""
    field: str = ""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class KubeError(SteersmanError):
    """The API server rejected a request, or did not answer."""

    default_reason: ClassVar[str] = "Unknown"
    default_retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        request: RequestInfo | None = None,
        reason: str | None = None,
        code: int = 0,
        retry_after: float | None = None,
        causes: tuple[Cause, ...] = (),
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{message} ({request})" if request else message)
        self.message = message
        self.request = request
        self.reason = reason or self.default_reason
        self.code = code
        self.retry_after = retry_after
        self.causes = causes
        self.details = details or {}
        self.retryable = self.default_retryable


class BadRequest(KubeError):
    default_reason = "BadRequest"


class Unauthorized(KubeError):
    default_reason = "Unauthorized"


class CredentialsFailed(Unauthorized):
    default_reason = "CredentialsFailed"
    default_retryable = True


class Forbidden(KubeError):
    default_reason = "Forbidden"
    rule: MissingRule | None = None  # None when something other than access control refused, such as a quota


class NotFound(KubeError):
    default_reason = "NotFound"


class MethodNotAllowed(KubeError):
    default_reason = "MethodNotAllowed"


class Conflict(KubeError):
    default_reason = "Conflict"
    default_retryable = True


class AlreadyExists(Conflict):
    default_reason = "AlreadyExists"
    default_retryable = False


class ResourceExpired(KubeError):
    default_reason = "Expired"


class TooLarge(KubeError):
    default_reason = "RequestEntityTooLarge"


class UnsupportedMediaType(KubeError):
    default_reason = "UnsupportedMediaType"


class Invalid(KubeError):
    default_reason = "Invalid"


class TooManyRequests(KubeError):
    default_reason = "TooManyRequests"
    default_retryable = True


class ServerError(KubeError):
    default_reason = "InternalError"
    default_retryable = True


class Unavailable(ServerError):
    default_reason = "ServiceUnavailable"


class Timeout(ServerError):
    default_reason = "Timeout"


class ConnectionFailed(KubeError):
    default_reason = "ConnectionFailed"
    default_retryable = True


class RequestTimeout(KubeError):
    default_reason = "RequestTimeout"
    default_retryable = True


class BadResponse(KubeError):
    default_reason = "BadResponse"
    default_retryable = True


class ResponseTooLarge(BadResponse):
    default_reason = "AnswerTooLarge"
    default_retryable = False


_BY_CODE: dict[int, type[KubeError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    406: UnsupportedMediaType,
    409: Conflict,
    410: ResourceExpired,
    413: TooLarge,
    415: UnsupportedMediaType,
    422: Invalid,
    429: TooManyRequests,
    503: Unavailable,
    504: Timeout,
}


def error_for_status(
    status: dict[str, Any],
    *,
    code: int | None = None,
    request: RequestInfo | None = None,
    retry_after: float | None = None,
) -> KubeError:
    """The error that a `Status` object stands for. `code` is the HTTP status, for bodies that do not carry one."""
    code = int(status.get("code") or code or 0)
    reason = status.get("reason") or None
    details = status.get("details") or {}
    cls = _BY_CODE.get(code) or (ServerError if code >= 500 else KubeError)
    if cls is Conflict and reason == "AlreadyExists":
        cls = AlreadyExists
    causes = tuple(
        Cause(reason=c.get("reason", ""), message=c.get("message", ""), field=c.get("field", ""))
        for c in details.get("causes") or ()
    )
    seconds = retry_after if retry_after is not None else details.get("retryAfterSeconds") or None
    message = status.get("message") or reason or f"HTTP status {code}"
    return cls(
        message, request=request, reason=reason, code=code, retry_after=seconds, causes=causes, details=dict(details)
    )
