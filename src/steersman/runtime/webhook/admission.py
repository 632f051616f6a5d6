"""Admission: what a webhook is asked, and what it may answer. Pure: no sockets, no clocks.

    @validate(WebApp)
    async def no_latest(request: AdmissionRequest[WebApp]) -> None:
        if request.object.spec.image.endswith(":latest"):
            raise Denied("latest is not a version", field="spec.image")

    @mutate(WebApp)
    async def two_replicas(request: AdmissionRequest[WebApp]) -> None:
        request.object.spec.replicas = 2                                   # or return another object

    @default(WebApp)
    def history(app: WebApp) -> None:                                      # only the object, changed in place
        if app.spec.history is None:
            app.spec.history = 10

A validator returns (perhaps a list of warnings) or raises `Denied`. A mutator changes `request.object` in place, or
returns the object as it should be, as with `Client.update_with_retry`. A defaulter is a mutator that needs the object
only. Each may be a plain function, which gets a thread of its own. The patch is computed against what the API server
sent, so fields that the struct does not know never change. Of a `Kind`, objects are dicts.

An object that does not decode is denied, with one exception: users may always repair or remove one that is
already there. Its old state is None (`old_problem` says why), and where nothing readable is left to ask about (it is
deleted, or is on its way out and a finalizer is removed) the answer is yes, with a warning.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, overload

import msgspec

from steersman.errors import ConfigError, FormatError, SteersmanError
from steersman.kube.api.gvk import Kind
from steersman.kube.api.objects import Resource, Struct
from steersman.kube.api.patches import json_patch
from steersman.kube.api.selectors import Selector
from steersman.kube.api.types.authorization import UserInfo
from steersman.kube.client.three_way import explicit, rebase_change
from steersman.runtime.daemon_thread import start_thread

__all__ = ["AdmissionRequest", "Denied", "NotAReview", "Webhook", "default", "mutate", "respond", "validate"]

JSON = dict[str, Any]
T = TypeVar("T")
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


class AdmissionRequest(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One request to change an object, before it happens."""

    operation: Operation
    name: str
    namespace: str
    user: UserInfo
    dry_run: bool
    subresource: str
    new: T | None  # None on DELETE
    old: T | None  # None on CREATE, and when it does not decode
    old_problem: str | None = None  # why it does not
    warnings: list[str] = msgspec.field(default_factory=list)

    def warn(self, text: str) -> None:
        """Have the client show `text`, whether the request is allowed or denied."""
        self.warnings.append(text)

    @property
    def object(self) -> T:
        """The object as it would become; on DELETE, as it is."""
        obj = self.new if self.new is not None else self.old
        assert obj is not None, "the API server sends at least one of the two"
        return obj


class WebhookOptions(TypedDict, total=False):
    """When the API server asks a webhook, and what an error of it means."""

    operations: Sequence[Operation]
    failure_policy: Literal["Fail", "Ignore"]
    timeout_seconds: int
    namespace_selector: str
    object_selector: str
    match_conditions: Mapping[str, str]


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook: which objects it is asked about, and the function that answers."""

    target: type[Resource] | Kind
    function: Callable[..., Any]  # of an AdmissionRequest, or of the object when it is a defaulter
    mutating: bool
    defaulter: bool = False
    operations: Sequence[Operation] = ("CREATE", "UPDATE")
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    timeout_seconds: int = 5
    namespace_selector: str = ""  # labels of namespaces, as in `kubectl get -l`; empty: all
    object_selector: str = ""  # labels of objects
    match_conditions: Mapping[str, str] = {}  # name -> CEL expression; asked only when all are true

    @property
    def kind(self) -> Kind:
        """The kind of the objects it is asked about."""
        return self.target if isinstance(self.target, Kind) else self.target.KIND

    @property
    def path(self) -> str:
        """Where the API server finds it; that of a Service may have no underscore."""
        kind = self.kind
        verb = "mutate" if self.mutating else "validate"
        function = self.function.__name__.replace("_", "-").strip("-").lower()
        return f"/{verb}/{kind.group or 'core'}/{kind.version}/{kind.plural}/{function}"

    @property
    def name(self) -> str:
        """Its name in a webhook configuration, which must be a qualified one."""
        kind = self.kind
        function = self.function.__name__.replace("_", "-").strip("-")
        return f"{function}.{kind.plural}.{kind.group or 'core.k8s.io'}"


_Validator = Callable[[AdmissionRequest[T]], Awaitable[Sequence[str] | None] | Sequence[str] | None]
_Mutator = Callable[[AdmissionRequest[T]], Awaitable[T | None] | T | None]
_Defaulter = Callable[[T], Awaitable[None] | None]


@overload
def validate(target: type[R], **options: Unpack[WebhookOptions]) -> Callable[[_Validator[R]], Webhook]: ...
@overload
def validate(target: Kind, **options: Unpack[WebhookOptions]) -> Callable[[_Validator[JSON]], Webhook]: ...
def validate(target: Any, **options: Unpack[WebhookOptions]) -> Callable[[Any], Webhook]:
    """Ask the function whether an object may become what it would become."""
    return lambda function: _hook(target, function, options, mutating=False)


@overload
def mutate(target: type[R], **options: Unpack[WebhookOptions]) -> Callable[[_Mutator[R]], Webhook]: ...
@overload
def mutate(target: Kind, **options: Unpack[WebhookOptions]) -> Callable[[_Mutator[JSON]], Webhook]: ...
def mutate(target: Any, **options: Unpack[WebhookOptions]) -> Callable[[Any], Webhook]:
    """Let the function change an object before it is stored: in place, or by returning another."""
    return lambda function: _hook(target, function, options, mutating=True)


@overload
def default(target: type[R], **options: Unpack[WebhookOptions]) -> Callable[[_Defaulter[R]], Webhook]: ...
@overload
def default(target: Kind, **options: Unpack[WebhookOptions]) -> Callable[[_Defaulter[JSON]], Webhook]: ...
def default(target: Any, **options: Unpack[WebhookOptions]) -> Callable[[Any], Webhook]:
    """Let the function set fields of an object before it is stored, in place: controller-runtime's CustomDefaulter."""
    return lambda function: _hook(target, function, options, mutating=True, defaulter=True)


def _hook(target: Any, function: Any, options: WebhookOptions, **role: bool) -> Webhook:
    where = function.__name__
    if not isinstance(target, Kind) and getattr(target, "KIND", None) is None:
        raise ConfigError(f"{target!r} is neither a Resource class with a version nor a Kind", where=where)
    for field in ("namespace_selector", "object_selector"):
        try:
            Selector.parse(options.get(field)).to_wire()  # type: ignore[arg-type]
        except FormatError as error:
            raise ConfigError(str(error), where=where, field=field) from None
    return Webhook(target=target, function=function, **role, **options)


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
    warnings: list[str] = []
    try:
        answer = await _answer(hook, wire, warnings)
    except Denied as denied:
        answer = {"allowed": False, "status": _status(denied)}
    if warnings:
        answer["warnings"] = warnings
    return {
        "apiVersion": review.api_version or "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": wire.uid, **answer},
    }


async def _answer(hook: Webhook, wire: _WireRequest, warnings: list[str]) -> dict[str, Any]:
    new, problem = _typed(hook.target, wire.object)
    old, old_problem = _typed(hook.target, wire.old_object)
    if new is None and (problem or old_problem):
        why = f"the object does not decode: {problem or old_problem}"
        if wire.object is not None and not _is_leaving(wire.object):
            raise Denied(why)
        warnings.append(f"{hook.name} was not asked: {why}")
        return {"allowed": True}
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
        warnings=warnings,
    )
    if hook.defaulter and new is None:
        return {"allowed": True}
    before = explicit(request.new) if hook.mutating and request.new is not None else None
    result = await _call(hook, new if hook.defaulter else request)
    if not hook.mutating:
        warnings += result or ()
        return {"allowed": True}
    _check_result(hook, result)
    if before is None or wire.object is None:
        return {"allowed": True}
    after = explicit(request.new if result is None else result)
    operations = json_patch(wire.object, rebase_change(wire.object, before, after))
    if not operations:
        return {"allowed": True}
    patch = base64.b64encode(msgspec.json.encode(operations)).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch}


async def _call(hook: Webhook, argument: Any) -> Any:
    """What the function returns, which runs on the loop when it is async, and else in a thread."""
    if inspect.iscoroutinefunction(hook.function):
        return await hook.function(argument)
    return await start_thread(hook.function, argument, name=hook.path)


def _check_result(hook: Webhook, result: Any) -> None:
    wanted = dict if isinstance(hook.target, Kind) else hook.target
    if result is None or (isinstance(result, wanted) and not hook.defaulter):
        return
    way_out = f"return the {wanted.__name__}, or nothing after an edit in place"
    if hook.defaulter:
        way_out = "a defaulter changes the object in place"
    raise TypeError(f"{hook.function.__name__} returned {type(result).__name__}: {way_out}")


def _typed(target: type[Resource] | Kind, obj: JSON | None) -> tuple[Any, str | None]:
    """The object in its type, or why it has none; it shares nothing with `obj`, which must stay as it was sent."""
    kind: Any = Any if isinstance(target, Kind) else target
    try:
        return (None if obj is None else msgspec.json.decode(msgspec.json.encode(obj), type=kind)), None
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
