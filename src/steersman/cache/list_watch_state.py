"""What a reflector does next: a pure function from how the last step ended to the next one.

    ┌─────────────────┐ unsupported ┌───────────────┐
    │ StreamStep(rev) ├────────────►│ ListStep(rev) │◄─────────── 410, unknown errors ──────────┐
    └──────┬──────────┘             └──────┬────────┘                                           │
           │ initial events done           │ complete                                           │
           └─────────────► WatchStep(rev) ◄┘◄── end of stream, 429, 5xx, cut, stale: same rev ──┴─ WatchStep(rev)

The resourceVersion of a list decides how fresh and how costly it is: "" at first (the most recent, as the stream
has it too), then the last one seen (at least as fresh as what we showed already: never back in time), and "" again
when the server says that it cannot serve the last one. A list that fails that way is repeated at once with "". Never
"0", anything the server has at hand: a process that starts compares what it lists with what its predecessor left on
objects, and on a server that lags behind a state from before the predecessor's work appears as a change.

How much is asked for at once: pages at "", which the server may read from storage, and everything in one answer at a
resourceVersion, which it has at hand. Two facts change that. Pages that expire before the last one came are answered
by one list of everything. A list that is larger than an answer may be comes in pages from then on, from storage, and in
smaller ones if a page is too large as well; it wins over the former, because it is certain and the other bad luck.

How long to wait: a 410 is an answer and is followed by a list at once, however long the server was away before.
Backoff is for silence, for errors, and for a 410 that follows a 410. A server that cannot be reached is tried every few
seconds, which costs it nothing; one that answers with errors is left alone for longer. Silence and errors are counted
apart, and silence begins the count of errors again: a server that starts answers 401, 403 or 503 for a moment, and the
first of these answers must not wait as long as the tenth.

A step says *what*, with which delay; `steersman.cache.reflector` does it and reports an outcome. Nothing here waits,
reads a clock or does I/O, so every rule is one line of a table in the tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from steersman.kube.api.errors import (
    BadRequest,
    ConnectionFailed,
    Forbidden,
    Invalid,
    KubeError,
    MethodNotAllowed,
    NotFound,
    RequestTimeout,
    ResourceExpired,
    ResponseTooLarge,
    ServerError,
    TooManyRequests,
)

if TYPE_CHECKING:
    from random import Random

__all__ = [
    "PAGE",
    "Ended",
    "Failed",
    "ListStep",
    "ListWatchState",
    "Listed",
    "Outcome",
    "StaleWatch",
    "Step",
    "StreamStep",
    "WatchStep",
    "first_step",
    "next_step",
]

PAGE = 500  # objects per page of a list: bounds the memory one response needs
SHRINK = 5  # a page that is too large is followed by one of so many times fewer objects

BACKOFF_FIRST = 0.8  # seconds; doubles with every failure…
BACKOFF_LIMIT = 30.0  # …up to here, and up to as much again is added at random so that clients do not march in step
UNREACHABLE_LIMIT = 5.0  # …or here while no connection can be made: the attempt is cheap, and recovery waits for it
REFUSED_LIMIT = 6.0  # …or here for a missing kind or right, which may soon be installed or granted
SELDOM_LIMIT = 30.0  # …or here where nothing waits for it: a kind that is optional, a list that names stand in for
SINGLE_LIMIT = 120.0  # …or here for one name, because there may be a thousand of them
LISTING_LIMIT = 10.0  # …or here where lists stand in for a watch that is not allowed
BACKOFF_FORGET = 120.0  # seconds without a failure after which the next one counts as the first
SHORT_WATCH = 1.0  # a watch that ends sooner than this without an event is a failing server, not an idle one
LONG_STREAM = 60.0  # a stream that was incomplete for so long would not have become complete
SILENCE = (ConnectionFailed, RequestTimeout)  # no answer
PATIENCE = 5  # failed watches in a row after which the resourceVersion itself is doubted, and everything listed again


class StaleWatch(KubeError):  # noqa: N818  # named like its siblings in kube.errors
    """The connection of a watch is silent although the server should have sent something."""

    default_reason = "StaleWatch"
    default_retryable = True


class StreamStep(msgspec.Struct, frozen=True):
    """Watch with the initial state as events, then go on watching on the same connection."""

    revision: str  # not older than this; "" is the most recent
    after: float = 0.0  # seconds to wait first


class ListStep(msgspec.Struct, frozen=True):
    """List everything."""

    revision: str
    limit: int = PAGE  # 0: one response, because paged reads of a given resourceVersion bypass the server's watch cache
    after: float = 0.0


class WatchStep(msgspec.Struct, frozen=True):
    """Watch from a resourceVersion that the store has."""

    revision: str
    after: float = 0.0


Step = StreamStep | ListStep | WatchStep


class Listed(msgspec.Struct, frozen=True):
    """A list is complete and stored."""

    revision: str
    pages: int = 1


class Ended(msgspec.Struct, frozen=True):
    """A watch came to its regular end."""

    revision: str  # of the last event or bookmark
    events: int
    seconds: float
    synced: bool = True  # for a stream: whether the initial events were complete


class Failed(msgspec.Struct, frozen=True):
    """A step ended with an error."""

    error: Exception
    revision: str = ""  # the last one seen on the way; "" when none
    events: int = 0
    synced: bool = False  # whether the step had already reached the watching part
    pages: int = 0  # of a list, which came before


Outcome = Listed | Ended | Failed


class ListWatchState(msgspec.Struct, frozen=True):
    """All a reflector remembers between two steps."""

    revision: str = ""  # the last one seen; "" before the first list
    unavailable: bool = False  # the server could not serve `revision`: ask for the most recent
    streaming: bool = True  # initial events by watch are wanted, and believed to be supported
    watch_forbidden: bool = False  # watching was not allowed when last asked: list instead
    expired: bool = False  # the last list's pages expired before its end: everything in one answer
    page: int | None = None  # everything in one answer is too large: always pages, of so many objects
    refused_limit: float = REFUSED_LIMIT  # how long to wait for a missing kind or right
    failures: int = 0  # answers that were errors, since the last silence
    silences: int = 0  # requests without an answer
    failed_at: float = 0.0  # the last of either
    expirations: int = 0  # answers of 410 one after the other, counted apart: silence before the first delays nothing
    expired_at: float = 0.0
    doubts: int = 0  # failed watches in a row


def first_step(progress: ListWatchState, *, after: float = 0.0) -> StreamStep | ListStep:
    """How to get a complete picture, the first time and after a 410."""
    if progress.streaming and not progress.watch_forbidden:
        return StreamStep("" if progress.unavailable else progress.revision, after=after)
    if progress.page is not None:
        return ListStep("", limit=progress.page, after=after)  # elsewhere than at "" a server may ignore the limit
    if progress.expired:
        return ListStep("", limit=0, after=after)
    revision = "" if progress.unavailable else progress.revision
    return ListStep(revision, limit=0 if revision else PAGE, after=after)


def next_step(
    progress: ListWatchState, step: Step, outcome: Outcome, *, now: float, random: Random
) -> tuple[ListWatchState, Step]:
    """The next step after `outcome`, and what to remember. `now` is monotonic seconds."""
    replace = msgspec.structs.replace
    if isinstance(outcome, Listed):
        progress = replace(progress, revision=outcome.revision, unavailable=False, expired=False)
        return progress, WatchStep(outcome.revision)

    if outcome.revision:
        progress = replace(progress, revision=outcome.revision)
    synced = isinstance(step, WatchStep) or outcome.synced
    if synced:
        refused = isinstance(outcome, Failed) and isinstance(outcome.error, Forbidden)
        progress = replace(progress, unavailable=False, watch_forbidden=refused)
    if outcome.events:
        progress = replace(progress, doubts=0)

    if isinstance(outcome, Ended):
        if not synced:
            progress, delay = _back_off(progress, now, random)
            endless = outcome.seconds >= LONG_STREAM or progress.failures >= PATIENCE
            # this once by a list, which ends: the state of a server that knows no end of a stream would never be seen
            return progress, first_step(replace(progress, streaming=False) if endless else progress, after=delay)
        if outcome.events or outcome.seconds >= SHORT_WATCH:
            return progress, WatchStep(progress.revision)
        progress, delay = _back_off(progress, now, random)
        return progress, WatchStep(progress.revision, after=delay)

    if synced:
        return _after_failed_watch(progress, outcome, now, random)
    return _after_failed_list(progress, step, outcome, now, random)


def _after_failed_list(
    progress: ListWatchState, step: Step, outcome: Failed, now: float, random: Random
) -> tuple[ListWatchState, Step]:
    replace = msgspec.structs.replace
    error = outcome.error
    if isinstance(error, ResourceExpired) and outcome.pages and not progress.expired and progress.page is None:
        progress = replace(progress, unavailable=True, expired=True)
        return progress, first_step(progress)
    if isinstance(error, ResponseTooLarge) and isinstance(step, ListStep) and progress.page != 1:
        # waiting does not help
        progress = replace(progress, page=PAGE if progress.page is None else progress.page // SHRINK or 1)
        return progress, first_step(progress)
    if _revision_refused(error) and not progress.unavailable:
        progress = replace(progress, unavailable=True)
        return progress, first_step(progress)
    if isinstance(step, StreamStep) and isinstance(error, (Invalid, BadRequest, MethodNotAllowed, StaleWatch)):
        progress = replace(progress, streaming=False)
        return progress, first_step(progress)
    if isinstance(error, Forbidden):  # rights may be to list but not to watch, and lists from time to time are enough
        progress = replace(
            progress, watch_forbidden=isinstance(step, StreamStep)
        )  # neither: the next question is a stream again
        if progress.watch_forbidden:
            return progress, first_step(progress)
    if isinstance(error, ResourceExpired):
        return _list_after_expiry(progress, error, now, random)
    limit = progress.refused_limit if isinstance(error, (NotFound, Forbidden)) else _limit_for(error)
    progress, delay = _back_off(progress, now, random, limit, silent=isinstance(error, SILENCE))
    return progress, first_step(progress, after=_at_least(delay, error))


def _after_failed_watch(
    progress: ListWatchState, outcome: Failed, now: float, random: Random
) -> tuple[ListWatchState, Step]:
    replace = msgspec.structs.replace
    error = outcome.error
    if isinstance(error, StaleWatch):
        return progress, WatchStep(progress.revision)
    if isinstance(error, ResourceExpired):
        return _list_after_expiry(progress, error, now, random)
    limit = LISTING_LIMIT if isinstance(error, Forbidden) else _limit_for(error)
    progress, delay = _back_off(progress, now, random, limit, silent=isinstance(error, SILENCE))
    delay = _at_least(delay, error)
    if isinstance(error, (ConnectionFailed, TooManyRequests)):
        return progress, WatchStep(progress.revision, after=delay)
    lost = isinstance(error, KubeError) and error.code == 0
    if lost or isinstance(error, (ServerError, RequestTimeout)):
        progress = replace(progress, doubts=progress.doubts + 1)
        if progress.doubts < PATIENCE:
            return progress, WatchStep(progress.revision, after=delay)
        progress = replace(progress, doubts=0)
    return progress, first_step(progress, after=delay)


def _list_after_expiry(
    progress: ListWatchState, error: ResourceExpired, now: float, random: Random
) -> tuple[ListWatchState, Step]:
    """A list at once; another 410 soon after it waits, longer and longer."""
    count = progress.expirations if now - progress.expired_at < BACKOFF_FORGET else 0
    delay = _delay(count - 1, BACKOFF_LIMIT, random) if count else 0.0
    progress = msgspec.structs.replace(progress, expirations=count + 1, expired_at=now)
    return progress, first_step(progress, after=_at_least(delay, error))


def _revision_refused(error: Exception) -> bool:
    """Whether the server cannot serve the resourceVersion asked for: too old, or from a future it has not seen."""
    if isinstance(error, ResourceExpired):
        return True
    return isinstance(error, KubeError) and any(cause.reason == "ResourceVersionTooLarge" for cause in error.causes)


def _at_least(delay: float, error: Exception) -> float:
    return max(delay, (error.retry_after or 0.0) if isinstance(error, KubeError) else 0.0)


def _limit_for(error: Exception) -> float:
    return UNREACHABLE_LIMIT if isinstance(error, ConnectionFailed) else BACKOFF_LIMIT


def _back_off(
    progress: ListWatchState, now: float, random: Random, limit: float = BACKOFF_LIMIT, *, silent: bool = False
) -> tuple[ListWatchState, float]:
    lately = now - progress.failed_at < max(BACKOFF_FORGET, 4 * limit)
    failures, silences = (progress.failures, progress.silences) if lately else (0, 0)
    after = (0, silences + 1) if silent else (failures + 1, silences)
    progress = msgspec.structs.replace(progress, failures=after[0], silences=after[1], failed_at=now)
    return progress, _delay(silences if silent else failures, limit, random)


def _delay(failures: int, limit: float, random: Random) -> float:
    delay: float = min(limit, BACKOFF_FIRST * 2 ** min(failures, 16))
    return delay + random.uniform(0.0, delay)
