"""`steersman dns sidecar` as a process beside a `Named`, and a life that tests control.

async with SidecarProcess(ns1) as car:
    await car.ask("GET", "/zones")      # status and body of an answer
    await car.kill()                    # kill -9; `start` brings it back on the same port
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steersman.testing.loopbackserver import LoopbackServer, PortClaim
from steersman.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from steersman.testing.named import Named

__all__ = ["SidecarProcess"]


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
