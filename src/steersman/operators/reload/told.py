"""How far people have been told: one time on our own Lease, so that the next leader goes on where this one ended.

What happened is on the workloads already: each restart with its time and its sources. So one number is enough to know
what is still to be told, and it is written when a message has been delivered or given up, never before. A process that
dies between the two tells it again; none is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from steersman.errors import FormatError
from steersman.kube.errors import Forbidden, KubeError, NotFound
from steersman.kube.patches import PatchType
from steersman.kube.types.coordination import Lease
from steersman.operators.reload.changes import Change
from steersman.operators.reload.types import SourceRef

if TYPE_CHECKING:
    from steersman.kube.client import Client

__all__ = ["MARK", "LeaseMark", "changes_in"]

MARK: Final = "steersman.dev/reload-told"

log = structlog.get_logger(__name__)


class LeaseMark:
    """The mark on the Lease of this process; nobody else writes it while we hold the Lease."""

    def __init__(self, client: Client, lease: str) -> None:
        """`lease`: NAMESPACE/NAME."""
        self._client = client
        self._namespace, _, self._name = lease.partition("/")
        self._barred = False

    async def read(self) -> int | None:
        """Seconds since the epoch; None when nobody has told anything yet."""
        try:
            lease = await self._client.get(Lease, self._name, namespace=self._namespace)
        except (NotFound, Forbidden):
            return None
        text = lease.annotations.get(MARK, "")
        return int(text) if text.isascii() and text.isdecimal() else None

    async def write(self, at: int) -> bool:
        """Everything up to this second has been told; returns whether that is written."""
        if self._barred:
            return False
        patch = {"metadata": {"annotations": {MARK: str(at)}}}
        try:
            await self._client.patch(Lease, self._name, patch, type=PatchType.MERGE, namespace=self._namespace)
        except Forbidden as error:
            self._barred = True
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
    """
    found = []
    for word in told.split():
        name, _, keys = word.partition("#")
        try:
            source = SourceRef.parse(name, namespace)
        except FormatError:
            continue  # "and 3 more", or cut off
        found.append(Change(source, tuple(key for key in keys.rstrip("…").split(",") if key)))
    return found
