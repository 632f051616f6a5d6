"""ReloadPolicy and ClusterReloadPolicy: settings for many workloads without annotating them. Pure.

A policy sets for the workloads it selects what their own annotations could set. Several policies may select the same
workload: per field the one with the highest `priority` decides, among equals the first by name. The fields are those of
the table `annotations.SETTINGS`. An invalid field is ignored and named in the condition Accepted, and the rest of the
policy applies; windows and freezes that are invalid hold restarts back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import msgspec

from steersman.crd.markers import Column, Ge, Le, ListMap
from steersman.kube.api.crd_options import PrinterColumn
from steersman.kube.api.objects import LabelSelector, Resource, Struct
from steersman.kube.api.selectors import Selector
from steersman.operators.reload.api.annotations import (
    NO_KIND_ALIASES,
    SETTINGS,
    KindAliases,
    LayerSettings,
    SettingsReader,
)
from steersman.runtime.reconcile.conditions import Condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.operators.reload.api.config import WorkloadId
    from steersman.operators.reload.workloads.workload import Workload

T = TypeVar("T")


class PolicyBudget(Struct):
    """How often one workload may be restarted."""

    restarts: Annotated[int, Ge(0)] = 5
    """How many restarts a workload may have within `per`, at most 200. 0 means no limit."""
    per: str = "1h"
    """The period in which restarts are counted, such as `1h`."""


class PolicyWindow(Struct):
    """When restarts are allowed."""

    cron: str
    """When the window opens, in five cron fields: minute, hour, day, month, weekday."""
    duration: str
    """How long the window stays open, such as `2h`."""
    time_zone: str = "UTC"
    """Time zone of `cron`, such as `Europe/Berlin`."""


class PolicyGuard(Struct):
    """How many workloads one change may restart without approval."""

    workloads: Annotated[int, Ge(0)] = 0
    """How many workloads one change may restart without approval. 0 means no limit."""
    percent: Annotated[float, Ge(0), Le(100)] = 0
    """Which share of the workloads of a namespace one change may restart without approval, in percent. 0 means no
    limit."""


class PolicySpec(Struct):
    """Settings for the selected workloads; what is left out is decided by an outer layer."""

    selector: LabelSelector | None = None
    """Labels of the workloads that the policy applies to. All workloads when absent."""
    priority: int = 0
    """Where several policies set the same field for a workload, the highest priority decides; among equals the first by
    name."""
    quiet_period: str | None = None
    """How long the sources must be unchanged before a restart, such as `5s`."""
    max_delay: str | None = None
    """The longest time between the first change and the restart, however often sources change, such as `30s`."""
    budget: PolicyBudget | None = None
    """How often one workload may be restarted. Further restarts wait until the oldest is old enough."""
    windows: list[PolicyWindow] | None = None
    """Times when restarts are allowed; one window must be open. Restarts are always allowed when absent or empty."""
    wave: int | None = None
    """Workloads of lower waves restart first; the next wave waits until they are available. 0 when no layer sets it."""
    depends_on: list[str] | None = None
    """Workloads of the same namespace that must be done first, such as `deployment/db`."""
    order_with: list[str] | None = None
    """Namespaces whose waves, failures and counts apply to the same change, if they name this namespace too; `*` is all
    of them."""
    max_concurrent: Annotated[int, Ge(0)] | None = None
    """How many rollouts may be under way at once in a namespace. 0 means no limit."""
    on_failure: Literal["halt", "continue"] | None = None
    """What a failed rollout means for other workloads that wait for the same change: `halt` stops them, `continue` does
    not."""
    rollout_deadline: str | None = None
    """After which time a rollout that is not available counts as failed, such as `10m`."""
    guard: PolicyGuard | None = None
    """How many workloads one change may restart before it needs approval."""
    freeze: str | None = None
    """`true` holds all restarts back; `until=2006-01-02T15:04:05Z` does so until that time."""
    action: str | None = None
    """What is done when sources have changed: `restart`, `none`, `evict`, or `http port=8080 path=/-/reload`."""
    ignore: list[str] | None = None
    """Sources or keys whose changes do not count, such as `configmap/app#comment`; names and keys may be globs. Entries
    of all layers add up."""
    notify: list[str] | None = None
    """Receivers of notifications, by their names in the configuration. All of them when absent; none for an empty list.
    """


class ClusterPolicySpec(PolicySpec):
    """The same, and settings for the cluster as a whole."""

    max_concurrent_in_cluster: Annotated[int, Ge(0)] | None = None
    """How many rollouts may be under way at once in all namespaces together. 0 means no limit."""


class PolicyStatus(Struct):
    """The observed state of a policy."""

    observed_generation: int = 0
    """`metadata.generation` of the spec that this status describes."""
    workloads: Annotated[int, Column("Workloads")] = 0
    """How many workloads the policy selects."""
    conditions: Annotated[list[Condition] | None, ListMap("type")] = None
    """`Accepted` is false when a field is invalid, and names it. `Overlapping` names policies that set the same fields.
    """


_FIELDS: Final = {field.name: field.encode_name for field in msgspec.structs.fields(ClusterPolicySpec)}
ACCEPTED: Final = PrinterColumn(name="Accepted", json_path='.status.conditions[?(@.type=="Accepted")].status')


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
    """Settings for workloads of the policy's namespace. A field that is absent is left to the next layer: the
    namespace's annotations, a ClusterReloadPolicy, the configuration."""
    status: PolicyStatus = PolicyStatus()
    """What the operator observed."""


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
    """Settings for workloads of all namespaces. A field that is absent is left to the configuration."""
    status: PolicyStatus = PolicyStatus()
    """What the operator observed."""


class ParsedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The selector and the settings of a policy, parsed."""

    selector: Selector
    settings: LayerSettings
    problems: tuple[str, ...] = ()  # each begins with the field it is about

    def selects(self, workload: Workload) -> bool:
        """Whether it applies to this workload."""
        return self.selector.matches(workload.labels)


def read_policy(policy: ReloadPolicy | ClusterReloadPolicy, aliases: KindAliases = NO_KIND_ALIASES) -> ParsedPolicy:
    """Parse a policy; a dependency in a ClusterReloadPolicy is one in the namespace of each workload."""
    reader, spec = SettingsReader(policy.namespace, aliases), policy.spec
    selector = reader.read(
        "spec.selector", spec.selector or LabelSelector(), lambda labels, _: Selector.from_wire(labels)
    )
    found: dict[str, Any] = {}
    for setting in SETTINGS:
        value = getattr(spec, setting.policy, None) if setting.policy else None
        if value is not None and setting.parse_policy is not None:
            value = reader.read(f"spec.{_FIELDS[setting.policy]}", value, setting.parse_policy)
        if value is not None:
            found[setting.field] = value
    return ParsedPolicy(
        selector=Selector.from_wire(None) if selector is None else selector,  # invalid: selects nothing, never all
        settings=LayerSettings(**found),
        problems=tuple(reader.problems),
    )


def ranked(policies: Iterable[T]) -> Sequence[T]:
    """Policies of one kind in the order in which they decide."""
    return sorted(policies, key=lambda policy: (-_spec(policy).priority, _name(policy)))


def self_references(parsed: ParsedPolicy, workloads: Iterable[tuple[WorkloadId, Workload]]) -> list[str]:
    """Dependencies on workloads that the policy selects itself: such a workload would wait for itself."""
    named = {(who.kind, who.name): place for place, who in enumerate(parsed.settings.depends or ())}
    found = {
        f"spec.dependsOn[{named[me.kind, me.name]}]: the policy selects {me.title} itself, which cannot wait for itself"
        for me, workload in workloads
        if (me.kind, me.name) in named and parsed.selects(workload)
    }
    return sorted(found)


def _spec(policy: Any) -> PolicySpec:
    spec: PolicySpec = policy.spec
    return spec


def _name(policy: Any) -> str:
    name: str = policy.metadata.name
    return name
