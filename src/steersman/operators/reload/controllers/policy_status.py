"""The status of policies: whether each is accepted, how many workloads it selects, and which others overlap.

These controllers decide nothing about workloads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.operators.reload.api.policy import ranked, self_references
from steersman.operators.reload.workloads.workload import workload_class, workload_id
from steersman.runtime.controller.builder import Controller
from steersman.runtime.controller.predicates import created, deleted, generation, labels
from steersman.runtime.controller.result import Result, done
from steersman.runtime.reconcile.conditions import new_condition, set_conditions
from steersman.text import some_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.reload.api.policy import ParsedPolicy
    from steersman.operators.reload.controllers.reconciler import WorkloadReconciler
    from steersman.operators.reload.planning.effective_policy import PolicyIndex, PolicyKind
    from steersman.operators.reload.workloads.workload import Workload
    from steersman.runtime.reconcile.conditions import Condition
    from steersman.runtime.reconcile.context import Context

_SHOWN = 5  # policies or problems named in a message


def policy_controllers(index: PolicyIndex, reconcilers: Sequence[WorkloadReconciler]) -> list[Controller]:
    """One per kind of policy; while the cluster does not serve it there is nothing to do."""
    return [_controller(PolicyReconciler(kind, index, reconcilers)) for kind in index.kinds]


def _controller(reconciler: PolicyReconciler) -> Controller:
    made = (
        Controller(reconciler.kind, reconciler.reconcile, f"reload-{reconciler.kind.KIND.plural}")
        .select(optional=True)
        .when(generation)
        .watches(reconciler.kind, to=reconciler.neighbours, when=generation, optional=True)
        .with_options(shared_objects=True)
    )
    for workloads in reconciler.reconcilers:
        target, where = workload_class(workloads.rule.kind), workloads.options.namespaces
        made = made.watches(
            target,
            to=reconciler.selecting,
            when=created | deleted | labels,
            namespaces=where,
            transform=workloads.transform,
            optional=not workloads.rule.installed,
        )
    if (
        reconciler.kind.KIND.namespaced
        and reconciler.reconcilers
        and reconciler.reconcilers[0].options.namespaces is not None
    ):
        made = made.within(reconciler.reconcilers[0].options.namespaces)
    return made


class PolicyReconciler:
    """Writes the status of the policies of one kind."""

    def __init__(self, kind: type[PolicyKind], index: PolicyIndex, reconcilers: Sequence[WorkloadReconciler]) -> None:
        self.kind = kind
        self.reconcilers = tuple(reconcilers)
        self._index = index

    def neighbours(self, policy: PolicyKind, cache: Any) -> Iterable[NamespacedName]:
        """The policies that may overlap with this one."""
        return [other.ref for other in self._peers(policy, cache)]

    def selecting(self, workload: Workload, cache: Any) -> Iterable[NamespacedName]:
        """The policies that may select a workload."""
        objects = cache[self.kind]
        found = objects.list(namespace=workload.namespace) if self.kind.KIND.namespaced else objects.list()
        return [policy.ref for policy in found]

    async def reconcile(self, ctx: Context, policy: PolicyKind) -> Result:
        """Write the status of one policy."""
        parsed = self._index.parsed(policy)
        everyone = [
            (workload_id(workload), workload)
            for reconciler in self.reconcilers
            for workload in self._workloads(ctx.cache[workload_class(reconciler.rule.kind)], policy)
        ]
        selected = [(me, workload) for me, workload in everyone if parsed.selects(workload)]
        problems = [*parsed.problems, *self_references(parsed, selected), *self._unknown_receivers(parsed)]
        overlaps = self._overlaps(policy, [workload for _, workload in selected], ctx.cache)
        await ctx.status(
            policy,
            observed_generation=policy.metadata.generation,
            workloads=len(selected),
            conditions=set_conditions(
                policy.status.conditions,
                _accepted(problems, policy.metadata.generation),
                _overlapping(overlaps, policy.metadata.generation),
                now=ctx.clock.time(),
            ),
        )
        return done

    def _unknown_receivers(self, parsed: ParsedPolicy) -> Iterable[str]:
        """Receivers that the configuration does not have; all reconcilers have the same one."""
        for reconciler in self.reconcilers[:1]:
            for place, complaint in reconciler.options.features.unknown_receivers(parsed.settings.notify or ()):
                yield f"spec.notify[{place}]: {complaint}"

    def _workloads(self, objects: Any, policy: PolicyKind) -> Sequence[Workload]:
        found: Sequence[Workload] = objects.list(namespace=policy.namespace) if policy.namespace else objects.list()
        return found

    def _peers(self, policy: PolicyKind, cache: Any) -> Sequence[PolicyKind]:
        objects = cache[self.kind]
        return ranked(objects.list(namespace=policy.namespace) if self.kind.KIND.namespaced else objects.list())

    def _overlaps(self, policy: PolicyKind, selected: Sequence[Workload], cache: Any) -> list[str]:
        """The other policies of its kind that select one of the same workloads, in the order in which they decide."""
        return [
            other.name
            for other in self._peers(policy, cache)
            if other.name != policy.name and any(map(self._index.parsed(other).selects, selected))
        ]


def _accepted(problems: Sequence[str], seen: int) -> Condition:
    if not problems:
        return new_condition("Accepted", True, "Accepted", "every field is in force", generation=seen)
    itself = all(problem.startswith("spec.dependsOn") and "itself" in problem for problem in problems)
    reason = "SelfReference" if itself else "InvalidField"
    return new_condition("Accepted", False, reason, "; ".join(problems[:_SHOWN]), generation=seen)


def _overlapping(overlaps: Sequence[str], seen: int) -> Condition:
    if not overlaps:
        return new_condition("Overlapping", False, "Alone", "", generation=seen)
    others = some_of(overlaps, _SHOWN)
    message = f"shares workloads with {others}; per field the highest priority decides, then the first name"
    return new_condition("Overlapping", True, "SharedWorkloads", message, generation=seen)
