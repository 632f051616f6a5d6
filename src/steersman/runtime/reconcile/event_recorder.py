"""The event recorder: writes Events about what happened, without flooding the API server.

    the same event again          one Event, counted up
    ten similar ones in 10 min    one Event for all of them: "(combined from similar events): …"
    more than a burst of 25       dropped, then one per five minutes, for each object

Similar means the same object, type and reason with different messages. Recording never waits and never fails: events
go through a bounded queue to one sender; what does not fit is dropped and counted, and so is what this process may no
longer write when its turn comes. Nothing is mirrored from logs.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from steersman.cache.identity import ref_of, revision_of, uid_of
from steersman.clock import SYSTEM_CLOCK
from steersman.kube.api.errors import KubeError, NotFound
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.times import format_time
from steersman.kube.api.types.core import Event, EventSource, ObjectReference
from steersman.kube.api.validation import dns_subdomain_errors
from steersman.logger import Logger
from steersman.runtime.reconcile.write_guard import NotLeading, scope, within

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from steersman.clock import Clock
    from steersman.kube.api.gvk import Kind
    from steersman.kube.api.objects import Resource
    from steersman.kube.client.client import Client
    from steersman.runtime.reconcile.write_guard import WriteScope

__all__ = ["EventRecorder", "ReportedIssues"]

SIMILAR = 10  # different messages after which events are combined…
SIMILAR_SECONDS = 600.0  # …within this time
BURST = 25
REFILL_SECONDS = 300.0  # one more event per object
REMEMBERED = 4096  # objects and messages; the least recently used are forgotten
PENDING = 1000

T = TypeVar("T", bound="Hashable")
V = TypeVar("V")

log = Logger(__name__)


class _Recent(Generic[V]):
    """The most recently used entries."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, key: Hashable, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)


class ReportedIssues(Generic[T]):
    """Which issues of an object are new: an Event for each cause, not for each reconcile.

        for reason, message in self.reported.new(app.ref, issues):
            ctx.event(app, reason, message, warning=True)

    An issue that is solved and comes back is new again. This is memory: after a restart every issue is new once, and
    the recorder counts up the Event that is there. Call `forget` from `Controller.on_missing`.
    """

    def __init__(self) -> None:
        self._reported: dict[Hashable, list[T]] = {}

    def new(self, key: Hashable, issues: Iterable[T]) -> list[T]:
        """Those of `issues`, all that an object has now, that it did not have the last time; in their order."""
        current = list(dict.fromkeys(issues))
        before = self._reported.pop(key, ())
        if current:
            self._reported[key] = current
        return [issue for issue in current if issue not in before]

    def forget(self, key: Hashable) -> None:
        """The object no longer exists."""
        self._reported.pop(key, None)


class EventRecorder:
    """Records events of one component. Run it; recording works before and after, within bounds."""

    def __init__(self, client: Client, *, component: str = "steersman", clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._outbox: asyncio.Queue[tuple[Hashable, Event, WriteScope | None]] = asyncio.Queue(PENDING)
        self._buckets: _Recent[list[float]] = _Recent(REMEMBERED)  # object -> [tokens, when]
        self._similar: _Recent[tuple[float, set[str]]] = _Recent(REMEMBERED)  # about -> (since, messages)
        self._sent: _Recent[Event] = _Recent(REMEMBERED)  # identity -> the event as it is in the cluster
        self.dropped = 0  # by the spam filter, or because the sender could not keep up

    def event(
        self, obj: Resource | dict[str, Any], kind: Kind, reason: str, message: str, *, warning: bool = False
    ) -> None:
        """Say that `reason` happened to `obj`. Never waits, never raises."""
        ref, uid = ref_of(obj), uid_of(obj)
        if not self._allowed((kind, ref, uid)):
            self.dropped += 1
            return
        about = (kind, ref, uid, warning, reason)
        identity, message = self._combined(about, message[:1024])
        now = format_time(self._clock.time())
        involved = ObjectReference(
            api_version=kind.api_version,
            kind=kind.kind,
            name=ref.name,
            namespace=ref.namespace,
            uid=uid,
            resource_version=revision_of(obj),
        )
        event = Event(
            metadata=ObjectMeta(name=_event_name(ref.name), namespace=ref.namespace or "default"),
            involved_object=involved,
            type="Warning" if warning else "Normal",
            reason=reason,
            message=message,
            count=1,
            first_timestamp=now,
            last_timestamp=now,
            source=EventSource(component=self._component),
            reporting_component=self._component,
        )
        try:
            self._outbox.put_nowait((identity, event, scope()))
        except asyncio.QueueFull:
            self.dropped += 1

    async def run(self) -> None:
        """Send events until cancelled."""
        while True:
            identity, event, recorded_for = await self._outbox.get()
            try:
                with within(recorded_for):
                    await self._send(identity, event)
            except NotLeading:  # the new leader reports it; the guard has logged the refusal
                self.dropped += 1
            except KubeError as error:
                self.dropped += 1
                log.warning(
                    "event not recorded", reason=event.reason, about=event.involved_object.name, error=str(error)
                )
            finally:
                self._outbox.task_done()

    async def flush(self) -> None:
        """Return when everything recorded so far has been sent; `run` must be running."""
        await self._outbox.join()

    def _allowed(self, who: Hashable) -> bool:
        now = self._clock.monotonic()
        bucket = self._buckets.get(who)
        if bucket is None:
            bucket = [float(BURST), now]
            self._buckets.put(who, bucket)
        bucket[0] = min(BURST, bucket[0] + (now - bucket[1]) / REFILL_SECONDS)
        bucket[1] = now
        if bucket[0] < 1:
            return False
        bucket[0] -= 1
        return True

    def _combined(self, about: tuple[Any, ...], message: str) -> tuple[Hashable, str]:
        """Under which identity the event is counted, and what it says: its own, or that of all similar ones."""
        now = self._clock.monotonic()
        known = self._similar.get(about)
        if known is None or now - known[0] > SIMILAR_SECONDS:
            known = (now, set())
            self._similar.put(about, known)
        messages = known[1]
        if message in messages or len(messages) < SIMILAR:
            messages.add(message)
            return (*about, message), message
        return about, f"(combined from similar events): {message}"

    async def _send(self, identity: Hashable, event: Event) -> None:
        known = self._sent.get(identity)
        if known is not None:
            changes = {"count": known.count + 1, "message": event.message, "lastTimestamp": event.last_timestamp}
            try:
                patched = await self._client.patch(
                    Event, known.metadata.name, changes, namespace=known.metadata.namespace
                )
            except NotFound:
                pass  # events expire: write a new one
            else:
                self._sent.put(identity, patched)
                return
        self._sent.put(identity, await self._client.create(event))


def _event_name(about: str) -> str:
    """A name for people to recognise, where that is allowed: roles may have names that events may not."""
    unique = uuid.uuid4().hex[:16]
    name = f"{about[:200]}.{unique}"
    return f"event.{unique}" if dns_subdomain_errors(name) else name
