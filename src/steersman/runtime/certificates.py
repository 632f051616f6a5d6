"""Serving certificates that renew themselves. Pure: bytes in, bytes out; `steersman.runtime.rotation` stores them.

A bundle is a certificate authority and one serving certificate signed by it. Renewal happens when two thirds of a
life are over, so a replica that was away for days still finds valid material. A new authority is trusted together
with the one before it until that one ends: no moment exists in which a client trusts neither.

    plan(bundle, now) = Keep | RenewServing | RenewAll
"""

from __future__ import annotations

import datetime as dt
import enum
import ipaddress
from typing import TYPE_CHECKING

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Bundle", "Renewal", "issue", "plan_renewal", "renew"]

AUTHORITY_LIFE = dt.timedelta(days=365 * 5)
SERVING_LIFE = dt.timedelta(days=90)
BACKDATE = dt.timedelta(minutes=10)  # clients whose clock is a little behind must not refuse a new certificate


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a server needs, as PEM. Two fields are secret; `repr` shows none of them."""

    trust: bytes  # what clients are told to trust: the authority, and the one before it while that lives
    authority: bytes
    authority_key: bytes
    serving: bytes
    serving_key: bytes

    def __repr__(self) -> str:
        return f"Bundle(serving until {self.serving_ends:%Y-%m-%d})"

    @property
    def serving_ends(self) -> dt.datetime:
        """When the serving certificate stops being valid."""
        return x509.load_pem_x509_certificate(self.serving).not_valid_after_utc


class Renewal(enum.Enum):
    """What has to be made anew."""

    KEEP = "keep"
    SERVING = "serving"
    ALL = "all"


def plan_renewal(bundle: Bundle | None, names: Sequence[str], now: dt.datetime) -> Renewal:
    """What to renew of `bundle`, None when there is none yet. Material that cannot be read is made anew."""
    if bundle is None:
        return Renewal.ALL
    try:
        authority = x509.load_pem_x509_certificate(bundle.authority)
        serving = x509.load_pem_x509_certificate(bundle.serving)
        serialization.load_pem_private_key(bundle.authority_key, None)
        key = serialization.load_pem_private_key(bundle.serving_key, None)
        serving.verify_directly_issued_by(authority)
    except Exception:  # noqa: BLE001  # whatever is wrong with it, it cannot be used
        return Renewal.ALL
    if _worn(authority, now):
        return Renewal.ALL
    if key.public_key() != serving.public_key() or _worn(serving, now) or set(names) != _names_of(serving):
        return Renewal.SERVING
    return Renewal.KEEP


def issue(names: Sequence[str], now: dt.datetime) -> Bundle:
    """A new authority and a serving certificate for `names` (host names and IP addresses)."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "steersman webhook authority")])
    authority = (
        _builder(subject, subject, key.public_key(), now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _serve(authority, key, names, now, trust=_pem(authority))


def renew(bundle: Bundle | None, renewal: Renewal, names: Sequence[str], now: dt.datetime) -> Bundle:
    """`bundle` with what `renewal` asks for made anew."""
    if bundle is None:
        return issue(names, now)
    if renewal is Renewal.ALL:
        fresh = issue(names, now)
        return msgspec.structs.replace(fresh, trust=fresh.trust + _still_valid(bundle.trust, now))
    if renewal is Renewal.SERVING:
        authority = x509.load_pem_x509_certificate(bundle.authority)
        key = serialization.load_pem_private_key(bundle.authority_key, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return _serve(authority, key, names, now, trust=bundle.authority + _others(bundle, now))
    return bundle


def _serve(
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    names: Sequence[str],
    now: dt.datetime,
    *,
    trust: bytes,
) -> Bundle:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    serving = (
        _builder(subject, authority.subject, key.public_key(), now, SERVING_LIFE)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return Bundle(
        trust=trust,
        authority=_pem(authority),
        authority_key=_key_pem(authority_key),
        serving=_pem(serving),
        serving_key=_key_pem(key),
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: dt.datetime, life: dt.timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + life)
    )


def _usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign,
        key_cert_sign=sign,
        crl_sign=sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names_of(certificate: x509.Certificate) -> set[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in names}


def _worn(certificate: x509.Certificate, now: dt.datetime) -> bool:
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return now >= certificate.not_valid_before_utc + life * 2 / 3


def _others(bundle: Bundle, now: dt.datetime) -> bytes:
    """The authorities that are trusted besides the current one and still live."""
    return _still_valid(bundle.trust.replace(bundle.authority, b""), now)


def _still_valid(pem: bytes, now: dt.datetime) -> bytes:
    try:
        certificates = x509.load_pem_x509_certificates(pem) if pem.strip() else []
    except ValueError:
        return b""
    return b"".join(_pem(certificate) for certificate in certificates if certificate.not_valid_after_utc > now)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
