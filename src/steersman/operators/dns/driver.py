"""What the operator asks of a server, whatever way there is to it.

`native` speaks named's own protocols; `bindcar` goes through the HTTP sidecar. A driver belongs to one server, keeps no
state about zones, and raises DriverError (`.retryable` says whether asking again may help) for everything that fails.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Protocol

from steersman.errors import DriverError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.operators.dns.messages import Change
    from steersman.operators.dns.rrsets import Key, RRset, Soa
    from steersman.operators.dns.servers import Server
    from steersman.operators.dns.zonetext import Statement

__all__ = ["BadZone", "Driver", "Refused", "Stale", "Static", "ZoneFileAccess", "fault_of"]


def fault_of(error: Exception, place: str) -> str:
    """What is wrong with a connection, and where: Python's own words hold numbers and brackets."""
    if isinstance(error, socket.gaierror):
        return f"{place}: {error.strerror}"
    if isinstance(error, OSError) and error.errno:
        return f"{place}: {os.strerror(error.errno)}"
    return str(error) or type(error).__name__


class Stale(DriverError):  # noqa: N818  a state, not a fault
    """The zone is not what it was when we read it: read it again."""


class Refused(DriverError):  # noqa: N818  an answer, not a fault
    """The server does not want a change, for a reason that it keeps to itself; nothing of it was made."""


class BadZone(DriverError):  # noqa: N818  an answer, not a fault
    """The server would not load a zone as it was given, for something in it."""


class Static(DriverError):  # noqa: N818  a state, not a fault
    """The zone is part of the server's own configuration, and not for us to remove."""


class ZoneFileAccess(DriverError):  # noqa: N818  the reason of a condition
    """The server has no way to get the first copy of a zone."""


class Driver(Protocol):
    """One server."""

    server: Server

    async def configuration(self, zone: bytes) -> tuple[Statement, ...] | None:
        """How the server has the zone configured; None when it does not have it."""

    async def create_primary(
        self, zone: bytes, config: tuple[Statement, ...], soa: Soa, rrsets: Mapping[Key, RRset], ttl: int
    ) -> None:
        """Begin to serve a zone, complete from its first moment; BadZone when the server does not load it."""

    async def create_secondary(self, zone: bytes, config: tuple[Statement, ...]) -> None:
        """Begin to fetch and serve a zone."""

    async def configure(self, zone: bytes, config: tuple[Statement, ...]) -> None:
        """Serve a zone that is there in another way."""

    async def remove(self, zone: bytes) -> None:
        """Serve a zone no more, and leave nothing of it; fine when it is not there, Static when it is not ours."""

    async def soa(self, zone: bytes) -> bytes | None:
        """The start of authority that is being served; None when the zone is not."""

    async def soa_ttl(self, zone: bytes) -> int | None:
        """The TTL of the start of authority that is being served."""

    async def values(self, zone: bytes, kind: int) -> list[bytes]:
        """The values of a type at the zone's own name."""

    async def read(self, zone: bytes, skip: frozenset[int]) -> tuple[bytes, Mapping[Key, RRset]]:
        """Everything that is being served."""

    async def write(
        self, zone: bytes, expected: bytes | None, soa: bytes | None, ttl: int, changes: Sequence[Change]
    ) -> None:
        """Change a zone as a whole or not at all; Stale when it no longer has the start of authority `expected`.

        Refused when the server would not have it, be it for one of the changes or for all.
        """

    async def refresh(self, zone: bytes) -> None:
        """Have a secondary ask its primaries now."""

    async def signing(self, zone: bytes) -> str:
        """What the server says about the keys of a signed zone."""

    async def load_keys(self, zone: bytes) -> None:
        """Have the server look for the keys of a signed zone now, if there is a way to say so."""

    async def reconfigure(self) -> None:
        """Have the server read its configuration again."""

    async def renew(self) -> bool:
        """Have the server read new keys if it does not know them yet; says whether it knows them now."""

    async def ready(self) -> None:
        """Return when the server answers on its control channel."""

    def close(self) -> None:
        """Hang up."""
