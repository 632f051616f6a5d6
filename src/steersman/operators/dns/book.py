"""What this process knows of a zone: its draft, and how far each server's copy is from it.

For a copy that is known, `lag` says what the server has wherever that differs from the draft, so

    content of the server  =  draft  with  lag  laid over it

and a change of the draft costs as much as it is large. A copy becomes unknown whenever an exchange ends without a clear
answer, and is then read again as a whole. Books are memory only: a new process reads every copy once.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.operators.dns.compiler import ZONE, Draft
from steersman.operators.dns.names import short_text
from steersman.operators.dns.pointers import contributions_to, is_reverse, named_in, pointers_of, source_in_reverse
from steersman.operators.dns.recordkinds import RECORD_KINDS, AAAARecord, ARecord
from steersman.operators.dns.rrsets import Key, RRset, Soa, type_name
from steersman.operators.dns.selection import EVERY, label_values, records_wanted, source_of, zone_of
from steersman.operators.dns.types import PTR_NAMESPACES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from steersman.kube.resources import ObjectRef
    from steersman.operators.dns.compiler import Settled
    from steersman.operators.dns.pointers import Directory, Origin, Pointer
    from steersman.operators.dns.recordkinds import Record
    from steersman.operators.dns.rrsets import Contribution
    from steersman.operators.dns.zonekinds import DNSZone

__all__ = ["Books", "Copy", "Retry", "ZoneBook", "zones_wanting"]

ADDRESS_KINDS = ("arecord/", "aaaarecord/")
NOBODY = frozenset({"NoInstances", "CrossNamespaceDenied", "DuplicateZone"})


class Copy(msgspec.Struct):
    """One server's copy of a zone."""

    known: bool = False
    absent: bool = False
    soa: bytes | None = None
    lag: dict[Key, Any] = {}  # key -> RRset | None: what the server has there
    drift: dict[Key, Any] = {}  # the part of the lag that nobody here caused and that is left alone
    config: tuple[Any, ...] | None = None  # the configuration that is in effect, as we wrote it
    refused: dict[Key, RRset | None] = {}  # what this server would not have, as it was wanted
    ours: bool = False  # what it holds is for resources to say (see `foreign`)
    made: bool = False  # because we gave it to the server
    spoken: dict[Key, frozenset[bytes]] = {}  # while it is not ours: what resources said and no longer do
    owned: frozenset[Key] = frozenset()  # while it is not ours: where it had what resources said, and nothing else
    exact: set[Key] = set()  # while it is not ours: where it had what resources said, TTL and all
    foreign: dict[Key, frozenset[bytes]] = {}  # while it is not ours: what no resource says
    left: frozenset[Key] = frozenset()  # data of names that the zone leaves to others
    shut: frozenset[Key] = frozenset()  # what is wanted and has no place beside data of others
    error: str = ""
    reason: str = ""
    silent: bool = False  # it kept others waiting, and is asked again when it has shown a sign of life
    slow: bool = False  # it has, and is waited for this time
    passes: int = 0  # looks at this copy since it was read as a whole
    behind: int = 0  # looks at which it was behind (secondaries)
    signed: frozenset[int] = frozenset()  # the keys, of those that are ours to say, that it was last seen signed with
    unsigned: int = 0  # looks at which it was not signed with them
    refreshed: float = float("-inf")  # when it was last asked to catch up

    @property
    def serial(self) -> int:
        """The serial that is being served; 0 when none is known."""
        return 0 if self.soa is None else Soa.read(self.soa).serial

    def lose(self) -> None:
        """The server does not have the zone."""
        self.known, self.absent, self.soa, self.config = True, True, None, None
        self.foreign, self.left, self.shut = {}, frozenset(), frozenset()

    def forget(self) -> None:
        """An exchange ended without a clear answer."""
        self.known = False
        self.config = None


class Published(msgspec.Struct, frozen=True, gc=False):
    """How one record got where it is."""

    uid: str
    generation: int
    serial: int = 0
    ptr: bool | None = None  # whether its addresses are to point back to it; None: as the zone says


class Retry:
    """When to try again: later each time, as time goes by and not as often as somebody looks; anew with other servers.

    Ten changes within a second are ten looks at a server that is just starting, and no reason to leave it alone.
    """

    def __init__(self) -> None:
        self._begin(())

    def _begin(self, servers: object) -> None:
        self._servers = servers
        self._failures = 0
        self._due = float("-inf")

    def failed(self, servers: object, now: float, longest: float) -> float:
        """Seconds until the next try."""
        if servers != self._servers:
            self._begin(servers)
        if now >= self._due:
            self._failures += 1
            self._due = now + min(longest, 2.0 ** min(9, self._failures - 1))
        return self._due - now

    def succeeded(self) -> None:
        """All is well."""
        self._begin(())


class ZoneBook:
    """One zone. See the module."""

    def __init__(self, ref: ObjectRef) -> None:
        self.ref = ref
        self.uid = ""
        self.draft = Draft(b"\0")
        self.serial = 0
        self.members: dict[str, Published] = {}  # source -> which state of it is in the draft, and since which serial
        self.copies: dict[str, Copy] = {}
        self.primaries: frozenset[tuple[str, int]] = frozenset()  # where it was said to be fetched from
        self.marks: set[tuple[Any, str]] | None = None  # records that changed; None: all may have
        self.origins: set[Origin] | None = None  # records whose PTR records may be others; None: all may be
        self.heard = False  # what its records want is known, or that there is no knowing it
        self.outcome_ready = False  # there is something to say about it: it was published, or cannot be
        self.began = False  # the draft has been sent to servers at least once, well or badly
        self.problem: tuple[str, str] | None = None  # why nothing can be served: reason, message
        self.pending: set[str] = set()  # sources whose change has not reached every primary
        self.retry = Retry()
        self.owed: tuple[float, str] | None = None  # since when it owes its status, and the revision it had then
        self.early = 0  # looks in a row for which it was too early
        self.looked = float("-inf")  # when every copy was looked at last
        self.drifts = 0
        self.mode = ""  # what was done about drift at the last look
        self.ignore: tuple[str, ...] = ()  # names that are left to others, as copies were read with
        self.settled: frozenset[str] = frozenset()  # servers we made that have the zone
        self._basis: object = None
        self._grant = ""
        self._ptr = False
        self._selected: set[str] = set()  # records that it wants, whether it has them or an older zone does
        self.untold: set[str] = set()  # of those, who has not been told that it looked again
        self._restated: set[str] = set()  # records that say something else now, though it may come to the same
        self._listed: set[str] = set()  # zones that it lists, being a catalog
        self._pointing: set[Origin] = set()  # records that have PTR records here

    @property
    def unwanted(self) -> bool:
        """Whether no server is to have it."""
        return self.problem is not None and self.problem[0] in NOBODY

    @property
    def sources(self) -> set[str]:
        """Everybody who has a part in it."""
        return {*self.members, *self.draft.contributions, *self._selected} - {ZONE}

    def mark(self, kind: Any, name: str) -> None:
        """A record changed that is or was ours."""
        if self.marks is not None:
            self.marks.add((kind, name))

    def mark_origin(self, origin: Origin) -> None:
        """A record of whatever zone may have other PTR records here."""
        if self.origins is not None:
            self.origins.add(origin)

    def load(
        self, zone: DNSZone, name: bytes, own: Sequence[Contribution], cache: Any, directory: Directory
    ) -> set[tuple[Origin, bytes]]:
        """Bring the draft up to what the caches say; returns whose PTR records, of which addresses, are others now."""
        self.heard = True
        basis = (zone.metadata.uid, name, zone.spec.ttl, msgspec.json.encode(zone.spec.records_from))
        marks, self.marks = self.marks, set()
        replaced = None
        if basis != self._basis:
            marks = None
            self._basis = basis
            if (self.uid, self.draft.zone) != (zone.metadata.uid, name):
                self.members, self.copies, self.serial = {}, {}, 0
            self.uid = zone.metadata.uid
            replaced = self.draft
            self.draft = Draft(name, zone.spec.ttl)
            self.origins = None
            self.members = {source: row for source, row in self.members.items() if source in replaced.contributions}
        self.draft.put(ZONE, *own)
        with _collector_at_rest() if marks is None else nullcontext():
            if marks is None:
                self._load_all(zone, cache)
            else:
                for kind, record_name in marks:
                    self._load_one(zone, kind, record_name, cache)
            self._take_pointers(zone, cache, directory)
            self._take_members(zone, directory)
            settled = self.draft.settle()
        before = settled.before if replaced is None else _changes(replaced.rrsets, self.draft.rrsets)
        for copy in self.copies.values():
            if copy.known:
                _lay_over(copy, before, self.draft.rrsets)
        self.pending |= settled.sources | self._restated
        whole = marks is None or zone.spec.ptr != self._ptr
        self._ptr = zone.spec.ptr
        return self._give_pointers(settled, directory, whole=whole)

    def _take_pointers(self, zone: DNSZone, cache: Any, directory: Directory) -> None:
        """What addresses of other zones contribute, when this is their reverse zone."""
        name = self.draft.zone
        if not is_reverse(name):
            return
        origins, self.origins = self.origins, set()
        if (grant := zone.annotations.get(PTR_NAMESPACES, "")) != self._grant:
            self._grant, origins = grant, None
        if origins is None:
            origins = {origin for origin, _ in directory.below(name)} | self._pointing
        named = named_in(cache)
        for origin in origins:
            parts = contributions_to(zone, name, origin, directory.of(origin), named)
            if parts:
                self.draft.put(source_in_reverse(origin), *parts)
                self._pointing.add(origin)
            elif origin in self._pointing:
                self.draft.drop(source_in_reverse(origin))
                self._pointing.discard(origin)

    def _take_members(self, zone: DNSZone, directory: Directory) -> None:
        """The zones that this one lists, when it is a catalog."""
        found = {}
        if zone.spec.catalog:
            found = directory.catalogs.members((zone.namespace, zone.spec.zone_name.lower()))
        for source in self._listed - found.keys():
            self.draft.drop(source)
        for source, part in found.items():
            self.draft.put(source, part)
        self._listed = set(found)

    def _give_pointers(self, settled: Settled, directory: Directory, *, whole: bool) -> set[tuple[Origin, bytes]]:
        """Say what the addresses of this zone point back to."""
        sources = settled.sources | self._restated
        self._restated.clear()
        if whole:
            sources = sources | directory.sources(self.ref) | self.members.keys()
        moved = set()
        for source in sources:
            if source.startswith(ADDRESS_KINDS) and source.count("/") == 1:
                wanted = self._pointers(source)
                names = directory.put(self.ref, source, wanted)
                moved |= {((self.ref.namespace, source), name) for name in names}
        return moved

    def _pointers(self, source: str) -> tuple[Pointer, ...]:
        member = self.members.get(source)
        if member is None or not (member.ptr or (member.ptr is None and self._ptr)):
            return ()
        outcome = self.draft.outcome(source)
        if outcome is None or outcome.held is not None:
            return ()
        return pointers_of(self.draft.contributions.get(source, ()), self.draft.zone)

    def _load_all(self, zone: DNSZone, cache: Any) -> None:
        self.untold |= self._selected
        found = {source_of(record): record for kind in RECORD_KINDS for record in records_wanted(zone, cache[kind])}
        self._selected = set(found)
        self.untold |= self._selected
        for source in self.members.keys() - found.keys():
            self._drop(source)
        owners: dict[tuple[tuple[str, str], ...], DNSZone | None] = {}  # by labels: most records share theirs
        for source, record in found.items():
            labels = tuple(record.labels.items())
            if labels not in owners:
                owners[labels] = zone_of(record, zones_wanting(record, cache))
            self._take(zone, source, record, owners[labels])

    def _load_one(self, zone: DNSZone, kind: Any, name: str, cache: Any) -> None:
        from steersman.kube.resources import ObjectRef

        record = cache[kind].get(ObjectRef(name, zone.namespace))
        source = f"{kind.KIND.kind.lower()}/{name}"
        if record is None:
            self._drop(source)
        else:
            self._take(zone, source, record, zone_of(record, zones_wanting(record, cache)))

    def _take(self, zone: DNSZone, source: str, record: Record, owner: DNSZone | None) -> None:
        if record.deleting or owner is None or owner.name != zone.name:
            self._drop(source)
            return
        known = self.members.get(source)
        if known is None or (known.uid, known.generation) != (record.metadata.uid, record.metadata.generation):
            ptr = record.spec.ptr if isinstance(record, (ARecord, AAAARecord)) else None
            self.members[source] = Published(record.metadata.uid, record.metadata.generation, ptr=ptr)
            self._restated.add(source)
            self.draft.put_record(record, source)
        elif source not in self.draft.contributions:
            self.draft.put_record(record, source)

    def _drop(self, source: str) -> None:
        if self.members.pop(source, None) is not None or source in self.draft.contributions:
            self.draft.drop(source)
            self.pending.add(source)

    def copy(self, server: str) -> Copy:
        """The copy of a server, unknown at first."""
        return self.copies.setdefault(server, Copy())

    def keep(self, servers: Iterable[str]) -> None:
        """Nobody else has a copy: what a server that is gone was late with, or said, is nobody's business any more."""
        kept = set(servers)
        for gone in self.copies.keys() - kept:
            del self.copies[gone]

    def has(self, server: str) -> bool:
        """Whether a server has the zone, as far as it is ours to say."""
        copy = self.copies.get(server)
        if copy is None or not copy.known or copy.error:
            return False
        return bool(copy.serial) and not copy.behind and not copy.unsigned

    def is_refused(self, copy: Copy, key: Key) -> bool:
        """Whether a server would not have what is wanted at a name and type."""
        return key in copy.shut or (key in copy.refused and copy.refused[key] == self.draft.rrsets.get(key))

    def refusal_reason(self, keys: Iterable[Key]) -> str:
        """Why servers do not have them: others have something there, or the server minds."""
        asked = set(keys)
        return "ForeignData" if any(asked & copy.shut for copy in self.copies.values()) else "Refused"

    def refusals(self, keys: Iterable[Key] | None = None) -> dict[Key, list[str]]:
        """What servers would not have, and which; of these keys only, if any are given."""
        found: dict[Key, list[str]] = {}
        for place, copy in sorted(self.copies.items()):
            held = copy.refused.keys() | copy.shut
            for key in held if keys is None else held & set(keys):
                if self.is_refused(copy, key):
                    found.setdefault(key, []).append("/".join(place.split("/")[1:3]))
        return found

    def refusal_text(self, keys: Iterable[Key]) -> str:
        """Which of these servers would not have, in words; empty when they have all."""
        rows = self.refusals(keys)
        verbs = {"Refused": "refuses", "ForeignData": "has data of others in the place of"}
        return "; ".join(
            f"{', '.join(servers)} {verbs[self.refusal_reason([key])]} "
            f"{short_text(key[0], self.draft.zone)} {type_name(key[1])}"
            for key, servers in sorted(rows.items())
        )

    def learn(self, copy: Copy, soa: bytes, rrsets: Mapping[Key, RRset]) -> dict[Key, Any]:
        """A copy was read as a whole; returns where it differs from the draft."""
        wanted = self.draft.rrsets
        lag: dict[Key, Any] = {key: have for key, have in rrsets.items() if wanted.get(key) != have}
        lag.update((key, None) for key in wanted.keys() - rrsets.keys())
        copy.known, copy.absent, copy.soa, copy.passes = True, False, soa, 0
        copy.lag = lag
        return lag

    def published(self, serial: int) -> set[str]:
        """Every primary has the draft at `serial`; returns the records for which that is news."""
        news, self.pending = self.pending, set()
        for source in news:
            if (row := self.members.get(source)) is not None:
                self.members[source] = msgspec.structs.replace(row, serial=serial)
        return news


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """While a whole zone is compiled, all that is made is kept: looking for garbage took a quarter of the time."""
    working = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if working:
            gc.enable()


def _changes(before: Mapping[Key, RRset], after: Mapping[Key, RRset]) -> dict[Key, RRset | None]:
    """Where one draft differs from another that took its place, as it was."""
    return {key: before.get(key) for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def _lay_over(copy: Copy, before: Mapping[Key, RRset | None], after: Mapping[Key, RRset]) -> None:
    for key, old in before.items():
        copy.drift.pop(key, None)  # whatever was there, it is for us to say now
        have = copy.lag.get(key, old)
        if not copy.ours and old is not None and have is not None:
            copy.spoken[key] = copy.spoken.get(key, frozenset()) | (old.values & have.values)
            if have == old:
                copy.exact.add(key)
        if after.get(key) == have:
            copy.lag.pop(key, None)
        else:
            copy.lag[key] = have


def zones_wanting(record: Record, cache: Any) -> Iterable[DNSZone]:
    """The zones that may want a record."""
    from steersman.operators.dns.zonekinds import DNSZone

    shelf = cache[DNSZone]
    seen: dict[str, DNSZone] = {}
    for value in (*label_values(record), f"{record.namespace}/{EVERY}"):
        for zone in shelf.by_index("dns-records-from", value):
            if not zone.deleting:
                seen[zone.name] = zone
    return seen.values()


class Books:
    """The books of all zones, by zone."""

    def __init__(self) -> None:
        self._books: dict[ObjectRef, ZoneBook] = {}

    def open(self, ref: ObjectRef) -> ZoneBook:
        """The book of a zone, a new one if need be."""
        book = self._books.get(ref)
        if book is None:
            book = self._books[ref] = ZoneBook(ref)
        return book

    def get(self, ref: ObjectRef) -> ZoneBook | None:
        """The book of a zone, if there is one."""
        return self._books.get(ref)

    def close(self, ref: ObjectRef) -> None:
        """The zone is gone."""
        self._books.pop(ref, None)

    def __iter__(self) -> Any:
        return iter(self._books.values())
