"""Leader election over a Lease: carries out what `steersman.runtime.leaderelection.rules` decides.

    await elector.acquire()        returns when this process leads
    await elector.hold()           renews; raises LeadershipLost when the term is over
    await elector.release()        gives the lease back, once everything that acts has stopped

`hold` returns only by raising. Between its raising and a follower taking over lies lease_seconds - renew_seconds: what
still acts must be cancelled first and asked questions later. No request outlives the term it was sent in.
"""

from __future__ import annotations

import math
import os
import random as randomness
import socket
import uuid
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from steersman.clock import SYSTEM_CLOCK, Deadline
from steersman.errors import FormatError, SteersmanError
from steersman.kube.api.errors import Conflict, KubeError, NotFound
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.patches import PatchType
from steersman.kube.api.times import format_micro_time, parse_time
from steersman.kube.api.types.coordination import Lease, LeaseSpec
from steersman.logger import Logger
from steersman.runtime.leaderelection.rules import (
    ElectionState,
    LeaderElectionRecord,
    LeaseTimings,
    Lost,
    Missing,
    Read,
    RequestFailed,
    Seen,
    Tick,
    Wait,
    Write,
    WriteConflict,
    Written,
    released,
    step,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.clock import Clock
    from steersman.kube.client.client import Client
    from steersman.runtime.leaderelection.rules import Action, Event

__all__ = ["LeaderElector", "LeadershipLost", "Lease", "LeaseLock", "LeaseStore", "unique_identity"]

log = Logger(__name__)


class LeadershipLost(SteersmanError):  # noqa: N818  a state, not a fault of ours
    """This process no longer leads and must stop acting."""


class LeaseStore(Protocol):
    """Where the lease is kept. Errors are KubeErrors; `str` is NAMESPACE/NAME."""

    async def read(self) -> tuple[LeaderElectionRecord, str]:
        """The record and its version; NotFound when there is none."""

    async def write(self, record: LeaderElectionRecord, version: str) -> str:
        """Replace `version` (empty: create) and return the new one; Conflict when it is not the newest."""


class LeaseLock:
    """A lease kept in a Lease object. Updates are patches, so fields we do not know survive.

    With `replaces` they are updates of the whole object instead, for rights that were granted to another program.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        *,
        labels: dict[str, str] | None = None,
        replaces: bool = False,
    ) -> None:
        self._client = client.with_options(retry=False)  # the election repeats by its own rules
        self._name = name
        self._namespace = namespace
        self._labels = labels  # of a lease that is created
        self._replaces = replaces
        self._known = ObjectMeta(name=name, namespace=namespace)

    def __str__(self) -> str:
        return f"{self._namespace}/{self._name}"

    async def read(self) -> tuple[LeaderElectionRecord, str]:
        lease = await self._client.get(Lease, self._name, namespace=self._namespace)
        self._known = lease.metadata
        return self.record(lease), lease.metadata.resource_version

    @staticmethod
    def record(lease: Lease) -> LeaderElectionRecord:
        """What a Lease object says."""
        spec = lease.spec
        return LeaderElectionRecord(
            holder=spec.holder_identity or "",
            duration_seconds=float(spec.lease_duration_seconds or 0),
            acquired=_seconds(spec.acquire_time),
            renewed=_seconds(spec.renew_time),
            transitions=spec.lease_transitions or 0,
        )

    async def write(self, record: LeaderElectionRecord, version: str) -> str:
        spec = LeaseSpec(
            holder_identity=record.holder,
            lease_duration_seconds=math.ceil(record.duration_seconds),
            acquire_time=format_micro_time(record.acquired),
            renew_time=format_micro_time(record.renewed),
            lease_transitions=record.transitions,
        )
        if not version:
            meta = ObjectMeta(name=self._name, namespace=self._namespace, labels=self._labels)
            created = await self._client.create(Lease(metadata=meta, spec=spec))
            return created.metadata.resource_version
        if self._replaces:
            meta = replace(self._known, resource_version=version)
            return (await self._client.replace(Lease(metadata=meta, spec=spec))).metadata.resource_version
        patch = {
            "metadata": {"resourceVersion": version},
            "spec": {
                "holderIdentity": spec.holder_identity,
                "leaseDurationSeconds": spec.lease_duration_seconds,
                "acquireTime": spec.acquire_time,
                "renewTime": spec.renew_time,
                "leaseTransitions": spec.lease_transitions,
            },
        }
        written = await self._client.patch(Lease, self._name, patch, type=PatchType.MERGE, namespace=self._namespace)
        return written.metadata.resource_version


def _seconds(stamp: str | None) -> float:
    try:
        return parse_time(stamp).timestamp() if stamp else 0.0
    except FormatError:
        return 0.0  # only people read it


def unique_identity(name: str | None = None) -> str:
    """An identity that no other process has: the host (in a cluster, the pod), and something random."""
    return f"{name or os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:12]}"


class LeaderElector:
    """One candidate. Give every process its own identity: see `unique_identity`."""

    def __init__(
        self,
        store: LeaseStore,
        *,
        identity: str | None = None,
        timing: LeaseTimings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        self._store = store
        self._clock = clock
        self._random = random
        self._state = ElectionState(identity=identity or unique_identity(), timing=timing or LeaseTimings())
        self._next: Action = Lost("this process was never elected")
        self._known_leader = ""
        self.slow_renewals = 0  # renewals that needed to read first

    @property
    def identity(self) -> str:
        """Under which name this process stands for election."""
        return self._state.identity

    @property
    def name(self) -> str:
        """Which lease it is about, without its namespace: as controller-runtime's metrics name it."""
        return str(self._store).rpartition("/")[2]

    @property
    def leader(self) -> str:
        """Who held the lease when it was last seen; empty when no process did."""
        return self._state.record.holder if self._state.record else ""

    def leading(self) -> bool:
        """Whether this process may act at this instant."""
        return self._state.leading(self._clock.monotonic())

    def problem(self, *, tolerance_seconds: float = 20.0) -> str | None:
        """Why the election is not healthy: a term that ended long ago unnoticed means a dead loop."""
        ends = self._state.term_ends
        late = 0.0 if ends is None else self._clock.monotonic() - ends
        return f"the lease was due for renewal {late:.0f} s ago" if late > tolerance_seconds else None

    async def acquire(self) -> None:
        """Return as soon as this process leads."""
        event: Event = Tick()
        while True:
            action = self._step(event)
            if self.leading():
                self._next = action
                log.info("leading", identity=self.identity)
                return
            event = await self._carry_out(action)

    async def hold(self) -> None:
        """Keep leading as long as possible, then raise LeadershipLost."""
        action = self._next
        while not isinstance(action, Lost):
            if isinstance(action, Read):
                self.slow_renewals += 1
            action = self._step(await self._carry_out(action))
        raise LeadershipLost(action.reason)

    async def release(self) -> bool:
        """Release the lease, if it is ours, so that the next leader need not wait. Returns whether it was released.

        Also right after an `acquire` that was cancelled: a write that was on its way may have arrived.
        """
        state, self._state = self._state, _without_term(self._state)
        try:
            async with Deadline(self._clock, state.timing.renew_seconds):
                while True:
                    record, version = await self._store.read()
                    if record.holder != state.identity:
                        return False
                    try:
                        await self._store.write(released(record, self._clock.time()), version)
                    except Conflict:
                        continue
                    log.info("lease released", identity=state.identity)
                    return True
        except NotFound:
            return False
        except (KubeError, TimeoutError) as error:
            log.warning("lease not released; followers wait for it to expire", error=str(error) or "timed out")
            return False

    def _step(self, event: Event) -> Action:
        clock = self._clock
        self._state, action = step(self._state, event, clock.monotonic(), wall=clock.time(), jitter=self._random())
        if self.leader != self._known_leader:
            self._known_leader = self.leader
            log.info("leader changed", leader=self.leader)
        return action

    async def _carry_out(self, action: Action) -> Event:
        try:
            match action:
                case Wait(seconds=seconds):
                    await self._clock.sleep(seconds)
                    return Tick()
                case Read(timeout_seconds=timeout):
                    async with Deadline(self._clock, timeout):
                        return Seen(*await self._store.read())
                case Write(record=record, version=version, timeout_seconds=timeout):
                    async with Deadline(self._clock, timeout):
                        return Written(await self._store.write(record, version))
                case Lost():
                    return Tick()
        except NotFound as error:
            if isinstance(action, Read):
                return Missing()
            log.warning("the lease cannot be written", error=str(error))  # most often its namespace is not there
            return WriteConflict()
        except Conflict:
            return WriteConflict()
        except (KubeError, TimeoutError) as error:
            log.warning("leader election request failed", error=str(error) or "timed out", leading=self.leading())
            return RequestFailed()


def _without_term(state: ElectionState) -> ElectionState:
    return ElectionState(identity=state.identity, timing=state.timing)
