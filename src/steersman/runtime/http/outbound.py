"""Requests to servers other than the API server: a receiver of notifications, an endpoint of a pod.

    async with outbound_session() as session:
        sent = await send(session, url, effect="notification", target=host, json=body, attempts=5)
    if sent.error:
        log.warning("notification not delivered", receiver=host, error=sent.error)

- Every attempt passes the write guard, and once more when the connection is there: in a dry run nothing is sent
  (`withheld`), and a process that lost its lease sends nothing more (NotLeading).
- No redirect is followed and no cookie kept: who may choose an address cannot make this process talk to another one.
- An error names the kind of failure and never the address, which may hold a secret.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec

from steersman.clock import SYSTEM_CLOCK
from steersman.kube.transport.transport import AdmittedRequest, admitted
from steersman.runtime.reconcile.write_guard import effect as effect_allowed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from steersman.clock import Clock

__all__ = ["FINAL_STATUSES", "Sent", "outbound_session", "send"]

FINAL_STATUSES: Final = frozenset({400, 401, 403, 404, 410, 413})  # the same request will not be accepted later
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds between two attempts; doubles


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a request."""

    attempts: int = 0
    error: str = ""  # why it was not accepted: `answered 503`, `no answer in time`, `cannot be reached (…)`
    withheld: bool = False  # a dry run: it would have been sent


def outbound_session(**options: Any) -> aiohttp.ClientSession:
    """A session for `send`; `options` are those of aiohttp's ClientSession."""
    return aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), request_class=AdmittedRequest, **options)


async def send(
    session: aiohttp.ClientSession,
    url: str,
    *,
    effect: str,
    target: str,
    method: str = "POST",
    timeout_seconds: float = 10.0,
    attempts: int = 1,
    final: Collection[int] = FINAL_STATUSES,
    on_retry: Callable[[], object] | None = None,
    clock: Clock = SYSTEM_CLOCK,
    **request: Any,
) -> Sent:
    """Send a request until it is answered below 300 or with a `final` status, or was tried `attempts` times.

    `effect` and `target` name it in the log of a dry run; `request` is what aiohttp's `session.request` takes.
    """
    allowed = partial(effect_allowed, effect, target)
    timeout = aiohttp.ClientTimeout(total=timeout_seconds)
    error, pause = "", FIRST_PAUSE
    for attempt in range(1, attempts + 1):
        if attempt > 1:
            if on_retry is not None:
                on_retry()
            await clock.sleep(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)
        if not allowed():
            return Sent(attempts=attempt - 1, withheld=True)
        try:
            with admitted(allowed):  # connecting takes long enough for a lease to end
                answer = await session.request(method, url, timeout=timeout, allow_redirects=False, **request)
            async with answer:
                if answer.status < 300:
                    return Sent(attempts=attempt)
                error = f"answered {answer.status}"
                if answer.status in final:
                    return Sent(attempts=attempt, error=error)
        except TimeoutError:
            error = f"no answer within {timeout_seconds:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as failure:  # ValueError: an address that cannot be one
            error = f"cannot be reached ({type(failure).__name__})"
    return Sent(attempts=attempts, error=error)
