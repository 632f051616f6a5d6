"""Whether a candidate takes part: what probes and endpoints said, with hysteresis. Pure, except for the book's memory.

One success adds a service. One timeout removes none: it takes several failed probes in a row, or no ready endpoint for
a while. A service that is in the ConfigMap already and has not been asked yet (a new process knows nothing) stays.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Hashable

    from steersman.operators.toolset.detection import Candidate
    from steersman.operators.toolset.types import Settings

__all__ = ["Admission", "Book", "Observed", "Outcome", "ProbeResult", "State", "admit"]


class Outcome(StrEnum):
    """How a probe ended; also a label of metrics."""

    OK = "healthy"
    AUTH_REQUIRED = "auth_required"
    STATUS = "bad_status"
    REDIRECTED = "redirected"
    TOO_LARGE = "too_large"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"  # by us: an address nobody may be sent to
    NOT_IDENTIFIED = "not_identified"


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a service answered."""

    outcome: Outcome
    message: str = ""
    seconds: float = 0.0

    @property
    def reachable(self) -> bool:
        """Whether somebody answers there, perhaps only to those who may ask."""
        return self.outcome in (Outcome.OK, Outcome.AUTH_REQUIRED)


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one service."""

    question: str = ""  # what was asked; another question makes the answers worthless
    result: ProbeResult | None = None
    failures: int = 0  # probes in a row
    checked_at: float | None = None  # wall clock
    found_at: float = 0.0  # wall clock
    empty_since: float | None = (
        None  # monotonic: since when no endpoint is ready; None: there are some, or nobody knows
    )
    empty: bool = False  # for longer than allowed
    included: bool = False  # it took part at the last look


class State(StrEnum):
    """How a candidate is doing."""

    HEALTHY = "Healthy"
    UNCHECKED = "Unchecked"  # nobody is to ask
    UNKNOWN = "Unknown"  # not asked yet
    UNHEALTHY = "Unhealthy"
    AUTH_REQUIRED = "AuthRequired"
    NOT_IDENTIFIED = "NotIdentified"
    NO_ENDPOINTS = "NoEndpoints"


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a candidate takes part, and why."""

    included: bool
    state: State
    message: str = ""


def admit(candidate: Candidate, seen: Observed | None, settings: Settings, *, incumbent: bool) -> Admission:
    """Decide on one candidate; `incumbent`: it takes part already."""
    seen = seen or Observed()
    if seen.empty:
        return Admission(included=False, state=State.NO_ENDPOINTS, message="no endpoint is ready")
    if seen.empty_since is not None:
        return Admission(included=incumbent, state=State.NO_ENDPOINTS, message="no endpoint is ready right now")
    guess = candidate.needs_identity and settings.strict
    if not settings.health.enabled or candidate.health_skipped:
        if guess:
            return Admission(
                included=False,
                state=State.NOT_IDENTIFIED,
                message="found by name or port only, and probes are switched off",
            )
        return Admission(included=True, state=State.UNCHECKED, message="probes are switched off")
    if seen.result is None:
        return Admission(included=incumbent, state=State.UNKNOWN, message="not asked yet")
    result = seen.result
    if result.outcome is Outcome.OK:
        return Admission(included=True, state=State.HEALTHY)
    if result.outcome is Outcome.AUTH_REQUIRED:
        known = bool(candidate.auth_env)
        message = "asks for credentials" + ("" if known else "; none are configured for its type and namespace")
        return Admission(included=known, state=State.AUTH_REQUIRED, message=message)
    state = State.NOT_IDENTIFIED if result.outcome is Outcome.NOT_IDENTIFIED else State.UNHEALTHY
    stays = incumbent and seen.failures < settings.health.failures
    return Admission(included=stays, state=state, message=result.message)


class Book:
    """What is known of every candidate, by a key of the caller's choice."""

    def __init__(self) -> None:
        self._pages: dict[Hashable, Observed] = {}

    def get(self, key: Hashable) -> Observed | None:
        """What is known."""
        return self._pages.get(key)

    def probed(self, key: Hashable, question: str, result: ProbeResult, *, now: float) -> Observed:
        """Note an answer."""
        before = self._page(key, question, now)
        failures = 0 if result.reachable else before.failures + 1
        return self._keep(key, replace(before, result=result, failures=failures, checked_at=now))

    def counted(
        self, key: Hashable, question: str, ready: int | None, *, tick: float, now: float, limit: float
    ) -> Observed:
        """Note how many endpoints are ready; None when nobody counts them."""
        before = self._page(key, question, now)
        if ready is None or ready > 0:
            return self._keep(key, replace(before, empty_since=None, empty=False))
        since = tick if before.empty_since is None else before.empty_since
        return self._keep(key, replace(before, empty_since=since, empty=tick - since >= limit, result=None, failures=0))

    def included(self, key: Hashable, value: bool) -> None:
        """Note whether it took part at the last look."""
        page = self._pages.get(key)
        if page is not None and page.included != value:
            self._pages[key] = replace(page, included=value)

    def forget(self, key: Hashable) -> None:
        """Nothing is known any more."""
        self._pages.pop(key, None)

    def _page(self, key: Hashable, question: str, now: float) -> Observed:
        page = self._pages.get(key)
        if page is None:
            return Observed(question=question, found_at=now)
        return page if page.question == question else Observed(question=question, found_at=page.found_at)

    def _keep(self, key: Hashable, page: Observed) -> Observed:
        self._pages[key] = page
        return page
