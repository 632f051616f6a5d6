"""What a control plane does on its own after a write: collect garbage, end namespaces, serve new definitions.

Each worker looks at every change and notes what it has to do; the work is done in the next turn of the event loop, so
it happens after the request that caused it was answered and before the next one is looked at. Work causes changes and
changes cause work; a turn ends when there is none left. The real plane does the same a little later.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from steersman.apiserver.definitions import Definitions
from steersman.apiserver.garbage import Garbage
from steersman.apiserver.namespaces import Namespaces

if TYPE_CHECKING:
    from steersman.apiserver.api import Api
    from steersman.apiserver.store import Event, Table

__all__ = ["Background", "Worker"]


class Worker(Protocol):
    """One duty of the control plane."""

    def observe(self, table: Table, event: Event) -> bool:
        """Note what a change means for this duty; True when there is something to do."""

    def run(self) -> None:
        """Do what was noted."""


class Background:
    """All duties of one server."""

    def __init__(self, api: Api, *, ca_pem: str = "") -> None:
        self._workers: tuple[Worker, ...] = (Definitions(api), Namespaces(api, ca_pem=ca_pem), Garbage(api))
        self._scheduled = False
        api.store.listen(self._observe)

    def _observe(self, table: Table, event: Event) -> None:
        work = False
        for worker in self._workers:
            work = worker.observe(table, event) or work
        if work and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        for worker in self._workers:
            worker.run()
