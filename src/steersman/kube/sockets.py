"""Sockets that notice when the other side is gone, and streams that do not wake the process for every packet.

Without keepalive a watch through a dead NAT entry or a vanished node stays open and silent for ever; with these
values the kernel gives such a connection up after about a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from aiohttp import ClientResponse
    from aiohttp.connector import AddrInfoType

__all__ = ["Gathering", "keepalive_socket"]

# Names that some systems do not have are skipped.
_TCP_OPTIONS: Final = {
    "TCP_KEEPIDLE": 30,  # seconds of silence before the first probe
    "TCP_KEEPINTVL": 10,  # seconds between probes
    "TCP_KEEPCNT": 3,  # probes without an answer that end the connection
    "TCP_USER_TIMEOUT": 60_000,  # milliseconds that data we sent may stay unacknowledged
}


def keepalive_socket(address: AddrInfoType) -> socket.socket:
    """A socket for `address` with TCP keepalive on."""
    family, kind, protocol, *_ = address
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP_OPTIONS.items():
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return sock


class Gathering:
    """Lets the kernel gather what a busy stream sends, so that many events cost one wake-up.

    A stream that has more again within `SECONDS` is busy: for that long, the kernel is asked to wait until `BYTES` are
    there. What is gathered then is a flood from `MANY` on, and worth twice the patience. The first events after a
    silence are therefore never held back, those that follow closely at most `SECONDS`, those in a flood twice that,
    and a fast stream not at all: when `BYTES` are there sooner, the time begins anew, as nothing waits any more. It
    ends by itself, so a connection is never left like that.
    """

    SECONDS: Final = 0.02
    BYTES: Final = 2**18  # what asyncio reads at once
    MANY: Final = 2**16  # some 50 events of 1 KB, or 3 MB/s

    def __init__(self, answer: ClientResponse) -> None:
        transport = answer.connection.transport if answer.connection is not None else None
        self._socket: Any = transport.get_extra_info("socket") if transport is not None else None
        self._loop = asyncio.get_running_loop()
        self._free = self._loop.time()  # since when nothing has been held back that could have come
        self._end: asyncio.TimerHandle | None = None  # of gathering

    def woken(self, size: int) -> None:
        """So many bytes came."""
        now = self._loop.time()
        busy = self._end is not None or now - self._free < self.SECONDS
        self._free = now
        if not busy or self._socket is None:
            return
        if self._end is not None:
            self._end.cancel()
        else:
            self._ask_for(self.BYTES)
        self._end = self._loop.call_later(self.SECONDS * (2 if size >= self.MANY else 1), self._relax)

    def _relax(self) -> None:
        self._end = None
        self._ask_for(1)
        self._free = self._loop.time()

    def _ask_for(self, least: int) -> None:
        with contextlib.suppress(OSError, AttributeError):  # closed meanwhile; or a system that has no such option
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
