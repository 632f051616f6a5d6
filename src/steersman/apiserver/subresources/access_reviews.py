"""Access reviews, token reviews, and tokens for service accounts.

Access reviews answer what the authorizer of the server decides about requests; on a server without one, authenticated
users may do everything. Tokens are random, valid until they expire, and authenticate their service account.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver import status_errors
from steersman.apiserver.authorization.escalation import FULL_AUTHORITY
from steersman.apiserver.authorization.request_attributes import RequestAttributes
from steersman.apiserver.http.authenticator import AUDIENCE
from steersman.apiserver.http.requests import WriteOptions
from steersman.apiserver.http.state import Reply, timestamp
from steersman.apiserver.resources.kinds import TOKEN
from steersman.apiserver.storage.reads import find
from steersman.apiserver.validation import field_errors
from steersman.apiserver.write.admission import reviewed
from steersman.apiserver.write.decoding import body_object, subresource_object, typed_object
from steersman.kube.api.gvk import Kind
from steersman.kube.api.types.authorization import UserInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.apiserver.http.requests import Request
    from steersman.apiserver.http.state import Api
    from steersman.kube.api.errors import Cause

JSON = dict[str, Any]
_encode = msgspec.json.Encoder().encode
SHORTEST, LONGEST = 600, 1 << 32  # seconds a token may live


def review(api: Api, request: Request) -> Reply:
    """POST of a review: answered at once, stored nowhere."""
    info = request.route.info
    options = WriteOptions.parse(request, "CreateOptions")
    body, duplicates = body_object(request, info.kind)
    body = {**body, "apiVersion": info.kind.api_version, "kind": info.kind.kind}
    obj = typed_object(info, body, validation=options.validation, warnings=request.warnings, duplicates=duplicates)
    obj = reviewed(api, obj, None, dry_run=options.dry_run)
    answered = _ANSWERS[info.kind.kind](api, request, obj)
    return Reply(201, _encode(answered) + b"\n")


def _token_review(api: Api, request: Request, obj: JSON) -> JSON:  # noqa: ARG001  every answer has the same shape
    token = obj["spec"].get("token", "")
    if not token:
        raise status_errors.bad_request("token is required for TokenReview in authentication")
    found = api.authenticator.user(token, obj["spec"].get("audiences") or [AUDIENCE])
    if found is None:
        return {**obj, "status": {"user": {}, "error": "invalid bearer token"}}
    user, audiences = found
    return {**obj, "status": {"authenticated": True, "user": api.authenticator.info(user), "audiences": audiences}}


def _self_review(api: Api, request: Request, obj: JSON) -> JSON:
    metadata = {**obj.get("metadata", {}), "creationTimestamp": api.now()}
    return {**obj, "metadata": metadata, "status": {"userInfo": api.authenticator.info(request.user)}}


def _self_access_review(api: Api, request: Request, obj: JSON) -> JSON:
    return _reviewed(api, obj, request.user, _access_causes(obj["spec"]))


def _access_review(api: Api, request: Request, obj: JSON) -> JSON:  # noqa: ARG001
    return _reviewed(api, obj, _reviewed_user(obj["spec"]), _access_causes(obj["spec"]) + _user_causes(obj["spec"]))


def _local_access_review(api: Api, request: Request, obj: JSON) -> JSON:
    spec, namespace = obj["spec"], request.route.namespace
    causes = _access_causes(spec) + _user_causes(spec)
    asked = (spec.get("resourceAttributes") or {}).get("namespace", "")
    if "nonResourceAttributes" in spec:
        why = "disallowed on this kind of request"
        causes.append(field_errors.invalid("spec.nonResourceAttributes", spec["nonResourceAttributes"], why))
    elif asked != namespace:
        path = "spec.resourceAttributes.namespace"
        causes.append(field_errors.invalid(path, asked, "must match metadata.namespace"))
    return _reviewed(api, obj, _reviewed_user(spec), causes)


def _access_causes(spec: JSON) -> list[Cause]:
    if ("resourceAttributes" in spec) != ("nonResourceAttributes" in spec):
        return []
    why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
    return [field_errors.invalid("spec.resourceAttributes", spec.get("resourceAttributes"), why)]


def _user_causes(spec: JSON) -> list[Cause]:
    if spec.get("user") or spec.get("groups"):
        return []
    return [field_errors.invalid("spec.user", "", "at least one of user or group must be specified")]


def _reviewed_user(spec: JSON) -> UserInfo:
    """The user that a review is about, exactly as it says: no group is implied."""
    return UserInfo(username=spec.get("user", ""), groups=spec.get("groups") or ())


def _reviewed(api: Api, obj: JSON, user: UserInfo, causes: list[Cause]) -> JSON:
    if causes:
        group = obj["apiVersion"].partition("/")[0]
        raise status_errors.invalid(Kind(group=group, version="v1", kind="", plural=""), "", causes)
    if api.authorizer is None:
        return {**obj, "status": {"allowed": True}}
    decision = api.authorizer.authorize(user, _asked(obj["spec"]))
    reason = {"reason": decision.reason} if decision.reason else {}
    return {**obj, "status": {"allowed": decision.allowed, **reason}}


def _asked(spec: JSON) -> RequestAttributes:
    if (page := spec.get("nonResourceAttributes")) is not None:
        return RequestAttributes(verb=page.get("verb", ""), path=page.get("path", ""))
    asked = spec["resourceAttributes"]
    fields = ("verb", "group", "resource", "subresource", "namespace", "name")
    return RequestAttributes(**{field: asked.get(field, "") for field in fields})


def _rules_review(api: Api, request: Request, obj: JSON) -> JSON:
    namespace = obj["spec"].get("namespace", "")
    if not namespace:
        raise status_errors.bad_request("no namespace on request")
    if api.authorizer is None:
        rules, missing = list(FULL_AUTHORITY), ""
    else:
        rules, missing = api.authorizer.policy.rules_for(request.user, namespace)
    shown: list[JSON] = [msgspec.to_builtins(rule) for rule in rules]
    status = {
        "resourceRules": [_without(rule, "nonResourceURLs") for rule in shown if "resources" in rule],
        "nonResourceRules": [_without(rule, "apiGroups") for rule in shown if "nonResourceURLs" in rule],
        "incomplete": bool(missing),
        **({"evaluationError": missing} if missing else {}),
    }
    return {**obj, "spec": {}, "status": status}


def _without(rule: JSON, field: str) -> JSON:
    return {key: value for key, value in rule.items() if key != field}


_ANSWERS: dict[str, Callable[[Api, Request, JSON], JSON]] = {
    "TokenReview": _token_review,
    "SelfSubjectReview": _self_review,
    "SelfSubjectAccessReview": _self_access_review,
    "SubjectAccessReview": _access_review,
    "LocalSubjectAccessReview": _local_access_review,
    "SelfSubjectRulesReview": _rules_review,
}


def issue_token(api: Api, request: Request) -> Reply:
    """POST of a TokenRequest for a service account."""
    route = request.route
    options = WriteOptions.parse(request, "CreateOptions")
    body = subresource_object(request, TOKEN, options.validation)
    spec = reviewed(api, body, None, dry_run=options.dry_run)["spec"]
    seconds = spec["expirationSeconds"]
    account = find(api, route.info, route.namespace, route.name).obj["metadata"]
    if not SHORTEST <= seconds <= LONGEST:
        limit = "less than 10 minutes" if seconds < SHORTEST else "larger than 2^32 seconds"
        cause = field_errors.invalid("spec.expirationSeconds", seconds, f"may not specify a duration {limit}")
        raise status_errors.invalid(TOKEN, "", [cause])
    now = api.clock.time()
    token, audiences = secrets.token_urlsafe(32), spec.get("audiences") or [AUDIENCE]
    api.authenticator.add_service_account(
        token, route.namespace, route.name, uid=account["uid"], expires=now + seconds, audiences=audiences
    )
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
            "audiences": audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": spec.get("boundObjectRef"),
        },
        "status": {"token": token, "expirationTimestamp": timestamp(now + seconds)},
    }
    return Reply(201, _encode(answer) + b"\n")
