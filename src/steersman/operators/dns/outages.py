"""Which servers do not answer, said once when that begins and once when it is over.

A server is away while a way to it (DNS, its control channel) failed when it was last tried. Who asks is no matter: a
hundred zones of one server are one outage. A pod that has never answered is starting, and its kubelet says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from steersman.kube.resources import ObjectRef
    from steersman.operators.dns.servers import Server

__all__ = ["Outages"]

log = structlog.get_logger(__name__)


class Outages:
    """See the module. `wake` has an instance looked at."""

    def __init__(self, wake: Callable[[ObjectRef], object]) -> None:
        self._wake = wake
        self._away: dict[str, dict[str, str]] = {}  # server -> way -> why
        self._instances: dict[str, ObjectRef] = {}  # of all servers that were heard of
        self._answered: set[str] = set()
        self._told: set[str] = set()

    def heard(self, server: Server, way: str, why: str) -> None:
        """A server was tried in a way; `why` is empty when it gave a sign of life."""
        ways = self._away.get(server.id)
        if not why:
            self._answered.add(server.id)
            if ways is not None and ways.pop(way, None) is not None and not ways:
                del self._away[server.id]
                self._told.discard(server.id)
                log.info("server is back", server=server.title, address=server.address)
                self._wake(server.instance)
        elif ways is not None:
            ways[way] = why
        elif not server.managed or server.id in self._answered:
            self._away[server.id] = {way: why}
            log.warning("server does not answer", server=server.title, address=server.address, way=way, why=why)
            self._wake(server.instance)
        self._instances[server.id] = server.instance

    def untold(self, instance: ObjectRef, servers: Iterable[Server]) -> list[tuple[str, str]]:
        """The servers of an instance whose outage was not told yet, and why; whoever is no longer one is forgotten."""
        here = {server.id: server.title for server in servers}
        for gone in [place for place, one in self._instances.items() if one == instance and place not in here]:
            del self._instances[gone]
            self._away.pop(gone, None)
            self._answered.discard(gone)
            self._told.discard(gone)
        fresh = [place for place in here if place in self._away and place not in self._told]
        self._told.update(fresh)
        return [(here[place], "; ".join(self._away[place].values())) for place in fresh]
