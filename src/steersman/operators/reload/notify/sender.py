"""Notifications about restarts: one message per change, delivered to each receiver with retries.

The sender is a listener of the controllers and a task. It groups the restarts that belong to one change, waits for
their rollouts, and then queues one message per receiver:

    restart ──► group ──all rollouts ended──► queue of each receiver ──POST, with retries──► delivered or failed

It never delays a restart, and a slow receiver delays no other: every queue is bounded, and a message that does not fit
or is rejected too often is dropped and counted. What is not delivered when the process ends is not sent later; restarts
themselves are on the workloads (`steersman reload history`) and in Events.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import structlog
from msgspec.structs import replace
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import ConfigError
from steersman.kube.api.durations import parse_duration
from steersman.operators.reload.notify.message import AffectedWorkload, Notification, body_of, check_template
from steersman.operators.reload.planning.plan import APPLYING, Action
from steersman.operators.reload.planning.restart_order import SOFT
from steersman.operators.reload.planning.state import Applied
from steersman.operators.reload.workloads.rollout_status import Phase
from steersman.operators.reload.workloads.workload import workload_id
from steersman.runtime.http.outbound import outbound_session, send

if TYPE_CHECKING:
    from collections.abc import Sequence

    import aiohttp

    from steersman.clock import Clock
    from steersman.kube.api.errors import KubeError
    from steersman.operators.reload.api.config import ReceiverConfig, SourceRef, WorkloadId
    from steersman.operators.reload.planning.diff import SourceChange
    from steersman.operators.reload.planning.evaluate import Evaluation
    from steersman.operators.reload.planning.gates import Moment
    from steersman.operators.reload.planning.plan import WorkloadPlan
    from steersman.operators.reload.planning.restart_order import RestartCoordinator
    from steersman.runtime.cluster import Cluster

SETTLE_SECONDS: Final = 5.0  # after the last workload joined a group: others may follow
LONGEST_SECONDS: Final = 3600.0  # then the message is sent, whatever is still in progress
CHECK_SECONDS: Final = 1.0
QUEUE_LENGTH: Final = 1000  # messages for one receiver
MOST_REJECTED: Final = 10_000  # workloads whose reported rejection is remembered
NOTHING: Final = Applied()

log = structlog.get_logger(__name__)


class _Group:
    """The restarts of one change so far."""

    def __init__(self, now: float, tick: float) -> None:
        self.first = int(now)  # the second of its first restart, as the history of the workload has it
        self.at = now
        self.began = self.joined = tick  # on the monotonic clock
        self.changes: dict[tuple[SourceRef, tuple[str, ...]], SourceChange] = {}
        self.workloads: dict[WorkloadId, AffectedWorkload] = {}
        self.started: dict[WorkloadId, float] = {}

    @property
    def sources(self) -> set[SourceRef]:
        return {source for source, _ in self.changes}

    def notification(self) -> Notification:
        """The message; the same restarts give the same id, so that a receiver can discard a duplicate."""
        workloads = tuple(self.workloads[name] for name in sorted(self.workloads))
        names = " ".join([str(self.first), *(str(affected.workload) for affected in workloads)])
        return Notification(
            id=str(uuid.uuid5(uuid.NAMESPACE_URL, f"steersman.dev/reload/{names}")),
            at=self.at,
            changes=tuple(sorted(self.changes.values())),
            workloads=workloads,
        )


class NotificationSender:
    """A listener of the controllers, and a task."""

    def __init__(
        self,
        receivers: Sequence[ReceiverConfig],
        coordinator: RestartCoordinator,
        *,
        registry: CollectorRegistry | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        registry = REGISTRY if registry is None else registry
        self._receivers = [(receiver, _url(receiver, place)) for place, receiver in enumerate(receivers)]
        self._coordinator = coordinator
        self._clock = clock
        self._groups: list[_Group] = []
        self._rejected: dict[WorkloadId, str] = {}  # the change whose rejection has been reported
        self._queues = [asyncio.Queue[Notification](QUEUE_LENGTH) for _ in receivers]
        self.delivered = Counter(
            "steersman_reload_notifications", "Messages about changes.", ["format", "result"], registry=registry
        )
        self.waiting = Gauge(
            "steersman_reload_notifications_waiting", "Messages that wait to be delivered.", registry=registry
        )
        self.waiting.set_function(lambda: float(sum(queue.qsize() for queue in self._queues)))
        for receiver, _ in self._receivers:
            for result in ("delivered", "retried", "failed", "dropped"):
                self.delivered.labels(receiver.format, result)

    # -- what the controllers report ----------------------------------------------------------------------------------

    def evaluated(self, evaluation: Evaluation, *, written: bool) -> None:
        """A plan was applied, or there was nothing to apply."""
        who, plan = workload_id(evaluation.workload), evaluation.plan
        restarted = written and plan.action in APPLYING
        if restarted or not plan.changes:
            self._rejected.pop(who, None)
        if restarted:
            outcome = "progressing" if plan.action is Action.RESTART else "applied"
            history = (plan.state or plan.observed.applied or NOTHING).history
            at = history[-1].at if history else int(self._clock.time())
            self._join(plan.changes, AffectedWorkload(workload=who, action=plan.action.value, outcome=outcome), at)

    def failed(self, evaluation: Evaluation, error: KubeError) -> None:
        """The API server rejected the patch."""
        who = workload_id(evaluation.workload)
        if evaluation.plan.action in APPLYING and self._is_first_rejection(who, evaluation.plan):
            affected = AffectedWorkload(
                workload=who,
                action=evaluation.plan.action.value,
                outcome="failed",
                reason=f"{error.reason}: the API server rejected the restart",
            )
            self._join(evaluation.plan.changes, affected, int(self._clock.time()))

    def _is_first_rejection(self, who: WorkloadId, plan: WorkloadPlan) -> bool:
        """Whether this change was not rejected before: it is retried for as long as it is pending."""
        state = NOTHING if plan.state is None else plan.state
        digests = sorted((name, entry.digest) for name, entry in state.sources.items())
        change = str((plan.changes, digests, state.total))
        if self._rejected.get(who) == change:
            return False
        if len(self._rejected) >= MOST_REJECTED:
            self._rejected.pop(next(iter(self._rejected)))
        self._rejected[who] = change
        return True

    def _join(self, changes: Sequence[SourceChange], affected: AffectedWorkload, at: int) -> None:
        tick = self._clock.monotonic()
        sources = {change.source for change in changes}
        group = next((group for group in self._groups if group.sources & sources), None)
        if group is None:
            group = _Group(self._clock.time(), tick)
            self._groups.append(group)
        group.joined, group.first = tick, min(group.first, at)
        group.changes |= {(change.source, change.keys): change for change in changes}
        group.workloads[affected.workload] = affected
        group.started[affected.workload] = tick

    # -- the task ------------------------------------------------------------------------------------------------------

    async def run(self, _cluster: Cluster | None = None) -> None:
        """Collect and deliver until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for place in range(len(self._receivers)):
                tasks.create_task(self._deliver_all(place))
            while True:
                self.collect()
                await self._clock.sleep(CHECK_SECONDS)

    def collect(self) -> list[Notification]:
        """Queue a message for every group whose rollouts have ended; returns these messages."""
        now, ended = self._coordinator.moment(self._clock), []
        awaited = self._awaited() if self._groups else set()
        for group in list(self._groups):
            self._follow(group, now)
            in_progress = any(affected.outcome == "progressing" for affected in group.workloads.values())
            settled = now.tick - group.joined >= SETTLE_SECONDS and not in_progress
            settled = settled and awaited.isdisjoint(group.sources)
            if settled or now.tick - group.began >= LONGEST_SECONDS:
                self._groups.remove(group)
                ended.append(group.notification())
                self._enqueue(ended[-1])
        return ended

    def _follow(self, group: _Group, now: Moment) -> None:
        for who, affected in group.workloads.items():
            if affected.outcome != "progressing":
                continue
            rollout = self._coordinator.rollouts.get(who)
            phase = Phase.AVAILABLE if rollout is None else rollout.phase(now.wall)
            if phase is Phase.PROGRESSING:
                continue
            reason = "" if rollout is None else rollout.reason(now.wall)
            seconds = round(now.tick - group.started[who])
            group.workloads[who] = replace(affected, outcome=phase.value, reason=reason, seconds=seconds)

    def _awaited(self) -> set[SourceRef]:
        """The sources of changes for which another workload is about to be restarted."""
        return {
            change.source for _, state in self._coordinator.states() if state.gate in SOFT for change in state.changes
        }

    def _enqueue(self, notification: Notification) -> None:
        for (receiver, _), queue in zip(self._receivers, self._queues, strict=True):
            chosen = tuple(each for each in notification.workloads if self._is_for(receiver, each.workload))
            message = replace(notification, workloads=chosen)
            if not chosen or (receiver.only and message.outcome not in receiver.only):
                continue
            try:
                queue.put_nowait(message)
            except asyncio.QueueFull:
                self.delivered.labels(receiver.format, "dropped").inc()

    def _is_for(self, receiver: ReceiverConfig, who: WorkloadId) -> bool:
        """Whether a receiver gets messages about a workload."""
        state = self._coordinator.state_of(who)
        chosen = None if state is None else state.policy.notify
        return chosen is None or receiver.name in chosen

    async def _deliver_all(self, place: int) -> None:
        receiver, url = self._receivers[place]
        async with outbound_session() as session:
            while True:
                await self.deliver(session, await self._queues[place].get(), receiver, url)

    async def deliver(
        self, session: aiohttp.ClientSession, notification: Notification, receiver: ReceiverConfig, url: str
    ) -> bool:
        """Send one message, with retries; returns whether it was delivered."""
        content_type, body = body_of(notification, receiver)
        host = str(urlsplit(url).hostname)
        sent = await send(
            session,
            url,
            effect="notification",
            target=host,
            timeout_seconds=parse_duration(receiver.timeout).total_seconds(),
            attempts=receiver.attempts,
            on_retry=self.delivered.labels(receiver.format, "retried").inc,
            clock=self._clock,
            data=body,
            headers={"Content-Type": content_type},
            proxy=receiver.proxy or None,
        )
        if sent.withheld:
            return False
        self.delivered.labels(receiver.format, "failed" if sent.error else "delivered").inc()
        if sent.error:
            log.warning("notification not delivered", receiver=host, format=receiver.format, error=sent.error)
        return not sent.error


def _url(receiver: ReceiverConfig, place: int) -> str:
    """The URL of a receiver; it often contains a secret and is never logged."""
    field = f"reload.notify[{place}]"
    check_template(receiver.template, f"{field}.template")
    if receiver.url:
        return receiver.url
    url = os.environ.get(receiver.url_from, "").strip()
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"the variable {receiver.url_from} does not hold a URL (https://…)", field=f"{field}.urlFrom")
    return url
