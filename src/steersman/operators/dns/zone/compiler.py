"""The zone compiler: from a zone and its records to exactly the RRsets that should be served. Pure.

An RRset is the union of what resources contribute to it; the compiler remembers which resource contributed what. Every
name is checked by the rules that a server would apply silently or not at all:

- a name with a CNAME has no other data: the oldest resource stays, the others are held back;
- data at or below a delegation is not served, except addresses of its name servers (and a resource that is held back
  delegates nothing);
- name servers of the zone and mail servers inside the zone need an address, their own or a wildcard's;
- an RRset must fit into one message.

A zone changes in steps: `put` and `drop` mark names, `settle` evaluates the marked ones again, so a change costs the
same in a large zone as in a small one. Other names are evaluated again only when something they depend on changed: that
a name exists, has an address, or is delegated, and to which servers. Whatever the order of steps, the result equals one
compile of everything. What can be said of one name alone is in `conflicts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.errors import PlanError
from steersman.operators.dns.zone.conflicts import (
    ADDRESSES,
    CNAME_CONFLICT,
    POINTING,
    WILDCARD,
    Contributions,
    Held,
    NameFacts,
)
from steersman.operators.dns.zone.names import ancestors, owner_in, short_text, text_of
from steersman.operators.dns.zone.rdata import (
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
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from steersman.operators.dns.api.records import Record

DEFAULT_TTL: Final = 3600


class RecordOutcome(msgspec.Struct, frozen=True, gc=False):
    """What became of one resource."""

    keys: tuple[Key, ...] = ()
    held: Held | None = None  # why (a part of) it is not published
    ttl: int | None = None  # the TTL that is served, when the resource has another
    displaced: tuple[str, ...] = ()  # resources that are held back because a CNAME has no data beside it


class ZoneDelta(msgspec.Struct, frozen=True):
    """What changed in the zone."""

    before: Mapping[Key, RRset | None]  # the RRsets that changed, as they were
    sources: frozenset[str]  # resources whose outcome may have changed


class CompiledZone(Contributions):
    """The RRsets of a zone, kept in step with what resources contribute."""

    def __init__(self, zone: bytes, default_ttl: int | None = None) -> None:
        super().__init__(zone)
        self.default_ttl = DEFAULT_TTL if default_ttl is None else default_ttl
        self.rrsets: dict[Key, RRset] = {}
        self.widest = 0  # the largest number of values that an RRset ever had
        self.held: dict[Key, dict[str, Held]] = {}  # by source: others at the same name may be published
        self.invalid: dict[str, Held] = {}
        self._served: dict[bytes, tuple[int, ...]] = {}  # types by owner, as `rrsets` has them
        self._wild: set[bytes] = set()  # wildcards that have data
        self._moved: dict[bytes, bool] = {}  # names that came or went since they were last evaluated: whether new
        self._dirty: set[bytes] = set()
        self._were: dict[bytes, NameFacts] = {}  # names that others depend on, as they were last evaluated
        self._touched: set[str] = set()
        self._problems: list[tuple[Key, str, Held]] | None = None

    # -- steps ---------------------------------------------------------------------------------------------------------

    def put(self, source: str, *contributions: Contribution, invalid: Held | None = None) -> None:
        """`source` contributes exactly this from now on."""
        known = self.contributions.get(source)
        if known is not None:
            if known == contributions and self.invalid.get(source) == invalid:
                return
            self.drop(source)
        self._touched.add(source)
        self.contributions[source] = contributions
        if invalid is not None:
            self.invalid[source] = invalid
        for part in contributions:
            owner, kind = part.key
            self._mark(owner, kind)
            types = self._names.get(owner)
            if types is None:
                self._note(owner)
                types = self._names[owner] = {}
                self._enter(owner)
            types.setdefault(kind, {})[source] = part
            if kind in POINTING:
                for target in self._targets(part):
                    self._enter(target)
                    self._pointers.setdefault(target, set()).add((part.key, source))

    def drop(self, source: str) -> None:
        """`source` contributes nothing from now on."""
        self._touched.add(source)
        self.invalid.pop(source, None)
        for part in self.contributions.pop(source, ()):
            owner, kind = part.key
            self._mark(owner, kind)
            types = self._names[owner]
            types[kind].pop(source, None)
            if not types[kind]:
                del types[kind]
                if self.held.pop(part.key, None) is not None:  # nothing is left to be held back
                    self._problems = None
                    self._touched.update(other for row in types.values() for other in row)  # which displaced it
            if not types:
                self._note(owner)
                del self._names[owner]
                self._leave(owner)
            if kind in POINTING:
                for target in self._targets(part):
                    pointing = self._pointers[target]
                    pointing.discard((part.key, source))
                    if not pointing:
                        del self._pointers[target]
                        self._leave(target)

    def put_record(self, record: Record, source: str) -> None:
        """A record contributes its data; an invalid one contributes nothing, and why."""
        try:
            self.put(source, contribution_of(record, source, self.zone))
        except PlanError as error:
            self.put(source, invalid=Held(error.reason, str(error)))

    def settle(self) -> ZoneDelta:
        """Evaluate the marked names; returns what changed.

        A result depends on contributions alone, never on the result for another name, so the order does not matter.
        """
        before: dict[Key, RRset | None] = {}
        sources = set(self._touched)
        for owner, facts in self._were.items():
            self._spread(owner, facts)
        self._appear()
        for owner in self._dirty:
            self._evaluate(owner, before, sources)
        self._dirty.clear()
        self._were.clear()
        self._touched.clear()
        return ZoneDelta(before, frozenset(sources))

    # -- answers -------------------------------------------------------------------------------------------------------

    def outcome(self, source: str) -> RecordOutcome | None:
        """What became of a resource; None when it does not contribute to this zone."""
        parts = self.contributions.get(source)
        if parts is None:
            return None
        if (invalid := self.invalid.get(source)) is not None:
            return RecordOutcome(held=invalid)
        held = next((why for part in parts if (why := self.held.get(part.key, {}).get(source))), None)
        served = [(self.rrsets[part.key].ttl, part.ttl) for part in parts if part.key in self.rrsets]
        return RecordOutcome(
            keys=tuple(part.key for part in parts),
            held=held,
            ttl=next((ttl for ttl, asked in served if ttl != (self.default_ttl if asked is None else asked)), None),
            displaced=() if held is not None else self._displaced(source, parts),
        )

    def _displaced(self, source: str, parts: Iterable[Contribution]) -> tuple[str, ...]:
        found: set[str] = set()
        for owner in {part.key[0] for part in parts}:
            types = self._names.get(owner, {})
            for kind in types if CNAME in types else ():
                rows = self.held.get((owner, kind), {}).items()
                found.update(other for other, why in rows if why.reason == CNAME_CONFLICT and other != source)
        return tuple(sorted(found))

    def serves(self, owner: bytes) -> bool:
        """Whether there is anything at a name."""
        return owner in self._served

    def sources_of(self, key: Key) -> list[str]:
        """The resources that contribute to an RRset."""
        return sorted(self._names.get(key[0], {}).get(key[1], {}))

    def problems(self) -> list[tuple[Key, str, Held]]:
        """Everything that is held back, in order; sorted again only after a change."""
        if self._problems is None:
            self._problems = sorted((key, source, why) for key, row in self.held.items() for source, why in row.items())
        return self._problems

    # -- evaluation ----------------------------------------------------------------------------------------------------

    def _mark(self, owner: bytes, kind: int) -> None:
        """What is at a name is about to change."""
        self._dirty.add(owner)
        if owner in self._were:
            return
        types = self._names.get(owner, {})
        depended_on = bool(owner) and (kind == NS or NS in types)
        if not depended_on:
            depended_on = (kind in (A, AAAA, CNAME) or CNAME in types) and (
                owner in self._pointers or owner.startswith(WILDCARD)
            )
        if depended_on:
            self._were[owner] = self._facts(owner)

    def _spread(self, owner: bytes, before: NameFacts) -> None:
        """Mark the names that depend on one that changed."""
        now = self._facts(owner)
        if (now.addressed, now.aliased, now.delegated) != (before.addressed, before.aliased, before.delegated):
            self._mark_pointing([owner])
            if owner.startswith(WILDCARD):
                self._mark_wild(owner)
        if now.delegated != before.delegated:
            below = self._below.get(owner, ())
            self._dirty.update(below)
            self._mark_pointing(below)
        else:
            self._dirty.update(name for name in now.servers ^ before.servers if name is not None)

    def _note(self, owner: bytes) -> None:
        """A name without data is about to have some, or no longer has."""
        self._moved.setdefault(owner, owner not in self._names)  # the state before the first change counts
        if owner.startswith(WILDCARD):
            self._wild ^= {owner}

    def _appear(self) -> None:
        """Wildcards answer only for names that do not exist, so a name that comes or goes concerns those below it.

        It brings names above it into existence that have no data: all names below the uppermost may be concerned.
        """
        new = {owner for owner, is_new in self._moved.items() if is_new and owner in self._names}
        gone = [owner for owner, is_new in self._moved.items() if not is_new and owner not in self._names]
        tops: set[bytes] = set()
        for owner in (*new, *gone) if self._wild else ():
            others: Collection[bytes] = new if owner in new else ()
            for name in reversed((owner, *ancestors(owner))):
                if name in tops:
                    break
                if not self._exists(name, others):
                    tops.add(name)
                    self._mark_pointing([name, *self._below.get(name, ())])
                    break
        self._moved.clear()

    def _mark_wild(self, star: bytes) -> None:
        parent = star[len(WILDCARD) :]
        self._mark_pointing(self._below.get(parent, ()) if parent else self._pointers)

    def _mark_pointing(self, targets: Iterable[bytes]) -> None:
        self._dirty.update(key[0] for target in targets for key, _ in self._pointers.get(target, ()))

    def _evaluate(self, owner: bytes, before: dict[Key, RRset | None], sources: set[str]) -> None:
        """Decide what is served at one name."""
        types = self._names.get(owner, {})
        cut = self._cut_above(owner)
        alone = CNAME not in types and cut is None and (len(types) == 1 or NS not in types or not owner)
        new: dict[int, RRset] = {}
        for kind, parts in types.items():
            held: dict[str, Held] = {}
            kept = parts
            if not alone:
                kept = {s: part for s, part in parts.items() if self._admitted(owner, kind, part, types, cut, held)}
            if kept:
                merged = self._merge(owner, kind, kept, held)
                if merged is not None:
                    new[kind] = merged
            if held or self.held:
                known = self.held.pop((owner, kind), {})
                if held:
                    self.held[owner, kind] = held
                if known != held:
                    self._problems = None
                    sources.update(source for source in {*known, *held} if known.get(source) != held.get(source))
                    if any(why.reason == CNAME_CONFLICT for why in (*known.values(), *held.values())):
                        sources.update(source for row in types.values() for source in row)  # the winner reports it too
        if new or owner in self._served:
            self._serve(owner, new, types, before, sources)

    def _serve(
        self,
        owner: bytes,
        new: dict[int, RRset],
        types: Mapping[int, Mapping[str, Contribution]],
        before: dict[Key, RRset | None],
        sources: set[str],
    ) -> None:
        """Serve exactly `new` at a name; note what was there before, and whose outcome may have changed."""
        known = self._served.get(owner, ())
        for kind, rrset in new.items():
            key = (owner, kind)
            old = self.rrsets.get(key)
            if old != rrset:
                before[key] = old
                self.rrsets[key] = rrset
                sources.update(types[kind])
        for kind in known:
            if kind not in new:
                before[owner, kind] = self.rrsets.pop((owner, kind))
                sources.update(types.get(kind, ()))
        if new:
            self._served[owner] = tuple(new)
        else:
            del self._served[owner]

    def _admitted(
        self,
        owner: bytes,
        kind: int,
        part: Contribution,
        types: Mapping[int, Mapping[str, Contribution]],
        cut: bytes | None,
        held: dict[str, Held],
    ) -> bool:
        why = (
            self._at_apex(owner, kind)
            or self._beside_cname(owner, kind, types, part)
            or self._below_cut(owner, kind, cut)
        )
        if why is not None:
            held[part.source] = why
        return why is None

    def _below_cut(self, owner: bytes, kind: int, cut: bytes | None) -> Held | None:
        glue = kind in ADDRESSES
        delegated = bool(owner) and kind not in (NS, DS) and self._is_kept(owner, NS)
        if delegated and not (glue and owner in self._glue(owner)):
            return Held("Occluded", f"{short_text(owner, self.zone)} is delegated: only its name servers serve it")
        if cut is None or (glue and owner in self._glue(cut)):
            return None
        return Held("Occluded", f"{short_text(cut, self.zone)} is delegated: nothing below it is served here")

    def _merge(self, owner: bytes, kind: int, parts: Mapping[str, Contribution], held: dict[str, Held]) -> RRset | None:
        """One RRset of the contributions, without values that lack an address; None when it is too large or empty."""
        values: frozenset[bytes] | set[bytes]
        if kind == MX or (kind == NS and not owner):
            values = self._addressed(kind, parts, held)
        elif len(parts) == 1:
            (only,) = parts.values()
            values = only.values
        else:
            values = {value for part in parts.values() for value in part.values}
        if not values:
            return None
        ttls = [part.ttl for part in parts.values() if part.ttl is not None]
        if len(ttls) < len(parts):
            ttls.append(self.default_ttl)
        self.widest = max(self.widest, len(values))
        too_large = self._too_large(owner, kind, parts.values(), values)
        if too_large is not None:
            held.update(dict.fromkeys(parts, too_large))
            return None
        return RRset(min(ttls), frozenset(values))

    def _addressed(self, kind: int, parts: Mapping[str, Contribution], held: dict[str, Held]) -> set[bytes]:
        """The values whose servers, if they are of this zone, have an address."""
        values: set[bytes] = set()
        for source, part in parts.items():
            for value in part.values:
                target = owner_in(target_of(kind, value) or b"", self.zone)
                if target is None or self._resolves(target, kind):
                    values.add(value)
                    continue
                what, name = "mail server" if kind == MX else "name server", text_of(target + self.zone)
                text = f"the {what} {name} is in this zone and has no A or AAAA record"
                held[source] = Held("MissingAddress", text)
        return values
