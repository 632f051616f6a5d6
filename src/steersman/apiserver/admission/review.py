"""AdmissionReview: the question to a webhook, and what its answer means. Pure.

An answer must belong to the question (uid, type), and a patch must come with its type and only from a mutating webhook.
Everything else is an `InvalidAnswer`, which the failure policy then treats as a failed call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver.status_errors import StatusError
from steersman.errors import FormatError
from steersman.kube.api.patches import PatchError, apply_json_patch

if TYPE_CHECKING:
    from steersman.apiserver.admission.configurations import AdmissionWebhook
    from steersman.apiserver.admission.matching import AdmissionAttributes
    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.kube.api.gvk import Kind

JSON = dict[str, Any]
GROUP = "admission.k8s.io"
KIND = "AdmissionReview"
_DETAILS = ("name", "group", "kind", "uid", "causes", "retryAfterSeconds")


class InvalidAnswer(ValueError):  # noqa: N818  says what it is
    """What came back is not a usable answer to the question."""


class AdmissionAnswer(msgspec.Struct, frozen=True):
    """What a webhook decided."""

    allowed: bool
    patch: list[JSON] | None = None
    status: JSON | None = None  # why not
    warnings: tuple[str, ...] = ()
    annotations: dict[str, str] | None = None


def question(attributes: AdmissionAttributes, asked: ResourceInfo, obj: JSON | None, old: JSON | None) -> JSON:
    """The `request` of a review, without its uid. `obj` and `old` are in the version that the webhook is asked in."""
    info, subresource = attributes.info, attributes.subresource
    about: JSON = {
        "kind": _kind(_of(asked, subresource)),
        "resource": _resource(asked.kind),
        "requestKind": _kind(_of(info, subresource)),
        "requestResource": _resource(info.kind),
        "name": attributes.name,
        "namespace": attributes.namespace,
        "operation": attributes.operation,
        "userInfo": attributes.user,
        "object": obj,
        "oldObject": old,
        "dryRun": attributes.dry_run,
        "options": attributes.options,
    }
    if subresource:
        about |= {"subResource": subresource, "requestSubResource": subresource}
    return {key: value for key, value in about.items() if value != ""}


def _of(info: ResourceInfo, subresource: str) -> Kind:
    own = info.subresource(subresource).kind if subresource else None
    return own or info.kind


def _kind(kind: Kind) -> JSON:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _resource(kind: Kind) -> JSON:
    return {"group": kind.group, "version": kind.version, "resource": kind.plural}


class _Details(msgspec.Struct, omit_defaults=True):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[JSON] | None = None
    retryAfterSeconds: int = 0  # noqa: N815


class _Status(msgspec.Struct, omit_defaults=True):
    code: int = 0
    message: str = ""
    reason: str = ""
    details: _Details | None = None


class _AdmissionResponse(msgspec.Struct):
    uid: str = ""
    allowed: bool = False
    patch: bytes | None = None
    patchType: str | None = None  # noqa: N815  the wire's name
    status: _Status | None = None
    warnings: list[str] | None = None
    auditAnnotations: dict[str, str] | None = None  # noqa: N815


class _AdmissionReview(msgspec.Struct):
    apiVersion: str = ""  # noqa: N815
    kind: str = ""
    response: _AdmissionResponse | None = None


_decode = msgspec.json.Decoder(_AdmissionReview).decode
_decode_patch = msgspec.json.Decoder(list[JSON]).decode


def verified(webhook: AdmissionWebhook, uid: str, body: bytes) -> AdmissionAnswer:
    """The answer in the body of a response; InvalidAnswer says what is wrong with it."""
    try:
        review = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidAnswer(f"it is not an AdmissionReview: {error}") from None
    response = review.response
    if response is None:
        raise InvalidAnswer("webhook response was absent")
    if webhook.review_version == "v1":
        if response.uid != uid:
            raise InvalidAnswer(f'expected response.uid="{uid}", got "{response.uid}"')
        if (review.apiVersion, review.kind) != (f"{GROUP}/v1", KIND):
            raise InvalidAnswer(
                f"expected webhook response of {GROUP}/v1 {KIND}, got {review.apiVersion} {review.kind}"
            )
        _check_patch_type(webhook, response)
    return AdmissionAnswer(
        allowed=response.allowed,
        patch=_operations(response.patch) if webhook.mutating and response.allowed else None,
        status=msgspec.to_builtins(response.status),
        warnings=tuple(response.warnings or ()),
        annotations=response.auditAnnotations,
    )


def _check_patch_type(webhook: AdmissionWebhook, response: _AdmissionResponse) -> None:
    if not webhook.mutating:
        for field, value in (("patch", response.patch), ("patchType", response.patchType)):
            if value:
                raise InvalidAnswer(f"validating webhook may not return response.{field}")
    elif response.patch and response.patchType is None:
        raise InvalidAnswer("webhook returned response.patch but not response.patchType")
    elif not response.patch and response.patchType is not None:
        raise InvalidAnswer("webhook returned response.patchType but not response.patch")
    elif response.patchType not in {None, "JSONPatch"}:
        raise InvalidAnswer(f'unsupported patch type "{response.patchType}"')


def _operations(patch: bytes | None) -> list[JSON] | None:
    if not patch:
        return None
    try:
        return _decode_patch(patch)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidAnswer(f"received undecodable patch in webhook response: {error}") from None


def patched(webhook: AdmissionWebhook, obj: JSON | None, operations: list[JSON]) -> JSON:
    """`obj` as the patch of an answer makes it; ValueError when the patch does not fit."""
    if obj is None:
        raise ValueError(
            f'admission webhook "{webhook.name}" attempted to modify the object, which is not supported for this '
            "operation"
        )
    try:
        return msgspec.convert(apply_json_patch(obj, operations), JSON)
    except (PatchError, FormatError, msgspec.ValidationError) as error:
        raise ValueError(f'the patch of admission webhook "{webhook.name}" does not fit: {error}') from None


def denial(webhook: AdmissionWebhook, answer: AdmissionAnswer) -> StatusError:
    """The error that a client gets when a webhook said no."""
    status = answer.status or {}
    by = f'admission webhook "{webhook.name}" denied the request'
    why = status.get("message") or status.get("reason")
    code = status.get("code") or 0
    details = status.get("details")
    retry = (details or {}).get("retryAfterSeconds")
    return StatusError(
        code if 400 <= code <= 999 else 400,
        f"{by}: {why}" if why else f"{by} without explanation",
        reason=status.get("reason") or "",
        details={key: details[key] for key in _DETAILS if details.get(key)} if details is not None else None,
        headers={"Retry-After": str(retry)} if retry else None,
    )
