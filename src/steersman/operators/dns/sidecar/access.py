"""Access to the sidecar: by the token it was configured with, or by a token that a TokenReview and the lists accept.

    Authorization: Bearer TOKEN ──► equal to the token in the file?            yes: in
                                └─► TokenReview: authenticated, audience, ServiceAccount or namespace in a list: in

`runtime.http.authentication` caches reviews and limits unknown tokens for each peer, so a flood of them costs the API
server little and blocks no known caller.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.errors import ConfigError, SteersmanError
from steersman.runtime.http.authentication import (
    ATTEMPTS_AT_ONCE,
    ATTEMPTS_PER_SECOND,
    AccessDenied,
    CallerRates,
    TokenAuthenticator,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.clock import Clock
    from steersman.kube.client.client import Client

ACCOUNT: Final = "system:serviceaccount:"


class Problem(SteersmanError):  # noqa: N818  says what happened
    """An error response. Its text is for the caller below 500, and for our log from 500 on."""

    def __init__(self, status: int, error: str, details: str | None = None, *, retry_after: int | None = None) -> None:
        super().__init__(error)
        self.status, self.error, self.details, self.retry_after = status, error, details, retry_after


class AllowedUsers(msgspec.Struct, frozen=True, kw_only=True):
    """The users that a TokenReview may name. Empty lists allow every authenticated user."""

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


class Access:
    """Decides about tokens. Without a token and without a client every request is allowed."""

    def __init__(
        self,
        *,
        clock: Clock,
        token: Callable[[], str] | None = None,
        client: Client | None = None,
        allowed: AllowedUsers | None = None,
    ) -> None:
        self._token = token
        self._allowed = allowed or AllowedUsers()
        self._cluster = TokenAuthenticator(client, audiences=self._allowed.audiences, clock=clock) if client else None
        self._attempts = CallerRates(per_second=ATTEMPTS_PER_SECOND, burst=ATTEMPTS_AT_ONCE, clock=clock)

    async def check(self, header: str, peer: str = "") -> str:
        """The caller with this Authorization header from `peer`; Problem when access is denied."""
        if self._token is None and self._cluster is None:
            return f"peer {peer}"
        scheme, _, shown = header.partition(" ")
        shown = shown.strip()
        if scheme.lower() != "bearer" or not shown:
            raise Problem(401, "Missing Authorization header: send a bearer token")
        if self._token is not None and self._is_own_token(shown):
            return "token"
        if self._cluster is not None:
            return await self._review(self._cluster, shown, peer)
        if not self._attempts.take(peer):
            raise Problem(429, "Too many invalid tokens: wait a second", retry_after=1)
        raise Problem(401, "Invalid token")

    def _is_own_token(self, shown: str) -> bool:
        assert self._token is not None
        try:
            token = self._token()
        except ConfigError as error:
            raise Problem(500, str(error)) from None
        # An empty file is a mistake and never a valid token.
        return bool(token) and hmac.compare_digest(token.encode(), shown.encode(errors="surrogateescape"))

    async def _review(self, cluster: TokenAuthenticator, shown: str, peer: str) -> str:
        try:
            user = await cluster.authenticate(shown, peer=peer)
        except AccessDenied as error:
            meant = ": unknown, or meant for another audience" if self._allowed.audiences else ""
            text = f"Invalid token{meant}" if error.status == 401 else str(error)
            raise Problem(error.status, text, retry_after=error.retry_after) from None
        if not self._allowed.admit(user.username):
            raise Problem(403, f"{user.username} may not use this interface")
        return f"user {user.username}"
