"""Certificates for one run: an authority made now, trusted by nobody else, and what it signs.

Keys are elliptic (P-256), because making one takes a millisecond. Nothing here is meant to outlive a test.
"""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Authority", "Signed", "new_key"]

_LIFETIME = timedelta(days=7)
_SKEW = timedelta(minutes=5)  # machines disagree about the time


class Signed(Struct, frozen=True, kw_only=True):
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A certificate authority of our own."""

    def __init__(self, name: str, *, now: datetime | None = None) -> None:
        self._now = now or datetime.now(UTC)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject(name, ())
        ca_only = x509.BasicConstraints(ca=True, path_length=0)
        builder = self._builder(self._name, self._key).add_extension(ca_only, critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        """The certificate of the authority itself."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, *names: str) -> Signed:
        """For a server reached under these names and addresses."""
        alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
        return self._sign(_subject(names[0], ()), ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def client(self, user: str, groups: Iterable[str] = ()) -> Signed:
        """For a Kubernetes user: the common name is the user, organizations are groups."""
        return self._sign(_subject(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _sign(
        self, subject: x509.Name, usage: x509.ObjectIdentifier, alternatives: x509.SubjectAlternativeName | None
    ) -> Signed:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._builder(subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Signed(certificate=certificate.public_bytes(serialization.Encoding.PEM), key=_pem(key))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _SKEW)
            .not_valid_after(self._now + _LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )


def new_key() -> bytes:
    """A private key alone, PEM: what service account tokens are signed with."""
    return _pem(ec.generate_private_key(ec.SECP256R1()))


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


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
