"""`steersman dns sidecar` as a process beside a `Named`, or the original, and a life that tests control.

async with SidecarProcess(ns1) as car:
    await car.ask("GET", "/zones")      # status and body of an answer
    await car.kill()                    # kill -9; `start` brings it back on the same port
async with driving(car) as driver:      # the operator's way to it
    ...
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steersman.testing.controlplane.processes import LOOPBACK
from tests.support.programs.loopback_server import LoopbackServer, PortClaim

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from steersman.operators.dns.bind.http_driver import BindcarDriver
    from steersman.operators.dns.bind.servers import Server
    from tests.support.dns.named import Named
    from tests.support.dns.zones import Site

__all__ = ["OriginalSidecar", "SidecarProcess", "driving", "put_behind", "server_of"]


class SidecarProcess(LoopbackServer):
    """See the module. `options` are further ones of the command."""

    def __init__(self, named: Named, *options: str) -> None:
        self.named = named
        self.token = secrets.token_hex(16)
        self._options = options
        self._port = PortClaim()
        super().__init__(self._port)

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._port.number

    @property
    def folder(self) -> Path:
        """Its key and its token are files here."""
        return self.named.folder

    @property
    def log(self) -> str:
        """What it wrote."""
        return (self.folder / "sidecar.log").read_text()

    def write_key(self) -> None:
        """The key file, as the named has it now."""
        named = self.named
        text = f'key "{named.key_name}" {{ algorithm hmac-sha256; secret "{named.secret}"; }};\n'
        (self.folder / "sidecar.key").write_text(text)

    async def start(self) -> None:
        """Start, and return when it listens."""
        self.write_key()
        (self.folder / "token").write_text(self.token + "\n")
        named = self.named
        arguments = [
            *("dns", "sidecar", "--zone-dir", str(named.zones), "--listen", f"{LOOPBACK}:{self.port}"),
            *("--rndc", f"{named.address}:{named.rndc_port}", "--dns-port", str(named.dns_port)),
            *("--key-file", str(self.folder / "sidecar.key"), "--token-file", str(self.folder / "token")),
            *self._options,
        ]
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder)}
        program = Path(sys.executable).with_name("steersman")
        await self._launch(program, *arguments, log=self.folder / "sidecar.log", environment=environment)

    async def ask(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> tuple[int, Any]:
        """Status and body of an answer; `token` is another than the right one, empty for none."""
        import aiohttp

        shown = self.token if token is None else token
        headers = {"Authorization": f"Bearer {shown}"} if shown else {}
        url = f"http://{LOOPBACK}:{self.port}{path if path.startswith('/metrics') else f'/api/v1{path}'}"
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, url, json=body) as answer,
        ):
            text = await answer.text()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text


class OriginalSidecar(SidecarProcess):
    """The program whose interface ours serves, as `crates.BINDCAR` builds it."""

    async def start(self) -> None:
        """Start, and return when it listens; BinariesError when this machine does not have it."""
        from steersman.testing.controlplane.binaries import BinariesError
        from tests.support.programs.crates import BINDCAR

        program = BINDCAR.built()
        if program is None:
            raise BinariesError(f"{BINDCAR.name} is not built: `make programs`")
        named = self.named
        key = {"ALGORITHM": "hmac-sha256", "SECRET": named.secret}
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",  # it runs nsupdate
            "API_PORT": str(self.port),
            "BIND_API_ADDRESS": LOOPBACK,
            "BIND_API_TOKEN": self.token,
            "BIND_ZONE_DIR": str(named.zones),
            "RNDC_SERVER": f"{named.address}:{named.rndc_port}",
            "NSUPDATE_SERVER": named.address,
            "NSUPDATE_PORT": str(named.dns_port),
            "NSUPDATE_KEY_NAME": named.key_name,
            "RATE_LIMIT_ENABLED": "false",
            **{f"{use}_{name}": value for use in ("RNDC", "NSUPDATE") for name, value in key.items()},
        }
        await self._launch(program, log=self.folder / "sidecar.log", environment=environment)


def server_of(car: SidecarProcess, role: str = "primary", *, token: str | None = None, **more: Any) -> Server:
    """The server behind a sidecar, as the operator knows it."""
    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.dns.bind.servers import Keys, Server
    from steersman.operators.dns.wire.tsig import Key

    named = car.named
    key = Key(named.key_name, "hmac-sha256", base64.b64decode(named.secret))
    keys = Keys(key, key, key, token=car.token if token is None else token)
    ports = (named.address, named.dns_port, named.rndc_port)
    return Server(NamespacedName(role, "n"), "0", role, *ports, keys, api_port=car.port, **more)


@asynccontextmanager
async def driving(car: SidecarProcess, role: str = "primary", **more: Any) -> AsyncIterator[BindcarDriver]:
    """A driver for the server behind a sidecar; another one each time, that knows nothing yet."""
    from steersman.clock import SYSTEM_CLOCK
    from steersman.operators.dns.bind.http_driver import BindcarDriver
    from tests.support.dns.zones import PATIENCE

    driver = BindcarDriver(server_of(car, role, **more), clock=SYSTEM_CLOCK, timeout=PATIENCE, pause=0.01)
    try:
        yield driver
    finally:
        driver.close()


async def put_behind(site: Site, role: str, car: SidecarProcess) -> None:
    """An instance for a server that is managed through its sidecar, and the Secret of both."""
    how = {"driver": "bindcar", "bindcarConfig": {"port": car.port}}
    # Without the control channel: if anything used it, it would fail.
    await site.instance(role, role, car.named, **how, endpoints=[{**car.named.endpoint, "rndcPort": 1}])
    token = {"token": base64.b64encode(car.token.encode()).decode()}
    meta = {"name": f"{role}-key", "namespace": site.namespace}
    await site.client.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": token}, field_manager="token"
    )
