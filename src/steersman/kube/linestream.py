"""An open stream of lines from the server.

Invariant: it ends in one of three ways: no more lines (the server ended it), RequestTimeout (silence for too long), or
another KubeError (it broke, or is no stream of lines). A wait that is cancelled loses nothing: the next one goes on
where it was, which an async generator could not do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp

from steersman.clock import Clock, timeout
from steersman.kube.errors import BadResponse, ConnectionFailed, KubeError, RequestInfo, RequestTimeout
from steersman.kube.failures import explain
from steersman.kube.lines import LineSplitter, LineTooLongError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from steersman.kube.clusterconfig import ClusterConfig

__all__ = ["LineStream"]


class LineStream:
    """The lines, as an async iterator; `batch` gives those that arrived together."""

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
        self._config = config
        self._clock = clock
        self._idle_timeout = idle_timeout
        self._splitter = LineSplitter(limit=max_line_bytes)
        self._ready: Iterator[bytes] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while (line := next(self._ready, None)) is None:
            batch = await self.batch()
            if not batch:
                raise StopAsyncIteration
            self._ready = iter(batch)
        return line

    async def batch(self) -> list[bytes]:
        """The next whole lines; none when the server has ended the stream, an error when the stream broke."""
        while chunk := await self._chunk():
            try:
                lines = self._splitter.feed(chunk)
            except LineTooLongError as error:
                raise BadResponse(f"not a stream of events: {error}", request=self.request) from None
            if lines:
                return lines
        if self._splitter.rest:
            raise BadResponse("the stream ended in the middle of a line", request=self.request)
        return []

    async def _chunk(self) -> bytes:
        try:
            async with timeout(self._clock, self._idle_timeout):
                return await self._answer.content.readany()
        except TimeoutError:
            failure: KubeError = RequestTimeout(
                f"nothing came for {self._idle_timeout:g} seconds: the connection is taken for dead",
                request=self.request,
            )
        except aiohttp.ClientPayloadError:
            failure = ConnectionFailed("the connection broke in the middle of the stream", request=self.request)
        except (aiohttp.ClientError, OSError) as error:
            failure = explain(error, self.request, self._config, 0.0).error
        raise failure
