"""Logs, commands and ports of pods: a stand-in for the kubelet that this server does not have.

    server.pods.answer("web-0", namespace="shop", log="ready\\n", exec=run, ports={8080: port})

`run(command, stdin)` returns (exit code, stdout, stderr); a port of the pod is a port of 127.0.0.1 where the test
listens. Refusals are those of a real server: a pod or container that does not exist, a pod without a node. Commands
speak v5.channel.k8s.io and run when their input has ended; a log is sent once, also to those who follow it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web

from steersman.apiserver import status_errors
from steersman.apiserver.http.requests import Route
from steersman.apiserver.http.state import Reply
from steersman.apiserver.storage.reads import find

if TYPE_CHECKING:
    from steersman.apiserver.http.state import Api

Command = Callable[[list[str], bytes], tuple[int, bytes, bytes]]

_PATH: Final = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/(log|exec|portforward)")


class _Answer(msgspec.Struct, frozen=True):
    log: str = ""
    exec: Command | None = None
    ports: Mapping[int, int] = {}


class PodStreams:
    """What pods answer."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._answers: dict[tuple[str, str], _Answer] = {}

    def answer(
        self,
        name: str,
        *,
        namespace: str = "default",
        log: str = "",
        exec: Command | None = None,  # noqa: A002  # the verb's name
        ports: Mapping[int, int] | None = None,
    ) -> None:
        """Set what this pod answers, also before it exists; `ports` are ports of 127.0.0.1 by those of the pod."""
        self._answers[namespace, name] = _Answer(log, exec, dict(ports or {}))

    def route(self, path: str) -> Route | None:
        """The stream that a path names, if it names one."""
        found = _PATH.fullmatch(path)
        info = self._api.registry.lookup("", "v1", "pods") if found is not None else None
        return Route(info, found[1], found[2], found[3]) if found is not None and info is not None else None

    async def respond(self, http: web.BaseRequest, route: Route) -> Reply | web.StreamResponse:
        """Answer a request, or raise the StatusError that rejects it."""
        pod = find(self._api, route.info, route.namespace, route.name).obj
        answer = self._answers.get((route.namespace, route.name), _Answer())
        if route.subresource != "portforward":
            _check_container(pod, http.query.get("container", ""))
        if route.subresource == "log":
            return Reply(200, _part(answer.log, http.query), "text/plain")
        if not pod["spec"].get("nodeName"):
            raise status_errors.bad_request(f"pod {route.name} does not have a host assigned")
        if route.subresource == "exec":
            return await _exec(http, answer.exec or _missing(route))
        port = http.query.get("ports", "")
        if not (port.isdecimal() and int(port) in answer.ports):
            _missing(route)
        return await _forward(http, int(port), answer.ports[int(port)])


def _missing(route: Route) -> Any:
    option = "ports" if route.subresource == "portforward" else "exec"
    raise status_errors.internal(
        f"pods of this server run no containers: set what {route.name} answers, "
        f'server.pods.answer("{route.name}", namespace="{route.namespace}", {option}=…)'
    )


def _check_container(pod: dict[str, Any], name: str) -> None:
    names, first = ([row["name"] for row in pod["spec"].get(part) or ()] for part in ("containers", "initContainers"))
    of_pod = f"for pod {pod['metadata']['name']}"
    if name and name not in [*names, *first]:
        raise status_errors.bad_request(f"container {name} is not valid {of_pod}")
    if not name and len(names) > 1:
        choices = " ".join([*first, *names])
        raise status_errors.bad_request(f"a container name must be specified {of_pod}, choose one of: [{choices}]")


def _part(log: str, query: Mapping[str, str]) -> bytes:
    lines, tail = log.splitlines(keepends=True), _number(query, "tailLines")
    last = lines if tail is None else lines[max(0, len(lines) - tail) :]
    return "".join(last).encode()[: _number(query, "limitBytes")]


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is not None and not text.isdecimal():
        raise status_errors.bad_request(f'{name}: "{text}" is not a whole number (try 100)')
    return None if text is None else int(text)


async def _exec(http: web.BaseRequest, run: Command) -> web.StreamResponse:
    socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
    await socket.prepare(http)
    stdin = b""
    if http.query.get("stdin") == "true":
        async for message in socket:
            if message.data[:2] == b"\xff\x00":  # the end of channel 0
                break
            stdin += message.data[1:] if message.data[0] == 0 else b""
    code, *outputs = run(http.query.getall("command", []), stdin)
    for channel, data in enumerate(outputs, 1):
        if data:
            await socket.send_bytes(bytes([channel]) + data)
    status: dict[str, Any] = {"metadata": {}, "status": "Success"}
    if code:
        causes = [{"reason": "ExitCode", "message": str(code)}]
        text = f"command terminated with non-zero exit code: exit status {code}"
        status = {"status": "Failure", "reason": "NonZeroExitCode", "message": text, "details": {"causes": causes}}
    await socket.send_bytes(b"\x03" + msgspec.json.encode(status))
    await socket.close()
    return socket


async def _forward(http: web.BaseRequest, port: int, local: int) -> web.StreamResponse:
    socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
    await socket.prepare(http)
    for channel in (b"\x00", b"\x01"):
        await socket.send_bytes(channel + port.to_bytes(2, "little"))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", local)
    except OSError as error:
        await socket.send_bytes(b"\x01" + f"nothing listens on port {local} of 127.0.0.1: {error.strerror}".encode())
        await socket.close()
        return socket

    async def answers() -> None:
        with suppress(ConnectionError):
            while data := await reader.read(2**15):
                await socket.send_bytes(b"\x00" + data)
            await socket.close()

    sending = asyncio.create_task(answers())
    try:
        async for message in socket:
            writer.write(message.data[1:])
    finally:
        sending.cancel()
        writer.close()
    return socket
