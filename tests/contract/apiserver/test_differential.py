"""A few hundred random sequences of requests, sent to the embedded and to the real server.

`STEERSMAN_FUZZ_SEED` and `STEERSMAN_FUZZ_SEQUENCES` choose which and how many; the seed is part of every failure.
Any number by hand: `python -m tests.support.differential --sequences 5000`.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, seed, settings

from steersman.testing.raw_api import RawApi, ssl_context
from tests.support.differential import Difference, Duel, Step
from tests.support.differential.normalize import Normalizer
from tests.support.differential.topics import sequences_about
from tests.support.webhooks import WebhookStub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from steersman.testing.raw_api import ApiServer

SEED = int(os.environ.get("STEERSMAN_FUZZ_SEED", "20260"))
SEQUENCES = int(os.environ.get("STEERSMAN_FUZZ_SEQUENCES", "300"))
PARTS = 4  # so that workers share the sequences

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
async def duel(real: ApiServer, embedded: ApiServer) -> AsyncIterator[Duel]:
    one, two = (
        RawApi(server.url, token=server.token, ssl_context=ssl_context(server.ca_pem), user_agent="differential")
        for server in (real, embedded)
    )
    async with one, two, WebhookStub() as stub:
        duel = Duel(one, two, stub)
        await duel.prepare()
        yield duel


def random_sequences(
    part: int, topic: str = "general", *, count: int = SEQUENCES // PARTS
) -> Callable[..., Awaitable[None]]:
    """One share of the sequences, with its own seed, so that workers can run shares at the same time."""

    @pytest.mark.timeout(900)  # a failure is made small before it is shown
    @seed(SEED + part)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(steps=sequences_about(topic))
    async def test(duel: Duel, steps: list[Step]) -> None:
        try:
            await duel.fight(steps, f"fuzz-{part}-{next(_numbers)}")
        except Difference as difference:
            difference.add_note(f"STEERSMAN_FUZZ_SEED={SEED}, part {part}")
            raise

    return test


test_random_sequences_are_answered_alike_1 = random_sequences(1)
test_random_sequences_are_answered_alike_2 = random_sequences(2)
test_random_sequences_are_answered_alike_3 = random_sequences(3)
test_random_sequences_are_answered_alike_4 = random_sequences(4)
test_random_sequences_in_several_versions_are_answered_alike = random_sequences(5, "versions", count=25)
test_random_scales_are_answered_alike = random_sequences(6, "scales", count=25)
test_random_evictions_are_answered_alike = random_sequences(7, "evictions", count=25)
test_random_sequences_within_a_quota_are_answered_alike = random_sequences(8, "quotas", count=10)
test_random_owners_leave_the_same_behind = random_sequences(9, "owners", count=10)
test_random_sequences_with_webhooks_are_asked_about_and_answered_alike = random_sequences(10, "webhooks", count=25)


# What the comparison itself must see and must not see


def seen(*bodies: Any) -> list[Any]:
    """One server's answers, as they are compared."""
    normalizer = Normalizer()
    return [normalizer.answer(200, body) for body in bodies]


def live(revision: str, uid: str = "00000000-0000-0000-0000-000000000001", **data: str) -> dict[str, Any]:
    return {"kind": "ConfigMap", "metadata": {"name": "a", "uid": uid, "resourceVersion": revision}, "data": data}


def test_two_histories_of_the_same_shape_look_alike():
    assert seen(live("5"), live("5"), live("9")) == seen(live("70"), live("70"), live("71"))


def test_a_write_that_should_have_changed_nothing_is_seen():
    assert seen(live("5"), live("5")) != seen(live("5"), live("6"))


def test_another_value_is_seen():
    assert seen(live("5", k="1")) != seen(live("5", k="2"))


def test_another_identity_is_seen():
    other = "00000000-0000-0000-0000-000000000002"
    assert seen(live("5"), live("6")) != seen(live("5"), live("6", uid=other))


def test_the_order_of_managers_does_not_matter_but_what_they_own_does():
    def owned(*entries: tuple[str, str]) -> dict[str, Any]:
        fields = [{"manager": name, "operation": "Apply", "fieldsV1": {field: {}}} for name, field in entries]
        return {"kind": "ConfigMap", "metadata": {"name": "a", "managedFields": fields}}

    assert seen(owned(("x", "f:a"), ("y", "f:b"))) == seen(owned(("y", "f:b"), ("x", "f:a")))
    assert seen(owned(("x", "f:a"))) != seen(owned(("x", "f:b")))


def test_the_message_of_a_refusal_does_not_matter_but_its_code_reason_and_fields_do():
    def refused(message: str = "no", *, code: int = 422, field: str = "spec.a") -> dict[str, Any]:
        causes = [{"reason": "FieldValueInvalid", "field": field, "message": message}]
        return {"kind": "Status", "message": message, "reason": "Invalid", "code": code, "details": {"causes": causes}}

    assert seen(refused("no")) == seen(refused("never"))
    assert seen(refused()) != seen(refused(code=400))
    assert seen(refused()) != seen(refused(field="spec.b"))
