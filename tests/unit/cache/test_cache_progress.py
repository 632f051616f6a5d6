"""The reflector's next step, rule by rule."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given
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
    AnswerTooLarge,
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


# -- how much at once ------------------------------------------------------------------------------------------------


def test_pages_that_expire_are_followed_at_once_by_one_list_of_everything():
    progress, step = step_after(Failed(Gone("token expired"), pages=2), step=List("0"), progress=LISTING)
    assert step == List("", limit=0)
    progress, _ = step_after(Listed("9"), step=step, progress=progress)
    assert first_step(progress) == List("9", limit=0)


@pytest.mark.parametrize("step", [List("0"), List("7", limit=0), List("", limit=0)], ids=str)
def test_a_list_that_is_too_large_comes_in_pages_from_storage_from_then_on(step):
    known = Progress(revision="7", streaming=False)
    progress, step = step_after(Failed(AnswerTooLarge("x")), step=step, progress=known)
    assert step == List("", limit=PAGE)
    progress, _ = step_after(Listed("9", pages=3), step=step, progress=progress)
    assert first_step(progress) == List("", limit=PAGE)


def test_a_page_that_is_too_large_is_followed_by_smaller_ones_down_to_one_object():
    progress, step, sizes = LISTING, List("0"), []
    for _ in range(7):
        progress, step = step_after(Failed(AnswerTooLarge("x")), step=step, progress=progress)
        sizes.append((step.limit, step.after > 0))
    assert sizes == [(500, False), (100, False), (20, False), (4, False), (1, False), (1, True), (1, True)]


def test_pages_that_expire_are_pages_again_where_one_answer_is_known_to_be_too_large():
    progress = Progress(streaming=False, page=PAGE, unavailable=True)
    _, step = step_after(Failed(Gone("token expired"), pages=2), step=List("", limit=PAGE), progress=progress)
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
    progress = Progress(revision=seen, streaming=False)
    step = first_step(progress)
    for _ in range(16):
        whole = not step.limit or (cached and step.revision)  # a watch cache knows no limit
        if step.revision not in {"", "0"} and compacted:
            outcome = Failed(Gone("too old", code=410))
        elif (size if whole else min(size, step.limit)) > fits:
            outcome = Failed(AnswerTooLarge("x"))
        elif not whole and size > step.limit and expiring:
            outcome = Failed(Gone("token expired", code=410), pages=1)
        else:
            return
        progress, step = step_after(outcome, step=step, progress=progress)
        assert isinstance(step, List)
    raise AssertionError(step)


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


def test_a_refused_list_is_asked_for_as_a_list_again_where_streams_are_not_wanted_or_not_there():
    progress, step = step_after(Failed(Forbidden("no", code=403)), step=List("0"), progress=LISTING)
    assert isinstance(step, List)
    assert not progress.streaming


def test_who_may_neither_stream_nor_list_is_asked_for_both_in_turn():
    progress, step, kinds = Progress(), first_step(Progress()), []
    for _ in range(4):
        kinds.append(type(step))
        progress, step = step_after(Failed(Forbidden("no", code=403)), step=step, progress=progress)
    assert kinds == [Stream, List, Stream, List]


def test_a_right_to_watch_that_comes_back_is_used():
    progress = Progress(revision="7", barred=True)
    progress, _ = step_after(Ended("9", events=1, seconds=300), progress=progress)
    assert first_step(progress) == Stream("9")


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
        Gone("x", code=410),
        TOO_LARGE,
        Forbidden("x", code=403),
        NotFound("x", code=404),
        ServerError("x", code=500),
        ConnectionFailed("x"),
        TooManyRequests("x", code=429),
        RequestTimeout("x"),
        BadResponse("x"),
        AnswerTooLarge("x"),
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
    progress = Progress(streaming=streaming)
    step, at_once = first_step(progress), 0
    for outcome in outcomes:
        if isinstance(outcome, Listed) and not isinstance(step, List):
            continue
        progress, step = step_after(outcome, step=step, progress=progress)
        if step.after:
            at_once = 0
        elif isinstance(outcome, Failed) and not isinstance(outcome.error, StaleWatch):  # which takes its time
            at_once += 1
        assert at_once <= 9  # one for each thing that is learned on the way: see the fields of Progress


@pytest.mark.parametrize("streaming", [True, False])
def test_events_and_then_a_410_again_and_again_are_listed_less_and_less_often(streaming):
    progress, now, delays = Progress(revision="7", streaming=streaming), 1000.0, []
    for _ in range(8):
        progress, step = step_after(Failed(Gone("x", code=410), "9", 500, True), progress=progress, now=now)
        delays.append(step.after)
        now += step.after + 1.5
    assert delays[0] == 0
    assert delays[-1] >= 30


@given(st.lists(st.one_of(failed, st.builds(Ended, st.just("9"), st.integers(0, 3), st.floats(0, 400))), max_size=30))
def test_a_watch_never_starts_without_a_revision(outcomes):
    progress, step = Progress(), first_step(Progress())
    for outcome in outcomes:
        progress, step = step_after(outcome, step=step, progress=progress)
        assert not isinstance(step, Watch) or step.revision
