"""How far people have been told: one time on our own Lease, so that the next leader goes on where this one ended.

What happened is on the workloads already: each restart with its time and its sources. So one number is enough to know
what is still to be told, and it is written when a message has been delivered or given up, never before. A process that
dies between the two tells it again; none is lost.

    begun ──written──► open ──delivered or given up──► told ──every older one too──► below the mark

Invariant: every restart that is dated at or before the mark has been told, or was given up. Therefore
- a restart is begun here before it is sent, and dated after every mark that may have been written, whatever clocks say;
- one whose answer never came stays begun until the workload itself shows whether it was made;
- the mark does not move before the past of every workload has been read, as it was when we became the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from steersman.errors import FormatError
from steersman.kube.errors import Forbidden, KubeError, NotFound
from steersman.kube.patches import PatchType
from steersman.kube.types.coordination import Lease
from steersman.operators.reload.changes import Change
from steersman.operators.reload.types import SourceRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.kube.client import Client
    from steersman.operators.reload.state import Past
    from steersman.operators.reload.types import WorkloadId

__all__ = ["MARK", "Account", "LeaseMark", "changes_in"]

MARK: Final = "steersman.dev/reload-told"
_DIGITS: Final = 11  # of a time in this and the next thousand years
UNRESOLVED_SECONDS: Final = 3600  # after which nobody waits any more for the answer to a restart

log = structlog.get_logger(__name__)


class _Begun(msgspec.Struct, frozen=True):
    """A restart that was sent, or is about to be."""

    at: int
    revision: str  # of the workload it was planned for: another one shows what became of it


class Account:
    """Which restarts have been told. Pure."""

    def __init__(self) -> None:
        self.since: int | None = None  # everything up to this second has been told; None: not known (yet)
        self.complete = False  # the past of every workload has been read
        self._last_mark = 0  # no restart is dated at or before this second any more: it may have been written
        self._told = 0  # the last second of which something has been told
        self._latest: dict[WorkloadId, int] = {}  # the last restart that is told here, of those after `since`
        self._begun: dict[WorkloadId, _Begun] = {}

    def resume(self, mark: int | None, now: float) -> int:
        """Everything up to `mark` has been told; None: nobody knows, so it begins with this moment."""
        self.since = self._told = self._last_mark = int(now) - 1 if mark is None else mark  # this second is not over
        return self.since

    def begin(self, who: WorkloadId, past: Sequence[Past], revision: str) -> int:
        """A restart is about to be sent, the last of `past`; returns its date, later than anything told."""
        before = past[-2].at if len(past) > 1 else 0
        at = max(past[-1].at, self._last_mark + 1, self._latest.get(who, 0) + 1, before + 1)
        known = self._begun.get(who)
        self._begun[who] = _Begun(at if known is None else min(at, known.at), revision)
        return at

    def made(self, who: WorkloadId, at: int) -> None:
        """The restart was made, and somebody will tell it."""
        self._latest[who] = max(at, self._latest.get(who, 0))
        self._begun.pop(who, None)

    def refused(self, who: WorkloadId) -> None:
        """The restart was not made."""
        self._begun.pop(who, None)

    def saw(self, who: WorkloadId, past: Iterable[Past], revision: str) -> list[Past]:
        """A workload has this past; returns what of it is still to be told, and will be told by who asks."""
        begun = self._begun.get(who)
        if begun is not None and begun.revision != revision:
            del self._begun[who]  # whether it was made can be seen now
        if self.since is None:
            return []  # all workloads are read once it is known
        untold = [one for one in past if one.at > max(self.since, self._latest.get(who, 0))]
        if untold:
            self._latest[who] = max(one.at for one in untold)
        return untold

    def told(self, first: int, members: Iterable[WorkloadId]) -> None:
        """A message is under way, about restarts from the second `first` on."""
        self._told = max([self._told, first, *(self._latest.get(who, first) for who in members)])

    def next_mark(self, open_since: Iterable[int], now: float) -> int:
        """Up to when everything has been told, given the first seconds of messages that are not; to be written now."""
        if self.since is None or not self.complete:
            return self.since or 0
        for who in [one for one, begun in self._begun.items() if begun.at < now - UNRESOLVED_SECONDS]:
            del self._begun[who]
        waiting = [*open_since, *(one.at for one in self._begun.values())]
        mark = max(self.since, min((first - 1 for first in waiting), default=self._told))
        self._last_mark = max(self._last_mark, mark)
        return mark

    def marked(self, mark: int) -> None:
        """The mark is written: what it says need not be remembered."""
        self.since = mark
        self._latest = {who: at for who, at in self._latest.items() if at > mark}

    def __len__(self) -> int:
        """How many restarts are remembered."""
        return len(self._latest) + len(self._begun)


class LeaseMark:
    """The mark on the Lease of this process; nobody else writes it while we hold the Lease."""

    def __init__(self, client: Client, lease: str) -> None:
        """`lease`: NAMESPACE/NAME."""
        self._client = client
        self._namespace, _, self._name = lease.partition("/")
        self.barred = False  # it may not be written, and it is of no use to try again
        self.revision = ""  # of the Lease when it was read: whatever another leader wrote was before that

    async def read(self) -> int | None:
        """Seconds since the epoch; None when nobody has told anything yet."""
        try:
            lease = await self._client.get(Lease, self._name, namespace=self._namespace)
        except (NotFound, Forbidden):
            return None
        self.revision = lease.metadata.resource_version
        text = lease.annotations.get(MARK, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else None

    async def begin(self, at: int) -> bool:
        """Write the first mark; returns whether there is one now, or never will be: without a Lease there is none."""
        try:
            await self._client.get(Lease, self._name, namespace=self._namespace)
        except (NotFound, Forbidden):
            return True
        except KubeError:
            return False
        return await self.write(at) or self.barred

    async def write(self, at: int) -> bool:
        """Everything up to this second has been told; returns whether that is written."""
        if self.barred:
            return False
        patch = {"metadata": {"annotations": {MARK: str(at)}}}
        try:
            await self._client.patch(Lease, self._name, patch, type=PatchType.MERGE, namespace=self._namespace)
        except Forbidden as error:
            self.barred = True
            log.warning("messages that a crash interrupts are not told later", error=str(error))
            return False
        except KubeError as error:
            log.debug("the mark of what has been told is not written", error=str(error))
            return False
        return True


def changes_in(told: str, namespace: str) -> list[Change]:
    """The changes that a record of the past names: `configmap/app#mode,level secret/db`.

    >>> [str(one.source) for one in changes_in("configmap/app#mode secret/lab/db and 3 more", "shop")]
    ['configmap/shop/app', 'secret/lab/db']
    >>> changes_in("configmap/app#mode,lev…", "shop")[0].keys
    ('mode',)
    """
    found = []
    for word in told.split():
        name, _, keys = word.partition("#")
        try:
            source = SourceRef.parse(name, namespace)
        except FormatError:
            continue  # "and 3 more", or cut off
        whole = keys.split(",")[: -1 if keys.endswith("…") else None]  # nobody knows how the last one goes on
        found.append(Change(source, tuple(key for key in whole if key)))
    return found
