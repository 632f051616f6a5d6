"""TLS towards one API server: whom we trust, what we show, and what a failed handshake means.

A context is made once and kept until the CA or the client certificate changes. aiohttp keys its connections by the
context, so after a rotation new requests open new connections and old ones run out; nothing has to be torn down.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from steersman.errors import ConfigError
from steersman.kube.config.reloading_file import Material

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.clock import Clock
    from steersman.kube.config.config import Config
    from steersman.kube.config.credentials import KeyPair

__all__ = ["TLS", "explain_tls"]


class TLS:
    """The SSL contexts of one cluster."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._enabled = config.server.startswith("https:")
        self._ca = None
        if config.ca is not None:
            field = f"clusters.{config.cluster}.certificate-authority"
            self._ca = Material.of(config.ca, clock, field=field, where=config.source)
        self._made_from: tuple[bytes | None, KeyPair | None] | None = None
        self._context: ssl.SSLContext | None = None
        if self._ca is not None:
            self._build(self._ca.read(), None)  # a CA that cannot be used is reported at once, not at the first request

    def context(self, certificate: KeyPair | None) -> ssl.SSLContext | None:
        """The context for the next connection; None for plain HTTP.

        Material that is broken at first use raises ConfigError; broken by a later rotation (a certificate whose key
        has not arrived yet), the last good context stays in use.
        """
        if not self._enabled:
            return None
        made_from = (self._ca.read() if self._ca else None, certificate)
        if self._context is None or made_from != self._made_from:
            try:
                self._context = self._build(*made_from)
            except ConfigError:
                if self._context is None:
                    raise
            self._made_from = made_from
        return self._context

    def reload(self) -> bool:
        """Read the CA file again; True when that changed whom we trust, so that a repeat makes sense."""
        if self._ca is None or self._made_from is None:
            return False
        self._ca.invalidate()
        return self._ca.read() != self._made_from[0]

    def _build(self, ca: bytes | None, certificate: KeyPair | None) -> ssl.SSLContext:
        config = self._config
        context = ssl.create_default_context() if ca is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if ca is not None:
            try:
                context.load_verify_locations(cadata=ca.decode("ascii"))
            except (ssl.SSLError, ValueError):
                raise ConfigError(
                    "holds no PEM certificate (expected -----BEGIN CERTIFICATE-----)",
                    where=config.source,
                    field=f"clusters.{config.cluster}.certificate-authority",
                ) from None
        if config.insecure_skip_tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            try:
                load_key_pair(context, certificate)
            except (ssl.SSLError, ValueError):
                raise ConfigError(
                    "the client certificate and key are not PEM or do not belong together",
                    where=config.source,
                    field=f"users.{config.auth.name}.client-certificate",
                ) from None
        return context


def load_key_pair(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Give `context` a certificate and key; OpenSSL only takes them from a file."""
    with _private_file(pair.certificate + b"\n" + pair.key) as path:
        # A password callback that fails, because the default one asks on the terminal and would hang.
        context.load_cert_chain(path, password=_no_password)


def _no_password() -> str:
    raise ValueError("the key is encrypted")


@contextmanager
def _private_file(content: bytes) -> Iterator[Path]:
    """A file only we can read, deleted afterwards; in memory where the system can, so that no key is on a disk."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pem")
        try:
            os.write(descriptor, content)
            yield Path(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield Path(file.name)


# https://docs.openssl.org/master/man1/openssl-verification-options, X509_V_ERR_*
_EXPIRED, _NOT_YET_VALID = 10, 9
_HOSTNAME, _ADDRESS = 62, 64


def explain_tls(error: ssl.SSLError, config: Config) -> str:
    """One sentence: what is wrong with this handshake, and the way out."""
    cluster = f"cluster {config.cluster!r} of {config.source}" if config.cluster else config.source
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in {_HOSTNAME, _ADDRESS}:
            return (
                f"the certificate of {config.server} is for another name: correct server or set tls-server-name "
                f"in {cluster} ({error.verify_message})"
            )
        if error.verify_code in {_EXPIRED, _NOT_YET_VALID}:
            return (
                f"the certificate of {config.server} is not valid now ({error.verify_message}): "
                "renew it, or correct this machine's clock"
            )
        whom = "the system's CAs" if config.ca is None else "the CA"
        return (
            f"the certificate of {config.server} does not match {whom} in {cluster} ({error.verify_message}): "
            f"the cluster was recreated or server is another cluster; update certificate-authority"
        )
    if error.reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"}:
        return f"{config.server} does not speak TLS: is it http:// and not https:// in {cluster}?"
    return f"the TLS handshake with {config.server} failed ({error.reason or 'connection closed'}; {cluster})"
