"""Conversions: known for one step, asked for together, checked before they are believed."""

from __future__ import annotations

import json
import re

import pytest

from steersman.apiserver.resources.conversion_webhook import (
    Conversion,
    WebhookConversion,
    converted,
    converted_objects,
    prepare,
    with_conversions,
)
from steersman.apiserver.status_errors import StatusError

WEBHOOK = WebhookConversion.from_wire(
    {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://a"}, "conversionReviewVersions": ["v1"]}}
)
assert WEBHOOK is not None


def rope(name="a", size=7, **metadata):
    return {"apiVersion": "g/v1", "kind": "Rope", "metadata": {"name": name, **metadata}, "spec": {"size": size}}


class Author:
    """Converts, and remembers how often it was asked."""

    def __init__(self):
        self.asked = []

    async def __call__(self, conversions):
        self.asked.append(len(conversions))
        return [{**item.object, "apiVersion": item.api_version} for item in conversions]


async def test_a_step_runs_again_until_everything_is_converted():
    author = Author()
    got = await with_conversions(lambda: [converted(WEBHOOK, rope(name), "g/v2") for name in "ab"], author)
    assert ([obj["apiVersion"] for obj in got], author.asked) == (["g/v2", "g/v2"], [1, 1])


async def test_prepared_objects_are_asked_for_in_one_call():
    author = Author()

    def step():
        prepare(WEBHOOK, [rope("a"), rope("b"), rope("b")], "g/v2")
        return [converted(WEBHOOK, rope(name), "g/v2") for name in "ab"]

    assert len(await with_conversions(step, author)) == 2
    assert author.asked == [2]


async def test_an_object_in_the_wanted_version_is_not_converted():
    author = Author()
    assert await with_conversions(lambda: converted(WEBHOOK, rope(), "g/v1"), author) == rope()
    assert author.asked == []


async def test_the_answer_holds_for_another_resource_version_and_keeps_it():
    author = Author()

    def step():
        converted(WEBHOOK, rope(resourceVersion="1"), "g/v2")
        return converted(WEBHOOK, rope(resourceVersion="2"), "g/v2")

    assert (await with_conversions(step, author))["metadata"]["resourceVersion"] == "2"
    assert author.asked == [1]


async def test_the_next_request_asks_again():
    author = Author()
    for _ in range(2):
        await with_conversions(lambda: converted(WEBHOOK, rope(), "g/v2"), author)
    assert author.asked == [1, 1]


async def test_a_failed_conversion_is_an_error_that_says_why():
    async def fail(conversions):
        return ["too long"]

    with pytest.raises(StatusError, match="conversion webhook for g/v1, Kind=Rope failed: too long"):
        await with_conversions(lambda: converted(WEBHOOK, rope(), "g/v2"), fail)


def review(**response):
    answer = {"uid": "1", "result": {"status": "Success"}, "convertedObjects": [rope() | {"apiVersion": "g/v2"}]}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": answer | response}
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"hello", "not a ConversionReview"),
        (b"{}", "expected webhook response of"),
        (review(uid="2"), "expected response.uid"),
        (review(result={"status": "Failure", "message": "too long"}), "too long"),
        (review(result=None), "not 'Success'"),
        (review(convertedObjects=[]), "returned 0 objects, expected 1"),
        (review(convertedObjects=[rope(), rope()]), "returned 2 objects, expected 1"),
    ],
)
def test_a_response_that_does_not_fit_the_request_is_refused(body, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        converted_objects(WEBHOOK, "1", [Conversion(WEBHOOK, rope(), "g/v2")], body)


@pytest.mark.parametrize(
    "change",
    [
        {"apiVersion": "g/v3"},
        {"kind": "Cable"},
        {"metadata": None},
        {"metadata": {"name": "b"}},
        {"metadata": {"name": "a", "labels": {"a": 1}}},
    ],
)
def test_an_object_that_is_not_the_one_that_was_sent_is_not_believed(change):
    body = review(convertedObjects=[rope() | {"apiVersion": "g/v2"} | change])
    [outcome] = converted_objects(WEBHOOK, "1", [Conversion(WEBHOOK, rope(), "g/v2")], body)
    assert isinstance(outcome, str)
