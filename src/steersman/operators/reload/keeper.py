"""The keeper of the workloads of one kind: looks at each, plans, carries out, and tells people.

A look reads one snapshot and makes a plan; the plan is carried out; people are told. What waits is looked at again when
it is due. Nothing is read from the server to decide: a change costs one patch per workload it restarts. Only a source
that is compared in a form for the first time is read once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from steersman.cache.identity import ref_of
from steersman.kube.errors import BadRequest, Conflict, Forbidden, Invalid, KubeError, NotFound
from steersman.operators.reload.apply import carry_out, describe
from steersman.operators.reload.dialect import Marks
from steersman.operators.reload.digest import source_transform
from steersman.operators.reload.flapping import diagnose
from steersman.operators.reload.fleet import Fleet
from steersman.operators.reload.following import Follower
from steersman.operators.reload.forms import Forms
from steersman.operators.reload.gates import Moment
from steersman.operators.reload.kinds import RECREATE, KindRule, kind_words
from steersman.operators.reload.ledger import Ledger
from steersman.operators.reload.look import NamespaceSettings, interests_in, look_at
from steersman.operators.reload.oversight import Oversight
from steersman.operators.reload.plan import APPLYING, UNDER_WAY, Action
from steersman.operators.reload.podkeeper import CALL_AGAIN_SECONDS, PodKeeper
from steersman.operators.reload.policybook import PolicyBook
from steersman.operators.reload.providers import status_transform
from steersman.operators.reload.reach import Reach
from steersman.operators.reload.recreate import begin, carry_on, intent_of
from steersman.operators.reload.state import write_state
from steersman.operators.reload.telling import REASONS, note_on, refusal_delay
from steersman.operators.reload.totals import read_totals
from steersman.operators.reload.types import (
    APPLIED,
    NATIVE_ANNOTATIONS,
    Options,
    SourceKind,
    WorkloadId,
)
from steersman.operators.reload.workloads import Workload, workload_class, workload_id, workload_transform
from steersman.runtime.channel import Channel
from steersman.runtime.result import Result, done, requeue

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.kube.resources import ObjectRef
    from steersman.operators.reload.dialect import Dialect
    from steersman.operators.reload.digest import Source
    from steersman.operators.reload.ledger import Observed
    from steersman.operators.reload.look import Look
    from steersman.operators.reload.metrics import ReloadMetrics
    from steersman.operators.reload.policies import ClusterReloadPolicy, ReloadPolicy
    from steersman.runtime.context import Context

__all__ = ["WorkloadKeeper", "kept_annotations"]

REFUSED: Final = (Invalid, Forbidden, BadRequest)  # trying again soon is of no use
UNREAD_SECONDS: Final = 30.0  # until a look that could not see its sources comes again by itself
AT_ONCE: Final = 0.001
NEWER_SECONDS: Final = 1.0  # until the watch should have brought a source that is newer on the server than here
HELD_SECONDS: Final = 5.0  # between two looks at what we would do if nobody else did


def kept_annotations(dialects: Iterable[Dialect]) -> frozenset[str]:
    """The annotations that mean something to us or to a dialect; no other is kept in memory."""
    return NATIVE_ANNOTATIONS.union(*(dialect.annotations for dialect in dialects))


class WorkloadKeeper:
    """Keeps the workloads of one kind at what their sources say."""

    def __init__(
        self,
        rule: KindRule,
        options: Options,
        dialects: Sequence[Dialect] = (),
        metrics: ReloadMetrics | None = None,
        oversight: Oversight | None = None,
        fleet: Fleet | None = None,
        policies: PolicyBook | None = None,
        forms: Forms | None = None,
        *,
        providers: bool = False,
    ) -> None:
        self.rule = rule
        self.options = options
        self.dialects = tuple(dialects)
        self.reach = Reach(rule.kind.plural, options.names)
        self.ledger = Ledger(sees=self.reach.sees)
        self.metrics = metrics
        self.fleet = fleet or Fleet()
        self.follower = Follower(self.fleet, metrics, ask_pods=options.ask_pods)
        self.policies = policies or PolicyBook()
        self.forms = forms or Forms()
        hashes = tuple(one for dialect in dialects for one in dialect.hashes)
        self.source_transform = source_transform(
            kept_annotations(dialects), hashes, options.features.compare, self.forms
        )
        self.status_transform = status_transform(hashes)
        self.pods = PodKeeper(self.fleet.rollouts)
        self.news = Channel()
        self.fleet.wakers[rule.kind.kind] = self.news.send
        self.transform = workload_transform(rule, kept_annotations(dialects), kind_words(options.kinds))
        self._target = workload_class(rule.kind)
        self.oversight = oversight or Oversight()
        self.oversight.ledgers[f"reload-{rule.kind.plural}"] = self.ledger
        watched = {
            SourceKind.CONFIGMAP: options.watch_configmaps,
            SourceKind.SECRET: options.watch_secrets,
            SourceKind.PROVIDER_CLASS: providers,
        }
        self.source_kinds = frozenset(kind for kind, wanted in watched.items() if wanted)
        if metrics is not None:
            metrics.watch(rule.kind.kind, self.ledger)

    # -- whose keys a change touches ---------------------------------------------------------------------------------

    def workload_changed(self, old: Workload | None, new: Workload | None) -> bool:
        """Whether a change of a workload matters: to its own look, or because its rollout ended."""
        matters = self.ledger.workload_changed(old, new)
        if new is None:
            return matters
        fresh = old is None or old.metadata.uid != new.metadata.uid
        return self.fleet.saw(workload_id(new), new, fresh=fresh) or matters

    def users_of(self, obj: Source | Workload) -> Iterable[ObjectRef]:
        """The workloads whose last look asked for this object."""
        users = self.ledger.interested_in(interests_in(obj))
        touched = (WorkloadId(self.rule.kind.kind, user.namespace, user.name) for user in users)
        self.fleet.touched(touched, None if isinstance(obj, Workload) else obj.source)
        return users

    def members_of(self, obj: NamespaceSettings | ReloadPolicy, cache: Any) -> Iterable[ObjectRef]:
        """All workloads of a namespace, given itself or a policy in it."""
        return [ref_of(workload) for workload in cache[self._target].list(namespace=obj.namespace or obj.name)]

    def everyone(self, _policy: ClusterReloadPolicy, cache: Any) -> Iterable[ObjectRef]:
        """All workloads."""
        return [ref_of(workload) for workload in cache[self._target].list()]

    # -- a look, and what follows from it ------------------------------------------------------------------------------

    async def reconcile(self, ctx: Context, workload: Workload) -> Result:
        """Look, plan, carry out, tell; whatever comes of it, nobody waits for this look any longer."""
        me = workload_id(workload)
        mark = self.fleet.mark_of(me)
        try:
            return await self._reconcile(ctx, workload)
        finally:
            self.fleet.settled(me, mark)

    async def _reconcile(self, ctx: Context, workload: Workload) -> Result:
        await self.oversight.opened()
        held = self.oversight.held(workload.namespace)
        if self.rule.restart == RECREATE:
            intent = intent_of(workload)
            if intent is not None:
                return requeue(after=HELD_SECONDS) if held else await carry_on(ctx, workload, intent)
            if workload.controller is not None:
                return done  # a CronJob's own, which ends with what it began with
        self.reach.connect(ctx.cache, self.source_kinds, self._wake)
        self.ledger.live = True
        now = _moment(ctx)
        look = self.look(workload, ctx.cache, now)
        self.ledger.set_interests(workload.ref, look.interests)
        unread = self.reach.read(workload.ref, look.interests)  # before anything is waited for: it is about now
        if unread:
            return await self._blind(ctx, look, () if held else unread.problems)
        self.forms.want((self.rule.kind.plural, workload.ref), look.ways)
        problems: list[str] = []
        if look.lacking:
            problems = await self._read_again(ctx, look)
            look = self.look(workload, ctx.cache, now)
        if APPLIED not in workload.annotations:
            whole = await read_totals(ctx.client, workload, self.dialects)
            if whole is not workload:
                workload, look = whole, self.look(whole, ctx.cache, now)
        if look.lacking:  # what was read may be superseded by now
            await self._blind(ctx, look, () if held else problems)
            return requeue(after=UNREAD_SECONDS if problems else NEWER_SECONDS)
        if self.oversight.judge is not None:
            verdict = self.oversight.judge.verdict(look, now.wall)
            if verdict is None:
                await self.oversight.judge.ask(look, ctx.clock)
                return self._once_more(workload)  # a freeze or a limit may stand against it by now
            look = verdict
        self.follower.looked(look, now, acts=not held)
        return self._only_watch(ctx, look) if held else await self._act(ctx, look, workload)

    async def _act(self, ctx: Context, look: Look, workload: Workload) -> Result:
        """Carry out what the look found, and tell."""
        look = self.oversight.prepared(look)
        self._remember(look)
        try:
            written = await self._write(ctx, look, workload)
        except NotFound:
            await self.gone(ctx, workload.ref)
            return done
        except Conflict:
            self._count("conflicts")
            self.fleet.touched([workload_id(workload)])  # it has not gone yet, and is looked at again
            return requeue()
        except KubeError as error:
            self.oversight.failed(look, error)
            if not isinstance(error, REFUSED):
                self.fleet.touched([workload_id(workload)])
                raise
            return self._refused(ctx, look, error)
        if written is None:
            return requeue(after=CALL_AGAIN_SECONDS)
        await self._carried_out(ctx, look, written)
        soon = await self.pods.carry_on(ctx, look)
        followed, now = await self.follower.follow(ctx, look), _moment(ctx)
        doubt = self.fleet.in_doubt(workload_id(workload), look.policy, now)
        return _again(look.plan.due, soon, followed, doubt, now=now.wall)

    def _once_more(self, workload: Workload) -> Result:
        """Look again at once, at the cluster as it is by then; until then nobody concludes anything about it."""
        self.fleet.touched([workload_id(workload)])
        return requeue(after=AT_ONCE)

    def look(self, workload: Workload, cache: Any, now: Moment) -> Look:
        """What the snapshots in `cache` say about `workload`."""
        return look_at(
            workload,
            cache,
            options=self.oversight.hurried(self.options),
            ledger=self.ledger,
            now=now,
            kinds=self.source_kinds,
            dialects=self.dialects,
            company=self.fleet,
            policies=self.policies,
            forms=self.forms,
            namespaces=self.options.namespaces is None and self.options.watch_namespaces,
        )

    def marks(self, look: Look, now: float) -> Marks:
        """What the originals of the dialects would have written; nothing on a workload that takes no part."""
        if not look.edges.tracked:
            return Marks()
        restart_at = now if look.plan.action is Action.RESTART else None
        waits = look.plan.action in (Action.RESTART, Action.WAIT)
        changed = {change.source for change in look.plan.changes} if waits else set()
        all_of_them = [
            dialect.marks(look.workload, look.edges.tracked, look.sources, changed=changed, restart_at=restart_at)
            for dialect in self.dialects
        ]
        return Marks(
            metadata={name: value for marks in all_of_them for name, value in marks.metadata.items()},
            template={name: value for marks in all_of_them for name, value in marks.template.items()},
            by_time=any(marks.by_time for marks in all_of_them),
            variables=tuple(variable for marks in all_of_them for variable in marks.variables),
        )

    async def gone(self, _ctx: Context, key: ObjectRef) -> None:
        """The workload no longer exists."""
        self.ledger.forget(key)
        self.reach.gone(key)
        self.forms.want((self.rule.kind.plural, key), {})
        self.fleet.gone(WorkloadId(self.rule.kind.kind, key.namespace, key.name))

    # -- the machinery -------------------------------------------------------------------------------------------------

    async def _write(self, ctx: Context, look: Look, workload: Workload) -> bool | None:
        """Carry the plan out; returns whether there was anything to write, None when pods did not take a call.

        The claim of a call that was not taken stays: it is tried again, and others wait for it until its deadline.
        """
        restarts = look.plan.action is Action.RESTART
        if look.plan.action is Action.CALL and not await self.pods.call(ctx, look):
            return None
        try:
            seen = None
            if self.rule.restart == RECREATE and restarts:
                await begin(ctx, workload, look.plan)
            else:
                if restarts:
                    look = replace(look, workload=await read_totals(ctx.client, look.workload, self.dialects))
                marks = self.marks(look, ctx.clock.time())
                seen = await carry_out(ctx, self.rule, workload, look.plan, marks=marks)
        except BaseException:
            self.follower.not_made(look)
            raise
        if look.plan.action in UNDER_WAY:  # the cache shows the answer as it keeps it
            goes_on = seen is not None and look.plan.action is not Action.CALL
            self.follower.made(look, ctx.cache[self._target].get(workload.ref) if goes_on else None)
        return restarts or seen is not None

    def _wake(self, names: Iterable[str]) -> None:
        for user in self.ledger.interested_in(names):
            self.news.send(user)

    async def _read_again(self, ctx: Context, look: Look) -> list[str]:
        """Have the sources hashed in the forms that a look lacks; returns which of them cannot be read, and why.

        One that is newer by now comes by the watch, in these forms.
        """
        problems = []
        for source in sorted(look.lacking):
            try:
                await self.forms.read(ctx.client, source, look.sources[source], self.source_transform)
            except Forbidden as error:
                name = source.seen_from(look.workload.namespace)
                problems.append(f"{name} cannot be read, which it takes to compare it in another way: {error}")
        return problems

    def _remember(self, look: Look) -> None:
        if look.plan.state is not None:  # before it is written: the watch may be faster than the answer
            self.ledger.wrote(look.workload.ref, write_state(look.plan.state))
        if look.edges.tracked:
            self.ledger.keep(look.workload.ref, look.plan.observed)
        else:
            self.ledger.leave(look.workload.ref)

    async def _blind(self, ctx: Context, look: Look, problems: Sequence[str]) -> Result:
        """Not everything could be seen that matters: conclude nothing, and come again when it can."""
        workload = look.workload
        self.fleet.looked(workload_id(workload), workload.ref, None)
        if problems:
            news = [("SourceUnreadable", problem) for problem in problems]
            self.ledger.keep(workload.ref, await self._tell(ctx, look, news, self.ledger.observed(workload)))
        return requeue(after=UNREAD_SECONDS)

    def _only_watch(self, ctx: Context, look: Look) -> Result:
        """Somebody else acts: decide, write nothing, and ask again whether that is still so."""
        plan, ref = look.plan, look.workload.ref
        if not look.edges.tracked:
            self.ledger.leave(ref)
        else:
            self.ledger.keep(ref, self.oversight.pretended(plan))
        self.oversight.looked(look, written=False)
        writes = plan.action in (Action.SEED, Action.FORGET, *APPLYING)
        return requeue(after=HELD_SECONDS) if writes else _again(plan.due, now=ctx.clock.time())

    async def _carried_out(self, ctx: Context, look: Look, written: bool) -> None:
        plan, observed = look.plan, look.plan.remembered(written=written)
        self.oversight.looked(look, written=written)
        if self.metrics is not None:
            self.metrics.looked(self.rule.kind.kind, plan, written=written)
        if plan.action is Action.RESTART:
            told = describe(plan.changes, look.workload.namespace)
            note = note_on(look.workload)
            ctx.log.info("workload restarted", workload=look.workload.title, sources=told)
            ctx.event(look.workload, "Restarted", f"restarted for {told}{note}")
        if plan.action is Action.TRACK:
            told = describe(plan.changes, look.workload.namespace)
            ctx.event(look.workload, "SourcesChanged", f"{told} changed; nothing is done ({plan.reason})")
        elif plan.action is Action.EVICT:
            told = describe(plan.changes, look.workload.namespace)
            ctx.event(look.workload, "Evicting", f"pods are replaced one by one for {told}")
        news = [("ReloadMisconfigured", problem) for problem in plan.problems]
        if plan.action is Action.WAIT and plan.gate in REASONS:
            told = describe(plan.changes, look.workload.namespace)
            news.append((REASONS[plan.gate], f"the restart for {told} waits: {plan.reason}"))
        if look.edges.tracked or news:
            self.ledger.keep(look.workload.ref, await self._tell(ctx, look, news, observed))

    async def _tell(self, ctx: Context, look: Look, news: Sequence[tuple[str, str]], observed: Observed) -> Observed:
        """Tell people what is wrong or held back, once for as long as it stays the same."""
        plan = look.plan
        for reason, message in news:
            if message in observed.reported:
                continue
            if reason == "ReloadMisconfigured":
                self._count("problems")
            cause = ""
            if plan.gate == "budget" and reason == REASONS["budget"]:
                cause = await diagnose(ctx.client, plan.changes, look.workload.namespace)
            ctx.event(look.workload, reason, f"{message}; {cause}" if cause else message, warning=True)
            ctx.log.warning("told", workload=look.workload.title, reason=reason, message=message, cause=cause)
        return replace(observed, reported=tuple(message for _, message in news))

    def _refused(self, ctx: Context, look: Look, error: KubeError) -> Result:
        """The server will not have it: tell people, and try again after a long while or when something changes."""
        self._count("refusals")
        observed = look.plan.observed
        wait = refusal_delay(observed.refusals)
        fields = ", ".join(cause.field for cause in error.causes if cause.field)
        message = f"the server refused to restart it{f' ({fields})' if fields else ''}: {error.message}"
        if message not in observed.reported:
            ctx.event(look.workload, "RestartRefused", message, warning=True)
        ctx.log.warning("patch refused", workload=look.workload.title, error=str(error), retry_seconds=wait)
        told = (*observed.reported, message) if message not in observed.reported else observed.reported
        self.ledger.keep(look.workload.ref, replace(observed, refusals=observed.refusals + 1, reported=told))
        return requeue(after=wait)

    def _count(self, series: str) -> None:
        if self.metrics is not None:
            getattr(self.metrics, series).labels(self.rule.kind.kind).inc()


def _moment(ctx: Context) -> Moment:
    return Moment(wall=ctx.clock.time(), tick=ctx.clock.monotonic())


def _again(*times: float | None, now: float) -> Result:
    """When to look again: at the earliest of these; what has no time comes by a change, which brings its own look."""
    due = min((time for time in times if time is not None), default=None)
    return done if due is None else requeue(after=max(AT_ONCE, due - now))
