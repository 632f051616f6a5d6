"""The reflector's next step, rule by rule."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.cache.progress import (
    PAGE,
    REFUSED_LIMIT,
    SELDOM_LIMIT,
    SINGLE_LIMIT,
    Ended,
    Failed,
    List,
    Listed,
    Progress,
    StaleWatch,
    Stream,
    Watch,
    advance,
    first_step,
)
from steersman.kube.errors import (
    BadResponse,
    Cause,
    ConnectionFailed,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    RequestTimeout,
    ServerError,
    Timeout,
    TooManyRequests,
    Unavailable,
)

TOO_LARGE = Timeout("too large", causes=(Cause(reason="ResourceVersionTooLarge"),))
LISTING = Progress(streaming=False)


def step_after(outcome, *, step=None, progress=None, now=1000.0):
    progress = progress or Progress(revision="7")
    return advance(progress, step or Watch(progress.revision), outcome, now=now, random=random.Random(1))


# -- the revision ladder ---------------------------------------------------------------------------------------------


def test_the_first_list_takes_what_the_server_has_at_hand():
    assert first_step(LISTING) == List("0", limit=PAGE)


def test_a_relist_is_at_least_as_fresh_as_what_was_seen_and_is_not_paged():
    assert first_step(Progress(revision="7", streaming=False)) == List("7", limit=0)


def test_a_relist_goes_on_paging_when_the_server_has_no_watch_cache():
    progress, _ = step_after(Listed("5", pages=3), step=List("0"), progress=LISTING)
    assert first_step(progress) == List("5", limit=PAGE)


def test_a_list_in_one_page_does_not_mean_that_the_server_pages():
    progress, _ = step_after(Listed("5", pages=1), step=List("0"), progress=LISTING)
    assert not progress.paged


@pytest.mark.parametrize("error", [Gone("expired"), TOO_LARGE], ids=["expired", "too large"])
@pytest.mark.parametrize("streaming", [True, False])
def test_a_list_whose_revision_is_refused_is_repeated_at_once_with_the_most_recent(error, streaming):
    known = Progress(revision="7", streaming=streaming)
    progress, step = step_after(Failed(error), step=first_step(known), progress=known)
    assert step.revision == ""
    assert step.after == 0
    assert isinstance(step, Stream if streaming else List)
    assert progress.unavailable


def test_a_refused_most_recent_list_waits_instead_of_spinning():
    known = Progress(revision="7", unavailable=True, streaming=False)
    _, step = step_after(Failed(Gone("expired")), step=List(""), progress=known)
    assert step == List("", after=step.after)
    assert step.after > 0


def test_a_complete_list_makes_the_last_revision_usable_again():
    progress, step = step_after(Listed("9"), step=List(""), progress=Progress(revision="7", unavailable=True))
    assert (progress.revision, progress.unavailable) == ("9", False)
    assert step == Watch("9")


# -- streaming -------------------------------------------------------------------------------------------------------


def test_the_initial_state_is_streamed_when_nobody_has_said_otherwise():
    assert first_step(Progress()) == Stream("")


def test_an_unsupported_stream_falls_back_to_lists_for_good():
    progress, step = step_after(Failed(Invalid("sendInitialEvents is forbidden")), step=Stream(""), progress=Progress())
    assert step == List("0")
    progress, _ = step_after(Failed(Gone("x"), events=1, synced=True), step=Watch("9"), progress=progress)
    assert not progress.streaming


def test_a_stream_that_ends_before_it_is_complete_starts_over_after_a_while():
    _, step = step_after(Ended("", events=4, seconds=9, synced=False), step=Stream(""), progress=Progress())
    assert isinstance(step, Stream)
    assert step.after > 0


def test_a_complete_stream_that_ends_is_continued_by_a_watch():
    progress, step = step_after(Ended("12", events=4, seconds=9), step=Stream(""), progress=Progress())
    assert step == Watch("12")
    assert progress.revision == "12"


# -- watching --------------------------------------------------------------------------------------------------------


def test_a_watch_that_ends_regularly_is_continued_at_once_from_its_last_event():
    _, step = step_after(Ended("31", events=3, seconds=300))
    assert step == Watch("31")


def test_a_quiet_watch_that_ran_its_time_is_no_failure():
    progress, step = step_after(Ended("7", events=0, seconds=300))
    assert step == Watch("7")
    assert progress.failures == 0


def test_a_very_short_watch_without_events_is_a_failure():
    progress, step = step_after(Ended("7", events=0, seconds=0.2))
    assert step.after > 0
    assert progress.failures == 1


def test_an_expired_watch_lists_from_the_last_revision():
    _, step = step_after(Failed(Gone("too old"), "31", events=3), progress=Progress(revision="7", streaming=False))
    assert step == List("31", limit=0)


def test_a_watch_that_expires_at_once_again_and_again_does_not_spin():
    progress, step = step_after(Failed(Gone("too old"), "7"))
    first = step.after
    _, step = step_after(Failed(Gone("too old"), "7"), progress=progress)
    assert 0 < first < step.after


@pytest.mark.parametrize("error", [ConnectionFailed("refused"), TooManyRequests("slow down")], ids=["refused", "429"])
def test_a_server_that_is_busy_or_away_is_watched_again_without_a_list(error):
    for _ in range(40):
        _, step = step_after(Failed(error, "7"))
        assert isinstance(step, Watch)
        assert step.revision == "7"
        assert step.after > 0


def test_retry_after_is_honoured():
    _, step = step_after(Failed(TooManyRequests("slow down", retry_after=77), "7"))
    assert step.after >= 77


@pytest.mark.parametrize(
    "error",
    [ServerError("boom"), Unavailable("x"), RequestTimeout("x"), BadResponse("html")],
    ids=["500", "503", "timeout", "not kubernetes"],
)
def test_a_failing_watch_is_retried_and_only_a_lasting_failure_lists_anew(error):
    progress, kinds = Progress(revision="7"), []
    for _ in range(5):
        progress, step = step_after(Failed(error, "7"), progress=progress)
        kinds.append(type(step))
    assert kinds == [Watch, Watch, Watch, Watch, Stream]


def test_an_event_restores_confidence_in_the_revision():
    progress = Progress(revision="7", doubts=4)
    progress, step = step_after(Failed(ServerError("boom"), "8", events=1), progress=progress)
    assert isinstance(step, Watch)
    assert progress.doubts == 1


def test_a_silent_connection_is_replaced_at_once():
    _, step = step_after(Failed(StaleWatch("silence"), "7"))
    assert step == Watch("7")


@pytest.mark.parametrize("error", [Forbidden("no"), NotFound("no such kind")])
def test_a_refusal_is_asked_again_with_growing_delays(error):
    progress, delays = Progress(), []
    for number in range(8):
        progress, step = step_after(Failed(error), step=first_step(progress), progress=progress, now=1000.0 + number)
        delays.append(step.after)
    assert delays[0] < 2
    assert 6 <= delays[-1] <= 12  # somebody may be about to install the kind or grant the right


def test_who_may_list_but_not_watch_lists_from_time_to_time():
    progress, step = step_after(Failed(Forbidden("no watch")), step=first_step(Progress()), progress=Progress())
    assert step == List("0")
    progress, step = step_after(Listed("7"), step=step, progress=progress)
    assert step == Watch("7")
    _, step = step_after(Failed(Forbidden("no watch", code=403), "7"), step=step, progress=progress)
    assert isinstance(step, List)
    assert step.after > 0


@pytest.mark.parametrize("limit", [REFUSED_LIMIT, SELDOM_LIMIT, SINGLE_LIMIT])
@pytest.mark.parametrize("error", [NotFound("x"), Forbidden("x")])
def test_what_is_missing_or_refused_is_asked_for_as_seldom_as_somebody_can_wait(limit, error):
    progress, now, waits = Progress(streaming=False, refused_limit=limit), 1000.0, []
    step = List("0")
    for _ in range(40):
        progress, step = step_after(Failed(error), step=step, progress=progress, now=now)
        waits += [step.after] if step.after else []  # a refused stream is followed by a list at once
        now += step.after
    assert all(limit <= wait <= 2 * limit for wait in waits[10:])  # and a long wait is no quiet time


def test_backoff_starts_over_after_a_quiet_time():
    progress = Progress(revision="7", failures=9, failed_at=1000.0)
    _, early = step_after(Failed(ConnectionFailed("x"), "7"), progress=progress, now=1119.0)
    _, late = step_after(Failed(ConnectionFailed("x"), "7"), progress=progress, now=1121.0)
    assert early.after >= 30
    assert late.after < 2


errors = st.sampled_from(
    [
        Gone("x"),
        TOO_LARGE,
        Forbidden("x"),
        NotFound("x"),
        ServerError("x"),
        ConnectionFailed("x"),
        TooManyRequests("x"),
        RequestTimeout("x"),
        BadResponse("x"),
        StaleWatch("x"),
        Invalid("x"),
    ]
)
failed = st.builds(Failed, errors, st.just(""), st.just(0), st.just(False))


@given(st.lists(failed, min_size=12, max_size=40), st.booleans())
def test_no_sequence_of_failures_makes_a_hot_loop(outcomes, streaming):
    progress = Progress(streaming=streaming)
    step, at_once = first_step(progress), 0
    for outcome in outcomes:
        progress, step = step_after(outcome, step=step, progress=progress)
        at_once = at_once + 1 if step.after == 0 and not isinstance(outcome.error, StaleWatch) else 0
        assert at_once <= 3


@given(st.lists(st.one_of(failed, st.builds(Ended, st.just("9"), st.integers(0, 3), st.floats(0, 400))), max_size=30))
def test_a_watch_never_starts_without_a_revision(outcomes):
    progress, step = Progress(), first_step(Progress())
    for outcome in outcomes:
        progress, step = step_after(outcome, step=step, progress=progress)
        assert not isinstance(step, Watch) or step.revision
