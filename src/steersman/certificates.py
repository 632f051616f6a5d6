"""Certificates of our own making: an authority, and what it signs.

Keys are elliptic (P-256), because making one takes a millisecond. The holder of an authority decides how long it lives
and where it is kept; nothing here writes to disk, except on systems without files in memory for the moment in which the
ssl module insists on reading a key pair from one that only we can read.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import ssl
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Authority", "Signed", "load_pair", "new_key"]

SKEW = dt.timedelta(minutes=10)  # clients whose clock is a little behind must not refuse a new certificate


class Signed(Struct, frozen=True, kw_only=True):
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Signed(…)"


class Authority:
    """A certificate authority."""

    def __init__(
        self, name: str, *, now: dt.datetime | None = None, life: dt.timedelta = dt.timedelta(days=365)
    ) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name, ())
        self._certificate = (
            _builder(subject, subject, self._key, self._key, now, life)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Self:
        """The authority in these PEM texts; ValueError when they are not one."""
        self = cls.__new__(cls)
        loaded = serialization.load_pem_private_key(key, None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise ValueError("the key is not an elliptic one")  # noqa: TRY004  # a bad value, whatever its type
        self._key = loaded
        self._certificate = x509.load_pem_x509_certificate(certificate)
        return self

    @property
    def pem(self) -> bytes:
        """The certificate of the authority itself."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key(self) -> bytes:
        """Its private key, to be stored."""
        return _pem(self._key)

    def server(
        self, *names: str, now: dt.datetime | None = None, life: dt.timedelta = dt.timedelta(days=365)
    ) -> Signed:
        """For a server reached under these names and addresses."""
        alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
        return self._sign(_subject(names[0][:64], ()), ExtendedKeyUsageOID.SERVER_AUTH, alternatives, now, life)

    def client(
        self,
        user: str,
        groups: Iterable[str] = (),
        *,
        now: dt.datetime | None = None,
        life: dt.timedelta = dt.timedelta(days=365),
    ) -> Signed:
        """For a Kubernetes user: the common name is the user, organizations are groups."""
        return self._sign(_subject(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, None, now, life)

    def _sign(
        self,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None,
        now: dt.datetime | None,
        life: dt.timedelta,
    ) -> Signed:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(subject, self._certificate.subject, key, self._key, now, life)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Signed(certificate=certificate.public_bytes(serialization.Encoding.PEM), key=_pem(key))


def load_pair(context: ssl.SSLContext, pair: Signed) -> None:
    """Serve with `pair` from now on; connections that are open stay.

    A pair that does not fit (read from a mount in the middle of its swap) raises ssl.SSLError and changes nothing.
    """
    with _as_file(pair.certificate + pair.key) as path:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)  # a failure leaves a context with half a pair
        context.load_cert_chain(path)


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Where OpenSSL, which takes a path and nothing else, finds `content`: in memory, where the system has that."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("pair"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.TemporaryDirectory(prefix="steersman-") as folder:  # mode 0700
        path = Path(folder) / "pair.pem"
        path.touch(mode=0o600)
        path.write_bytes(content)
        yield str(path)


def new_key() -> bytes:
    """A private key alone, PEM: what service account tokens are signed with."""
    return _pem(ec.generate_private_key(ec.SECP256R1()), serialization.PrivateFormat.TraditionalOpenSSL)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    now: dt.datetime | None,
    life: dt.timedelta,
) -> x509.CertificateBuilder:
    start = now or dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - SKEW)
        .not_valid_after(start + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )


def _pem(
    key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8
) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _subject(name: str, groups: Iterable[str]) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
