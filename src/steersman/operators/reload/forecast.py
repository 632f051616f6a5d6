"""The forecast: what would restart if some manifests were applied, and what would not. Pure.

With the cluster as it is, a workload is compared with what its pods run now. From manifests alone nobody knows what
runs, so every source among them counts as changed, and the answer is who depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from steersman.kube.times import format_time
from steersman.operators.reload.changes import told_ways, wanted
from steersman.operators.reload.fleet import SOFT
from steersman.operators.reload.ledger import Observed
from steersman.operators.reload.plan import Action
from steersman.operators.reload.state import Applied, Entry
from steersman.operators.reload.types import APPLIED, SourceKind, SourceRef

if TYPE_CHECKING:
    from collections.abc import Collection

    from steersman.operators.reload.digest import Source
    from steersman.operators.reload.edges import Edge
    from steersman.operators.reload.kinds import KindRule
    from steersman.operators.reload.look import Look
    from steersman.operators.reload.survey import Survey
    from steersman.operators.reload.workloads import Workload

__all__ = [
    "ChangedSource",
    "Forecast",
    "Planned",
    "Problem",
    "Unaffected",
    "WorkloadName",
    "forecast",
    "with_problems",
    "with_unseen",
]


_KINDS: Final = {
    SourceKind.CONFIGMAP: "ConfigMap",
    SourceKind.SECRET: "Secret",
    SourceKind.PROVIDER_CLASS: "SecretProviderClass",
}


class WorkloadName(msgspec.Struct, frozen=True, order=True):
    """Which workload."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.name}"


class ChangedSource(msgspec.Struct, frozen=True):
    """Which source, and which of its keys; none when nobody knows which."""

    kind: str
    namespace: str
    name: str
    keys: tuple[str, ...] = ()


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """One workload that something would be done about."""

    workload: WorkloadName
    sources: tuple[ChangedSource, ...]
    action: str
    wave: int
    due: str | None  # None: at no time that is known now
    reason: str


class Unaffected(msgspec.Struct, frozen=True):
    """One workload that would stay as it is, and the rule that says so."""

    workload: WorkloadName
    reason: str


class Problem(msgspec.Struct, frozen=True):
    """Something that could not be read."""

    where: str
    message: str


class Forecast(msgspec.Struct, frozen=True):
    """What would happen."""

    changes: tuple[Planned, ...] = ()
    unaffected: tuple[Unaffected, ...] = ()
    problems: tuple[Problem, ...] | msgspec.UnsetType = msgspec.UNSET  # unset: everything could be read
    unseen: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET  # around it; unset: everything could be seen


def forecast(after: Survey, now: float, *, before: Survey | None = None, applied: Collection[Any] = ()) -> Forecast:
    """What would happen with the objects of `after`.

    `before` is the cluster as it is; `applied` are the objects that would be written (the sources among them count as
    changed when there is no `before`).
    """
    written = {one.source for one in applied if hasattr(one, "source")}
    remembered = {}
    for rule, workload in after.workloads():  # first everybody for himself, since some wait for others
        remembered[rule, workload.ref] = _running(rule, workload, after, before, written, now)
        after.acquaint(rule, after.look(rule, workload, now, observed=remembered[rule, workload.ref]), now)
    changes, unaffected = [], []
    for rule, workload in after.workloads():
        look = after.look(rule, workload, now, observed=remembered[rule, workload.ref])
        name = WorkloadName(rule.kind.kind, workload.namespace, workload.name)
        if look.plan.changes:
            changes.append(_planned(name, look, now))
        else:
            unaffected.append(Unaffected(name, _why_not(look, written)))
    return Forecast(
        changes=tuple(sorted(changes, key=lambda one: (one.wave, one.due or "~", one.workload))),
        unaffected=tuple(unaffected),
    )


def _running(
    rule: KindRule, workload: Workload, after: Survey, before: Survey | None, written: set[SourceRef], now: float
) -> Observed:
    """What the operator would remember of a workload whose state is not written: what its pods run, as far as known."""
    if APPLIED in workload.annotations:
        return Observed(uid=workload.metadata.uid)
    known = {}
    if before is None:
        for edge in after.look(rule, workload, now).edges.tracked:
            entry = wanted(edge, after.source(edge.source)).entry
            if edge.source in written and entry is not None and not _ignores_all(edge, after.source(edge.source)):
                known[edge.source.seen_from(workload.namespace)] = Entry(digest="?", use=entry.use, keys={})
    else:
        running = before.workload(rule.kind.kind, workload.name, workload.namespace)
        for edge in () if running is None else before.look(rule, running[1], now).edges.tracked:
            entry = wanted(edge, before.source(edge.source)).entry
            if entry is not None:
                known[edge.source.seen_from(workload.namespace)] = entry
    return Observed(uid=workload.metadata.uid, applied=Applied(sources=known) if known else None)


def _planned(name: WorkloadName, look: Look, now: float) -> Planned:
    plan = look.plan
    held = plan.gate not in ("", *SOFT)
    due = None if plan.gate in SOFT - {"window"} else plan.due if plan.gate else now
    return Planned(
        workload=name,
        sources=tuple(
            ChangedSource(_KINDS[one.source.kind], one.source.namespace, one.source.name, one.keys)
            for one in plan.changes
        ),
        action=Action.WAIT.value if held else _verb(look),
        wave=look.policy.wave,
        due=None if due is None else format_time(due),
        reason=plan.reason if held else _because(look),
    )


def _verb(look: Look) -> str:
    """What is done in the end: the words of `steersman.dev/action`."""
    return look.policy.means.kind


def _because(look: Look) -> str:
    changed = {one.source for one in look.plan.changes}
    rules = [rule for edge in look.edges.tracked if edge.source in changed for rule in edge.rules]
    told = "; ".join(dict.fromkeys(rules))
    return f"{told}; {look.plan.reason}" if look.plan.gate else told


def _why_not(look: Look, written: Collection[SourceRef]) -> str:
    """The first rule that says no: about one of the sources in question where there is such a rule."""
    for one in look.edges.untracked:
        if one.source in written:
            return f"{one.source.seen_from(look.workload.namespace)}: {one.rule}"
    for edge in look.edges.tracked:
        if edge.source in written and _ignores_all(edge, look.sources.get(edge.source)):
            patterns = ", ".join(map(str, edge.ignored))
            return f"{edge.source.seen_from(look.workload.namespace)}: all keys it uses are ignored ({patterns})"
    used = {edge.source for edge in look.edges.tracked}
    if used and written and not used & set(written):
        return f"it uses none of the changed sources (uses {_names(used, look.workload.namespace)})"
    if used and written:
        ways = [
            way
            for edge in look.edges.tracked
            if edge.source in written
            for way in told_ways(edge, look.sources.get(edge.source))
        ]
        compared = f", compared as {', '.join(dict.fromkeys(ways))}" if ways else ""
        return f"the keys it uses have not changed{compared}"
    if look.plan.action is Action.SEED:
        return "first sight: what it uses is written down, without a restart"
    return look.plan.reason


def _ignores_all(edge: Edge, source: Source | None) -> bool:
    """Whether a source has nothing but keys that are ignored for a workload."""
    if source is None or not edge.ignored:
        return False
    return bool(source.digests) and not any(map(edge.uses, source.digests))


def _names(sources: Collection[SourceRef], namespace: str) -> str:
    told = sorted(one.seen_from(namespace) for one in sources)
    return ", ".join(told[:5]) + (f" and {len(told) - 5} more" if len(told) > 5 else "")


def with_problems(found: Forecast, problems: Collection[Problem]) -> Forecast:
    """The same, with what could not be read."""
    return replace(found, problems=tuple(problems)) if problems else found


def with_unseen(found: Forecast, unseen: Collection[str]) -> Forecast:
    """The same, with what could not be seen around it: the answer stands for what could be."""
    return replace(found, unseen=tuple(dict.fromkeys(unseen))) if unseen else found
