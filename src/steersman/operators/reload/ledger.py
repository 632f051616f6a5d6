"""The ledger: what this process has seen and the cluster does not record. Losing it loses no change.

Three things, all derived from watching:

    who is interested     source -> workloads, so that a change of a source finds them without a search
    in which order        the revision at which a source's data last changed, and at which a workload took its edges:
                          a source that changed *after* a workload began to use it, and before that was written down,
                          must restart it (the seeding race)
    since when            per workload: its pending changes, and when the first and the last of them came

Invariant: a workload's interests are those of its last look; between a change of a workload and that look it is in the
queue anyway. Revisions are compared as numbers, as every server that keeps one history hands them out; where one is no
number, nothing is concluded from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from steersman.operators.reload.comparison import BYTES, IGNORE, form_of
from steersman.operators.reload.state import Applied, Entry
from steersman.operators.reload.types import APPLIED, RESTARTED_AT, RESTARTED_FOR, SourceRef

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from steersman.kube.resources import ObjectRef
    from steersman.operators.reload.digest import Source
    from steersman.operators.reload.edges import Edge
    from steersman.operators.reload.workloads import Workload

__all__ = ["Ledger", "Observed"]

_OURS: Final = frozenset({APPLIED, RESTARTED_AT, RESTARTED_FOR})


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What has been seen of one workload so far; a plan makes the next one of it."""

    uid: str = ""
    pending: dict[SourceRef, str] = {}  # the digests that wait to be applied
    first: float = 0.0  # when the first of them was seen, on the monotonic clock
    last: float = 0.0  # when one of them last changed
    seen: dict[SourceRef, Entry] = {}  # edges at first sight, as long as their seed is not written
    applied: Applied | None = None  # the last state read or written, in case somebody wipes the annotation
    wiped: tuple[float, ...] = ()  # when somebody removed our annotation since the last restart, on the monotonic clock
    refusals: int = 0  # how often the server refused the restart that is pending
    reported: tuple[str, ...] = ()  # what people were last told


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """When a source's data last changed."""

    revision: str
    created: str = ""  # the revision of its creation, where that was seen
    keys: dict[str, dict[str, str]] = {}  # since then: key -> form -> the revision that last changed it in that form

    def touching(self, edge: Edge) -> Iterable[str]:
        """The revisions of the changes since then that matter to an edge."""
        for key, forms in self.keys.items():
            form = form_of(key, edge.ways)
            if edge.uses(key) and form != IGNORE:
                yield forms.get(form, forms[BYTES])


class Ledger:
    """The memory of one controller."""

    def __init__(self, *, sees: Callable[[SourceRef], bool] = lambda _source: True) -> None:
        """`sees`: whether one could tell until now that a source does not exist; otherwise it did not just appear."""
        self._sees = sees
        self.live = False  # the first lists are through: whatever appears now is new
        self._observed: dict[ObjectRef, Observed] = {}
        self._interests: dict[ObjectRef, frozenset[str]] = {}
        self._interested: dict[str, set[ObjectRef]] = {}
        self._since: dict[ObjectRef, str] = {}
        self._born: dict[ObjectRef, str] = {}  # the revision that created it, where the watch has shown just that
        self._written: dict[ObjectRef, str] = {}  # our own last word on a workload, which is no news when it comes back
        self._moved: dict[SourceRef, Moved] = {}

    # -- what the watches tell ---------------------------------------------------------------------------------------

    def workload_changed(self, old: Workload | None, new: Workload | None) -> bool:
        """Note when a workload took its edges; returns whether the change matters."""
        if new is None:
            return True
        if old is None or old.metadata.uid != new.metadata.uid:
            self._since[new.ref] = new.metadata.resource_version
            self._born.pop(new.ref, None)
            if self.live and new.facts.fresh:
                self._born[new.ref] = new.metadata.resource_version
            return True
        if (old.facts.references, old.facts.settings) != (new.facts.references, new.facts.settings):
            self._since[new.ref] = new.metadata.resource_version
        if _aspects(old) != _aspects(new):
            return True
        state = new.annotations.get(APPLIED)
        return state not in (old.annotations.get(APPLIED), self._written.get(new.ref))

    def source_changed(self, old: Source | None, new: Source | None) -> bool:
        """Note when a source's data changed; returns whether the change matters."""
        if new is None:
            if old is not None:
                self._moved.pop(old.source, None)
            return True
        if old is None:
            if self.live and self._sees(new.source):
                revision = new.metadata.resource_version
                self._moved[new.source] = Moved(revision=revision, created=revision)
            return True
        if old.digests != new.digests:
            self._moved[new.source] = _moved(self._moved.get(new.source), old, new)
            return True
        if old.forms != new.forms:
            return True  # it has been hashed in a form that somebody waits for
        return old.metadata.annotations != new.metadata.annotations or old.metadata.labels != new.metadata.labels

    # -- interests -------------------------------------------------------------------------------------------------

    def set_interests(self, workload: ObjectRef, names: frozenset[str]) -> None:
        """From now on `workload` is to be looked at when one of these changes."""
        before = self._interests.get(workload, frozenset())
        if names == before:
            return
        for name in before - names:
            users = self._interested[name]
            users.discard(workload)
            if not users:
                del self._interested[name]
        for name in names - before:
            self._interested.setdefault(name, set()).add(workload)
        if names:
            self._interests[workload] = names
        else:
            self._interests.pop(workload, None)

    def interested_in(self, names: Iterable[str]) -> list[ObjectRef]:
        """The workloads that are to be looked at, in order."""
        return sorted({workload for name in names for workload in self._interested.get(name, ())})

    # -- what plans need ---------------------------------------------------------------------------------------------

    def observed(self, workload: Workload) -> Observed:
        """What has been seen of this very workload; nothing of one that had its name before."""
        known = self._observed.get(workload.ref)
        uid = workload.metadata.uid
        return known if known is not None and known.uid == uid else Observed(uid=uid)

    def knows(self, workload: ObjectRef) -> bool:
        """Whether anything is remembered of it: it exists and takes part."""
        return workload in self._observed

    def keep(self, workload: ObjectRef, observed: Observed) -> None:
        """Remember for the next look."""
        self._observed[workload] = observed

    def wrote(self, workload: ObjectRef, state: str) -> None:
        """This state is our own word."""
        self._written[workload] = state

    def moved(self, workload: ObjectRef, edges: Collection[Edge]) -> dict[SourceRef, bool]:
        """The sources that changed for the workload after it took its edges; true for one that was created then."""
        since = self._since.get(workload, "")
        if not since.isdecimal():
            return {}
        found = {}
        for edge in edges:
            moved = self._moved.get(edge.source)
            if moved is None:
                continue
            if any(_later(revision, since) for revision in moved.touching(edge)):
                found[edge.source] = False
            elif _later(moved.created, since):
                found[edge.source] = True
        return found

    def born_after(self, workload: ObjectRef, sources: Collection[SourceRef]) -> frozenset[SourceRef]:
        """Those of `sources` whose last change came before the workload was created, however late it was delivered.

        Two watches are two streams: a workload may be seen before a change that it was created after.
        """
        born = self._born.get(workload, "")
        changes = ((source, moved.revision) for source in sources if (moved := self._moved.get(source)) is not None)
        return frozenset(source for source, revision in changes if _later(born, revision))

    def leave(self, workload: ObjectRef) -> None:
        """The workload takes no part: when it does again, it starts afresh."""
        self._observed.pop(workload, None)
        self._since.pop(workload, None)
        self._born.pop(workload, None)
        self._written.pop(workload, None)

    def forget(self, workload: ObjectRef) -> None:
        """The workload is gone."""
        self.leave(workload)
        self.set_interests(workload, frozenset())

    @property
    def pending(self) -> int:
        """How many workloads wait to be restarted."""
        return len(self.waiting())

    def waiting(self) -> list[ObjectRef]:
        """Which they are."""
        return [workload for workload, observed in self._observed.items() if observed.pending]


def _moved(before: Moved | None, old: Source, new: Source) -> Moved:
    """What is known of a source's changes after one more: a key that means the same as before has not moved."""
    revision = new.metadata.resource_version
    there = {*old.digests, *new.digests}
    keys = {key: forms for key, forms in before.keys.items() if key in there} if before is not None else {}
    for key in there:
        if old.digests.get(key) == new.digests.get(key):
            continue
        known = keys.get(key, {BYTES: ""})
        same = [form for form in new.forms if new.forms[form].get(key) == old.forms.get(form, {}).get(key, b"")]
        keys[key] = {BYTES: revision, **{form: known.get(form, known[BYTES]) for form in same}}
    return Moved(revision=revision, created=before.created if before is not None else "", keys=keys)


def _later(one: str, other: str) -> bool:
    return one.isdecimal() and other.isdecimal() and int(one) > int(other)


def _aspects(workload: Workload) -> object:
    """Everything a look at a workload depends on, except what we write."""
    meta, facts = workload.metadata, workload.facts
    return (
        _without(_OURS, workload.annotations),
        _without(_OURS, facts.template_annotations),
        (facts.references, facts.settings, facts.note, facts.follows, facts.has_template, facts.variables),
        meta.labels,
        meta.deletion_timestamp,
        [owner.uid for owner in meta.owner_references or ()],
    )


def _without(names: frozenset[str], annotations: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in annotations.items() if name not in names}
