"""Profiles at work inside a test: a process in the place of another program, and a connection that refuses requests.

async with station(client, namespace, "shipshape", WATCH_NAMESPACE=namespace) as process:
    …
with refusing(client, "PATCH", "/deployments/web", ServerError("boom", code=500), times=1):
    …
with interrupting(client, "/configmaps") as interruption:
    …  # watches are open
    interruption.end(Unauthorized("who are you?", code=401), refuse=True)
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence

    from steersman.clock import Clock
    from steersman.kube.api.errors import KubeError
    from steersman.kube.client.client import Client
    from steersman.operators.reload.compat.profiles.process import Process

__all__ = ["interrupting", "refusing", "station"]

SPEED = 10.0


@asynccontextmanager
async def station(
    client: Client,
    namespace: str,
    profile: str,
    argv: Sequence[str] = (),
    *,
    further: Sequence[str] = (),
    everywhere: bool = False,
    shadow: bool = False,
    clock: Clock | None = None,
    **environ: str,
) -> AsyncIterator[Process]:
    """Run a profile until the block ends, in `namespace` and `further` ones, or `everywhere`.

    A process that fails fails the test.

    The block begins when everything that is watched has been seen and the process works. Its time is ten times as fast.
    """
    from msgspec.structs import replace
    from prometheus_client import CollectorRegistry

    from steersman.operators.reload.compat.profiles import read_profile
    from steersman.operators.reload.compat.profiles.process import Process
    from steersman.testing import FastClock

    read = replace(read_profile(profile, argv, environ), listen="127.0.0.1:0")
    if not read.config.namespaces and not everywhere:
        read = replace(read, config=replace(read.config, namespaces=(namespace, *further)))
    process = Process(
        read, client, namespace=namespace, shadow=shadow, registry=CollectorRegistry(), clock=clock or FastClock(SPEED)
    )
    running = asyncio.create_task(process.run())
    try:
        working = asyncio.create_task(_working(process))
        await asyncio.wait({running, working}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            working.cancel()
            await running
        yield process
    finally:
        process.end()
        await running


async def _working(process: Process) -> None:
    await process.manager.working.wait()
    while not process.ready():  # noqa: ASYNC110  # there is no event for all of them together
        await asyncio.sleep(0.01)


@contextmanager
def refusing(
    client: Client, method: str, part: str, error: KubeError, *, times: int | None = None, unless: str = "\0"
) -> Iterator[list[str]]:
    """Answer requests whose path holds `part` with an error, the first `times` of them; gives what was refused.

    `unless` their field selector holds this.
    """
    transport: Any = client.transport
    forward, forward_stream = transport.request, transport.stream
    refused: list[str] = []

    def check(verb: str, path: str, options: dict[str, Any]) -> None:
        if unless in (options.get("params") or {}).get("fieldSelector", ""):
            return
        if verb == method and part in path and (times is None or len(refused) < times):
            refused.append(path)
            raise error

    async def request(verb: str, path: str, **options: Any) -> Any:
        check(verb, path, options)
        return await forward(verb, path, **options)

    @asynccontextmanager
    async def stream(path: str, **options: Any) -> AsyncIterator[Any]:
        check("GET", path, options)
        async with forward_stream(path, **options) as lines:
            yield lines

    transport.request, transport.stream = request, stream
    try:
        yield refused
    finally:
        del transport.request, transport.stream


class Interruption:
    """What can happen to open streams; see `interrupting`."""

    def __init__(self) -> None:
        self.silent = False
        self.over = asyncio.Event()
        self.error: KubeError | None = None
        self.refuses = False

    def silence(self) -> None:
        """From now on open streams bring nothing, as if the network had lost it."""
        self.silent = True

    def end(self, error: KubeError, *, refuse: bool = False) -> None:
        """End open streams with an error; with `refuse`, whatever is read afterwards gets it too."""
        self.error, self.refuses = error, refuse
        self.over.set()


@contextmanager
def interrupting(client: Client, part: str) -> Iterator[Interruption]:
    """Gives what can happen to the streams whose path holds `part` that are opened from now on."""
    transport: Any = client.transport
    forward, forward_stream = transport.request, transport.stream
    interruption = Interruption()

    def check(path: str) -> None:
        if interruption.refuses and interruption.error is not None and part in path:
            raise interruption.error

    async def request(verb: str, path: str, **options: Any) -> Any:
        check(path if verb == "GET" else "")
        return await forward(verb, path, **options)

    @asynccontextmanager
    async def stream(path: str, **options: Any) -> AsyncIterator[Any]:
        check(path)
        async with forward_stream(path, **options) as lines:
            affected = part in path and not interruption.over.is_set()
            yield _Interruptible(lines, interruption) if affected else lines

    transport.request, transport.stream = request, stream
    try:
        yield interruption
    finally:
        del transport.request, transport.stream


class _Interruptible:
    """Lines that may fall silent, and end with an error."""

    def __init__(self, lines: Any, interruption: Interruption) -> None:
        self._lines = lines
        self._interruption = interruption

    def __aiter__(self) -> _Interruptible:
        return self

    async def __anext__(self) -> bytes:
        return bytes(await self._unless(self._lines.__anext__()))

    async def block(self) -> Any:
        return await self._unless(self._lines.block())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lines, name)

    async def _unless(self, reading: Coroutine[Any, Any, Any]) -> Any:
        read, over = asyncio.ensure_future(reading), asyncio.ensure_future(self._interruption.over.wait())
        try:
            await asyncio.wait({read, over}, return_when=asyncio.FIRST_COMPLETED)
            if self._interruption.silent:
                await over
            if over.done() and self._interruption.error is not None:
                raise self._interruption.error
            return read.result()
        finally:
            read.cancel()
            over.cancel()
