"""Conversion: objects of a kind in another of its versions, as the API server asks for them. Pure but for its thread.

A review holds all objects of a list, so it is answered in a thread of its own. One object that cannot be converted
fails the review: the API server has no way to leave it out, and clients must not miss it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from steersman.crd.conversion import ConversionError, conversion_path, convert, hub_of
from steersman.crd.manifest import crd_name
from steersman.errors import ConfigError, traceback_of
from steersman.kube.api.objects import Resource, Struct
from steersman.logger import Logger
from steersman.runtime.daemon_thread import start_thread
from steersman.runtime.webhook.admission import NotAReview

__all__ = ["ConversionWebhook"]

log = Logger(__name__)


class _WireRequest(Struct):
    uid: str
    desired_api_version: str = msgspec.field(name="desiredAPIVersion")
    objects: list[dict[str, Any]]


class _WireReview(Struct):
    api_version: str = ""
    request: _WireRequest | None = None


_decode = msgspec.json.Decoder(_WireReview).decode


class ConversionWebhook(msgspec.Struct, frozen=True, kw_only=True):
    """Converts the objects of a kind between these versions: its hub, and all spokes."""

    versions: Sequence[type[Resource]]
    timeout_seconds: int = 30  # what the API server waits

    def __post_init__(self) -> None:
        if hub_of(self.versions) is None:
            names = ", ".join(cls.__name__ for cls in self.versions)
            raise ConfigError(f"none of {names or 'no versions'} names its hub, as hub=", field="versions")

    @property
    def path(self) -> str:
        """Where the API server finds it."""
        return conversion_path(self.versions[0])

    @property
    def name(self) -> str:
        """The name of the CustomResourceDefinition that it is for."""
        return crd_name(self.versions[0])

    async def respond(self, body: bytes) -> dict[str, Any]:
        """The ConversionReview that answers the one in `body`; NotAReview when it is none."""
        try:
            review = _decode(body)
        except msgspec.DecodeError as error:
            raise NotAReview(f"not a ConversionReview: {error}") from None
        if review.request is None:
            raise NotAReview("not a ConversionReview: it has no request")
        response = await start_thread(self._response, review.request, name=self.path)
        return {
            "apiVersion": review.api_version or "apiextensions.k8s.io/v1",
            "kind": "ConversionReview",
            "response": {"uid": review.request.uid, **response},
        }

    def _response(self, request: _WireRequest) -> dict[str, Any]:
        try:
            converted = [convert(self.versions, obj, request.desired_api_version) for obj in request.objects]
        except ConversionError as error:
            log.warning("conversion failed", problem=str(error), traceback=traceback_of(error.__cause__ or error))
            return {"result": {"status": "Failure", "message": str(error)}}
        return {"convertedObjects": converted, "result": {"status": "Success"}}
