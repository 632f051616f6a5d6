"""Free ports that stay ours until a program listens on them.

Asking the kernel for a free port and closing the socket again leaves a gap in which another test may be given the same
one. Here the socket stays bound, without listening, while a program that shares ports (`SO_REUSEPORT`: etcd's
`--socket-reuse-port`, Kubernetes' `--permit-port-sharing`) binds beside it; nobody else can.
"""

from __future__ import annotations

import socket
from typing import Self

__all__ = ["LOOPBACK", "PromisedPort"]

LOOPBACK = "127.0.0.1"


class PromisedPort:
    """A port on the loopback address, held inside the `with` block; `number` 0 takes any that is free."""

    def __init__(self, number: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind((LOOPBACK, number))
        self.number: int = self._socket.getsockname()[1]

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{LOOPBACK}:{self.number}"

    def release(self) -> None:
        """Let go early, for a program that cannot share."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
