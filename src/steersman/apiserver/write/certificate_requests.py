"""CertificateSigningRequests: who asks is who wrote it, and each part of the status has a writer of its own.

The requester is the authenticated user, whatever the body says. `approval` writes the conditions and `status` the
certificate; neither can write what belongs to the other, and the spec never changes. Pure.
"""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]
REQUESTS = "certificatesigningrequests.certificates.k8s.io"
_REQUESTER = ("username", "uid", "groups", "extra")
_DECISIONS = ("Approved", "Denied")


def requested_by(request: JSON, user: JSON) -> JSON:
    """A new request of `user`, which is written as `UserInfo`."""
    spec = {key: value for key, value in request.get("spec", {}).items() if key not in _REQUESTER}
    return {**request, "spec": {**spec, **{key: user[key] for key in _REQUESTER if user.get(key)}}}


def approved(request: JSON, old: JSON, now: str) -> JSON:
    """What a write of `approval` stores: the conditions are new, everything else is as it was."""
    status = {key: value for key, value in (old.get("status") or {}).items() if key != "conditions"}
    if conditions := _timed(request, old, now):
        status = {"conditions": conditions, **status}
    return {**request, "spec": old["spec"], "status": status}


def with_status(request: JSON, old: JSON, now: str) -> JSON:
    """What a write of `status` stores: decisions that are there on both sides stay as they were."""
    conditions = _conditions(request)
    for decision in _DECISIONS:
        before = [known for known in _conditions(old) if known["type"] == decision]
        places = [at for at, condition in enumerate(conditions) if condition["type"] == decision]
        if len(before) == len(places):
            for at, known in zip(places, before, strict=True):
                conditions[at] = known
    status = {key: value for key, value in (request.get("status") or {}).items() if key != "conditions"}
    if conditions:
        status = {"conditions": _timed({"status": {"conditions": conditions}}, old, now), **status}
    return {**request, "status": status}


def _conditions(request: JSON) -> list[JSON]:
    return list((request.get("status") or {}).get("conditions") or ())


def _timed(request: JSON, old: JSON, now: str) -> list[JSON]:
    """The conditions with the times that the writer left out."""
    since = {(known["type"], known["status"]): known.get("lastTransitionTime") for known in reversed(_conditions(old))}
    return [
        {
            **condition,
            "lastUpdateTime": condition.get("lastUpdateTime") or now,
            "lastTransitionTime": condition.get("lastTransitionTime")
            or since.get((condition["type"], condition["status"]))
            or now,
        }
        for condition in _conditions(request)
    ]
