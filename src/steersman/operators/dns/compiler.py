"""The zone compiler: from the zone and its records to exactly the RRsets that should be served. Pure.

RRsets are the union of what resources contribute; the draft remembers who contributed what. Before anything is written
every name is judged by the rules that a server would apply silently or not at all:

- a name with a CNAME has nothing else: who was there first stays, the others are held back;
- data at or below a delegation is not served, except addresses of its name servers;
- name servers of the zone and mail servers that lie inside the zone need an address;
- an RRset must fit into one message.

A draft changes in steps: `put` and `drop` mark names, `settle` judges the marked ones again, so one change costs the
same in a large zone as in a small one. Whatever the order of steps, the result is that of one compile of everything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.errors import PlanError
from steersman.operators.dns.names import ancestors, owner_in, short_text, text_of
from steersman.operators.dns.rrsets import (
    AAAA,
    CNAME,
    DS,
    MX,
    NS,
    A,
    Contribution,
    Key,
    RRset,
    contribution_of,
    target_of,
    type_name,
    wire_size,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.dns.recordkinds import Record

__all__ = ["WILDCARD", "ZONE", "Draft", "Held", "Outcome", "Settled", "compile_zone"]

ZONE: Final = "dnszone"  # the source of what the zone itself says
DEFAULT_TTL: Final = 3600
LARGEST: Final = 60_000  # bytes of an RRset; the rest of a message is for names and signatures
ADDRESSES: Final = (A, AAAA)
WILDCARD: Final = b"\x01*"


class Held(msgspec.Struct, frozen=True):
    """Why data is not published."""

    reason: str
    message: str


class Outcome(msgspec.Struct, frozen=True):
    """What the compiler says about one resource."""

    keys: tuple[Key, ...] = ()
    held: Held | None = None  # why (a part of) it is not published
    ttl: int | None = None  # what is served in place of the TTL that was asked for


class Settled(msgspec.Struct, frozen=True):
    """What a settlement changed."""

    before: Mapping[Key, RRset | None]  # the RRsets that changed, as they were
    sources: frozenset[str]  # whose outcome may be another now


class Draft:
    """A zone in the making."""

    def __init__(self, zone: bytes, default_ttl: int | None = None) -> None:
        self.zone = zone
        self.default_ttl = DEFAULT_TTL if default_ttl is None else default_ttl
        self.rrsets: dict[Key, RRset] = {}
        self.widest = 0  # the largest number of values that an RRset ever had
        self.held: dict[Key, dict[str, Held]] = {}  # by whom: others at the same name may well be published
        self.invalid: dict[str, Held] = {}
        self.contributions: dict[str, tuple[Contribution, ...]] = {}
        self._names: defaultdict[bytes, dict[int, dict[str, Contribution]]] = defaultdict(dict)
        self._served: dict[bytes, set[int]] = {}  # types by owner, as `rrsets` has them
        self._pointers: defaultdict[bytes, set[bytes]] = defaultdict(set)  # target owner -> owners that need(ed) it
        self._dirty: set[bytes] = set()
        self._touched: set[str] = set()

    # -- steps ---------------------------------------------------------------------------------------------------------

    def put(self, source: str, *contributions: Contribution, invalid: Held | None = None) -> None:
        """`source` contributes exactly this from now on."""
        if self.contributions.get(source) == contributions and self.invalid.get(source) == invalid:
            return
        self.drop(source)
        self.contributions[source] = contributions
        if invalid is not None:
            self.invalid[source] = invalid
        for part in contributions:
            owner, kind = part.key
            self._names[owner].setdefault(kind, {})[source] = part
            self._mark(owner, kind)
            for value in part.values:
                self._point(owner, kind, value)

    def drop(self, source: str) -> None:
        """`source` contributes nothing any more."""
        self._touched.add(source)
        self.invalid.pop(source, None)
        for part in self.contributions.pop(source, ()):
            owner, kind = part.key
            types = self._names[owner]
            types[kind].pop(source, None)
            if not types[kind]:
                del types[kind]
            if not types:
                del self._names[owner]
            self._mark(owner, kind)

    def put_record(self, record: Record, source: str) -> None:
        """A record contributes what it says, or nothing and the reason why."""
        try:
            self.put(source, contribution_of(record, source, self.zone))
        except PlanError as error:
            self.put(source, invalid=Held(error.reason, str(error)))

    def settle(self) -> Settled:
        """Judge what was marked; returns what is another RRset now.

        A judgement depends on contributions alone, never on another judgement, so the order does not matter.
        """
        before: dict[Key, RRset | None] = {}
        sources = set(self._touched)
        for owner in self._dirty:
            self._judge(owner, before, sources)
        self._dirty.clear()
        self._touched.clear()
        return Settled(before, frozenset(sources))

    # -- answers -------------------------------------------------------------------------------------------------------

    def outcome(self, source: str) -> Outcome | None:
        """What became of a resource; None when it is not part of this draft."""
        parts = self.contributions.get(source)
        if parts is None:
            return None
        if (invalid := self.invalid.get(source)) is not None:
            return Outcome(held=invalid)
        held = next((why for part in parts if (why := self.held.get(part.key, {}).get(source))), None)
        served = [self.rrsets[part.key].ttl for part in parts if part.ttl is not None and part.key in self.rrsets]
        asked = [part.ttl for part in parts if part.ttl is not None and part.key in self.rrsets]
        return Outcome(
            keys=tuple(part.key for part in parts),
            held=held,
            ttl=next((ttl for ttl, wanted in zip(served, asked, strict=True) if ttl != wanted), None),
        )

    def serves(self, owner: bytes) -> bool:
        """Whether there is anything at a name."""
        return owner in self._served

    def sources_of(self, key: Key) -> list[str]:
        """Who contributes to an RRset."""
        return sorted(self._names.get(key[0], {}).get(key[1], {}))

    def problems(self) -> list[tuple[Key, str, Held]]:
        """Everything that is held back, in order."""
        return sorted((key, source, why) for key, row in self.held.items() for source, why in row.items())

    # -- the machinery -------------------------------------------------------------------------------------------------

    def _mark(self, owner: bytes, kind: int) -> None:
        self._dirty.add(owner)
        if kind == NS and owner:
            below = [
                name for name in (*self._names, *self._pointers) if name.endswith(owner) and owner in ancestors(name)
            ]
            self._dirty.update(below)
            for target in below:
                self._dirty.update(self._pointers.get(target, ()))
        elif kind in (A, AAAA, CNAME):
            if owner.startswith(WILDCARD):
                self._dirty.update(*self._pointers.values())
            self._dirty.update(self._pointers.get(owner, ()))

    def _point(self, owner: bytes, kind: int, value: bytes) -> None:
        if kind in (NS, MX):
            target = owner_in(target_of(kind, value) or b"", self.zone)
            if target is not None:
                self._pointers[target].add(owner)

    def _judge(self, owner: bytes, before: dict[Key, RRset | None], sources: set[str]) -> None:
        """Decide what is served at one name."""
        types = self._names.get(owner, {})
        new: dict[int, RRset] = {}
        for kind, parts in types.items():
            held: dict[str, Held] = {}
            kept = {source: part for source, part in parts.items() if self._admitted(owner, kind, part, types, held)}
            if kept:
                merged = self._merge(owner, kind, kept, held)
                if merged is not None:
                    new[kind] = merged
            known = self.held.pop((owner, kind), {})
            if held:
                self.held[owner, kind] = held
            sources.update(source for source in {*known, *held} if known.get(source) != held.get(source))
        for kind in self._served.get(owner, set()) | new.keys():
            key, rrset = (owner, kind), new.get(kind)
            old = self.rrsets.get(key)
            if kind not in types:
                sources.update(self.held.pop(key, {}))
            if old == rrset:
                continue
            before[key] = old
            sources.update(types.get(kind, {}))
            if rrset is None:
                del self.rrsets[key]
            else:
                self.rrsets[key] = rrset
        if new:
            self._served[owner] = set(new)
        else:
            self._served.pop(owner, None)

    def _admitted(
        self,
        owner: bytes,
        kind: int,
        part: Contribution,
        types: Mapping[int, Mapping[str, Contribution]],
        held: dict[str, Held],
    ) -> bool:
        why = self._at_apex(owner, kind) or self._beside_cname(owner, kind, part, types) or self._below_cut(owner, kind)
        if why is not None:
            held[part.source] = why
        return why is None

    def _at_apex(self, owner: bytes, kind: int) -> Held | None:
        if kind == CNAME and not owner:
            return Held("CNAMEAtApex", "the zone's own name cannot be a CNAME (RFC 1034, 3.6.2)")
        return None

    def _beside_cname(
        self, owner: bytes, kind: int, part: Contribution, types: Mapping[int, Mapping[str, Contribution]]
    ) -> Held | None:
        aliases = types.get(CNAME)
        if not aliases or not owner:
            return None
        alias = min(aliases.values(), key=_age)
        others = [other for number, row in types.items() if number != CNAME for other in row.values()]
        first = min(others, key=_age, default=None)
        data_first = first is not None and (_when(first), 0) <= (_when(alias), 1)
        name = short_text(owner, self.zone)
        if kind != CNAME:
            return None if data_first else Held("CNAMEConflict", f"{name} is a CNAME by {alias.source}")
        if data_first and first is not None:
            return Held("CNAMEConflict", f"{name} has {_a(type_name(first.key[1]))} record from {first.source}")
        if part.values != alias.values:
            return Held("CNAMEConflict", f"{name} is a CNAME to another name by {alias.source}")
        return None

    def _below_cut(self, owner: bytes, kind: int) -> Held | None:
        if owner and kind not in (NS, DS) and NS in self._names.get(owner, {}):
            return Held("Occluded", f"{short_text(owner, self.zone)} is delegated: only its name servers answer for it")
        for cut in ancestors(owner):
            if NS in self._names.get(cut, {}):
                if kind in ADDRESSES and owner in self._glue(cut):
                    return None
                return Held("Occluded", f"{short_text(cut, self.zone)} is delegated: nothing below it is served here")
        return None

    def _glue(self, cut: bytes) -> set[bytes | None]:
        parts = self._names.get(cut, {}).get(NS, {}).values()
        return {owner_in(value, self.zone) for part in parts for value in part.values}

    def _merge(self, owner: bytes, kind: int, parts: Mapping[str, Contribution], held: dict[str, Held]) -> RRset | None:
        """One RRset of what is left, without values that lack an address and if it is not too large."""
        values: set[bytes] = set()
        for source, part in parts.items():
            for value in part.values:
                missing = self._lacks_address(owner, kind, value)
                if missing is None:
                    values.add(value)
                else:
                    held[source] = missing
        if not values:
            return None
        ttls = [part.ttl for part in parts.values() if part.ttl is not None]
        if len(ttls) < len(parts):
            ttls.append(self.default_ttl)
        rrset = RRset(min(ttls), frozenset(values))
        self.widest = max(self.widest, len(values))
        size = wire_size((owner, kind), rrset, self.zone)
        if size > LARGEST:
            what = f"{len(values)} values ({size} bytes) do not fit into one DNS message of {LARGEST} bytes"
            held.update(dict.fromkeys(parts, Held("RRsetTooLarge", what)))
            return None
        return rrset

    def _lacks_address(self, owner: bytes, kind: int, value: bytes) -> Held | None:
        if not (kind == MX or (kind == NS and not owner)):
            return None
        target = owner_in(target_of(kind, value) or b"", self.zone)
        if target is None or self._resolves(target):
            return None
        what = "mail server" if kind == MX else "name server"
        return Held("MissingAddress", f"the {what} {text_of(target + self.zone)} is in this zone and has no address")

    def _resolves(self, target: bytes) -> bool:
        def has(owner: bytes, *kinds: int) -> bool:
            return any(kind in self._names.get(owner, {}) for kind in kinds)

        above = ancestors(target)
        if has(target, A, AAAA, CNAME) or any(has(cut, NS) for cut in above):
            return True
        return any(has(WILDCARD + parent, A, AAAA, CNAME) for parent in (*above, b""))


def _when(part: Contribution) -> str:
    return "" if part.source == ZONE else part.since


def _age(part: Contribution) -> tuple[str, str]:
    return _when(part), part.source


def _a(word: str) -> str:
    return f"an {word}" if word[0] in "AMNS" else f"a {word}"


def compile_zone(
    zone: bytes, own: Iterable[Contribution], records: Iterable[tuple[str, Record]], default_ttl: int | None = None
) -> Draft:
    """Everything at once."""
    draft = Draft(zone, default_ttl)
    draft.put(ZONE, *own)
    for source, record in records:
        draft.put_record(record, source)
    draft.settle()
    return draft
