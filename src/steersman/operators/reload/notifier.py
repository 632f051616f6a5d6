"""The notifier: gathers what belongs to one change, waits for its outcome, and delivers one message about it.

It listens to the controllers and asks the fleet how rollouts go; it never holds anything up. A message is tried several
times and then given up, counted; what waits is bounded.

    restart ──► group ──all ended──► outbox of each receiver ──delivered or given up──► mark

The mark says up to when everything has been told, and outlives the process (`steersman.operators.reload.told`).
Restarts after it that the history of a workload names, and that this process did not make, are told by it. So each
restart is told at least once, and twice only when a process died between delivery and mark. Without a Lease there is no
mark, and what is not delivered when the process ends is not told later.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import aiohttp
import structlog
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import ConfigError
from steersman.kube.durations import parse_duration
from steersman.kube.errors import KubeError
from steersman.operators.reload.fleet import SOFT
from steersman.operators.reload.notices import Member, Notice, body_of, check_template
from steersman.operators.reload.plan import APPLYING, Action
from steersman.operators.reload.progress import Phase
from steersman.operators.reload.state import Applied
from steersman.operators.reload.told import LeaseMark, changes_in
from steersman.operators.reload.workloads import workload_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.clock import Clock
    from steersman.operators.reload.changes import Change
    from steersman.operators.reload.features import NotifyConfig
    from steersman.operators.reload.fleet import Fleet
    from steersman.operators.reload.look import Look
    from steersman.operators.reload.state import Past
    from steersman.operators.reload.types import SourceRef, WorkloadId
    from steersman.runtime.cluster import Cluster

__all__ = ["Notifier"]

SETTLE_SECONDS: Final = 5.0  # after the last workload joined: others may follow
LONGEST_SECONDS: Final = 3600.0  # then the message goes out, whatever is still under way
LOOK_SECONDS: Final = 1.0
WAITING: Final = 1000  # messages for one receiver
SAME_SECONDS: Final = 60.0  # between the decision of a restart and its stamp
NOTHING: Final = Applied()
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
        self._lease = lease
        self._since: int | None = None  # restarts after this second may be untold; None: not known (yet)
        self._marked = 0  # the mark as it is written
        self._early: dict[WorkloadId, tuple[Past, ...]] = {}  # the past of those that were looked at before that
        self._latest: dict[WorkloadId, int] = {}  # the last restart of each that is told here
        self._told = 0  # the last second of which something has been told
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

    def looked(self, look: Look, *, written: bool) -> None:
        """A plan was carried out."""
        who, plan = workload_id(look.workload), look.plan
        made = written and plan.action in APPLYING
        past = (plan.state or plan.observed.applied or NOTHING).history
        if self._lease is not None and past:
            self._remember(who, past[:-1] if made else past)
        if made:
            outcome = "progressing" if plan.action is Action.RESTART else "applied"
            at = past[-1].at if past else int(self._clock.time())
            self._latest[who] = at
            self._join(plan.changes, Member(workload=who, action=plan.action.value, outcome=outcome), at)

    def failed(self, look: Look, error: KubeError) -> None:
        """The server would not have it."""
        if look.plan.action in APPLYING:
            member = Member(
                workload=workload_id(look.workload),
                action=look.plan.action.value,
                outcome="failed",
                reason=f"{error.reason}: the server refused the restart",
            )
            self._join(look.plan.changes, member, int(self._clock.time()))

    def _remember(self, who: WorkloadId, past: tuple[Past, ...]) -> None:
        """Tell what the process before this one has not told any more."""
        if self._since is None:
            self._early[who] = past
            return
        for one in past:
            if one.at <= max(self._since, self._latest.get(who, 0)):
                continue
            self._latest[who] = one.at
            rollout = self._fleet.rollouts.get(who)
            last = one is past[-1] and rollout is not None and abs(rollout.started - one.at) <= SAME_SECONDS
            word, _, reason = one.outcome.partition(": ")
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
        async with asyncio.TaskGroup() as tasks:
            for place in range(len(self._sinks)):
                tasks.create_task(self._deliver_all(place))
            while True:
                self.collect()
                if mark is not None and self.mark > self._marked and await mark.write(self.mark):
                    self._marked = self.mark
                await self._clock.sleep(LOOK_SECONDS)

    async def _resume(self, mark: LeaseMark) -> None:
        """Go on where the process before this one ended."""
        while self._since is None:
            try:
                found = await mark.read()
            except KubeError:
                await self._clock.sleep(LOOK_SECONDS)
                continue
            self.resume(found)
        if not self._marked and await mark.write(self._since):  # there is none yet: begin with this moment
            self._marked = self._since

    def resume(self, mark: int | None) -> None:
        """Everything up to `mark` has been told; None: nobody knows, so nothing of the past is told."""
        before = int(self._clock.time()) - 1  # this second is not over yet
        self._since = self._told = before if mark is None else mark
        self._marked = mark or 0
        early, self._early = self._early, {}
        for who, past in early.items():
            self._remember(who, past)

    @property
    def mark(self) -> int:
        """Up to when everything has been told."""
        waiting = [first for first, _ in self._untold.values()] + [group.first for group in self._groups]
        return min((first - 1 for first in waiting), default=self._told)

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
                last = max(self._latest.get(who, group.first) for who in group.members)
                self._told = max(self._told, group.first, last)
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
            if sink.only and notice.outcome not in sink.only:
                continue
            try:
                outbox.put_nowait(notice)
                receivers += 1
            except asyncio.QueueFull:
                self.delivered.labels(sink.format, "dropped").inc()
        if receivers:
            self._untold[notice.id] = (first, receivers)

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
        pause, why = _FIRST_PAUSE, ""
        for number in range(sink.attempts):
            if number:
                self.delivered.labels(sink.format, "retried").inc()
                await self._clock.sleep(pause)
                pause = min(_LONGEST_PAUSE, 2 * pause)
            try:
                async with session.post(
                    address, data=body, headers={"Content-Type": kind}, timeout=timeout, allow_redirects=False
                ) as answer:
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
