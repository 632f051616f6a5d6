"""One evaluation of a workload: snapshot → policy → plan. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from steersman.operators.reload.api.annotations import NOTIFY
from steersman.operators.reload.planning.effective_policy import effective_policy
from steersman.operators.reload.planning.gates import Policy
from steersman.operators.reload.planning.plan import WorkloadPlan, make_plan
from steersman.operators.reload.planning.snapshot import WorkloadSnapshot
from steersman.operators.reload.workloads.workload import workload_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.operators.reload.api.config import ReloadOptions, SourceRef
    from steersman.operators.reload.compat.dialect import Dialect
    from steersman.operators.reload.planning.edges import Edges
    from steersman.operators.reload.planning.hooks import HookRunner
    from steersman.operators.reload.planning.restart_order import RestartCoordinator
    from steersman.operators.reload.sources.digest import Source
    from steersman.operators.reload.sources.digest_keys import Keyring
    from steersman.operators.reload.workloads.workload import Workload


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """A workload as it was read, the policy in force for it, and the plan that follows."""

    snapshot: WorkloadSnapshot
    policy: Policy
    plan: WorkloadPlan

    @property
    def workload(self) -> Workload:
        """The workload, with the template it follows."""
        return self.snapshot.workload

    @property
    def edges(self) -> Edges:
        """The sources it depends on."""
        return self.snapshot.edges

    @property
    def sources(self) -> dict[SourceRef, Source]:
        """The tracked sources that exist."""
        return self.snapshot.sources

    @property
    def keys(self) -> Keyring:
        """The keys of the digests."""
        return self.snapshot.keys


def evaluate(
    snapshot: WorkloadSnapshot,
    options: ReloadOptions,
    *,
    dialects: Sequence[Dialect] = (),
    coordinator: RestartCoordinator | None = None,
    hook: HookRunner | None = None,
) -> Evaluation:
    """What to do about a workload; `coordinator` knows the others, `hook` the answers of the user's function."""
    window = next((window for dialect in dialects if (window := dialect.window(snapshot.workload)) is not None), None)
    policy = effective_policy(snapshot.layers, options, window=window)
    policy = replace(policy, action=policy.action.found_by(snapshot.workload.facts.selector))
    problems = [f"{NOTIFY}: {complaint}" for _, complaint in options.features.unknown_receivers(policy.notify or ())]
    if coordinator is not None:
        problems = [*coordinator.problems(workload_id(snapshot.workload), policy, snapshot.now), *problems]
    if problems:
        snapshot = replace(snapshot, edges=replace(snapshot.edges, problems=(*snapshot.edges.problems, *problems)))
    plan = make_plan(snapshot, policy, dialects=dialects, coordinator=coordinator, hook=hook)
    return Evaluation(snapshot=snapshot, policy=policy, plan=plan)
