"""The forecast: what would restart if some manifests were applied, and what would not. Pure.

With a live cluster, a workload is compared with what its pods run now. From manifests alone what runs is unknown, so
every source among them counts as changed, and the answer is which workloads depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from steersman.kube.api.selectors import Selector
from steersman.kube.api.times import format_time
from steersman.operators.reload.api.annotations import APPLIED
from steersman.operators.reload.api.config import SourceKind, SourceRef
from steersman.operators.reload.planning.diff import describe_compare_rules, wanted
from steersman.operators.reload.planning.plan import UNCOMPARABLE, Action, Observed
from steersman.operators.reload.planning.restart_order import SOFT
from steersman.operators.reload.planning.state import Applied, AppliedSource
from steersman.operators.reload.workloads.workload import WorkloadName
from steersman.text import some_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from steersman.operators.reload.inspect.offline import OfflineInspection
    from steersman.operators.reload.planning.edges import DependencyEdge
    from steersman.operators.reload.planning.evaluate import Evaluation
    from steersman.operators.reload.sources.digest import Source
    from steersman.operators.reload.workloads.kinds import KindRule
    from steersman.operators.reload.workloads.workload import Workload

_KINDS: Final = {
    SourceKind.CONFIGMAP: "ConfigMap",
    SourceKind.SECRET: "Secret",
    SourceKind.PROVIDER_CLASS: "SecretProviderClass",
}


class ForecastChange(msgspec.Struct, frozen=True):
    """Which source, and which of its keys; none when that is unknown."""

    kind: str
    namespace: str
    name: str
    keys: tuple[str, ...] = ()


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """One workload that would be acted on."""

    workload: WorkloadName
    sources: tuple[ForecastChange, ...]
    action: str
    wave: int
    due: str | None  # None: at no time that is known now
    reason: str


class Unaffected(msgspec.Struct, frozen=True):
    """One workload that would stay as it is, and the rule that says so."""

    workload: WorkloadName
    reason: str


class ManifestProblem(msgspec.Struct, frozen=True):
    """Something that could not be read."""

    where: str
    message: str


class Forecast(msgspec.Struct, frozen=True):
    """What would happen."""

    changes: tuple[Planned, ...] = ()
    unaffected: tuple[Unaffected, ...] = ()
    problems: tuple[ManifestProblem, ...] | msgspec.UnsetType = msgspec.UNSET  # unset: everything could be read
    unseen: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET  # around it; unset: everything could be seen


def forecast(
    after: OfflineInspection,
    now: float,
    *,
    before: OfflineInspection | None = None,
    applied: Collection[Any] = (),
    selector: str = "",
) -> Forecast:
    """What would happen with the objects of `after`, for workloads with the labels of `selector`.

    `before` is the cluster as it is; `applied` are the objects that would be written (the sources among them count as
    changed when there is no `before`).
    """
    written = {obj.source for obj in applied if hasattr(obj, "source")}
    remembered = {}
    for rule, workload in after.workloads():  # register all first, since some wait for others
        remembered[rule, workload.ref] = _running(rule, workload, after, before, written, now)
        after.register(after.evaluate(rule, workload, now, observed=remembered[rule, workload.ref]), now)
    changes, unaffected, chosen = [], [], Selector.parse(selector)
    for rule, workload in after.workloads():
        if not chosen.matches(workload.metadata.labels):
            continue
        evaluation = after.evaluate(rule, workload, now, observed=remembered[rule, workload.ref])
        name = WorkloadName(rule.kind.kind, workload.namespace, workload.name)
        if evaluation.plan.changes:
            changes.append(_planned(name, evaluation, now))
        else:
            unaffected.append(Unaffected(name, _why_not(evaluation, written)))
    return Forecast(
        changes=tuple(sorted(changes, key=lambda planned: (planned.wave, planned.due or "~", planned.workload))),
        unaffected=tuple(unaffected),
    )


def _running(
    rule: KindRule,
    workload: Workload,
    after: OfflineInspection,
    before: OfflineInspection | None,
    written: set[SourceRef],
    now: float,
) -> Observed:
    """What the operator would remember of a workload whose state is not written: what its pods run, as far as known."""
    if APPLIED in workload.annotations:
        return Observed(uid=workload.metadata.uid)
    known = {}
    if before is None:
        for edge in after.evaluate(rule, workload, now).edges.tracked:
            entry = wanted(edge, after.source(edge.source), after.keys.newest).entry
            if edge.source in written and entry is not None and not _ignores_all(edge, after.source(edge.source)):
                known[edge.source.seen_from(workload.namespace)] = AppliedSource(digest="?", use=entry.use, keys={})
    else:
        running = before.workload(rule.kind.kind, workload.name, workload.namespace)
        for edge in () if running is None else before.evaluate(rule, running[1], now).edges.tracked:
            entry = wanted(edge, before.source(edge.source), before.keys.newest).entry
            if entry is not None:
                known[edge.source.seen_from(workload.namespace)] = entry
    return Observed(uid=workload.metadata.uid, applied=Applied(sources=known) if known else None)


def _planned(name: WorkloadName, evaluation: Evaluation, now: float) -> Planned:
    plan = evaluation.plan
    held = plan.gate not in ("", *SOFT)
    due = None if plan.gate in SOFT - {"window"} else plan.due if plan.gate else now
    return Planned(
        workload=name,
        sources=tuple(
            ForecastChange(_KINDS[change.source.kind], change.source.namespace, change.source.name, change.keys)
            for change in plan.changes
        ),
        action=Action.WAIT.value if held else _verb(evaluation),
        wave=evaluation.policy.wave,
        due=None if due is None else format_time(due),
        reason=plan.reason if held else _because(evaluation),
    )


def _verb(evaluation: Evaluation) -> str:
    """What is done in the end: as `steersman.dev/action` calls it."""
    return evaluation.policy.action.kind


def _because(evaluation: Evaluation) -> str:
    changed = {change.source for change in evaluation.plan.changes}
    rules = [rule for edge in evaluation.edges.tracked if edge.source in changed for rule in edge.rules]
    because = "; ".join(dict.fromkeys(rules))
    return f"{because}; {evaluation.plan.reason}" if evaluation.plan.gate else because


def _why_not(evaluation: Evaluation, written: Collection[SourceRef]) -> str:
    """The first rule that says no: about one of the sources in question where there is such a rule."""
    if evaluation.plan.reason == UNCOMPARABLE:
        return evaluation.plan.reason
    for source in evaluation.edges.untracked:
        if source.source in written:
            return f"{source.source.seen_from(evaluation.workload.namespace)}: {source.rule}"
    for edge in evaluation.edges.tracked:
        if edge.source in written and _ignores_all(edge, evaluation.sources.get(edge.source)):
            patterns = ", ".join(map(str, edge.ignored))
            return f"{edge.source.seen_from(evaluation.workload.namespace)}: all keys it uses are ignored ({patterns})"
    used = {edge.source for edge in evaluation.edges.tracked}
    if used and written and not used & set(written):
        names = sorted(source.seen_from(evaluation.workload.namespace) for source in used)
        return f"it uses none of the changed sources (uses {some_of(names)})"
    if used and written:
        rules = [
            rule
            for edge in evaluation.edges.tracked
            if edge.source in written
            for rule in describe_compare_rules(edge, evaluation.sources.get(edge.source))
        ]
        compared = f", compared as {', '.join(dict.fromkeys(rules))}" if rules else ""
        return f"the keys it uses have not changed{compared}"
    if evaluation.plan.action is Action.SEED:
        return "first evaluation: its sources are recorded, without a restart"
    return evaluation.plan.reason


def _ignores_all(edge: DependencyEdge, source: Source | None) -> bool:
    """Whether a source has nothing but keys that are ignored for a workload."""
    if source is None or not edge.ignored:
        return False
    return bool(source.digests) and not any(map(edge.uses, source.digests))


def with_problems(found: Forecast, problems: Collection[ManifestProblem]) -> Forecast:
    """The same, with what could not be read."""
    return replace(found, problems=tuple(problems)) if problems else found


def with_unseen(found: Forecast, unseen: Collection[str]) -> Forecast:
    """The same, with what could not be seen around it: the answer stands for what could be."""
    return replace(found, unseen=tuple(dict.fromkeys(unseen))) if unseen else found
