"""Who may talk to the sidecar: whoever shows the token it was given, or one the cluster knows and the lists name.

    Authorization: Bearer TOKEN ──► equal to the token in the file?            yes: in
                                └─► TokenReview: authenticated, audience, ServiceAccount or namespace in a list: in

A verdict of the cluster is remembered for a while, good ones longer than bad ones, so a flood of wrong tokens costs the
API server little. Tokens are kept nowhere, only their digests.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.errors import ConfigError, SteersmanError
from steersman.kube.errors import KubeError
from steersman.kube.types.authorization import TokenReview, TokenReviewSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.clock import Clock
    from steersman.kube.client import Client

__all__ = ["Access", "Guests", "Problem"]

GOOD_SECONDS: Final = 60.0
BAD_SECONDS: Final = 10.0
REMEMBERED: Final = 1000
ACCOUNT: Final = "system:serviceaccount:"


class Problem(SteersmanError):  # noqa: N818  says what happened
    """An answer that is not the one hoped for. Below 500 its text helps the caller; above it is for our log."""

    def __init__(self, status: int, error: str, details: str | None = None, *, retry_after: int | None = None) -> None:
        super().__init__(error)
        self.status, self.error, self.details, self.retry_after = status, error, details, retry_after


class Guests(msgspec.Struct, frozen=True, kw_only=True):
    """Whom the cluster's word lets in. Empty lists let in everybody whom the cluster knows."""

    accounts: frozenset[str] = frozenset()  # system:serviceaccount:NAMESPACE:NAME
    namespaces: frozenset[str] = frozenset()
    audiences: tuple[str, ...] = ()

    def admit(self, user: str) -> bool:
        """Whether this user is on a list."""
        if not (self.accounts or self.namespaces):
            return True
        parts = user.removeprefix(ACCOUNT).split(":")
        local = user.startswith(ACCOUNT) and len(parts) == 2
        return user in self.accounts or (local and parts[0] in self.namespaces)


class _Verdict(msgspec.Struct, frozen=True):
    until: float
    problem: tuple[int, str] | None = None


class Access:
    """Decides about tokens. Without a token and without a client everybody is let in."""

    def __init__(
        self,
        *,
        clock: Clock,
        token: Callable[[], str] | None = None,
        client: Client | None = None,
        guests: Guests | None = None,
    ) -> None:
        self._clock = clock
        self._token, self._client = token, client
        self._guests = guests or Guests()
        self._verdicts: dict[bytes, _Verdict] = {}

    async def check(self, header: str) -> None:
        """Return when a request with this Authorization may pass, else raise Problem."""
        if self._token is None and self._client is None:
            return
        scheme, _, shown = header.partition(" ")
        shown = shown.strip()
        if scheme.lower() != "bearer" or not shown:
            raise Problem(401, "Missing Authorization header: send a bearer token")
        if self._token is not None and self._is_ours(shown):
            return
        if self._client is None:
            raise Problem(401, "Invalid token")
        await self._review(self._client, shown)

    def _is_ours(self, shown: str) -> bool:
        assert self._token is not None
        try:
            token = self._token()
        except ConfigError as error:
            raise Problem(500, str(error)) from None
        # An empty file is a mistake, not a password.
        return bool(token) and hmac.compare_digest(token.encode(), shown.encode(errors="surrogateescape"))

    async def _review(self, client: Client, shown: str) -> None:
        name = hashlib.sha256(shown.encode(errors="surrogateescape")).digest()
        verdict = self._verdicts.get(name)
        if verdict is None or verdict.until < self._clock.monotonic():
            problem = await self._ask(client, shown)
            until = self._clock.monotonic() + (GOOD_SECONDS if problem is None else BAD_SECONDS)
            verdict = _Verdict(until, problem)
            if len(self._verdicts) >= REMEMBERED:
                self._verdicts.clear()
            self._verdicts[name] = verdict
        if verdict.problem is not None:
            raise Problem(*verdict.problem)

    async def _ask(self, client: Client, shown: str) -> tuple[int, str] | None:
        wanted = self._guests.audiences
        try:
            spec = TokenReviewSpec(token=shown, audiences=list(wanted))
            found = (await client.create(TokenReview(spec=spec))).status
        except KubeError as error:
            raise Problem(503, f"the token could not be reviewed: {error.reason}", retry_after=1) from None
        if not found.authenticated or found.user is None:
            return 401, "Invalid token"
        if wanted and not set(wanted) & set(found.audiences):
            return 401, "Invalid token: it is meant for somebody else"
        if not self._guests.admit(found.user.username):
            return 403, f"{found.user.username} may not use this interface"
        return None
