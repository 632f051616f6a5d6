"""Applied state: what a workload's pods were last started for, as one annotation on the workload.

    {"v":1,"s":{"configmap/app":{"d":"…","k":{"mode":"…"}}},"r":[1700000000],"h":[[1700000000,"configmap/app#mode"]]}

    s  per source, named as seen from the workload's namespace:
         d  the edge digest; "" when the source did not exist
         u  which keys it is over, when not simply all of them
         k  a short digest per key, which tells *what* changed and makes a change of the used keys comparable
         w  in which of the ways of `w` its keys were compared, counted from 1; none: byte by byte
    t  instead of s, when there are too many sources: d over all of them, u over their names and uses, n how many, and
         w  for each of the ways, which of them, counted in the order of their names
    w  ways to compare keys, such as `*.json=json,stamp=ignore`
    e  pods created before this second are being evicted
    r  when it was restarted lately, in seconds since the epoch
    h  the same with cause and outcome, a few of them: [time, "configmap/app#mode", outcome, seconds it took]; the
       outcome of the last one is not known when it is written, and is found in the workload's own status

Invariant: never larger than `LIMIT`; what does not fit is summarised, the largest part first. Reading never fails: it
says what it found, and whatever cannot be read counts as nothing known.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec.structs import replace

from steersman.errors import FormatError
from steersman.operators.reload.comparison import read_ways
from steersman.operators.reload.digest import names_digest
from steersman.operators.reload.types import MOST_RESTARTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "LIMIT",
    "Applied",
    "Entry",
    "Found",
    "Past",
    "Total",
    "next_history",
    "read_state",
    "total_of",
    "write_state",
]

VERSION: Final = 1
LIMIT: Final = 16 * 1024  # bytes; an object may carry 256 KiB of annotations, of which we take a small part
_REMEMBERED_PAST: Final = 10
_LONGEST_WORD: Final = 120  # characters of a cause or an outcome
_LONGEST_WAYS: Final = 4000  # characters of the ways that a total speaks of
_LATEST: Final = 253_402_214_400  # the last day of the year 9999: anything later has no name in a calendar

Seconds = Annotated[int, msgspec.Meta(ge=0, le=_LATEST)]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What one source said."""

    digest: str = msgspec.field(default="", name="d")  # "": it did not exist
    use: str = msgspec.field(default="*", name="u")
    keys: dict[str, str] | None = msgspec.field(default=None, name="k")  # None: summarised
    ways: str = msgspec.field(default="", name="w")  # in which its keys are compared; "": byte by byte


class Total(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What all sources said together."""

    digest: str = msgspec.field(name="d")
    use: str = msgspec.field(name="u")
    count: Annotated[int, msgspec.Meta(ge=0, le=1 << 31)] = msgspec.field(name="n")
    ways: tuple[str, ...] = msgspec.field(default=(), name="w")  # for each of those of the state: `0-11,14`

    def ways_of(self, known: Sequence[str], names: Iterable[str]) -> dict[str, str]:
        """In which of the ways that are `known` each of these sources was compared, where not byte by byte."""
        ordered = sorted(names)
        return {
            ordered[place]: way
            for way, places in zip(known, self.ways, strict=False)
            for place in _places(places, len(ordered))
        }


class Past(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One restart of the past."""

    at: Seconds
    told: str = ""  # the sources it was for
    outcome: str = ""  # available, replaced, failed: REASON, applied: ACTION; "": not known when it was written
    seconds: Seconds | None = None  # from the restart to the outcome


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What a workload's pods were last started for."""

    sources: dict[str, Entry] = {}  # by the source's name as seen from the workload's namespace
    total: Total | None = None
    ways: tuple[str, ...] = ()  # that the total speaks of
    restarts: tuple[int, ...] = ()
    history: tuple[Past, ...] = ()
    evict: int = 0  # seconds since the epoch; pods created before that have to go. 0: none


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What the annotation held."""

    applied: Applied | None = None  # None: nothing known
    problem: str | None = None
    newer: bool = False  # written by a later version, and not ours to overwrite


class _WireEntry(msgspec.Struct, omit_defaults=True):
    d: str = ""
    u: str = "*"
    k: dict[str, str] | None = None
    w: int = 0


class _Wire(msgspec.Struct, omit_defaults=True):
    v: int
    s: dict[str, _WireEntry] = {}
    t: Total | None = None
    r: tuple[Seconds, ...] = ()
    h: tuple[Past, ...] = ()
    e: Seconds = 0
    w: tuple[str, ...] = ()


class _Version(msgspec.Struct):
    v: int


_wire: Final = msgspec.json.Decoder(_Wire)
_version: Final = msgspec.json.Decoder(_Version)


def read_state(text: str | None) -> Found:
    """What the annotation says; never raises."""
    if text is None:
        return Found()
    try:
        version = _version.decode(text).v
        if version > VERSION:
            return Found(
                newer=True,
                problem=f"it was written by a later version of this program ({version}; this one knows {VERSION})",
            )
        wire = _wire.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return Found(problem="it cannot be read; it is taken as new and written again")
    sources = {
        name: Entry(digest=one.d, use=one.u, keys=one.k, ways=wire.w[one.w - 1] if one.w else "")
        for name, one in wire.s.items()
        if one.w == 0 or 0 < one.w <= len(wire.w)
    }
    return Found(
        applied=Applied(
            sources={name: one for name, one in sources.items() if _readable(one.ways)},
            total=wire.t if all(map(_readable, wire.w)) else None,
            ways=wire.w if wire.t is not None else (),
            restarts=wire.r,
            history=wire.h,
            evict=wire.e,
        )
    )


def write_state(applied: Applied) -> str:
    """The text of the annotation: the same state gives the same text, never longer than `LIMIT`."""
    applied = replace(
        applied,
        restarts=tuple(sorted(applied.restarts))[-MOST_RESTARTS:],
        history=applied.history[-_REMEMBERED_PAST:],
    )
    text = _encode(applied)
    if len(text.encode()) > LIMIT:
        applied = replace(applied, history=applied.history[-1:])
        text = _encode(applied)
    excess = len(text.encode()) - LIMIT
    if excess <= 0:
        return text
    sources = dict(applied.sources)
    for name in sorted(sources, key=lambda one: (-len(sources[one].keys or ()), one)):
        if excess <= 0:
            return _encode(replace(applied, sources=sources))
        small = replace(sources[name], keys=None)
        excess -= len(_encode_entry(sources[name])) - len(_encode_entry(small))
        sources[name] = small
    if excess <= 0:
        return _encode(replace(applied, sources=sources))
    total, ways = total_of(sources)
    return _encode(replace(applied, sources={}, total=total, ways=ways))


def next_history(
    history: tuple[Past, ...], at: int, told: str, outcome: tuple[str, int | None], *, done: str = ""
) -> tuple[Past, ...]:
    """The history with one more restart, and with the outcome of the one before it.

    `done`: what was done in the place of a restart, and has no outcome to wait for.
    """
    if history and not history[-1].outcome:
        word, seconds = outcome
        history = (*history[:-1], replace(history[-1], outcome=word[:_LONGEST_WORD], seconds=seconds))
    return (*history, Past(at, told if len(told) <= _LONGEST_WORD else f"{told[: _LONGEST_WORD - 1]}…", done))


def total_of(sources: dict[str, Entry]) -> tuple[Total, tuple[str, ...]]:
    """The state of many sources in a few characters, and the ways to compare that it speaks of."""
    names = sorted(sources)
    told = [(name, sources[name].digest, sources[name].use) for name in names]
    uses = [f"{name} {sources[name].use}" for name in names]
    by_way: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        if sources[name].ways:
            by_way.setdefault(sources[name].ways, []).append(place)
    known = tuple(sorted(by_way))
    ways = tuple(_ranges(by_way[way]) for way in known)
    if sum(map(len, (*known, *ways))) > _LONGEST_WAYS:  # nobody can tell later: another way is another use
        uses, known, ways = [*uses, *(f"{way} {which}" for way, which in zip(known, ways, strict=True))], (), ()
    digest = hashlib.sha256(msgspec.json.encode(told)).hexdigest()
    return Total(digest=digest, use=names_digest(uses), count=len(sources), ways=ways), known


def _encode(applied: Applied) -> str:
    known = {way: place for place, way in enumerate(sorted({one.ways for one in applied.sources.values()} - {""}), 1)}
    sources = {
        name: _wire_entry(applied.sources[name], known.get(applied.sources[name].ways, 0))
        for name in sorted(applied.sources)
    }
    ways = tuple(known) if applied.total is None else applied.ways
    return msgspec.json.encode(
        _Wire(VERSION, sources, applied.total, applied.restarts, applied.history, applied.evict, ways)
    ).decode()


def _encode_entry(entry: Entry) -> bytes:
    return msgspec.json.encode(_wire_entry(entry))


def _wire_entry(entry: Entry, way: int = 0) -> _WireEntry:
    keys = None if entry.keys is None else dict(sorted(entry.keys.items()))
    return _WireEntry(entry.digest, entry.use, keys, way)


def _readable(ways: str) -> bool:
    try:
        read_ways(ways)
    except FormatError:
        return False
    return True


def _ranges(places: Iterable[int]) -> str:
    """Numbers in order, shorter.

    >>> _ranges([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][1] == place - 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def _places(text: str, count: int) -> Iterable[int]:
    """The numbers below `count` that were written so.

    >>> [*_places("0-2,5,x,7-8", 8)]
    [0, 1, 2, 5, 7]
    """
    for run in text.split(","):
        first, _, last = run.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and len(run) <= 20:
            yield from range(int(first), min(int(last or first) + 1, count))
