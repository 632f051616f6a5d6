"""The server's own certificate authority and serving certificate, made new for every run.

Keys are P-256: made in well under a millisecond, so that a server is ready at once. Private keys never leave the
process, except through a temporary file that the ssl module insists on reading and that is removed right after.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority"]

LIFETIME = dt.timedelta(days=365)
SKEW = dt.timedelta(hours=1)  # clients whose clock is a little late


class Authority:
    """A certificate authority in memory."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "steersman-apiserver-ca")])
        self._certificate = self._signed(
            self._name,
            self._key.public_key(),
            (x509.BasicConstraints(ca=True, path_length=None), True),
            (_usage(key_cert_sign=True, crl_sign=True, digital_signature=True), True),
        )
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def server_context(self, hosts: list[str]) -> ssl.SSLContext:
        """TLS for a server known by `hosts` (names or addresses); client certificates of this authority are taken."""
        names: list[x509.GeneralName] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        certificate, key = self._issue(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "steersman-apiserver")]),
            ExtendedKeyUsageOID.SERVER_AUTH,
            names,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.load_verify_locations(cadata=self.pem)
        context.verify_mode = ssl.CERT_OPTIONAL
        with tempfile.TemporaryDirectory(prefix="steersman-") as folder:  # mode 0700
            path = Path(folder) / "server.pem"
            path.write_text(certificate + key)
            context.load_cert_chain(path)
        return context

    def client(self, user: str, groups: tuple[str, ...] = ()) -> tuple[str, str]:
        """A client certificate for `user` and its key, both PEM."""
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        return self._issue(x509.Name(attributes), ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def _issue(
        self, subject: x509.Name, usage: x509.ObjectIdentifier, names: list[x509.GeneralName]
    ) -> tuple[str, str]:
        key = ec.generate_private_key(ec.SECP256R1())
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage(digital_signature=True), True),
            (x509.ExtendedKeyUsage([usage]), False),
        ]
        if names:
            extensions.append((x509.SubjectAlternativeName(names), False))
        certificate = self._signed(subject, key.public_key(), *extensions)
        return (
            certificate.public_bytes(serialization.Encoding.PEM).decode(),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ).decode(),
        )

    def _signed(
        self,
        subject: x509.Name,
        public: ec.EllipticCurvePublicKey,
        *extensions: tuple[x509.ExtensionType, bool],
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)  # validity is checked against the real clock, whatever ours says
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - SKEW)
            .not_valid_after(now + LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256())


def _usage(**wanted: bool) -> x509.KeyUsage:
    every = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: wanted.get(name, False) for name in every})
