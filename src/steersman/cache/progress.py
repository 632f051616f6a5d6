"""What a reflector does next: a pure function from how the last step ended to the next one.

    ┌──────────────┐ unsupported  ┌────────────┐
    │ Stream(rev)  ├─────────────►│ List(rev)  │◄──────────── 410, unknown errors ──────────┐
    └──────┬───────┘              └─────┬──────┘                                            │
           │ initial events done        │ complete                                          │
           └──────────────► Watch(rev) ◄┘◄── end of stream, 429, 5xx, cut, stale: same rev ─┴─ Watch(rev)

The revision ladder, which decides how fresh and how costly a list is: "0" at first (anything the server has at hand),
then the last revision seen (at least as fresh as what we showed already: never back in time), and "" (the most recent,
read through to storage) only when the server says that it cannot serve the last one. A list that fails that way is
repeated at once with "".

How much is asked for at once: pages where the server reads them from storage, everything in one answer where it has
that at hand (it ignores a limit at "0"). Two facts change that. Pages that expire before the last one came are answered
by one list of everything. A list that is larger than an answer may be comes in pages from then on, from storage, and in
smaller ones if a page is too large as well; it wins over the former, because it is certain and the other bad luck.

A step says *what*, with which delay; `steersman.cache.reflector` does it and reports an outcome. Nothing here waits,
reads a clock or talks to anybody, so every rule is one line of a table in the tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from steersman.kube.errors import (
    AnswerTooLarge,
    BadRequest,
    ConnectionFailed,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    MethodNotAllowed,
    NotFound,
    RequestTimeout,
    ServerError,
    TooManyRequests,
)

if TYPE_CHECKING:
    from random import Random

__all__ = [
    "PAGE",
    "Ended",
    "Failed",
    "List",
    "Listed",
    "Outcome",
    "Progress",
    "StaleWatch",
    "Step",
    "Stream",
    "Watch",
    "advance",
    "first_step",
]

PAGE = 500  # objects per page of a list: bounds the memory one response needs
SHRINK = 5  # a page that is too large is followed by one of so many times fewer objects

BACKOFF_FIRST = 0.8  # seconds; doubles with every failure…
BACKOFF_LIMIT = 30.0  # …up to here, and up to as much again is added at random so that clients do not march in step
REFUSED_LIMIT = 6.0  # …or here for a missing kind or right, which somebody may be about to install or grant
SELDOM_LIMIT = 30.0  # …or here where nothing waits for it: a kind that is optional, a list that names stand in for
SINGLE_LIMIT = 120.0  # …or here for one name, because there may be a thousand of them
LISTING_LIMIT = 10.0  # …or here where lists stand in for a watch that is not allowed
BACKOFF_FORGET = 120.0  # seconds without a failure after which the next one counts as the first
SHORT_WATCH = 1.0  # a watch that ends sooner than this without an event is a server in trouble, not an idle one
PATIENCE = 5  # failed watches in a row after which the revision itself is doubted, and listed anew


class StaleWatch(KubeError):  # noqa: N818  # named like its siblings in kube.errors
    """The connection of a watch is silent although the server should have said something."""

    default_reason = "StaleWatch"
    default_retryable = True


class Stream(msgspec.Struct, frozen=True):
    """Watch with the initial state as events, then go on watching on the same connection."""

    revision: str  # not older than this; "" is the most recent
    after: float = 0.0  # seconds to wait first


class List(msgspec.Struct, frozen=True):
    """List everything."""

    revision: str
    limit: int = PAGE  # 0: one response, because paged reads of a given revision bypass the server's watch cache
    after: float = 0.0


class Watch(msgspec.Struct, frozen=True):
    """Watch from a revision that the store has."""

    revision: str
    after: float = 0.0


Step = Stream | List | Watch


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


class Progress(msgspec.Struct, frozen=True):
    """All a reflector remembers between two steps."""

    revision: str = ""  # the last one seen; "" before the first list
    unavailable: bool = False  # the server could not serve `revision`: ask for the most recent
    streaming: bool = True  # initial events by watch are wanted, and believed to be supported
    barred: bool = False  # watching was not allowed when last asked: list instead
    paged: bool = False  # a list at "0" came back in pages, so the server has no watch cache: keep paging
    expired: bool = False  # the last list's pages expired before its end: everything in one answer
    page: int | None = None  # everything in one answer is too large: always pages, of so many objects
    refused_limit: float = REFUSED_LIMIT  # how long to wait for a missing kind or right
    failures: int = 0
    failed_at: float = 0.0
    doubts: int = 0  # failed watches in a row


def first_step(progress: Progress, *, after: float = 0.0) -> Stream | List:
    """How to get a complete picture, the first time and after a 410."""
    if progress.streaming and not progress.barred:
        return Stream("" if progress.unavailable else progress.revision, after=after)
    if progress.page is not None:
        return List("", limit=progress.page, after=after)  # elsewhere than at "" a server may ignore the limit
    if progress.expired:
        return List("", limit=0, after=after)
    revision = "" if progress.unavailable else progress.revision or "0"
    pinned = revision not in {"", "0"} and not progress.paged
    return List(revision, limit=0 if pinned else PAGE, after=after)


def advance(progress: Progress, step: Step, outcome: Outcome, *, now: float, random: Random) -> tuple[Progress, Step]:
    """The next step after `outcome`, and what to remember. `now` is monotonic seconds."""
    replace = msgspec.structs.replace
    if isinstance(outcome, Listed):
        assert isinstance(step, List)
        paged = progress.paged or (step.revision == "0" and outcome.pages > 1)
        progress = replace(progress, revision=outcome.revision, unavailable=False, expired=False, paged=paged)
        return progress, Watch(outcome.revision)

    if outcome.revision:
        progress = replace(progress, revision=outcome.revision)
    synced = isinstance(step, Watch) or outcome.synced
    if synced:
        refused = isinstance(outcome, Failed) and isinstance(outcome.error, Forbidden)
        progress = replace(progress, unavailable=False, barred=refused)
    if outcome.events:
        progress = replace(progress, doubts=0)

    if isinstance(outcome, Ended):
        if not synced:
            progress, delay = _back_off(progress, now, random)
            return progress, first_step(progress, after=delay)
        if outcome.events or outcome.seconds >= SHORT_WATCH:
            return progress, Watch(progress.revision)
        progress, delay = _back_off(progress, now, random)
        return progress, Watch(progress.revision, after=delay)

    if synced:
        return _after_failed_watch(progress, outcome, now, random)
    return _after_failed_list(progress, step, outcome, now, random)


def _after_failed_list(
    progress: Progress, step: Step, outcome: Failed, now: float, random: Random
) -> tuple[Progress, Step]:
    replace = msgspec.structs.replace
    error = outcome.error
    if isinstance(error, Gone) and outcome.pages and not progress.expired and progress.page is None:
        progress = replace(progress, unavailable=True, expired=True)
        return progress, first_step(progress)
    if isinstance(error, AnswerTooLarge) and isinstance(step, List) and progress.page != 1:  # waiting does not help
        progress = replace(progress, page=PAGE if progress.page is None else progress.page // SHRINK or 1)
        return progress, first_step(progress)
    if _revision_refused(error) and not progress.unavailable:
        progress = replace(progress, unavailable=True)
        return progress, first_step(progress)
    if isinstance(step, Stream) and isinstance(error, (Invalid, BadRequest, MethodNotAllowed)):
        progress = replace(progress, streaming=False)
        return progress, first_step(progress)
    if isinstance(error, Forbidden):  # rights may be to list but not to watch, and lists from time to time are enough
        progress = replace(progress, barred=isinstance(step, Stream))  # neither: the next question is a stream again
        if progress.barred:
            return progress, first_step(progress)
    limit = progress.refused_limit if isinstance(error, (NotFound, Forbidden)) else BACKOFF_LIMIT
    progress, delay = _back_off(progress, now, random, limit)
    return progress, first_step(progress, after=_at_least(delay, error))


def _after_failed_watch(progress: Progress, outcome: Failed, now: float, random: Random) -> tuple[Progress, Step]:
    replace = msgspec.structs.replace
    error = outcome.error
    if isinstance(error, StaleWatch):
        return progress, Watch(progress.revision)
    if isinstance(error, Gone) and outcome.events and not _failed_lately(progress, now):
        progress = replace(progress, failures=1, failed_at=now)  # counted, because the next one may come as soon
        return progress, first_step(progress)
    limit = LISTING_LIMIT if isinstance(error, Forbidden) else BACKOFF_LIMIT
    progress, delay = _back_off(progress, now, random, limit)
    delay = _at_least(delay, error)
    if isinstance(error, (ConnectionFailed, TooManyRequests)):
        return progress, Watch(progress.revision, after=delay)
    lost = isinstance(error, KubeError) and error.code == 0 and not isinstance(error, Gone)
    if lost or isinstance(error, (ServerError, RequestTimeout)):
        progress = replace(progress, doubts=progress.doubts + 1)
        if progress.doubts < PATIENCE:
            return progress, Watch(progress.revision, after=delay)
        progress = replace(progress, doubts=0)
    return progress, first_step(progress, after=delay)


def _revision_refused(error: Exception) -> bool:
    """Whether the server cannot serve the revision asked for: too old, or from a future it has not seen."""
    if isinstance(error, Gone):
        return True
    return isinstance(error, KubeError) and any(cause.reason == "ResourceVersionTooLarge" for cause in error.causes)


def _at_least(delay: float, error: Exception) -> float:
    return max(delay, (error.retry_after or 0.0) if isinstance(error, KubeError) else 0.0)


def _failed_lately(progress: Progress, now: float, limit: float = BACKOFF_LIMIT) -> bool:
    return progress.failures > 0 and now - progress.failed_at < max(BACKOFF_FORGET, 4 * limit)


def _back_off(progress: Progress, now: float, random: Random, limit: float = BACKOFF_LIMIT) -> tuple[Progress, float]:
    failures = progress.failures if _failed_lately(progress, now, limit) else 0
    delay = min(limit, BACKOFF_FIRST * 2 ** min(failures, 16))
    progress = msgspec.structs.replace(progress, failures=failures + 1, failed_at=now)
    return progress, delay + random.uniform(0.0, delay)
