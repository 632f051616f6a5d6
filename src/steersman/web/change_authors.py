"""Who changed a source: the field managers of the keys that changed, read only while the page is open.

The operator does not need authors to decide, so it does not read them. When a fresh change is on the page, the managed
fields of its source are read once; they hold names and no values. A change that has been overwritten since then has no
known author.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import FormatError
from steersman.kube.api.errors import KubeError
from steersman.kube.api.times import parse_time
from steersman.operators.reload.api.config import SourceRef
from steersman.operators.reload.controllers.report import managers
from steersman.operators.reload.inspect.restart_state import RestartState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from steersman.clock import Clock
    from steersman.kube.api.objects import ManagedFieldsEntry
    from steersman.kube.client.client import Client
    from steersman.web.model import ChangedSource, PageSnapshot, WorkloadView

    Question = tuple[str, tuple[str, ...], int]  # source, keys, second of the restart (0: it waits)

FRESH: Final = timedelta(minutes=10)  # older changes are not asked about
REMEMBERED: Final = 5_000  # answers
WAITING: Final = frozenset({RestartState.PENDING, RestartState.HELD, RestartState.OPEN})
AT_ONCE: Final = 200  # questions that wait


class ChangeAuthors:
    """Remembers who changed what."""

    def __init__(self, client: Client, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._clock = clock
        self._answers: dict[Question, list[str]] = {}
        self._asked: set[Question] = set()
        self._questions: asyncio.Queue[Question] = asyncio.Queue(AT_ONCE)
        self.learned = 0  # counts answers

    def complete(self, snapshot: PageSnapshot) -> PageSnapshot:
        """The snapshot with the names that are known; what is fresh and not known is asked."""
        since = datetime.fromtimestamp(self._clock.time(), UTC) - FRESH
        views = [self._with_authors(view, since) for view in snapshot.workloads]
        changes_of = {(view.workload.id, restart.at): restart.changes for view in views for restart in view.restarts}
        history = [
            replace(restart, changes=changes_of.get((restart.workload, restart.at), restart.changes))
            for restart in snapshot.history
        ]
        return replace(snapshot, workloads=views, history=history)

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

    def _with_authors(self, view: WorkloadView, since: datetime) -> WorkloadView:
        """Only the last change of a source has known authors: managed fields of earlier ones are overwritten."""
        node, later, restarts = view.workload, set[str](), []
        if node.changes:
            node = replace(node, changes=self._named(node.changes, 0, later))
            later |= {restart.source for restart in node.changes if node.standing in WAITING}
        for restart in view.restarts:
            second = int(restart.at.timestamp())
            changes = self._named(restart.changes, second, later) if restart.at > since else restart.changes
            restarts.append(replace(restart, changes=changes))
            later |= {change.source for change in restart.changes}
        return replace(view, workload=node, restarts=restarts)

    def _named(self, changes: Iterable[ChangedSource], second: int, later: Collection[str]) -> list[ChangedSource]:
        return [
            change
            if change.source in later
            else replace(change, by=self._names((change.source, tuple(change.keys), second)))
            for change in changes
        ]

    def _names(self, question: Question) -> list[str]:
        if question not in self._asked and not self._questions.full():
            self._asked.add(question)
            self._questions.put_nowait(question)
        return self._answers.get(question, [])


def who(entries: Sequence[ManagedFieldsEntry], keys: Sequence[str], second: int) -> list[str]:
    """The managers of these keys (of any key, when `keys` is empty), the latest first.

    With `second`, none as soon as one of them wrote after it: the earlier change cannot be told apart from theirs.
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
