"""What an answer of a webhook means."""

from __future__ import annotations

import json

import pytest

from steersman.apiserver.admission.review import AdmissionAnswer, InvalidAnswer, denial, patched, verified
from tests.support.webhooks import admission_webhook as webhook
from tests.support.webhooks import allowed, denied, patch


def review(response, *, version="v1", **fields):
    body = {"apiVersion": f"admission.k8s.io/{version}", "kind": "AdmissionReview", "response": response}
    return json.dumps(body | fields).encode()


MUTATING = webhook(mutating=True, admissionReviewVersions=["v9", "v1"])
VALIDATING = webhook()
BETA = webhook(admissionReviewVersions=["v1beta1", "v1"])
ADD = {"op": "add", "path": "/a", "value": 1}


def test_the_first_review_version_that_the_server_knows_is_used():
    assert (MUTATING.review_version, BETA.review_version) == ("v1", "v1beta1")


def test_an_answer_carries_patch_warnings_and_annotations():
    body = review(patch(ADD, uid="1", warnings=["careful"], auditAnnotations={"key": "value"}))
    answer = verified(MUTATING, "1", body)
    assert answer == AdmissionAnswer(True, [ADD], None, ("careful",), {"key": "value"})


@pytest.mark.parametrize(
    ("hook", "body"),
    [
        (MUTATING, b"hello"),
        (MUTATING, b"\xff"),
        (MUTATING, b"[]"),
        (MUTATING, review(None)),
        (MUTATING, review(allowed(uid="2"))),
        (MUTATING, review(allowed(uid="1"), kind="Status")),
        (MUTATING, review(allowed(uid="1"), version="v1beta1")),
        (MUTATING, review(patch(ADD, uid="1") | {"patchType": None})),
        (MUTATING, review(allowed(uid="1", patchType="JSONPatch"))),
        (MUTATING, review(patch(ADD, uid="1") | {"patchType": "Merge"})),
        (MUTATING, review(allowed(uid="1", patch="e30=", patchType="JSONPatch"))),
        (VALIDATING, review(patch(ADD, uid="1"))),
        (VALIDATING, review(allowed(uid="1", patchType="JSONPatch"))),
    ],
)
def test_what_is_not_a_valid_answer_to_the_question_is_refused(hook, body):
    with pytest.raises(InvalidAnswer):
        verified(hook, "1", body)


def test_the_old_review_version_is_not_checked_as_strictly():
    assert verified(BETA, "1", review(allowed(uid="2"), version="v1beta1")).allowed


@pytest.mark.parametrize(
    "operation", [{"op": "remove", "path": "/b"}, {"op": "x"}, {"op": "replace", "path": "", "value": 1}]
)
def test_a_patch_that_does_not_fit_is_an_error(operation):
    with pytest.raises(ValueError, match=r"a\.example\.org"):
        patched(MUTATING, {"a": 1}, [operation])


def test_nothing_can_be_patched_on_delete():
    with pytest.raises(ValueError, match="not supported for this operation"):
        patched(MUTATING, None, [ADD])


def test_a_refusal_never_looks_like_success():
    answer = verified(VALIDATING, "1", review(denied("no", code=200, status="Success") | {"uid": "1"}))
    error = denial(VALIDATING, answer)
    assert (error.code, error.status()["status"]) == (400, "Failure")


def test_a_refusal_keeps_details_and_says_when_to_retry():
    details = {"retryAfterSeconds": 7, "causes": [{"field": "spec"}], "invented": 1}
    error = denial(VALIDATING, AdmissionAnswer(False, status={"code": 429, "details": details}))
    assert error.details == {"causes": [{"field": "spec"}], "retryAfterSeconds": 7}
    assert error.headers == {"Retry-After": "7"}
