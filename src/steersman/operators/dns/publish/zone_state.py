"""What this process knows of a zone: the desired zone, and how far each server's copy differs from it.

For a copy that is known, `diff` holds what the server has wherever that differs from the desired zone:

    content of the server  =  desired zone  with  diff  laid over it

So publishing a change costs as much as the change is large. A copy becomes unknown when an exchange ends without a
clear answer, and is then read as a whole. This is memory only: a new process reads every copy once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.operators.dns.zone.loader import ZoneLoader
from steersman.operators.dns.zone.names import short_text
from steersman.operators.dns.zone.rdata import Key, RRset, Soa, type_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.dns.api.zone import DNSZone
    from steersman.operators.dns.zone.compiler import CompiledZone
    from steersman.operators.dns.zone.loader import LoadedRecord, LoadResult
    from steersman.operators.dns.zone.ptr import PtrIndex
    from steersman.operators.dns.zone.rdata import Contribution

# Reasons for which no server should have the zone.
UNSERVED = frozenset({"NoInstances", "CrossNamespaceDenied", "DuplicateZone", "ZoneOverlap"})


class ExchangeFailure(msgspec.Struct, frozen=True):
    """Why the last exchange with a server failed."""

    reason: str
    message: str
    silent: bool = False  # it kept others waiting: it is contacted again when a probe has reached it


class UnmanagedData(msgspec.Struct):
    """Data of a copy that no resource declares, and what that means for ours (see `ownership`)."""

    values: dict[Key, frozenset[bytes]] = {}  # what no resource declares; kept as it is
    ignored: frozenset[Key] = frozenset()  # data of names that the zone's drift-ignore annotation leaves to others
    blocked: frozenset[Key] = frozenset()  # desired RRsets that cannot exist beside such data
    owned: frozenset[Key] = frozenset()  # where the copy held what records declare, and nothing else
    last_published: dict[Key, frozenset[bytes]] = {}  # values that resources declared and no longer do
    exact: set[Key] = set()  # where the copy had what resources declared, TTL included


class ServerCopy(msgspec.Struct):
    """One server's copy of a zone."""

    known: bool = False
    absent: bool = False  # the server does not have the zone
    soa: bytes | None = None
    config: tuple[Any, ...] | None = None  # the zone's configuration in effect, as we wrote it
    diff: dict[Key, Any] = {}  # Key -> RRset | None: what the server has there
    drift: dict[Key, Any] = {}  # the part of `diff` that others caused and that is not repaired
    refused: dict[Key, RRset | None] = {}  # what the server refused, as it was desired
    managed: bool = False  # resources alone decide what it holds: nothing in it is foreign
    added: bool = False  # we added the zone to the server
    borrowed: bool = False  # others added the zone, and it was not adopted
    unmanaged: UnmanagedData = msgspec.field(default_factory=UnmanagedData)  # while it is not managed
    failure: ExchangeFailure | None = None
    awaited: bool = False  # a probe has reached it after a silent failure: this time it is waited for
    checks: int = 0  # passes since it was read as a whole
    behind: int = 0  # consecutive passes in which it, a secondary, had an older serial
    unsigned: int = 0  # consecutive passes in which it was not signed with the expected keys
    signed: frozenset[int] = frozenset()  # tags of the expected keys that it was last seen signed with
    refreshed_at: float = float("-inf")  # when it was last asked to refresh

    @property
    def serial(self) -> int:
        """The serial that is being served; 0 when none is known."""
        return 0 if self.soa is None else Soa.read(self.soa).serial

    @property
    def error(self) -> str:
        """The message of the last failure; empty when there was none."""
        return "" if self.failure is None else self.failure.message

    @property
    def is_silent(self) -> bool:
        """Whether the server is not contacted until a probe has reached it."""
        return self.failure is not None and self.failure.silent

    def lose(self) -> None:
        """The server does not have the zone."""
        self.known, self.absent, self.soa, self.config = True, True, None, None
        self.unmanaged.values, self.unmanaged.ignored, self.unmanaged.blocked = {}, frozenset(), frozenset()
        self.added = self.borrowed = False

    def fail(self, failure: ExchangeFailure) -> None:
        """An exchange ended without a clear answer."""
        self.known, self.config, self.failure = False, None, failure

    def rebase(self, before: Mapping[Key, RRset | None], after: Mapping[Key, RRset]) -> None:
        """The desired zone changed: `before` has the RRsets that changed, as they were."""
        for key, old in before.items():
            self.drift.pop(key, None)  # a resource decides about it now
            have = self.diff.get(key, old)
            if not self.managed and old is not None and have is not None:
                published = self.unmanaged.last_published
                published[key] = published.get(key, frozenset()) | (old.values & have.values)
                if have == old:
                    self.unmanaged.exact.add(key)
            if after.get(key) == have:
                self.diff.pop(key, None)
            else:
                self.diff[key] = have


class Retry:
    """When to try again: doubling, by elapsed time and not by the number of passes; from the start with other servers.

    Ten changes within a second are ten passes over a server that is just starting, and no reason to avoid it.
    """

    def __init__(self) -> None:
        self._start(())

    def _start(self, servers: object) -> None:
        self._servers = servers
        self._failures = 0
        self._due = float("-inf")

    def failed(self, servers: object, now: float, longest: float) -> float:
        """Seconds until the next try."""
        if servers != self._servers:
            self._start(servers)
        if now >= self._due:
            self._failures += 1
            self._due = now + min(longest, 2.0 ** min(9, self._failures - 1))
        return self._due - now

    def succeeded(self) -> None:
        """Every server has the zone."""
        self._start(())


class ZoneState:
    """One zone. See the module."""

    def __init__(self, ref: NamespacedName) -> None:
        self.ref = ref
        self.loader = ZoneLoader()
        self.copies: dict[str, ServerCopy] = {}  # by server id
        self.serial = 0
        self.complete_servers: frozenset[str] = frozenset()  # managed servers that have the zone
        # Records to report on.
        self.pending: set[str] = set()  # sources whose change has not reached every primary
        self.unreported: set[str] = set()  # sources that were selected again and have not been reported since
        # How far this process has come with the zone.
        self.records_loaded = False  # what its records contribute is known, or cannot be known
        self.outcome_ready = False  # its outcome can be reported: it was published, or cannot be
        self.published_once = False  # the desired zone was sent to servers at least once, with or without success
        self.problem: tuple[str, str] | None = None  # why the zone cannot be served: reason, message
        # Schedules.
        self.retry = Retry()
        self.passes_waiting = 0  # consecutive passes that waited for other zones to load
        self.checked_at = float("-inf")  # when every copy was last checked
        self.checked_drift_mode = ""  # the drift mode of that check
        self.ignored_names: tuple[str, ...] = ()  # drift-ignore patterns that copies were read with
        self.status_deferred_since: tuple[float, str] | None = None  # since when, and the zone's resourceVersion then

    @property
    def desired(self) -> CompiledZone:
        """The zone as it should be served."""
        return self.loader.desired

    @property
    def members(self) -> dict[str, LoadedRecord]:
        """The records of the zone, by source."""
        return self.loader.members

    @property
    def is_unserved(self) -> bool:
        """Whether no server should have it."""
        return self.problem is not None and self.problem[0] in UNSERVED

    @property
    def sources(self) -> set[str]:
        """Every record that contributes to the zone or wants to."""
        return self.loader.sources

    def load(
        self, zone: DNSZone, name: bytes, own: Sequence[Contribution], cache: Any, ptr_index: PtrIndex
    ) -> LoadResult:
        """Compile the desired zone from the caches, and note for every copy what differs since."""
        self.records_loaded = True
        result = self.loader.load(zone, name, own, cache, ptr_index)
        if result.is_new_zone:
            self.copies, self.serial = {}, 0
        for copy in self.copies.values():
            if copy.known:
                copy.rebase(result.before, self.desired.rrsets)
        self.pending |= result.sources
        self.unreported |= result.reselected
        return result

    # -- copies --------------------------------------------------------------------------------------------------------

    def copy(self, server: str) -> ServerCopy:
        """The copy of a server, unknown at first."""
        return self.copies.setdefault(server, ServerCopy())

    def keep(self, servers: Iterable[str]) -> None:
        """Only these servers have a copy; forget the copies of all others."""
        kept = set(servers)
        for gone in self.copies.keys() - kept:
            del self.copies[gone]

    def has(self, server: str) -> bool:
        """Whether a server serves the zone, current and signed as expected."""
        copy = self.copies.get(server)
        if copy is None or not copy.known or copy.failure is not None:
            return False
        return bool(copy.serial) and not copy.behind and not copy.unsigned

    def record_content(self, copy: ServerCopy, soa: bytes, rrsets: Mapping[Key, RRset]) -> dict[Key, Any]:
        """A copy was read as a whole; returns where it differs from the desired zone."""
        desired = self.desired.rrsets
        diff: dict[Key, Any] = {key: have for key, have in rrsets.items() if desired.get(key) != have}
        diff.update((key, None) for key in desired.keys() - rrsets.keys())
        copy.known, copy.absent, copy.soa, copy.checks = True, False, soa, 0
        copy.diff = diff
        return diff

    def published(self, serial: int) -> set[str]:
        """Every primary has the desired zone at `serial`; returns the records whose change arrived with it."""
        published, self.pending = self.pending, set()
        for source in published:
            if (member := self.members.get(source)) is not None:
                self.members[source] = msgspec.structs.replace(member, serial=serial)
        return published

    # -- refused RRsets ------------------------------------------------------------------------------------------------

    def is_refused(self, copy: ServerCopy, key: Key) -> bool:
        """Whether a server does not accept the desired RRset."""
        if key in copy.unmanaged.blocked:
            return True
        return key in copy.refused and copy.refused[key] == self.desired.rrsets.get(key)

    def refusal_reason(self, keys: Iterable[Key]) -> str:
        """Why servers do not have them: foreign data is in their place, or the server refused them."""
        asked = set(keys)
        return "ForeignData" if any(asked & copy.unmanaged.blocked for copy in self.copies.values()) else "Refused"

    def refusals(self, keys: Iterable[Key] | None = None) -> dict[Key, list[str]]:
        """The RRsets that servers do not accept, with those servers; of these keys only, if any are given."""
        found: dict[Key, list[str]] = {}
        for server, copy in sorted(self.copies.items()):
            refused = copy.refused.keys() | copy.unmanaged.blocked
            for key in refused if keys is None else refused & set(keys):
                if self.is_refused(copy, key):
                    found.setdefault(key, []).append("/".join(server.split("/")[1:3]))
        return found

    def refusal_text(self, keys: Iterable[Key]) -> str:
        """Which servers do not accept which of these RRsets; empty when they have all."""
        verbs = {"Refused": "refuses", "ForeignData": "has unmanaged data in place of"}
        return "; ".join(
            f"{', '.join(servers)} {verbs[self.refusal_reason([key])]} "
            f"{short_text(key[0], self.desired.zone)} {type_name(key[1])}"
            for key, servers in sorted(self.refusals(keys).items())
        )

    def error_text(self) -> str:
        """What servers last failed with, for a record that waits for them."""
        return "; ".join(sorted({copy.error for copy in self.copies.values() if copy.error}))


class ZoneStates(dict["NamespacedName", ZoneState]):
    """The states of all zones that this process has reconciled; asking for another zone's makes one."""

    def __missing__(self, ref: NamespacedName) -> ZoneState:
        state = self[ref] = ZoneState(ref)
        return state
