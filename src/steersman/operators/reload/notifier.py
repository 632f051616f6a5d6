"""The notifier: gathers what belongs to one change, waits for its outcome, and delivers one message about it.

It listens to the controllers and asks the fleet how rollouts go; it never holds anything up. A message is tried several
times and then given up, counted; what waits is bounded. A process that ends takes its undelivered messages with it: the
history is on the workloads, messages are only told.
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
from steersman.operators.reload.fleet import SOFT
from steersman.operators.reload.notices import Member, Notice, body_of, check_template
from steersman.operators.reload.plan import APPLYING, Action
from steersman.operators.reload.progress import Phase
from steersman.operators.reload.workloads import workload_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.clock import Clock
    from steersman.kube.errors import KubeError
    from steersman.operators.reload.changes import Change
    from steersman.operators.reload.features import NotifyConfig
    from steersman.operators.reload.fleet import Fleet
    from steersman.operators.reload.look import Look
    from steersman.operators.reload.types import SourceRef, WorkloadId

__all__ = ["Notifier"]

SETTLE_SECONDS: Final = 5.0  # after the last workload joined: others may follow
LONGEST_SECONDS: Final = 3600.0  # then the message goes out, whatever is still under way
LOOK_SECONDS: Final = 1.0
WAITING: Final = 1000  # messages for one receiver
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0

log = structlog.get_logger(__name__)


class _Group:
    """What belongs to one change so far."""

    def __init__(self, now: float) -> None:
        self.id = str(uuid.uuid4())
        self.began = self.joined = now
        self.changes: dict[tuple[SourceRef, tuple[str, ...]], Change] = {}
        self.members: dict[WorkloadId, Member] = {}
        self.started: dict[WorkloadId, float] = {}

    @property
    def sources(self) -> set[SourceRef]:
        return {source for source, _ in self.changes}


class Notifier:
    """A listener of the controllers, and a task."""

    def __init__(
        self,
        sinks: Sequence[NotifyConfig],
        fleet: Fleet,
        *,
        registry: CollectorRegistry | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        registry = REGISTRY if registry is None else registry
        self._sinks = [(sink, _address(sink, place)) for place, sink in enumerate(sinks)]
        self._fleet = fleet
        self._clock = clock
        self._groups: list[_Group] = []
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
        if written and look.plan.action in APPLYING:
            outcome = "progressing" if look.plan.action is Action.RESTART else "applied"
            self._join(
                look, Member(workload=workload_id(look.workload), action=look.plan.action.value, outcome=outcome)
            )

    def failed(self, look: Look, error: KubeError) -> None:
        """The server would not have it."""
        if look.plan.action in APPLYING:
            member = Member(
                workload=workload_id(look.workload),
                action=look.plan.action.value,
                outcome="failed",
                reason=f"{error.reason}: the server refused the restart",
            )
            self._join(look, member)

    def _join(self, look: Look, member: Member) -> None:
        now = self._clock.time()
        sources = {change.source for change in look.plan.changes}
        group = next((one for one in self._groups if one.sources & sources), None)
        if group is None:
            group = _Group(now)
            self._groups.append(group)
        group.joined = now
        group.changes |= {(change.source, change.keys): change for change in look.plan.changes}
        group.members[member.workload] = member
        group.started[member.workload] = now

    # -- the task ------------------------------------------------------------------------------------------------------

    async def run(self, _cluster: object = None) -> None:
        """Gather and deliver for ever."""
        async with asyncio.TaskGroup() as tasks:
            for place in range(len(self._sinks)):
                tasks.create_task(self._deliver_all(place))
            while True:
                self.collect()
                await self._clock.sleep(LOOK_SECONDS)

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
                ended.append(
                    Notice(
                        id=group.id,
                        at=group.began,
                        changes=tuple(sorted(group.changes.values())),
                        members=tuple(group.members[name] for name in sorted(group.members)),
                    )
                )
        for notice in ended:
            self._post(notice)
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

    def _post(self, notice: Notice) -> None:
        for (sink, _), outbox in zip(self._sinks, self._outboxes, strict=True):
            if sink.only and notice.outcome not in sink.only:
                continue
            try:
                outbox.put_nowait(notice)
            except asyncio.QueueFull:
                self.delivered.labels(sink.format, "dropped").inc()

    async def _deliver_all(self, place: int) -> None:
        sink, address = self._sinks[place]
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            while True:
                await self.deliver(session, await self._outboxes[place].get(), sink, address)

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
            except (TimeoutError, aiohttp.ClientError) as error:
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
