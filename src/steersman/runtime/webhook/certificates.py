"""Serving certificates that renew themselves. Pure: bytes in, bytes out; `webhook.certificate_source` stores them.

A bundle is a certificate authority and one serving certificate signed by it. Renewal happens when two thirds of a
life are over, so a replica that was away for days still finds valid material. A new authority is trusted together
with the one before it until that one ends: no moment exists in which a client trusts neither.

    plan(bundle, now) = Keep | RenewServing | RenewAll
"""

from __future__ import annotations

import datetime as dt
import enum
from typing import TYPE_CHECKING

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from steersman.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CertBundle", "Renewal", "Validity", "issue", "plan_renewal", "renew", "validity_of"]

AUTHORITY_LIFE = dt.timedelta(days=365 * 5)
SERVING_LIFE = dt.timedelta(days=90)


class CertBundle(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a server needs, as PEM. Two fields are secret; `repr` shows none of them."""

    trust: bytes  # what clients trust: the authority, and the one before it while that lives
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


class Validity(msgspec.Struct, frozen=True, kw_only=True):
    """From when until when a certificate counts, its whole chain included."""

    starts: dt.datetime
    ends: dt.datetime

    def problem(self, now: dt.datetime) -> str | None:
        """Why clients refuse it now; None when they do not."""
        if now >= self.ends:
            return f"the serving certificate expired at {self.ends:%Y-%m-%d %H:%M} UTC: renew it"
        if now < self.starts:
            return f"the serving certificate is not valid before {self.starts:%Y-%m-%d %H:%M} UTC: check the clocks"
        return None

    def warning(self, now: dt.datetime) -> str | None:
        """A warning before it expires: certificates are renewed after two thirds of their life, half of the rest
        is for retries.
        """
        if self.problem(now) is not None or now < self.ends - (self.ends - self.starts) / 6:
            return None
        return f"the serving certificate expires at {self.ends:%Y-%m-%d %H:%M} UTC and has not been renewed"


def validity_of(pem: bytes) -> Validity:
    """The validity of a certificate and those behind it in its chain; ValueError when it cannot be read."""
    chain = x509.load_pem_x509_certificates(pem)
    return Validity(
        starts=max(certificate.not_valid_before_utc for certificate in chain),
        ends=min(certificate.not_valid_after_utc for certificate in chain),
    )


class Renewal(enum.Enum):
    """What has to be issued again."""

    KEEP = "keep"
    SERVING = "serving"
    ALL = "all"


def plan_renewal(bundle: CertBundle | None, names: Sequence[str], now: dt.datetime) -> Renewal:
    """What to renew of `bundle`, None when there is none yet. Material that cannot be read is issued again."""
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


def issue(names: Sequence[str], now: dt.datetime) -> CertBundle:
    """A new authority and a serving certificate for `names` (host names and IP addresses)."""
    authority = Authority("steersman webhook authority", now=now, life=AUTHORITY_LIFE)
    return _serve(authority, names, now, trust=authority.pem)


def renew(bundle: CertBundle | None, renewal: Renewal, names: Sequence[str], now: dt.datetime) -> CertBundle:
    """`bundle` with what `renewal` asks for issued again."""
    if bundle is None:
        return issue(names, now)
    if renewal is Renewal.ALL:
        fresh = issue(names, now)
        return msgspec.structs.replace(fresh, trust=fresh.trust + _still_valid(bundle.trust, now))
    if renewal is Renewal.SERVING:
        authority = Authority.load(bundle.authority, bundle.authority_key)
        return _serve(authority, names, now, trust=bundle.authority + _others(bundle, now))
    return bundle


def _serve(authority: Authority, names: Sequence[str], now: dt.datetime, *, trust: bytes) -> CertBundle:
    serving = authority.server(*names, now=now, life=SERVING_LIFE)
    return CertBundle(
        trust=trust,
        authority=authority.pem,
        authority_key=authority.key,
        serving=serving.certificate,
        serving_key=serving.key,
    )


def _names_of(certificate: x509.Certificate) -> set[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in names}


def _worn(certificate: x509.Certificate, now: dt.datetime) -> bool:
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return now >= certificate.not_valid_before_utc + life * 2 / 3


def _others(bundle: CertBundle, now: dt.datetime) -> bytes:
    """The authorities that are trusted besides the current one and still live."""
    return _still_valid(bundle.trust.replace(bundle.authority, b""), now)


def _still_valid(pem: bytes, now: dt.datetime) -> bytes:
    try:
        certificates = x509.load_pem_x509_certificates(pem) if pem.strip() else []
    except ValueError:
        return b""
    return b"".join(
        certificate.public_bytes(serialization.Encoding.PEM)
        for certificate in certificates
        if certificate.not_valid_after_utc > now
    )
