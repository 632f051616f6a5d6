"""The executor reconciler: service account, ConfigMap, key Secret, Deployment, disruption budget; then the status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.kube.api.errors import Conflict, NotFound
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.types.apps import Deployment
from steersman.operators.hourglass.api.types import EXECUTOR_ACCOUNT, NAME, ORPHAN, StoredExecutor, StoredPerformer
from steersman.operators.hourglass.api.validation import NOT_ALLOWED, account_rejections, read_executor, shown
from steersman.operators.hourglass.children.executor_children import (
    MANAGED_BY,
    account_objects,
    adopted,
    children_of,
)
from steersman.operators.hourglass.controllers.apply import (
    apply_child,
    delete_owned,
    remove_child,
)
from steersman.operators.hourglass.controllers.status import Issue, executor_status, report_degraded
from steersman.operators.hourglass.controllers.views import (
    AccountMeta,
    BudgetMeta,
    ConfigMapMeta,
    KeySecret,
    RoleBindingMeta,
    RoleMeta,
    executors_of,
)
from steersman.runtime.controller.result import REJECTED, Result, done, requeue, slow_retry
from steersman.runtime.reconcile.ownership import NotOwned
from steersman.runtime.workloads import is_rolled_out

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.hourglass.api.config import HourglassOptions
    from steersman.operators.hourglass.api.types import ExecutorSpec
    from steersman.operators.hourglass.children.executor_children import Children
    from steersman.operators.hourglass.controllers.metrics import HourglassMetrics
    from steersman.runtime.reconcile.context import Context

ACCOUNT: Final = "hourglass-account"  # index of executors by ServiceAccount
KEYS: Final = "hourglass-keys"  # index of executors by the Secret they refer to
RECHECK_SECONDS: Final = 15.0


def account_of(executor: StoredExecutor) -> Iterable[str]:
    """The ServiceAccount its pods run as."""
    name = (executor.spec or {}).get("serviceAccountName") or EXECUTOR_ACCOUNT
    return (f"{executor.namespace}/{name}",)


def keys_of(executor: StoredExecutor) -> Iterable[str]:
    """The Secret with its keys, when the spec names one."""
    config = (executor.spec or {}).get("config")
    reference = config.get("operatorKeysSecretRef") if isinstance(config, dict) else None
    name = reference.get("name") if isinstance(reference, dict) else None
    return (f"{executor.namespace}/{name}",) if name else ()


class ExecutorReconciler:
    """Reconciles executors."""

    def __init__(self, options: HourglassOptions, metrics: HourglassMetrics | None = None) -> None:
        self.options = options
        self.metrics = metrics
        self._rejections: dict[NamespacedName, int] = {}

    # -- which keys a change enqueues ----------------------------------------------------------------------------------

    def with_account(self, account: AccountMeta, cache: Any) -> Iterable[NamespacedName]:
        """The executors that run as a ServiceAccount."""
        return _refs(cache, ACCOUNT, account)

    def with_keys(self, secret: KeySecret, cache: Any) -> Iterable[NamespacedName]:
        """The executors that a Secret belongs to, or that refer to it."""
        return [*executors_of(secret), *_refs(cache, KEYS, secret)]

    # -- a reconcile ---------------------------------------------------------------------------------------------------

    async def reconcile(self, ctx: Context, executor: StoredExecutor) -> Result:
        """Reconcile one executor, or report why its spec cannot be used."""
        spec, problems = read_executor(executor)
        if spec is None or problems:
            await self._write_status(ctx, executor, spec, Issue("InvalidSpec", shown(problems)))
            return done
        if rejected := account_rejections(executor.namespace, spec, self.options.service_accounts):
            await self._write_status(ctx, executor, spec, Issue(NOT_ALLOWED, shown(rejected)))
            return done
        issue = await self._account(ctx, executor, spec)
        digest, missing = self._keys_digest(ctx, executor, spec)
        if missing is not None:
            await self._write_status(ctx, executor, spec, missing)
            return done
        children = children_of(executor, spec, keys=digest)
        try:
            await self._write(ctx, executor, children)
        except NotOwned as error:
            return await self._blocked(ctx, executor, spec, Issue("NameConflict", str(error)))
        except Conflict:
            return requeue()
        except REJECTED as error:
            if self.metrics is not None:
                self.metrics.refusals.labels(error.reason).inc()
            return await self._blocked(ctx, executor, spec, Issue("AdmissionRejected", str(error)))
        self._rejections.pop(executor.ref, None)
        await self._write_status(ctx, executor, spec, issue, config_hash=children.config_hash)
        live = ctx.cache[Deployment].get(executor.ref)
        if spec.service_account_name != EXECUTOR_ACCOUNT and live is not None and is_rolled_out(live):
            await self._delete_unused_account(ctx, executor)
        return done

    async def _write(self, ctx: Context, executor: StoredExecutor, children: Children) -> None:
        await apply_child(ctx, executor, children.config_map, NAME)
        if children.secret is not None:
            await apply_child(ctx, executor, children.secret, NAME)
        else:
            await remove_child(ctx, executor, KeySecret, f"{executor.name}-keys", NAME)
        live = ctx.cache[Deployment].get(executor.ref)
        await apply_child(ctx, executor, adopted(children, live), NAME)
        if live is None:
            ctx.event(executor, "DeploymentCreated", f"Created Deployment {executor.name}")
        if children.budget is not None:
            await apply_child(ctx, executor, children.budget, NAME)
        else:
            await remove_child(ctx, executor, BudgetMeta, executor.name, NAME)

    async def _account(self, ctx: Context, executor: StoredExecutor, spec: ExecutorSpec) -> Issue | None:
        """Create the ServiceAccount; an issue with it is reported, and does not stop the rest."""
        if self.options.create_service_accounts:
            for obj in account_objects(executor.namespace, spec):
                try:
                    await ctx.apply(obj, owner=None, adopt={MANAGED_BY: "steersman"})
                except NotOwned:
                    continue  # the tenant's own is used
                except (*REJECTED, NotFound) as error:
                    return Issue("AdmissionRejected", str(error))
        name = spec.service_account_name
        if ctx.cache[AccountMeta].get(NamespacedName(name, executor.namespace)) is None:
            return Issue("ServiceAccountMissing", f"ServiceAccount {name} not found: no pod can start; create it")
        return None

    def _keys_digest(self, ctx: Context, executor: StoredExecutor, spec: ExecutorSpec) -> tuple[str, Issue | None]:
        reference = spec.config.operator_keys_secret_ref
        if reference is None:
            return "", None
        secret = ctx.cache[KeySecret].get(NamespacedName(reference.name, executor.namespace))
        if secret is None:
            text = f"spec.config.operatorKeysSecretRef: Secret {reference.name} not found"
            return "", Issue("KeysMissing", text)
        return secret.digest, None

    # -- status --------------------------------------------------------------------------------------------------------

    async def _write_status(
        self,
        ctx: Context,
        executor: StoredExecutor,
        spec: ExecutorSpec | None,
        issue: Issue | None,
        *,
        config_hash: str = "",
    ) -> None:
        current = ctx.cache[StoredExecutor].get(executor.ref) or executor
        live = ctx.cache[Deployment].get(executor.ref)
        mine = live if live is not None and live.controller and live.controller.uid == executor.metadata.uid else None
        now = ctx.clock.time()
        status = executor_status(current, spec, mine, config_hash=config_hash, issue=issue, now=now)
        report_degraded(ctx, executor, current.status, status)
        if "lastConfigUpdate" in status and (current.status or {}).get("configHash"):
            ctx.event(executor, "ConfigUpdated", "The configuration changed; rolling the pods")
        await ctx.status(executor, status)
        if self.metrics is not None:
            self.metrics.set_phase("executor", executor.ref, status["phase"])

    async def _blocked(self, ctx: Context, executor: StoredExecutor, spec: ExecutorSpec, issue: Issue) -> Result:
        times = self._rejections.get(executor.ref, 0)
        self._rejections[executor.ref] = times + 1
        await self._write_status(ctx, executor, spec, issue)
        return slow_retry(times)

    # -- deletion ------------------------------------------------------------------------------------------------------

    async def clean_up(self, ctx: Context, executor: StoredExecutor) -> Result:
        """Delete the pods first, while everything they read still exists; then the rest; then release the resource."""
        if ORPHAN in (executor.metadata.finalizers or ()):
            return done
        spec, _ = read_executor(executor)
        await self._write_status(ctx, executor, spec, None)
        live = ctx.cache[Deployment].get(executor.ref)
        if await delete_owned(ctx, executor, live, propagation="Foreground"):
            ctx.event(executor, "Terminating", "Waiting until its pods are gone")
            return requeue(after=RECHECK_SECONDS)
        remaining = False
        for view, name in (
            (BudgetMeta, executor.name),
            (ConfigMapMeta, f"{executor.name}-config"),
            (KeySecret, f"{executor.name}-keys"),
        ):
            child = ctx.cache[view].get(NamespacedName(name, executor.namespace))
            remaining |= await delete_owned(ctx, executor, child)
        if remaining:
            return requeue(after=RECHECK_SECONDS)
        await self._delete_unused_account(ctx, executor)
        return done

    async def _delete_unused_account(self, ctx: Context, executor: StoredExecutor) -> None:
        """Delete the shared ServiceAccount with its last user, if this operator created it."""
        shared = NamespacedName(EXECUTOR_ACCOUNT, executor.namespace)
        if not self.options.create_service_accounts or _has_users(ctx, shared, executor):
            return
        for view in (RoleBindingMeta, RoleMeta, AccountMeta):
            live: Any = ctx.cache[view].get(shared)
            if live is not None and live.labels.get(MANAGED_BY) == "steersman" and not live.deleting:
                await ctx.delete(live)

    def forget(self, _ctx: Context, key: NamespacedName) -> None:
        """Forget an executor that no longer exists."""
        self._rejections.pop(key, None)
        if self.metrics is not None:
            self.metrics.forget("executor", key)


def _has_users(ctx: Context, account: NamespacedName, deleted: StoredExecutor) -> bool:
    """Whether anything but the deleted executor runs as the shared account, or is about to."""
    executors = ctx.cache[StoredExecutor].by_index(ACCOUNT, f"{account.namespace}/{account.name}")
    if any(other.ref != deleted.ref and not other.deleting for other in executors):
        return True
    for deployment in ctx.cache[Deployment].list():  # also of deleted executors, and orphaned ones
        pods = deployment.spec.template.spec
        if deployment.namespace == account.namespace and pods.service_account_name == account.name:
            return True
    for performer in ctx.cache[StoredPerformer].list():
        config = (performer.spec or {}).get("config")
        named = config.get("serviceAccountName") if isinstance(config, dict) else None
        if performer.namespace == account.namespace and named == account.name:
            return True
    return False


def _refs(cache: Any, index: str, obj: Any) -> list[NamespacedName]:
    return [executor.ref for executor in cache[StoredExecutor].by_index(index, f"{obj.namespace}/{obj.name}")]
