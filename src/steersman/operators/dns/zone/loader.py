"""The compile step of a zone's pass: the desired zone, kept in step with the caches. No I/O.

    DNSZone, its records, PTR records of other zones, catalog members ──► CompiledZone ──► LoadResult

The first load compiles everything; later ones compile only what changed since (`mark_record`, `mark_origin`), so a
change costs the same in a large zone as in a small one. Whatever the order of loads, the desired zone equals one
compile of everything.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.api.gvk import NamespacedName
from steersman.operators.dns.api.config import PTR_NAMESPACES
from steersman.operators.dns.api.records import RECORD_KINDS, AAAARecord, ARecord
from steersman.operators.dns.zone.compiler import CompiledZone
from steersman.operators.dns.zone.conflicts import ZONE
from steersman.operators.dns.zone.names import index_name
from steersman.operators.dns.zone.ptr import (
    Origin,
    contributions_to,
    is_reverse,
    named_in,
    pointers_of,
    source_in_reverse,
)
from steersman.operators.dns.zone.rdata import Key, RRset
from steersman.operators.dns.zone.selection import selected_records, source_of, zone_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from steersman.operators.dns.api.records import Record
    from steersman.operators.dns.api.zone import DNSZone
    from steersman.operators.dns.zone.ptr import Pointer, PtrIndex
    from steersman.operators.dns.zone.rdata import Contribution

ADDRESS_KINDS = ("arecord/", "aaaarecord/")


class LoadedRecord(msgspec.Struct, frozen=True, gc=False):
    """A record of the zone: which state of it is compiled, and since which serial every primary serves that."""

    uid: str
    generation: int
    serial: int = 0
    ptr: bool | None = None  # whether its addresses get PTR records; None: as the zone says


class LoadResult(msgspec.Struct, frozen=True):
    """What a load changed."""

    before: dict[Key, RRset | None]  # the RRsets that changed, as they were
    sources: frozenset[str]  # records whose data or outcome may have changed
    reselected: frozenset[str]  # records that were selected before or are now, when all were selected again
    pointers: frozenset[tuple[Origin, bytes]]  # records whose PTR records changed, with the name of the address
    is_new_zone: bool  # another DNSZone, or another zone name, than before


class ZoneLoader:
    """See the module."""

    def __init__(self) -> None:
        self.desired = CompiledZone(b"\0")
        self.members: dict[str, LoadedRecord] = {}
        self.changed_records: set[tuple[Any, str]] | None = None  # kind and name; None: all may have changed
        self._changed_origins: set[Origin] | None = None  # records whose PTR records may have changed; None: all
        self._uid = ""
        self._basis: object = None  # what the selection and every record's data depend on
        self._ptr_namespaces = ""
        self._ptr = False  # spec.ptr
        self._selected: set[str] = set()  # records it selects, whether it has them or an older zone does
        self._catalog_members: set[str] = set()
        self._ptr_origins: set[Origin] = set()  # records that have PTR records here

    @property
    def sources(self) -> set[str]:
        """Every record that contributes to the zone or wants to."""
        return {*self.members, *self.desired.contributions, *self._selected} - {ZONE}

    @property
    def is_current(self) -> bool:
        """Whether no record changed since the last load."""
        return self.changed_records is not None and not self.changed_records

    def mark_record(self, kind: Any, name: str) -> None:
        """A record changed that the zone selects, or selected."""
        if self.changed_records is not None:
            self.changed_records.add((kind, name))

    def mark_all_records(self) -> None:
        """Any record of the zone may have changed, or may belong to another zone now."""
        self.changed_records = None

    def mark_all_origins(self) -> None:
        """Any PTR record may belong to another reverse zone now."""
        self._changed_origins = None

    def mark_origin(self, origin: Origin) -> None:
        """The PTR records of a record, of whatever zone, may have changed here."""
        if self._changed_origins is not None:
            self._changed_origins.add(origin)

    def load(
        self, zone: DNSZone, name: bytes, own: Sequence[Contribution], cache: Any, ptr_index: PtrIndex
    ) -> LoadResult:
        """Compile what changed. `own` is what the zone contributes itself."""
        basis = (zone.metadata.uid, name, zone.spec.ttl, msgspec.json.encode(zone.spec.records_from))
        changed, self.changed_records = self.changed_records, set()
        replaced, is_new_zone = None, False
        if basis != self._basis:
            changed, replaced = None, self.desired
            is_new_zone = (self._uid, replaced.zone) != (zone.metadata.uid, name)
            self._basis, self._uid = basis, zone.metadata.uid
            self.desired = CompiledZone(name, zone.spec.ttl)
            self._changed_origins = None
            kept = () if is_new_zone else replaced.contributions
            self.members = {source: member for source, member in self.members.items() if source in kept}
        dropped: set[str] = set()
        restated: set[str] = set()  # records whose spec changed, though their data may be the same
        reselected: frozenset[str] = frozenset()
        self.desired.put(ZONE, *own)
        with _paused_collector() if changed is None else nullcontext():
            if changed is None:
                reselected = self._load_all(zone, cache, dropped, restated)
            for kind, record_name in changed or ():
                self._load_one(zone, kind, record_name, cache, dropped, restated)
            self._load_ptr_records(zone, cache, ptr_index)
            self._load_catalog_members(zone, ptr_index)
            delta = self.desired.settle()
        sources = delta.sources | restated
        load_all = changed is None or zone.spec.ptr != self._ptr
        self._ptr = zone.spec.ptr
        return LoadResult(
            before=dict(delta.before) if replaced is None else _replaced_rrsets(replaced.rrsets, self.desired.rrsets),
            sources=sources | dropped,
            reselected=reselected,
            pointers=self._index_pointers(zone.ref, sources, ptr_index, load_all=load_all),
            is_new_zone=is_new_zone,
        )

    # -- records -------------------------------------------------------------------------------------------------------

    def _load_all(self, zone: DNSZone, cache: Any, dropped: set[str], restated: set[str]) -> frozenset[str]:
        before = self._selected
        found = {source_of(record): record for kind in RECORD_KINDS for record in selected_records(zone, cache[kind])}
        self._selected = set(found)
        for source in self.members.keys() - found.keys():
            self._drop(source, dropped)
        owners: dict[tuple[tuple[str, str], ...], DNSZone | None] = {}  # by labels: most records share theirs
        for source, record in found.items():
            labels = tuple(record.labels.items())
            if labels not in owners:
                owners[labels] = zone_of(record, cache)
            self._put(zone, source, record, owners[labels], dropped, restated)
        return frozenset(before | self._selected)

    def _load_one(self, zone: DNSZone, kind: Any, name: str, cache: Any, dropped: set[str], restated: set[str]) -> None:
        record = cache[kind].get(NamespacedName(name, zone.namespace))
        source = f"{kind.KIND.kind.lower()}/{name}"
        if record is None:
            self._drop(source, dropped)
        else:
            self._put(zone, source, record, zone_of(record, cache), dropped, restated)

    def _put(
        self,
        zone: DNSZone,
        source: str,
        record: Record,
        owner: DNSZone | None,
        dropped: set[str],
        restated: set[str],
    ) -> None:
        if record.deleting or owner is None or owner.name != zone.name:
            self._drop(source, dropped)
            return
        member = self.members.get(source)
        if member is None or (member.uid, member.generation) != (record.metadata.uid, record.metadata.generation):
            ptr = record.spec.ptr if isinstance(record, (ARecord, AAAARecord)) else None
            self.members[source] = LoadedRecord(record.metadata.uid, record.metadata.generation, ptr=ptr)
            restated.add(source)
            self.desired.put_record(record, source)
        elif source not in self.desired.contributions:
            self.desired.put_record(record, source)

    def _drop(self, source: str, dropped: set[str]) -> None:
        if self.members.pop(source, None) is not None or source in self.desired.contributions:
            self.desired.drop(source)
            dropped.add(source)

    # -- other zones ---------------------------------------------------------------------------------------------------

    def _load_ptr_records(self, zone: DNSZone, cache: Any, ptr_index: PtrIndex) -> None:
        """PTR records of addresses in other zones, when this is their reverse zone."""
        name = self.desired.zone
        if not is_reverse(name):
            return
        origins, self._changed_origins = self._changed_origins, set()
        if (granted := zone.annotations.get(PTR_NAMESPACES, "")) != self._ptr_namespaces:
            self._ptr_namespaces, origins = granted, None
        if origins is None:
            origins = {origin for origin, _ in ptr_index.below(name)} | self._ptr_origins
        named = named_in(cache)
        for origin in origins:
            contributions = contributions_to(zone, name, origin, ptr_index.of(origin), named)
            if contributions:
                self.desired.put(source_in_reverse(origin), *contributions)
                self._ptr_origins.add(origin)
            elif origin in self._ptr_origins:
                self.desired.drop(source_in_reverse(origin))
                self._ptr_origins.discard(origin)

    def _load_catalog_members(self, zone: DNSZone, ptr_index: PtrIndex) -> None:
        """The zones that this one lists, when it is a catalog."""
        members = {}
        if zone.spec.catalog:
            members = ptr_index.catalogs.members((zone.namespace, index_name(zone.spec.zone_name)))
        for source in self._catalog_members - members.keys():
            self.desired.drop(source)
        for source, contribution in members.items():
            self.desired.put(source, contribution)
        self._catalog_members = set(members)

    def _index_pointers(
        self, ref: NamespacedName, sources: frozenset[str] | set[str], ptr_index: PtrIndex, *, load_all: bool
    ) -> frozenset[tuple[Origin, bytes]]:
        """Put the names that addresses of this zone point back to into the index; returns those that changed."""
        if load_all:
            sources = {*sources, *ptr_index.sources(ref), *self.members}
        moved: set[tuple[Origin, bytes]] = set()
        for source in sources:
            if source.startswith(ADDRESS_KINDS) and source.count("/") == 1:
                names = ptr_index.put(ref, source, self._pointers(source))
                moved |= {((ref.namespace, source), name) for name in names}
        return frozenset(moved)

    def _pointers(self, source: str) -> tuple[Pointer, ...]:
        member = self.members.get(source)
        if member is None or not (member.ptr or (member.ptr is None and self._ptr)):
            return ()
        outcome = self.desired.outcome(source)
        if outcome is None or outcome.held is not None:
            return ()
        return pointers_of(self.desired.contributions.get(source, ()), self.desired.zone)


@contextmanager
def _paused_collector() -> Iterator[None]:
    """Compiling a whole zone keeps all that it allocates; collecting garbage meanwhile took a quarter of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _replaced_rrsets(before: Mapping[Key, RRset], after: Mapping[Key, RRset]) -> dict[Key, RRset | None]:
    """Where a new desired zone differs from the one it replaces, as that had it."""
    return {key: before.get(key) for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
