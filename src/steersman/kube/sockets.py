"""Sockets that notice when the other side is gone.

Without keepalive a watch through a dead NAT entry or a vanished node stays open and silent for ever; with these
values the kernel gives such a connection up after about a minute.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiohttp.connector import AddrInfoType

__all__ = ["keepalive_socket"]

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
