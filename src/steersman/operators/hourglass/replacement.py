"""Which pods of a performer to make, to mark and to remove next. Pure.

A pod is *current* when it carries the template's hash. Invariants:

- a pod that is current and well is never removed, except when there are more of them than asked for;
- Recreate: at most one pod is away on purpose, and nothing new is made while an old one is still there in its place;
- BlueGreen: old pods stay and the Service stays with them until every new one is ready and the Service has turned;
- a pod that was lost is made again, at once the first time, then later and later; one that waits for a node is not;
- a pod without a hash was made by another version: if its image is right it is marked, not replaced.

Whether a replacement may begin is asked for (`wants_turn`), because others may be under way (`replacements`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from steersman.kube.times import parse_time
from steersman.kube.types.pods import Pod
from steersman.operators.hourglass.types import REVISION, TEMPLATE_HASH, further_name, pod_name

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Memory", "Removal", "Steps", "Wish", "adoptable", "is_ready", "next_steps", "recreation_delay"]

FIRST_DELAY: Final = 10.0  # seconds before the second recreation…
LONGEST_DELAY: Final = 300.0  # …doubling up to this
FORGET_AFTER: Final = 600.0  # a pod that lasted so long did well
DRAIN_LOOK: Final = 1.0  # seconds between looks at the endpoints, while old pods are drained


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What the status remembers between looks."""

    hash: str = ""  # of the template whose pods were made last
    created: int = 0  # pods of that template there have been at once
    recreations: int = 0
    last_recreation: float = 0.0
    upgrading: bool = False  # a replacement has begun and is not over


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted."""

    performer: str
    hash: str
    image: str
    replicas: int = 1
    strategy: Literal["Recreate", "BlueGreen"] = "Recreate"
    pending_seconds: float | None = None  # give up on a pod that is Pending for so long

    @property
    def revision(self) -> str:
        """The hash, short."""
        return self.hash[:10]


class Removal(msgspec.Struct, frozen=True):
    """A pod to delete, and why."""

    pod: Pod
    reason: Literal["Replaced", "Failed", "PendingTooLong", "ScaledDown"]


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """What to do next, in this order: mark, let the Service select `revision`, create, remove."""

    mark: Sequence[Pod] = ()
    revision: str = ""  # what the Service selects besides the performer's name; "": all its pods
    create: Sequence[str] = ()  # names
    remove: Sequence[Removal] = ()
    recreated: int = 0  # how many of `create` replace lost pods
    upgrading: bool = False  # a replacement is under way
    wants_turn: bool = False  # a replacement would begin if it might
    again: float | None = None  # seconds until time alone changes the answer
    memory: Memory = Memory()  # what to remember once this is done


def is_ready(pod: Pod) -> bool:
    """Whether a pod serves."""
    return (
        not pod.deleting
        and pod.status.phase == "Running"
        and any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)
    )


def recreation_delay(recreations: int) -> float:
    """Seconds to wait before the next recreation, after so many.

    >>> [recreation_delay(number) for number in (0, 1, 2, 3, 9)]
    [0.0, 10.0, 20.0, 40.0, 300.0]
    """
    return min(FIRST_DELAY * 2.0 ** min(recreations - 1, 10), LONGEST_DELAY) if recreations else 0.0


def next_steps(
    wish: Wish,
    pods: Iterable[Pod],
    memory: Memory,
    *,
    now: float,
    served: str = "",
    drained: bool = True,
    turn: bool = False,
) -> Steps:
    """What to do next. `pods` are those that belong to the performer, `served` is the revision its Service selects.

    `drained`: the Service no longer sends anybody to old pods. `turn`: a replacement may begin.
    """
    look = _Look(wish, pods, memory, now)
    turn = turn or memory.upgrading
    if wish.strategy == "BlueGreen" and look.old and wish.replicas:
        return look.blue_green(served, drained=drained, turn=turn)
    return look.recreate(turn=turn)


class _Look:
    """The pods, sorted into those that count and those that do not."""

    def __init__(self, wish: Wish, pods: Iterable[Pod], memory: Memory, now: float) -> None:
        self.wish, self.now = wish, now
        self.pods = sorted(pods, key=lambda pod: pod.name)
        self.mark = [pod for pod in self.pods if adoptable(pod, wish.image)]
        marked = {pod.metadata.uid for pod in self.mark}
        current = [pod for pod in self.pods if _hash(pod) == wish.hash or pod.metadata.uid in marked]
        staying = [pod for pod in current if not pod.deleting]
        self.failed = [pod for pod in staying if self._gave_up(pod)]
        self.usable = [pod for pod in staying if pod not in self.failed]
        self.old = [pod for pod in self.pods if pod not in current and not pod.deleting]
        self.leaving = [pod for pod in self.pods if pod.deleting]
        same = memory.hash == wish.hash
        self.before = memory
        self.memory = memory if same else Memory(upgrading=memory.upgrading)
        self.known = same or bool(current)

    # -- the two ways --------------------------------------------------------------------------------------------------

    def recreate(self, *, turn: bool) -> Steps:
        """Old pods go one by one; new ones come when there is room."""
        wish = self.wish
        removals = self._surplus()
        again = self._remove_failed(removals)
        wants_turn = False
        doomed = self._next_old()
        if doomed and not turn and wish.replicas:
            wants_turn, doomed = True, []
        removals += [Removal(pod, "Replaced") for pod in doomed]
        missing = wish.replicas - len(self.pods) + len(self._extra())
        names = self._free_names(missing, blue_green=False)
        names, recreated, wait = self._paced(names)
        upgrading = self._upgrading(began=bool(doomed) or (bool(self.old) and turn))
        return Steps(
            mark=self.mark,
            revision=wish.revision if wish.strategy == "BlueGreen" else "",
            create=names,
            remove=removals,
            recreated=recreated,
            upgrading=upgrading,
            wants_turn=wants_turn,
            again=_sooner(again, wait),
            memory=self._remembered(len(names), recreated, upgrading=upgrading),
        )

    def blue_green(self, served: str, *, drained: bool, turn: bool) -> Steps:
        """New pods come beside the old ones; the Service turns when all of them are ready; then the old ones go."""
        wish = self.wish
        serving = self._serving(served)
        if not turn:
            return Steps(
                mark=self.mark,
                revision=served if served == wish.revision else serving,
                wants_turn=True,
                memory=self._remembered(0, 0, upgrading=False),
            )
        removals = self._surplus()
        again = self._remove_failed(removals)
        missing = wish.replicas - len(self.usable) - len(self.failed)
        names = self._free_names(missing, blue_green=True)
        names, recreated, wait = self._paced(names)
        turned = sum(map(is_ready, self.usable)) >= wish.replicas
        removals += [Removal(pod, "Replaced") for pod in self.old if not turned and _revision(pod) != serving]
        if turned and served == wish.revision and drained:
            removals += [Removal(pod, "Replaced") for pod in self.old]
        return Steps(
            mark=self.mark,
            revision=wish.revision if turned else serving,
            create=names,
            remove=removals,
            recreated=recreated,
            upgrading=True,
            again=_sooner(again, wait, DRAIN_LOOK if turned else None),
            memory=self._remembered(len(names), recreated, upgrading=True),
        )

    # -- parts of both -------------------------------------------------------------------------------------------------

    def _surplus(self) -> list[Removal]:
        return [Removal(pod, "ScaledDown") for pod in self._extra()]

    def _extra(self) -> list[Pod]:
        """Current pods beyond the number asked for: those that are not ready first, then the last ones."""
        ranked = sorted(
            self.usable, key=lambda pod: (not is_ready(pod), pod.name != pod_name(self.wish.performer), pod.name)
        )
        return ranked[self.wish.replicas :]

    def _remove_failed(self, removals: list[Removal]) -> float | None:
        """Pods that ended are removed when it is time to make another one; returns when to look again."""
        if not self.failed:
            return _sooner(*(self._patience(pod) for pod in self.usable))
        wait = self._wait()
        if wait > 0:
            return wait
        reason: Literal["Failed", "PendingTooLong"]
        for pod in self.failed:
            reason = "PendingTooLong" if pod.status.phase == "Pending" else "Failed"
            removals.append(Removal(pod, reason))
        return None

    def _next_old(self) -> list[Pod]:
        """The old pods that may go now: all that do not serve, or one, while everything else serves."""
        if not self.wish.replicas:
            return self.old
        idle = [pod for pod in self.old if not is_ready(pod)]
        if idle:
            return idle
        serving = sum(map(is_ready, self.usable)) + len(self.old)
        return self.old[:1] if serving >= self.wish.replicas and not self.leaving else []

    def _free_names(self, missing: int, *, blue_green: bool) -> list[str]:
        wish, taken = self.wish, {pod.name for pod in self.pods}
        slots = [further_name(wish.performer, wish.revision, number) for number in range(max(wish.replicas, 1))]
        if not blue_green:
            slots[0] = pod_name(wish.performer)
        return [name for name in slots if name not in taken][: max(missing, 0)]

    def _paced(self, names: list[str]) -> tuple[list[str], int, float | None]:
        """The names that may be made now, how many of them replace lost pods, and how long the others wait."""
        there = len(self.usable) + len(self.failed)
        lost = max(0, min(len(names), self.memory.created - there))
        wait = self._wait()
        if not lost or wait <= 0:
            return names, lost, None
        return names[: len(names) - lost], 0, wait

    def _wait(self) -> float:
        """Seconds until a lost pod may be made again."""
        since = self.now - self.memory.last_recreation
        count = 0 if since > FORGET_AFTER else self.memory.recreations
        return recreation_delay(count) - since if count else 0.0

    def _gave_up(self, pod: Pod) -> bool:
        patience = self._patience(pod)
        return pod.status.phase in ("Failed", "Succeeded") or (patience is not None and patience <= 0)

    def _patience(self, pod: Pod) -> float | None:
        """Seconds for which a pod may still be Pending; None: as long as it takes."""
        limit, created = self.wish.pending_seconds, pod.metadata.creation_timestamp
        if limit is None or pod.status.phase != "Pending" or not created:
            return None
        return limit - (self.now - parse_time(created).timestamp())

    def _serving(self, served: str) -> str:
        """The revision whose pods the Service should stay with."""
        best = max(
            self.old,
            key=lambda pod: (is_ready(pod), _revision(pod) == served, pod.metadata.creation_timestamp or "", pod.name),
        )
        return _revision(best)

    def _upgrading(self, *, began: bool) -> bool:
        if began or any(_hash(pod) not in (self.wish.hash, "") for pod in self.leaving):
            return True
        whole = sum(map(is_ready, self.usable)) >= self.wish.replicas and not self.old
        return self.memory.upgrading and not whole

    def _remembered(self, made: int, recreated: int, *, upgrading: bool) -> Memory:
        before = self.memory
        there = min(len(self.usable) + len(self.failed) + made, self.wish.replicas)
        created = max(there, min(before.created, self.wish.replicas))
        if not (self.known or made):
            return Memory(upgrading=True) if upgrading else msgspec.structs.replace(self.before, upgrading=False)
        count = 0 if self.now - before.last_recreation > FORGET_AFTER else before.recreations
        return Memory(
            hash=self.wish.hash,
            created=created,
            recreations=count + recreated if recreated else before.recreations,
            last_recreation=self.now if recreated else before.last_recreation,
            upgrading=upgrading,
        )


def adoptable(pod: Pod, image: str) -> bool:
    """Whether another version made a pod that runs what it should: it gets our marks and stays."""
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
