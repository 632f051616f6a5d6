"""Who calls a listener, as a TokenReview says, and how often a caller may ask.

    token ──► known and fresh? ──────────────────────────────────────────────────► user
          └─► known to be wrong? ────────────────────────────────────────────────► None
          └─► known, not fresh; or the peer has attempts left ──► TokenReview ───► user or None

- The cluster is asked once for a token, whatever number of requests show it at the same moment, and its answer counts
  for a while: a good one for `GOOD_SECONDS`, a bad one for `BAD_SECONDS`. Tokens are kept nowhere, only their digests.
- Good and bad answers have places of their own, so that strangers cannot drive out what is known of callers.
- Tokens never seen before cost their peer an attempt, of which it has few; a token that was good once costs none. So
  strangers can neither flood the API server nor keep out callers who are known.
- Requests are counted after that, by `CallerRates`, for each caller apart from all others.

What a caller may do is asked by `may` (SubjectAccessReview), and remembered the same way. A handler needs three lines:

    token = bearer_token(request.headers.get("Authorization", ""))
    user = await authenticator.authenticate(token, peer=peer_of(request))
    await authenticator.authorize(user, resource=ResourceAttributes(verb="get", group="example.org", resource="apps"))

which raise AccessDenied with the status to answer.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import SteersmanError
from steersman.kube.api.errors import KubeError
from steersman.kube.api.types.authorization import (
    SubjectAccessReview,
    SubjectAccessReviewSpec,
    TokenReview,
    TokenReviewSpec,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from steersman.clock import Clock
    from steersman.kube.api.types.authorization import NonResourceAttributes, ResourceAttributes, UserInfo
    from steersman.kube.client.client import Client

__all__ = ["AccessDenied", "CallerRates", "TokenAuthenticator", "TooManyAttempts", "bearer_token"]

GOOD_SECONDS: Final = 60.0
BAD_SECONDS: Final = 10.0
REMEMBERED: Final = 1000  # answers of either kind
ATTEMPTS_PER_SECOND: Final = 5.0  # tokens never seen before, of one peer
ATTEMPTS_AT_ONCE: Final = 20
REVIEWS_AT_ONCE: Final = 16

T = TypeVar("T")


class AccessDenied(SteersmanError):  # noqa: N818  says what happened
    """A request that is not answered: 401, 403, 429 or 503, and a text that says why."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after

    @property
    def headers(self) -> dict[str, str]:
        """What to answer with."""
        challenge = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        return challenge if self.retry_after is None else {**challenge, "Retry-After": str(self.retry_after)}


class TooManyAttempts(SteersmanError):  # noqa: N818  says what happened
    """A peer shows one unknown token after the other."""


class CallerRates:
    """A token bucket for each caller: what one of them uses up, no other misses."""

    def __init__(self, *, per_second: float, burst: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self.per_second, self._burst, self._clock = per_second, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # by caller: what is left, and since when

    def take(self, caller: str) -> bool:
        """One request more of this caller: whether it may pass."""
        now = self._clock.monotonic()
        left, since = self._buckets.pop(caller, (float(self._burst), now))
        left = min(self._burst, left + (now - since) * self.per_second)
        self._buckets[caller] = (left - 1 if left >= 1 else left), now
        if len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)  # the one that was silent for longest
        return left >= 1


class TokenAuthenticator:
    """Asks the cluster who shows a token, and what that user may do."""

    def __init__(self, client: Client, *, audiences: Sequence[str] = (), clock: Clock = SYSTEM_CLOCK) -> None:
        """`audiences` of which a token must have one; empty: that of the API server."""
        self._client, self._audiences = client, list(audiences)
        self._users: _Answers[UserInfo] = _Answers(clock)
        self._rights: _Answers[bool] = _Answers(clock)
        self._attempts = CallerRates(per_second=ATTEMPTS_PER_SECOND, burst=ATTEMPTS_AT_ONCE, clock=clock)

    async def authenticate(self, token: str, *, peer: str) -> UserInfo:
        """The user of a token that a request from `peer` shows; empty is none."""
        if not token:
            raise AccessDenied(401, "send a bearer token: Authorization: Bearer TOKEN")
        try:
            user = await self.user_of(token, peer=peer)
        except TooManyAttempts as error:
            raise AccessDenied(429, str(error), retry_after=1) from None
        except KubeError as error:
            raise AccessDenied(503, f"the token could not be reviewed: {error.reason}", retry_after=1) from error
        if user is None:
            raise AccessDenied(401, "the cluster does not know this token")
        return user

    async def authorize(
        self,
        user: UserInfo,
        *,
        resource: ResourceAttributes | None = None,
        path: NonResourceAttributes | None = None,
    ) -> None:
        """Return when the cluster's rules allow this user that."""
        try:
            allowed = await self.may(user, resource=resource, path=path)
        except KubeError as error:
            raise AccessDenied(503, f"access could not be reviewed: {error.reason}", retry_after=1) from error
        if not allowed:
            raise AccessDenied(403, f"{user.username} may not {_described(resource, path)}")

    async def user_of(self, token: str, *, peer: str) -> UserInfo | None:
        """Whose token this is, None when it is not valid.

        Raises TooManyAttempts, and KubeError when the cluster cannot be asked.
        """

        def attempt() -> None:
            if not self._attempts.take(peer):
                raise TooManyAttempts("too many unknown tokens from this address: wait a second")

        key = hashlib.sha256(token.encode(errors="surrogatepass")).digest()
        return await self._users.get(key, lambda: self._review(token), attempt)

    async def may(
        self,
        user: UserInfo,
        *,
        resource: ResourceAttributes | None = None,
        path: NonResourceAttributes | None = None,
    ) -> bool:
        """Whether the cluster lets this user do that; KubeError when it cannot be asked."""
        spec = SubjectAccessReviewSpec(
            user=user.username,
            uid=user.uid,
            groups=list(user.groups),
            extra=user.extra,
            resource_attributes=resource,
            non_resource_attributes=path,
        )
        key = hashlib.sha256(msgspec.json.encode(spec, order="deterministic")).digest()
        return bool(await self._rights.get(key, lambda: self._authorize(spec)))

    async def _review(self, token: str) -> UserInfo | None:
        spec = TokenReviewSpec(token=token, audiences=self._audiences)
        found = (await self._client.create(TokenReview(spec=spec))).status
        if not found.authenticated or (self._audiences and not set(self._audiences) & set(found.audiences)):
            return None
        return found.user

    async def _authorize(self, spec: SubjectAccessReviewSpec) -> bool | None:
        answer = await self._client.create(SubjectAccessReview(spec=spec))
        return True if answer.status.allowed else None


def _described(resource: ResourceAttributes | None, path: NonResourceAttributes | None) -> str:
    if path is not None:
        rule = f'{{"nonResourceURLs":["{path.path}"],"verbs":["{path.verb}"]}}'
        return f"{path.verb} {path.path}: a ClusterRole with {rule} allows it"
    if resource is None:
        return "do that"
    name = f"{resource.resource}.{resource.group}" if resource.group else resource.resource
    return f"{resource.verb} {name}{f' in namespace {resource.namespace}' if resource.namespace else ''}"


class _Answers(Generic[T]):
    """Answers by key, None being a bad one: each asked for once at a time, and remembered for a while."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._good: OrderedDict[bytes, tuple[float, T]] = OrderedDict()  # until when it is fresh; used last at the end
        self._bad: OrderedDict[bytes, float] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[T | None]] = {}
        self._permits = asyncio.Semaphore(REVIEWS_AT_ONCE)

    async def get(
        self, key: bytes, ask: Callable[[], Awaitable[T | None]], attempt: Callable[[], None] | None = None
    ) -> T | None:
        """The answer; `attempt` may object to asking about a key that was never good."""
        now = self._clock.monotonic()
        if key in self._good:
            self._good.move_to_end(key)
            until, answer = self._good[key]
            if now < until:
                return answer
        elif now < self._bad.get(key, now):
            return None
        asking = self._asking.get(key)
        if asking is None:
            if attempt is not None and key not in self._good:
                attempt()
            asking = self._asking[key] = asyncio.create_task(self._ask(key, ask))
            asking.add_done_callback(lambda task: self._asked(key, task))
        return await asyncio.shield(asking)  # a caller who leaves must not take the answer from the others

    async def _ask(self, key: bytes, ask: Callable[[], Awaitable[T | None]]) -> T | None:
        async with self._permits:
            answer = await ask()
        now = self._clock.monotonic()
        self._good.pop(key, None)
        self._bad.pop(key, None)
        if answer is None:
            self._bad[key] = now + BAD_SECONDS
        else:
            self._good[key] = now + GOOD_SECONDS, answer
        for table in (self._good, self._bad):
            if len(table) > REMEMBERED:
                table.popitem(last=False)
        return answer

    def _asked(self, key: bytes, task: asyncio.Task[T | None]) -> None:
        del self._asking[key]
        if not task.cancelled():
            task.exception()  # retrieved here for the case that every caller has left


def bearer_token(header: str) -> str:
    """The token in an Authorization header; empty when there is none.

    >>> bearer_token("Bearer abc"), bearer_token("Basic abc"), bearer_token("Bearer a b")
    ('abc', '', '')
    """
    scheme, _, token = header.partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token.isascii() and " " not in token else ""
