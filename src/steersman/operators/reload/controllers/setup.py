"""The wiring: one controller per kind of workload, what it watches, and the tasks beside it.

What happens to a workload is in `reconciler`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from steersman.operators import Operator
from steersman.operators.reload.api.annotations import NATIVE_ANNOTATIONS
from steersman.operators.reload.api.config import ReloadConfig, ReloadOptions, SourceKind
from steersman.operators.reload.api.policy import ClusterReloadPolicy, ReloadPolicy
from steersman.operators.reload.compat.dialects import dialects_for
from steersman.operators.reload.compat.lease_conflict import coexistence_bundle
from steersman.operators.reload.controllers.change_tracker import source_matters
from steersman.operators.reload.controllers.digest_key_store import KeyStore
from steersman.operators.reload.controllers.metrics import ReloadMetrics
from steersman.operators.reload.controllers.policy_status import policy_controllers
from steersman.operators.reload.controllers.rbac import own_rules as own_rights
from steersman.operators.reload.controllers.rbac import rules as least_rights
from steersman.operators.reload.controllers.reconciler import SharedContext, WorkloadReconciler, kept_annotations
from steersman.operators.reload.controllers.restart_guard import RestartGuard
from steersman.operators.reload.controllers.unwatched_workloads import refresh_users
from steersman.operators.reload.inspect.live_status import tables_of, view_of
from steersman.operators.reload.planning.effective_policy import PolicyIndex
from steersman.operators.reload.planning.hooks import HookRunner
from steersman.operators.reload.planning.snapshot import DEPLOYMENT, NamespaceSettings
from steersman.operators.reload.sources.csi import BY_CLASS, ProviderClass, ProviderStatus, by_class
from steersman.operators.reload.sources.digest import ConfigMapSource, SecretSource
from steersman.operators.reload.workloads.kinds import BUILT_IN, kind_aliases, kind_rules
from steersman.operators.reload.workloads.workload import workload_class, workload_transform
from steersman.runtime.controller.builder import Controller
from steersman.runtime.controller.predicates import Predicate, annotation, generation, labels
from steersman.runtime.manager.operator_bundle import OperatorBundle, Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client import CollectorRegistry

    from steersman.kube.api.gvk import Kind
    from steersman.operators.reload.compat.dialect import Dialect
    from steersman.runtime.manager.operator_bundle import RuntimeEnvironment

NO_HELM_RELEASES: Final = "type!=helm.sh/release.v1"  # the largest Secrets of a cluster, and no pod reads them
CONCURRENCY: Final = 64  # patches in flight: a source that hundreds of workloads use should not take minutes


def operator(
    config: ReloadConfig | None = None,
    *,
    served: Iterable[Kind] | None = None,
    dialects: Sequence[Dialect] | None = None,
    registry: CollectorRegistry | None = None,
    shared: SharedContext | None = None,
) -> list[Controller]:
    """The controllers that the section `reload:` asks for; `served` are the kinds the cluster has.

    `dialects` replace those that the section names.
    """
    options = (config or ReloadConfig()).options()
    chosen = dialects_for(options) if dialects is None else dialects
    return controllers(options, served=served, dialects=chosen, registry=registry, shared=shared)


def controllers(
    options: ReloadOptions,
    *,
    served: Iterable[Kind] | None = None,
    dialects: Sequence[Dialect] = (),
    registry: CollectorRegistry | None = None,
    shared: SharedContext | None = None,
) -> list[Controller]:
    """One controller per kind of workload. Where `served` is known, kinds that are missing join when installed."""
    if options.webhook:  # nothing is restarted, so no workload is read
        return []
    shared = shared or SharedContext()
    rollouts = shared.coordinator.rollouts
    rules = kind_rules(options.kinds, served, later=True)
    shared.metrics = ReloadMetrics((rule.kind.kind for rule in rules), registry)
    shared.metrics.under_way.set_function(lambda: sum(1 for _ in rollouts.open()))
    shared.policies = PolicyIndex(
        served if options.policies else None,
        namespaced_only=options.namespaces is not None,
        later=True,
        words=kind_aliases(options.kinds),
    )
    mounted = options.watch_providers
    if mounted is None:
        mounted = options.watch_secrets and served is not None
    reconcilers = [WorkloadReconciler(rule, options, dialects, shared, providers=mounted) for rule in rules]
    return [*map(_controller, reconcilers), *policy_controllers(shared.policies, reconcilers)]


def _controller(reconciler: WorkloadReconciler) -> Controller:
    rule, options = reconciler.rule, reconciler.options
    kept = kept_annotations(reconciler.dialects)
    where: dict[str, Any] = {"namespaces": options.namespaces}
    data: dict[str, Any] = {
        "to": reconciler.users_of,
        "when": Predicate("data", source_matters),
        "observe": reconciler.tracker.observe_source,
        "on_enqueue": reconciler.mark_users,
    }
    selected = {"transform": reconciler.source_transform, "label_selector": options.source_selector}
    sources = where | data | selected | {"after": reconciler.delay_of}

    made = (
        Controller(workload_class(rule.kind), reconciler.reconcile, f"reload-{rule.kind.plural}")
        .select(**where, transform=reconciler.transform, optional=not rule.installed)
        .observe(reconciler.observe_workload)
        .when(Predicate("what it uses", reconciler.tracker.workload_matters))
        .watches_channel(reconciler.requests)
        .on_missing(reconciler.gone)
        .with_options(concurrency=CONCURRENCY, shared_objects=True)
    )
    if options.watch_configmaps:
        made = made.watches(ConfigMapSource, by_name=options.configmaps_by_name, **sources)
    if options.watch_secrets:
        by_name = options.secrets_by_name
        made = made.watches(SecretSource, field_selector=NO_HELM_RELEASES, by_name=by_name, **sources)
    if SourceKind.PROVIDER_CLASS in reconciler.source_kinds:
        made = made.watches(
            ProviderStatus, transform=reconciler.status_transform, optional=True, **where, **data
        ).index(ProviderStatus, BY_CLASS, by_class)
        made = made.watches(
            ProviderClass,
            to=reconciler.users_of,
            when=annotation(*sorted(kept)),
            on_enqueue=reconciler.mark_users,
            transform=reconciler.source_transform,
            optional=True,
            **where,
        )
    if options.namespaces is None and options.watch_namespaces:
        asked = annotation(*NATIVE_ANNOTATIONS)
        made = made.watches(
            NamespaceSettings,
            to=reconciler.members_of,
            when=asked if options.namespace_selector is None else asked | labels,
        )
    for kind in reconciler.shared.policies.kinds:
        made = made.watches(
            kind,
            to=reconciler.members_of if kind.KIND.namespaced else reconciler.everyone,
            when=generation,
            namespaces=options.namespaces if kind.KIND.namespaced else None,
            optional=True,
        )
    if rule.kind.kind == "Rollout":  # it may use a Deployment's template
        followed = workload_transform(BUILT_IN[0], kept, kind_aliases(options.kinds))
        made = made.watches(
            DEPLOYMENT, to=reconciler.users_of, on_enqueue=reconciler.mark_users, **where, transform=followed
        )
    return made


def parts(
    config: ReloadConfig | None,
    around: RuntimeEnvironment,
    *,
    dialects: Sequence[Dialect] | None = None,
    shared: SharedContext | None = None,
    registry: CollectorRegistry | None = None,
) -> OperatorBundle:
    """Everything that runs for the section `reload:`; profiles bring dialects and a shared context of their own."""
    config = config or ReloadConfig()
    shared = shared or SharedContext(guard=RestartGuard(shadow=around.shadow))
    shared.keys = _key_store(config, around, keyed=dialects is None)
    shared.guard.wait_for(shared.keys.ready)
    made = operator(config, served=around.served, dialects=dialects, registry=registry, shared=shared)
    coexistence = coexistence_bundle(config, around, shared, registry=registry)
    tasks = _tasks(config.options(), around, shared, registry)
    return OperatorBundle(
        controllers=made,
        tasks=(*coexistence.tasks, *tasks),
        checks=coexistence.checks,
        routes=coexistence.routes,
        tables=lambda _cluster: tables_of(view_of(shared.coordinator, around.clock.time())),
    )


def _tasks(
    options: ReloadOptions, around: RuntimeEnvironment, shared: SharedContext, registry: CollectorRegistry | None
) -> list[Task]:
    """The key store, the notifier and the auditor, as the configuration asks; the hook is loaded."""
    from steersman.operators.reload.inspect.audit import Auditor  # `inspect` is above the controllers
    from steersman.operators.reload.notify.sender import NotificationSender
    from steersman.operators.reload.notify.source_webhook import SourceWebhook

    # In every process: one that stands by knows what its leader knows.
    users = Task(name="reload-users", run=partial(refresh_users, shared.pending), leader_only=False)
    if options.webhook:
        return [Task(name="reload-webhook", run=SourceWebhook(options, around.clock).run)]
    features, tasks = options.features, [users]
    if (
        shared.keys.in_use
    ):  # in every process: all members of a share act, and one that stands by is ready when it leads
        tasks.append(Task(name="reload-digest-keys", run=shared.keys.run, leader_only=False))
    if features.notify and not around.dry_run:
        notifier = NotificationSender(features.notify, shared.coordinator, registry=registry, clock=around.clock)
        shared.listeners.append(notifier)
        tasks.append(Task(name="reload-notifier", run=notifier.run))
    if features.audit is not None:
        auditor = Auditor(options, around.served, registry, shared.keys)
        tasks.append(Task(name="reload-auditor", run=auditor.run))
    shared.hook = HookRunner.of(features)
    return tasks


def _key_store(config: ReloadConfig, around: RuntimeEnvironment, *, keyed: bool) -> KeyStore:
    """Where the keys of digests are: beside our Lease. A profile has its original's rights, and none to a Secret."""
    place = config.options().digest_secret if keyed else None
    if place is None:
        return KeyStore()
    home = around.lease.partition("/")[0] if around.lease else around.own_namespace
    return KeyStore(place[0] or home, place[1])


def checked(config: ReloadConfig) -> ReloadOptions:
    """What the section says; ConfigError names the field that is wrong, also where only others can tell."""
    options = config.options()
    dialects_for(options)
    kind_rules(options.kinds)
    return options


OPERATOR: Final = Operator(
    name="reload",
    summary="restarts workloads when the ConfigMaps and Secrets they use change",
    config=ReloadConfig,
    check=checked,
    parts=parts,
    rules=least_rights,
    own_rules=own_rights,
    kinds=(ReloadPolicy, ClusterReloadPolicy),
)
