"""Conversion webhooks: objects of a custom resource in another of its versions, as the author's webhook makes them.

Conversion is part of a synchronous step: where a converted object is missing, the step ends with
`PendingConversions`, `with_conversions` asks the webhook and runs the step again. What a webhook answered is known
during one request, or one batch of a watch, and never longer, so each request sees what the webhook says now.

A webhook decides about everything but metadata, of which it may change labels and annotations only. So the answer about
an object is also the answer about the same object under another resourceVersion.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from steersman.apiserver.admission.configurations import REVIEW_VERSIONS, WebhookTarget
from steersman.apiserver.status_errors import StatusError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

JSON = dict[str, Any]
T = TypeVar("T")
GROUP = "apiextensions.k8s.io"
KIND = "ConversionReview"
TIMEOUT = 30  # seconds
_ALWAYS_KEPT = {"name", "namespace", "labels", "annotations"}
_encode = msgspec.json.Encoder(order="sorted").encode

ConversionKey = tuple[str, bytes]
ConversionOutcome = JSON | str  # the object, or why there is none


class WebhookConversion(msgspec.Struct, frozen=True):
    """The webhook that converts the objects of one definition."""

    target: WebhookTarget
    review_version: str

    @classmethod
    def from_wire(cls, conversion: JSON) -> WebhookConversion | None:
        """The webhook of a definition's `spec.conversion`; None when versions differ in name only."""
        if conversion.get("strategy") != "Webhook":
            return None
        webhook = conversion["webhook"]
        version = next(name for name in webhook["conversionReviewVersions"] if name in REVIEW_VERSIONS)
        return cls(WebhookTarget.from_wire(webhook["clientConfig"]), version)


class Conversion(msgspec.Struct, frozen=True):
    """One object that is needed in another version."""

    webhook: WebhookConversion
    object: JSON
    api_version: str  # the wanted one

    @property
    def key(self) -> ConversionKey:
        """What the answer belongs to: all that the webhook may look at or change."""
        metadata = {key: value for key, value in self.object["metadata"].items() if key in _ALWAYS_KEPT}
        return (self.api_version, _encode({**self.object, "metadata": metadata}))


class PendingConversions(Exception):  # noqa: N818  the step goes on once they are answered
    """The step needs converted objects that are not there yet; nothing has been written."""

    def __init__(self, conversions: list[Conversion]) -> None:
        super().__init__(len(conversions))
        self.conversions = conversions


_known: ContextVar[dict[ConversionKey, ConversionOutcome] | None] = ContextVar("known_conversions", default=None)


def converted(webhook: WebhookConversion, obj: JSON, api_version: str) -> JSON:
    """`obj` in another version. Raises PendingConversions, or the error of the webhook."""
    if obj["apiVersion"] == api_version:
        return obj
    conversion = Conversion(webhook, obj, api_version)
    outcome = (_known.get() or {}).get(conversion.key)
    if outcome is None:
        raise PendingConversions([conversion])
    if isinstance(outcome, str):
        raise StatusError(500, f"conversion webhook for {obj['apiVersion']}, Kind={obj['kind']} failed: {outcome}")
    return {**outcome, "metadata": _restored(obj["metadata"], outcome["metadata"])}


def prepare(webhook: WebhookConversion, objects: Iterable[JSON], api_version: str) -> None:
    """Have all objects converted in one call, before they are needed one by one."""
    known = _known.get() or {}
    wanted = [Conversion(webhook, obj, api_version) for obj in objects if obj["apiVersion"] != api_version]
    if missing := {key: item for item in wanted if (key := item.key) not in known}:
        raise PendingConversions(list(missing.values()))


def _restored(before: JSON, after: JSON) -> JSON:
    """Metadata after a conversion: everything but labels and annotations is what it was."""
    kept = {key: value for key, value in before.items() if key not in {"labels", "annotations"}}
    return kept | {key: after[key] for key in ("labels", "annotations") if after.get(key)}


async def with_conversions(
    step: Callable[[], T],
    ask: Callable[[list[Conversion]], Awaitable[list[ConversionOutcome]]],
    known: dict[ConversionKey, ConversionOutcome] | None = None,
) -> T:
    """Run `step` until all objects it needs are converted. `known` remembers answers for the next step."""
    known = {} if known is None else known
    while True:
        token = _known.set(known)
        try:
            return step()
        except PendingConversions as pending:
            conversions = pending.conversions
        finally:
            _known.reset(token)
        outcomes = await ask(conversions)
        known |= {item.key: outcome for item, outcome in zip(conversions, outcomes, strict=True)}


def conversion_review(webhook: WebhookConversion, uid: str, conversions: list[Conversion]) -> bytes:
    """The body of a request for objects that are all wanted in one version."""
    request = {
        "uid": uid,
        "desiredAPIVersion": conversions[0].api_version,
        "objects": [item.object for item in conversions],
    }
    return _encode({"kind": KIND, "apiVersion": f"{GROUP}/{webhook.review_version}", "request": request})


class _ConversionResponse(msgspec.Struct):
    uid: str = ""
    convertedObjects: list[JSON] | None = None  # noqa: N815  the wire's name
    result: JSON | None = None


class _ConversionReview(msgspec.Struct):
    apiVersion: str = ""  # noqa: N815
    kind: str = ""
    response: _ConversionResponse | None = None


_decode = msgspec.json.Decoder(_ConversionReview).decode


def converted_objects(
    webhook: WebhookConversion, uid: str, conversions: list[Conversion], body: bytes
) -> list[ConversionOutcome]:
    """The objects in a response, in the order they were asked for; ValueError says what is wrong with it."""
    try:
        review = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"the response is not a ConversionReview: {error}") from None
    if (review.apiVersion, review.kind) != (f"{GROUP}/v1", KIND) and webhook.review_version == "v1":
        given = f"{review.apiVersion}, Kind={review.kind}"
        raise ValueError(f"expected webhook response of {GROUP}/v1, Kind={KIND}, got {given}")
    response = review.response
    if response is None:
        raise ValueError("no response provided")
    if webhook.review_version == "v1" and response.uid != uid:
        raise ValueError(f'expected response.uid="{uid}", got "{response.uid}"')
    result = response.result or {}
    if result.get("status") != "Success":
        status = result.get("status", "")
        raise ValueError(result.get("message") or f"response.result.status was '{status}', not 'Success'")
    objects = response.convertedObjects or []
    if len(objects) != len(conversions):
        raise ValueError(f"returned {len(objects)} objects, expected {len(conversions)}")
    return [_checked(item, obj) for item, obj in zip(conversions, objects, strict=True)]


def _checked(conversion: Conversion, obj: JSON) -> ConversionOutcome:
    before, metadata = conversion.object, obj.get("metadata")
    if not isinstance(metadata, dict):
        return "returned invalid object: it has no metadata"
    wanted = {"apiVersion": conversion.api_version, "kind": before["kind"]}
    for field, value in wanted.items():
        if obj.get(field) != value:
            return f"returned invalid object: invalid {field} (expected {value}, received {obj.get(field)})"
    for field in ("name", "namespace", "uid"):
        if (metadata.get(field) or "") != (before["metadata"].get(field) or ""):
            return f"returned invalid object: must have the same {field}"
    for field in ("labels", "annotations"):
        given = metadata.get(field) or {}
        if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
            return f"returned invalid metadata: metadata.{field} must be a map of strings"
    return obj
