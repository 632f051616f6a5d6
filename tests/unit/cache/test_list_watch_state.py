"""The reflector's next step, rule by rule."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from steersman.cache.list_watch_state import (
    PAGE,
    REFUSED_LIMIT,
    SELDOM_LIMIT,
    SINGLE_LIMIT,
    Ended,
    Failed,
    Listed,
    ListStep,
    ListWatchState,
    StaleWatch,
    StreamStep,
    WatchStep,
    first_step,
    next_step,
)
from steersman.kube.api.errors import (
    BadResponse,
    Cause,
    ConnectionFailed,
    Forbidden,
    Invalid,
    NotFound,
    RequestTimeout,
    ResourceExpired,
    ResponseTooLarge,
    ServerError,
    Timeout,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)

TOO_LARGE = Timeout("too large", causes=(Cause(reason="ResourceVersionTooLarge"),))
LISTING = ListWatchState(streaming=False)


def step_after(outcome, *, step=None, progress=None, now=1000.0):
    progress = progress or ListWatchState(revision="7")
    return next_step(progress, step or WatchStep(progress.revision), outcome, now=now, random=random.Random(1))


# -- the revision ladder ---------------------------------------------------------------------------------------------


def test_the_first_list_is_the_most_recent_state_and_never_what_a_lagging_server_has_at_hand():
    assert first_step(LISTING) == ListStep("", limit=PAGE)
    assert first_step(ListWatchState()) == StreamStep("")


def test_a_relist_is_at_least_as_fresh_as_what_was_seen_and_is_not_paged():
    assert first_step(ListWatchState(revision="7", streaming=False)) == ListStep("7", limit=0)
    progress, _ = step_after(Listed("5", pages=3), step=ListStep(""), progress=LISTING)
    assert first_step(progress) == ListStep("5", limit=0)


@pytest.mark.parametrize("error", [ResourceExpired("expired"), TOO_LARGE], ids=["expired", "too large"])
@pytest.mark.parametrize("streaming", [True, False])
def test_a_list_whose_resource_version_is_refused_is_repeated_at_once_with_the_most_recent(error, streaming):
    known = ListWatchState(revision="7", streaming=streaming)
    progress, step = step_after(Failed(error), step=first_step(known), progress=known)
    assert step.revision == ""
    assert step.after == 0
    assert isinstance(step, StreamStep if streaming else ListStep)
    assert progress.unavailable


@pytest.mark.parametrize("error", [ResourceExpired("expired"), TOO_LARGE], ids=["expired", "too large"])
def test_a_refused_most_recent_list_waits_instead_of_spinning(error):
    progress, step = ListWatchState(revision="7", unavailable=True, streaming=False), ListStep("")
    for _ in range(2):
        progress, step = step_after(Failed(error), step=step, progress=progress)
    assert step == ListStep("", after=step.after)
    assert step.after > 0


def test_a_complete_list_makes_the_last_resource_version_usable_again():
    progress, step = step_after(Listed("9"), step=ListStep(""), progress=ListWatchState(revision="7", unavailable=True))
    assert (progress.revision, progress.unavailable) == ("9", False)
    assert step == WatchStep("9")


# -- how much at once ------------------------------------------------------------------------------------------------


def test_pages_that_expire_are_followed_at_once_by_one_list_of_everything():
    progress, step = step_after(Failed(ResourceExpired("token expired"), pages=2), step=ListStep(""), progress=LISTING)
    assert step == ListStep("", limit=0)
    progress, _ = step_after(Listed("9"), step=step, progress=progress)
    assert first_step(progress) == ListStep("9", limit=0)


@pytest.mark.parametrize("step", [ListStep(""), ListStep("7", limit=0), ListStep("", limit=0)], ids=str)
def test_a_list_that_is_too_large_comes_in_pages_from_storage_from_then_on(step):
    known = ListWatchState(revision="7", streaming=False)
    progress, step = step_after(Failed(ResponseTooLarge("x")), step=step, progress=known)
    assert step == ListStep("", limit=PAGE)
    progress, _ = step_after(Listed("9", pages=3), step=step, progress=progress)
    assert first_step(progress) == ListStep("", limit=PAGE)


def test_a_page_that_is_too_large_is_followed_by_smaller_ones_down_to_one_object():
    progress, step, sizes = LISTING, ListStep(""), []
    for _ in range(7):
        progress, step = step_after(Failed(ResponseTooLarge("x")), step=step, progress=progress)
        sizes.append((step.limit, step.after > 0))
    assert sizes == [(500, False), (100, False), (20, False), (4, False), (1, False), (1, True), (1, True)]


def test_pages_that_expire_are_pages_again_at_once_and_then_later_where_one_answer_is_known_to_be_too_large():
    progress, expired = ListWatchState(streaming=False, page=PAGE, unavailable=True), ResourceExpired("token expired")
    progress, step = step_after(Failed(expired, pages=2), step=ListStep("", limit=PAGE), progress=progress)
    assert step == ListStep("", limit=PAGE)
    _, step = step_after(Failed(expired, pages=2), step=step, progress=progress)
    assert (step.revision, step.limit, step.after > 0) == ("", PAGE, True)


@given(
    size=st.integers(1, 5000),
    fits=st.integers(1, 5000),
    cached=st.booleans(),
    expiring=st.booleans(),
    seen=st.sampled_from(["", "7"]),
    compacted=st.booleans(),
)
def test_whatever_can_be_listed_in_one_answer_or_in_pages_is_listed(size, fits, cached, expiring, seen, compacted):
    """A server with `size` objects; `fits` of them go into an answer, and its pages may expire before the second."""
    assume(size <= fits or not expiring)
    progress = ListWatchState(revision=seen, streaming=False)
    step = first_step(progress)
    for _ in range(16):
        whole = not step.limit or (cached and step.revision)  # a watch cache knows no limit
        if step.revision and compacted:
            outcome = Failed(ResourceExpired("too old", code=410))
        elif (size if whole else min(size, step.limit)) > fits:
            outcome = Failed(ResponseTooLarge("x"))
        elif not whole and size > step.limit and expiring:
            outcome = Failed(ResourceExpired("token expired", code=410), pages=1)
        else:
            return
        progress, step = step_after(outcome, step=step, progress=progress)
        assert isinstance(step, ListStep)
    raise AssertionError(step)


# -- streaming -------------------------------------------------------------------------------------------------------


def test_the_initial_state_is_streamed_when_no_option_says_otherwise():
    assert first_step(ListWatchState()) == StreamStep("")


def test_an_unsupported_stream_falls_back_to_lists_permanently():
    progress, step = step_after(
        Failed(Invalid("sendInitialEvents is forbidden")), step=StreamStep(""), progress=ListWatchState()
    )
    assert step == ListStep("")
    progress, _ = step_after(
        Failed(ResourceExpired("x"), events=1, synced=True), step=WatchStep("9"), progress=progress
    )
    assert not progress.streaming


def test_a_stream_that_ends_before_it_is_complete_starts_over_after_a_while():
    _, step = step_after(Ended("", events=4, seconds=9, synced=False), step=StreamStep(""), progress=ListWatchState())
    assert isinstance(step, StreamStep)
    assert step.after > 0


def test_a_complete_stream_that_ends_is_continued_by_a_watch():
    progress, step = step_after(Ended("12", events=4, seconds=9), step=StreamStep(""), progress=ListWatchState())
    assert step == WatchStep("12")
    assert progress.revision == "12"


# -- watching --------------------------------------------------------------------------------------------------------


def test_a_watch_that_ends_regularly_is_continued_at_once_from_its_last_event():
    _, step = step_after(Ended("31", events=3, seconds=300))
    assert step == WatchStep("31")


def test_a_quiet_watch_that_ran_its_time_is_not_a_failure():
    progress, step = step_after(Ended("7", events=0, seconds=300))
    assert step == WatchStep("7")
    assert progress.failures == 0


def test_a_very_short_watch_without_events_is_a_failure():
    progress, step = step_after(Ended("7", events=0, seconds=0.2))
    assert step.after > 0
    assert progress.failures == 1


def test_an_expired_watch_lists_from_the_last_resource_version():
    _, step = step_after(
        Failed(ResourceExpired("too old"), "31", events=3), progress=ListWatchState(revision="7", streaming=False)
    )
    assert step == ListStep("31", limit=0)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("events", [0, 3])
@pytest.mark.parametrize(
    "before",
    [[], [ConnectionFailed("refused")] * 9, [ServerError("starting")] * 4, [TooManyRequests("starting")] * 9],
    ids=["nothing", "silence", "500", "429"],
)
def test_a_410_is_an_answer_and_lists_at_once_whatever_failed_before(before, events, streaming):
    progress = ListWatchState(revision="7", streaming=streaming)
    for error in before:
        progress, step = step_after(Failed(error, "7"), progress=progress)
        assert isinstance(step, WatchStep)
    _, step = step_after(Failed(ResourceExpired("too old", code=410), "7", events), progress=progress)
    assert step == (StreamStep("7") if streaming else ListStep("7", limit=0))


ANSWERS = [
    ServerError("x", code=500),
    Unavailable("x", code=503),
    Unauthorized("x", code=401),
    Forbidden("x", code=403),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda error: str(error.code))
@pytest.mark.parametrize("silence", [ConnectionFailed("refused"), RequestTimeout("frozen")], ids=["refused", "frozen"])
@pytest.mark.parametrize("step", [WatchStep("7"), ListStep("7", limit=0)], ids=["watch", "list"])
def test_an_error_answer_after_silence_waits_as_the_first_one_and_the_next_ones_longer(step, silence, answer):
    progress, now, delays = LISTING, 1000.0, []
    for error in [*[answer] * 4, *[silence] * 9, *[answer] * 8]:
        progress, after = step_after(Failed(error, "7"), step=step, progress=progress, now=now)
        now += after.after
        delays.append(after.after)
    limit = 30 if not isinstance(answer, Forbidden) else 10 if isinstance(step, WatchStep) else REFUSED_LIMIT
    assert all(min(limit, 0.8 * 2**n) <= delay <= 1.6 * 2**n for n, delay in enumerate(delays[13:18]))
    assert delays[-1] >= limit


def test_a_server_that_starts_is_watched_within_seconds_of_its_first_good_answer():
    """A minute of refused connections, then ten seconds of an API server whose authorizer is not ready."""
    progress, step, now = ListWatchState(revision="7", streaming=False), WatchStep("7"), 1000.0
    while now < 1070:
        error = ConnectionFailed("refused") if now < 1060 else Unauthorized("starting", code=401)
        progress, step = step_after(Failed(error, "7"), step=step, progress=progress, now=now)
        now += step.after
    assert now < 1085


def test_a_server_that_answers_now_and_then_is_not_asked_more_often_than_one_that_is_away():
    progress, now = ListWatchState(revision="7"), 1000.0
    for _ in range(60):
        for error in (ConnectionFailed("refused"), ServerError("x", code=502)):
            progress, step = step_after(Failed(error, "7"), progress=progress, now=now)
            now += step.after
    assert now - 1000.0 > 60 * 5


@pytest.mark.parametrize("streaming", [True, False])
def test_after_silence_a_list_whose_resource_version_has_expired_too_is_repeated_at_once_with_the_most_recent(
    streaming,
):
    progress = ListWatchState(revision="7", streaming=streaming, silences=9, failed_at=999.0)
    progress, step = step_after(Failed(ResourceExpired("too old")), step=WatchStep("7"), progress=progress)
    _, step = step_after(Failed(ResourceExpired("too old")), step=step, progress=progress)
    assert (step.revision, step.after) == ("", 0)


def test_a_watch_that_expires_at_once_again_and_again_does_not_spin():
    progress, delays = ListWatchState(revision="7", streaming=False), []
    for _ in range(9):
        progress, step = step_after(Failed(ResourceExpired("too old"), "7"), progress=progress)
        delays.append(step.after)
        progress, _ = step_after(Listed("7"), step=step, progress=progress)
    assert delays[0] == 0
    assert all(0.8 * 2**n <= delay <= 1.6 * 2**n for n, delay in enumerate(delays[1:6]))
    assert all(30 <= delay <= 60 for delay in delays[7:])


def test_a_410_long_after_the_last_one_is_answered_at_once_again():
    progress = ListWatchState(revision="7", expirations=9, expired_at=1000.0)
    _, soon = step_after(Failed(ResourceExpired("too old"), "7"), progress=progress, now=1119.0)
    _, late = step_after(Failed(ResourceExpired("too old"), "7"), progress=progress, now=1121.0)
    assert (soon.after >= 30, late.after) == (True, 0)


def test_a_server_that_cannot_be_reached_is_tried_every_few_seconds_and_one_that_answers_errors_less_often():
    progress = ListWatchState(revision="7", failures=9, silences=9, failed_at=1000.0)
    for step in (WatchStep("7"), ListStep("7", limit=0)):
        _, unreachable = step_after(Failed(ConnectionFailed("refused")), step=step, progress=progress)
        _, failing = step_after(Failed(ServerError("boom")), step=step, progress=progress)
        assert 5 <= unreachable.after <= 10
        assert 30 <= failing.after <= 60


@pytest.mark.parametrize("error", [ConnectionFailed("refused"), TooManyRequests("slow down")], ids=["refused", "429"])
def test_a_server_that_is_busy_or_away_is_watched_again_without_a_list(error):
    for _ in range(40):
        _, step = step_after(Failed(error, "7"))
        assert isinstance(step, WatchStep)
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
def test_a_failing_watch_is_retried_and_only_a_lasting_failure_lists_again(error):
    progress, kinds = ListWatchState(revision="7"), []
    for _ in range(5):
        progress, step = step_after(Failed(error, "7"), progress=progress)
        kinds.append(type(step))
    assert kinds == [WatchStep, WatchStep, WatchStep, WatchStep, StreamStep]


def test_an_event_restores_confidence_in_the_resource_version():
    progress = ListWatchState(revision="7", doubts=4)
    progress, step = step_after(Failed(ServerError("boom"), "8", events=1), progress=progress)
    assert isinstance(step, WatchStep)
    assert progress.doubts == 1


def test_a_silent_connection_is_replaced_at_once():
    _, step = step_after(Failed(StaleWatch("silence"), "7"))
    assert step == WatchStep("7")


@pytest.mark.parametrize("error", [Forbidden("no"), NotFound("no such kind")])
def test_a_refusal_is_asked_again_with_growing_delays(error):
    progress, delays = ListWatchState(), []
    for number in range(8):
        progress, step = step_after(Failed(error), step=first_step(progress), progress=progress, now=1000.0 + number)
        delays.append(step.after)
    assert delays[0] < 2
    assert 6 <= delays[-1] <= 12  # somebody may be about to install the kind or grant the right


def test_who_may_list_but_not_watch_lists_from_time_to_time():
    progress, step = step_after(
        Failed(Forbidden("no watch")), step=first_step(ListWatchState()), progress=ListWatchState()
    )
    assert step == ListStep("")
    progress, step = step_after(Listed("7"), step=step, progress=progress)
    assert step == WatchStep("7")
    _, step = step_after(Failed(Forbidden("no watch", code=403), "7"), step=step, progress=progress)
    assert isinstance(step, ListStep)
    assert step.after > 0


def test_a_refused_list_is_asked_for_as_a_list_again_where_streams_are_not_wanted_or_not_there():
    progress, step = step_after(Failed(Forbidden("no", code=403)), step=ListStep(""), progress=LISTING)
    assert isinstance(step, ListStep)
    assert not progress.streaming


def test_who_may_neither_stream_nor_list_is_asked_for_both_in_turn():
    progress, step, kinds = ListWatchState(), first_step(ListWatchState()), []
    for _ in range(4):
        kinds.append(type(step))
        progress, step = step_after(Failed(Forbidden("no", code=403)), step=step, progress=progress)
    assert kinds == [StreamStep, ListStep, StreamStep, ListStep]


def test_a_right_to_watch_that_comes_back_is_used():
    progress = ListWatchState(revision="7", watch_forbidden=True)
    progress, _ = step_after(Ended("9", events=1, seconds=300), progress=progress)
    assert first_step(progress) == StreamStep("9")


@pytest.mark.parametrize("limit", [REFUSED_LIMIT, SELDOM_LIMIT, SINGLE_LIMIT])
@pytest.mark.parametrize("error", [NotFound("x"), Forbidden("x")])
def test_what_is_missing_or_refused_is_asked_for_as_seldom_as_a_client_can_wait(limit, error):
    progress, now, waits = ListWatchState(streaming=False, refused_limit=limit), 1000.0, []
    step = ListStep("")
    for _ in range(40):
        progress, step = step_after(Failed(error), step=step, progress=progress, now=now)
        waits += [step.after] if step.after else []  # a refused stream is followed by a list at once
        now += step.after
    assert all(limit <= wait <= 2 * limit for wait in waits[10:])  # and a long wait is no quiet time


def test_backoff_starts_over_after_a_quiet_time():
    progress = ListWatchState(revision="7", failures=9, failed_at=1000.0)
    _, early = step_after(Failed(ServerError("x"), "7"), progress=progress, now=1119.0)
    _, late = step_after(Failed(ServerError("x"), "7"), progress=progress, now=1121.0)
    assert early.after >= 30
    assert late.after < 2


errors = st.sampled_from(
    [
        ResourceExpired("x", code=410),
        TOO_LARGE,
        Forbidden("x", code=403),
        NotFound("x", code=404),
        ServerError("x", code=500),
        ConnectionFailed("x"),
        TooManyRequests("x", code=429),
        RequestTimeout("x"),
        BadResponse("x"),
        ResponseTooLarge("x"),
        StaleWatch("x"),
        Invalid("x", code=422),
    ]
)
failed = st.one_of(
    st.builds(Failed, errors, pages=st.integers(0, 3)),
    st.builds(Failed, errors, st.just("9"), st.integers(0, 500), st.just(True)),  # with a state, there is a revision
)


histories = st.lists(st.one_of(failed, st.just(Listed("9"))), min_size=1, max_size=24)


@given(histories.flatmap(lambda some: st.sampled_from([some, some * 24, some[:2] * 24])), st.booleans())
def test_no_sequence_of_failures_makes_a_hot_loop(outcomes, streaming):
    progress = ListWatchState(streaming=streaming)
    step, at_once = first_step(progress), 0
    for outcome in outcomes:
        if isinstance(outcome, Listed) and not isinstance(step, ListStep):
            continue
        progress, step = step_after(outcome, step=step, progress=progress)
        if step.after:
            at_once = 0
        elif isinstance(outcome, Failed) and not isinstance(outcome.error, StaleWatch):  # which takes its time
            at_once += 1
        assert at_once <= 9  # one for each thing that is learned on the way: see the fields of Progress


@pytest.mark.parametrize("streaming", [True, False])
def test_events_and_then_a_410_again_and_again_are_listed_less_and_less_often(streaming):
    progress, now, delays = ListWatchState(revision="7", streaming=streaming), 1000.0, []
    for _ in range(8):
        progress, step = step_after(Failed(ResourceExpired("x", code=410), "9", 500, True), progress=progress, now=now)
        delays.append(step.after)
        now += step.after + 1.5
    assert delays[0] == 0
    assert delays[-1] >= 30


@given(st.lists(st.one_of(failed, st.builds(Ended, st.just("9"), st.integers(0, 3), st.floats(0, 400))), max_size=30))
def test_a_watch_never_starts_without_a_resource_version(outcomes):
    progress, step = ListWatchState(), first_step(ListWatchState())
    for outcome in outcomes:
        progress, step = step_after(outcome, step=step, progress=progress)
        assert not isinstance(step, WatchStep) or step.revision
