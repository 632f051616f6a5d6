"""The operator assembled: two controllers as tables, and the RBAC rules they need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.kube.api.types.apps import Deployment
from steersman.kube.api.types.pods import Pod
from steersman.operators import Operator
from steersman.operators.hourglass.api.config import HourglassConfig, HourglassOptions
from steersman.operators.hourglass.api.types import (
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
from steersman.operators.hourglass.controllers import views
from steersman.operators.hourglass.controllers.executor_controller import (
    ACCOUNT,
    KEYS,
    ExecutorReconciler,
    account_of,
    keys_of,
)
from steersman.operators.hourglass.controllers.metrics import HourglassMetrics
from steersman.operators.hourglass.controllers.performer_controller import (
    EXECUTOR,
    OWNER,
    PHASE,
    PerformerReconciler,
    executor_of,
    phase_of,
    pod_owners,
)
from steersman.operators.hourglass.controllers.views import executors_of, performers_of
from steersman.operators.hourglass.inspect.tables import tables
from steersman.runtime.controller.builder import Controller
from steersman.runtime.controller.predicates import Predicate, finalizers, generation, spec
from steersman.runtime.manager.operator_bundle import OperatorBundle
from steersman.runtime.rbac import EVENTS, rule

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from steersman.kube.api.types.rbac import PolicyRule
    from steersman.runtime.manager.operator_bundle import RuntimeEnvironment

CONCURRENCY: Final = 16
NO_HELM_RELEASES: Final = "type!=helm.sh/release.v1"  # the largest Secrets of a cluster; none holds keys


def _slot_freed(old: StoredPerformer | None, new: StoredPerformer | None) -> bool:
    """A replacement ended, or a performer became ready: the next one may begin."""
    if old is None or new is None:
        return new is None
    before, after = old.status or {}, new.status or {}
    ended = before.get("phase") == "Upgrading" and after.get("phase") != "Upgrading"
    return ended or (bool(after.get("ready")) and not before.get("ready"))


def controllers(
    options: HourglassOptions, *, everywhere: bool = True, registry: CollectorRegistry | None = None
) -> list[Controller]:
    """Both controllers. `everywhere`: cluster-scoped kinds may be watched too."""
    metrics = HourglassMetrics.of(registry)
    performers, executors = PerformerReconciler(options, metrics), ExecutorReconciler(options, metrics)
    made = (
        Controller(StoredPerformer, performers.reconcile, "performer")
        .when(generation | finalizers)
        .watches(StoredPerformer, to=performers.limiter.next_waiting, when=Predicate("replacement ended", _slot_freed))
        .watches(StoredExecutor, to=performers.with_executor, when=spec("config", "performers"))
        .watches(Pod, to=performers_of, label_selector=f"{APP}={PERFORMER_APP}")
        .watches(views.PerformerService, views.BudgetMeta, views.PolicyMeta, to=performers_of)
        .watches(*views.ADMITTING_HERE, to=performers.rejected_in, on_enqueue=performers.restart_retry_delay)
        .index(Pod, OWNER, pod_owners)
        .index(StoredPerformer, PHASE, phase_of)
        .index(StoredPerformer, EXECUTOR, executor_of)
        .finalizer(PERFORMER_FINALIZER, performers.clean_up)
        .on_missing(performers.forget)
        .with_options(concurrency=CONCURRENCY, shared_objects=True)
    )
    if everywhere:
        made = made.watches(
            *views.ADMITTING_ANYWHERE, to=performers.rejected_in, on_enqueue=performers.restart_retry_delay
        )
    executor = (
        Controller(StoredExecutor, executors.reconcile, "hourglassexecutor")
        .when(generation | finalizers)
        .watches(Deployment, views.ConfigMapMeta, views.BudgetMeta, to=executors_of)
        .watches(
            views.KeySecret,
            to=executors.with_keys,
            field_selector=NO_HELM_RELEASES,
            transform=views.without_values,
        )
        .watches(views.AccountMeta, to=executors.with_account)
        .index(StoredExecutor, ACCOUNT, account_of)
        .index(StoredExecutor, KEYS, keys_of)
        .finalizer(EXECUTOR_FINALIZER, executors.clean_up)
        .on_missing(executors.forget)
        .with_options(concurrency=CONCURRENCY, shared_objects=True)
    )
    if options.create_service_accounts:
        executor = executor.reads(views.RoleMeta, views.RoleBindingMeta, StoredPerformer)
    return [executor, made]


def parts(config: HourglassConfig | None, around: RuntimeEnvironment) -> OperatorBundle:
    """The operator as the section `hourglass:` configures it."""
    options = (config or HourglassConfig()).options()
    return OperatorBundle(controllers=controllers(options, everywhere=around.namespaces is None), tables=tables)


READ: Final = ("list", "watch")
WRITE: Final = (*READ, "create", "patch", "delete")


def rules(config: HourglassConfig | None) -> list[PolicyRule]:
    """The RBAC rules that the configuration needs."""
    kinds = (f"hourglassexecutors.{GROUP}", f"performers.{GROUP}")
    needed = [
        rule(kinds, *READ, "patch"),
        rule([f"{kind}/status" for kind in kinds], "patch"),
        rule([f"{kind}/finalizers" for kind in kinds], "update"),
        rule(("configmaps", "secrets", "services", "pods"), *WRITE),
        rule("pods", "get"),  # to find the owner of a pod that has the name already
        rule(("serviceaccounts", "resourcequotas", "limitranges"), *READ),
        EVENTS,
        rule("deployments.apps", *WRITE),
        rule("poddisruptionbudgets.policy", *WRITE),
        rule("networkpolicies.networking.k8s.io", *WRITE),
        rule("endpointslices.discovery.k8s.io", "list"),
        rule("runtimeclasses.node.k8s.io", *READ),
        rule("priorityclasses.scheduling.k8s.io", *READ),
    ]
    if (config or HourglassConfig()).create_service_accounts:
        roles = ("roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io")
        needed += [
            rule("serviceaccounts", "create", "patch"),
            rule(roles, *READ, "create", "patch"),
            # what the Role of executors grants: RBAC does not let an account grant rights that it does not have
            rule(f"performers.{GROUP}", "get", "create", "update", "delete"),
            rule("services", "get"),
            rule("serviceaccounts", "delete", names=[EXECUTOR_ACCOUNT]),
            rule(roles, "delete", names=[EXECUTOR_ACCOUNT]),
        ]
    return needed


OPERATOR: Final = Operator(
    name="hourglass",
    summary="runs Hourglass executors and performers on the hardware they need",
    config=HourglassConfig,
    check=HourglassConfig.options,
    parts=parts,
    rules=rules,
    kinds=(HourglassExecutor, Performer),
)
