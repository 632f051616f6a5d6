"""The controllers: one per kind of workload, each for the workloads of that kind, and what is watched for them.

Who looks at a workload, and what follows, is in `steersman.operators.reload.keeper`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.clock import SYSTEM_CLOCK
from steersman.operators import Operator
from steersman.operators.reload.dialects import dialects_for
from steersman.operators.reload.digest import ConfigMapSource, SecretSource
from steersman.operators.reload.fleet import Fleet
from steersman.operators.reload.forms import Forms
from steersman.operators.reload.keeper import WorkloadKeeper, kept_annotations
from steersman.operators.reload.kinds import BUILT_IN, kind_rules, kind_words
from steersman.operators.reload.look import DEPLOYMENT, NamespaceSettings
from steersman.operators.reload.metrics import ReloadMetrics
from steersman.operators.reload.neighbours import beside_others
from steersman.operators.reload.oversight import Oversight
from steersman.operators.reload.policies import ClusterReloadPolicy, ReloadPolicy
from steersman.operators.reload.policybook import PolicyBook
from steersman.operators.reload.policystatus import policy_controllers
from steersman.operators.reload.providers import BY_CLASS, ProviderClass, ProviderStatus, by_class
from steersman.operators.reload.rights import rules as least_rights
from steersman.operators.reload.tables import tables_of
from steersman.operators.reload.types import (
    NATIVE_ANNOTATIONS,
    Options,
    ReloadConfig,
    SourceKind,
)
from steersman.operators.reload.viewing import view_of
from steersman.operators.reload.workloads import workload_class, workload_transform
from steersman.runtime.controller import Controller
from steersman.runtime.parts import Parts
from steersman.runtime.predicates import Predicate, annotation, generation, labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client import CollectorRegistry

    from steersman.kube.resources import Kind
    from steersman.operators.reload.dialect import Dialect
    from steersman.runtime.parts import Surroundings

__all__ = ["OPERATOR", "controllers", "operator"]

NO_HELM_RELEASES: Final = "type!=helm.sh/release.v1"  # the largest Secrets of a cluster, and no pod reads them
CONCURRENCY: Final = 64  # patches in flight: a source that hundreds of workloads use should not take minutes


def operator(
    config: ReloadConfig | None = None,
    *,
    served: Iterable[Kind] | None = None,
    dialects: Sequence[Dialect] | None = None,
    registry: CollectorRegistry | None = None,
    oversight: Oversight | None = None,
    fleet: Fleet | None = None,
) -> list[Controller]:
    """The controllers that the section `reload:` asks for; `served` are the kinds the cluster has.

    `dialects` stand in the place of those that the section names.
    """
    options = (config or ReloadConfig()).options()
    spoken = dialects_for(options) if dialects is None else dialects
    return controllers(options, served=served, dialects=spoken, registry=registry, oversight=oversight, fleet=fleet)


def controllers(
    options: Options,
    *,
    served: Iterable[Kind] | None = None,
    dialects: Sequence[Dialect] = (),
    registry: CollectorRegistry | None = None,
    oversight: Oversight | None = None,
    fleet: Fleet | None = None,
) -> list[Controller]:
    """One controller per kind of workload. Where `served` is known, kinds that it lacks are taken up when they come."""
    rules = kind_rules(options.kinds, served, later=True)
    metrics = ReloadMetrics((rule.kind.kind for rule in rules), registry)
    fleet = fleet or Fleet()
    metrics.under_way.set_function(lambda: sum(1 for _ in fleet.rollouts.open()))
    policies = served if options.policies else None
    book = PolicyBook(
        policies,
        namespaced_only=options.namespaces is not None,
        later=True,
        words=kind_words(options.kinds),
    )
    mounted, forms = options.watch_providers, Forms()
    if mounted is None:
        mounted = options.watch_secrets and served is not None
    keepers = [
        WorkloadKeeper(rule, options, dialects, metrics, oversight, fleet, book, forms, providers=mounted)
        for rule in rules
    ]
    return [*map(_controller, keepers), *policy_controllers(book, keepers)]


def _controller(keeper: WorkloadKeeper) -> Controller:
    rule, options, ledger = keeper.rule, keeper.options, keeper.ledger
    kept = kept_annotations(keeper.dialects)
    where: dict[str, Any] = {"namespaces": options.namespaces}
    sources = where | {
        "transform": keeper.source_transform,
        "when": Predicate("data", ledger.source_changed),
    }
    sources |= {"label_selector": options.source_selector}

    made = (
        Controller(workload_class(rule.kind), keeper.reconcile, f"reload-{rule.kind.plural}")
        .select(**where, transform=keeper.transform, optional=not rule.installed)
        .when(Predicate("what it uses", keeper.workload_changed))
        .hears(keeper.news)
        .gone(keeper.gone)
        .configured(concurrency=CONCURRENCY)
    )
    if options.watch_configmaps:
        by_name = options.configmaps_by_name
        made = made.watches(ConfigMapSource, to=keeper.users_of, by_name=by_name, **sources)
    if options.watch_secrets:
        sources |= {"field_selector": NO_HELM_RELEASES, "by_name": options.secrets_by_name}
        made = made.watches(SecretSource, to=keeper.users_of, **sources)
    if SourceKind.PROVIDER_CLASS in keeper.source_kinds:
        data = Predicate("versions", ledger.source_changed)
        rows: dict[str, Any] = {**where, "to": keeper.users_of, "optional": True}
        made = made.watches(ProviderStatus, when=data, transform=keeper.status_transform, **rows)
        made = made.index(ProviderStatus, BY_CLASS, by_class)
        made = made.watches(ProviderClass, when=annotation(*sorted(kept)), transform=keeper.source_transform, **rows)
    if options.namespaces is None and options.watch_namespaces:
        asked = annotation(*NATIVE_ANNOTATIONS)
        made = made.watches(
            NamespaceSettings,
            to=keeper.members_of,
            when=asked if options.namespace_selector is None else asked | labels,
        )
    for kind in keeper.policies.kinds:
        made = made.watches(
            kind,
            to=keeper.members_of if kind.KIND.namespaced else keeper.everyone,
            when=generation,
            namespaces=options.namespaces if kind.KIND.namespaced else None,
            optional=True,
        )
    if rule.kind.kind == "Rollout":
        followed = workload_transform(BUILT_IN[0], kept, kind_words(options.kinds))
        made = made.watches(DEPLOYMENT, to=keeper.users_of, **where, transform=followed)
    return made


def parts(
    config: ReloadConfig | None,
    around: Surroundings,
    *,
    dialects: Sequence[Dialect] | None = None,
    oversight: Oversight | None = None,
    registry: CollectorRegistry | None = None,
) -> Parts:
    """Everything that runs for the section `reload:`; profiles bring dialects and an oversight of their own."""
    config, fleet = config or ReloadConfig(), Fleet()
    oversight = oversight or Oversight(pretends=around.shadow)
    made = operator(
        config, served=around.served, dialects=dialects, registry=registry, oversight=oversight, fleet=fleet
    )
    company = beside_others(config, around, oversight, registry=registry)
    from steersman.operators.reload.attendants import attend  # they use what is made here

    attendants = attend(config.options(), around, oversight, fleet, registry=registry)
    return Parts(
        controllers=made,
        tasks=(*company.tasks, *attendants),
        checks=company.checks,
        routes=company.routes,
        tables=lambda _cluster: tables_of(view_of(fleet, SYSTEM_CLOCK.time())),
    )


def checked(config: ReloadConfig) -> Options:
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
    kinds=(ReloadPolicy, ClusterReloadPolicy),
)
