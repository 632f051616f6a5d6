"""Who is asking: a bearer token or a client certificate of the server's own authority.

Identity is all there is: RBAC is not evaluated, whoever is known may do everything. Nobody known and no credentials
means anonymous, which may only look at health and version; unknown credentials are refused, as the real server does.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

from steersman.apiserver import statuses

if TYPE_CHECKING:
    from aiohttp import web

    from steersman.clock import Clock

__all__ = ["ADMIN", "Identities"]

ADMIN = "system:admin"


class Identities:
    """Known tokens. An empty `token` turns authentication off: everyone is the administrator."""

    def __init__(self, token: str, clock: Clock) -> None:
        self._open = not token
        self._clock = clock
        self._tokens: dict[bytes, tuple[str, float]] = {}  # digest -> (user, when it ends)
        if token:
            self.add(token, ADMIN)

    def add(self, token: str, user: str, *, expires: float = math.inf) -> None:
        """Let `token` stand for `user` until the clock's time is `expires`."""
        self._tokens[_digest(token)] = (user, expires)

    def user(self, token: str) -> str | None:
        """Whom a token stands for. Looked up by digest, so the time it takes tells nothing about a secret."""
        user, expires = self._tokens.get(_digest(token), (None, 0.0))
        return user if self._clock.time() < expires else None

    def info(self, user: str) -> dict[str, Any]:
        """The user as reviews show it."""
        groups = ["system:masters"] if user == ADMIN else []
        if user.startswith("system:serviceaccount:"):
            namespace = user.split(":")[2]
            groups += ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        return {"username": user, "groups": [*groups, "system:authenticated"]}

    def identify(self, http: web.BaseRequest) -> str:
        """The user behind a request; empty for anonymous."""
        if self._open:
            return ADMIN
        header = http.headers.get("Authorization", "")
        if header[:7].lower() == "bearer ":
            user = self.user(header[7:].strip())
            if user is None:
                raise statuses.unauthorized()
            return user
        if http.transport is not None and (certificate := http.transport.get_extra_info("peercert")):
            for attributes in certificate.get("subject", ()):
                for key, value in attributes:
                    if key == "commonName":
                        return str(value)
        return ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
