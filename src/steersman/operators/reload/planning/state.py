"""Applied state: what a workload's pods were last started for, as one annotation on the workload.

    {"v":1,"s":{"configmap/app":{"d":"…","k":{"mode":"…"}}},"r":[1700000000],"h":[[1700000000,"configmap/app#mode"]]}

    s  per source whose digests have no key, named as seen from the workload's namespace:
         d  the edge digest; "" when the source did not exist
         u  which keys it is over, when not simply all of them
         k  a short digest per key, which tells *what* changed and makes a change of the used keys comparable
         w  by which of the rules in `w` its keys were compared, counted from 1; none: byte by byte
    x  the same for sources whose digests have a key, and
         i  which of those of `k` it is, counted from 1
    t  instead of s, or z instead of s and x, when there are too many sources: d over all of them, u over their names
         and uses, n how many, and
         w  for each of the rules, which of them, counted in the order of their names
         k  the identifier of the key that the digests under d were made with
    w  compare rules of keys, such as `*.json=json,stamp=ignore`
    k  identifiers of keys (`digestkeys`)
    e  pods created before this second are being evicted
    r  when it was restarted lately, in seconds since the epoch
    h  the same with cause and outcome, a few of them: [time, "configmap/app#mode", outcome, seconds it took]; the
       outcome of the last one is not known when it is written, and is found in the workload's own status

What has a key stands apart, because a program of before there were keys must not compare it: it does not see it, takes
such a source as new, and restarts nothing.

Invariant: never larger than `LIMIT`; what does not fit is summarised, the largest part first. Reading never fails: it
says what it found, and whatever cannot be read counts as nothing known.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec.structs import replace

from steersman.errors import FormatError
from steersman.operators.reload.api.config import MOST_RESTARTS
from steersman.operators.reload.sources.compare import parse_compare_rules
from steersman.operators.reload.sources.digest import names_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

VERSION: Final = 1
LIMIT: Final = 16 * 1024  # bytes; an object may carry 256 KiB of annotations, of which we take a small part
_REMEMBERED_PAST: Final = 10
_LONGEST_WORD: Final = 120  # characters of a cause or an outcome
_LONGEST_RULES: Final = 4000  # characters of the compare rules of a total
_LATEST: Final = 253_402_214_400  # the last day of the year 9999: anything later has no name in a calendar

Seconds = Annotated[int, msgspec.Meta(ge=0, le=_LATEST)]


class AppliedSource(msgspec.Struct, frozen=True, kw_only=True):
    """What one source said."""

    digest: str = msgspec.field(default="", name="d")  # "": it did not exist
    use: str = msgspec.field(default="*", name="u")
    keys: dict[str, str] | None = msgspec.field(default=None, name="k")  # None: summarised
    compare_rules: str = msgspec.field(default="", name="w")  # in which its keys are compared; "": byte by byte
    key: str = msgspec.field(default="", name="i")  # the identifier of the key of its digests; "": none


class AppliedTotal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What all sources said together."""

    digest: str = msgspec.field(name="d")
    use: str = msgspec.field(name="u")
    count: Annotated[int, msgspec.Meta(ge=0, le=1 << 31)] = msgspec.field(name="n")
    compare_rules: tuple[str, ...] = msgspec.field(default=(), name="w")  # for each of those of the state: `0-11,14`
    key: str = msgspec.field(default="", name="k")  # of all the digests it is over

    def compare_rules_by_source(self, known: Sequence[str], names: Iterable[str]) -> dict[str, str]:
        """By which of the `known` rules each of these sources was compared, where not byte by byte."""
        ordered = sorted(names)
        return {
            ordered[place]: rules
            for rules, places in zip(known, self.compare_rules, strict=False)
            for place in _places(places, len(ordered))
        }


class Past(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One restart of the past."""

    at: Seconds
    cause: str = ""  # the sources it was for
    outcome: str = ""  # available, replaced, failed: REASON, applied: ACTION; "": not known when it was written
    seconds: Seconds | None = None  # from the restart to the outcome


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What a workload's pods were last started for."""

    sources: dict[str, AppliedSource] = {}  # by the source's name as seen from the workload's namespace
    total: AppliedTotal | None = None
    compare_rules: tuple[str, ...] = ()  # that the total speaks of
    restarts: tuple[int, ...] = ()
    history: tuple[Past, ...] = ()
    evict: int = 0  # seconds since the epoch; pods created before that have to go. 0: none

    def key_names(self) -> frozenset[str]:
        """The identifiers of the keys that its digests were made with; "" for those without one."""
        total = {self.total.key} if self.total is not None else set()
        return frozenset({entry.key for entry in self.sources.values()} | total)


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
    i: int = 0


class _Wire(msgspec.Struct, omit_defaults=True):
    v: int
    s: dict[str, _WireEntry] = {}
    x: dict[str, _WireEntry] = {}
    t: AppliedTotal | None = None
    z: AppliedTotal | None = None
    k: tuple[str, ...] = ()
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
                problem=f"it was written by a later version of Steersman ({version}; this one knows {VERSION})",
            )
        wire = _wire.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return Found(problem="invalid state annotation; reset")
    sources = {
        name: AppliedSource(
            digest=entry.d,
            use=entry.u,
            keys=entry.k,
            compare_rules=wire.w[entry.w - 1] if entry.w else "",
            key=wire.k[entry.i - 1] if entry.i else "",
        )
        for name, entry in (wire.s | wire.x).items()
        if 0 <= entry.w <= len(wire.w) and 0 <= entry.i <= len(wire.k)
    }
    return Found(
        applied=Applied(
            sources={name: entry for name, entry in sources.items() if _readable(entry.compare_rules)},
            total=(wire.t or wire.z) if all(map(_readable, wire.w)) else None,
            compare_rules=wire.w if wire.t or wire.z else (),
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
    for name in sorted(sources, key=lambda name: (-len(sources[name].keys or ()), name)):
        if excess <= 0:
            return _encode(replace(applied, sources=sources))
        small = replace(sources[name], keys=None)
        excess -= len(_encode_entry(sources[name])) - len(_encode_entry(small))
        sources[name] = small
    if excess <= 0:
        return _encode(replace(applied, sources=sources))
    total, rules = total_of(sources)
    return _encode(replace(applied, sources={}, total=total, compare_rules=rules))


def next_history(
    history: tuple[Past, ...], at: int, cause: str, outcome: tuple[str, int | None], *, done: str = ""
) -> tuple[Past, ...]:
    """The history with one more restart, and with the outcome of the one before it.

    `done`: what was done in the place of a restart, and has no outcome to wait for.
    """
    if history and not history[-1].outcome:
        word, seconds = outcome
        history = (*history[:-1], replace(history[-1], outcome=word[:_LONGEST_WORD], seconds=seconds))
    return (*history, Past(at, cause if len(cause) <= _LONGEST_WORD else f"{cause[: _LONGEST_WORD - 1]}…", done))


def total_of(sources: dict[str, AppliedSource]) -> tuple[AppliedTotal, tuple[str, ...]]:
    """The state of many sources in a few characters, and the compare rules in it."""
    names = sorted(sources)
    entries = [(name, sources[name].digest, sources[name].use) for name in names]
    uses = [f"{name} {sources[name].use}" for name in names]
    by_rules: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        if sources[name].compare_rules:
            by_rules.setdefault(sources[name].compare_rules, []).append(place)
    known = tuple(sorted(by_rules))
    places = tuple(_ranges(by_rules[rules]) for rules in known)
    if sum(map(len, (*known, *places))) > _LONGEST_RULES:  # too long to record: then another rule counts as another use
        uses, known, places = [*uses, *(f"{rules} {which}" for rules, which in zip(known, places, strict=True))], (), ()
    digest = hashlib.sha256(msgspec.json.encode(entries)).hexdigest()
    keys = {entry.key for entry in sources.values()} - {""}
    key = keys.pop() if len(keys) == 1 else ""  # of several keys it cannot be known later: it matches nothing
    return AppliedTotal(digest=digest, use=names_digest(uses), count=len(sources), compare_rules=places, key=key), known


def _encode(applied: Applied) -> str:
    entries = applied.sources.values()
    known = {rules: place for place, rules in enumerate(sorted({entry.compare_rules for entry in entries} - {""}), 1)}
    keyed = {
        key: place for place, key in enumerate(sorted({entry.key for entry in applied.sources.values()} - {""}), 1)
    }
    sources = {
        name: _wire_entry(entry, known.get(entry.compare_rules, 0), keyed.get(entry.key, 0))
        for name, entry in sorted(applied.sources.items())
    }
    keyed_total = applied.total is not None and bool(applied.total.key)
    wire = _Wire(
        v=VERSION,
        s={name: entry for name, entry in sources.items() if not entry.i},
        x={name: entry for name, entry in sources.items() if entry.i},
        t=None if keyed_total else applied.total,
        z=applied.total if keyed_total else None,
        k=tuple(keyed),
        r=applied.restarts,
        h=applied.history,
        e=applied.evict,
        w=tuple(known) if applied.total is None else applied.compare_rules,
    )
    return msgspec.json.encode(wire).decode()


def _encode_entry(entry: AppliedSource) -> bytes:
    return msgspec.json.encode(_wire_entry(entry))


def _wire_entry(entry: AppliedSource, rules: int = 0, key: int = 0) -> _WireEntry:
    keys = None if entry.keys is None else dict(sorted(entry.keys.items()))
    return _WireEntry(entry.digest, entry.use, keys, rules, key)


def _readable(rules: str) -> bool:
    try:
        parse_compare_rules(rules)
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
