"""Change tracking: what this process has seen of changes and the cluster does not record. Losing it loses no change.

    interests   source → workloads, so that a change of a source finds them without a search
    order       the resourceVersion at which a source's data last changed, and at which a workload took its edges: a
                source that changed *after* a workload began to use it, and before that was recorded, must restart it
                (the seeding race)
    memory      per workload: its pending changes, and when the first and the last of them came (`Observed`)

`observe_…` are called by watches for every change and note it; `…_matters` are the predicates, and only answer.

Invariant: a workload's interests are those of its last evaluation; between a change of a workload and that evaluation
it is in the queue anyway. A resourceVersion is compared as a number; where it is not one, nothing is concluded from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from steersman.operators.reload.api.annotations import APPLIED, RESTARTED_AT, RESTARTED_FOR
from steersman.operators.reload.planning.plan import Observed
from steersman.operators.reload.sources.compare import BYTES, IGNORE, forms_by_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from steersman.clock import Clock
    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.reload.api.config import SourceRef
    from steersman.operators.reload.planning.edges import DependencyEdge
    from steersman.operators.reload.planning.evaluate import Evaluation
    from steersman.operators.reload.sources.digest import Source
    from steersman.operators.reload.workloads.workload import Workload

MOST_DELETIONS: Final = 1000  # deleted sources that are remembered until their users have been listed
_OURS: Final = frozenset({APPLIED, RESTARTED_AT, RESTARTED_FOR})


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """When a source's data last changed."""

    revision: str
    created: str = ""  # the revision of its creation, where that was seen
    keys: dict[str, dict[str, str]] = {}  # since then: key -> form -> the revision that last changed it in that form
    ticks: dict[str, float] = {}  # when this process saw these revisions, on the monotonic clock

    def touching(self, edge: DependencyEdge) -> Iterable[str]:
        """The revisions of the changes since then that matter to an edge."""
        compared = forms_by_key(self.keys, edge.compare_rules)
        for key, forms in self.keys.items():
            form = compared.get(key, BYTES)
            if edge.uses(key) and form != IGNORE:
                yield forms.get(form, forms[BYTES])


class ChangeTracker:
    """The memory of one controller."""

    def __init__(self, *, sees: Callable[[SourceRef], bool] = lambda _source: True) -> None:
        """`sees`: whether it was known until now whether a source exists; otherwise it did not just appear."""
        self._sees = sees
        self.clock: Clock | None = None  # from the first evaluation on
        self.live = False  # the first lists are through: what appears from now on is new
        # Where workloads are not watched: the resourceVersion after which what is new in a namespace appeared.
        self.listed_before: Callable[[str], str] = lambda _namespace: ""
        self.listed_at: Callable[[str], str] = lambda _namespace: ""  # …and of the last list
        self._observed: dict[NamespacedName, Observed] = {}
        self._interests: dict[NamespacedName, frozenset[str]] = {}
        self._interested: dict[str, set[NamespacedName]] = {}
        self._since: dict[NamespacedName, str] = {}  # the resourceVersion at which a workload took its edges
        self._born: dict[NamespacedName, str] = {}  # the resourceVersion that created it, where the watch has shown it
        self._written: dict[NamespacedName, str] = {}  # the last state that we wrote
        self._moved: dict[SourceRef, Moved] = {}
        self._deleted: dict[SourceRef, int] = {}  # the last ones: a resourceVersion at which each was still there

    # -- what the watches show ---------------------------------------------------------------------------------------

    def observe_workload(self, old: Workload | None, new: Workload | None) -> None:
        """Note when a workload took its edges."""
        if new is None:
            return
        if old is None or old.metadata.uid != new.metadata.uid:
            self._since[new.ref] = self._changed_after(new)
            self._born.pop(new.ref, None)
            if self.live and new.facts.fresh:
                self._born[new.ref] = new.metadata.resource_version
        elif (old.facts.references, old.facts.settings) != (new.facts.references, new.facts.settings):
            self._since[new.ref] = self._changed_after(new)

    def _changed_after(self, workload: Workload) -> str:
        """A resourceVersion before which a change of a workload, seen just now, did not happen.

        A watch delivers the change itself. A list shows the workload as it is by then: its status may have been
        written since, and a source may have changed between both.
        """
        return self.listed_before(workload.namespace) or workload.metadata.resource_version

    def workload_matters(self, old: Workload | None, new: Workload | None) -> bool:
        """Whether a change of a workload needs an evaluation; our own writes do not."""
        if new is None or old is None or old.metadata.uid != new.metadata.uid or _aspects(old) != _aspects(new):
            return True
        return new.annotations.get(APPLIED) not in (old.annotations.get(APPLIED), self._written.get(new.ref))

    def observe_source(self, old: Source | None, new: Source | None) -> None:
        """Note when a source's data changed."""
        if new is None:
            if old is not None:
                self._moved.pop(old.source, None)
                self._note_deletion(old)
        elif old is None:
            self._deleted.pop(new.source, None)
            if self.live and self._sees(new.source):
                version = new.metadata.resource_version
                self._moved[new.source] = Moved(revision=version, created=version)
        elif old.digests != new.digests:
            tick = None if self.clock is None else self.clock.monotonic()
            self._moved[new.source] = _moved(self._moved.get(new.source), old, new, tick)

    def _note_deletion(self, source: Source) -> None:
        """At which resourceVersion is not known: after the last change of the source, and after the last list."""
        known = [source.metadata.resource_version, self.listed_at(source.namespace)]
        if self.live and (versions := [int(version) for version in known if version.isdecimal()]):
            self._deleted[source.source] = max(versions)
            if len(self._deleted) > MOST_DELETIONS:
                del self._deleted[next(iter(self._deleted))]

    # -- interests -------------------------------------------------------------------------------------------------

    def set_interests(self, workload: NamespacedName, names: frozenset[str]) -> None:
        """From now on `workload` is reconciled when one of these changes."""
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

    def interested_in(self, names: Iterable[str]) -> list[NamespacedName]:
        """The workloads that are interested in one of these, in order."""
        return sorted({workload for name in names for workload in self._interested.get(name, ())})

    # -- what plans need ---------------------------------------------------------------------------------------------

    def observed(self, workload: Workload) -> Observed:
        """What is remembered of this very workload, and not of an earlier one of its name."""
        known = self._observed.get(workload.ref)
        uid = workload.metadata.uid
        return known if known is not None and known.uid == uid else Observed(uid=uid)

    def knows(self, workload: NamespacedName) -> bool:
        """Whether anything is remembered of it: it exists and is enrolled."""
        return workload in self._observed

    def known(self) -> list[NamespacedName]:
        """The workloads of which anything is remembered, in order."""
        return sorted(self._observed)

    def keep(self, workload: NamespacedName, observed: Observed) -> None:
        """Remember for the next evaluation."""
        self._observed[workload] = observed

    def wrote(self, workload: NamespacedName, state: str) -> None:
        """This state is about to be written by us."""
        self._written[workload] = state

    def is_ours(self, workload: Workload) -> bool:
        """Whether this process wrote the state on a workload."""
        state = workload.annotations.get(APPLIED)
        return state is not None and state == self._written.get(workload.ref)

    def moved(self, workload: NamespacedName, edges: Collection[DependencyEdge]) -> dict[SourceRef, bool]:
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

    def deleted(self, workload: NamespacedName, edges: Collection[DependencyEdge]) -> frozenset[SourceRef]:
        """The sources that were deleted after the workload took its edges."""
        since = self._since.get(workload, "")
        if not since.isdecimal():
            return frozenset()
        return frozenset(edge.source for edge in edges if self._deleted.get(edge.source, -1) >= int(since))

    def changed_at(self, edges: Collection[DependencyEdge]) -> dict[SourceRef, float]:
        """When the sources last changed for these edges, on the monotonic clock, as far as this process has seen it."""
        found = {}
        for edge in edges:
            moved = self._moved.get(edge.source)
            if moved is not None and moved.ticks:
                ticks = [moved.ticks[revision] for revision in moved.touching(edge) if revision in moved.ticks]
                if ticks:
                    found[edge.source] = max(ticks)
        return found

    def born_after(self, workload: NamespacedName, sources: Collection[SourceRef]) -> frozenset[SourceRef]:
        """Those of `sources` whose last change came before the workload was created, however late it was delivered.

        Two watches are two streams: a workload may arrive before a change that is older than it.
        """
        born = self._born.get(workload, "")
        changes = ((source, moved.revision) for source in sources if (moved := self._moved.get(source)) is not None)
        return frozenset(source for source, revision in changes if _later(born, revision))

    def leave(self, workload: NamespacedName) -> None:
        """The workload is not enrolled; when it is enrolled again, it starts without a past."""
        self._observed.pop(workload, None)
        self._since.pop(workload, None)
        self._born.pop(workload, None)
        self._written.pop(workload, None)

    def forget(self, workload: NamespacedName) -> None:
        """The workload is gone."""
        self.leave(workload)
        self.set_interests(workload, frozenset())

    @property
    def pending(self) -> int:
        """How many workloads wait to be restarted."""
        return len(self.waiting())

    def waiting(self) -> list[NamespacedName]:
        """Which they are."""
        return [workload for workload, observed in self._observed.items() if observed.pending]


class PendingChanges:
    """The change trackers of all controllers of a process: what waits, and the flush before a process ends.

    A flush skips windows: what waits only for time is restarted now. As a listener this notes which workloads have been
    evaluated since, whatever came of it.
    """

    def __init__(self) -> None:
        self.trackers: dict[str, ChangeTracker] = {}  # by the name of their controller
        self.skips_windows = False
        self._evaluated: set[tuple[str, NamespacedName]] = set()

    def waiting(self) -> dict[str, list[NamespacedName]]:
        """The workloads with pending changes, by controller."""
        return {name: tracker.waiting() for name, tracker in self.trackers.items()}

    def skip_windows(self) -> None:
        """From now on no window holds anything back."""
        self.skips_windows = True
        self._evaluated.clear()

    def not_evaluated(self, name: str, refs: Collection[NamespacedName]) -> set[NamespacedName]:
        """Those of a controller's workloads that still wait and were not evaluated since windows are skipped."""
        waiting = set(self.trackers[name].waiting()).intersection(refs)
        return {ref for ref in waiting if (name, ref) not in self._evaluated}

    def evaluated(self, evaluation: Evaluation) -> None:
        """A plan was made, and applied or rejected."""
        if self.skips_windows:  # until then it is not needed, and names of deleted workloads would pile up
            self._evaluated.add((f"reload-{type(evaluation.workload).KIND.plural}", evaluation.workload.ref))


def source_matters(old: Source | None, new: Source | None) -> bool:
    """Whether a change of a source needs evaluations: its data, its canonical forms, annotations or labels differ."""
    if new is None or old is None or old.digests != new.digests or old.forms != new.forms:
        return True
    return old.metadata.annotations != new.metadata.annotations or old.metadata.labels != new.metadata.labels


def _moved(before: Moved | None, old: Source, new: Source, tick: float | None = None) -> Moved:
    """The changes of a source after one more: a key whose canonical form is the same has not moved."""
    revision = new.metadata.resource_version
    there = {*old.digests, *new.digests}
    keys = {key: forms for key, forms in before.keys.items() if key in there} if before is not None else {}
    for key in there:
        if old.digests.get(key) == new.digests.get(key):
            continue
        known = keys.get(key, {BYTES: ""})
        same = [form for form in new.forms if new.forms[form].get(key) == old.forms.get(form, {}).get(key, b"")]
        keys[key] = {BYTES: revision, **{form: known.get(form, known[BYTES]) for form in same}}
    ticks = {} if before is None else before.ticks
    if tick is not None:
        named = {revision for forms in keys.values() for revision in forms.values()}
        ticks = {name: at for name, at in ticks.items() if name in named} | {revision: tick}
    return Moved(revision=revision, created=before.created if before is not None else "", keys=keys, ticks=ticks)


def _later(version: str, other: str) -> bool:
    return version.isdecimal() and other.isdecimal() and int(version) > int(other)


def _aspects(workload: Workload) -> object:
    """Everything of a workload that an evaluation depends on, except what we write."""
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
