"""The connections of a listener: which of them go when there are too many. Pure: no sockets, no clock.

A connection is *waiting* until a complete request header has arrived, and again between two requests; it is *serving*
while a handler works for it. Invariants:

- There are at most `total` connections, and at most `per_peer` of one address.
- At most seven eighths of either are serving. So some are always waiting, and a new connection always finds room: the
  oldest waiting connection of its own peer goes, or that of the peer with the most waiting ones.

Therefore a peer that opens connections and sends nothing displaces only itself, and a probe, which sends its request at
once, is answered however many others are half-sent.

    add ──► waiting ──begin──► serving ──end──► waiting ──remove──► forgotten
"""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["ConnectionTable"]

C = TypeVar("C")


class ConnectionTable(Generic[C]):
    """Which connections there are, of which peer, and what they do."""

    def __init__(self, *, total: int, per_peer: int) -> None:
        if not 2 <= per_peer <= total:
            raise ValueError("a connection table needs 2 <= per_peer <= total")
        self._total, self._per_peer = total, per_peer
        self._peers: dict[C, str] = {}
        self._waiting: dict[str, dict[C, None]] = {}  # by peer, the oldest first
        self._serving: dict[str, set[C]] = {}

    def __len__(self) -> int:
        return len(self._peers)

    @property
    def serving(self) -> int:
        """How many are being served."""
        return sum(len(served) for served in self._serving.values())

    def add(self, connection: C, peer: str) -> C | None:
        """A new connection of `peer`; returns the connection to close for it, which may be the new one itself."""
        evicted: C | None = None
        if self._of(peer) >= self._per_peer:
            evicted = self._oldest(peer)
            evicted = connection if evicted is None else evicted
        elif len(self._peers) >= self._total:
            evicted = self.oldest_waiting()
            evicted = connection if evicted is None else evicted
        self._peers[connection] = peer
        self._waiting.setdefault(peer, {})[connection] = None
        if evicted is not None:
            self.remove(evicted)
        return evicted

    def begin(self, connection: C, *, reserved: bool = False) -> bool:
        """A request has arrived: whether a handler may work for it. `reserved` is for what must always be answered."""
        peer = self._peers.get(connection)
        if peer is None:
            return False
        of_peer = len(self._serving.get(peer, ()))
        if not reserved and (of_peer >= _most(self._per_peer) or self.serving >= _most(self._total)):
            return False
        self._drop(self._waiting, peer, connection)
        self._serving.setdefault(peer, set()).add(connection)
        return True

    def end(self, connection: C) -> bool:
        """The handler is done: whether the connection is still there; it then waits, as the youngest."""
        peer = self._peers.get(connection)
        if peer is None:
            return False
        self._drop(self._serving, peer, connection)
        self._waiting.setdefault(peer, {})[connection] = None
        return True

    def remove(self, connection: C) -> None:
        """The connection is closed."""
        peer = self._peers.pop(connection, None)
        if peer is not None:
            self._drop(self._waiting, peer, connection)
            self._drop(self._serving, peer, connection)

    def oldest_waiting(self) -> C | None:
        """The oldest waiting connection of the peer that has the most of them; None when all are serving."""
        peer = max(self._waiting, key=lambda name: len(self._waiting[name]), default=None)
        return None if peer is None else self._oldest(peer)

    def _oldest(self, peer: str) -> C | None:
        return next(iter(self._waiting.get(peer, ())), None)

    def _of(self, peer: str) -> int:
        return len(self._waiting.get(peer, ())) + len(self._serving.get(peer, ()))

    @staticmethod
    def _drop(table: dict[str, dict[C, None]] | dict[str, set[C]], peer: str, connection: C) -> None:
        members = table.get(peer)
        if members is None:
            return
        if isinstance(members, dict):
            members.pop(connection, None)
        else:
            members.discard(connection)
        if not members:
            del table[peer]


def _most(places: int) -> int:
    """How many of so many places may be serving."""
    return places - max(1, places // 8)
