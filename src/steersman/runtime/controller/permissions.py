"""The least rights that controllers need: by their tables, and by what their functions ask of `ctx`.

    derived = derive_rules(controllers)
    derived.permissions().manifests("shop-operator", "ops")
    derived.unresolved                    # calls whose kind or verb cannot be read: declare them with `needs`

| row of the table | rights |
|---|---|
| for, owns, watches, reads | `list` and `watch` |
| owns | also `update` on `finalizers` of the owner, for clusters that check who may block its deletion |
| finalizer | `patch` |
| a kind whose status has conditions | `patch` on its `status`, for the condition Stalled; Events for every kind |
| needs | as declared |

What functions ask for is read by `source_reader`. Each cluster has rights of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from steersman.kube.api.types.rbac import PolicyRule
from steersman.runtime.controller.source_reader import ApiCall, requests_of
from steersman.runtime.rbac import EVENTS, Permissions, merge_rules, rule, split_rules
from steersman.runtime.reconcile.plan_errors import has_conditions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from steersman.kube.api.gvk import Kind
    from steersman.runtime.controller.builder import Controller

__all__ = ["DerivedRules", "derive_rules"]


class DerivedRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules that controllers need in one cluster."""

    rules: tuple[PolicyRule, ...]
    cluster_wide: frozenset[tuple[str, str]]  # (group, resource) of kinds without a namespace
    unresolved: tuple[ApiCall, ...] = ()  # what cannot be read from the source and is not declared

    def permissions(self) -> Permissions:
        """The rules by where they can be granted."""
        return split_rules(self.rules, cluster_wide=self.cluster_wide)


def derive_rules(controllers: Sequence[Controller], *, cluster: str = "") -> DerivedRules:
    """What the controllers need in the cluster of that name; "" is the one they run in."""
    rules: list[PolicyRule] = []
    kinds: set[Kind] = set()
    unresolved: list[ApiCall] = []
    for controller in controllers:
        watched = [row for row in controller.watched if row.cluster == cluster]
        kinds |= {row.kind for row in watched}
        rules += [rule(row.kind.qualified, "list", "watch") for row in watched]
        if not cluster:
            rules += [*_by_the_table(controller), *controller.needed]
        for request in _requests(controller):
            if request.cluster != cluster:
                continue
            if request.kinds is not None:
                kinds |= request.kinds
                rules += [rule(_resource(kind, request.subresource), *request.verbs) for kind in request.kinds]
            elif not _is_declared(request, controller):
                unresolved.append(request)
    cluster_wide = {(kind.group, kind.plural) for kind in kinds if not kind.namespaced}
    if any(controller.kind is not None and not controller.kind.namespaced for controller in controllers):
        cluster_wide.add(("", "events"))  # those of objects without a namespace are in the namespace default
    return DerivedRules(
        rules=tuple(merge_rules(rules)),
        cluster_wide=frozenset(cluster_wide),
        unresolved=tuple(dict.fromkeys(unresolved)),
    )


def _by_the_table(controller: Controller) -> Iterator[PolicyRule]:
    """What the runtime itself writes on the objects that a controller is for."""
    kind = controller.kind
    if kind is None:
        return
    yield EVENTS
    if controller.finalizers:
        yield rule(kind.qualified, "patch")
    if has_conditions(controller.target):
        yield rule(_resource(kind, "status"), "patch")
    if controller.owned_kinds:
        yield rule(_resource(kind, "finalizers"), "update")


def _requests(controller: Controller) -> Iterator[ApiCall]:
    known = [row.kind for row in controller.watched]
    handlers = [controller.reconcile]
    handlers += [row.cleanup for row in controller.finalizers]
    handlers += [row.function for row in controller.background]
    handlers += [row.handler for row in controller.field_handlers]
    for function in handlers:
        yield from requests_of(function, controller.kind, known)
    if controller.missing_handler is not None:
        yield from requests_of(controller.missing_handler, None, known)


def _is_declared(request: ApiCall, controller: Controller) -> bool:
    """Whether a rule that the author declared has the verbs of a call whose kind cannot be read."""
    declared = {verb for row in controller.needed for verb in row.verbs or ()}
    return bool(declared) and ("*" in declared or set(request.verbs) <= declared)


def _resource(kind: Kind, subresource: str) -> str:
    return f"{kind.qualified}/{subresource}" if subresource else kind.qualified
