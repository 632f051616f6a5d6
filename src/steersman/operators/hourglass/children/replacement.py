"""Which pods of a performer to adopt, create and remove next. Pure.

A pod is *current* when it carries the template's hash. Invariants:

- a current and healthy pod is never removed, except when there are more of them than `replicas`;
- Recreate: at most one pod is removed on purpose at a time, and its successor is created after it is gone;
- BlueGreen: old pods stay, and the Service keeps selecting them, until every new pod is ready and the Service switched;
- a lost pod is created again, at once the first time, then with growing delays; one that waits for a node is not;
- a pod without a hash was made by another version of the operator: if its image is right it is adopted, not replaced.

A replacement begins only with a slot (`needs_slot`), because other performers may be being replaced
(`controllers/replacement_limit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from steersman.kube.api.times import parse_time
from steersman.kube.api.types.pods import Pod
from steersman.operators.hourglass.api.types import REVISION, TEMPLATE_HASH, further_name, pod_name
from steersman.runtime import workloads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FIRST_DELAY: Final = 10.0  # seconds before the second recreation…
LONGEST_DELAY: Final = 300.0  # …doubling up to this
FORGET_AFTER: Final = 600.0  # a pod that lasted this long resets the delay
DRAIN_RECHECK_SECONDS: Final = 1.0  # between two reads of the endpoints while old pods are drained


class PodHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What the status records of the pods."""

    hash: str = ""  # of the template whose pods were made last
    created: int = 0  # the most pods of that template at one time
    recreations: int = 0
    last_recreation: float = 0.0
    upgrading: bool = False  # a replacement has begun and has not ended


class DesiredPods(msgspec.Struct, frozen=True, kw_only=True):
    """The pods that the spec asks for."""

    performer: str
    hash: str
    image: str
    replicas: int = 1
    strategy: Literal["Recreate", "BlueGreen"] = "Recreate"
    pending_seconds: float | None = None  # give up on a pod that is Pending for so long

    @property
    def revision(self) -> str:
        """The short hash."""
        return self.hash[:10]


class Removal(msgspec.Struct, frozen=True):
    """A pod to delete, and why."""

    pod: Pod
    reason: Literal["Replaced", "Failed", "PendingTooLong", "ScaledDown"]


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """What to do next, in this order: adopt, let the Service select `revision`, create, remove."""

    adopt: Sequence[Pod] = ()
    revision: str = ""  # what the Service selects besides the performer's name; "": all its pods
    create: Sequence[str] = ()  # names
    remove: Sequence[Removal] = ()
    recreated: int = 0  # how many of `create` replace lost pods
    upgrading: bool = False  # a replacement is under way
    requeue_after: float | None = None  # seconds until time alone changes the steps
    history: PodHistory = PodHistory()  # to record once this is done


def is_ready(pod: Pod) -> bool:
    """Whether a pod takes traffic."""
    return not pod.deleting and pod.status.phase == "Running" and workloads.is_ready(pod)


def recreation_delay(recreations: int) -> float:
    """Seconds to wait before the next recreation, after so many.

    >>> [recreation_delay(number) for number in (0, 1, 2, 3, 9)]
    [0.0, 10.0, 20.0, 40.0, 300.0]
    """
    return min(FIRST_DELAY * 2.0 ** min(recreations - 1, 10), LONGEST_DELAY) if recreations else 0.0


def needs_slot(
    desired: DesiredPods,
    pods: Iterable[Pod],
    history: PodHistory,
    *,
    now: float,
    age: Callable[[float], float] | None = None,
) -> bool:
    """Whether the next step would begin a replacement."""
    return not history.upgrading and _PodSet(desired, pods, history, now, age).has_replaceable


def next_steps(
    desired: DesiredPods,
    pods: Iterable[Pod],
    history: PodHistory,
    *,
    now: float,
    served: str = "",
    drained: bool = True,
    slot: bool = False,
    age: Callable[[float], float] | None = None,
) -> Steps:
    """What to do next. `pods` are those that belong to the performer, `served` is the revision its Service selects.

    `drained`: the Service sends no traffic to old pods. `slot`: a replacement may begin. `age`: the age of a timestamp,
    when that is not its distance from `now` because the clock was set.
    """
    found = _PodSet(desired, pods, history, now, age)
    slot = slot or history.upgrading
    if found.is_blue_green:
        return found.blue_green(served, drained=drained, slot=slot)
    return found.recreate(slot=slot)


class _PodSet:
    """The pods of a performer, sorted into those that count and those that do not."""

    def __init__(
        self,
        desired: DesiredPods,
        pods: Iterable[Pod],
        history: PodHistory,
        now: float,
        age: Callable[[float], float] | None,
    ) -> None:
        self.desired, self.now = desired, now
        self.age: Callable[[float], float] = age or (lambda stamp: now - stamp)
        self.pods = sorted(pods, key=lambda pod: pod.name)
        self.adopt = [pod for pod in self.pods if adoptable(pod, desired.image)]
        adopted = {pod.metadata.uid for pod in self.adopt}
        current = [pod for pod in self.pods if _hash(pod) == desired.hash or pod.metadata.uid in adopted]
        staying = [pod for pod in current if not pod.deleting]
        self.failed = [pod for pod in staying if self._gave_up(pod)]
        self.usable = [pod for pod in staying if pod not in self.failed]
        self.old = [pod for pod in self.pods if pod not in current and not pod.deleting]
        self.leaving = [pod for pod in self.pods if pod.deleting]
        same = history.hash == desired.hash
        self.recorded = history
        self.history = history if same else PodHistory(upgrading=history.upgrading)
        self.known = same or bool(current)

    @property
    def is_blue_green(self) -> bool:
        """Whether old pods are replaced beside new ones."""
        return self.desired.strategy == "BlueGreen" and bool(self.old) and bool(self.desired.replicas)

    @property
    def has_replaceable(self) -> bool:
        """Whether an old pod could be replaced now."""
        return self.is_blue_green or (bool(self.desired.replicas) and bool(self._next_old()))

    # -- the two strategies --------------------------------------------------------------------------------------------

    def recreate(self, *, slot: bool) -> Steps:
        """Remove old pods one by one, and create new ones in their place."""
        desired = self.desired
        removals = self._surplus()
        again = self._remove_failed(removals)
        replaced = self._next_old() if slot or not desired.replicas else []
        removals += [Removal(pod, "Replaced") for pod in replaced]
        missing = desired.replicas - len(self.pods) + len(self._extra())
        names = self._free_names(missing, blue_green=False)
        names, recreated, wait = self._paced(names)
        upgrading = self._upgrading(began=bool(replaced) or (bool(self.old) and slot))
        return Steps(
            adopt=self.adopt,
            revision=desired.revision if desired.strategy == "BlueGreen" else "",
            create=names,
            remove=removals,
            recreated=recreated,
            upgrading=upgrading,
            requeue_after=_sooner(again, wait),
            history=self._next_history(len(names), recreated, upgrading=upgrading),
        )

    def blue_green(self, served: str, *, drained: bool, slot: bool) -> Steps:
        """Create new pods beside the old ones; switch the Service when all are ready; then remove the old ones."""
        desired = self.desired
        serving = self._serving(served)
        if not slot:
            return Steps(
                adopt=self.adopt,
                revision=served if served == desired.revision else serving,
                history=self._next_history(0, 0, upgrading=False),
            )
        removals = self._surplus()
        again = self._remove_failed(removals)
        missing = desired.replicas - len(self.usable) - len(self.failed)
        names = self._free_names(missing, blue_green=True)
        names, recreated, wait = self._paced(names)
        switched = sum(map(is_ready, self.usable)) >= desired.replicas
        removals += [Removal(pod, "Replaced") for pod in self.old if not switched and _revision(pod) != serving]
        if switched and served == desired.revision and drained:
            removals += [Removal(pod, "Replaced") for pod in self.old]
        return Steps(
            adopt=self.adopt,
            revision=desired.revision if switched else serving,
            create=names,
            remove=removals,
            recreated=recreated,
            upgrading=True,
            requeue_after=_sooner(again, wait, DRAIN_RECHECK_SECONDS if switched else None),
            history=self._next_history(len(names), recreated, upgrading=True),
        )

    # -- parts of both -------------------------------------------------------------------------------------------------

    def _surplus(self) -> list[Removal]:
        return [Removal(pod, "ScaledDown") for pod in self._extra()]

    def _extra(self) -> list[Pod]:
        """Current pods beyond `replicas`: those that are not ready first, then the last ones."""
        ranked = sorted(
            self.usable, key=lambda pod: (not is_ready(pod), pod.name != pod_name(self.desired.performer), pod.name)
        )
        return ranked[self.desired.replicas :]

    def _remove_failed(self, removals: list[Removal]) -> float | None:
        """Remove failed pods when another one may be created; returns when to check again."""
        if not self.failed:
            return _sooner(*(self._pending_left(pod) for pod in self.usable))
        wait = self._wait()
        if wait > 0:
            return wait
        reason: Literal["Failed", "PendingTooLong"]
        for pod in self.failed:
            reason = "PendingTooLong" if pod.status.phase == "Pending" else "Failed"
            removals.append(Removal(pod, reason))
        return None

    def _next_old(self) -> list[Pod]:
        """The old pods that may be removed now: all that are not ready, or one while all others are ready."""
        if not self.desired.replicas:
            return self.old
        idle = [pod for pod in self.old if not is_ready(pod)]
        if idle:
            return idle
        serving = sum(map(is_ready, self.usable)) + len(self.old)
        return self.old[:1] if serving >= self.desired.replicas and not self.leaving else []

    def _free_names(self, missing: int, *, blue_green: bool) -> list[str]:
        desired, taken = self.desired, {pod.name for pod in self.pods}
        slots = [
            further_name(desired.performer, desired.revision, number) for number in range(max(desired.replicas, 1))
        ]
        if not blue_green:
            slots[0] = pod_name(desired.performer)
        return [name for name in slots if name not in taken][: max(missing, 0)]

    def _paced(self, names: list[str]) -> tuple[list[str], int, float | None]:
        """The names to create now, how many of them replace lost pods, and how long the others wait."""
        present = len(self.usable) + len(self.failed)
        lost = max(0, min(len(names), self.history.created - present))
        wait = self._wait()
        if not lost or wait <= 0:
            return names, lost, None
        return names[: len(names) - lost], 0, wait

    def _wait(self) -> float:
        """Seconds until a lost pod may be created again."""
        since = self.age(self.history.last_recreation)
        count = 0 if since > FORGET_AFTER else self.history.recreations
        return recreation_delay(count) - since if count else 0.0

    def _gave_up(self, pod: Pod) -> bool:
        left = self._pending_left(pod)
        return pod.status.phase in ("Failed", "Succeeded") or (left is not None and left <= 0)

    def _pending_left(self, pod: Pod) -> float | None:
        """Seconds for which a pod may still be Pending; None: without limit."""
        limit, created = self.desired.pending_seconds, pod.metadata.creation_timestamp
        if limit is None or pod.status.phase != "Pending" or not created:
            return None
        return limit - self.age(parse_time(created).timestamp())

    def _serving(self, served: str) -> str:
        """The revision that the Service keeps selecting."""
        best = max(
            self.old,
            key=lambda pod: (is_ready(pod), _revision(pod) == served, pod.metadata.creation_timestamp or "", pod.name),
        )
        return _revision(best)

    def _upgrading(self, *, began: bool) -> bool:
        if began or any(_hash(pod) not in (self.desired.hash, "") for pod in self.leaving):
            return True
        complete = sum(map(is_ready, self.usable)) >= self.desired.replicas and not self.old
        return self.history.upgrading and not complete

    def _next_history(self, created_now: int, recreated: int, *, upgrading: bool) -> PodHistory:
        before = self.history
        present = min(len(self.usable) + len(self.failed) + created_now, self.desired.replicas)
        created = max(present, min(before.created, self.desired.replicas))
        if not (self.known or created_now):
            return PodHistory(upgrading=True) if upgrading else msgspec.structs.replace(self.recorded, upgrading=False)
        count = 0 if self.age(before.last_recreation) > FORGET_AFTER else before.recreations
        return PodHistory(
            hash=self.desired.hash,
            created=created,
            recreations=count + recreated if recreated else before.recreations,
            last_recreation=self.now if recreated else before.last_recreation,
            upgrading=upgrading,
        )


def adoptable(pod: Pod, image: str) -> bool:
    """Whether another version made a pod that runs the right image: it gets our labels and stays."""
    return not pod.deleting and not _hash(pod) and _image(pod) == image


def _hash(pod: Pod) -> str:
    return pod.annotations.get(TEMPLATE_HASH, "")


def _revision(pod: Pod) -> str:
    return pod.labels.get(REVISION, "")


def _image(pod: Pod) -> str:
    containers = pod.spec.containers or ()
    return containers[0].image if containers else ""


def _sooner(*times: float | None) -> float | None:
    known = [time for time in times if time is not None]
    return min(known) if known else None
