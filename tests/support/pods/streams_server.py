"""What a kubelet behind an API server answers: logs, commands over v5.channel.k8s.io, and ports.

    async with StreamsServer() as server: ...      # server.url; server.requests has the paths and queries

The commands it knows: `cat` (stdin to stdout until stdin is closed), `exit N`, `size` (answers each resize), `fail` (an
error frame that is not an exit code), `hangup` (closes without a status), `both` (one line on each output), and those
that docs/howto/pods.md runs. `objects` are answered by their path; `backends` lead from ports of pods to local ones.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self

from aiohttp import WSMsgType, web

__all__ = ["StreamsServer"]


class StreamsServer:
    """See the module's docstring."""

    def __init__(self, *, protocols: tuple[str, ...] = ("v5.channel.k8s.io", "v4.channel.k8s.io")) -> None:
        self._protocols = protocols
        self.requests: list[tuple[str, list[tuple[str, str]]]] = []
        self.offered: list[str] = []
        self.objects: dict[str, Any] = {}
        self.backends: dict[int, int] = {}
        self.log = b"first\n\nthird\nunfinished"
        app = web.Application()
        pod = "/api/v1/namespaces/{namespace}/pods/{name}"
        app.router.add_get(pod + "/log", self._log)
        app.router.add_get(pod + "/exec", self._exec)
        app.router.add_get(pod + "/portforward", self._forward)
        app.router.add_get("/{path:.*}", self._object)
        self._runner = web.AppRunner(app, shutdown_timeout=1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._runner.cleanup()

    def _note(self, request: web.Request) -> None:
        self.requests.append((request.path, list(request.query.items())))
        self.offered.append(request.headers.get("Sec-WebSocket-Protocol", ""))

    async def _object(self, request: web.Request) -> web.StreamResponse:
        self._note(request)
        missing = {"kind": "Status", "code": 404, "reason": "NotFound", "message": f"{request.path} not found"}
        found = self.objects.get(request.path, missing)
        return web.json_response(found, status=found.get("code", 200))

    async def _log(self, request: web.Request) -> web.StreamResponse:
        self._note(request)
        return web.Response(body=self.log, content_type="text/plain")

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        self._note(request)
        if request.match_info["name"] == "missing":
            status = {"kind": "Status", "code": 404, "reason": "NotFound", "message": 'pods "missing" not found'}
            return web.json_response(status, status=404)
        if request.match_info["name"] == "moved":
            return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/elsewhere"})
        socket = web.WebSocketResponse(protocols=self._protocols)
        await socket.prepare(request)
        await self._command(socket, [value for name, value in request.query.items() if name == "command"])
        await socket.close()
        return socket

    async def _command(self, socket: web.WebSocketResponse, command: list[str]) -> None:
        match command:
            case ["cat"]:
                await self._until_closed(socket)
                await self._status(socket, 0)
            case ["sh", "-c", "pg_dump app"]:
                await socket.send_bytes(b"\x01CREATE TABLE orders;")
                await self._status(socket, 0)
            case ["psql", "app"]:
                await self._until_closed(socket)
                await self._status(socket, 0)
            case ["exit", code]:
                await self._status(socket, int(code))
            case ["both"]:
                await socket.send_bytes(b"\x01out\n")
                await socket.send_bytes(b"\x02err\n")
                await self._status(socket, 0)
            case ["size"]:
                message = await socket.receive()
                assert message.data[0] == 4
                await socket.send_bytes(b"\x01" + message.data[1:])
                await self._status(socket, 0)
            case ["fail"]:
                failure = {"status": "Failure", "reason": "InternalError", "code": 500, "message": "no such file"}
                await socket.send_bytes(b"\x03" + json.dumps(failure).encode())

    async def _until_closed(self, socket: web.WebSocketResponse) -> None:
        async for message in socket:
            if message.data[:2] == b"\xff\x00":
                return
            assert message.data[0] == 0
            await socket.send_bytes(b"\x01" + message.data[1:])

    async def _status(self, socket: web.WebSocketResponse, code: int) -> None:
        status: dict[str, Any] = {"metadata": {}, "status": "Success"}
        if code:
            causes = [{"reason": "ExitCode", "message": str(code)}]
            text = f"command terminated with non-zero exit code: exit status {code}"
            status = {"status": "Failure", "reason": "NonZeroExitCode", "message": text, "details": {"causes": causes}}
        await socket.send_bytes(b"\x03" + json.dumps(status).encode())

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        self._note(request)
        if refused := self.objects.get(request.path):
            return web.json_response(refused, status=refused["code"])
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        port = int(request.query["ports"])
        for channel in (0, 1):
            await socket.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
        if port == 1:
            await socket.send_bytes(b"\x01connection refused")
        if port in self.backends:
            await self._through(socket, self.backends[port])
            return socket
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                await socket.send_bytes(b"\x00" + message.data[1:].upper())
        return socket

    async def _through(self, socket: web.WebSocketResponse, port: int) -> None:
        """Pass a request on, and then its answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        message = await socket.receive()
        writer.write(message.data[1:])
        while data := await reader.read(4096):
            await socket.send_bytes(b"\x00" + data)
        writer.close()
        await socket.close()
