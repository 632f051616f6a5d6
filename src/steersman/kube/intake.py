"""How the bytes of a stream come in: into a buffer that is there already.

asyncio takes a quarter of a megabyte from the allocator for every TLS record, gives most of it back, and joins the
records: in a busy stream, memory goes back to the system and comes again with every read. A protocol that has a buffer
gets all records of one read in there instead.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aiohttp.client_proto import ResponseHandler

if TYPE_CHECKING:
    import aiohttp

__all__ = ["read_into_buffers"]

BUFFER: Final = 2**18  # what asyncio reads from a socket at once


class _BufferedHandler(ResponseHandler, asyncio.BufferedProtocol):
    """aiohttp's protocol, with a buffer. Nothing refers to the buffer any more when `data_received` returns."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._room = memoryview(bytearray(BUFFER))  # takes no memory before something is written to it

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # asyncio asks with a guess
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._room[:nbytes]))


def read_into_buffers(connector: aiohttp.BaseConnector) -> None:
    """Have the connections that `connector` will make read like that."""
    factory: Any = partial(_BufferedHandler, loop=asyncio.get_running_loop())
    connector._factory = factory  # noqa: SLF001  # there is no public way
