"""DNS messages, as far as a writer of zones needs them: questions, updates (RFC 2136) and transfers, to and from bytes.

An update names the zone once and points to it from every owner, so it stays small and costs little to make; one that
changes a single RRset names that once too, so an RRset that fits into an answer fits into an update. Deletions come
before additions, because a CNAME and other data cannot pass each other, except at the zone's own name servers,
where a server ignores whatever would leave none (RFC 2136, 3.4.2.4).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.operators.dns.names import owner_in
from steersman.operators.dns.rrsets import CNAME, MX, NS, PTR, SOA, Key, RRset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


__all__ = [
    "AXFR",
    "RCODES",
    "Change",
    "Message",
    "Row",
    "changes_size",
    "parse",
    "pieces",
    "question",
    "rrsets_of",
    "update",
    "update_parts",
]

AXFR: Final = 252
IN, NONE, ANY = 1, 254, 255
TSIG: Final = 250
ZONE_POINTER: Final = b"\xc0\x0c"  # where the name of the zone stands in every message that we make
RCODES: Final = {
    0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED", 6: "YXDOMAIN", 7: "YXRRSET",
    8: "NXRRSET", 9: "NOTAUTH", 10: "NOTZONE",
}  # fmt: skip
FULL: Final = 60_000  # bytes of an update; the rest is for the signature
_HEAD: Final = struct.Struct("!6H")
_ROW: Final = struct.Struct("!HHIH")


class Change(msgspec.Struct, frozen=True, gc=False):
    """One RRset of a server, as it is there and as it should be."""

    key: Key
    have: RRset | None
    want: RRset | None

    @property
    def is_idle(self) -> bool:
        """Whether it changes nothing."""
        return self.have == self.want


class Row(msgspec.Struct, frozen=True, gc=False):
    """One record of an answer; names are whole, and lower case."""

    name: bytes
    kind: int
    ttl: int
    value: bytes


class Message(msgspec.Struct, frozen=True):
    """An answer."""

    number: int
    flags: int
    rows: list[Row]
    signature: int | None  # where it begins
    authority: int = 0  # how many rows at the end are no answers

    @property
    def rcode(self) -> int:
        """What the server said."""
        return self.flags & 15


def question(number: int, name: bytes, kind: int, *, recursive: bool = False) -> bytes:
    """Ask for a name and type."""
    return _HEAD.pack(number, 0x0100 if recursive else 0, 1, 0, 0, 0) + name + struct.pack("!HH", kind, IN)


def update(
    number: int, zone: bytes, expected: bytes | None, soa: bytes | None, ttl: int, changes: Sequence[Change]
) -> bytes:
    """Make changes to a zone, if its start of authority still is `expected`; `soa` is the next one."""
    needs = b"" if expected is None else ZONE_POINTER + _ROW.pack(SOA, IN, 0, len(expected)) + expected
    start = _HEAD.size + len(zone) + 4 + len(needs)  # where the first row is going to be
    parts = update_parts(changes, start)
    if soa is not None:
        parts.append(ZONE_POINTER + _ROW.pack(SOA, IN, ttl, len(soa)) + soa)
    head = _HEAD.pack(number, 0x2800, 1, 0 if expected is None else 1, len(parts), 0)
    return b"".join((head, zone, struct.pack("!HH", SOA, IN), needs, *parts))


def update_parts(changes: Sequence[Change], start: int = 0) -> list[bytes]:
    """The records of an update that make these changes; `start` is where in the message they begin, if known."""
    removed: list[bytes] = []
    added: list[bytes] = []
    last: list[bytes] = []
    for change in changes:
        owner, kind = change.key
        name = owner + ZONE_POINTER
        have, want = change.have, change.want
        if kind == NS and not owner and have is not None and want is not None:
            fresh = want.values if have.ttl != want.ttl else want.values - have.values
            added += [_add(name, kind, want.ttl, value) for value in fresh]
            last += [_remove(name, kind, value) for value in have.values - want.values]
        elif have is None or want is None or _is_rewritten(have, want):
            if have is not None:
                removed.append(name + _ROW.pack(kind, ANY, 0, 0))
            if want is not None:
                added += [_add(name, kind, want.ttl, value) for value in want.values]
        else:
            removed += [_remove(name, kind, value) for value in have.values - want.values]
            added += [_add(name, kind, want.ttl, value) for value in want.values - have.values]
    parts = [*removed, *added, *last]
    if start and len(changes) == 1 and changes[0].key[0]:  # one name for all: the others point to the first
        whole = len(changes[0].key[0]) + len(ZONE_POINTER)
        pointer = struct.pack("!H", 0xC000 | start)
        parts[1:] = [pointer + part[whole:] for part in parts[1:]]
    return parts


def _is_rewritten(have: RRset, want: RRset) -> bool:
    """Whether an RRset is deleted and made again in one go, because its TTL is another or that is shorter."""
    return have.ttl != want.ttl or len(have.values - want.values) > 1 + len(have.values & want.values)


def changes_size(change: Change) -> int:
    """How many bytes a change takes in an update, at most and beside others."""
    count = len(change.key[0]) + 12
    size = count
    for rrset in (change.have, change.want):
        if rrset is not None:
            size += count * len(rrset.values) + sum(map(len, rrset.values))
    return size


def pieces(changes: Sequence[Change]) -> list[list[Change]]:
    """Changes in pieces that fit into a message each, nearly always one; what goes away comes first."""
    found: list[list[Change]] = []
    room = 0
    ordered = sorted(changes, key=lambda change: (change.want is not None, change.key)) if len(changes) > 1 else changes
    for change in ordered:
        size = changes_size(change)
        if size > room:
            found.append([])
            room = FULL
        found[-1].append(change)
        room -= size
    return found


def _add(name: bytes, kind: int, ttl: int, value: bytes) -> bytes:
    return name + _ROW.pack(kind, IN, ttl, len(value)) + value


def _remove(name: bytes, kind: int, value: bytes) -> bytes:
    return name + _ROW.pack(kind, NONE, 0, len(value)) + value


def parse(wire: bytes) -> Message:
    """An answer; ValueError or IndexError when it is none."""
    number, flags, questions, answers, authority, additional = _HEAD.unpack_from(wire)
    names: dict[int, bytes] = {}
    place = 12
    for _ in range(questions):
        _, place = _name(wire, place, names)
        place += 4
    rows: list[Row] = []
    signature = None
    for number_of_row in range(answers + authority + additional):
        start = place
        name, place = _name(wire, place, names)
        kind, _cls, ttl, size = _ROW.unpack_from(wire, place)
        place += 10
        if kind == TSIG:
            signature = start
        elif number_of_row < answers + authority:
            rows.append(Row(name, kind, ttl, _value(wire, kind, place, size, names)))
        place += size
    return Message(number, flags, rows, signature, authority)


def _value(wire: bytes, kind: int, place: int, size: int, names: dict[int, bytes]) -> bytes:
    """The data of a record with whole names."""
    if kind in (NS, CNAME, PTR):
        return _name(wire, place, names)[0]
    if kind == MX:
        return wire[place : place + 2] + _name(wire, place + 2, names)[0]
    if kind == SOA:
        first, end = _name(wire, place, names)
        second, end = _name(wire, end, names)
        return first + second + wire[end : end + 20]
    if kind == 33:
        return wire[place : place + 6] + _name(wire, place + 6, names)[0]
    return wire[place : place + size]


def _name(wire: bytes, place: int, names: dict[int, bytes]) -> tuple[bytes, int]:
    """A name, lower case and whole, and where it ends; names seen before are not read again."""
    parts: list[bytes] = []
    starts: list[int] = []
    end = -1
    while True:
        size = wire[place]
        if size >= 0xC0:
            if end < 0:
                end = place + 2
            target = (size & 0x3F) << 8 | wire[place + 1]
            if target >= place:
                raise ValueError("a name points forward")
            place = target
            known = names.get(place)
            if known is not None:
                tail = known
                break
            continue
        if not size:
            tail = b"\0"
            if end < 0:
                end = place + 1
            break
        starts.append(place)
        parts.append(wire[place : place + 1 + size].lower() if size < 65 else b"")
        place += size + 1
        if len(parts) > 128:
            raise ValueError("a name has too many labels")
    for start, part in zip(reversed(starts), reversed(parts), strict=True):
        tail = part + tail
        if start < 0x4000:
            names[start] = tail
    return tail, end


def rrsets_of(rows: Iterable[Row], zone: bytes, skip: frozenset[int]) -> tuple[bytes | None, Mapping[Key, RRset]]:
    """A transferred zone: the data of its start of authority, and all else by owner and type."""
    soa: bytes | None = None
    found: dict[Key, tuple[int, set[bytes]]] = {}
    for row in rows:
        if row.kind == SOA:
            soa = row.value if soa is None else soa
            continue
        if row.kind in skip:
            continue
        owner = owner_in(row.name, zone)
        if owner is None:
            continue
        entry = found.get((owner, row.kind))
        if entry is None:
            found[owner, row.kind] = (row.ttl, {row.value})
        else:
            entry[1].add(row.value)
    return soa, {key: RRset(ttl, frozenset(values)) for key, (ttl, values) in found.items()}
