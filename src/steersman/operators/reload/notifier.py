"""The notifier: gathers what belongs to one change, waits for its outcome, and delivers one message about it.

It listens to the controllers and asks the fleet how rollouts go; it never holds anything up. A message is tried several
times and then given up, counted; what waits is bounded.

    restart ──► group ──all ended──► outbox of each receiver ──delivered or given up──► mark

The mark says up to when everything has been told, and outlives the process (`steersman.operators.reload.told`).
Restarts after it that the history of a workload names, and that this process did not make, are told by it. So each
restart is told at least once, whoever dies when, and twice only when a process died between delivery and mark. Nothing
is restarted before there is a mark. Without a Lease there is none, and what is not delivered when the process ends is
not told later.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import aiohttp
import structlog
from msgspec.structs import replace
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import ConfigError
from steersman.kube.durations import parse_duration
from steersman.kube.errors import KubeError
from steersman.operators.reload.fleet import SOFT
from steersman.operators.reload.notices import Member, Notice, body_of, check_template
from steersman.operators.reload.plan import APPLIED_BY, APPLYING, Action
from steersman.operators.reload.progress import Phase
from steersman.operators.reload.state import Applied, read_state
from steersman.operators.reload.told import Account, LeaseMark, changes_in
from steersman.operators.reload.types import APPLIED
from steersman.operators.reload.workloads import Workload, workload_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from steersman.cache.contract import Informer
    from steersman.clock import Clock
    from steersman.operators.reload.changes import Change
    from steersman.operators.reload.features import NotifyConfig
    from steersman.operators.reload.fleet import Fleet
    from steersman.operators.reload.look import Look
    from steersman.operators.reload.plan import Plan
    from steersman.operators.reload.state import Past
    from steersman.operators.reload.types import SourceRef, WorkloadId
    from steersman.runtime.cluster import Cluster

__all__ = ["Notifier"]

SETTLE_SECONDS: Final = 5.0  # after the last workload joined: others may follow
LONGEST_SECONDS: Final = 3600.0  # then the message goes out, whatever is still under way
LOOK_SECONDS: Final = 1.0
WAITING: Final = 1000  # messages for one receiver
SAME_SECONDS: Final = 60.0  # between the decision of a restart and its stamp
MOST_REFUSED: Final = 10_000  # workloads of which it is remembered that a refusal was told
NOTHING: Final = Applied()
_ACTIONS: Final = {"none": Action.TRACK.value, "http": Action.CALL.value, "evict": Action.EVICT.value}
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0

log = structlog.get_logger(__name__)


class _Group:
    """What belongs to one change so far."""

    def __init__(self, now: float) -> None:
        self.first = int(now)  # the second of its first restart, as the workload's history has it
        self.began = self.joined = now
        self.changes: dict[tuple[SourceRef, tuple[str, ...]], Change] = {}
        self.members: dict[WorkloadId, Member] = {}
        self.started: dict[WorkloadId, float] = {}

    @property
    def sources(self) -> set[SourceRef]:
        return {source for source, _ in self.changes}

    def notice(self) -> Notice:
        """The message; the same restarts give the same id, so that a receiver knows one that it has already."""
        members = tuple(self.members[name] for name in sorted(self.members))
        names = " ".join([str(self.first), *(str(one.workload) for one in members)])
        return Notice(
            id=str(uuid.uuid5(uuid.NAMESPACE_URL, f"steersman.dev/reload/{names}")),
            at=self.began,
            changes=tuple(sorted(self.changes.values())),
            members=members,
        )


class Notifier:
    """A listener of the controllers, and a task."""

    def __init__(
        self,
        sinks: Sequence[NotifyConfig],
        fleet: Fleet,
        *,
        registry: CollectorRegistry | None = None,
        clock: Clock = SYSTEM_CLOCK,
        lease: str | None = None,
    ) -> None:
        """`lease`: NAMESPACE/NAME of our own, which keeps the mark; None: there is none."""
        registry = REGISTRY if registry is None else registry
        self._sinks = [(sink, _address(sink, place)) for place, sink in enumerate(sinks)]
        self._fleet = fleet
        self._clock = clock
        self._groups: list[_Group] = []
        self._refused: dict[WorkloadId, str] = {}  # what was told of whom the server would not have
        self._lease = lease
        self.account = Account()
        self.ready = asyncio.Event()  # there is a mark: from now on restarts may be made
        if lease is None:
            self.ready.set()
        self._untold: dict[str, tuple[int, int]] = {}  # messages on their way: first second, receivers left
        self._outboxes = [asyncio.Queue[Notice](WAITING) for _ in sinks]  # one that is slow holds up no other
        self.delivered = Counter(
            "steersman_reload_notifications", "Messages about changes.", ["format", "result"], registry=registry
        )
        self.waiting = Gauge(
            "steersman_reload_notifications_waiting", "Messages that wait to be delivered.", registry=registry
        )
        self.waiting.set_function(lambda: float(sum(outbox.qsize() for outbox in self._outboxes)))
        for sink, _ in self._sinks:
            for result in ("delivered", "retried", "failed", "dropped"):
                self.delivered.labels(sink.format, result)

    # -- what the controllers tell ------------------------------------------------------------------------------------

    def begins(self, look: Look) -> Look:
        """A plan is about to be carried out; returns it with its date in the history, later than all that was told."""
        plan, meta = look.plan, look.workload.metadata
        if self._lease is None or plan.action not in APPLYING or plan.state is None or not plan.state.history:
            return look
        past = plan.state.history
        at = self.account.begin(workload_id(look.workload), past, meta.resource_version)
        state = replace(plan.state, history=(*past[:-1], replace(past[-1], at=at)))
        return replace(look, plan=replace(plan, state=state))

    def looked(self, look: Look, *, written: bool) -> None:
        """A plan was carried out."""
        who, plan = workload_id(look.workload), look.plan
        made = written and plan.action in APPLYING
        if made or not plan.changes:
            self._refused.pop(who, None)
        past = (plan.state or plan.observed.applied or NOTHING).history
        if self._lease is not None:
            self._remember(who, past[:-1] if made else past, look.workload.metadata.resource_version)
        if made:
            outcome = "progressing" if plan.action is Action.RESTART else "applied"
            at = past[-1].at if past else int(self._clock.time())
            if self._lease is not None:
                self.account.made(who, at)
            self._join(plan.changes, Member(workload=who, action=plan.action.value, outcome=outcome), at)

    def failed(self, look: Look, error: KubeError) -> None:
        """The server would not have it."""
        who = workload_id(look.workload)
        if 400 <= error.code < 500 and error.code != 408:  # otherwise it may have been made: the workload will show it
            self.account.refused(who)
        if look.plan.action in APPLYING and self._is_news(who, look.plan):
            member = Member(
                workload=who,
                action=look.plan.action.value,
                outcome="failed",
                reason=f"{error.reason}: the server refused the restart",
            )
            self._join(look.plan.changes, member, int(self._clock.time()))

    def _is_news(self, who: WorkloadId, plan: Plan) -> bool:
        """Whether a refusal is the first one of this change: it is tried again for as long as it is pending."""
        state = NOTHING if plan.state is None else plan.state
        wanted = str((plan.changes, sorted((name, one.digest) for name, one in state.sources.items()), state.total))
        if self._refused.get(who) == wanted:
            return False
        if len(self._refused) >= MOST_REFUSED:
            self._refused.pop(next(iter(self._refused)))
        self._refused[who] = wanted
        return True

    def _remember(self, who: WorkloadId, past: tuple[Past, ...], revision: str) -> None:
        """Tell what the process before this one has not told any more."""
        for one in self.account.saw(who, past, revision):
            rollout = self._fleet.rollouts.get(who)
            word, _, reason = one.outcome.partition(": ")
            if word == APPLIED_BY:
                self._join(
                    changes_in(one.told, who.namespace),
                    Member(workload=who, action=_ACTIONS.get(reason, reason), outcome="applied"),
                    one.at,
                )
                continue
            last = one is past[-1] and rollout is not None and abs(rollout.started - one.at) <= SAME_SECONDS
            outcome = "progressing" if last else "failed" if word == "failed" else "available"
            member = Member(workload=who, action="restart", outcome=outcome, reason=reason, seconds=one.seconds)
            self._join(changes_in(one.told, who.namespace), member, one.at)

    def _join(self, changes: Sequence[Change], member: Member, at: int) -> None:
        now = self._clock.time()
        sources = {change.source for change in changes}
        group = next((one for one in self._groups if one.sources & sources), None)
        if group is None:
            group = _Group(now)
            self._groups.append(group)
        group.joined, group.first = now, min(group.first, at)
        group.changes |= {(change.source, change.keys): change for change in changes}
        group.members[member.workload] = member
        group.started[member.workload] = now

    # -- the task ------------------------------------------------------------------------------------------------------

    async def run(self, cluster: Cluster | None = None) -> None:
        """Gather and deliver for ever."""
        mark = None if self._lease is None or cluster is None else LeaseMark(cluster.client, self._lease)
        if mark is not None:
            await self._resume(mark)
        caches = [] if cluster is None else [one for one in cluster.caches if _holds_workloads(one)]
        async with asyncio.TaskGroup() as tasks:
            for place in range(len(self._sinks)):
                tasks.create_task(self._deliver_all(place))
            while True:
                if mark is not None and not self.account.complete and _caught_up(caches, mark.revision):
                    self.sweep(one for cache in caches for one in _workloads(cache))
                self.collect()
                now = self.mark
                if mark is not None and now > (self.account.since or 0) and await mark.write(now):
                    self.account.marked(now)
                await self._clock.sleep(LOOK_SECONDS)

    async def _resume(self, mark: LeaseMark) -> None:
        """Go on where the process before this one ended; where none was, begin with this moment."""
        while not self.ready.is_set():
            try:
                found = await mark.read()
            except KubeError:
                await self._clock.sleep(LOOK_SECONDS)
                continue
            since = self.account.resume(found, self._clock.time())
            while found is None and not await mark.begin(since):
                await self._clock.sleep(LOOK_SECONDS)
            self.ready.set()

    def sweep(self, workloads: Iterable[Workload]) -> None:
        """These are all workloads, as they are since we lead: tell of their past what nobody has told."""
        for one in workloads:
            applied = read_state(one.annotations.get(APPLIED)).applied
            if applied is not None:
                self._remember(workload_id(one), applied.history, one.metadata.resource_version)
        self.account.complete = True

    @property
    def mark(self) -> int:
        """Up to when everything has been told."""
        waiting = [first for first, _ in self._untold.values()] + [group.first for group in self._groups]
        return self.account.next_mark(waiting, self._clock.time())

    def collect(self) -> list[Notice]:
        """Put what has ended into the outbox; returns it."""
        now, ended = self._clock.time(), []
        awaited = self._awaited() if self._groups else set()
        for group in list(self._groups):
            self._follow(group, now)
            open_still = any(one.outcome == "progressing" for one in group.members.values())
            settled = now - group.joined >= SETTLE_SECONDS and not open_still and awaited.isdisjoint(group.sources)
            if settled or now - group.began >= LONGEST_SECONDS:
                self._groups.remove(group)
                notice = group.notice()
                ended.append(notice)
                self.account.told(group.first, group.members)
                self._post(notice, group.first)
        return ended

    def _follow(self, group: _Group, now: float) -> None:
        for who, member in group.members.items():
            if member.outcome != "progressing":
                continue
            rollout = self._fleet.rollouts.get(who)
            phase = Phase.AVAILABLE if rollout is None else rollout.phase(now)
            if phase is Phase.PROGRESSING:
                continue
            reason = "" if rollout is None else rollout.reason(now)
            seconds = round(now - group.started[who])
            group.members[who] = Member(
                workload=who, action=member.action, outcome=phase.value, reason=reason, seconds=seconds
            )

    def _awaited(self) -> set[SourceRef]:
        """The sources of changes for which somebody will soon be restarted, and is still to come."""
        return {
            change.source
            for _, standing in self._fleet.standings()
            if standing.gate in SOFT
            for change in standing.changes
        }

    def _post(self, notice: Notice, first: int) -> None:
        receivers = 0
        for (sink, _), outbox in zip(self._sinks, self._outboxes, strict=True):
            mine = replace(notice, members=tuple(one for one in notice.members if self._hears(sink, one.workload)))
            if not mine.members or (sink.only and mine.outcome not in sink.only):
                continue
            try:
                outbox.put_nowait(mine)
                receivers += 1
            except asyncio.QueueFull:
                self.delivered.labels(sink.format, "dropped").inc()
        if receivers:
            self._untold[notice.id] = (first, receivers)

    def _hears(self, sink: NotifyConfig, who: WorkloadId) -> bool:
        """Whether a receiver is told about a workload."""
        standing = self._fleet.standing(who)
        chosen = None if standing is None else standing.policy.notify
        return chosen is None or sink.name in chosen

    def _done_with(self, notice: Notice) -> None:
        """A receiver has it, or will not get it."""
        first, receivers = self._untold.get(notice.id, (0, 0))
        if receivers > 1:
            self._untold[notice.id] = (first, receivers - 1)
        else:
            self._untold.pop(notice.id, None)

    async def _deliver_all(self, place: int) -> None:
        sink, address = self._sinks[place]
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            while True:
                notice = await self._outboxes[place].get()
                await self.deliver(session, notice, sink, address)
                self._done_with(notice)

    async def deliver(self, session: aiohttp.ClientSession, notice: Notice, sink: NotifyConfig, address: str) -> bool:
        """Send one message, again and again for a while; returns whether it arrived."""
        kind, body = body_of(notice, sink)
        timeout = aiohttp.ClientTimeout(total=parse_duration(sink.timeout).total_seconds())
        way: dict[str, Any] = {"timeout": timeout, "allow_redirects": False, "proxy": sink.proxy or None}
        pause, why = _FIRST_PAUSE, ""
        for number in range(sink.attempts):
            if number:
                self.delivered.labels(sink.format, "retried").inc()
                await self._clock.sleep(pause)
                pause = min(_LONGEST_PAUSE, 2 * pause)
            try:
                async with session.post(address, data=body, headers={"Content-Type": kind}, **way) as answer:
                    if answer.status < 300:
                        self.delivered.labels(sink.format, "delivered").inc()
                        return True
                    why = f"answered {answer.status}"
                    if answer.status in (400, 401, 403, 404, 410, 413):
                        break  # the same message will not be taken later
            except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: no such host can be
                why = type(error).__name__
        self.delivered.labels(sink.format, "failed").inc()
        log.warning("message not delivered", receiver=urlsplit(address).hostname, format=sink.format, why=why)
        return False


def _holds_workloads(informer: Informer[Any]) -> bool:
    return isinstance(informer.target, type) and issubclass(informer.target, Workload)


def _caught_up(informers: Sequence[Informer[Any]], revision: str) -> bool:
    """Whether they show everything that was written before `revision`; one that may not be read shows nothing ever."""
    for informer in informers:
        health = informer.health()
        reached = health.resource_version
        behind = reached.isdecimal() and revision.isdecimal() and int(reached) < int(revision)
        if not health.refused and (behind or not informer.has_synced()):
            return False
    return True


def _workloads(informer: Informer[Any]) -> Iterator[Workload]:
    with informer.snapshot() as found:
        yield from found


def _address(sink: NotifyConfig, place: int) -> str:
    """Where to send it; the address is a secret and never shown whole."""
    field = f"reload.notify[{place}]"
    check_template(sink.template, f"{field}.template")
    if sink.url:
        return sink.url
    found = os.environ.get(sink.url_from, "").strip()
    if not found.startswith(("http://", "https://")):
        raise ConfigError(
            f"the variable {sink.url_from} does not hold an address (https://…)", field=f"{field}.urlFrom"
        )
    return found
