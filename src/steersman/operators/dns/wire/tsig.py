"""TSIG (RFC 8945): dnspython signs and verifies, this module decides what is accepted.

Nothing here parses DNS beyond the TSIG record. `client` uses no message of a signed exchange before `Signer.check` has
returned, and no complete answer before `Signer.finish` has.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
import time
from typing import TYPE_CHECKING, Any, Final

import dns.rcode
import msgspec

from steersman.errors import FormatError
from steersman.operators.dns.wire.messages import ANY, TSIG

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ALGORITHMS: Final = {f"hmac-sha{bits}": getattr(hashlib, f"sha{bits}") for bits in (224, 256, 384, 512)}
FUDGE: Final = 300  # seconds that a signature may differ from our clock
UNSIGNED: Final = 99  # messages of a transfer in a row without a signature
BADSIG, BADKEY, BADTIME = int(dns.rcode.BADSIG), int(dns.rcode.BADKEY), int(dns.rcode.BADTIME)
OTHER_TIME: Final = f"the answer was signed more than {FUDGE} s from now: compare the clocks of both machines"


def _error_name(code: int) -> str:
    try:
        return dns.rcode.to_text(dns.rcode.Rcode.make(code), tsig=True)
    except ValueError:  # the field has 16 bits, an rcode 12
        return f"error {code}"


class BadSignature(Exception):  # noqa: N818  a state
    """A message without a valid signature; `code` is the TSIG error, found here or reported by the server."""

    def __init__(self, message: str, code: int = BADSIG) -> None:
        super().__init__(message)
        self.code = code

    @property
    def name(self) -> str:
        """The error by its name in RFC 8945."""
        return _error_name(self.code)


class Key(msgspec.Struct, frozen=True):
    """A TSIG key; its secret is never printed."""

    name: str
    algorithm: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Key({self.name!r}, {self.algorithm!r})"


def key_from(
    data: Mapping[str, bytes | None],
    *,
    name_key: str = "key-name",
    secret_key: str = "secret",  # noqa: S107  the name of a field
    algorithm_key: str = "algorithm",
) -> Key:
    """The TSIG key in the fields of a Secret; FormatError names the field, without its value."""
    name = (data.get(name_key) or b"").decode("ascii", "replace").strip()
    algorithm = (data.get(algorithm_key) or b"hmac-sha256").decode("ascii", "replace").strip().lower()
    secret = data.get(secret_key) or b""
    if not name or not all(sign.isalnum() or sign in "._-" for sign in name):
        raise FormatError(f"{name_key} must be the name of the key: letters, digits, dots, dashes and underscores")
    if algorithm not in ALGORITHMS:
        raise FormatError(f'unknown algorithm "{algorithm}" (known: {", ".join(ALGORITHMS)})')
    try:
        decoded = base64.b64decode(secret.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise FormatError(f"{secret_key} must be the secret in base64, as rndc-confgen prints it") from None
    if not decoded:
        raise FormatError(f"{secret_key} is empty")
    return Key(name, algorithm, decoded)


class Signer:
    """One exchange: signs the question and verifies every message of the answer.

    dnspython computes and compares MACs; what it leaves to its caller is decided here:

        time       within `FUDGE` seconds of our clock when it is read, whatever fudge the sender claims
        size       a complete MAC; truncated ones are rejected, which RFC 8945 (5.2.2.1) permits
        unsigned   never the first or the last message, and at most `UNSIGNED` in a row (5.3.1)
    """

    def __init__(self, key: Key, now: Callable[[], float] = time.time) -> None:
        import dns.tsig

        self._key = dns.tsig.Key(f"{key.name.removesuffix('.')}.", key.secret, f"{key.algorithm}.")
        self._now = now
        self._mac = b""  # of the question
        self._chain: Any = None  # the HMAC context that the next signature of the answer covers
        self._unsigned = 0

    def sign(self, message: bytes) -> bytes:
        """`message` with its signature."""
        signed, self._mac, _ = self._closed(message, b"", None)
        return signed

    def answer(self, message: bytes) -> bytes:
        """`message` with its signature, as the next message of the answer to the accepted question."""
        signed, _, self._chain = self._closed(message, self._mac, self._chain)
        return signed

    def accept(self, message: bytes, start: int) -> None:
        """Verify a question; BadSignature when it is not signed with our key."""
        self._mac, _ = self._validated(message, start, b"", None)

    def check(self, message: bytes, start: int | None, rcode: int = 0) -> None:
        """Verify the next message of the answer; `start` is the offset of its TSIG record, None without one."""
        if start is None:
            if self._chain is None:
                raise BadSignature(f"the answer is not signed (response code {_error_name(rcode)})")
            self._unsigned += 1
            if self._unsigned > UNSIGNED:
                raise BadSignature(f"more than {UNSIGNED} messages in a row have no signature")
            self._chain.update(message)  # a later signature covers it
            return
        _, self._chain = self._validated(message, start, self._mac, self._chain)
        self._unsigned = 0

    def finish(self) -> None:
        """End of the answer: BadSignature when its last message was not signed."""
        if self._unsigned:
            raise BadSignature("the last message of the answer is not signed")

    def _closed(self, message: bytes, prior: bytes, chain: Any) -> tuple[bytes, bytes, Any]:
        """A message with its TSIG record, its MAC, and the HMAC context of the next message."""
        import dns.rdtypes.ANY.TSIG
        import dns.tsig

        tsig: Any = dns.tsig  # untyped in dnspython
        row: Any = dns.rdtypes.ANY.TSIG.TSIG
        key: Any = self._key
        blank = row(ANY, TSIG, key.algorithm, 0, FUDGE, b"", int.from_bytes(message[:2]), 0, b"")
        made, chain = tsig.sign(message, key, blank, int(self._now()), prior, chain, True)
        data = made.to_wire()
        record = key.name.to_wire() + struct.pack("!HHIH", TSIG, ANY, 0, len(data)) + data
        count = int.from_bytes(message[10:12]) + 1
        return message[:10] + count.to_bytes(2) + message[12:] + record, made.mac, chain

    def _validated(self, message: bytes, start: int, prior: bytes, chain: Any) -> tuple[bytes, Any]:
        """The MAC of a message that is verified, and the HMAC context of the next message."""
        import dns.exception
        import dns.tsig

        validate: Any = dns.tsig.validate  # untyped in dnspython
        now = int(self._now())
        try:
            owner, found = _record(message, start)
            chain = validate(message, self._key, owner, found, now, prior, start, chain, True)
        except dns.tsig.PeerError:
            text = f"the server reports {_error_name(found.error)} for our signature"
            raise BadSignature(text, found.error) from None
        except (dns.tsig.BadKey, dns.tsig.BadAlgorithm):
            raise BadSignature("the answer is signed with another key", BADKEY) from None
        except dns.tsig.BadTime:
            raise BadSignature(OTHER_TIME, BADTIME) from None
        except dns.tsig.BadSignature:
            raise BadSignature("the signature of the answer is wrong", BADSIG) from None
        except (dns.exception.DNSException, ValueError, NotImplementedError, struct.error):
            raise BadSignature("the signature of the answer cannot be read", BADSIG) from None
        if abs(found.time_signed - now) > FUDGE:
            raise BadSignature(OTHER_TIME, BADTIME)
        return found.mac, chain


def _record(message: bytes, start: int) -> tuple[Any, Any]:
    """Owner and data of the TSIG record at `start`; ValueError when it is not the last record of the message."""
    import dns.rdata
    import dns.wire

    parser = dns.wire.Parser(message, start)
    owner = parser.get_name()
    kind, group, ttl, size = parser.get_struct("!HHIH")
    if (kind, group, ttl) != (TSIG, ANY, 0) or parser.remaining() != size:
        raise ValueError("the TSIG record is not the last one")
    return owner, dns.rdata.from_wire_parser(group, kind, parser)
