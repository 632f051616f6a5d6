"""ReloadPolicy and ClusterReloadPolicy: what a namespace or a cluster asks for without touching workloads. Pure.

A policy says for the workloads it selects what their own annotations could say. Several may select the same workload:
per field the one with the highest `priority` decides, among equals the first by name. A field that makes no sense is
left out and named in the condition Accepted, and everything else of the policy counts; windows and freezes that make no
sense hold restarts back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import msgspec

from steersman.crd.markers import Column, Ge, Le, ListMap, MaxLength, MinLength, Pattern
from steersman.errors import FormatError
from steersman.kube.definitions import ColumnSpec
from steersman.kube.durations import parse_duration
from steersman.kube.objects import LabelSelector, Resource, Struct
from steersman.kube.selectors import Selector
from steersman.operators.reload.features import CompareConfig
from steersman.operators.reload.means import parse_means
from steersman.operators.reload.settings import (
    NO_WORDS,
    Freeze,
    KindWords,
    Settings,
    read_dependency,
    read_freeze,
    read_pattern,
)
from steersman.operators.reload.timetable import Timetable, make_opening
from steersman.operators.reload.types import MOST_RESTARTS, Budget, Guard, OnFailure
from steersman.runtime.conditions import Condition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from steersman.operators.reload.types import WorkloadId
    from steersman.operators.reload.workloads import Workload

__all__ = [
    "ClusterPolicySpec",
    "ClusterReloadPolicy",
    "PolicySpec",
    "PolicyStatus",
    "ReloadPolicy",
    "Said",
    "ranked",
    "read_policy",
]

T = TypeVar("T")


class PolicyBudget(Struct):
    """How often one workload may be restarted."""

    restarts: Annotated[int, Ge(0)] = 5
    """0 is no limit; at most 200."""
    per: str = "1h"


class PolicyWindow(Struct):
    """When restarts are allowed."""

    cron: str
    """When it opens, as cron has it: minute, hour, day, month, weekday."""
    duration: str
    """How long it stays open, such as 2h."""
    time_zone: str = "UTC"


class PolicyGuard(Struct):
    """How many workloads one change may restart before somebody must approve it."""

    workloads: Annotated[int, Ge(0)] = 0
    """0 is no limit."""
    percent: Annotated[float, Ge(0), Le(100)] = 0
    """Of the workloads of a namespace that take part; 0 is no limit."""


class PolicyCompare(Struct):
    """How some keys of some sources are compared."""

    source: Annotated[str, MaxLength(253)] = "*"
    """configmap/NAME, secret/NAME, or * for all; NAME may be a glob."""
    keys: Annotated[str, MinLength(1), MaxLength(253), Pattern(r"^[-._a-zA-Z0-9*?\[\]!]+$")]
    """The keys, as a glob such as *.json."""
    form: Literal["json", "yaml", "properties", "certificate", "ignore", "bytes"] = msgspec.field(name="as")
    """The data and not its layout, serial and end of certificates, never a change, or byte by byte."""


class PolicySpec(Struct):
    """What holds for the selected workloads; what is left out is decided further out."""

    selector: LabelSelector | None = None
    """The workloads, by their labels; without it all of them."""
    priority: int = 0
    """Where policies overlap the highest decides, among equals the first by name."""
    quiet_period: str | None = None
    """Wait until the sources have been still this long, such as 5s."""
    max_delay: str | None = None
    """But never longer than this after the first change."""
    budget: PolicyBudget | None = None
    windows: list[PolicyWindow] | None = None
    """One of them must be open; without any it is always allowed."""
    wave: int | None = None
    """Lower ones go first."""
    depends_on: list[str] | None = None
    """Workloads that go first, such as deployment/db."""
    max_concurrent: Annotated[int, Ge(0)] | None = None
    """Rollouts at once in a namespace; 0 is no limit."""
    on_failure: Literal["halt", "continue"] | None = None
    """What a failed rollout means for those that wait for the same change."""
    rollout_deadline: str | None = None
    """After which a rollout that is not available has failed, such as 10m."""
    guard: PolicyGuard | None = None
    freeze: str | None = None
    """true, or until=2006-01-02T15:04:05Z: no restarts."""
    action: str | None = None
    """restart, none, evict, or http port=8080 path=/-/reload: what is done when sources have changed."""
    ignore: list[str] | None = None
    """Sources or keys that do not count, such as configmap/app#comment; names and keys may be globs."""
    compare: list[PolicyCompare] | None = None
    """How keys are compared, where not byte by byte; the first that matches a key decides."""
    notify: list[str] | None = None
    """The receivers of messages, by their names in the configuration; an empty list is nobody, without it all."""


class ClusterPolicySpec(PolicySpec):
    """The same, and what only the cluster as a whole has."""

    max_concurrent_in_cluster: Annotated[int, Ge(0)] | None = None
    """Rollouts at once in all namespaces together; 0 is no limit."""


class PolicyStatus(Struct):
    """What became of it."""

    observed_generation: int = 0
    workloads: Annotated[int, Column("Workloads")] = 0
    """How many it selects."""
    conditions: Annotated[list[Condition] | None, ListMap("type")] = None


ACCEPTED: Final = ColumnSpec(name="Accepted", json_path='.status.conditions[?(@.type=="Accepted")].status')


class ReloadPolicy(
    Resource,
    group="steersman.dev",
    version="v1alpha1",
    plural="reloadpolicies",
    short_names=("rlp",),
    columns=(ACCEPTED,),
):
    """How workloads of a namespace are restarted when their configuration changes."""

    spec: PolicySpec = PolicySpec()
    status: PolicyStatus = PolicyStatus()


class ClusterReloadPolicy(
    Resource,
    group="steersman.dev",
    version="v1alpha1",
    plural="clusterreloadpolicies",
    namespaced=False,
    short_names=("crlp",),
    columns=(ACCEPTED,),
):
    """How workloads of all namespaces are restarted when their configuration changes."""

    spec: ClusterPolicySpec = ClusterPolicySpec()
    status: PolicyStatus = PolicyStatus()


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy says, read and checked."""

    selector: Selector
    settings: Settings
    problems: tuple[str, ...] = ()  # each begins with the field it is about

    def selects(self, workload: Workload) -> bool:
        """Whether it is about this workload."""
        return self.selector.matches(workload.labels)


def read_policy(policy: ReloadPolicy | ClusterReloadPolicy, words: KindWords = NO_WORDS) -> Said:
    """What the policy says; a dependency of a cluster's policy is one in the namespace of each workload."""
    reader, spec = _Reader(), policy.spec
    selector = reader.read("spec.selector", lambda: Selector.from_wire(spec.selector or LabelSelector()))
    if selector is None:
        selector = Selector.from_wire(None)  # selects nothing: rather too few than all
    settings = Settings(
        quiet=reader.duration("spec.quietPeriod", spec.quiet_period),
        limit=reader.duration("spec.maxDelay", spec.max_delay),
        budget=_budget(reader, spec.budget),
        timetable=_timetable(reader, spec.windows),
        wave=spec.wave,
        depends=_depends(reader, spec.depends_on, policy.namespace, words),
        max_concurrent=spec.max_concurrent,
        max_concurrent_cluster=spec.max_concurrent_in_cluster if isinstance(spec, ClusterPolicySpec) else None,
        notify=None if spec.notify is None else tuple(spec.notify),
        on_failure=None if spec.on_failure is None else OnFailure(spec.on_failure),
        deadline=reader.duration("spec.rolloutDeadline", spec.rollout_deadline),
        guard=None if spec.guard is None else Guard(workloads=spec.guard.workloads, percent=spec.guard.percent),
        freeze=_freeze(reader, spec.freeze),
        means=reader.read("spec.action", lambda: None if spec.action is None else parse_means(spec.action)),
        ignore=tuple(reader.all("spec.ignore", spec.ignore, read_pattern)),
        compare=tuple(reader.compare("spec.compare", spec.compare)),
    )
    return Said(selector=selector, settings=settings, problems=tuple(reader.problems))


def ranked(policies: Iterable[T]) -> Sequence[T]:
    """Policies of one kind in the order in which they decide."""
    return sorted(policies, key=lambda one: (-_spec(one).priority, _name(one)))


def self_references(said: Said, workloads: Iterable[tuple[WorkloadId, Workload]]) -> list[str]:
    """Dependencies on workloads that the policy selects itself: such a workload would wait for itself."""
    named = {(one.kind, one.name): place for place, one in enumerate(said.settings.depends or ())}
    found = {
        f"spec.dependsOn[{named[me.kind, me.name]}]: the policy selects {me.title} itself, which cannot wait for itself"
        for me, workload in workloads
        if (me.kind, me.name) in named and said.selects(workload)
    }
    return sorted(found)


def _spec(policy: Any) -> PolicySpec:
    spec: PolicySpec = policy.spec
    return spec


def _name(policy: Any) -> str:
    name: str = policy.metadata.name
    return name


class _Reader:
    """Reads fields one by one and notes what is wrong."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def read(self, field: str, parse: Callable[[], T]) -> T | None:
        try:
            return parse()
        except FormatError as error:
            self.problems.append(f"{field}: {error}")
            return None

    def duration(self, field: str, text: str | None) -> Any:
        return None if text is None else self.read(field, lambda: parse_duration(text))

    def compare(self, field: str, rows: Iterable[PolicyCompare] | None) -> Iterable[CompareConfig]:
        for place, row in enumerate(rows or ()):
            made = CompareConfig(source=row.source, keys=row.keys, form=row.form)
            complaint = made.complaint()
            if complaint is None:
                yield made
            else:
                self.problems.append(f"{field}[{place}].{complaint[0]}: {complaint[1]}")

    def all(self, field: str, rows: Iterable[Any] | None, parse: Callable[[Any], T]) -> list[T]:
        found = [
            self.read(f"{field}[{place}]", lambda row=row: parse(row))  # type: ignore[misc]  # bound to this row
            for place, row in enumerate(rows or ())
        ]
        return [one for one in found if one is not None]


def _budget(reader: _Reader, budget: PolicyBudget | None) -> Budget | None:
    if budget is None:
        return None
    per = reader.duration("spec.budget.per", budget.per)
    if per is not None and not per:
        reader.problems.append("spec.budget.per: must be longer than 0 (try 1h)")
    if budget.restarts > MOST_RESTARTS:  # not by the schema: there are policies of before it said so
        told = f"{budget.restarts} are more than are remembered (at most {MOST_RESTARTS}; 0 is no limit)"
        reader.problems.append(f"spec.budget.restarts: {told}")
        return None
    return Budget(restarts=budget.restarts, per=per) if per else None


def _timetable(reader: _Reader, windows: list[PolicyWindow] | None) -> Timetable | None:
    if windows is None:
        return None
    before = len(reader.problems)
    openings = reader.all("spec.windows", windows, lambda row: make_opening(row.cron, row.duration, row.time_zone))
    broken = reader.problems[before:]
    return Timetable(broken=broken[0]) if broken else Timetable(openings=tuple(openings))


def _freeze(reader: _Reader, text: str | None) -> Freeze | None:
    found = read_freeze(text or "")
    if found is not None and found.broken:
        reader.problems.append(f"spec.freeze: {found.broken}; until it is right, nothing is restarted")
    return found


def _depends(
    reader: _Reader, rows: list[str] | None, namespace: str, words: KindWords
) -> tuple[WorkloadId, ...] | None:
    if rows is None:
        return None
    return tuple(reader.all("spec.dependsOn", rows, lambda word: read_dependency(word, namespace, words)))
