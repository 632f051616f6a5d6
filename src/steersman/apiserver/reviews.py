"""Questions about who one is and what one may do, and tokens for service accounts.

There is no RBAC here: whoever is known may do everything, so access reviews say yes to the users the server knows and
to everyone else they are asked about. Tokens are random, remembered until they expire, and stand for their account.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver import statuses
from steersman.apiserver.api import Reply, timestamp
from steersman.apiserver.decoding import body_object
from steersman.apiserver.intake import fit
from steersman.apiserver.kinds import TOKEN
from steersman.apiserver.reads import find
from steersman.apiserver.requests import WriteOptions
from steersman.kube.errors import Cause
from steersman.kube.resources import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.apiserver.api import Api
    from steersman.apiserver.requests import Request

__all__ = ["issue_token", "review"]

JSON = dict[str, Any]
_encode = msgspec.json.Encoder().encode
AUDIENCE = "https://kubernetes.default.svc"
SHORTEST, LONGEST = 600, 1 << 32  # seconds a token may live


def review(api: Api, request: Request) -> Reply:
    """POST of a review: answered at once, stored nowhere."""
    info = request.route.info
    options = WriteOptions.parse(request, "CreateOptions")
    body, duplicates = body_object(api.registry, request, info.kind)
    body = {**body, "apiVersion": info.kind.api_version, "kind": info.kind.kind}
    obj = fit(info, body, validation=options.validation, warnings=request.warnings, duplicates=duplicates)
    answered = _ANSWERS[info.kind.kind](api, request, obj)
    return Reply(201, _encode(answered) + b"\n")


def _token_review(api: Api, request: Request, obj: JSON) -> JSON:  # noqa: ARG001  every answer has the same shape
    token = obj["spec"].get("token", "")
    if not token:
        raise statuses.bad_request("token is required for TokenReview in authentication")
    user = api.identities.user(token)
    if user is None:
        return {**obj, "status": {"user": {}, "error": "invalid bearer token"}}
    return {**obj, "status": {"authenticated": True, "user": api.identities.info(user), "audiences": [AUDIENCE]}}


def _self_review(api: Api, request: Request, obj: JSON) -> JSON:
    metadata = {**obj.get("metadata", {}), "creationTimestamp": api.now()}
    return {**obj, "metadata": metadata, "status": {"userInfo": api.identities.info(request.user)}}


def _access_review(api: Api, request: Request, obj: JSON) -> JSON:  # noqa: ARG001
    spec = obj["spec"]
    if ("resourceAttributes" in spec) == ("nonResourceAttributes" in spec):
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        shown = "null" if "resourceAttributes" not in spec else _encode(spec["resourceAttributes"]).decode()
        nameless = Kind(group=request.route.info.kind.group, version="v1", kind="", plural="")
        field = "spec.resourceAttributes"
        raise statuses.invalid(nameless, "", [Cause("FieldValueInvalid", f"Invalid value: {shown}: {why}", field)])
    return {**obj, "status": {"allowed": True}}


def _rules_review(api: Api, request: Request, obj: JSON) -> JSON:  # noqa: ARG001
    return {
        **obj,
        "spec": {},
        "status": {
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": False,
        },
    }


_ANSWERS: dict[str, Callable[[Api, Request, JSON], JSON]] = {
    "TokenReview": _token_review,
    "SelfSubjectReview": _self_review,
    "SelfSubjectAccessReview": _access_review,
    "SubjectAccessReview": _access_review,
    "LocalSubjectAccessReview": _access_review,
    "SelfSubjectRulesReview": _rules_review,
}


def issue_token(api: Api, request: Request) -> Reply:
    """POST of a TokenRequest for a service account."""
    route = request.route
    body, _ = body_object(api.registry, request, TOKEN)
    spec = body.get("spec") or {}
    seconds = spec.get("expirationSeconds") or 3600
    account = find(api, route.info, route.namespace, route.name).obj["metadata"]
    if not SHORTEST <= seconds <= LONGEST:
        limit = "less than 10 minutes" if seconds < SHORTEST else "larger than 2^32 seconds"
        why = f"Invalid value: {seconds}: may not specify a duration {limit}"
        raise statuses.invalid(TOKEN, "", [Cause("FieldValueInvalid", why, "spec.expirationSeconds")])
    now = api.clock.time()
    token = secrets.token_urlsafe(32)
    api.identities.add(token, f"system:serviceaccount:{route.namespace}:{route.name}", expires=now + seconds)
    answer = {
        "kind": TOKEN.kind,
        "apiVersion": TOKEN.api_version,
        "metadata": {
            "name": route.name,
            "namespace": route.namespace,
            "uid": account["uid"],
            "creationTimestamp": timestamp(now),
        },
        "spec": {
            "audiences": spec.get("audiences") or [AUDIENCE],
            "expirationSeconds": seconds,
            "boundObjectRef": spec.get("boundObjectRef"),
        },
        "status": {"token": token, "expirationTimestamp": timestamp(now + seconds)},
    }
    return Reply(201, _encode(answer) + b"\n")
