"""The least rights that the operator needs with a configuration. Pure.

    webhook              none to workloads, since nothing is restarted
    otherwise            list and watch workloads of each kind, patch them; list and watch ConfigMaps
    secrets              list and watch Secrets
    secretProvider…      list and watch what the secrets store CSI driver has mounted; as secrets, if not said
    …Names               the same for these names only, since they are asked for one by one
    all namespaces       list and watch Namespaces, for what is written on them
    a budget             read one source when it is used up, to name who writes it
    wave's dialect       read sources of a workload, since its hash is over values
    Jobs                 read, create and delete them: they are recreated
    CronJobs, to run     read them, create Jobs
    Reloader's dialect   read Rollouts and other kinds: their containers are patched all at once
    policies             list and watch them, write their status
    pods                 list pods, to say why a rollout takes long
    actions: [http]      find the pods to call
    actions: [evict]     find the pods, and evict them
    rivals               list and watch Leases, to see another controller that leads
    rivals, pods         in all namespaces: ask what their service accounts may do, to see how far they reach
    audit                list pods, read when sources changed
    digestSecret         in the operator's own namespace: read that Secret, and create it

Kinds of others' CustomResourceDefinitions are granted unless the configuration lists kinds, because the operator takes
them up where they are installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.operators.reload.api.config import ReloadConfig, SourceKind
from steersman.operators.reload.compat.lease_conflict import HOLDER_RULES
from steersman.operators.reload.compat.lease_conflict import RULES as LEASE_RULES
from steersman.operators.reload.controllers.digest_key_store import rules as key_rules
from steersman.operators.reload.sources.csi import ProviderClass, ProviderStatus
from steersman.operators.reload.workloads.kinds import BUILT_IN, RECREATE, RUN, kind_rules
from steersman.runtime.rbac import rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.kube.api.gvk import Kind
    from steersman.kube.api.types.rbac import PolicyRule
    from steersman.operators.reload.api.config import Features, ReloadOptions
    from steersman.operators.reload.workloads.kinds import KindRule


def rules(config: ReloadConfig | None) -> Sequence[PolicyRule]:
    """The rules for the section `reload:`."""
    options = (config or ReloadConfig()).options()
    made: list[PolicyRule] = []
    for handled in () if options.webhook else kind_rules(options.kinds, [built_in.kind for built_in in BUILT_IN]):
        made.append(rule(_resource(handled.kind), "list", "watch", "patch", *_further_verbs(handled, options)))
        if handled.restart == RUN:
            made.append(rule("jobs.batch", "create"))
        if handled.kind.kind == "Rollout":  # it may use a Deployment's template
            made.append(rule("deployments.apps", "list", "watch"))
    read = ["get"] if options.budget.restarts or "wave" in options.dialects else []
    if options.watch_configmaps:
        made.append(rule("configmaps", "list", "watch", *read, names=_names(options, SourceKind.CONFIGMAP)))
    if options.watch_secrets:
        made.append(rule("secrets", "list", "watch", *read, names=_names(options, SourceKind.SECRET)))
    if options.watch_secrets if options.watch_providers is None else options.watch_providers:
        mounted = (ProviderStatus.KIND, ProviderClass.KIND)
        made += [rule(_resource(kind), "list", "watch") for kind in mounted]
    if options.namespaces is None and options.watch_namespaces:
        made.append(rule("namespaces", "list", "watch"))
    if options.policies:
        for kind in ("reloadpolicies", *(["clusterreloadpolicies"] if options.namespaces is None else [])):
            made += [
                rule(f"{kind}.steersman.dev", "list", "watch"),
                rule(f"{kind}.steersman.dev/status", "patch"),
            ]
    if config is None or config.rivals is None or config.rivals:
        made += LEASE_RULES
        if options.namespaces is None and options.ask_pods and (config is None or config.rival_namespaces is None):
            made += HOLDER_RULES
    return [*made, *_for_features(options.features, ask_pods=options.ask_pods)]


def _further_verbs(handled: KindRule, options: ReloadOptions) -> list[str]:
    if handled.restart == RECREATE:
        return ["get", "create", "delete"]
    writes_containers = "reloader" in options.dialects and handled.kind.group not in ("apps", "batch")
    return ["get"] if handled.restart == RUN or writes_containers else []


def own_rules(config: ReloadConfig | None) -> Sequence[PolicyRule]:
    """The rules in the namespace of the operator itself."""
    place = (config or ReloadConfig()).options().digest_secret
    return [] if place is None else key_rules(place[1])


def _for_features(on: Features, *, ask_pods: bool) -> list[PolicyRule]:
    made: list[PolicyRule] = []
    if ask_pods or on.actions & {"http", "evict"} or on.audit is not None:
        made.append(rule("pods", "list"))
    if "evict" in on.actions:
        made.append(rule("pods/eviction", "create"))
    return made


def _names(options: ReloadOptions, kind: SourceKind) -> Sequence[str]:
    return sorted(options.names.get(kind, ()))


def _resource(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural
