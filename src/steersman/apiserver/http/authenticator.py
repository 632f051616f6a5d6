"""Authentication: a bearer token or a client certificate of the server's own authority.

A request without credentials is anonymous; unknown credentials are rejected, as on the real server. What a user may do
is decided elsewhere (`authorization`).
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver import status_errors
from steersman.kube.api.types.authorization import UserInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp import web

    from steersman.apiserver.storage.store import Record
    from steersman.clock import Clock

MASTERS = "system:masters"  # a group whose members may do everything
ALL_AUTHENTICATED = "system:authenticated"
ALL_UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = UserInfo(username="system:anonymous", groups=[ALL_UNAUTHENTICATED])
ADMIN = "system:admin"
AUDIENCE = "https://kubernetes.default.svc"  # this server; a token for others only does not authenticate a request
_ADMIN = UserInfo(username=ADMIN, groups=[MASTERS, ALL_AUTHENTICATED])


class Authenticator:
    """Known tokens. An empty `token` turns authentication off: everyone is the administrator."""

    def __init__(self, token: str, clock: Clock, accounts: Mapping[str, Record]) -> None:
        self._open = not token
        self._clock = clock
        self._accounts = accounts  # service accounts by namespace/name
        # digest -> (user, when it ends, account, audiences)
        self._tokens: dict[bytes, tuple[UserInfo, float, str, Sequence[str]]] = {}
        if token:
            self._tokens[_digest(token)] = (_ADMIN, math.inf, "", [AUDIENCE])

    def add_service_account(
        self, token: str, namespace: str, name: str, *, uid: str, expires: float, audiences: Sequence[str] = (AUDIENCE,)
    ) -> None:
        """Let `token` stand for a service account until the clock's time is `expires` or the account is gone."""
        user = UserInfo(
            username=f"system:serviceaccount:{namespace}:{name}",
            uid=uid,
            groups=[*service_account_groups(namespace), ALL_AUTHENTICATED],
        )
        self._tokens[_digest(token)] = (user, expires, f"{namespace}/{name}", audiences)

    def user(self, token: str, audiences: Sequence[str] = (AUDIENCE,)) -> tuple[UserInfo, list[str]] | None:
        """The user of a token, and which of these audiences the token is for; None if for none of them.

        Looked up by digest, so the time it takes tells nothing about a secret.
        """
        user, expires, account, issued = self._tokens.get(_digest(token), (None, 0.0, "", ()))
        known = [audience for audience in issued if audience in audiences]
        if user is None or not known or self._clock.time() >= expires:
            return None
        return (user, known) if not account or self._is_there(account, user.uid) else None

    def _is_there(self, account: str, uid: str | None) -> bool:
        """Whether the account exists, and is not another one of the same name."""
        record = self._accounts.get(account)
        return record is not None and record.obj["metadata"]["uid"] == uid

    @staticmethod
    def info(user: UserInfo) -> dict[str, Any]:
        """The user as reviews show it."""
        shown: dict[str, Any] = msgspec.to_builtins(user)
        return shown

    def identify(self, http: web.BaseRequest) -> UserInfo:
        """The user behind a request; `ANONYMOUS` without credentials."""
        if self._open:
            return _ADMIN
        header = http.headers.get("Authorization", "")
        if header[:7].lower() == "bearer ":
            found = self.user(header[7:].strip())
            if found is None:
                raise status_errors.unauthorized()
            return found[0]
        if http.transport is not None and (certificate := http.transport.get_extra_info("peercert")):
            attributes = [pair for row in certificate.get("subject", ()) for pair in row]
            name = next((value for key, value in attributes if key == "commonName"), "")
            groups = [value for key, value in attributes if key == "organizationName"]
            return UserInfo(username=name, groups=[*groups, ALL_AUTHENTICATED]) if name else ANONYMOUS
        return ANONYMOUS


def service_account_groups(namespace: str) -> list[str]:
    """The groups of every service account in a namespace."""
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
