"""The operator: two controllers as tables, the rights they need, and what they show of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.kube.types.apps import Deployment
from steersman.kube.types.pods import Pod
from steersman.kube.types.rbac import PolicyRule
from steersman.operators import Operator
from steersman.operators.hourglass import watched
from steersman.operators.hourglass.executors import ACCOUNT, KEYS, ExecutorKeeper, account_of, keys_of
from steersman.operators.hourglass.metrics import HourglassMetrics
from steersman.operators.hourglass.performers import (
    EXECUTOR,
    OWNER,
    PHASE,
    PerformerKeeper,
    executor_of,
    phase_of,
    pod_owners,
)
from steersman.operators.hourglass.settings import HourglassConfig, HourglassOptions
from steersman.operators.hourglass.tables import tables
from steersman.operators.hourglass.types import (
    APP,
    EXECUTOR_ACCOUNT,
    EXECUTOR_FINALIZER,
    GROUP,
    PERFORMER_APP,
    PERFORMER_FINALIZER,
    HourglassExecutor,
    Performer,
    StoredExecutor,
    StoredPerformer,
)
from steersman.operators.hourglass.watched import executor_keys, performer_keys
from steersman.runtime.controller import Controller
from steersman.runtime.parts import Parts
from steersman.runtime.predicates import Predicate, finalizers, generation, spec

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from steersman.runtime.parts import Surroundings

__all__ = ["OPERATOR", "controllers", "rules"]

CONCURRENCY: Final = 16
RBAC: Final = "rbac.authorization.k8s.io"
NO_HELM_RELEASES: Final = "type!=helm.sh/release.v1"  # the largest Secrets of a cluster, and none holds keys


def _over(old: StoredPerformer | None, new: StoredPerformer | None) -> bool:
    """A replacement ended, or a performer became ready: somebody else may begin."""
    if old is None or new is None:
        return new is None
    before, after = old.status or {}, new.status or {}
    ended = before.get("phase") == "Upgrading" and after.get("phase") != "Upgrading"
    return ended or (bool(after.get("ready")) and not before.get("ready"))


def controllers(
    options: HourglassOptions, *, everywhere: bool = True, registry: CollectorRegistry | None = None
) -> list[Controller]:
    """Both controllers. `everywhere`: kinds without a namespace may be watched too."""
    metrics = HourglassMetrics.of(registry)
    performers, executors = PerformerKeeper(options, metrics), ExecutorKeeper(options, metrics)
    made = (
        Controller(StoredPerformer, performers.reconcile, "performer")
        .when(generation | finalizers)
        .watches(StoredPerformer, to=performers.turns.next, when=Predicate("replacement over", _over))
        .watches(StoredExecutor, to=performers.of_executor, when=spec("config", "performers"))
        .watches(Pod, to=performer_keys, label_selector=f"{APP}={PERFORMER_APP}")
        .watches(watched.ServiceView, watched.BudgetMeta, watched.PolicyMeta, to=performer_keys)
        .watches(*watched.ADMITTING_HERE, to=performers.refused_in)
        .index(Pod, OWNER, pod_owners)
        .index(StoredPerformer, PHASE, phase_of)
        .index(StoredPerformer, EXECUTOR, executor_of)
        .finalizer(PERFORMER_FINALIZER, performers.clean_up)
        .gone(performers.gone)
        .configured(concurrency=CONCURRENCY)
    )
    if everywhere:
        made = made.watches(*watched.ADMITTING_ANYWHERE, to=performers.refused_in)
    executor = (
        Controller(StoredExecutor, executors.reconcile, "hourglassexecutor")
        .when(generation | finalizers)
        .watches(Deployment, watched.ConfigMapMeta, watched.BudgetMeta, to=executor_keys)
        .watches(
            watched.KeySecret,
            to=executors.with_keys,
            field_selector=NO_HELM_RELEASES,
            transform=watched.without_values,
        )
        .watches(watched.AccountMeta, to=executors.with_account)
        .index(StoredExecutor, ACCOUNT, account_of)
        .index(StoredExecutor, KEYS, keys_of)
        .finalizer(EXECUTOR_FINALIZER, executors.clean_up)
        .gone(executors.gone)
        .configured(concurrency=CONCURRENCY)
    )
    if options.create_service_accounts:
        executor = executor.reads(watched.RoleMeta, watched.RoleBindingMeta, StoredPerformer)
    return [executor, made]


def parts(config: HourglassConfig | None, around: Surroundings) -> Parts:
    """The operator as the section `hourglass:` asks for it."""
    options = (config or HourglassConfig()).options()
    return Parts(controllers=controllers(options, everywhere=around.namespaces is None), tables=tables)


READ: Final = ("list", "watch")
WRITE: Final = (*READ, "create", "patch", "delete")


def rules(config: HourglassConfig | None) -> list[PolicyRule]:
    """The least rights that the configuration needs."""

    def rule(group: str, resources: tuple[str, ...], verbs: tuple[str, ...]) -> PolicyRule:
        return PolicyRule(api_groups=[group], resources=list(resources), verbs=list(verbs))

    asked = config or HourglassConfig()
    kinds = ("hourglassexecutors", "performers")
    needed = [
        rule(GROUP, kinds, ("get", *READ, "patch")),  # is it there still, before a child is adopted?
        rule(GROUP, tuple(f"{kind}/status" for kind in kinds), ("patch",)),
        rule(GROUP, tuple(f"{kind}/finalizers" for kind in kinds), ("update",)),
        rule("", ("configmaps", "secrets", "services", "pods"), WRITE),
        rule("", ("pods",), ("get",)),  # whose is the one that has the name already?
        rule("", ("serviceaccounts", "resourcequotas", "limitranges"), READ),
        rule("", ("events",), ("create", "patch")),
        rule("apps", ("deployments",), WRITE),
        rule("policy", ("poddisruptionbudgets",), WRITE),
        rule("networking.k8s.io", ("networkpolicies",), WRITE),
        rule("discovery.k8s.io", ("endpointslices",), ("list",)),
        rule("node.k8s.io", ("runtimeclasses",), READ),
        rule("scheduling.k8s.io", ("priorityclasses",), READ),
    ]
    if asked.create_service_accounts:
        needed += [
            rule("", ("serviceaccounts",), ("create", "patch")),
            rule(RBAC, ("roles", "rolebindings"), (*READ, "create", "patch")),
            # what the Role of executors grants, because nobody may grant what they do not have
            rule(GROUP, ("performers",), ("create", "update", "delete")),
            rule("", ("services",), ("get",)),
            *(
                PolicyRule(
                    api_groups=[group], resources=list(kinds), resource_names=[EXECUTOR_ACCOUNT], verbs=["delete"]
                )
                for group, kinds in (("", ("serviceaccounts",)), (RBAC, ("roles", "rolebindings")))
            ),
        ]
    return needed


OPERATOR: Final = Operator(
    name="hourglass",
    summary="runs executors and performers of Hourglass on the hardware they need",
    config=HourglassConfig,
    check=HourglassConfig.options,
    parts=parts,
    rules=rules,
    kinds=(HourglassExecutor, Performer),
)
