"""Into a pod: its logs, a command in it, a port of it.

    text = await client.logs("web-0", tail_lines=100)
    async with client.follow_logs("web-0") as lines:
        async for line in lines: ...
    done = await client.exec("web-0", ["cat", "/etc/hostname"])        # .exit_code .stdout .stderr
    async with client.open_exec("web-0", ["sh"], stdin=True) as shell: ...
    async with client.port_forward("web-0", 8080) as local:            # 127.0.0.1:local.port

Commands and ports go over WebSockets. A message is one byte for its channel and then data:

    exec (v5.channel.k8s.io)           0 stdin   1 stdout   2 stderr   3 status   4 resize   255 close of a channel
    port-forward (v4.channel.k8s.io)   0 data    1 error; the first message of each is the number of the port

Invariant: a command ends in an exit code or in a KubeError, never in silence that passes for success: a connection that
closes without a status is an error. `admit` is asked before every message that is sent, so a process that may no longer
act cannot go on typing into a shell that it opened in time.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypedDict

import aiohttp
import msgspec

from steersman.kube.api.errors import BadResponse, ConnectionFailed, RequestInfo, ResponseTooLarge, error_for_status
from steersman.kube.api.gvk import Kind
from steersman.kube.client.reader import query

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from typing import Self

    from steersman.kube.client.client import Client
    from steersman.kube.transport.stream import LineStream

__all__ = [
    "ExecResult",
    "ExecStream",
    "LogLines",
    "LogOptions",
    "PodConnection",
    "PortForward",
    "follow_logs",
    "log_params",
    "logs",
    "open_exec",
    "port_forward",
    "run_command",
]

STDIN: Final = 0
STDOUT: Final = 1
STDERR: Final = 2
_STATUS: Final = 3
_RESIZE: Final = 4
_CLOSE: Final = 255
_V5: Final = "v5.channel.k8s.io"
_V4: Final = "v4.channel.k8s.io"  # servers before 1.30: as v5, but a client cannot close stdin
_PIECE: Final = 2**15  # bytes of one message

_PODS: Final = Kind(version="v1", kind="Pod", plural="pods")


# -- logs --------------------------------------------------------------------------------------------------------------


class LogOptions(TypedDict, total=False):
    """Which part of a log, by the names kubectl has for it."""

    container: str | None
    previous: bool  # the log of the container before it was restarted
    since_seconds: int | None
    tail_lines: int | None
    timestamps: bool
    limit_bytes: int | None


def log_params(
    *,
    container: str | None = None,
    previous: bool = False,
    since_seconds: int | None = None,
    tail_lines: int | None = None,
    timestamps: bool = False,
    limit_bytes: int | None = None,
) -> dict[str, str]:
    """The parameters of a request for logs with `LogOptions`."""
    return query(
        container=container,
        previous="true" if previous else None,
        sinceSeconds=since_seconds,
        tailLines=tail_lines,
        timestamps="true" if timestamps else None,
        limitBytes=limit_bytes,
    )


async def logs(client: Client, name: str, namespace: str | None, params: dict[str, str]) -> str:
    """The log of a container so far."""
    path = _PODS.path(namespace or client.namespace, name, "log")
    response = await client._request("GET", path, params=params, headers=_ANY)  # noqa: SLF001  a part of the client
    return response.body.decode(errors="replace")


class LogLines:
    """The lines of a log as they come."""

    def __init__(self, lines: LineStream) -> None:
        self._lines = lines

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        line = await self._lines.text_line()
        if line is None:
            raise StopAsyncIteration
        return line.decode(errors="replace")


@asynccontextmanager
async def follow_logs(
    client: Client, name: str, namespace: str | None, params: dict[str, str]
) -> AsyncIterator[LogLines]:
    """The log of a container, until the container ends."""
    path = _PODS.path(namespace or client.namespace, name, "log")
    async with client.transport.stream(path, params={**params, "follow": "true"}, headers=_ANY) as lines:
        yield LogLines(lines)


_ANY: Final = {"Accept": "*/*"}


# -- exec --------------------------------------------------------------------------------------------------------------


class ExecResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a command answered."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""


class ExecStream:
    """A command at work: iterate over (channel, data) until it ends, then ask for `exit_code`."""

    def __init__(
        self, socket: aiohttp.ClientWebSocketResponse, request: RequestInfo, admit: Callable[[], None] | None
    ) -> None:
        self._socket = socket
        self._request = request
        self._admit = admit
        self._exit_code: int | None = None

    @property
    def exit_code(self) -> int:
        """How the command ended; RuntimeError while it runs."""
        if self._exit_code is None:
            raise RuntimeError("the command has not ended: read its output to the end first")
        return self._exit_code

    async def send(self, data: bytes) -> None:
        """Write to the standard input of the command."""
        for start in range(0, len(data), _PIECE):
            await self._send(STDIN, data[start : start + _PIECE])

    async def close_stdin(self) -> None:
        """Let the command read the end of its input."""
        if self._socket.protocol != _V5:
            raise BadResponse(
                f"the server speaks {self._socket.protocol}, in which stdin cannot be closed (1.30 or newer can)",
                request=self._request,
            )
        await self._send(_CLOSE, bytes([STDIN]))

    async def resize(self, width: int, height: int) -> None:
        """Set the size of the command's terminal, in characters."""
        await self._send(_RESIZE, msgspec.json.encode({"Width": width, "Height": height}))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, bytes]:
        while True:
            message = await self._socket.receive()
            if message.type is aiohttp.WSMsgType.BINARY and message.data:
                channel, data = message.data[0], message.data[1:]
                if channel == _STATUS:
                    self._exit_code = _exit_code(data, self._request)
                elif channel in (STDOUT, STDERR) and data:
                    return channel, data
            elif message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED):
                if self._exit_code is None:
                    raise ConnectionFailed(
                        "the connection ended before the command said how it ended", request=self._request
                    )
                raise StopAsyncIteration
            elif message.type is aiohttp.WSMsgType.ERROR:
                raise ConnectionFailed(f"the connection broke: {message.data}", request=self._request)

    async def _send(self, channel: int, data: bytes) -> None:
        if self._admit is not None:
            self._admit()
        try:
            await self._socket.send_bytes(bytes([channel]) + data)
        except (aiohttp.ClientError, ConnectionError) as error:
            raise ConnectionFailed(f"the connection broke: {error}", request=self._request) from None


@asynccontextmanager
async def open_exec(
    client: Client,
    name: str,
    command: Sequence[str],
    *,
    namespace: str | None,
    container: str | None,
    stdin: bool,
    tty: bool,
) -> AsyncIterator[ExecStream]:
    """Start a command in a container."""
    path = _PODS.path(namespace or client.namespace, name, "exec")
    options = query(container=container, stdin="true" if stdin else None, tty="true" if tty else None)
    options |= {"stdout": "true"} if tty else {"stdout": "true", "stderr": "true"}  # a terminal has one output
    asked = [*options.items(), *(("command", word) for word in command)]
    request = RequestInfo("GET", path)
    async with client.transport.websocket(path, query=asked, protocols=(_V5, _V4)) as socket:
        yield ExecStream(socket, request, client.transport.admission(path))


async def run_command(stream: ExecStream, stdin: bytes | None, limit: int) -> ExecResult:
    """Feed a command and read what it answers, up to `limit` bytes."""
    reading = asyncio.create_task(_collect(stream, limit))
    feeding = asyncio.create_task(_feed(stream, stdin))
    try:
        await asyncio.wait([reading, feeding], return_when=asyncio.FIRST_COMPLETED)
        if feeding.done():
            feeding.result()  # what keeps us from typing keeps the command from ending
        return await reading
    finally:
        for task in (reading, feeding):
            task.cancel()
        await asyncio.gather(reading, feeding, return_exceptions=True)


async def _collect(stream: ExecStream, limit: int) -> ExecResult:
    output: dict[int, list[bytes]] = {STDOUT: [], STDERR: []}
    size = 0
    async for channel, data in stream:
        output[channel].append(data)
        size += len(data)
        if size > limit:
            raise ResponseTooLarge(f"the command wrote more than {limit} bytes: read them with open_exec")
    return ExecResult(exit_code=stream.exit_code, stdout=b"".join(output[STDOUT]), stderr=b"".join(output[STDERR]))


async def _feed(stream: ExecStream, data: bytes | None) -> None:
    if data is not None:
        with suppress(ConnectionFailed):  # a command may end without reading all of its input
            await stream.send(data)
            await stream.close_stdin()


def _exit_code(status: bytes, request: RequestInfo) -> int:
    """The exit code in a Status; the error that it stands for when the command did not even run."""
    try:
        said: dict[str, Any] = msgspec.json.decode(status, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise BadResponse(f"the status of a command is not JSON: {error}", request=request) from None
    if said.get("status") == "Success":
        return 0
    for cause in (said.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode" and str(cause.get("message")).isdecimal():
            return int(cause["message"])
    raise error_for_status(said, request=request)


# -- port-forward ------------------------------------------------------------------------------------------------------


class PortForward:
    """A local port whose connections lead to a port of a pod."""

    def __init__(self, client: Client, path: str, port: int) -> None:
        self._client = client
        self._path = path
        self._port = port
        self._connections: set[asyncio.Task[Any]] = set()
        self.host = "127.0.0.1"
        self.port = 0  # the local one
        self.error: Exception | None = None  # why the last connection that failed did

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            async with self.open() as connection:
                await connection.pump(reader, writer)
        except Exception as error:  # noqa: BLE001  the local client sees a closed connection; `error` says why
            self.error = error
        finally:
            self._connections.discard(task)
            writer.close()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[PodConnection]:
        """One connection to the port of the pod, without a local port."""
        transport = self._client.transport
        asked = [("ports", str(self._port))]
        async with transport.websocket(self._path, query=asked, protocols=(_V4,)) as socket:
            yield PodConnection(socket, RequestInfo("GET", self._path), transport.admission(self._path))


class PodConnection:
    """A connection to a port of a pod."""

    def __init__(
        self, socket: aiohttp.ClientWebSocketResponse, request: RequestInfo, admit: Callable[[], None] | None
    ) -> None:
        self._socket = socket
        self._request = request
        self._admit = admit
        self._named: set[int] = set()  # channels whose first message, the port, has come

    async def send(self, data: bytes) -> None:
        """Write to the pod."""
        for start in range(0, len(data), _PIECE):
            if self._admit is not None:
                self._admit()
            await self._socket.send_bytes(bytes([0]) + data[start : start + _PIECE])

    async def receive(self) -> bytes:
        """The next data of the pod; empty when it has closed the connection, an error when it refused it."""
        while True:
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                return b""
            channel, data = message.data[0], message.data[1:]
            if channel not in self._named:
                self._named.add(channel)
            elif channel == 1:
                raise ConnectionFailed(data.decode(errors="replace").strip(), request=self._request)
            elif data:
                return bytes(data)

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass everything on in both directions until one side ends."""

        async def outgoing() -> None:
            while data := await reader.read(_PIECE):
                await self.send(data)

        async def incoming() -> None:
            while data := await self.receive():
                writer.write(data)
                await writer.drain()

        ways = [asyncio.create_task(outgoing()), asyncio.create_task(incoming())]
        try:
            ended, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ended:
                way.result()
            if ways[0] in ended:  # the local side has sent all: the answer may still come
                await ways[1]
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)


@asynccontextmanager
async def port_forward(
    client: Client, name: str, port: int, *, namespace: str | None, local_port: int
) -> AsyncIterator[PortForward]:
    """Listen on a local port for connections to a port of a pod."""
    path = _PODS.path(namespace or client.namespace, name, "portforward")
    client.transport.admission(path)  # a guard that would refuse every connection refuses here
    forward = PortForward(client, path, port)
    server = await asyncio.start_server(forward._accept, forward.host, local_port)  # noqa: SLF001  one thing
    forward.port = server.sockets[0].getsockname()[1]
    try:
        yield forward
    finally:
        server.close()
        for task in forward._connections:  # noqa: SLF001  likewise
            task.cancel()
        await asyncio.gather(*forward._connections, return_exceptions=True)  # noqa: SLF001  likewise
