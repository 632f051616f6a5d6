"""Webhooks that both servers ask about objects with a label, and what each server asked.

The value of the label `hooked` is the answer: a patch, a warning, a refusal or a failure. It depends on the request
alone, so the two servers must ask the same and do the same with what they hear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.support.differential.steps import GROUP, HOOKED
from tests.support.manifests import Space
from tests.support.webhooks import WebhookStub, allowed, denied, patch, rule

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi

__all__ = ["ANSWERS", "Hooks"]

_RULES = [
    rule("configmaps", "secrets", "services"),
    rule("leases", group="coordination.k8s.io"),
    rule("deployments", "deployments/scale", "deployments/status", group="apps"),
    rule("widgets", "widgets/scale", "widgets/status", group=GROUP),
]
_LABEL = f"/metadata/labels/{HOOKED}"
_ASKED = ("operation", "kind", "resource", "subResource", "requestKind", "name", "namespace", "dryRun", "options")


class Hooks:
    """The webhooks of one server."""

    def __init__(self, stub: WebhookStub, side: str) -> None:
        self._stub = stub
        self._paths = {role: f"/{side}/{role}" for role in ("mutate", "again", "validate")}
        self._seen = dict.fromkeys(self._paths, 0)

    async def configure(self, api: RawApi) -> None:
        """Have the server ask."""
        here = {
            "objectSelector": {"matchExpressions": [{"key": HOOKED, "operator": "Exists"}]},
            "namespaceSelector": {},
        }
        for role, path in self._paths.items():
            self._stub.on(path, lambda request, role=role: _answer(role, request))
        mutate, again, validate = (self._stub.webhook(path, *_RULES, **here) for path in self._paths.values())
        mutate["reinvocationPolicy"] = "IfNeeded"
        again["failurePolicy"] = "Ignore"
        await self._stub.configure(api, Space("default"), mutating=[mutate, again], validating=[validate])

    def asked(self) -> list[tuple[str, dict[str, Any]]]:
        """The requests since the last call, by role."""
        found = []
        for role, path in self._paths.items():
            requests = self._stub.asked(path)
            found += [(role, request) for request in requests[self._seen[role] :]]
            self._seen[role] = len(requests)
        return found


def reviewed(request: dict[str, Any]) -> dict[str, Any]:
    """What of a request is compared, apart from the objects."""
    return {key: request.get(key) for key in _ASKED}


def _answer(role: str, request: dict[str, Any]) -> Any:
    obj = request["object"] or request["oldObject"] or {}
    wanted = ((obj.get("metadata") or {}).get("labels") or {}).get(HOOKED, "")
    answer = ANSWERS.get(wanted, {}).get(role)
    return answer(request) if answer is not None else allowed()


def _annotate(request: dict[str, Any]) -> Any:
    path = "/metadata/annotations"
    known = ((request["object"] or {}).get("metadata") or {}).get("annotations") or {}
    return patch({"op": "add", "path": path, "value": known | {HOOKED: request["operation"]}})


ANSWERS: dict[str, dict[str, Any]] = {
    "annotate": {"mutate": _annotate, "again": lambda _: allowed(warnings=["asked"])},
    "relabel": {"again": lambda _: patch({"op": "replace", "path": _LABEL, "value": "annotate"})},
    "spoil": {"mutate": lambda _: patch({"op": "replace", "path": _LABEL, "value": "not a label"})},
    "broken": {"mutate": lambda _: patch({"op": "replace", "path": "/metadata/nowhere/x", "value": "1"})},
    "warn": {"validate": lambda _: allowed(warnings=["careful"]), "mutate": lambda _: allowed(warnings=["first"])},
    "deny": {"validate": lambda _: denied("no")},
    "invalid": {
        "validate": lambda _: denied(
            "no", code=422, reason="Invalid", details={"causes": [{"field": "spec", "reason": "FieldValueInvalid"}]}
        )
    },
    "fail": {"validate": lambda _: web.Response(status=500)},
    "ignored": {"again": lambda _: web.Response(status=500)},
    "refuse": {"mutate": lambda _: denied(code=409, reason="Conflict")},
}
