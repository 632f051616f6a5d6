"""The reconciler of the workloads of one kind.

    read ──► evaluate (policy, plan) ──► apply ──► observe the rollout ──► report

Every pass reads one snapshot and makes one plan from it. Nothing is read from the API server to decide, so a change
costs one patch per workload it restarts. Exceptions: a source that is compared in a canonical form is read once to hash
it; hashes of other programs over values need these values; and when another process wrote the applied state, a plan is
applied only after the API server confirms that the sources in the cache are the most recent ones.

What waits is reconciled again when it is due. A workload is marked in the coordinator from the change until the end of
its reconcile, whatever comes of it: until then no other workload concludes anything from its state.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from steersman.cache.identity import ref_of
from steersman.kube.api.errors import Conflict, Forbidden, KubeError, NotFound
from steersman.operators.reload.actions.evict import POLL_SECONDS, EvictionProgress, continue_eviction
from steersman.operators.reload.actions.http_reload import call_workload
from steersman.operators.reload.actions.patch import apply_plan
from steersman.operators.reload.actions.recreate_job import Mark, begin, carry_on, intent_of
from steersman.operators.reload.actions.run_cronjob import run_now
from steersman.operators.reload.api.annotations import APPLIED, NATIVE_ANNOTATIONS
from steersman.operators.reload.api.config import ReloadOptions, SourceKind, Window, WorkloadId
from steersman.operators.reload.compat.dialect import CompatAnnotations
from steersman.operators.reload.controllers.change_tracker import ChangeTracker, PendingChanges
from steersman.operators.reload.controllers.digest_key_store import KeyStore
from steersman.operators.reload.controllers.report import MISCONFIGURED, announce, notices_of, report_notices
from steersman.operators.reload.controllers.restart_guard import RestartGuard
from steersman.operators.reload.planning.diff import describe
from steersman.operators.reload.planning.effective_policy import PolicyIndex
from steersman.operators.reload.planning.evaluate import Evaluation, evaluate
from steersman.operators.reload.planning.plan import APPLYING, UNDER_WAY, Action, Notice, unknown_keys
from steersman.operators.reload.planning.restart_order import RestartCoordinator
from steersman.operators.reload.planning.snapshot import NamespaceSettings, interests_in, read_snapshot, read_totals
from steersman.operators.reload.planning.state import read_state, write_state
from steersman.operators.reload.sources.csi import status_transform
from steersman.operators.reload.sources.digest import source_transform
from steersman.operators.reload.sources.digest_cache import CanonicalDigestCache
from steersman.operators.reload.sources.named_watch import NamedSourceWatch
from steersman.operators.reload.workloads.kinds import RECREATE, RUN, KindRule, kind_aliases
from steersman.operators.reload.workloads.pods import PodReads, issue_of
from steersman.operators.reload.workloads.rollout_status import Phase
from steersman.operators.reload.workloads.workload import Workload, workload_class, workload_id, workload_transform
from steersman.runtime.controller.channel import Channel
from steersman.runtime.controller.result import REJECTED, Result, done, requeue, slow_retry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.reload.api.policy import ClusterReloadPolicy, ReloadPolicy
    from steersman.operators.reload.compat.dialect import Dialect
    from steersman.operators.reload.controllers.metrics import ReloadMetrics
    from steersman.operators.reload.controllers.report import ReloadListener
    from steersman.operators.reload.planning.diff import SourceChange
    from steersman.operators.reload.planning.gates import Moment
    from steersman.operators.reload.planning.hooks import HookRunner
    from steersman.operators.reload.planning.plan import Observed
    from steersman.operators.reload.planning.rollouts import TrackedRollout
    from steersman.operators.reload.planning.snapshot import WorkloadSnapshot
    from steersman.operators.reload.sources.digest import Source
    from steersman.runtime.reconcile.context import Context

UNREAD_SECONDS: Final = 30.0  # until the next try after sources could not be read
AT_ONCE: Final = 0.001
NEWER_SECONDS: Final = 1.0  # until the watch should have brought a source that is newer on the API server than here
BLOCKED_SECONDS: Final = 5.0  # between two evaluations while another controller leads
COALESCE_SECONDS: Final = 5.0  # between two evaluations while edits go on and a window is open
CALL_AGAIN_SECONDS: Final = 60.0  # after pods did not accept a call, however often it was tried
CALLS_AT_ONCE: Final = 16  # workloads of one kind: a call may take long, and occupies a worker
NO_WINDOW: Final = Window(quiet=timedelta(0), limit=timedelta(0))
REJECTED_SECONDS: Final = (15.0, 900.0)  # after a rejected restart: at first, and at most


@dataclass(kw_only=True)
class SharedContext:
    """What the reconcilers of all kinds share, in one process."""

    coordinator: RestartCoordinator = field(default_factory=RestartCoordinator)
    guard: RestartGuard = field(default_factory=RestartGuard)
    pending: PendingChanges = field(default_factory=PendingChanges)
    listeners: list[ReloadListener] = field(default_factory=list)
    hook: HookRunner | None = None  # the user's function that decides last
    policies: PolicyIndex = field(default_factory=PolicyIndex)
    forms: CanonicalDigestCache = field(default_factory=CanonicalDigestCache)
    keys: KeyStore = field(default_factory=KeyStore)
    pod_reads: PodReads = field(default_factory=PodReads)
    metrics: ReloadMetrics | None = None


def kept_annotations(dialects: Iterable[Dialect]) -> frozenset[str]:
    """The annotations that mean something to us or to a dialect; no other is kept in memory."""
    return NATIVE_ANNOTATIONS.union(*(dialect.annotations for dialect in dialects))


class WorkloadReconciler:
    """Restarts the workloads of one kind when their sources change."""

    def __init__(
        self,
        rule: KindRule,
        options: ReloadOptions,
        dialects: Sequence[Dialect] = (),
        shared: SharedContext | None = None,
        *,
        providers: bool = False,
    ) -> None:
        """`providers`: the secrets store CSI driver is installed, or may come."""
        self.rule = rule
        self.options = options
        self.dialects = tuple(dialects)
        self.shared = shared = shared or SharedContext()
        self.coordinator = shared.coordinator
        self.rollouts = shared.coordinator.rollouts
        self.named_watch = NamedSourceWatch(rule.kind.plural, options.names)
        self.tracker = ChangeTracker(sees=self.named_watch.sees)
        self.requests = Channel()  # workloads to reconcile though no watch brings them
        hashes = tuple(digest for dialect in dialects for digest in dialect.hashes)
        kept = kept_annotations(dialects)
        self.source_transform = source_transform(kept, hashes, options.features.compare, shared.forms)
        self.status_transform = status_transform(hashes)
        self.transform = workload_transform(rule, kept, kind_aliases(options.kinds))
        self._target = workload_class(rule.kind)
        self._calling = 0
        self._records = True  # False: workloads of this kind may not be patched, and what is applied stays in memory
        self._marked: dict[str, Mark] = {}  # Jobs that are being recreated and may not be patched, by uid
        watched = {
            SourceKind.CONFIGMAP: options.watch_configmaps,
            SourceKind.SECRET: options.watch_secrets,
            SourceKind.PROVIDER_CLASS: providers,
        }
        self.source_kinds = frozenset(kind for kind, is_watched in watched.items() if is_watched)
        shared.keys.listeners.append(self._request_all)
        shared.coordinator.wakers[rule.kind.kind] = self.requests.send
        shared.pending.trackers[f"reload-{rule.kind.plural}"] = self.tracker
        if shared.metrics is not None:
            shared.metrics.watch(rule.kind.kind, self.tracker)

    # -- watches: observers note, mappers answer ---------------------------------------------------------------------

    def observe_workload(self, old: Workload | None, new: Workload | None) -> None:
        """Note a change of a workload; when its rollout reached another phase, it is reconciled."""
        self.tracker.observe_workload(old, new)
        if new is not None:
            is_new = old is None or old.metadata.uid != new.metadata.uid
            if self.coordinator.observe(workload_id(new), new, is_new=is_new):
                self.requests.send(new.ref)

    def mark_users(self, obj: Source | Workload, users: Iterable[NamespacedName]) -> None:
        """An object changed, and the workloads that use it are queued: mark them until they are evaluated."""
        workloads = (WorkloadId(self.rule.kind.kind, ref.namespace, ref.name) for ref in users)
        self.coordinator.mark(workloads, None if isinstance(obj, Workload) else obj.source)

    def users_of(self, obj: Source | Workload) -> Iterable[NamespacedName]:
        """The workloads whose last evaluation asked for this object."""
        return self.tracker.interested_in(interests_in(obj))

    def delay_of(self, user: NamespacedName, old: Source | None, new: Source | None) -> float | None:
        """How long the evaluation of a user may wait: while only its window blocks it, one stands for many edits.

        Only with edits of data: a source that comes or goes, or whose annotations change, may open or close a gate.
        """
        me = WorkloadId(self.rule.kind.kind, user.namespace, user.name)
        clock, state = self.tracker.clock, self.coordinator.state_of(me)
        if clock is None or state is None or state.gate != "window" or state.due is None:
            return None
        if old is None or new is None or new.settings.urgent or self.shared.pending.skips_windows:
            return None
        if old.metadata.annotations != new.metadata.annotations or old.metadata.labels != new.metadata.labels:
            return None
        return min(state.due - clock.time(), COALESCE_SECONDS)

    def members_of(self, obj: NamespaceSettings | ReloadPolicy, cache: Any) -> Iterable[NamespacedName]:
        """All workloads of a namespace, given the namespace or a policy in it."""
        return [ref_of(workload) for workload in cache[self._target].list(namespace=obj.namespace or obj.name)]

    def everyone(self, _policy: ClusterReloadPolicy, cache: Any) -> Iterable[NamespacedName]:
        """All workloads."""
        return [ref_of(workload) for workload in cache[self._target].list()]

    async def gone(self, _ctx: Context, key: NamespacedName) -> None:
        """The workload no longer exists."""
        self.tracker.forget(key)
        self.named_watch.gone(key)
        self.shared.forms.want((self.rule.kind.plural, key), {})
        me = WorkloadId(self.rule.kind.kind, key.namespace, key.name)
        self.coordinator.gone(me)
        self.shared.pod_reads.leave(me)

    # -- a pass --------------------------------------------------------------------------------------------------------

    async def reconcile(self, ctx: Context, workload: Workload) -> Result:
        """One pass over a workload; afterwards no other workload waits for this evaluation."""
        me = workload_id(workload)
        mark = self.coordinator.mark_of(me)
        try:
            await self.shared.guard.ready()
            is_blocked = self.shared.guard.blocked_by(workload.namespace) is not None
            if self.rule.restart == RECREATE:
                await self._continue_recreation(ctx, workload, is_blocked=is_blocked)
            snapshot = await self._read(ctx, workload, is_blocked=is_blocked)
            evaluation = self.evaluate_snapshot(snapshot, hook=self.shared.hook)
            await self._confirm(ctx, evaluation, is_blocked=is_blocked)
            self.coordinator.record(evaluation, snapshot.now, acts=not is_blocked)
            if is_blocked:
                return self._report_blocked(ctx, evaluation)
            written = await self._apply(ctx, evaluation)
            eviction = await self._continue_eviction(ctx, evaluation)
            resume_due = await self._resume(ctx, evaluation.workload)
            rollout_due = await self._observe_rollout(ctx, evaluation.workload)
            return await self._report(ctx, evaluation, eviction, (resume_due, rollout_due), written=written)
        except PassEnded as end:
            return end.result
        finally:
            self.coordinator.unmark(me, mark)

    def read_snapshot(self, workload: Workload, cache: Any, now: Moment) -> WorkloadSnapshot:
        """What the caches show of `workload` and of everything it depends on."""
        return read_snapshot(
            workload,
            cache,
            options=self.options,
            tracker=self.tracker,
            now=now,
            kinds=self.source_kinds,
            dialects=self.dialects,
            namespaces=self.options.namespaces is None and self.options.watch_namespaces,
            policies=self.shared.policies,
            forms=self.shared.forms,
            keys=self.shared.keys.ring,
        )

    def evaluate_snapshot(self, snapshot: WorkloadSnapshot, *, hook: HookRunner | None = None) -> Evaluation:
        """The policy and the plan for a workload as it was read."""
        options = replace(self.options, window=NO_WINDOW) if self.shared.pending.skips_windows else self.options
        return evaluate(snapshot, options, dialects=self.dialects, coordinator=self.coordinator, hook=hook)

    def evaluate(self, workload: Workload, cache: Any, now: Moment) -> Evaluation:
        """Evaluate without acting: for the page and for commands."""
        return self.evaluate_snapshot(self.read_snapshot(workload, cache, now))

    # -- read ----------------------------------------------------------------------------------------------------------

    async def _read(self, ctx: Context, workload: Workload, *, is_blocked: bool) -> WorkloadSnapshot:
        """The complete snapshot; ends the pass when there is none yet."""
        self.named_watch.connect(ctx.cache, self.source_kinds, self._request_users)
        self.tracker.live, self.tracker.clock = True, ctx.clock
        now = self.coordinator.moment(ctx.clock)
        snapshot = self.read_snapshot(workload, ctx.cache, now)
        self.tracker.set_interests(workload.ref, snapshot.interests)
        # Before anything is awaited: whether a name is known concerns the caches as they were read.
        unread = self.named_watch.read(workload.ref, snapshot.interests)
        if unread:
            await self._report_unread(ctx, snapshot, () if is_blocked else unread.problems)
            raise PassEnded(requeue(after=UNREAD_SECONDS))
        self.shared.forms.want((self.rule.kind.plural, workload.ref), snapshot.compare_rules)
        if snapshot.incomplete:
            problems = await self._hash(ctx, snapshot)
            snapshot = self.read_snapshot(workload, ctx.cache, now)
            if snapshot.incomplete:  # what was read may be superseded by now
                await self._report_unread(ctx, snapshot, () if is_blocked else problems)
                raise PassEnded(requeue(after=UNREAD_SECONDS if problems else NEWER_SECONDS))
        if APPLIED not in workload.annotations:  # a dialect may have recorded a hash over values
            snapshot = replace(snapshot, workload=await read_totals(ctx.client, snapshot.workload, self.dialects))
        return snapshot

    async def _hash(self, ctx: Context, snapshot: WorkloadSnapshot) -> list[str]:
        """Have incomplete sources hashed in the forms they are compared in; returns which cannot be read, and why.

        A source that is newer by now comes by the watch, in these forms.
        """
        problems = []
        for ref in sorted(snapshot.incomplete):
            try:
                await self.shared.forms.read(ctx.client, ref, snapshot.sources[ref], self.source_transform)
            except Forbidden as error:
                name = ref.seen_from(snapshot.workload.namespace)
                problems.append(f"{name} cannot be read, which its comparison rules need: {error}")
        return problems

    async def _report_unread(self, ctx: Context, snapshot: WorkloadSnapshot, problems: Iterable[str]) -> None:
        """Not all sources can be read: conclude nothing."""
        workload = snapshot.workload
        self.coordinator.record_nothing(workload)
        notices = [Notice("SourceUnreadable", problem) for problem in problems]
        if notices:
            await self._report_notices(ctx, workload, notices, self.tracker.observed(workload))

    # -- apply ---------------------------------------------------------------------------------------------------------

    async def _confirm(self, ctx: Context, evaluation: Evaluation, *, is_blocked: bool) -> None:
        """End the pass unless the plan may be applied now: its sources are current, and the hook has answered."""
        workload, plan, hook = evaluation.workload, evaluation.plan, self.shared.hook
        if plan.action is Action.ASK and hook is not None:
            await hook.ask(evaluation, ctx.clock)
            raise self._again(workload)  # by now a freeze or a limit may block it
        if not is_blocked and not await self._is_current(ctx, evaluation):
            self.coordinator.record_nothing(workload)
            raise PassEnded(requeue(after=UNREAD_SECONDS))  # the watch brings what is newer, and another pass
        if hook is not None and (plan.action in APPLYING or plan.gate == "hook"):
            hook.forget(workload.metadata.uid)

    async def _is_current(self, ctx: Context, evaluation: Evaluation) -> bool:
        """Whether the sources that a plan acts on are what the API server has; asked unless we wrote the state."""
        plan, sources = evaluation.plan, evaluation.sources
        if plan.action not in APPLYING or self.tracker.is_ours(evaluation.workload):
            return True
        for ref in sorted({change.source for change in plan.changes} & sources.keys()):
            with suppress(Forbidden):  # then the watch is all there is
                if not await self.shared.forms.confirm(ctx.client, ref, sources[ref], ctx.clock.monotonic()):
                    return False
        return True

    async def _apply(self, ctx: Context, evaluation: Evaluation) -> bool:
        """Do what the plan says; returns whether anything was written. A rejected write ends the pass."""
        workload = evaluation.workload
        await self._check_keys(ctx, evaluation)
        self._remember(evaluation)
        try:
            written = await self._write(ctx, evaluation)
        except NotFound:
            await self.gone(ctx, workload.ref)
            raise PassEnded(done) from None
        except Conflict:
            self._count("conflicts")
            self._refresh(ctx, workload)
            self.coordinator.mark([workload_id(workload)])  # it has not restarted, and is evaluated again
            raise PassEnded(requeue()) from None
        except KubeError as error:
            self.shared.pending.evaluated(evaluation)
            for listener in self.shared.listeners:
                listener.failed(evaluation, error)
            if isinstance(error, REJECTED):
                raise PassEnded(self._report_rejected(ctx, evaluation, error)) from None
            self.coordinator.mark([workload_id(workload)])
            raise
        self._notify_listeners(evaluation, written=written)
        if self.shared.metrics is not None:
            self.shared.metrics.evaluated(self.rule.kind.kind, evaluation.plan, written=written)
        announce(ctx, evaluation)
        return written

    async def _write(self, ctx: Context, evaluation: Evaluation) -> bool:
        """Call pods, recreate a Job or patch the workload, as the plan asks."""
        workload, plan, seen = evaluation.workload, evaluation.plan, None
        if plan.action is Action.CALL:
            await self._call(ctx, evaluation)
        restarts = plan.action is Action.RESTART
        try:
            hashed = await read_totals(ctx.client, workload, self.dialects) if restarts else workload
            marks = self.marks(evaluation, ctx.clock.time(), hashed)
            if restarts and self.rule.restart == RECREATE:
                await self._recreate(ctx, evaluation, marks)
            else:
                if restarts and self.rule.restart == RUN:
                    await run_now(ctx, workload, plan, marks)
                seen = await self._patch(ctx, evaluation, marks)
        except BaseException:
            self.rollouts.release(workload_id(workload))
            raise
        if plan.action in UNDER_WAY:  # the cache shows the answer as it keeps it
            goes_on = seen is not None and plan.action is not Action.CALL
            self.coordinator.restarted(
                workload_id(workload), ctx.cache[self._target].get(workload.ref) if goes_on else None
            )
        return restarts or seen is not None

    async def _patch(self, ctx: Context, evaluation: Evaluation, marks: CompatAnnotations) -> Workload | None:
        """Patch the workload; of a kind that restarts without a patch, only if that is allowed."""
        if not self._records:
            return None
        try:
            return await apply_plan(ctx, self.rule, evaluation.workload, evaluation.plan, marks=marks)
        except Forbidden as error:
            if not self.rule.restarts_without_patch:
                raise
            self._records = False
            ctx.log.info("what is applied is kept in memory", kind=self.rule.kind.kind, why=str(error))
            return None

    async def _recreate(self, ctx: Context, evaluation: Evaluation, marks: CompatAnnotations) -> None:
        """Begin to recreate a Job; the stand-in goes on as soon as it is seen."""
        await begin(ctx, evaluation.workload, evaluation.plan, marks=marks, marked=self._marked)
        self._refresh(ctx, evaluation.workload)

    def _refresh(self, ctx: Context, workload: Workload) -> None:
        """Have the workloads of the namespace listed, where no watch brings what is newer."""
        if (watched := ctx.cache.watched(self._target)) is not None:
            watched.informer.refresh(workload.namespace)

    async def _call(self, ctx: Context, evaluation: Evaluation) -> None:
        """Call every pod; ends the pass when one does not accept the call, or when too many calls are in progress.

        The claim of the rollout stays: the call is tried again, and others wait for it until its deadline.
        """
        if self._calling >= CALLS_AT_ONCE:
            raise PassEnded(requeue(after=CALL_AGAIN_SECONDS))
        workload, plan = evaluation.workload, evaluation.plan
        self._calling += 1
        try:
            calls = await call_workload(ctx, workload, evaluation.policy.action)
        finally:
            self._calling -= 1
        cause = describe(plan.changes, workload.namespace)
        if not calls.succeeded:
            waits = f"for its pods: {calls}" if calls.unknown else f"for its pods to accept the call: {calls}"
            self.rollouts.set_waiting(workload_id(workload), waits)
            notices = [*notices_of(evaluation), Notice("ReloadCallFailed", f"for {cause}: {calls}")]
            await self._report_notices(ctx, workload, notices, plan.observed)
            raise PassEnded(requeue(after=CALL_AGAIN_SECONDS))
        if not ctx.dry_run:  # in a dry run the runtime's guard has logged the calls that it withheld
            ctx.log.info("pods called", workload=workload.title, sources=cause, pods=len(calls.called))
            ctx.event(workload, "Reloaded", f"for {cause}: {calls}")

    def marks(self, evaluation: Evaluation, now: float, hashed: Workload | None = None) -> CompatAnnotations:
        """What the originals of the dialects would have written; `hashed`: the workload with hashes over values."""
        edges, plan = evaluation.edges, evaluation.plan
        if not edges.tracked:
            return CompatAnnotations()
        restart_at = now if plan.action is Action.RESTART else None
        is_pending = plan.action in (Action.RESTART, Action.WAIT)
        changed = {change.source for change in plan.changes} if is_pending else set()
        workload = hashed or evaluation.workload
        found = [
            dialect.marks(workload, edges.tracked, evaluation.sources, changed=changed, restart_at=restart_at)
            for dialect in self.dialects
        ]
        return CompatAnnotations(
            metadata={name: value for marks in found for name, value in marks.metadata.items()},
            template={name: value for marks in found for name, value in marks.template.items()},
            paused=any(marks.paused for marks in found),
            by_time=any(marks.by_time for marks in found),
            variables=tuple(variable for marks in found for variable in marks.variables),
        )

    async def _check_keys(self, ctx: Context, evaluation: Evaluation) -> None:
        """End the pass unless the keys of digests are stored before a state names them, and none was added since."""
        if evaluation.plan.state is None:
            return
        keys, workload = self.shared.keys, evaluation.workload
        applied = None if evaluation.keys.unreadable else read_state(workload.annotations.get(APPLIED)).applied
        unknown = unknown_keys(applied, evaluation.keys)
        if not await keys.are_lost(ctx.client, unknown) or not await keys.store(ctx.client):
            raise self._again(workload)

    def _remember(self, evaluation: Evaluation) -> None:
        ref, plan = evaluation.workload.ref, evaluation.plan
        if plan.state is not None:  # before it is written: the watch may be faster than the answer
            self.tracker.wrote(ref, write_state(plan.state))
        if evaluation.edges.tracked:
            self.tracker.keep(ref, plan.observed)
        else:
            self.tracker.leave(ref)

    async def _continue_recreation(self, ctx: Context, workload: Workload, *, is_blocked: bool) -> None:
        """End the pass for a Job that stands in for another one, or that a CronJob controls."""
        intent = intent_of(workload)
        if intent is not None:
            raise PassEnded(
                requeue(after=BLOCKED_SECONDS)
                if is_blocked
                else await carry_on(ctx, workload, intent, marked=self._marked)
            )
        if workload.controller is not None:
            raise PassEnded(done)  # it ends with the configuration it began with

    # -- observe -------------------------------------------------------------------------------------------------------

    async def _continue_eviction(self, ctx: Context, evaluation: Evaluation) -> EvictionProgress:
        """The next step of an eviction, if there is one."""
        if evaluation.plan.action is Action.EVICT:
            return EvictionProgress(after_seconds=POLL_SECONDS)  # it has just been decided
        progress = await continue_eviction(ctx, evaluation.workload)
        if progress is None:
            return EvictionProgress()
        if progress.waits:
            evicted_at = ctx.clock.time() if progress.evicted else None
            self.rollouts.set_waiting(workload_id(evaluation.workload), progress.waits, evicted_at)
        return progress

    async def _resume(self, ctx: Context, workload: Workload) -> float | None:
        """Resume a Deployment whose pause is over; returns when to come back, in seconds since the epoch.

        When it was paused is written on it, so a process that starts later resumes it as well.
        """
        live = ctx.cache[self._target].get(workload.ref) or workload  # as this pass left it
        pause = next((pause for dialect in self.dialects if (pause := dialect.pause(live)) is not None), None)
        now = ctx.clock.time()
        if pause is None or pause.until > now:
            return None if pause is None else pause.until
        meta = live.metadata
        names = {"uid": meta.uid, "resourceVersion": meta.resource_version, "annotations": {pause.annotation: None}}
        try:
            await ctx.patch(live, {"metadata": names, "spec": {"paused": False}})
        except NotFound:
            return None
        except Conflict:
            self._refresh(ctx, live)
            return now + NEWER_SECONDS
        ctx.log.info("resumed", workload=live.title)
        return None

    async def _observe_rollout(self, ctx: Context, workload: Workload) -> float | None:
        """Report how the last restart ended; returns when to observe it again, in seconds since the epoch."""
        me, moment = workload_id(workload), self.coordinator.moment(ctx.clock)
        rollout = self.rollouts.get(me)
        if rollout is None or not rollout.stamp:
            self.shared.pod_reads.leave(me)
            return None
        asks_pods = self.options.ask_pods and not rollout.evicts
        if asks_pods and rollout.phase(moment.wall) is Phase.PROGRESSING and moment.wall >= rollout.pods_due:
            wait = await self._read_pods(ctx, workload, rollout, moment)
            if wait:
                return min(moment.wall + wait, rollout.expires)
        now = self.coordinator.moment(ctx.clock).wall
        ended = self.rollouts.outcome(me, now)
        if ended is not None:
            phase, seconds, reason = ended.phase(now), round(now - ended.began), ended.reason(now)
            if self.shared.metrics is not None:
                self.shared.metrics.ended(self.rule.kind.kind, phase.value, seconds)
            if phase is Phase.FAILED:
                ctx.log.warning("rollout failed", workload=workload.title, sources=ended.cause, reason=reason)
                ctx.event(workload, "RolloutFailed", f"the restart for {ended.cause} failed: {reason}", warning=True)
            else:
                ctx.log.info("rollout available", workload=workload.title, sources=ended.cause, seconds=seconds)
            self.coordinator.wake()
        rollout = self.rollouts.get(me)
        if rollout is None or rollout.phase(now) is not Phase.PROGRESSING:
            self.shared.pod_reads.leave(me)
            return None
        return min(rollout.pods_due, rollout.expires) if asks_pods else rollout.expires

    async def _read_pods(self, ctx: Context, workload: Workload, rollout: TrackedRollout, now: Moment) -> float:
        """Find out why a slow rollout does not end; returns how many seconds to wait for the turn to read its pods.

        The workload's own status, which the watch brings anyway, says whether anything moved: while it is what it was
        at the last read, pods are not read.
        """
        me, version = workload_id(workload), workload.metadata.resource_version
        if version != rollout.pods_version:
            if wait := self.shared.pod_reads.wait(me, now.tick):
                return wait
            self.rollouts.set_issue(me, await issue_of(ctx.client, workload, rollout.stamp))
        self.rollouts.set_pods_read(me, now.wall, version)
        return 0.0

    # -- report --------------------------------------------------------------------------------------------------------

    async def _report(
        self,
        ctx: Context,
        evaluation: Evaluation,
        eviction: EvictionProgress,
        dues: Iterable[float | None],
        *,
        written: bool,
    ) -> Result:
        """Record what is new, remember the rest, and say when to come again."""
        workload, plan = evaluation.workload, evaluation.plan
        notices = [*notices_of(evaluation), *eviction.notices]
        if evaluation.edges.tracked or notices:
            flapping = plan.changes if plan.gate == "budget" else ()
            is_under_way = bool(plan.changes) or eviction.after_seconds is not None
            remembered = plan.remembered(written=written or not self._records, recorded=self._records)
            await self._report_notices(ctx, workload, notices, remembered, flapping, is_under_way=is_under_way)
        now = self.coordinator.moment(ctx.clock)
        eviction_due = None if eviction.after_seconds is None else now.wall + eviction.after_seconds
        dependencies_due = self.coordinator.in_doubt(workload_id(workload), evaluation.policy, now)
        return _requeue_at(plan.due, eviction_due, *dues, dependencies_due, now=now.wall)

    async def _report_notices(
        self,
        ctx: Context,
        workload: Workload,
        notices: Sequence[Notice],
        observed: Observed,
        flapping: Sequence[SourceChange] = (),
        *,
        is_under_way: bool = True,
    ) -> None:
        for notice in notices:
            if notice.reason == MISCONFIGURED and notice.message not in observed.reported:
                self._count("problems")
        kept = await report_notices(ctx, workload, notices, observed, flapping, is_under_way=is_under_way)
        self.tracker.keep(workload.ref, kept)

    def _report_blocked(self, ctx: Context, evaluation: Evaluation) -> Result:
        """Another controller acts: remember, write nothing, and check again whether that is still so."""
        plan, ref = evaluation.plan, evaluation.workload.ref
        if evaluation.edges.tracked:
            self.tracker.keep(ref, plan.remembered_in_shadow() if self.shared.guard.shadow else plan.observed)
        else:
            self.tracker.leave(ref)
        self._notify_listeners(evaluation, written=False)
        writes = plan.action in (Action.SEED, Action.FORGET, *APPLYING)
        return requeue(after=BLOCKED_SECONDS) if writes else _requeue_at(plan.due, now=ctx.clock.time())

    def _report_rejected(self, ctx: Context, evaluation: Evaluation, error: KubeError) -> Result:
        """The API server rejected the write: try again after a long while, or when something changes."""
        self._count("refusals")
        workload, observed = evaluation.workload, evaluation.plan.observed
        fields = ", ".join(cause.field for cause in error.causes if cause.field)
        message = f"the API server rejected the restart{f' ({fields})' if fields else ''}: {error.message}"
        reported = observed.reported
        if message not in reported:
            reported = (*reported, message)
            ctx.event(workload, "RestartRefused", message, warning=True)
        first, most = REJECTED_SECONDS
        result = slow_retry(observed.refusals, first_seconds=first, limit_seconds=most)
        ctx.log.warning("patch rejected", workload=workload.title, error=str(error), retry_seconds=result.after_seconds)
        self.tracker.keep(workload.ref, replace(observed, refusals=observed.refusals + 1, reported=reported))
        return result

    def _notify_listeners(self, evaluation: Evaluation, *, written: bool) -> None:
        self.shared.pending.evaluated(evaluation)
        for listener in self.shared.listeners:
            listener.evaluated(evaluation, written=written)

    def _again(self, workload: Workload) -> PassEnded:
        """Evaluate again at once, the cluster as it is by then; until then nothing is concluded about the workload."""
        self.coordinator.mark([workload_id(workload)])
        return PassEnded(requeue(after=AT_ONCE))

    def _request_all(self) -> None:
        """Reconcile every enrolled workload: its state is to be rewritten with another key."""
        for ref in self.tracker.known():
            self.requests.send(ref)

    def _request_users(self, names: Iterable[str]) -> None:
        for ref in self.tracker.interested_in(names):
            self.requests.send(ref)

    def _count(self, series: str) -> None:
        if self.shared.metrics is not None:
            getattr(self.shared.metrics, series).labels(self.rule.kind.kind).inc()


class PassEnded(Exception):  # noqa: N818  a step of a pass ends it, which is not an error
    """The pass over a workload ends before its last step."""

    def __init__(self, result: Result) -> None:
        super().__init__()
        self.result = result


def _requeue_at(*times: float | None, now: float) -> Result:
    """Reconcile again at the earliest of these times; without one, when something changes."""
    due = min((time for time in times if time is not None), default=None)
    return done if due is None else requeue(after=max(AT_ONCE, due - now))
