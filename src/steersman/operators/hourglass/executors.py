"""An executor's reconcile: account, configuration, keys, Deployment, budget; then what it says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.kube.errors import Conflict, KubeError, NotFound
from steersman.kube.resources import ObjectRef
from steersman.kube.types.apps import Deployment
from steersman.operators.hourglass.apply import REFUSED, Taken, apply_child, remove_child, slow_delay, take_along
from steersman.operators.hourglass.executor import (
    MANAGED_BY,
    account_objects,
    adopted,
    children_of,
    executor_status,
    rolled_out,
)
from steersman.operators.hourglass.report import Trouble
from steersman.operators.hourglass.types import EXECUTOR_ACCOUNT, NAME, ORPHAN, StoredExecutor, StoredPerformer
from steersman.operators.hourglass.validation import read_executor, shown
from steersman.operators.hourglass.watched import (
    AccountMeta,
    BudgetMeta,
    ConfigMapMeta,
    KeySecret,
    RoleBindingMeta,
    RoleMeta,
)
from steersman.runtime.result import Result, done, requeue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.hourglass.executor import Children
    from steersman.operators.hourglass.metrics import HourglassMetrics
    from steersman.operators.hourglass.settings import HourglassOptions
    from steersman.operators.hourglass.types import ExecutorSpec
    from steersman.runtime.context import Context

__all__ = ["ExecutorKeeper"]

ACCOUNT: Final = "hourglass-account"  # the index of executors by ServiceAccount
KEYS: Final = "hourglass-keys"  # the index of executors by the Secret they refer to
LOOK_AGAIN: Final = 15.0
_VIEWS: Final[dict[str, Any]] = {one.KIND.kind: one for one in (AccountMeta, RoleMeta, RoleBindingMeta)}


def account_of(executor: StoredExecutor) -> Iterable[str]:
    """The ServiceAccount its pods run as."""
    name = (executor.spec or {}).get("serviceAccountName") or EXECUTOR_ACCOUNT
    return (f"{executor.namespace}/{name}",)


def keys_of(executor: StoredExecutor) -> Iterable[str]:
    """The Secret with its keys, when it refers to one."""
    config = (executor.spec or {}).get("config")
    reference = config.get("operatorKeysSecretRef") if isinstance(config, dict) else None
    name = reference.get("name") if isinstance(reference, dict) else None
    return (f"{executor.namespace}/{name}",) if name else ()


class ExecutorKeeper:
    """Keeps executors as their specs ask."""

    def __init__(self, options: HourglassOptions, metrics: HourglassMetrics | None = None) -> None:
        self.options = options
        self.metrics = metrics
        self._refused: dict[ObjectRef, int] = {}

    # -- whose keys a change touches -----------------------------------------------------------------------------------

    def with_account(self, account: AccountMeta, cache: Any) -> Iterable[ObjectRef]:
        """The executors that run as a ServiceAccount."""
        return _refs(cache, ACCOUNT, account)

    def with_keys(self, secret: KeySecret, cache: Any) -> Iterable[ObjectRef]:
        """The executors that a Secret belongs to, or that refer to it."""
        from steersman.operators.hourglass.watched import executor_keys

        return [*executor_keys(secret), *_refs(cache, KEYS, secret)]

    # -- the look ------------------------------------------------------------------------------------------------------

    async def reconcile(self, ctx: Context, executor: StoredExecutor) -> Result:
        """Make it so."""
        spec, problems = read_executor(executor)
        if spec is None or problems:
            await self._tell(ctx, executor, spec, Trouble("InvalidSpec", shown(problems)))
            return done
        trouble = await self._account(ctx, executor, spec)
        digest, missing = self._referred_keys(ctx, executor, spec)
        if missing is not None:
            await self._tell(ctx, executor, spec, missing)
            return done
        children = children_of(executor, spec, keys=digest)
        try:
            await self._write(ctx, executor, children)
        except Taken as error:
            return await self._blocked(ctx, executor, spec, Trouble("NameConflict", str(error)))
        except Conflict:
            return requeue()
        except REFUSED as error:
            if self.metrics is not None:
                self.metrics.refusals.labels(error.reason).inc()
            return await self._blocked(ctx, executor, spec, Trouble("AdmissionRejected", str(error)))
        self._refused.pop(executor.ref, None)
        await self._tell(ctx, executor, spec, trouble, config_hash=children.config_hash)
        live = ctx.cache[Deployment].get(executor.ref)
        if spec.service_account_name != EXECUTOR_ACCOUNT and live is not None and rolled_out(live, spec.replicas):
            await self._leave_account(ctx, executor)
        return done

    async def _write(self, ctx: Context, executor: StoredExecutor, children: Children) -> None:
        await apply_child(ctx, executor, children.config_map, ConfigMapMeta, NAME)
        if children.secret is not None:
            await apply_child(ctx, executor, children.secret, KeySecret, NAME)
        else:
            await remove_child(ctx, executor, KeySecret, f"{executor.name}-keys", NAME)
        live = ctx.cache[Deployment].get(executor.ref)
        await apply_child(ctx, executor, adopted(children, live), Deployment, NAME)
        if live is None:
            ctx.event(executor, "DeploymentCreated", f"Deployment {executor.name} made")
        if children.budget is not None:
            await apply_child(ctx, executor, children.budget, BudgetMeta, NAME)
        else:
            await remove_child(ctx, executor, BudgetMeta, executor.name, NAME)

    async def _account(self, ctx: Context, executor: StoredExecutor, spec: ExecutorSpec) -> Trouble | None:
        """See that the ServiceAccount is there; what stands in the way is told, and the rest goes on."""
        if self.options.create_service_accounts:
            for obj in account_objects(executor.namespace, spec):
                live = ctx.cache[_VIEWS[obj["kind"]]].get(ObjectRef(EXECUTOR_ACCOUNT, executor.namespace))
                if live is not None and live.labels.get(MANAGED_BY) != "steersman":
                    continue  # somebody's own, and enough
                try:
                    await ctx.apply(obj, owner=None)
                except (*REFUSED, NotFound) as error:
                    return Trouble("AdmissionRejected", str(error))
        name = spec.service_account_name
        if ctx.cache[AccountMeta].get(ObjectRef(name, executor.namespace)) is None:
            return Trouble(
                "ServiceAccountMissing", f"there is no ServiceAccount {name}, so no pod can start: create it"
            )
        return None

    def _referred_keys(self, ctx: Context, executor: StoredExecutor, spec: ExecutorSpec) -> tuple[str, Trouble | None]:
        reference = spec.config.operator_keys_secret_ref
        if reference is None:
            return "", None
        secret = ctx.cache[KeySecret].get(ObjectRef(reference.name, executor.namespace))
        if secret is None:
            text = f"spec.config.operatorKeysSecretRef: there is no Secret {reference.name}"
            return "", Trouble("KeysMissing", text)
        return secret.digest, None

    # -- telling -------------------------------------------------------------------------------------------------------

    async def _tell(
        self,
        ctx: Context,
        executor: StoredExecutor,
        spec: ExecutorSpec | None,
        trouble: Trouble | None,
        *,
        config_hash: str = "",
    ) -> None:
        current = ctx.cache[StoredExecutor].get(executor.ref) or executor
        live = ctx.cache[Deployment].get(executor.ref)
        mine = live if live is not None and live.controller and live.controller.uid == executor.metadata.uid else None
        now = ctx.clock.time()
        status = executor_status(current, spec, mine, config_hash=config_hash, trouble=trouble, now=now)
        before = {one.get("type"): one.get("status") for one in (current.status or {}).get("conditions") or ()}
        degraded = next(one for one in status["conditions"] if one["type"] == "Degraded")
        if degraded["status"] == "True" and before.get("Degraded") != "True":
            ctx.event(executor, degraded["reason"], degraded["message"], warning=True)
        if "lastConfigUpdate" in status and (current.status or {}).get("configHash"):
            ctx.event(executor, "ConfigUpdated", "the configuration changed; pods are rolled")
        await ctx.status(executor, status)
        if self.metrics is not None:
            self.metrics.saw("executor", executor.ref, status["phase"])

    async def _blocked(self, ctx: Context, executor: StoredExecutor, spec: ExecutorSpec, trouble: Trouble) -> Result:
        times = self._refused.get(executor.ref, 0)
        self._refused[executor.ref] = times + 1
        await self._tell(ctx, executor, spec, trouble)
        return requeue(after=slow_delay(times))

    # -- the end -------------------------------------------------------------------------------------------------------

    async def clean_up(self, ctx: Context, executor: StoredExecutor) -> Result:
        """Pods first, with everything they read still there; then what they read; then the resource may go."""
        if ORPHAN in (executor.metadata.finalizers or ()):
            return done
        spec, _ = read_executor(executor)
        await self._tell(ctx, executor, spec, None)
        live = ctx.cache[Deployment].get(executor.ref)
        if await take_along(ctx, executor, live, propagation="Foreground"):
            ctx.event(executor, "Terminating", "waits until its pods are gone")
            return requeue(after=LOOK_AGAIN)
        left = False
        for view, name in (
            (BudgetMeta, executor.name),
            (ConfigMapMeta, f"{executor.name}-config"),
            (KeySecret, f"{executor.name}-keys"),
        ):
            try:
                left |= await take_along(ctx, executor, ctx.cache[view].get(ObjectRef(name, executor.namespace)))
            except KubeError as error:
                ctx.log.warning("a child cannot be removed", child=name, error=str(error))
                raise
        if left:
            return requeue(after=LOOK_AGAIN)
        await self._leave_account(ctx, executor)
        return done

    async def _leave_account(self, ctx: Context, executor: StoredExecutor) -> None:
        """Take the shared ServiceAccount away with its last user, if it is one that we made."""
        shared = ObjectRef(EXECUTOR_ACCOUNT, executor.namespace)
        if not self.options.create_service_accounts or _has_users(ctx, shared, executor):
            return
        for view in (RoleBindingMeta, RoleMeta, AccountMeta):
            live: Any = ctx.cache[view].get(shared)
            if live is not None and live.labels.get(MANAGED_BY) == "steersman" and not live.deleting:
                await ctx.delete(live)

    def gone(self, _ctx: Context, key: ObjectRef) -> None:
        """Forget what was kept in memory."""
        self._refused.pop(key, None)
        if self.metrics is not None:
            self.metrics.forget("executor", key)


def _has_users(ctx: Context, account: ObjectRef, leaving: StoredExecutor) -> bool:
    """Whether anybody but the one that leaves runs as the shared account, or is about to."""
    executors = ctx.cache[StoredExecutor].by_index(ACCOUNT, f"{account.namespace}/{account.name}")
    if any(other.ref != leaving.ref and not other.deleting for other in executors):
        return True
    for one in ctx.cache[Deployment].list():  # also of executors that go, and those that were left behind
        if one.namespace == account.namespace and one.spec.template.spec.service_account_name == account.name:
            return True
    for performer in ctx.cache[StoredPerformer].list():
        config = (performer.spec or {}).get("config")
        named = config.get("serviceAccountName") if isinstance(config, dict) else None
        if performer.namespace == account.namespace and named == account.name:
            return True
    return False


def _refs(cache: Any, index: str, obj: Any) -> list[ObjectRef]:
    return [one.ref for one in cache[StoredExecutor].by_index(index, f"{obj.namespace}/{obj.name}")]
