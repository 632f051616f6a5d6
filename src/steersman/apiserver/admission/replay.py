"""Runs a request again until webhooks have answered all its questions and converted all its objects.

The step that decides must decide the same each time, as far as the store is the same: names, uids, addresses and times
come from randomness and a clock that belong to the request. Nothing is written before the last question is answered.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec

from steersman.apiserver import status_errors
from steersman.apiserver.admission.chain import AdmissionChain, PendingCalls
from steersman.apiserver.admission.matching import is_policy_kind
from steersman.apiserver.http.state import Api
from steersman.apiserver.resources.conversion_webhook import with_conversions
from steersman.apiserver.status_errors import StatusError

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.apiserver.admission.caller import WebhookCaller
    from steersman.apiserver.admission.chain import AdmissionOutcome, CallKey
    from steersman.apiserver.http.requests import Request
    from steersman.apiserver.http.state import Reply
    from steersman.apiserver.resources.conversion_webhook import ConversionKey, ConversionOutcome
    from steersman.apiserver.storage.watch import Watch

MAX_RETRIES = 100  # beside one attempt per call of a mutating webhook: the object changes faster than webhooks answer
_WRITES = {"create", "update", "patch", "delete", "deletecollection"}


class RequestApi(Api):
    """A server as one request sees it: the same objects, its own randomness, and a time that stands still."""

    def __init__(self, api: Api, *, seed: int, now: str) -> None:  # not those of a new server
        self.__dict__.update(api.__dict__)
        self.random = Random(seed)  # noqa: S311  names and uids, not secrets
        self.service_allocator = api.service_allocator.with_random(self.random)
        self._now = now

    def now(self) -> str:
        """When the request came."""
        return self._now


def is_reviewed(request: Request) -> bool:
    """Whether webhooks and policies may have a say in a request, given that some are configured."""
    return request.verb in _WRITES and not is_policy_kind(request.route.info.kind)


async def dispatch_converted(
    api: Api, request: Request, dispatch: Callable[[Api, Request], Reply | Watch], caller: WebhookCaller
) -> Reply | Watch:
    """Answer a read of objects that a webhook converts."""
    return await with_conversions(lambda: dispatch(api, request), caller.convert)


async def dispatch_reviewed(
    api: Api,
    request: Request,
    dispatch: Callable[[Api, Request], Reply | Watch],
    caller: WebhookCaller,
    annotations: dict[str, str],
) -> Reply | Watch:
    """Answer a write that webhooks may judge. `annotations` gets what they say for the audit log."""
    seed, now, said = api.random.getrandbits(64), api.now(), len(request.warnings)
    outcomes: dict[CallKey, AdmissionOutcome] = {}
    converted: dict[ConversionKey, ConversionOutcome] = {}

    def step() -> Reply | Watch:
        del request.warnings[said:]
        kind = request.route.info.kind
        if (info := api.registry.lookup(kind.group, kind.version, kind.plural)) is None:  # its definition is gone
            raise status_errors.resource_not_found()
        request.route = msgspec.structs.replace(request.route, info=info)
        scoped = RequestApi(api, seed=seed, now=now)
        scoped.admission = AdmissionChain(scoped, request, outcomes)
        try:
            return dispatch(scoped, request)
        finally:
            annotations.clear()
            annotations.update(scoped.admission.annotations)

    for _ in range(MAX_RETRIES + 2 * len(api.webhooks.mutating())):
        try:
            return await with_conversions(step, caller.convert, converted)
        except PendingCalls as pending:
            answers = await caller.review(pending.calls)
            outcomes |= {call.key: answer for call, answer in zip(pending.calls, answers, strict=True)}
    raise StatusError(504, "request did not complete within requested timeout", reason="Timeout")
