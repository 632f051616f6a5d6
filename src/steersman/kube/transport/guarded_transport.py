"""A transport whose every write passes a guard, on the connections of another transport.

The guard prepares a write once (as a dry run, for example) and is asked again before every attempt of it. Reads and
streams of them pass as they are. A transport that is guarded twice passes both guards: no code that is given it can get
rid of the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.kube.transport.transport import Transport
from steersman.kube.transport.write_requests import WriteRequest, is_write

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from steersman.kube.transport.transport import Response
    from steersman.kube.transport.write_requests import WriteInterceptor

__all__ = ["GuardedTransport"]


class GuardedTransport(Transport):
    """See the module's docstring."""

    def __init__(self, transport: Transport, guard: WriteInterceptor) -> None:  # it has no connections of its own
        self.config = transport.config
        self.options = transport.options
        self._transport = transport
        self._guard = guard

    async def close(self) -> None:
        await self._transport.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        retry: bool = True,
        admit: Callable[[], None] | None = None,
    ) -> Response:
        if not is_write(method, path):
            return await self._transport.request(
                method, path, params=params, body=body, headers=headers, timeout=timeout, retry=retry
            )
        guard = self._guard
        write = guard.prepare(WriteRequest(method, path, params or {}, body))

        def admitted() -> None:
            if admit is not None:
                admit()
            guard.admit(write)

        return await self._transport.request(
            method,
            write.path,
            params=write.params,
            body=write.body,
            headers=headers,
            timeout=timeout,
            retry=retry,
            admit=admitted,
        )

    def stream(self, path: str, **options: Any) -> Any:
        if is_write("GET", path):
            self._guard.prepare(WriteRequest("GET", path, {}, None))
        return self._transport.stream(path, **options)

    def websocket(
        self,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        protocols: Sequence[str],
        timeout: float | None = None,
        admit: Callable[[], None] | None = None,
    ) -> Any:
        own = self.admission(path)

        def admitted() -> None:
            if admit is not None:
                admit()
            own()

        return self._transport.websocket(path, query=query, protocols=protocols, timeout=timeout, admit=admitted)

    def admission(self, path: str) -> Callable[[], None]:
        write, inner = self._guard.prepare(WriteRequest("GET", path, {}, None)), self._transport.admission(path)

        def admit() -> None:
            if inner is not None:
                inner()
            self._guard.admit(write)

        return admit
