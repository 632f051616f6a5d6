"""An open stream of lines from the server.

Invariant: it ends in one of three ways: no more lines (the server ended it), RequestTimeout (silence for too long), or
another KubeError (it broke, or is no stream of lines). A wait that is cancelled loses nothing: the next one goes on
where it was, which an async generator could not do.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from steersman.clock import Clock, Deadline
from steersman.kube.errors import BadResponse, ConnectionFailed, KubeError, RequestInfo, RequestTimeout
from steersman.kube.failures import explain
from steersman.kube.lines import LineSplitter, LineTooLongError, split_block
from steersman.kube.sockets import Gathering

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from typing import Self

    from steersman.kube.clusterconfig import ClusterConfig

__all__ = ["LineStream"]

# What is decoded, stored and told in one go. Small, because the objects that a change replaces are freed right after:
# the next ones are made in memory that is still in the CPU's caches.
BLOCK: Final = 2**15


class LineStream:
    """The lines, as an async iterator; `block` gives those that arrived together."""

    def __init__(
        self,
        answer: aiohttp.ClientResponse,
        request: RequestInfo,
        config: ClusterConfig,
        *,
        clock: Clock,
        idle_timeout: float | None,
        max_line_bytes: int,
    ) -> None:
        self.request = request
        self._answer = answer
        self._arrived = arrivals(answer.content)
        self._config = config
        self._clock = clock
        self._idle_timeout = idle_timeout
        self._splitter = LineSplitter(limit=max_line_bytes)
        self._ready: Iterator[bytes] = iter(())
        self._blocks: Iterator[bytes | memoryview] = iter(())  # of what has been read already
        self._gathering = Gathering(answer)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while (line := next(self._ready, None)) is None:
            block = await self.block()
            if not block:
                raise StopAsyncIteration
            self._ready = iter(split_block(block))
        return line

    async def block(self) -> bytes | memoryview:
        """The next whole lines, at most some `BLOCK` bytes of what came together, so it waits only when all is given.

        None when the server has ended the stream, an error when the stream broke.
        """
        try:
            while (block := next(self._blocks, None)) is None:
                chunks = await self._chunks()
                if not chunks:
                    break
                self._blocks = self._splitter.blocks(chunks, BLOCK)
        except LineTooLongError as error:
            raise BadResponse(f"not a stream of events: {error}", request=self.request) from None
        if block is not None:
            return block
        if self._splitter.rest:
            raise BadResponse("the stream ended in the middle of a line", request=self.request)
        return b""

    async def _chunks(self) -> Sequence[bytes]:
        try:
            async with Deadline(self._clock, self._idle_timeout):
                chunks = await self._arrived()
        except TimeoutError:
            failure: KubeError = RequestTimeout(
                f"nothing came for {self._idle_timeout:g} seconds: the connection is taken for dead",
                request=self.request,
            )
        except aiohttp.ClientPayloadError:
            failure = ConnectionFailed("the connection broke in the middle of the stream", request=self.request)
        except (aiohttp.ClientError, OSError) as error:
            failure = explain(error, self.request, self._config, 0.0).error
        else:
            self._gathering.woken(sum(map(len, chunks)))
            return chunks
        raise failure


def arrivals(content: aiohttp.StreamReader) -> Callable[[], Awaitable[Sequence[bytes]]]:
    """Gives all that has arrived and was not read yet, as `content.readany` joins it; waits while there is nothing.

    An API server sends every event as an HTTP chunk of its own. aiohttp hands such chunks over one by one and looks
    into its parser after each, which costs more than decoding the event; there is no public way around that. So the
    buffer is emptied in one go here, with the same bookkeeping; a reader that is built differently is asked politely.
    """
    known = all(hasattr(content, name) for name in _PARTS)
    return partial(_drained if known else _politely, content)


_PARTS: Final = (
    *("_buffer", "_buffer_offset", "_cursor", "_eof", "_exception", "_http_chunk_splits", "_protocol", "_size"),
    "_wait",
)


async def _politely(content: aiohttp.StreamReader) -> Sequence[bytes]:
    return (data,) if (data := await content.readany()) else ()


async def _drained(content: Any) -> Sequence[bytes]:
    # ruff: noqa: SLF001
    buffer = content._buffer
    while not buffer and not content._eof and content._exception is None:
        await content._wait("readany")
    if content._exception is not None:
        raise content._exception
    if content._buffer_offset:  # somebody has read a part of the first chunk
        return (data,) if (data := content.read_nowait(-1)) else ()
    chunks, splits = tuple(buffer), content._http_chunk_splits
    buffer.clear()
    content._cursor += content._size
    content._size = 0
    while splits and splits[0] < content._cursor:
        splits.popleft()
    if content._protocol._reading_paused:
        content._protocol.resume_reading()
    return chunks
