"""Who is asking: a bearer token or a client certificate of the server's own authority.

Identity is all there is: RBAC is not evaluated, whoever is known may do everything. Nobody known and no credentials
means anonymous, which may only look at health and version; unknown credentials are refused, as the real server does.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from steersman.apiserver import statuses

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["ADMIN", "Identities"]

ADMIN = "system:admin"


class Identities:
    """Known tokens. An empty `token` turns authentication off: everyone is the administrator."""

    def __init__(self, token: str) -> None:
        self._open = not token
        self._tokens: dict[str, str] = {token: ADMIN} if token else {}

    def add(self, token: str, user: str) -> None:
        """Let `token` stand for `user`."""
        self._tokens[token] = user

    def user(self, token: str) -> str | None:
        """Whom a token stands for. Every known token is compared, in constant time each."""
        found = None
        for known, user in self._tokens.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                found = user
        return found

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
