"""Signed DNS messages (RFC 8945): the signature that closes a message, made and checked byte by byte."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.errors import FormatError
from steersman.operators.dns.names import name_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ALGORITHMS", "BadSignature", "Key", "Signer", "key_from"]

ALGORITHMS: Final = {f"hmac-sha{bits}": getattr(hashlib, f"sha{bits}") for bits in (224, 256, 384, 512)}
FUDGE: Final = 300
TSIG: Final = 250
ANY: Final = 255
ERRORS: Final = {16: "BADSIG", 17: "BADKEY", 18: "BADTIME", 22: "BADTRUNC"}


class BadSignature(Exception):  # noqa: N818  what is wrong
    """An answer that is not signed as it should be; `code` is what the server said about ours."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Key(msgspec.Struct, frozen=True):
    """A shared secret and its name; never shown."""

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
    """The key that a Secret holds; FormatError says what is wrong, without the secret."""
    name = (data.get(name_key) or b"").decode("ascii", "replace").strip()
    algorithm = (data.get(algorithm_key) or b"hmac-sha256").decode("ascii", "replace").strip().lower()
    secret = data.get(secret_key) or b""
    if not name or not all(sign.isalnum() or sign in "._-" for sign in name):
        raise FormatError(f"{name_key} must be the name of the key, of letters, digits, dots and dashes")
    if algorithm not in ALGORITHMS:
        raise FormatError(f'algorithm "{algorithm}" is not known (try {", ".join(ALGORITHMS)})')
    try:
        decoded = base64.b64decode(secret.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise FormatError(f"{secret_key} must be the secret in base64, as rndc-confgen prints it") from None
    if not decoded:
        raise FormatError(f"{secret_key} is empty")
    return Key(name, algorithm, decoded)


class Signer:
    """One exchange: signs the question, checks the answers, however many messages they have."""

    def __init__(self, key: Key, now: float) -> None:
        self._name = name_of(key.name)
        self._algorithm = name_of(key.algorithm)
        self._hash = ALGORITHMS[key.algorithm]
        self._secret = key.secret
        self._now = int(now)
        self._mac = b""
        self._first = True
        self._open: hmac.HMAC | None = None

    def sign(self, message: bytes) -> bytes:
        """`message` with its signature."""
        variables = self._variables(self._now, FUDGE)
        return self._closed(message, hmac.digest(self._secret, message + variables, self._hash))

    def _closed(self, message: bytes, mac: bytes) -> bytes:
        self._mac = mac
        data = self._algorithm + self._times(self._now, FUDGE)
        data += struct.pack("!H", len(self._mac)) + self._mac + message[:2] + b"\0\0\0\0"
        record = self._name + struct.pack("!HHIH", TSIG, ANY, 0, len(data)) + data
        count = int.from_bytes(message[10:12]) + 1
        return message[:10] + count.to_bytes(2) + message[12:] + record

    def answer(self, message: bytes, asked: bytes) -> bytes:
        """`message` with its signature, as the next part of the answer to a question whose signature was `asked`."""
        prior = self._mac or asked
        digest = hmac.new(self._secret, struct.pack("!H", len(prior)) + prior + message, self._hash)
        digest.update(self._variables(self._now, FUDGE) if not self._mac else self._times(self._now, FUDGE))
        return self._closed(message, digest.digest())

    def asked(self, message: bytes, start: int) -> bytes | None:
        """The signature of a question, when it is one of our key."""
        signed, fudge, mac, original, _error = _read(message, start)
        plain = (
            original.to_bytes(2) + message[2:10] + (int.from_bytes(message[10:12]) - 1).to_bytes(2) + message[12:start]
        )
        right = hmac.digest(self._secret, plain + self._variables(signed, fudge), self._hash)
        fresh = abs(self._now - signed) <= fudge + 1
        return mac if fresh and hmac.compare_digest(right, mac) else None

    def check(self, message: bytes, start: int | None, rcode: int = 0) -> None:
        """Check one message of the answer; `start` is where its signature begins, None when it has none."""
        if start is None:
            if self._first:
                raise BadSignature("the answer is not signed", rcode)
            assert self._open is not None
            self._open.update(message)  # covered by a later signature
            return
        signed, fudge, mac, original, error = _read(message, start)
        size = len(mac)
        if error:
            raise BadSignature(f"the server says {ERRORS.get(error, error)} about our signature", error)
        if abs(self._now - signed) > 2 * fudge + 3600:
            raise BadSignature("the answer was signed at another time", 18)
        count = int.from_bytes(message[10:12]) - 1
        plain = original.to_bytes(2) + message[2:10] + count.to_bytes(2) + message[12:start]
        digest = self._open or hmac.new(self._secret, struct.pack("!H", len(self._mac)) + self._mac, self._hash)
        digest.update(plain)
        digest.update(self._variables(signed, fudge) if self._first else self._times(signed, fudge))
        if not hmac.compare_digest(digest.digest()[:size], mac):
            raise BadSignature("the signature of the answer is wrong")
        self._first = False
        self._open = hmac.new(self._secret, struct.pack("!H", size) + mac, self._hash)

    @staticmethod
    def _times(when: int, fudge: int) -> bytes:
        return when.to_bytes(6) + fudge.to_bytes(2)

    def _variables(self, when: int, fudge: int) -> bytes:
        head = self._name + struct.pack("!HI", ANY, 0) + self._algorithm
        return head + self._times(when, fudge) + b"\0\0\0\0"


def _read(message: bytes, start: int) -> tuple[int, int, bytes, int, int]:
    """Time, fudge, signature, original number and error of the signature that begins at `start`."""
    place = start
    while message[place]:
        place += message[place] + 1
    place += 11  # root, type, class, ttl, length
    while message[place]:
        place += message[place] + 1
    place += 1
    signed = int.from_bytes(message[place : place + 6])
    fudge, size = struct.unpack("!HH", message[place + 6 : place + 10])
    mac = message[place + 10 : place + 10 + size]
    original, error = struct.unpack("!HH", message[place + 10 + size : place + 14 + size])
    return signed, fudge, mac, original, error
