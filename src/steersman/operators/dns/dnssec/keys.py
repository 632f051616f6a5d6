"""Signing keys: DS records, lifetimes, and the key files that named reads. Pure, except for randomness.

A zone has one key-signing key (KSK) and one zone-signing key (ZSK), each in three files (`.key`, `.private`, `.state`).
The state says that the key is published everywhere, so named uses it unchanged and never writes: its key directory can
be read-only and contains exactly the keys of the Secret. In a Secret the plus signs of file names are underscores,
because field names have no plus signs: `Kexample.org._013_12345.private`. A private key is only written, never read.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, Final

import dns.dnssec
import dns.exception
import dns.rdata
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from dns.dnssecalgs import get_algorithm_cls_from_dnskey
from dns.dnssectypes import Algorithm

from steersman.errors import FormatError
from steersman.kube.api.times import parse_time
from steersman.operators.dns.zone.names import name_of, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


from typing import TYPE_CHECKING

from steersman.operators.dns.api.zone import DnssecStatus
from steersman.operators.dns.zone.rdata import DNSKEY, parsed

if TYPE_CHECKING:
    from collections.abc import Iterable
from steersman.operators.dns.api.servers import LIFETIME

SECURE_ENTRY: Final = 0x0001
ALGORITHMS: Final = {
    algorithm.value: algorithm.name
    for algorithm in (
        Algorithm.RSASHA256,
        Algorithm.RSASHA512,
        Algorithm.ECDSAP256SHA256,
        Algorithm.ECDSAP384SHA384,
        Algorithm.ED25519,
        Algorithm.ED448,
    )
}
SIGNING: Final = 65534  # the private type in which named records the progress of signing


def key_tag(key: bytes) -> int:
    """The tag of a DNSKEY value (RFC 4034, appendix B)."""
    return dns.dnssec.key_id(parsed(DNSKEY, key))


def ds_of(zone: bytes, key: bytes) -> str:
    """The DS record of a DNSKEY value, as the parent's zone file has it."""
    return dns.dnssec.make_ds(text_of(zone), parsed(DNSKEY, key), "SHA256").to_text()


def is_signed_with(tags: Iterable[int], keys: Iterable[bytes], progress: Iterable[bytes]) -> bool:
    """Whether a zone serves these keys and is completely signed; `progress` are the values of type `SIGNING`.

    >>> is_signed_with([1], [], [])
    False
    """
    ended = all(len(row) == 5 and row[4] for row in progress)  # longer values: an NSEC3 chain is being built
    return ended and set(tags) <= {key_tag(key) for key in keys}


def status_of_keys(zone: bytes, keys: Iterable[bytes]) -> DnssecStatus:
    """The DNSSEC status of a zone, from its DNSKEY values: the DS records of its key-signing keys."""
    entries = sorted(key for key in keys if int.from_bytes(key[:2]) & SECURE_ENTRY)
    if not entries:
        return DnssecStatus()
    return DnssecStatus(
        signed=True,
        ds_records=[ds_of(zone, key) for key in entries],
        key_tag=key_tag(entries[0]),
        algorithm=ALGORITHMS.get(entries[0][3], str(entries[0][3])),
    )


# -- lifetimes ---------------------------------------------------------------------------------------------------------


SHORTEST: Final = {"ksk": 93_601, "zsk": 867_901}  # seconds

_LIFETIME: Final = re.compile(rf"{LIFETIME}\Z")
_PART: Final = re.compile(r"([0-9]+)([a-z])")
_DAY: Final = 86_400
_UNITS: Final = {"w": 7 * _DAY, "d": _DAY, "h": 3600, "m": 60, "s": 1}
_DATES: Final = {"y": 365 * _DAY, "m": 31 * _DAY, "w": 7 * _DAY, "d": _DAY}
_LIMIT: Final = 2**32


def seconds_of(text: str, key: str) -> int:
    """The lifetime of a `ksk` or `zsk` in seconds; 0 when unlimited, FormatError when named would reject it.

    >>> seconds_of("P1M", "ksk"), seconds_of("4w2d", "zsk"), seconds_of("unlimited", "ksk")
    (2678400, 2592000, 0)
    """
    wrong = f'"{text}" is not a lifetime (try unlimited, P1Y or 90d)'
    lower = text.lower()
    if not _LIFETIME.match(text) or not (lower == "unlimited" or any(letter.isdigit() for letter in text)):
        raise FormatError(wrong)
    if lower == "unlimited":
        return 0
    if lower.isdigit():
        total = int(lower)
    elif lower.startswith("p"):
        date, _, time = lower[1:].partition("t")
        total = _sum(date, _DATES) + _sum(time, _UNITS)
    else:
        total = _sum(lower, _UNITS)
    if total >= _LIMIT:
        raise FormatError(f'"{text}" exceeds the limit of named, 2^32 seconds (try unlimited)')
    if 0 < total < SHORTEST[key]:
        days = -(-SHORTEST[key] // _DAY)
        raise FormatError(f'"{text}" is shorter than the rollover of a {key.upper()} (try {days}d or more)')
    return total


def _sum(text: str, units: dict[str, int]) -> int:
    return sum(int(number) * units[unit] for number, unit in _PART.findall(text))


ZONE_KEY: Final = 0x0100
TTL: Final = 3600
RSA_BITS: Final = 2048
BITS: Final = {8: RSA_BITS, 10: RSA_BITS, 13: 256, 14: 384, 15: 256, 16: 456}
LONGEST_FIELD: Final = 253
_FIELD: Final = re.compile(r"K(?P<zone>.+\.)_(?P<algorithm>\d{3})_(?P<tag>\d{5})\.(?P<part>key|private|state)\Z")
_TIME: Final = "%Y%m%d%H%M%S"


class SigningKey(msgspec.Struct, frozen=True):
    """The public half of a signing key."""

    zone: bytes
    data: bytes  # of its DNSKEY record: flags, protocol, algorithm, public key

    @property
    def entry(self) -> bool:
        """Whether it is the KSK, which the DS record of the parent refers to."""
        return bool(int.from_bytes(self.data[:2]) & SECURE_ENTRY)

    @property
    def algorithm(self) -> int:
        """Its algorithm number."""
        return self.data[3]

    @property
    def tag(self) -> int:
        """Its key tag."""
        return key_tag(self.data)

    @property
    def ds(self) -> str:
        """Its DS record."""
        return ds_of(self.zone, self.data)

    @property
    def field(self) -> str:
        """The name of its files in a Secret, without the extension."""
        return f"K{text_of(self.zone)}_{self.algorithm:03d}_{self.tag:05d}"


class KeyPlan(msgspec.Struct, frozen=True):
    """The keys of a zone, what has to be added to the operator's Secret, and the reason when there is a problem."""

    keys: tuple[SigningKey, ...] = ()
    missing: bool = False  # keys have to be made
    states: tuple[SigningKey, ...] = ()  # given keys that need a state file
    reason: str = ""
    message: str = ""

    @property
    def tags(self) -> frozenset[int]:
        """The tags of the keys that the server has to serve."""
        return frozenset(key.tag for key in self.keys)


def algorithm_of(word: str) -> int:
    """The number of an algorithm by name or number; FormatError when it is unknown.

    >>> algorithm_of("ecdsap256sha256"), algorithm_of("15")
    (13, 15)
    """
    for number, name in ALGORITHMS.items():
        if word.upper() == name or word == str(number):
            return number
    raise FormatError(f'unknown algorithm "{word}" (known: {", ".join(sorted(ALGORITHMS.values()))})')


def is_key_field(field: str) -> bool:
    """Whether a field of a Secret is a key file."""
    return _FIELD.match(field) is not None


# -- writing -----------------------------------------------------------------------------------------------------------


def make_key(zone: bytes, algorithm: int, now: str, *, entry: bool, others: Iterable[int] = ()) -> dict[str, str]:
    """The files of a new key, by field name of a Secret; its tag is none of `others`."""
    taken = set(others)
    while True:
        public, private = _GENERATORS[algorithm](algorithm)
        flags = ZONE_KEY | (SECURE_ENTRY if entry else 0)
        dnskey = dns.dnssec.make_dnskey(public, algorithm, flags)
        key = SigningKey(zone, dnskey.to_wire() or b"")
        if key.tag not in taken:
            break
    if len(key.field) + len(".private") > LONGEST_FIELD or "/" in key.field:
        raise FormatError(f"the name {text_of(zone)} does not fit into the field names of a Secret")
    lines = [f"{name}: {value}" for name, value in private.items()]
    head = ["Private-key-format: v1.3", f"Algorithm: {algorithm} ({ALGORITHMS[algorithm]})"]
    times = [
        f"{name}: {_stamp(now)}" for name in ("Created", "Publish", "Activate", *(["SyncPublish"] if entry else []))
    ]
    return {
        f"{key.field}.key": f"{text_of(zone)} {TTL} IN DNSKEY {dnskey.to_text(chunksize=0)}\n",
        f"{key.field}.private": "\n".join([*head, *lines, *times]) + "\n",
        f"{key.field}.state": state_of(key, now),
    }


def state_of(key: SigningKey, now: str) -> str:
    """The state file of a key that is published everywhere since `now`, so named has nothing to change or write."""
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
    dnskey = parsed(DNSKEY, key.data)
    public: Any = get_algorithm_cls_from_dnskey(dnskey).public_cls.from_dnskey(dnskey)
    return int(public.key.key_size)


def _elliptic(algorithm: int) -> tuple[Any, dict[str, str]]:
    made = ec.generate_private_key(ec.SECP256R1() if algorithm == 13 else ec.SECP384R1())
    return made.public_key(), {"PrivateKey": _text(made.private_numbers().private_value, BITS[algorithm] // 8)}


def _edwards(algorithm: int) -> tuple[Any, dict[str, str]]:
    made: Any = (ed25519.Ed25519PrivateKey if algorithm == 15 else ed448.Ed448PrivateKey).generate()
    secret = made.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    return made.public_key(), {"PrivateKey": base64.b64encode(secret).decode()}


def _rsa(_algorithm: int) -> tuple[Any, dict[str, str]]:
    made = rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)
    numbers = made.private_numbers()
    rows = {
        "Modulus": numbers.public_numbers.n,
        "PublicExponent": numbers.public_numbers.e,
        "PrivateExponent": numbers.d,
        "Prime1": numbers.p,
        "Prime2": numbers.q,
        "Exponent1": numbers.dmp1,
        "Exponent2": numbers.dmq1,
        "Coefficient": numbers.iqmp,
    }
    texts = {name: _text(value, (value.bit_length() + 7) // 8) for name, value in rows.items()}
    return made.public_key(), texts


def _text(number: int, size: int) -> str:
    return base64.b64encode(number.to_bytes(size)).decode()


_GENERATORS: Final[dict[int, Callable[[int], tuple[Any, dict[str, str]]]]] = {
    8: _rsa,
    10: _rsa,
    13: _elliptic,
    14: _elliptic,
    15: _edwards,
    16: _edwards,
}


# -- reading -----------------------------------------------------------------------------------------------------------


def keys_in(data: Mapping[str, bytes | None], zone: bytes) -> list[SigningKey]:
    """The keys of a zone in a Secret; FormatError names the field that is malformed, or has no private half."""
    found = []
    for field in sorted(data):
        match = _FIELD.match(field)
        if match is None or match["part"] != "key" or match["zone"].lower() != text_of(zone):
            continue
        if f"{field.removesuffix('.key')}.private" not in data:
            raise FormatError(f"{field} has no private key ({field.removesuffix('.key')}.private is missing)")
        key = _read(field, data[field] or b"", zone)
        if key.field.lower() != field.removesuffix(".key").lower():
            raise FormatError(f"{field} contains the key {key.field}")
        found.append(key)
    return found


def _read(field: str, text: bytes, zone: bytes) -> SigningKey:
    try:
        line = next(row for row in text.decode("ascii").splitlines() if row.strip() and not row.startswith(";"))
        owner, *words = line.split()
        value = " ".join(words[words.index("DNSKEY") + 1 :])
        data = dns.rdata.from_text("IN", "DNSKEY", value).to_wire() or b""
        if name_of(owner) != zone:
            raise FormatError(f"{field} is a key of {owner}")
    except (dns.exception.DNSException, ValueError, StopIteration, IndexError):
        raise FormatError(f"{field} is not a public key file as dnssec-keygen writes it") from None
    return SigningKey(zone, data)


# -- planning ----------------------------------------------------------------------------------------------------------


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
    """The keys of a zone, from two Secrets. `known` are the DS records in the zone's status.

    No keys are made for a zone whose parent may have DS records of others. `given` is the user's Secret, named `where`;
    when there is one, only its keys count.
    """
    data = ours if given is None else given
    try:
        keys = keys_in(data, zone)
    except FormatError as error:
        return KeyPlan(reason="KeysInvalid", message=f"Secret {where}: {error}")
    reported = set(known)
    if not keys:
        return _no_keys(zone, reported, where=where, given=given is not None, generate=generate)
    entries = [key for key in keys if key.entry and key.algorithm == algorithm]
    signers = [key for key in keys if not key.entry and key.algorithm == algorithm]
    if len(keys) != 2 or len(entries) != 1 or len(signers) != 1:
        have = ", ".join(f"{key.field} ({'KSK' if key.entry else 'ZSK'})" for key in keys)
        text = f"one KSK and one ZSK of {ALGORITHMS[algorithm]}"
        return KeyPlan(
            reason="KeysInvalid", message=f"Secret {where} must have {text} for {text_of(zone)}, but has {have}"
        )
    if reported and entries[0].ds not in reported:
        return KeyPlan(
            reason="KeysLost",
            message=f"the parent of {text_of(zone)} may have the DS record {', '.join(sorted(reported))}, but Secret "
            f"{where} has other keys: restore the previous keys, or remove the DS record from the parent and "
            "dnssecPolicy from the zone before it is signed with new keys",
        )
    plan = (entries[0], signers[0])
    return KeyPlan(keys=plan, states=tuple(key for key in plan if f"{key.field}.state" not in ours))


def _no_keys(zone: bytes, reported: set[str], *, where: str, given: bool, generate: bool) -> KeyPlan:
    """The plan for a zone without keys."""
    name = text_of(zone)
    if reported:
        return KeyPlan(
            reason="KeysLost",
            message=f"Secret {where} no longer has the keys of {name}, and the parent may have the DS record "
            f"{', '.join(sorted(reported))}: restore the keys, or remove the DS record from the parent and "
            "dnssecPolicy from the zone before it is signed with new keys",
        )
    if given:
        return KeyPlan(
            reason="KeysMissing",
            message=f"dnssec.signing.keysFrom.secretRef: Secret {where} has no keys of {name}; the zone is served "
            "unsigned",
        )
    if not generate:
        return KeyPlan(
            reason="KeysMissing",
            message=f"dnssec.signing.autoGenerate is false and {name} has no keys: name a Secret with keys in "
            "dnssec.signing.keysFrom.secretRef; the zone is served unsigned",
        )
    return KeyPlan(missing=True)
