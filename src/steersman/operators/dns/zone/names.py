"""Domain names as canonical wire bytes: parsed once by dnspython, compared, hashed and sent as they are.

A name is its labels in lower case, each behind its length. An absolute name ends with the zero byte of the root; an
owner is relative to its zone, so the owner of the zone's apex is empty. Names are bytes instead of `dns.name.Name`
because a zone has a hundred thousand: they are keys of dictionaries and parts of messages without a conversion.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from typing import Final

import dns.exception
import dns.name

from steersman.errors import FormatError

LONGEST: Final = 255
_PROBLEMS: Final[dict[type[Exception], str]] = {
    dns.name.EmptyLabel: "has an empty label: two dots in a row, or a dot at the start",
    dns.name.LabelTooLong: "has a label of more than 63 bytes",
    dns.name.NameTooLong: f"is longer than {LONGEST} bytes, the limit of a name",
    dns.name.BadEscape: "has a backslash that is not followed by a character or by three digits up to 255",
}


@lru_cache(maxsize=65536)
def name_of(text: str) -> bytes:
    """The absolute name of a text; the final dot is optional. FormatError when the text is not a name.

    >>> name_of("Www.example.org."), name_of("a\\\\.b\\\\032c.org")
    (b'\\x03www\\x07example\\x03org\\x00', b'\\x05a.b c\\x03org\\x00')
    """
    if text in ("", "@"):
        raise FormatError(f'"{text}" is not a name')
    if not text.isascii():
        raise FormatError(f'"{text}" is not a host name (write it in its ASCII form, xn--…)')
    try:
        return dns.name.from_text(text).to_digestable()
    except dns.exception.DNSException as error:
        shown = text if len(text) <= LONGEST else f"{text[:40]}…"
        raise FormatError(f'"{shown}" {_PROBLEMS.get(type(error), f"is not a name ({error})")}') from None


def is_absolute(text: str) -> bool:
    """Whether a text ends with a dot that is not escaped."""
    stem = text.removesuffix(".")
    return stem != text and (len(stem) - len(stem.rstrip("\\"))) % 2 == 0


def owner_of(name: str, zone: bytes) -> bytes:
    """The owner that a record's `name` means inside `zone`; FormatError when it lies outside or gets too long.

    >>> owner_of("@", name_of("example.org")), owner_of("a.b", name_of("example.org"))
    (b'', b'\\x01a\\x01b')
    """
    if name in {"", "@"}:
        return b""
    if is_absolute(name):
        owner = owner_in(name_of(name), zone)
        if owner is None:
            raise FormatError(f'"{name}" is outside the zone {text_of(zone)}')
        return owner
    owner = name_of(name)[:-1]
    if len(owner) + len(zone) > LONGEST:
        raise FormatError(f'"{name}" is too long for a name in {text_of(zone)}')
    return owner


def owner_in(name: bytes, zone: bytes) -> bytes | None:
    """An absolute name as an owner in `zone`; None when it lies outside."""
    if not name.endswith(zone):
        return None
    split = len(name) - len(zone)
    place = 0
    while place < split:  # the zone's labels must begin where a label of the name begins
        place += name[place] + 1
    return name[:split] if place == split else None


def _labels(name: bytes) -> list[bytes]:
    labels, place = [], 0
    while place < len(name):
        labels.append(name[place + 1 : place + 1 + name[place]])
        place += name[place] + 1
    return labels


def ancestors(owner: bytes) -> list[bytes]:
    """The owners above `owner`, nearest first, without the zone itself.

    >>> ancestors(b"\\x01a\\x01b\\x01c")
    [b'\\x01b\\x01c', b'\\x01c']
    """
    found, place = [], 0
    for label in _labels(owner)[:-1]:
        place += len(label) + 1
        found.append(owner[place:])
    return found


def text_of(name: bytes) -> str:
    """A name for zone files and messages, escaped; an absolute name ends with a dot.

    >>> text_of(b"\\x03a.b\\x03org\\x00"), text_of(b"\\x03www"), text_of(b"")
    ('a\\\\.b.org.', 'www', '@')
    """
    return dns.name.Name(_labels(name)).to_text()


def short_text(owner: bytes, zone: bytes) -> str:
    """An owner as its whole name, without the final dot."""
    return text_of(owner + zone).removesuffix(".")


def index_name(text: str) -> str:
    r"""The one spelling of a name for an index: lower case, no final dot, only necessary escapes.

    A text that is not a name is only lowered; the reader of the name reports what is wrong with it.

    >>> index_name("Bank.Example."), index_name("b\\ank.example")
    ('bank.example', 'bank.example')
    """
    try:
        return text_of(name_of(text)[:-1])
    except FormatError:
        return text.lower()


def names_above(text: str) -> list[str]:
    """The names above a name, nearest first, without the root; spelled as `index_name` does.

    >>> names_above("a.Bank.Example")
    ['bank.example', 'example']
    """
    try:
        return [text_of(name) for name in ancestors(name_of(text)[:-1])]
    except FormatError:
        return []


def reverse_name(address: bytes) -> bytes:
    """The name below in-addr.arpa or ip6.arpa of an address of 4 or 16 bytes.

    >>> text_of(reverse_name(bytes([192, 0, 2, 1])))
    '1.2.0.192.in-addr.arpa.'
    """
    return name_of(ip_address(address).reverse_pointer)
