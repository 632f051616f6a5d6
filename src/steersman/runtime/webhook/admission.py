"""Admission: what a webhook is asked, and what it may answer. Pure: no sockets, no clocks.

    @validate(WebApp)
    async def no_latest(request: AdmissionRequest[WebApp]) -> None:
        if request.object.spec.image.endswith(":latest"):
            raise Denied("latest is not a version", field="spec.image")

    @mutate(WebApp)
    async def two_replicas(request: AdmissionRequest[WebApp]) -> None:
        request.object.spec.replicas = 2                                   # or return another object

A validator returns (perhaps a list of warnings) or raises `Denied`. A mutator changes `request.object` in place, or
returns the object as it should be, as with `Client.update_with_retry`. The patch is computed against what the API
server sent, so fields that the struct does not know are never touched.

An object that does not decode is denied, with one exception: users may always repair or remove one that is
already there. Its old state is None (`old_problem` says why), and where nothing readable is left to ask about (it is
deleted, or is on its way out and a finalizer is removed) the answer is yes, with a warning.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec

from steersman.errors import SteersmanError
from steersman.kube.api.objects import Resource, Struct
from steersman.kube.api.patches import json_patch
from steersman.kube.api.types.authorization import UserInfo
from steersman.kube.client.three_way import explicit, rebase_change

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["AdmissionRequest", "Denied", "NotAReview", "Webhook", "mutate", "respond", "validate"]

R = TypeVar("R", bound=Resource)
Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


class Denied(SteersmanError):  # noqa: N818  # `raise Denied(...)` says what happens
    """No, and why: the person who made the request reads this."""

    def __init__(self, message: str, *, field: str | None = None, code: int = 422) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message
        self.code = code


class NotAReview(ValueError):  # noqa: N818  says what it is
    """The body is not a valid AdmissionReview."""


class _GroupVersionKind(Struct):
    group: str = ""
    version: str = ""
    kind: str = ""


class _WireRequest(Struct):
    uid: str
    kind: _GroupVersionKind = _GroupVersionKind()
    operation: Operation = "CREATE"
    name: str = ""
    namespace: str = ""
    sub_resource: str = ""
    user_info: UserInfo = UserInfo()
    dry_run: bool | None = None
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None


class _WireReview(Struct):
    api_version: str = ""
    kind: str = ""
    request: _WireRequest | None = None


class AdmissionRequest(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """One request to change an object, before it happens."""

    operation: Operation
    name: str
    namespace: str
    user: UserInfo
    dry_run: bool
    subresource: str
    new: R | None  # None on DELETE
    old: R | None  # None on CREATE, and when it does not decode
    old_problem: str | None = None  # why it does not

    @property
    def object(self) -> R:
        """The object as it would become; on DELETE, as it is."""
        obj = self.new if self.new is not None else self.old
        assert obj is not None, "the API server sends at least one of the two"
        return obj


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook: which objects it is asked about, and the function that answers."""

    target: type[Resource]
    function: Callable[[AdmissionRequest[Any]], Awaitable[Any]]
    mutating: bool
    operations: tuple[Operation, ...] = ("CREATE", "UPDATE")
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    timeout_seconds: int = 5

    @property
    def path(self) -> str:
        """Where the API server finds it; that of a Service may have no underscore."""
        kind = self.target.KIND
        verb = "mutate" if self.mutating else "validate"
        function = self.function.__name__.replace("_", "-").strip("-").lower()
        return f"/{verb}/{kind.group or 'core'}/{kind.version}/{kind.plural}/{function}"

    @property
    def name(self) -> str:
        """Its name in a webhook configuration, which must be a qualified one."""
        kind = self.target.KIND
        function = self.function.__name__.replace("_", "-").strip("-")
        return f"{function}.{kind.plural}.{kind.group or 'core.k8s.io'}"


def validate(
    target: type[R],
    *,
    operations: Sequence[Operation] = ("CREATE", "UPDATE"),
    failure_policy: Literal["Fail", "Ignore"] = "Fail",
    timeout_seconds: int = 5,
) -> Callable[[Callable[[AdmissionRequest[R]], Awaitable[Sequence[str] | None]]], Webhook]:
    """Ask the function whether an object may become what it would become."""

    def declare(function: Callable[[AdmissionRequest[R]], Awaitable[Sequence[str] | None]]) -> Webhook:
        return _hook(target, function, False, operations, failure_policy, timeout_seconds)

    return declare


def mutate(
    target: type[R],
    *,
    operations: Sequence[Operation] = ("CREATE", "UPDATE"),
    failure_policy: Literal["Fail", "Ignore"] = "Fail",
    timeout_seconds: int = 5,
) -> Callable[[Callable[[AdmissionRequest[R]], Awaitable[R | None]]], Webhook]:
    """Let the function change an object before it is stored: in place, or by returning another."""

    def declare(function: Callable[[AdmissionRequest[R]], Awaitable[R | None]]) -> Webhook:
        return _hook(target, function, True, operations, failure_policy, timeout_seconds)

    return declare


def _hook(
    target: type[Resource],
    function: Any,
    mutating: bool,
    operations: Sequence[Operation],
    failure_policy: Literal["Fail", "Ignore"],
    timeout_seconds: int,
) -> Webhook:
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"{function.__name__}: a webhook is an async function")
    return Webhook(
        target=target,
        function=function,
        mutating=mutating,
        operations=tuple(operations),
        failure_policy=failure_policy,
        timeout_seconds=timeout_seconds,
    )


_decode = msgspec.json.Decoder(_WireReview).decode


async def respond(hook: Webhook, body: bytes) -> dict[str, Any]:
    """The AdmissionReview that answers the one in `body`.

    Raises NotAReview when `body` is none. Whatever else goes wrong in the hook is the caller's to catch.
    """
    try:
        review = _decode(body)
    except msgspec.DecodeError as error:
        raise NotAReview(f"not an AdmissionReview: {error}") from None
    wire = review.request
    if wire is None:
        raise NotAReview("not an AdmissionReview: it has no request")
    try:
        answer = await _answer(hook, wire)
    except Denied as denied:
        answer = {"allowed": False, "status": _status(denied)}
    return {
        "apiVersion": review.api_version or "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": wire.uid, **answer},
    }


async def _answer(hook: Webhook, wire: _WireRequest) -> dict[str, Any]:
    new, problem = _typed(hook.target, wire.object)
    old, old_problem = _typed(hook.target, wire.old_object)
    if new is None and (problem or old_problem):
        why = f"the object does not decode: {problem or old_problem}"
        if wire.object is not None and not _is_leaving(wire.object):
            raise Denied(why)
        return {"allowed": True, "warnings": [f"{hook.name} was not asked: {why}"]}
    request: AdmissionRequest[Any] = AdmissionRequest(
        operation=wire.operation,
        name=wire.name,
        namespace=wire.namespace,
        user=wire.user_info,
        dry_run=bool(wire.dry_run),
        subresource=wire.sub_resource,
        new=new,
        old=old,
        old_problem=old_problem,
    )
    before = explicit(request.new) if hook.mutating and request.new is not None else None
    result = await hook.function(request)
    if not hook.mutating:
        return {"allowed": True, **({"warnings": list(result)} if result else {})}
    if result is not None and not isinstance(result, hook.target):
        name, given = hook.target.__name__, type(result).__name__
        raise TypeError(
            f"{hook.function.__name__} returned {given}: return the {name}, or nothing after an edit in place"
        )
    if before is None or wire.object is None:
        return {"allowed": True}
    after = explicit(request.new if result is None else result)
    operations = json_patch(wire.object, rebase_change(wire.object, before, after))
    if not operations:
        return {"allowed": True}
    patch = base64.b64encode(msgspec.json.encode(operations)).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch}


def _typed(target: type[Resource], obj: dict[str, Any] | None) -> tuple[Any, str | None]:
    """The object in its type, or why it has none; it shares nothing with `obj`, which must stay as it was sent."""
    try:
        return (None if obj is None else msgspec.json.decode(msgspec.json.encode(obj), type=target)), None
    except msgspec.ValidationError as error:
        return None, str(error)


def _is_leaving(obj: dict[str, Any]) -> bool:
    meta = obj.get("metadata")
    return isinstance(meta, dict) and bool(meta.get("deletionTimestamp"))


def _status(denied: Denied) -> dict[str, Any]:
    status: dict[str, Any] = {"status": "Failure", "message": str(denied), "code": denied.code}
    if denied.code == 422:
        cause: dict[str, Any] = {"reason": "FieldValueInvalid", "message": denied.message}
        status |= {
            "reason": "Invalid",
            "details": {"causes": [{**cause, "field": denied.field}]} if denied.field else {},
        }
    return status
