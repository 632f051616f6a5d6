"""The controllers of the policies: what became of each, as status. They decide nothing about workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.operators.reload.policies import ranked, self_references
from steersman.operators.reload.workloads import workload_class, workload_id
from steersman.runtime.conditions import condition, with_conditions
from steersman.runtime.controller import Controller
from steersman.runtime.predicates import created, deleted, generation, labels
from steersman.runtime.result import Result, done

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.kube.resources import ObjectRef
    from steersman.operators.reload.keeper import WorkloadKeeper
    from steersman.operators.reload.policies import Said
    from steersman.operators.reload.policybook import Policy, PolicyBook
    from steersman.operators.reload.workloads import Workload
    from steersman.runtime.conditions import Condition
    from steersman.runtime.context import Context

__all__ = ["policy_controllers"]

_SHOWN = 5  # policies or problems named in a message


def policy_controllers(book: PolicyBook, keepers: Sequence[WorkloadKeeper]) -> list[Controller]:
    """One per kind of policy; while the cluster does not serve it there is nothing to do."""
    return [_controller(PolicyKeeper(kind, book, keepers)) for kind in book.kinds]


def _controller(keeper: PolicyKeeper) -> Controller:
    made = (
        Controller(keeper.kind, keeper.reconcile, f"reload-{keeper.kind.KIND.plural}")
        .select(optional=True)
        .when(generation)
        .watches(keeper.kind, to=keeper.neighbours, when=generation, optional=True)
    )
    for one in keeper.keepers:
        target, where = workload_class(one.rule.kind), one.options.namespaces
        made = made.watches(
            target,
            to=keeper.selecting,
            when=created | deleted | labels,
            namespaces=where,
            transform=one.transform,
            optional=not one.rule.installed,
        )
    if keeper.kind.KIND.namespaced and keeper.keepers and keeper.keepers[0].options.namespaces is not None:
        made = made.within(keeper.keepers[0].options.namespaces)
    return made


class PolicyKeeper:
    """Keeps the status of the policies of one kind true."""

    def __init__(self, kind: type[Policy], book: PolicyBook, keepers: Sequence[WorkloadKeeper]) -> None:
        self.kind = kind
        self.keepers = tuple(keepers)
        self._book = book

    def neighbours(self, policy: Policy, cache: Any) -> Iterable[ObjectRef]:
        """The policies that one may overlap with."""
        return [other.ref for other in self._peers(policy, cache)]

    def selecting(self, workload: Workload, cache: Any) -> Iterable[ObjectRef]:
        """The policies of whom a workload may be one."""
        shelf = cache[self.kind]
        found = shelf.list(namespace=workload.namespace) if self.kind.KIND.namespaced else shelf.list()
        return [policy.ref for policy in found]

    async def reconcile(self, ctx: Context, policy: Policy) -> Result:
        """Say what became of it."""
        said = self._book.said(policy)
        everyone = [
            (workload_id(one), one)
            for keeper in self.keepers
            for one in self._workloads(ctx.cache[workload_class(keeper.rule.kind)], policy)
        ]
        selected = [(me, one) for me, one in everyone if said.selects(one)]
        problems = [*said.problems, *self_references(said, selected), *self._unknown_receivers(said)]
        overlaps = self._overlaps(policy, [one for _, one in selected], ctx.cache)
        await ctx.status(
            policy,
            observed_generation=policy.metadata.generation,
            workloads=len(selected),
            conditions=with_conditions(
                policy.status.conditions,
                _accepted(problems, policy.metadata.generation),
                _overlapping(overlaps, policy.metadata.generation),
                now=ctx.clock.time(),
            ),
        )
        return done

    def _unknown_receivers(self, said: Said) -> Iterable[str]:
        """Receivers that the configuration does not have; all keepers have the same one."""
        for keeper in self.keepers[:1]:
            for place, complaint in keeper.options.features.strangers(said.settings.notify or ()):
                yield f"spec.notify[{place}]: {complaint}"

    def _workloads(self, shelf: Any, policy: Policy) -> Sequence[Workload]:
        found: Sequence[Workload] = shelf.list(namespace=policy.namespace) if policy.namespace else shelf.list()
        return found

    def _peers(self, policy: Policy, cache: Any) -> Sequence[Policy]:
        shelf = cache[self.kind]
        return ranked(shelf.list(namespace=policy.namespace) if self.kind.KIND.namespaced else shelf.list())

    def _overlaps(self, policy: Policy, selected: Sequence[Workload], cache: Any) -> list[str]:
        """The other policies of its kind that select one of the same workloads, in the order in which they decide."""
        return [
            other.name
            for other in self._peers(policy, cache)
            if other.name != policy.name and any(map(self._book.said(other).selects, selected))
        ]


def _accepted(problems: Sequence[str], seen: int) -> Condition:
    if not problems:
        return condition("Accepted", True, "Accepted", "every field is in force", generation=seen)
    itself = all(problem.startswith("spec.dependsOn") and "itself" in problem for problem in problems)
    reason = "SelfReference" if itself else "InvalidField"
    return condition("Accepted", False, reason, "; ".join(problems[:_SHOWN]), generation=seen)


def _overlapping(overlaps: Sequence[str], seen: int) -> Condition:
    if not overlaps:
        return condition("Overlapping", False, "Alone", "", generation=seen)
    told = ", ".join(overlaps[:_SHOWN]) + (", …" if len(overlaps) > _SHOWN else "")
    message = f"shares workloads with {told}; per field the highest priority decides, then the first name"
    return condition("Overlapping", True, "SharedWorkloads", message, generation=seen)
