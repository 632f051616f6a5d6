"""The keys that zones are signed with, as the files that named reads them from. Pure, but for chance.

A zone has one key-signing key and one zone-signing key, each of them three files (`.key`, `.private`, `.state`). The
states say that everybody knows the keys already, so that named takes them as they are and never wants to write: its
key directory can be read-only, and there are no keys but those that were put there. In a Secret the plus signs of file
names are underscores, because its fields have no plus signs: `Kexample.org._013_12345.private`.

Nothing here needs the text of a private key but who makes one, and it is shown to nobody.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from steersman.errors import FormatError
from steersman.kube.times import parse_time
from steersman.operators.dns.names import name_of, text_of
from steersman.operators.dns.signing import ALGORITHMS, SECURE_ENTRY, ds_of, key_tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["KeyPlan", "SigningKey", "algorithm_of", "is_key_field", "keys_in", "make_key", "plan_keys", "state_of"]

ZONE_KEY: Final = 0x0100
TTL: Final = 3600
RSA_BITS: Final = 2048
BITS: Final = {8: RSA_BITS, 10: RSA_BITS, 13: 256, 14: 384, 15: 256, 16: 456}
LONGEST_FIELD: Final = 253
_FIELD: Final = re.compile(r"K(?P<zone>.+\.)_(?P<algorithm>\d{3})_(?P<tag>\d{5})\.(?P<part>key|private|state)\Z")
_TIME: Final = "%Y%m%d%H%M%S"


class SigningKey(msgspec.Struct, frozen=True):
    """One key, as far as everybody may know it."""

    zone: bytes
    data: bytes  # of its DNSKEY record: flags, protocol, algorithm, public key

    @property
    def entry(self) -> bool:
        """Whether it is the one that the parent refers to."""
        return bool(int.from_bytes(self.data[:2]) & SECURE_ENTRY)

    @property
    def algorithm(self) -> int:
        """The number of its algorithm."""
        return self.data[3]

    @property
    def tag(self) -> int:
        """Its number."""
        return key_tag(self.data)

    @property
    def ds(self) -> str:
        """What the parent says about it."""
        return ds_of(self.zone, self.data)

    @property
    def field(self) -> str:
        """The name of its files, as a Secret can have it and without their ending."""
        return f"K{text_of(self.zone)}_{self.algorithm:03d}_{self.tag:05d}"


class KeyPlan(msgspec.Struct, frozen=True):
    """The keys of a zone: those it has, what is to be added to our Secret for them, and what stands in the way."""

    keys: tuple[SigningKey, ...] = ()
    missing: bool = False  # they are to be made
    states: tuple[SigningKey, ...] = ()  # given keys whose state is not there yet
    reason: str = ""
    message: str = ""

    @property
    def tags(self) -> frozenset[int]:
        """What the server is to show."""
        return frozenset(key.tag for key in self.keys)


def algorithm_of(word: str) -> int:
    """The number of an algorithm that named calls so; FormatError when it is none that we know.

    >>> algorithm_of("ecdsap256sha256"), algorithm_of("15")
    (13, 15)
    """
    for number, name in ALGORITHMS.items():
        if word.upper() == name or word == str(number):
            return number
    raise FormatError(f'"{word}" is no algorithm of keys (try one of {", ".join(sorted(ALGORITHMS.values()))})')


def is_key_field(field: str) -> bool:
    """Whether a field of a Secret is a file of a key."""
    return _FIELD.match(field) is not None


# -- making ------------------------------------------------------------------------------------------------------------


def make_key(zone: bytes, algorithm: int, now: str, *, entry: bool, others: Iterable[int] = ()) -> dict[str, str]:
    """The files of a new key, by the names that a Secret has for them; its number is none of `others`."""
    taken = set(others)
    while True:
        public, private = _GENERATORS[algorithm](algorithm)
        flags = ZONE_KEY | (SECURE_ENTRY if entry else 0)
        key = SigningKey(zone, flags.to_bytes(2) + bytes([3, algorithm]) + public)
        if key.tag not in taken:
            break
    if len(key.field) + len(".private") > LONGEST_FIELD or "/" in key.field:
        raise FormatError(f"{text_of(zone)} has a name that a Secret cannot have keys for")
    lines = [f"{name}: {value}" for name, value in private.items()]
    head = ["Private-key-format: v1.3", f"Algorithm: {algorithm} ({ALGORITHMS[algorithm]})"]
    times = [
        f"{name}: {_stamp(now)}" for name in ("Created", "Publish", "Activate", *(["SyncPublish"] if entry else []))
    ]
    public_text = base64.b64encode(key.data[4:]).decode()
    return {
        f"{key.field}.key": f"{text_of(zone)} {TTL} IN DNSKEY {flags} 3 {algorithm} {public_text}\n",
        f"{key.field}.private": "\n".join([*head, *lines, *times]) + "\n",
        f"{key.field}.state": state_of(key, now),
    }


def state_of(key: SigningKey, now: str) -> str:
    """The state of a key that everybody knows since `now`: nothing about it is left for named to do, or to write."""
    when = parse_time(now)
    time = f"{_stamp(now)} ({when:%a %b %d %H:%M:%S %Y})"
    changes = ["DNSKEY", "KRRSIG", "DS"] if key.entry else ["DNSKEY", "ZRRSIG"]
    rows = [
        f"; This is the state of key {key.tag}, for {text_of(key.zone)}",
        f"Algorithm: {key.algorithm}",
        f"Length: {_bits(key)}",
        "Lifetime: 0",
        f"KSK: {'yes' if key.entry else 'no'}",
        f"ZSK: {'no' if key.entry else 'yes'}",
        *(f"{word}: {time}" for word in ("Generated", "Published", "Active")),
        *([f"PublishCDS: {time}"] if key.entry else []),
        *(f"{name}Change: {time}" for name in changes),
        *(f"{name}State: omnipresent" for name in changes),
        "GoalState: omnipresent",
    ]
    return "\n".join(rows) + "\n"


def _stamp(now: str) -> str:
    return f"{parse_time(now):{_TIME}}"


def _bits(key: SigningKey) -> int:
    if key.algorithm not in (8, 10):
        return BITS[key.algorithm]
    data = key.data[4:]
    size, start = (data[0], 1) if data[0] else (int.from_bytes(data[1:3]), 3)
    return int.from_bytes(data[start + size :]).bit_length()


def _elliptic(algorithm: int) -> tuple[bytes, dict[str, str]]:
    made = ec.generate_private_key(ec.SECP256R1() if algorithm == 13 else ec.SECP384R1())
    size = BITS[algorithm] // 8
    point = made.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return point[1:], {"PrivateKey": _text(made.private_numbers().private_value, size)}


def _edwards(algorithm: int) -> tuple[bytes, dict[str, str]]:
    made: Any = (ed25519.Ed25519PrivateKey if algorithm == 15 else ed448.Ed448PrivateKey).generate()
    secret = made.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    public = made.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return public, {"PrivateKey": base64.b64encode(secret).decode()}


def _rsa(_algorithm: int) -> tuple[bytes, dict[str, str]]:
    made = rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS).private_numbers()
    public = made.public_numbers
    exponent = public.e.to_bytes(3)
    rows = {
        "Modulus": public.n,
        "PublicExponent": public.e,
        "PrivateExponent": made.d,
        "Prime1": made.p,
        "Prime2": made.q,
        "Exponent1": made.dmp1,
        "Exponent2": made.dmq1,
        "Coefficient": made.iqmp,
    }
    wire = bytes([len(exponent)]) + exponent + public.n.to_bytes(RSA_BITS // 8)
    return wire, {name: _text(value, (value.bit_length() + 7) // 8) for name, value in rows.items()}


def _text(number: int, size: int) -> str:
    return base64.b64encode(number.to_bytes(size)).decode()


_GENERATORS: Final[dict[int, Callable[[int], tuple[bytes, dict[str, str]]]]] = {
    8: _rsa,
    10: _rsa,
    13: _elliptic,
    14: _elliptic,
    15: _edwards,
    16: _edwards,
}


# -- reading -----------------------------------------------------------------------------------------------------------


def keys_in(data: Mapping[str, bytes | None], zone: bytes) -> list[SigningKey]:
    """The keys of a zone that a Secret has both halves of; FormatError names the field that is not what it says."""
    found = []
    for field in sorted(data):
        match = _FIELD.match(field)
        if match is None or match["part"] != "key" or match["zone"].lower() != text_of(zone):
            continue
        if f"{field.removesuffix('.key')}.private" not in data:
            raise FormatError(f"{field} has no private half beside it ({field.removesuffix('.key')}.private)")
        key = _read(field, data[field] or b"", zone)
        if key.field.lower() != field.removesuffix(".key").lower():
            raise FormatError(f"{field} holds the key {key.field}")
        found.append(key)
    return found


def _read(field: str, text: bytes, zone: bytes) -> SigningKey:
    try:
        line = next(row for row in text.decode("ascii").splitlines() if row.strip() and not row.startswith(";"))
        words = line.split()
        place = words.index("DNSKEY")
        flags, protocol, algorithm = (int(word) for word in words[place + 1 : place + 4])
        public = base64.b64decode("".join(words[place + 4 :]), validate=True)
        data = flags.to_bytes(2) + bytes([protocol, algorithm]) + public
        if name_of(words[0]) != zone:
            raise FormatError(f"{field} is a key of {words[0]}")
    except (ValueError, OverflowError, StopIteration, IndexError):
        raise FormatError(f"{field} is not the public half of a key, as dnssec-keygen writes it") from None
    return SigningKey(zone, data)


# -- deciding ----------------------------------------------------------------------------------------------------------


def plan_keys(
    zone: bytes,
    algorithm: int,
    ours: Mapping[str, bytes | None],
    given: Mapping[str, bytes | None] | None,
    *,
    generate: bool,
    known: Iterable[str] = (),
    where: str = "",
) -> KeyPlan:
    """Which keys a zone is signed with, from what two Secrets hold. `known` are the DS records that were told before.

    Keys are never made for a zone whose parent may know others, and `given` (a Secret that people keep, by the name
    `where`) is the only place to look when there is one.
    """
    data = ours if given is None else given
    try:
        keys = keys_in(data, zone)
    except FormatError as error:
        return KeyPlan(reason="KeysInvalid", message=f"Secret {where}: {error}")
    told = set(known)
    if not keys:
        return _without(zone, told, where=where, given=given is not None, generate=generate)
    entries = [key for key in keys if key.entry and key.algorithm == algorithm]
    signers = [key for key in keys if not key.entry and key.algorithm == algorithm]
    if len(keys) != 2 or len(entries) != 1 or len(signers) != 1:
        have = ", ".join(f"{key.field} ({'KSK' if key.entry else 'ZSK'})" for key in keys)
        text = f"one key-signing and one zone-signing key of {ALGORITHMS[algorithm]}"
        return KeyPlan(
            reason="KeysInvalid", message=f"Secret {where} is to have {text} of {text_of(zone)}, and has {have}"
        )
    if told and entries[0].ds not in told:
        return KeyPlan(
            reason="KeysLost",
            message=f"{text_of(zone)} was signed with keys of which its parent may know {', '.join(sorted(told))}, and "
            f"Secret {where} has others: put those back, or take the DS record out of the parent and dnssecPolicy out "
            "of the zone before it is signed anew",
        )
    plan = (entries[0], signers[0])
    return KeyPlan(keys=plan, states=tuple(key for key in plan if f"{key.field}.state" not in ours))


def _without(zone: bytes, told: set[str], *, where: str, given: bool, generate: bool) -> KeyPlan:
    """There are no keys."""
    name = text_of(zone)
    if told:
        return KeyPlan(
            reason="KeysLost",
            message=f"Secret {where} no longer has the keys of {name}, of which its parent may know "
            f"{', '.join(sorted(told))}: put them back, or take the DS record out of the parent and dnssecPolicy out "
            "of the zone before it is signed anew",
        )
    if given:
        return KeyPlan(
            reason="KeysMissing",
            message=f"dnssec.signing.keysFrom.secretRef: Secret {where} has no keys of {name}; it is served unsigned",
        )
    if not generate:
        return KeyPlan(
            reason="KeysMissing",
            message=f"dnssec.signing.autoGenerate is false and there are no keys of {name}: name a Secret with them in "
            "dnssec.signing.keysFrom.secretRef; it is served unsigned",
        )
    return KeyPlan(missing=True)
