"""Credentials: what a request carries to say who sends it.

    Credentials        headers() and certificate() for the next request, invalidate() after a 401
    ├── Anonymous, BasicAuth, BearerToken      fixed
    ├── TokenFile, ClientCertificate           follow files that rotate
    └── ExecCredentials (exec_plugin), OIDCCredentials (oidc)   fetched, kept until they expire

Invariant: whatever goes wrong here is a CredentialsFailed with a way out, and no error ever holds a secret.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from steersman.errors import ConfigError
from steersman.kube.api.errors import CredentialsFailed
from steersman.kube.config.reloading_file import Material

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.clock import Clock
    from steersman.kube.config.config import Config
    from steersman.kube.transport.metrics import ClientMetrics

__all__ = ["Credentials", "KeyPair", "credentials_for", "jwt_expiry"]


class KeyPair(NamedTuple):
    """A client certificate chain and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair(...)"


class Credentials(Protocol):
    """Who we are, for the next request."""

    async def headers(self) -> Mapping[str, str]:
        """Headers to send; the same object while the credentials are the same."""

    async def certificate(self) -> KeyPair | None:
        """The certificate to show in the TLS handshake; the same object while it is the same."""

    def invalidate(self, used: Mapping[str, str]) -> bool:
        """The server refused `used`. True when the next `headers` may give others, so that a repeat makes sense."""

    def hint(self) -> str:
        """What a person can do when the server refuses these credentials."""


class Anonymous:
    """No credentials at all."""

    async def headers(self) -> Mapping[str, str]:
        return {}

    async def certificate(self) -> KeyPair | None:
        return None

    def invalidate(self, used: Mapping[str, str]) -> bool:  # noqa: ARG002  # the protocol's
        return False

    def hint(self) -> str:
        return "no credentials were sent: give the context a user"


class BearerToken(Anonymous):
    """A fixed token."""

    def __init__(self, token: str, clock: Clock) -> None:
        self._token = token
        self._headers = bearer(token)
        self._clock = clock

    async def headers(self) -> Mapping[str, str]:
        return self._headers

    def hint(self) -> str:
        return f"the token {_age(self._token, self._clock)}: get a new one and put it in the user's token"


class TokenFile(Anonymous):
    """A token in a file that is renewed, such as a service account's. `fallback` is used until it can be read."""

    def __init__(self, file: Material, clock: Clock, *, fallback: str | None = None) -> None:
        self._file = file
        self._clock = clock
        self._fallback = fallback
        self._read: tuple[bytes, Mapping[str, str]] = (b"", {})

    async def headers(self) -> Mapping[str, str]:
        content = self._content()
        if content != self._read[0]:
            token = content.decode(errors="replace").strip()
            if not token:
                raise CredentialsFailed(f"{self._file.path} holds no token: check what is supposed to write it")
            self._read = (content, bearer(token))
        return self._read[1]

    def _content(self) -> bytes:
        if self._fallback is None:
            return self._file.read()
        try:
            return self._file.read()
        except ConfigError:
            return self._fallback.encode()

    def invalidate(self, used: Mapping[str, str]) -> bool:
        if used is self._read[1]:
            self._file.invalidate()
        return True

    def hint(self) -> str:
        token = self._read[0].decode(errors="replace").strip()
        return f"the token in {self._file.path} {_age(token, self._clock)}: check that it is still being renewed"


class BasicAuth(Anonymous):
    """Name and password."""

    def __init__(self, username: str, password: str) -> None:
        encoded = base64.b64encode(f"{username}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {encoded}"}

    async def headers(self) -> Mapping[str, str]:
        return self._headers

    def hint(self) -> str:
        return "check the user's username and password (most API servers no longer accept them: use a token)"


class ClientCertificate(Anonymous):
    """A client certificate, inline or in files that are renewed; `inner` may add a token."""

    def __init__(self, certificate: Material, key: Material, inner: Credentials | None = None) -> None:
        self._certificate = certificate
        self._key = key
        self._inner: Credentials = inner or Anonymous()
        self._pair = KeyPair(b"", b"")

    async def headers(self) -> Mapping[str, str]:
        return await self._inner.headers()

    async def certificate(self) -> KeyPair | None:
        pair = KeyPair(self._certificate.read(), self._key.read())
        if pair != self._pair:
            self._pair = pair
        return self._pair

    def invalidate(self, used: Mapping[str, str]) -> bool:
        self._certificate.invalidate()
        self._key.invalidate()
        return self._inner.invalidate(used) or self._certificate.path is not None

    def hint(self) -> str:
        if type(self._inner) is not Anonymous:
            return self._inner.hint()
        where = self._certificate.path or "client-certificate-data"
        return f"the client certificate ({where}) {_validity(self._pair.certificate)}: get a new one for this user"


def bearer(token: str) -> dict[str, str]:
    """The header of a bearer token, which must be fit for a header."""
    if not token.isascii() or not token.isprintable():
        raise CredentialsFailed("the token has characters that a token cannot have: it is damaged, get a new one")
    return {"Authorization": f"Bearer {token}"}


class _Claims(msgspec.Struct):
    exp: float | None = None


def jwt_expiry(token: str) -> float | None:
    """When a JSON Web Token ends, in seconds since the epoch; None when it is none or does not say."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(payload, type=_Claims).exp
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        return None


def _age(token: str, clock: Clock) -> str:
    expiry = jwt_expiry(token)
    if expiry is None or expiry > clock.time():
        return "is wrong or has expired"
    return f"expired {_ago(clock.time() - expiry)} ago"


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def _validity(pem: bytes) -> str:
    from cryptography import x509  # only needed to explain a failure, and slow to import

    try:
        end = x509.load_pem_x509_certificate(pem).not_valid_after_utc
    except ValueError:
        return "was refused"
    return f"was refused (it is valid until {end:%Y-%m-%d %H:%M} UTC)"


def credentials_for(config: Config, *, clock: Clock, metrics: ClientMetrics | None = None) -> Credentials:
    """The credentials of `config`'s user. As kubectl does it: a token, password or certificate beats a plugin."""
    user = config.auth
    found = _fixed(config, clock)
    if user.client_certificate is not None and user.client_key is not None:
        pair = (
            Material.of(
                user.client_certificate, clock, field=f"users.{user.name}.client-certificate", where=config.source
            ),
            Material.of(user.client_key, clock, field=f"users.{user.name}.client-key", where=config.source),
        )
        return ClientCertificate(*pair, found)
    if found is not None:
        return found
    if user.exec_plugin is not None:
        from steersman.kube.config.exec_plugin import ExecCredentials  # most processes never need it

        return ExecCredentials(user.exec_plugin, config, clock=clock, metrics=metrics)
    if user.oidc is not None:
        from steersman.kube.config.oidc import OIDCCredentials  # most processes never need it

        return OIDCCredentials(user.oidc, config, clock=clock)
    return Anonymous()


def _fixed(config: Config, clock: Clock) -> Credentials | None:
    user = config.auth
    if user.token_file is not None:
        field = f"users.{user.name}.tokenFile"
        return TokenFile(
            Material.of(user.token_file, clock, field=field, where=config.source), clock, fallback=user.token
        )
    if user.token:
        return BearerToken(user.token, clock)
    if user.username or user.password:
        return BasicAuth(user.username or "", user.password or "")
    return None
