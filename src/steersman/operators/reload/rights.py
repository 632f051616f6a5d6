"""The least rights that the operator needs with a configuration. Pure.

    always               list and watch workloads of each kind, patch them; list and watch ConfigMaps
    secrets              list and watch Secrets
    secretProvider…      list and watch what the secrets store CSI driver has mounted; as secrets, if not said
    …Names               the same for these names only, since they are asked for one by one
    all namespaces       list and watch Namespaces, for what is written on them
    a budget             read one source when it is used up, to name who writes it
    wave's dialect       read sources of a workload, since its hash is over values
    Jobs                 read, create and delete them: they are recreated
    policies             list and watch them, write their status
    pods                 list pods, to say why a rollout takes long
    actions: [http]      find the pods to call
    actions: [evict]     find the pods, and evict them
    rivals               list and watch Leases, to see another controller that leads
    rivals, pods         in all namespaces: ask what their service accounts may do, to see how far they reach
    audit                list pods, read when sources changed

Kinds of others' CustomResourceDefinitions are granted unless the configuration lists kinds, because the operator takes
them up where they are installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from steersman.kube.types.rbac import PolicyRule
from steersman.operators.reload.holders import RULES as HOLDERS
from steersman.operators.reload.kinds import BUILT_IN, RECREATE, kind_rules
from steersman.operators.reload.providers import ProviderClass, ProviderStatus
from steersman.operators.reload.rivals import RULES as RIVALS
from steersman.operators.reload.types import ReloadConfig, SourceKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.operators.reload.features import Features

__all__ = ["rules"]


def rules(config: ReloadConfig | None) -> Sequence[PolicyRule]:
    """The rules for the section `reload:`."""
    options = (config or ReloadConfig()).options()
    made: list[PolicyRule] = []
    for rule in kind_rules(options.kinds, [one.kind for one in BUILT_IN]):
        further = ["get", "create", "delete"] if rule.restart == RECREATE else []
        made.append(_rule(rule.kind.group, rule.kind.plural, "list", "watch", "patch", *further))
        if rule.kind.kind == "Rollout":  # it may use a Deployment's template
            made.append(_rule("apps", "deployments", "list", "watch"))
    read = ["get"] if options.budget.restarts or "wave" in options.dialects else []
    if options.watch_configmaps:
        made.append(_named(_rule("", "configmaps", "list", "watch", *read), options.names.get(SourceKind.CONFIGMAP)))
    if options.watch_secrets:
        made.append(_named(_rule("", "secrets", "list", "watch", *read), options.names.get(SourceKind.SECRET)))
    if options.watch_secrets if options.watch_providers is None else options.watch_providers:
        mounted = (ProviderStatus.KIND, ProviderClass.KIND)
        made += [_rule(one.group, one.plural, "list", "watch") for one in mounted]
    if options.namespaces is None and options.watch_namespaces:
        made.append(_rule("", "namespaces", "list", "watch"))
    if options.policies:
        for kind in ("reloadpolicies", *(["clusterreloadpolicies"] if options.namespaces is None else [])):
            made += [_rule("steersman.dev", kind, "list", "watch"), _rule("steersman.dev", f"{kind}/status", "patch")]
    if config is None or config.rivals is None or config.rivals:
        made += RIVALS
        if options.namespaces is None and options.ask_pods and (config is None or config.rival_namespaces is None):
            made += HOLDERS
    return [*made, *_for_features(options.features, ask_pods=options.ask_pods)]


def _for_features(on: Features, *, ask_pods: bool) -> list[PolicyRule]:
    made: list[PolicyRule] = []
    if ask_pods or on.actions & {"http", "evict"} or on.audit is not None:
        made.append(_rule("", "pods", "list"))
    if "evict" in on.actions:
        made.append(_rule("", "pods/eviction", "create"))
    return made


def _named(rule: PolicyRule, names: frozenset[str] | None) -> PolicyRule:
    return rule if names is None else replace(rule, resource_names=sorted(names))


def _rule(group: str, resource: str, *verbs: str) -> PolicyRule:
    return PolicyRule(api_groups=[group], resources=[resource], verbs=list(verbs))
