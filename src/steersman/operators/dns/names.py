"""Domain names between text and wire: lower case, checked once, never text again until somebody reads them.

A name is the bytes of its labels, each behind its length. Absolute names end with the root's zero byte; owners are
relative to their zone, so the zone's own name is no bytes at all. Whatever is in a label, `text_of` escapes it, so no
name can become more than a name in a zone file.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from steersman.errors import FormatError

__all__ = ["absolute", "ancestors", "name_of", "owner_in", "owner_of", "reverse_name", "short_text", "some", "text_of"]

LONGEST: Final = 255
_LENGTH: Final = [bytes([size]) for size in range(64)]
_PLAIN: Final = re.compile(rb"[A-Za-z0-9_*/-]+\Z")


@lru_cache(maxsize=65536)
def name_of(text: str) -> bytes:
    """The absolute name that `text` spells; a final dot is optional.

    >>> name_of("Www.example.org.")
    b'\\x03www\\x07example\\x03org\\x00'
    """
    if text == ".":
        return b"\0"
    if not text.isascii():
        raise FormatError(f'"{text}" is not a host name (write it in its ASCII form, xn--…)')
    labels = _labels(text.removesuffix(".") if not text.endswith("\\.") else text)
    for label in labels:
        if not 0 < len(label) < 64:
            raise FormatError(f'"{text}" has a label of {len(label)} bytes; 1 to 63 are possible')
    wire = b"".join([_LENGTH[len(label)] + label for label in labels]).lower() + b"\0"  # no length is a letter
    if len(wire) > LONGEST:
        raise FormatError(f'"{text[:40]}…" is {len(wire)} bytes long; a name has at most {LONGEST}')
    return wire


def _labels(text: str) -> list[bytes]:
    if "\\" not in text:
        return text.encode().split(b".")
    labels, label, place = [], bytearray(), 0
    while place < len(text):
        sign = text[place]
        if sign == "\\" and place + 1 < len(text):
            place += 1
            label += text[place].encode()
        elif sign == ".":
            labels.append(bytes(label))
            label = bytearray()
        else:
            label += sign.encode()
        place += 1
    return [*labels, bytes(label)]


def owner_of(name: str, zone: bytes) -> bytes:
    """The owner that a record's `name` means inside `zone`; FormatError when it lies outside or gets too long.

    >>> owner_of("@", name_of("example.org")), owner_of("a.b", name_of("example.org"))
    (b'', b'\\x01a\\x01b')
    """
    if name in {"", "@"}:
        return b""
    if name.endswith("."):
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


def absolute(owner: bytes, zone: bytes) -> bytes:
    """An owner as an absolute name."""
    return owner + zone


def ancestors(owner: bytes) -> list[bytes]:
    """The owners above `owner`, nearest first, without the zone itself.

    >>> ancestors(b"\\x01a\\x01b\\x01c")
    [b'\\x01b\\x01c', b'\\x01c']
    """
    found, place = [], 0
    while place < len(owner):
        place += owner[place] + 1
        if place < len(owner):
            found.append(owner[place:])
    return found


def text_of(name: bytes) -> str:
    """A name for zone files and people, escaped; absolute names end with a dot.

    >>> text_of(b"\\x03a.b\\x03org\\x00"), text_of(b"\\x03www"), text_of(b"")
    ('a\\\\.b.org.', 'www', '@')
    """
    if not name:
        return "@"
    if name == b"\0":
        return "."
    labels, place = [], 0
    while place < len(name) and name[place]:
        label = name[place + 1 : place + 1 + name[place]]
        labels.append(label.decode() if _PLAIN.match(label) else _escaped(label))
        place += len(label) + 1
    return ".".join(labels) + ("." if name.endswith(b"\0") and place == len(name) - 1 else "")


def _escaped(label: bytes) -> str:
    return "".join(
        chr(byte)
        if _PLAIN.match(bytes([byte]))
        else (f"\\{chr(byte)}" if byte in b".!#$%&'+,:<=>?[]^`{|}~" else f"\\{byte:03d}")
        for byte in label
    )


def short_text(owner: bytes, zone: bytes) -> str:
    """An owner as people say it: the whole name without its final dot."""
    return text_of(owner + zone).removesuffix(".")


def reverse_name(address: bytes) -> bytes:
    """The name below in-addr.arpa or ip6.arpa that stands for an address of 4 or 16 bytes.

    >>> text_of(reverse_name(bytes([192, 0, 2, 1])))
    '1.2.0.192.in-addr.arpa.'
    """
    if len(address) == 4:
        return name_of(".".join(map(str, reversed(address))) + ".in-addr.arpa")
    return name_of(".".join(reversed(address.hex())) + ".ip6.arpa")


def some(names: list[str]) -> str:
    """The first of many names, and how many there are more."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
