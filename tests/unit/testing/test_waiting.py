from __future__ import annotations

import pytest

from steersman.kube.api.errors import NotFound
from steersman.testing import eventually


def answers(*values):
    """A function that gives one value after the other; an exception is raised."""
    remaining = list(values)

    def ask():
        value = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        if isinstance(value, Exception):
            raise value
        return value

    return ask


async def test_the_first_true_answer_is_returned():
    assert await eventually(answers(0, "", None, "yes", "later")) == "yes"


async def test_an_async_fact_is_awaited():
    ask = answers(None, 7)

    async def fact() -> int | None:
        return ask()

    assert await eventually(fact) == 7


@pytest.mark.parametrize("failure", [AssertionError("not yet"), NotFound("pods web")])
async def test_a_failed_assertion_and_an_api_error_mean_not_yet(failure):
    assert await eventually(answers(failure, failure, True))


async def test_any_other_error_ends_the_wait_at_once():
    with pytest.raises(ZeroDivisionError):
        await eventually(answers(ZeroDivisionError(), True))


async def test_a_fact_that_never_comes_fails_with_what_was_seen_last():
    with pytest.raises(AssertionError, match=r"not true within 0\.05 s: three pods; the last answer was \[\]"):
        await eventually(answers([]), "three pods", timeout=0.05)
    with pytest.raises(AssertionError, match=r"the last attempt failed: AssertionError: only two"):
        await eventually(answers(AssertionError("only two")), timeout=0.05)


async def test_a_lambda_without_a_description_shows_its_source():
    pods = []
    with pytest.raises(AssertionError, match=r"eventually\(lambda: len\(pods\) == 3"):
        await eventually(lambda: len(pods) == 3, timeout=0.05)


async def test_a_function_without_a_description_shows_its_name():
    def all_pods_are_ready() -> bool:
        return False

    with pytest.raises(AssertionError, match="not true within 0 s: all_pods_are_ready"):
        await eventually(all_pods_are_ready, timeout=0)
