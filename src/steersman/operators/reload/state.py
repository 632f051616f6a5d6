"""Applied state: what a workload's pods were last started for, as one annotation on the workload.

    {"v":1,"s":{"configmap/app":{"d":"…","k":{"mode":"…"}}},"r":[1700000000],"h":[[1700000000,"configmap/app#mode"]]}

    s  per source, named as seen from the workload's namespace:
         d  the edge digest; "" when the source did not exist
         u  which keys it is over, when not simply all of them
         k  a short digest per key, which tells *what* changed and makes a change of the used keys comparable
    t  instead of s, when there are too many sources: d over all of them, u over their names, n how many
    e  pods created before this second are being evicted
    r  when it was restarted lately, in seconds since the epoch
    h  the same with cause and outcome, a few of them: [time, "configmap/app#mode", outcome, seconds it took]; the
       outcome of the last one is not known when it is written, and is found in the workload's own status

Invariant: never larger than `LIMIT`; what does not fit is summarised, the largest part first. Reading never fails: it
says what it found, and whatever cannot be read counts as nothing known.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

from steersman.operators.reload.digest import names_digest

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
_REMEMBERED_RESTARTS: Final = 20
_REMEMBERED_PAST: Final = 10
_LONGEST_WORD: Final = 120  # characters of a cause or an outcome
_LATEST: Final = 253_402_214_400  # the last day of the year 9999: anything later has no name in a calendar

Seconds = Annotated[int, msgspec.Meta(ge=0, le=_LATEST)]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What one source said."""

    digest: str = msgspec.field(default="", name="d")  # "": it did not exist
    use: str = msgspec.field(default="*", name="u")
    keys: dict[str, str] | None = msgspec.field(default=None, name="k")  # None: summarised


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """What all sources said together."""

    digest: str = msgspec.field(name="d")
    use: str = msgspec.field(name="u")
    count: Annotated[int, msgspec.Meta(ge=0, le=1 << 31)] = msgspec.field(name="n")


class Past(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One restart of the past."""

    at: Seconds
    told: str = ""  # the sources it was for
    outcome: str = ""  # available, replaced, failed: REASON; "": not known when it was written
    seconds: Seconds | None = None  # from the restart to the outcome


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What a workload's pods were last started for."""

    sources: dict[str, Entry] = {}  # by the source's name as seen from the workload's namespace
    total: Total | None = None
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


class _Wire(msgspec.Struct, omit_defaults=True):
    v: int
    s: dict[str, _WireEntry] = {}
    t: Total | None = None
    r: tuple[Seconds, ...] = ()
    h: tuple[Past, ...] = ()
    e: Seconds = 0


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
    sources = {name: Entry(digest=one.d, use=one.u, keys=one.k) for name, one in wire.s.items()}
    return Found(applied=Applied(sources=sources, total=wire.t, restarts=wire.r, history=wire.h, evict=wire.e))


def write_state(applied: Applied) -> str:
    """The text of the annotation: the same state gives the same text, never longer than `LIMIT`."""
    applied = replace(
        applied,
        restarts=tuple(sorted(applied.restarts))[-_REMEMBERED_RESTARTS:],
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
    return _encode(replace(applied, sources={}, total=total_of(sources)))


def next_history(history: tuple[Past, ...], at: int, told: str, outcome: tuple[str, int | None]) -> tuple[Past, ...]:
    """The history with one more restart, and with the outcome of the one before it."""
    if history and not history[-1].outcome:
        word, seconds = outcome
        history = (*history[:-1], replace(history[-1], outcome=word[:_LONGEST_WORD], seconds=seconds))
    return (*history, Past(at, told if len(told) <= _LONGEST_WORD else f"{told[: _LONGEST_WORD - 1]}…"))


def total_of(sources: dict[str, Entry]) -> Total:
    """The state of many sources in a few characters."""
    told = [(name, sources[name].digest, sources[name].use) for name in sorted(sources)]
    digest = hashlib.sha256(msgspec.json.encode(told)).hexdigest()
    return Total(digest=digest, use=names_digest(sources), count=len(sources))


def _encode(applied: Applied) -> str:
    sources = {name: _wire_entry(applied.sources[name]) for name in sorted(applied.sources)}
    return msgspec.json.encode(
        _Wire(VERSION, sources, applied.total, applied.restarts, applied.history, applied.evict)
    ).decode()


def _encode_entry(entry: Entry) -> bytes:
    return msgspec.json.encode(_wire_entry(entry))


def _wire_entry(entry: Entry) -> _WireEntry:
    return _WireEntry(entry.digest, entry.use, None if entry.keys is None else dict(sorted(entry.keys.items())))
