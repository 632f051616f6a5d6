"""The embedded API server: an `Api` behind HTTP, ready within milliseconds, gone without a trace.

    async with EmbeddedServer() as server:
        client = ...  # any Kubernetes client, with server.kubeconfig()

TLS and a bearer token are on by default, both made for the run; the server listens on loopback. Everything lives in
memory and in the running event loop. It is for tests, demos and laptops: one process, no persistence. Authenticated
users may do everything, unless the server is started with `authorization="rbac"`.
"""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import yaml
from aiohttp import web

from steersman.apiserver.admission.caller import WebhookCaller
from steersman.apiserver.controllers.control_plane import ControlPlaneLoop, bootstrap
from steersman.apiserver.http.authenticator import ADMIN, MASTERS
from steersman.apiserver.http.faults import Faults
from steersman.apiserver.http.listener import Listener
from steersman.apiserver.http.state import Api
from steersman.apiserver.write.decoding import MAX_BODY
from steersman.certificates import Authority, load_pair
from steersman.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Mapping
    from random import Random
    from types import TracebackType

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http import RawRequestMessage
    from aiohttp.streams import StreamReader
    from aiohttp.web_protocol import RequestHandler

    from steersman.apiserver.http.listener import LogEntry


class EmbeddedServer:
    """One API server. Enter it to start, leave it to stop."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,  # 0 takes a free one
        tls: bool = True,
        token: str | None = None,  # None makes one; "" turns authentication off
        authorization: Literal["always-allow", "rbac"] = "always-allow",
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,  # for names and uids
        history: int = 50_000,  # changes kept for watches
        seed: int = 0,  # for faults with a probability
        services: Mapping[str, str] | None = None,  # where webhooks of services listen: namespace/name -> host:port
    ) -> None:
        self.token = secrets.token_urlsafe(24) if token is None else token
        if authorization == "rbac" and not self.token:
            raise ValueError('authorization="rbac" needs authentication: start the server with a token')
        self.faults = Faults(seed)
        self.api = Api(clock=clock, random=random, history=history, token=self.token, rbac=authorization == "rbac")
        self._host, self._port, self._tls = host, port, tls
        self._authority = Authority("steersman-apiserver-ca") if tls else None
        self.services = dict(services or {})
        self._caller = WebhookCaller(self.api, self.services)
        self.api.hub.convert = self._caller.convert
        self._handler = Listener(self.api, self.faults, self._caller)
        self.pods = self._handler.pods  # what pods answer to logs, exec and port-forward
        self._web: web.Server | None = None
        self._listener: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. The initial namespaces and services exist when this returns."""
        loop = asyncio.get_running_loop()
        context = _tls(self._authority, self._host, "localhost", "kubernetes") if self._authority else None

        def request(
            message: RawRequestMessage,
            payload: StreamReader,
            protocol: RequestHandler,
            writer: AbstractStreamWriter,
            task: asyncio.Task[None],
        ) -> web.BaseRequest:
            return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)

        self._web = web.Server(
            self._handler.handle,
            request_factory=request,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=3600.0,
        )
        self._listener = await loop.create_server(self._web, self._host, self._port, ssl=context, backlog=512)
        self._port = self._listener.sockets[0].getsockname()[1]
        self._handler.pages.address = f"{self._host}:{self._port}"
        ControlPlaneLoop(self.api, ca_pem=self.ca_pem)
        bootstrap(self.api, host=self._host, port=self._port)

    async def stop(self) -> None:
        """End every watch and close every connection."""
        self._handler.close()
        if self._listener is not None:
            self._listener.close()
        if self._web is not None:
            await self._web.shutdown(1.0)
        await self._caller.close()
        if self._listener is not None:
            await self._listener.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        return self._port

    @property
    def url(self) -> str:
        """Where it listens."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self._port}"

    @property
    def ca_pem(self) -> str:
        """The certificate authority to trust; empty without TLS."""
        return self._authority.pem.decode() if self._authority else ""

    @property
    def requests(self) -> deque[LogEntry]:
        """What was asked and answered, oldest first; clear it as you like."""
        return self._handler.log

    @property
    def revision(self) -> int:
        """The current revision of the store."""
        return self.api.store.revision

    def compact(self, revision: int | None = None) -> None:
        """Forget old revisions (all but the current by default): lists and watches that need them get 410."""
        self.api.store.compact(revision)

    def client_certificate(self, user: str = ADMIN, groups: tuple[str, ...] = ()) -> tuple[str, str]:
        """A client certificate for `user` and its key (PEM); needs TLS. The administrator is in `system:masters`."""
        if self._authority is None:
            raise ValueError("client certificates need TLS: start the server with tls=True")
        signed = self._authority.client(user, groups or ((MASTERS,) if user == ADMIN else ()))
        return signed.certificate.decode(), signed.key.decode()

    def kubeconfig(self) -> str:
        """A kubeconfig (YAML) with everything a client needs, the token included."""
        cluster: dict[str, str] = {"server": self.url}
        if self._authority:
            cluster["certificate-authority-data"] = base64.b64encode(self.ca_pem.encode()).decode()
        name = "steersman"
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": name, "cluster": cluster}],
                "users": [{"name": name, "user": {"token": self.token} if self.token else {}}],
                "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
                "current-context": name,
            },
            sort_keys=False,
        )

    def write_kubeconfig(self, path: str | os.PathLike[str]) -> None:
        """Write the kubeconfig, readable by the owner only."""
        target = Path(path)
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(self.kubeconfig())


def _tls(authority: Authority, *names: str) -> ssl.SSLContext:
    """TLS for a server known by `names`; client certificates of its authority are taken."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_verify_locations(cadata=authority.pem.decode())
    context.verify_mode = ssl.CERT_OPTIONAL
    load_pair(context, authority.server(*names))
    return context
