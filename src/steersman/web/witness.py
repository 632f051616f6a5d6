"""Who changed it: the managers of the keys that changed, asked when somebody looks and never otherwise.

The operator itself reads nothing to decide, so it does not know. When a fresh change is on the page, its source is
asked once for its managed fields, which hold names and no values. A change that was written over since then has no
witness any more: nothing is claimed about it.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import FormatError
from steersman.kube.errors import KubeError
from steersman.kube.times import parse_time
from steersman.operators.reload.flapping import managers
from steersman.operators.reload.types import SourceRef
from steersman.web.model import Standing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from steersman.clock import Clock
    from steersman.kube.client import Client
    from steersman.kube.objects import ManagedFieldsEntry
    from steersman.web.model import Change, Scene, WorkloadView

    Question = tuple[str, tuple[str, ...], int]  # source, keys, second of the restart (0: it waits)

__all__ = ["Witness", "who"]

FRESH: Final = timedelta(minutes=10)  # older changes are not asked about
REMEMBERED: Final = 5_000  # answers
WAITING: Final = frozenset({Standing.PENDING, Standing.HELD, Standing.OPEN})
AT_ONCE: Final = 200  # questions that wait


class Witness:
    """Remembers who changed what."""

    def __init__(self, client: Client, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._clock = clock
        self._answers: dict[Question, list[str]] = {}
        self._asked: set[Question] = set()
        self._questions: asyncio.Queue[Question] = asyncio.Queue(AT_ONCE)
        self.learned = 0  # counts answers

    def complete(self, scene: Scene) -> Scene:
        """The scene with the names that are known; what is fresh and not known is asked."""
        since = datetime.fromtimestamp(self._clock.time(), UTC) - FRESH
        views = [self._told(view, since) for view in scene.workloads]
        told = {(view.workload.id, one.at): one.changes for view in views for one in view.restarts}
        history = [replace(one, changes=told.get((one.workload, one.at), one.changes)) for one in scene.history]
        return replace(scene, workloads=views, history=history)

    async def run(self) -> None:
        """Answer questions, for ever."""
        while True:
            question = await self._questions.get()
            source, keys, second = question
            try:
                entries = await managers(self._client, _ref(source))
            except KubeError:
                entries = ()  # gone, or not ours to read
            if len(self._answers) >= REMEMBERED:
                self._answers.clear()
                self._asked.clear()
            self._answers[question] = who(entries, keys, second)
            self.learned += 1

    def _told(self, view: WorkloadView, since: datetime) -> WorkloadView:
        """Only the last change of a source can be asked about: whoever wrote before has been written over."""
        node, later, restarts = view.workload, set[str](), []
        if node.changes:
            node = replace(node, changes=self._with_names(node.changes, 0, later))
            later |= {one.source for one in node.changes if node.standing in WAITING}
        for one in view.restarts:
            second = int(one.at.timestamp())
            changes = self._with_names(one.changes, second, later) if one.at > since else one.changes
            restarts.append(replace(one, changes=changes))
            later |= {change.source for change in one.changes}
        return replace(view, workload=node, restarts=restarts)

    def _with_names(self, changes: Iterable[Change], second: int, later: Collection[str]) -> list[Change]:
        return [
            one if one.source in later else replace(one, by=self._names((one.source, tuple(one.keys), second)))
            for one in changes
        ]

    def _names(self, question: Question) -> list[str]:
        if question not in self._asked and not self._questions.full():
            self._asked.add(question)
            self._questions.put_nowait(question)
        return self._answers.get(question, [])


def who(entries: Sequence[ManagedFieldsEntry], keys: Sequence[str], second: int) -> list[str]:
    """The managers of these keys (of any, when nobody knows which), the latest first.

    With `second`, nobody: as soon as one of them wrote after it, for then the change before cannot be told from theirs.
    """
    found = []
    for entry in entries:
        fields = entry.fields_v1 or {}
        data = {**(fields.get("f:data") or {}), **(fields.get("f:binaryData") or {})}
        if data and (not keys or any(f"f:{key}" in data for key in keys)):
            found.append((_seconds(entry.time), entry.manager))
    if second and any(at > second for at, _ in found):
        return []
    return list(dict.fromkeys(manager for _, manager in sorted(found, reverse=True)))


def _seconds(text: str | None) -> float:
    try:
        return parse_time(text or "").timestamp()
    except FormatError:
        return 0.0


def _ref(source: str) -> SourceRef:
    return SourceRef.parse(source, "")
